"""A quota counts Services, their ports on the nodes and their load balancers; one beyond it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.quotas import RESOURCE_QUOTA, ResourceQuota
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SYSTEM
from networking.kinds.services import SERVICE, ServicePort
from tests.builders import make_quota
from tests.networking.cluster import NAMESPACE, Cluster, make_service

TWO = tuple(ServicePort(name=f"p{port}", port=port, target_port=port) for port in (80, 443))


def used() -> dict[str, str]:
    return decoded(objects.list(RESOURCE_QUOTA, namespace=NAMESPACE).items[0], ResourceQuota).status.used


def set_quota(**hard: str) -> None:
    with objects.writing(identity=SYSTEM) as writer:
        writer.create(RESOURCE_QUOTA, make_quota({key.replace("_", "."): text for key, text in hard.items()}))


@pytest.mark.parametrize(
    ("hard", "spec"),
    [
        ({"services": "1"}, {}),
        ({"services_nodeports": "3"}, {"type": "NodePort", "ports": TWO}),
        ({"services_nodeports": "3"}, {"type": "LoadBalancer", "ports": TWO}),
        ({"services_loadbalancers": "1"}, {"type": "LoadBalancer"}),
    ],
)
def test_one_service_fits_and_two_do_not(cluster: Cluster, hard: dict[str, str], spec: dict[str, Any]) -> None:
    set_quota(**hard)
    cluster.create(SERVICE, make_service("first", **spec))
    with pytest.raises(Forbidden, match="exceeded quota"):
        cluster.create(SERVICE, make_service("second", **spec))


def test_a_service_that_changes_its_type_is_charged_for_that(cluster: Cluster) -> None:
    def become(type_: str) -> None:
        cluster.edit(SERVICE, "web", lambda one: replace(one, spec=replace(one.spec, type=type_)))

    set_quota(services_nodeports="1", services_loadbalancers="0")
    cluster.create(SERVICE, make_service("web"))
    assert used()["services.nodeports"] == "0"
    become("NodePort")
    assert used()["services.nodeports"] == "1"
    with pytest.raises(Forbidden, match="exceeded quota"):
        become("LoadBalancer")
    become("ClusterIP")
    assert used()["services.nodeports"] == "0"


def test_what_was_there_before_the_quota_counts_too(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service("a", type="NodePort", ports=TWO))
    cluster.create(SERVICE, make_service("b", type="LoadBalancer", allocate_load_balancer_node_ports=False))
    set_quota(services="5", services_nodeports="5", services_loadbalancers="5")
    assert used() == {"services": "2", "services.nodeports": "2", "services.loadbalancers": "1"}
