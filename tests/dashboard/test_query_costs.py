"""What a page asks of the database does not grow with the cluster."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.builders import (
    make_claim,
    make_class,
    make_devices,
    make_namespace,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
)
from tests.dashboard.browsing import admin
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

#: page -> the most queries
MOST = {
    "/claims": 21,
    "/classes": 13,
    "/find?q=s": 21,
    "/namespaces": 13,
    "/nodes?q=node": 13,
    "/overview": 29,
    "/pods": 12,
    "/pods/space-0/waits": 14,
    "/quotas": 16,
}


@pytest.fixture
def space(cluster: Cluster) -> Cluster:
    cluster.create(make_class())
    grow(cluster, range(1))
    return cluster


def grow(cluster: Cluster, numbers: range) -> None:
    """Each step adds a node with devices, a class, and a namespace with a quota, a pod that runs and one that waits."""
    for number in numbers:
        namespace = f"space-{number}"
        cluster.create(make_node(f"node-{number}"))
        cluster.create(make_slice(node=f"node-{number}", devices=make_devices(4)))
        cluster.create(make_class(f"class-{number}"))
        cluster.create(make_namespace(namespace))
        cluster.create(make_quota({"pods": "9"}, namespace=namespace))
        for name, count in (("runs", 4), ("waits", 9)):
            cluster.create(make_claim(name, namespace=namespace, requests=[make_request(count=count)]))
            cluster.create(make_pod(name, namespace=namespace, claims={"gpu": name}))
    cluster.settle()


def costs(client: Client) -> dict[str, int]:
    found = {}
    for path in MOST:
        client.get(path)  # what the process keeps is read once
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        found[path] = len(queries)
    return found


def test_a_page_costs_the_same_for_a_small_cluster_and_a_large_one(admin: Client, space: Cluster) -> None:
    few = costs(admin)
    grow(space, range(1, 12))
    many = costs(admin)
    assert {path: (few[path], cost) for path, cost in many.items() if cost > few[path]} == {}
    assert {path: cost for path, cost in many.items() if cost > MOST[path]} == {}
