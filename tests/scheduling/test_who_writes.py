"""The rules of writing are asked on every path, the controllers' included, and told who writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from claims import evictions
from claims.controllers import podgc
from claims.kinds.resource_claims import ResourceClaim
from manciple.store import hooks, objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SCHEDULER, SYSTEM, Identity
from manciple.wire.machinery import DeleteOptions
from manciple.wire.resources import PODS
from tests.builders import make_pod, make_template
from tests.scheduling.cluster import Cluster

CLAIMS = "resourceclaims.resource.k8s.io"
CLAIM_CONTROLLER = "system:serviceaccount:kube-system:resource-claim-controller"
Seen = tuple[str, str, str]


@pytest.fixture
def seen() -> Iterator[list[Seen]]:
    """(operation, resource, who) of every write but those of the test itself."""
    found: list[Seen] = []

    def watch(_writer: Writer, write: Write) -> None:
        if write.identity is not SYSTEM:
            found.append((write.operation, write.kind.resource, write.identity.name))

    hooks.register_rule(watch, operations={"CREATE", "UPDATE", "DELETE"})
    yield found
    hooks.unregister_rule(watch)


@pytest.fixture
def quota() -> Iterator[None]:
    """No claim may be made by anybody."""

    def refuse(_writer: Writer, write: Write) -> None:
        raise Forbidden(f'exceeded quota, says "{write.identity.name}"')

    hooks.register_rule(refuse, operations={"CREATE"}, resources={CLAIMS})
    yield
    hooks.unregister_rule(refuse)


def test_a_pods_way_is_written_by_the_claim_controller_and_the_scheduler(cluster: Cluster, seen: list[Seen]) -> None:
    cluster.with_gpus()
    cluster.create(make_template("one"))
    cluster.create(make_pod("web", templates={"gpu": "one"}))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert set(seen) == {
        ("CREATE", CLAIMS, CLAIM_CONTROLLER),
        ("UPDATE", "pods", CLAIM_CONTROLLER),
        ("UPDATE", CLAIMS, SCHEDULER.name),
        ("UPDATE", "pods", SCHEDULER.name),
        ("CREATE", "events", SCHEDULER.name),
    }


def test_what_a_finished_pod_held_is_taken_back_by_the_claim_controller(cluster: Cluster, seen: list[Seen]) -> None:
    cluster.with_gpus()
    cluster.create(make_template("one"))
    cluster.create(make_pod("web", templates={"gpu": "one"}))
    cluster.settle()
    seen.clear()
    cluster.finish("web")
    cluster.settle()
    assert ("UPDATE", CLAIMS, CLAIM_CONTROLLER) in seen
    assert ("DELETE", CLAIMS, CLAIM_CONTROLLER) in seen
    assert {who for _, _, who in seen} == {CLAIM_CONTROLLER}


def test_orphans_of_a_node_are_deleted_by_the_pod_garbage_collector(cluster: Cluster, seen: list[Seen]) -> None:
    pod = make_pod("lost")
    cluster.create(structs.replace(pod, spec=structs.replace(pod.spec, node_name="gone")))
    podgc.sweep(cluster.now)
    cluster.later(60)
    podgc.sweep(cluster.now)
    assert {who for _, _, who in seen} == {"system:serviceaccount:kube-system:pod-garbage-collector"}


def test_the_condition_of_an_evicted_pod_is_written_for_the_client(cluster: Cluster, seen: list[Seen]) -> None:
    pod = cluster.create(make_pod("web", node="node-1"))
    with objects.writing(identity=Identity("eve", groups=("system:masters",))) as writer:
        evictions.disrupt(writer, pod, evictions.EVICTION_API, now=cluster.now, requested=DeleteOptions())
    assert seen == [("UPDATE", PODS, evictions.IDENTITY.name), ("DELETE", PODS, "eve")]


@pytest.mark.usefixtures("quota")
def test_a_rule_that_refuses_a_controllers_claim_is_told_to_the_pods_owner(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_template("one"))
    cluster.create(make_pod("web", templates={"gpu": "one"}))
    cluster.settle()
    assert cluster.all(ResourceClaim) == []
    (event,) = cluster.events("FailedResourceClaimCreation")
    assert event.message == f'PodResourceClaim gpu: exceeded quota, says "{CLAIM_CONTROLLER}"'
