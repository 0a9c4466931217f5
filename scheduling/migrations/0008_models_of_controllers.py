from django.db import migrations


class Migration(migrations.Migration):
    """Cursors and heartbeats belong to the app `controllers` now, which keeps their tables."""

    dependencies = [
        ("scheduling", "0007_woken"),
        ("controllers", "0001_from_scheduling"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel("Cursor"),
                migrations.DeleteModel("Heartbeat"),
            ]
        )
    ]
