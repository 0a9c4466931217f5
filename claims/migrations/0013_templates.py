import json
from typing import Any

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
ROWS = 1000


def fill(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Index the templates that there are. Those that an older version writes from here on are added by `reindex`."""
    stored = apps.get_model("store", "StoredObject").objects.filter(resource=TEMPLATES)
    template = apps.get_model("claims", "Template")
    rows = (
        template(uid=uid, namespace=namespace, name=name, **_columns(json.loads(text)))
        for uid, namespace, name, text in stored.values_list("uid", "namespace", "name", "event__document")
    )
    template.objects.bulk_create(rows, batch_size=ROWS)


def _columns(template: dict[str, Any]) -> dict[str, Any]:
    """As `claims.projectors.template_row`."""
    requests = template.get("spec", {}).get("spec", {}).get("devices", {}).get("requests", ())
    return {
        "created_at": template["metadata"]["creationTimestamp"],
        "requests": ", ".join(_request_text(request) for request in requests),
    }


def _request_text(request: dict[str, Any]) -> str:
    exactly = request.get("exactly")
    if exactly is None:
        return f"one of {len(request.get('firstAvailable', ()))} alternatives"
    count = "all" if exactly.get("allocationMode") == "All" else exactly.get("count", 1)
    return f"{count} of {exactly.get('deviceClassName', '')}"


class Migration(migrations.Migration):

    dependencies = [
        ("claims", "0012_claims_as_listed"),
        ("store", "0008_rows_in_their_page"),
    ]

    operations = [
        migrations.CreateModel(
            name="Template",
            fields=[
                ("uid", models.CharField(max_length=36, primary_key=True, serialize=False)),
                ("namespace", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("created_at", models.DateTimeField()),
                ("requests", models.TextField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["namespace", "name"], name="template_key")],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
