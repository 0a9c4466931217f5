"""The log of Django's admin has a table again where `0008_without_django_admin` dropped it.

The admin is read-only now, so the table stays empty and keeps nobody's account; Django looks into it all the same.
"""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def create(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    log = apps.get_model("admin", "LogEntry")
    if log._meta.db_table not in schema_editor.connection.introspection.table_names():
        schema_editor.create_model(log)


class Migration(migrations.Migration):
    dependencies = [
        ("access", "0011_account_closing"),
        ("admin", "0003_logentry_add_action_flag_choices"),
    ]

    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
