import json

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

CLAIMS = "resourceclaims.resource.k8s.io"
ROWS = 500


def fill_nodes(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """The node is in the claims" documents, in the node selector of the allocation."""
    allocated = apps.get_model("claims", "AllocatedDevice").objects.all()
    stored = apps.get_model("store", "StoredObject").objects.filter(resource=CLAIMS).select_related("event")
    uids = sorted(set(allocated.values_list("claim_id", flat=True)))
    for first in range(0, len(uids), ROWS):
        claims_of: dict[str, list[str]] = {}
        for uid, text in stored.filter(uid__in=uids[first : first + ROWS]).values_list("uid", "event__document"):
            claims_of.setdefault(_node(json.loads(text)), []).append(uid)
        for node, claims in claims_of.items():
            if node:
                allocated.filter(claim_id__in=claims).update(node=node)


def _node(claim: dict) -> str:
    """As `claims.kinds.resource_claims.node_of`."""
    selector = claim.get("status", {}).get("allocation", {}).get("nodeSelector", {})
    terms = selector.get("nodeSelectorTerms", [])
    for field in terms[0].get("matchFields", []) if len(terms) == 1 else []:
        if (field["key"], field["operator"], len(field["values"])) == ("metadata.name", "In", 1):
            return field["values"][0]
    return ""


class Migration(migrations.Migration):
    dependencies = [
        ("claims", "0006_uses_of_devices"),
        ("store", "0004_who_wrote_it"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="allocateddevice",
            name="device_given_once",
        ),
        migrations.RemoveIndex(
            model_name="allocateddevice",
            name="allocated_device_key",
        ),
        migrations.AddField(
            model_name="allocateddevice",
            name="node",
            field=models.CharField(db_default="", default="", max_length=253),
        ),
        migrations.AddField(
            model_name="pastallocation",
            name="node",
            field=models.CharField(db_default="", default="", max_length=253),
        ),
        migrations.RunPython(fill_nodes, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="allocateddevice",
            index=models.Index(fields=["driver", "pool", "device", "node"], name="allocated_device_key"),
        ),
        migrations.AddConstraint(
            model_name="allocateddevice",
            constraint=models.UniqueConstraint(
                condition=models.Q(("exclusive", True)),
                fields=("driver", "pool", "device", "node"),
                name="device_given_once",
            ),
        ),
    ]
