from collections import defaultdict

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from inventory.kinds.pools import SliceTally


def gather_pools(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    """One row for each node of equally named pools, as `inventory.projectors` writes them."""
    pool_model = apps.get_model("inventory", "Pool")
    pools = defaultdict(list)
    for row in apps.get_model("inventory", "PublishedSlice").objects.order_by("name"):
        pools[row.driver, row.pool, row.node_name].append(row)
    current, counts = {}, defaultdict(dict)
    for key, slices in pools.items():
        newest = max(row.generation for row in slices)
        current[key] = [row for row in slices if row.generation == newest]
        counts[key[:2]][key] = SliceTally(newest, current[key][0].slices_expected, len(current[key]))
    pool_model.objects.all().delete()
    pool_model.objects.bulk_create(
        pool_model(
            driver=key[0],
            name=key[1],
            node_name=key[2],
            generation=slices[0].generation,
            slices_expected=slices[0].slices_expected,
            slices_seen=len(slices),
            complete=counts[key[:2]][key].is_complete(
                count for other, count in counts[key[:2]].items() if other != key
            ),
            device_count=sum(row.device_count for row in slices),
        )
        for key, slices in current.items()
    )


class Migration(migrations.Migration):

    dependencies = [
        ("inventory", "0004_incidents"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="pool",
            name="pool_key",
        ),
        migrations.RemoveIndex(
            model_name="publishedslice",
            name="slice_pool",
        ),
        migrations.RunPython(gather_pools, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="publishedslice",
            index=models.Index(fields=["driver", "pool", "node_name"], name="slice_of_pool"),
        ),
        migrations.AddConstraint(
            model_name="pool",
            constraint=models.UniqueConstraint(fields=("driver", "name", "node_name"), name="pool_of_node"),
        ),
    ]
