from django.db import migrations, models


class Migration(migrations.Migration):
    """Pods of before get the new columns when they are written next, or by `reindex`."""

    dependencies = [
        ("claims", "0014_endings"),
    ]

    operations = [
        migrations.AddField("pod", "controller_uid", models.CharField(db_default="", default="", max_length=36)),
        migrations.AddField("pod", "started_at", models.DateTimeField(null=True)),
        migrations.AddField("pod", "time_limit", models.BigIntegerField(null=True)),
        migrations.AddIndex("pod", models.Index(fields=["controller_uid"], name="pod_controller")),
        migrations.AddIndex(
            "pastallocation", models.Index(fields=["namespace", "ended_at"], name="past_allocation_namespace")
        ),
    ]
