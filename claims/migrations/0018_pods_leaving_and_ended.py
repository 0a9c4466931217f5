from django.db import migrations, models

from manciple.wire.resources import FINISHED_PHASES


class Migration(migrations.Migration):
    """The few pods that some sweeps look for, among the many at rest."""

    dependencies = [
        ("claims", "0017_ephemeral_volumes"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="pod",
            index=models.Index(condition=models.Q(("deleting", True)), fields=["node_name"], name="pod_leaving"),
        ),
        migrations.AddIndex(
            model_name="pod",
            index=models.Index(
                condition=models.Q(("phase__in", sorted(FINISHED_PHASES))), fields=["namespace"], name="pod_ended"
            ),
        ),
    ]
