"""On PostgreSQL: rows of up to 4 KB stay in their page as they are.

The document of a pod or an allocated claim has 2 to 3 KB, of which managedFields are a third. By default PostgreSQL
compresses rows of more than 2 KB, and moves a document that is too long even so to another table, for each write and
again for each process that reads it.
"""

from django.db import migrations


def keep_in_page(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE store_event SET (toast_tuple_target = 4080)")


def as_before(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE store_event RESET (toast_tuple_target)")


class Migration(migrations.Migration):

    dependencies = [
        ("store", "0007_lz4_documents"),
    ]

    operations = [migrations.RunPython(keep_in_page, as_before)]
