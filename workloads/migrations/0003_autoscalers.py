from django.db import migrations, models


class Migration(migrations.Migration):
    """Autoscalers of before get their row when they are written next, within a turn of theirs, or by `reindex`."""

    dependencies = [
        ("workloads", "0002_autoscaler_histories"),
    ]

    operations = [
        migrations.CreateModel(
            name="Autoscaler",
            fields=[
                ("uid", models.CharField(max_length=36, primary_key=True, serialize=False)),
                ("namespace", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("created_at", models.DateTimeField()),
                ("target_kind", models.TextField()),
                ("target_name", models.TextField()),
                ("least", models.BigIntegerField()),
                ("most", models.BigIntegerField()),
                ("replicas", models.BigIntegerField()),
                ("desired", models.BigIntegerField()),
                ("metrics", models.TextField()),
                ("last_scaled_at", models.DateTimeField(null=True)),
                ("state", models.CharField(max_length=16)),
                ("reason", models.TextField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("namespace", "name"), name="autoscaler_key")],
            },
        ),
    ]
