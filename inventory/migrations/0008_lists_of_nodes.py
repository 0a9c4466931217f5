"""The list of nodes is filtered, counted and sorted in the database."""

import json
from datetime import datetime

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from inventory.kinds.nodes import LIFECYCLE_TAINTS
from manciple.wire.validation import natural_text


def order_bytewise(_apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """SQLite compares so anyway."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute('ALTER TABLE inventory_node ALTER COLUMN position TYPE text COLLATE "C"')


def fill(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """As `inventory.projectors.node_row` does. Rows that an older version writes from here on need `reindex`."""
    nodes = apps.get_model("inventory", "Node").objects
    stored = apps.get_model("store", "StoredObject").objects.filter(resource="nodes").select_related("event")
    for uid, name, text in stored.values_list("uid", "name", "event__document"):
        node = json.loads(text)
        meta, status = node["metadata"], node.get("status", {})
        conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
        info = status.get("nodeInfo", {})
        version = " · ".join(filter(None, (info.get("kubeletVersion"), info.get("containerRuntimeVersion"))))
        addresses = (one["address"] for one in status.get("addresses", ()))
        labels = (f"{key}={value}" for key, value in sorted(meta.get("labels", {}).items()))
        created = meta.get("creationTimestamp")
        nodes.filter(uid=uid).update(
            condition=conditions.get("Ready", ""),
            tainted=any(one["key"] not in LIFECYCLE_TAINTS for one in node.get("spec", {}).get("taints", ())),
            created_at=datetime.fromisoformat(created) if created else None,
            position=natural_text(name),
            searched="\n".join((name, version, *addresses, *labels)).lower(),
        )


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0007_names_and_times"),
        ("store", "0004_who_wrote_it"),
    ]

    operations = [
        migrations.AddField("node", "condition", models.CharField(max_length=16, default="", db_default="")),
        migrations.AddField("node", "tainted", models.BooleanField(default=False, db_default=False)),
        migrations.AddField("node", "created_at", models.DateTimeField(null=True)),
        migrations.AddField("node", "position", models.TextField(default="", db_default="")),
        migrations.AddField("node", "searched", models.TextField(default="", db_default="")),
        migrations.RunPython(order_bytewise, migrations.RunPython.noop),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
