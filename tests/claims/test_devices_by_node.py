"""The upgrade tells the devices of equally named pools apart: rows from before get their node from the documents."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection

from claims.models import AllocatedDevice
from inventory.models import Pool
from tests.builders import make_allocation, make_claim, make_result, make_slice
from tests.scheduling.cluster import Cluster

fill_nodes = import_module("claims.migrations.0007_devices_by_node").fill_nodes
gather_pools = import_module("inventory.migrations.0005_pools_by_node").gather_pools

pytestmark = pytest.mark.django_db


def test_rows_of_before_get_their_node() -> None:
    cluster = Cluster()
    for node in ("node-1", "node-2", None):
        where = make_allocation(make_result(f"of-{node}", pool="p"), node=node)
        cluster.create_allocated(make_claim(f"on-{node or 'any'}".lower()), where)
    rows = AllocatedDevice.objects.order_by("claim__name").values_list("claim__name", "node")
    known = list(rows)
    AllocatedDevice.objects.update(node="")
    fill_nodes(apps, connection.schema_editor())
    assert list(rows) == known == [("on-any", ""), ("on-node-1", "node-1"), ("on-node-2", "node-2")]


def test_pools_of_before_become_one_row_for_each_node() -> None:
    cluster = Cluster()
    for node in ("node-1", "node-2"):
        cluster.create(make_slice(f"whole-{node}", node=node, pool="p"))
        cluster.create(make_slice(f"part-{node}", node=node, pool="spread", slices=2))
    cluster.create(make_slice("short", node="node-1", pool="short", slices=2))
    columns = [field.name for field in Pool._meta.fields if field.name != "id"]
    rows = Pool.objects.order_by("name", "node_name").values_list(*columns)
    known = list(rows)
    Pool.objects.all().delete()
    gather_pools(apps, connection.schema_editor())
    assert list(rows) == known
    assert [row[columns.index("complete")] for row in known] == [True, True, False, True, True]
