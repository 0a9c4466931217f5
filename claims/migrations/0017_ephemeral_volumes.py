from django.db import migrations, models
import django.db.models.deletion


class Migration(migrations.Migration):
    """Pods of before are indexed when they are written next, or by `reindex`."""

    dependencies = [
        ("claims", "0016_troubles_of_pods"),
    ]

    operations = [
        migrations.CreateModel(
            name="EphemeralVolume",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("claim", models.TextField()),
                (
                    "pod",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="claims.pod",
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["pod"], name="ephemeral_volume_pod")]},
        ),
    ]
