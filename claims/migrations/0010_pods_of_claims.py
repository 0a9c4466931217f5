import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

ROWS = 1000


def fill(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """What pods of before name. Those that an older version writes from here on are added by `reindex`."""
    pod_claim = apps.get_model("claims", "PodClaim")
    pods = apps.get_model("claims", "Pod").objects.exclude(claim_names=[])
    rows = (
        pod_claim(pod_id=uid, namespace=namespace, claim=claim)
        for uid, namespace, names in pods.values_list("uid", "namespace", "claim_names").iterator(ROWS)
        for claim in names
    )
    pod_claim.objects.bulk_create(rows, batch_size=ROWS)


class Migration(migrations.Migration):

    dependencies = [
        ("claims", "0009_uses_by_node"),
    ]

    operations = [
        migrations.CreateModel(
            name="PodClaim",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=63)),
                ("claim", models.CharField(max_length=253)),
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
            options={
                "indexes": [
                    models.Index(fields=["pod"], name="pod_claim_pod"),
                    models.Index(fields=["namespace", "claim"], name="pod_claim_key"),
                ],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
