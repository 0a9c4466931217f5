"""Nodes that fall silent and come back, and the pods that must leave them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from claims.controllers import node_lifecycle
from claims.controllers.node_lifecycle import eviction_time, judged
from claims.kinds.pods import PodCondition, PodStatus, Toleration
from inventory.kinds.nodes import Node, NodeCondition, Taint
from inventory.reachability import LEASE_NAMESPACE, SignsOfLife
from manciple.store import history
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Lease, LeaseSpec
from manciple.wire.resources import LEASES, NODES, kind
from tests.builders import CREATED, make_node, make_pod, stored
from tests.scheduling.cluster import Cluster, with_spec

START = datetime.fromisoformat(CREATED)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def heard(*, renewed: float | None = None, reported: float | None = 0) -> SignsOfLife:
    """Seconds after START at which the server saw the Lease renewed and the conditions reported."""
    times = [None if seconds is None else after(seconds) for seconds in (renewed, reported)]
    return SignsOfLife(renewed_at=times[0], reported_at=times[1])


def never() -> SignsOfLife:
    return SignsOfLife()


def starting() -> Node:
    node = stored(make_node())
    return structs.replace(node, status=structs.replace(node.status, conditions=()))


def pressed(*types: str) -> Node:
    """A ready node that reports these conditions as True."""
    node = stored(make_node())
    more = tuple(NodeCondition(type=type_, status="True", last_heartbeat_time=CREATED) for type_ in types)
    return structs.replace(node, status=structs.replace(node.status, conditions=(*node.status.conditions, *more)))


def state(node: Node) -> tuple[str, set[str]]:
    """(Ready, taints as key:effect)."""
    ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "")
    return ready, {f"{taint.key.removeprefix('node.kubernetes.io/')}:{taint.effect}" for taint in node.spec.taints}


BOTH = ("NoSchedule", "NoExecute")
UNREACHABLE = {f"unreachable:{effect}" for effect in BOTH}
NOT_READY = {f"not-ready:{effect}" for effect in BOTH}

#: (node, when it was heard of, seconds after its birth) -> (Ready, taints)
HEALTH: dict[str, tuple[Node, SignsOfLife, float, tuple[str, set[str]]]] = {
    "heard of just now": (stored(make_node()), heard(), 5, ("True", set())),
    "silent for as long as the grace": (stored(make_node()), heard(), 40, ("True", set())),
    "silent for longer": (stored(make_node()), heard(), 41, ("Unknown", UNREACHABLE)),
    "silent, but its lease is renewed": (stored(make_node()), heard(renewed=35), 60, ("True", set())),
    "its lease is old too": (stored(make_node()), heard(renewed=10), 60, ("Unknown", UNREACHABLE)),
    "says itself that it is not ready": (stored(make_node(ready=False)), heard(), 5, ("False", NOT_READY)),
    "has not reported yet": (starting(), never(), 50, ("", set())),
    "has never reported": (starting(), never(), 61, ("Unknown", UNREACHABLE)),
    "its disk is full": (pressed("DiskPressure"), heard(), 5, ("True", {"disk-pressure:NoSchedule"})),
    "it is short of memory": (pressed("MemoryPressure"), heard(), 5, ("True", {"memory-pressure:NoSchedule"})),
    "its process ids run out": (pressed("PIDPressure"), heard(), 5, ("True", {"pid-pressure:NoSchedule"})),
    "pressed and silent: nobody knows": (pressed("DiskPressure"), heard(), 41, ("Unknown", UNREACHABLE)),
    "a condition that nobody knows": (pressed("Frobnication"), heard(), 5, ("True", set())),
}


@pytest.mark.parametrize("phrase", HEALTH)
def test_node(phrase: str) -> None:
    node, signs, seconds, expected = HEALTH[phrase]
    once = judged(node, signs, after(seconds))
    assert state(once) == expected
    assert judged(once, signs, after(seconds)) is once


def test_a_node_that_is_well_is_not_written() -> None:
    node = stored(make_node(taints=[Taint(key="mine", effect="NoSchedule")]))
    assert judged(node, heard(renewed=10), after(20)) is node


def test_a_node_that_is_back_loses_our_taints_and_keeps_others() -> None:
    lost = judged(stored(make_node(taints=[Taint(key="mine", effect="NoSchedule")])), heard(), after(60))
    ready = NodeCondition(type="Ready", status="True", last_heartbeat_time="2026-01-01T00:02:00Z")
    reported = structs.replace(lost, status=structs.replace(lost.status, conditions=(ready,)))
    assert state(judged(reported, heard(reported=120), after(121))) == ("True", {"mine:NoSchedule"})


def test_relief_takes_the_taint_of_the_pressure_off_and_keeps_when_another_began() -> None:
    both = judged(pressed("DiskPressure", "PIDPressure"), heard(), after(5))
    relieved = structs.replace(both, status=pressed("PIDPressure").status)
    (left,) = judged(relieved, heard(reported=20), after(30)).spec.taints
    assert (left.key, left.time_added) == ("node.kubernetes.io/pid-pressure", "2026-01-01T00:00:05Z")


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


def test_the_pods_of_a_silent_node_are_not_ready_until_its_agent_says_otherwise(cluster: Cluster) -> None:
    """As MarkPodsNotReady does upstream; what containers do stays as it was reported."""
    cluster.with_gpus("node-1")
    for name in ("web", "starting"):
        cluster.create(make_pod(name))
    cluster.settle()
    status = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True", reason="own"),))
    cluster.update(structs.replace(cluster.pod("web"), status=status))
    cluster.now = START + timedelta(days=3650)
    assert node_lifecycle.sweep(cluster.now) == 2, "the node, and the pod that was ready"
    (ready,) = cluster.pod("web").status.conditions
    assert (ready.type, ready.status, ready.reason) == ("Ready", "False", "own")
    assert cluster.pod("web").status.phase == "Running"
    (of_node, of_pod) = sorted(cluster.events("NodeNotReady"), key=lambda event: event.involved_object.kind)
    assert (of_node.involved_object.name, of_node.type) == ("node-1", "Normal")
    assert (of_pod.involved_object.name, of_pod.type) == ("web", "Warning")
    assert node_lifecycle.sweep(cluster.now) == 0
    cluster.update(structs.replace(cluster.pod("web"), status=status))
    assert node_lifecycle.sweep(cluster.now) == 0, "the cache answers; an agent that reports is heard soon, too"


def renew(cluster: Cluster, told: str) -> None:
    """What the agent of node-1 does, on a machine whose clock shows `told`."""
    known = cluster.find(Lease, "node-1", LEASE_NAMESPACE)
    if known is None:
        meta = ObjectMeta(name="node-1", namespace=LEASE_NAMESPACE)
        spec = LeaseSpec(holder_identity="node-1", lease_duration_seconds=40, renew_time=told)
        cluster.create(Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=spec))
    else:
        cluster.update(with_spec(known, renew_time=told))


def test_a_node_whose_clock_is_a_day_behind_is_heard_and_keeps_its_pods(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web"))
    cluster.settle()
    cluster.later(3600)  # its report is long past: the lease alone speaks for it
    yesterday = datetime.now(UTC) - timedelta(days=1)
    renew(cluster, f"{yesterday:%Y-%m-%dT%H:%M:%S.%f}Z")
    written = history.last_written(kind(LEASES), LEASE_NAMESPACE)["node-1"]
    assert node_lifecycle.sweep(written + timedelta(seconds=39)) == 0
    assert state(cluster.node()) == ("True", set())
    assert node_lifecycle.sweep(written + timedelta(seconds=41)) == 1
    assert state(cluster.node()) == ("Unknown", UNREACHABLE)


def test_a_node_whose_clock_is_ahead_does_not_live_for_ever(cluster: Cluster) -> None:
    cluster.create(make_node())
    renew(cluster, "2099-01-01T00:00:00.000000Z")
    assert node_lifecycle.sweep(datetime.now(UTC) + timedelta(seconds=60)) == 1
    assert state(cluster.node()) == ("Unknown", UNREACHABLE)


def test_what_others_write_on_a_node_is_no_sign_of_its_life(cluster: Cluster) -> None:
    cluster.create(make_node())
    born = history.last_written(kind(NODES))["node-1"]
    cluster.label(cluster.node(), "rack", "7")
    labelled = history.last_written(kind(NODES))["node-1"]
    silent_since = born + (labelled - born) / 2 + timedelta(seconds=40)
    assert node_lifecycle.sweep(silent_since) == 1
    assert state(cluster.node()) == ("Unknown", UNREACHABLE)


def test_a_report_alone_brings_a_node_back_whatever_time_it_tells(cluster: Cluster) -> None:
    cluster.create(make_node())
    node_lifecycle.sweep(datetime.now(UTC) + timedelta(seconds=60))
    node = cluster.node()
    ready = NodeCondition(type="Ready", status="True", last_heartbeat_time="1999-01-01T00:00:00Z")
    cluster.update(structs.replace(node, status=structs.replace(node.status, conditions=(ready,))))
    assert node_lifecycle.sweep(datetime.now(UTC)) == 1
    assert state(cluster.node()) == ("True", set())
