from django.db import migrations, models


class Migration(migrations.Migration):
    """Pods of before get the new column when they are written next, or by `reindex`."""

    dependencies = [
        ("claims", "0015_pods_of_workloads"),
    ]

    operations = [
        migrations.AddField("pod", "trouble", models.CharField(db_default="", default="", max_length=200)),
        migrations.AddIndex(
            "pod",
            models.Index(condition=~models.Q(trouble=""), fields=["controller_uid"], name="pod_in_trouble"),
        ),
    ]
