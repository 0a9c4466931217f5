"""What could be mended is told for the pods that start by it, not for all that name it."""

from __future__ import annotations

import pytest

from claims.causes.causes import decode
from claims.causes.next_steps import topic_of
from manciple.store.event_log import latest_revision
from scheduling.models import QueuedPod
from scheduling.rehearsal import explanations as current
from scheduling.rehearsal import repairs
from scheduling.rehearsal.repairs import (
    ClosedNode,
    ForgottenClaim,
    IncompletePool,
    Mended,
    TaintedDevices,
    TaintingRule,
    read_mendings,
)
from tests.builders import (
    make_allocation,
    make_claim,
    make_class,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_taint_rule,
    make_template,
)
from tests.scheduling.cluster import Cluster, with_spec


def _waiting(cluster: Cluster, *names: str, count: int = 1) -> None:
    cluster.create(make_template(f"gpus-{count}", requests=[make_request(count=count)]))
    for name in names:
        cluster.create(make_pod(name, templates={"gpu": f"gpus-{count}"}))
    cluster.settle()


def _found() -> Mended:
    for _ in range(20):
        if (found := read_mendings(budget=10)).complete:
            return found
    raise AssertionError("it does not end")


def _names(uids: frozenset[str]) -> list[str]:
    return sorted(QueuedPod.objects.filter(uid__in=uids).values_list("name", flat=True))


def test_a_pool_that_is_short_is_told_for_as_many_pods_as_its_devices_start(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-2", devices=make_devices(2), slices=2))
    _waiting(cluster, *(f"web-{number}" for number in range(6)))
    assert QueuedPod.objects.count() == 5
    found = _found()
    (mending,) = found.mendings
    assert isinstance(mending.trouble, IncompletePool)
    assert (mending.trouble.pool, mending.trouble.devices) == ("node-2", 2)
    assert (found.waiting, _names(mending.starts)) == (5, ["web-1", "web-2"])
    # the others would wait for devices that are held, not for a pool
    assert {topic_of(found.rest[uid]).key for uid in found.rest} == {"held"}
    assert len(found.rest) == 3


def test_what_helps_most_comes_first_and_the_next_is_told_for_what_it_adds(cluster: Cluster) -> None:
    cluster.create(make_class())
    for node, each in (("node-1", 1), ("node-2", 3), ("node-3", 2)):
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, devices=make_devices(each), slices=2 if node == "node-1" else 1))
    cluster.update(with_spec(cluster.node("node-2"), unschedulable=True))
    cluster.create(make_taint_rule("repair", pool="node-3"))
    _waiting(cluster, *(f"web-{number}" for number in range(10)))
    found = _found()
    assert [(type(one.trouble), len(one.starts)) for one in found.mendings] == [
        (ClosedNode, 3),
        (TaintingRule, 2),
        (IncompletePool, 1),
    ]
    assert not frozenset.intersection(*(one.starts for one in found.mendings))
    assert len(found.rest) == 4


def test_devices_that_their_driver_taints_can_be_mended(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_node("node-2"))
    sick = make_device_taint("gpu.example.com/unhealthy")
    cluster.create(make_slice(node="node-2", devices=make_devices(2, taints=[sick])))
    _waiting(cluster, "web-1", "web-2", "web-3")
    (mending,) = _found().mendings
    assert isinstance(mending.trouble, TaintedDevices)
    assert (mending.trouble.unhealthy, mending.trouble.devices, len(mending.starts)) == (True, 2, 2)


def test_devices_that_nobody_uses_can_be_released(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.with_gpus("node-1", each=2)
    held = make_allocation()
    cluster.create_allocated(make_claim("forgotten"), held)
    _waiting(cluster, "web-1", "web-2")
    assert _found().mendings == ()  # its controller takes it back soon
    _waiting(cluster, "web-3", count=2)  # something happens, and time passes
    monkeypatch.setattr(repairs, "REST_AT_LEAST", 0)
    monkeypatch.setattr(repairs, "REST", 0)
    monkeypatch.setattr(repairs, "FORGOTTEN", -60)
    (mending,) = _found().mendings
    assert mending.trouble == ForgottenClaim(namespace="default", claim="forgotten", devices=1)
    assert _names(mending.starts) == ["web-2"]


def test_a_mending_that_starts_nobody_is_not_told(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-2", devices=make_devices(2), slices=2))
    cluster.create(make_claim("held"))
    cluster.create(make_pod("holds", claims={"gpu": "held"}))
    cluster.settle()
    _waiting(cluster, "web", count=3)
    (queued,) = QueuedPod.objects.all()
    assert topic_of(decode(queued.cause)).key == "pool"
    found = _found()
    assert found.mendings == ()
    assert topic_of(found.rest[queued.uid]).key == "one-node"  # the pool would not have been enough


def test_it_is_not_found_out_twice_and_nothing_is_written(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.with_gpus("node-1", each=1)
    _waiting(cluster, "web-1", "web-2")
    revision, first = latest_revision(), _found()

    def refuse() -> list[repairs.Trouble]:
        raise AssertionError("found out again")

    monkeypatch.setattr(repairs, "troubles", refuse)
    assert read_mendings() is first
    assert latest_revision() == revision


def test_a_page_does_not_wait_for_all_of_it(cluster: Cluster) -> None:
    cluster.create(make_class())
    for number in range(4):
        cluster.create(make_node(f"node-{number}", unschedulable=True))
        cluster.create(make_slice(node=f"node-{number}", devices=make_devices(1)))
    _waiting(cluster, *(f"web-{number}" for number in range(6)))
    asked = 0
    while not (found := read_mendings(budget=0)).complete:
        asked += 1
        assert asked < 20
    assert asked
    assert sum(len(one.starts) for one in found.mendings) == 4


def test_a_page_does_not_wait_until_others_have_rehearsed_something(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    _waiting(cluster, "web-1", "web-2")
    known = repairs.Mendings(repairs.UNKNOWN)
    with current._imagining:  # as while a simulation is answered, which may take twenty seconds
        assert not known.read(0.01).complete
    assert known.read(10).waiting == 1
