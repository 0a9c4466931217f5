"""Devices that their drivers taint NoExecute are found without looking at the others."""

from django.db import migrations, models


def mark(apps, schema_editor):
    found = "UPDATE inventory_device SET evicting = TRUE WHERE CAST(taints AS TEXT) LIKE '%NoExecute%'"
    schema_editor.execute(found, None)


class Migration(migrations.Migration):

    dependencies = [
        ("inventory", "0001_index_tables"),
    ]

    operations = [
        migrations.AddField(
            model_name="device",
            name="evicting",
            field=models.BooleanField(default=False),
        ),
        migrations.RunPython(mark, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="device",
            index=models.Index(condition=models.Q(("evicting", True)), fields=["evicting"], name="device_evicting"),
        ),
    ]
