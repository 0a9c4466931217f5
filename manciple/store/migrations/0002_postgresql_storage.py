"""On PostgreSQL: rows that are updated often stay in their page, and no index that only LIKE would use is kept."""

from django.db import migrations

TABLES = {
    # table: (primary key, how full its pages are made, in percent)
    "store_storedobject": ("uid", 60),
}


def settle(apps, schema_editor):
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        for table, (column, filled) in TABLES.items():
            cursor.execute(f"ALTER TABLE {table} SET (fillfactor = {filled})")
            cursor.execute(
                "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND tablename = %s "
                "AND indexdef LIKE %s",
                [table, f"%({column} varchar_pattern_ops)"],
            )
            for (index,) in cursor.fetchall():
                cursor.execute(f'DROP INDEX "{index}"')


class Migration(migrations.Migration):

    dependencies = [
        ("store", "0001_log_and_objects"),
    ]

    operations = [migrations.RunPython(settle, migrations.RunPython.noop)]
