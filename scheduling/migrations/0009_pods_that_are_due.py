from django.db import migrations, models


class Migration(migrations.Migration):
    """The queue is asked each second who is due: many may wait, few are due."""

    dependencies = [
        ("scheduling", "0008_models_of_controllers"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="queuedpod",
            index=models.Index(fields=["state", "parked_at"], name="queue_parked"),
        ),
        migrations.AddIndex(
            model_name="queuedpod",
            index=models.Index(
                condition=models.Q(("not_before__isnull", False)), fields=["not_before"], name="queue_due"
            ),
        ),
    ]
