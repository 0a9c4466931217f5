"""Nodes that fall silent and come back, and the pods that must leave them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec import structs

from claims.kinds.affinity import Toleration
from inventory.kinds.nodes import Node, NodeCondition, Taint
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Lease, LeaseSpec
from scheduling.controllers import node_lifecycle
from scheduling.controllers.node_health import eviction_time, judged
from tests.builders import CREATED, make_node, make_pod, stored
from tests.scheduling.cluster import Cluster

START = datetime.fromisoformat(CREATED)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def lease(seconds: float) -> Lease:
    renewed = after(seconds).isoformat().replace("+00:00", "Z")
    meta = ObjectMeta(name="node-1", namespace="kube-node-lease")
    return Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=LeaseSpec(renew_time=renewed))


def starting() -> Node:
    node = stored(make_node())
    return structs.replace(node, status=structs.replace(node.status, conditions=()))


def state(node: Node) -> tuple[str, set[str]]:
    """(Ready, taints as key:effect)."""
    ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "")
    return ready, {f"{taint.key.removeprefix('node.kubernetes.io/')}:{taint.effect}" for taint in node.spec.taints}


BOTH = ("NoSchedule", "NoExecute")
UNREACHABLE = {f"unreachable:{effect}" for effect in BOTH}
NOT_READY = {f"not-ready:{effect}" for effect in BOTH}

#: (node, lease, seconds after its last heartbeat) -> (Ready, taints)
HEALTH: dict[str, tuple[Node, Lease | None, float, tuple[str, set[str]]]] = {
    "heard of just now": (stored(make_node()), None, 5, ("True", set())),
    "silent for as long as the grace": (stored(make_node()), None, 40, ("True", set())),
    "silent for longer": (stored(make_node()), None, 41, ("Unknown", UNREACHABLE)),
    "silent, but its lease is renewed": (stored(make_node()), lease(35), 60, ("True", set())),
    "its lease is old too": (stored(make_node()), lease(10), 60, ("Unknown", UNREACHABLE)),
    "says itself that it is not ready": (stored(make_node(ready=False)), None, 5, ("False", NOT_READY)),
    "has not reported yet": (starting(), None, 50, ("", set())),
    "has never reported": (starting(), None, 61, ("Unknown", UNREACHABLE)),
}


@pytest.mark.parametrize("phrase", HEALTH)
def test_node(phrase: str) -> None:
    node, sign, seconds, expected = HEALTH[phrase]
    once = judged(node, sign, after(seconds))
    assert state(once) == expected
    assert judged(once, sign, after(seconds + 1)) is once or expected == ("True", set())


def test_a_node_that_is_well_is_not_written() -> None:
    node = stored(make_node(taints=[Taint(key="mine", effect="NoSchedule")]))
    assert judged(node, lease(10), after(20)) is node


def test_a_node_that_is_back_loses_our_taints_and_keeps_others() -> None:
    lost = judged(stored(make_node(taints=[Taint(key="mine", effect="NoSchedule")])), None, after(60))
    ready = NodeCondition(type="Ready", status="True", last_heartbeat_time="2026-01-01T00:02:00Z")
    reported = structs.replace(lost, status=structs.replace(lost.status, conditions=(ready,)))
    assert state(judged(reported, None, after(121))) == ("True", {"mine:NoSchedule"})


NO_EXECUTE = Taint(key="maintenance", effect="NoExecute", time_added=CREATED)
ANOTHER = Taint(key="example.com/other", effect="NoExecute", time_added=CREATED)
GONE = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute", time_added=CREATED)


def tolerating(seconds: int | None, key: str = "maintenance") -> Toleration:
    return Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=seconds)


#: (the pod's tolerations, the node's taints) -> seconds until it must leave; None for never
EVICTIONS: dict[str, tuple[tuple[Toleration, ...], tuple[Taint, ...], float | None]] = {
    "no taint": ((), (), None),
    "a taint that only keeps new pods away": ((), (Taint(key="busy", effect="NoSchedule"),), None),
    "not tolerated": ((), (NO_EXECUTE,), 0),
    "tolerated for ever": ((tolerating(None),), (NO_EXECUTE,), None),
    "tolerated for a while": ((tolerating(30),), (NO_EXECUTE,), 30),
    "tolerated for less than no time": ((tolerating(-5),), (NO_EXECUTE,), 0),
    "the shorter of two patiences": ((tolerating(30), tolerating(10, "")), (NO_EXECUTE,), 10),
    "one of two taints is not tolerated": ((tolerating(30),), (NO_EXECUTE, ANOTHER), 0),
    "an unreachable node gets five minutes": ((), (GONE,), 300),
    "unless the pod says otherwise": ((tolerating(5, GONE.key),), (GONE,), 5),
}


@pytest.mark.parametrize("phrase", EVICTIONS)
def test_eviction(phrase: str) -> None:
    tolerations, taints, seconds = EVICTIONS[phrase]
    pod = stored(make_pod(node="node-1", tolerations=tolerations))
    expected = None if seconds is None else after(seconds)
    assert eviction_time(pod, stored(make_node(taints=taints))) == expected


def test_a_silent_node_gets_no_pods_and_loses_its_own_after_five_minutes(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web"))
    cluster.settle()
    cluster.now = START + timedelta(days=3650)
    assert node_lifecycle.sweep(cluster.now) == 1
    assert state(cluster.node()) == ("Unknown", UNREACHABLE)
    cluster.create(make_pod("late"))
    cluster.settle()
    assert "untolerated taint {node.kubernetes.io/unreachable: }" in cluster.why_pending("late")

    cluster.later(299)
    assert node_lifecycle.sweep(cluster.now) == 0
    cluster.later(2)
    assert node_lifecycle.sweep(cluster.now) == 1
    assert cluster.pod("web").metadata.deletion_timestamp is not None
    assert [event.message for event in cluster.events("TaintManagerEviction")] == [
        "Marking for deletion Pod default/web"
    ]
