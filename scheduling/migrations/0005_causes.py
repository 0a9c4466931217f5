from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def reseed(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Without its cursor the queue is made anew: every pod is tried again, which finds the causes."""
    apps.get_model("scheduling", "Cursor").objects.filter(name="queue").delete()


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0004_cursors_and_queue_without_leases")]

    operations = [
        migrations.RemoveField(model_name="queuedpod", name="message"),
        migrations.AddField(model_name="queuedpod", name="cause", field=models.TextField(default="")),
        migrations.RunPython(reseed, migrations.RunPython.noop),
    ]
