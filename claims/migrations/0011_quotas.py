import json
from typing import Any

import django.db.models.deletion
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from manciple.wire.quantity import Quantity

QUOTAS = "resourcequotas"
ROWS = 1000


def fill(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Index the quotas that there are. Those that an older version writes from here on are added by `reindex`."""
    stored = apps.get_model("store", "StoredObject").objects.filter(resource=QUOTAS)
    quotas, limits = apps.get_model("claims", "Quota"), apps.get_model("claims", "QuotaLimit")
    columns = ("uid", "namespace", "name", "event__document")
    documents = list(stored.values_list(*columns))
    quotas.objects.bulk_create(
        (quotas(uid=uid, namespace=namespace, name=name) for uid, namespace, name, _ in documents), batch_size=ROWS
    )
    rows = (limits(quota_id=uid, **limit) for uid, _, _, text in documents for limit in _limits(json.loads(text)))
    limits.objects.bulk_create(rows, batch_size=ROWS)


def _limits(quota: dict[str, Any]) -> list[dict[str, Any]]:
    """As `claims.projectors.quota_limit_rows`."""
    hard, used = quota.get("spec", {}).get("hard", {}), quota.get("status", {}).get("used", {})
    return [
        {"resource": key, "hard": limit, "used": used.get(key, ""), "fraction": _fraction(used.get(key), limit)}
        for key, limit in hard.items()
    ]


def _fraction(used: str | None, hard: str) -> float | None:
    if used is None:
        return None
    limit = Quantity.parse(hard).nanos
    return min(Quantity.parse(used).nanos * 1000 // limit, 10**9) / 1000 if limit else 1.0


class Migration(migrations.Migration):
    dependencies = [
        ("claims", "0010_pods_of_claims"),
        ("store", "0008_rows_in_their_page"),
    ]

    operations = [
        migrations.CreateModel(
            name="Quota",
            fields=[
                ("uid", models.CharField(max_length=36, primary_key=True, serialize=False)),
                ("namespace", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("namespace", "name"), name="quota_key")],
            },
        ),
        migrations.CreateModel(
            name="QuotaLimit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("resource", models.TextField()),
                ("hard", models.TextField()),
                ("used", models.TextField()),
                ("fraction", models.FloatField(null=True)),
                (
                    "quota",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="limits",
                        to="claims.quota",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["quota"], name="quota_limit_quota")],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
