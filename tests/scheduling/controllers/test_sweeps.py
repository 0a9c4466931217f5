"""Controllers that look at everything: lost pods, old events, idle claims, orphans, terminating namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from claims.controllers import generated_claims, podgc, pruning, reservations, stray_slices
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.nodes import Taint
from manciple.api import namespaces as api_namespaces
from manciple.controllers import housekeeping
from manciple.controllers.coordination import CursorFollower
from manciple.store import event_log, history, objects
from manciple.store.records import EventRecord
from manciple.wire.base import condition_of
from manciple.wire.codec import decode_text
from manciple.wire.machinery import Event
from manciple.wire.resources import EVENTS, PODS, kind
from tests.builders import (
    NAMESPACE,
    make_allocation,
    make_claim,
    make_devices,
    make_namespace,
    make_node,
    make_pod,
    make_slice,
    make_template,
)
from tests.scheduling.cluster import Cluster, kind_of, with_spec

# Pods -----------------------------------------------------------------------------------------------------------------

OUT_OF_SERVICE = Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute")


def test_a_pod_whose_node_never_appears_is_given_up_after_a_while(cluster: Cluster) -> None:
    cluster.create(make_pod("web", node="ghost"))
    cluster.later(30)
    assert podgc.sweep(cluster.now) == 0
    cluster.later(20)
    assert podgc.sweep(cluster.now) == 1
    assert cluster.find(Pod, "web") is None


def test_a_pod_of_a_node_that_went_gives_its_claim_back(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.later(600)
    cluster.delete(cluster.node())
    cluster.now = datetime.now(UTC)
    cluster.later(39)
    assert podgc.sweep(cluster.now) == 0, "the node may come back"
    cluster.later(3)
    assert podgc.sweep(cluster.now) == 1
    (told,) = [event for event in cluster.all(Event) if event.reason == "NodeLost"]
    assert "its node node-1 does not exist" in told.message
    cluster.settle()
    assert cluster.all(ResourceClaim) == []


def test_between_two_looks_at_all_pods_those_of_nodes_that_went_lately_and_those_that_leave_are_looked_at(
    cluster: Cluster,
) -> None:
    cluster.create(make_node())
    cluster.create(make_pod("web", node="node-1"))
    cluster.create(make_pod("ghost", node="ghost"))
    cluster.create(make_pod("leaving"))
    cluster.delete(cluster.pod("leaving"), grace=30)
    cluster.delete(cluster.node())
    cluster.now = datetime.now(UTC) + podgc.QUARANTINE + timedelta(seconds=1)
    podgc.reconcile(cluster.now)
    assert [pod.metadata.name for pod in cluster.all(Pod)] == ["ghost"]
    podgc.sweep(cluster.now)
    assert cluster.all(Pod) == []


def test_a_pod_of_a_lost_node_fails_and_then_goes_without_grace(cluster: Cluster) -> None:
    cluster.create(make_pod("web", node="ghost", termination_grace_period_seconds=3600))
    cluster.later(60)
    before = event_log.latest_revision()
    podgc.sweep(cluster.now)
    failed, deleted = event_log.read_after(before, resources={PODS})
    assert (failed.type, deleted.type) == ("MODIFIED", "DELETED")
    assert failed.document is not None
    status = decode_text(Pod, failed.document).status
    assert (status.phase, status.reason) == ("Failed", "NodeLost")
    condition = condition_of(status.conditions, "DisruptionTarget")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "DeletionByPodGC")


def test_a_node_that_comes_back_in_time_keeps_its_pods(cluster: Cluster) -> None:
    cluster.create(make_node())
    cluster.create(make_pod("web", node="node-1"))
    cluster.later(600)
    cluster.delete(cluster.node())
    cluster.create(make_node())
    assert podgc.sweep(cluster.now) == 0
    cluster.later(60)
    assert podgc.sweep(cluster.now) == 0


#: what is so -> (the status of the node's condition Ready, None where it has none; its taints; whether the pod goes)
NODES: dict[str, tuple[str | None, tuple[Taint, ...], bool]] = {
    "ready": ("True", (), False),
    "ready and tainted": ("True", (OUT_OF_SERVICE,), False),
    "silent": ("Unknown", (), False),
    "silent with another taint": ("Unknown", (Taint(key="example.com/broken", effect="NoExecute"),), False),
    "silent and tainted": ("Unknown", (OUT_OF_SERVICE,), True),
    "not ready and tainted": ("False", (OUT_OF_SERVICE,), True),
    "never reported and tainted": (None, (OUT_OF_SERVICE,), True),
    "silent and tainted with another effect": ("Unknown", (Taint(key=OUT_OF_SERVICE.key, effect="NoSchedule"),), True),
}


@pytest.mark.parametrize("case", NODES)
def test_a_terminating_pod_waits_for_its_node_unless_that_is_out_of_service_and_not_ready(
    cluster: Cluster, case: str
) -> None:
    """As kube-controller-manager's gcTerminating."""
    ready, taints, gone = NODES[case]
    node = make_node(taints=taints)
    (condition,) = node.status.conditions
    conditions = () if ready is None else (structs.replace(condition, status=ready),)
    cluster.create(structs.replace(node, status=structs.replace(node.status, conditions=conditions)))
    cluster.create(make_pod("web", node="node-1"))
    cluster.delete(cluster.pod("web"), grace=30)
    podgc.sweep(cluster.now)
    assert (cluster.find(Pod, "web") is None) is gone


def test_the_out_of_service_taint_leaves_the_devices_of_a_ready_node_to_its_agent(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.update(with_spec(cluster.node(), taints=(OUT_OF_SERVICE,)))
    cluster.delete(cluster.pod("web"), grace=30)
    cluster.later(3600)
    podgc.sweep(cluster.now)
    reservations.sweep(cluster.now)
    (claim,) = cluster.all(ResourceClaim)
    assert claim.status.allocation is not None, "its agent has not unprepared it yet"

    (condition,) = cluster.node().status.conditions
    silent = structs.replace(cluster.node().status, conditions=(structs.replace(condition, status="Unknown"),))
    cluster.update(structs.replace(cluster.node(), status=silent))
    assert podgc.sweep(cluster.now) == 1
    cluster.settle()
    assert cluster.all(ResourceClaim) == []


def test_a_pod_with_a_node_is_left_alone(cluster: Cluster) -> None:
    cluster.create(make_node())
    cluster.create(make_pod("web", node="node-1"))
    cluster.later(3600)
    assert podgc.sweep(cluster.now) == 0


def test_a_driver_that_publishes_for_a_node_that_is_gone_is_told(cluster: Cluster) -> None:
    cluster.create(make_namespace("default"))
    cluster.create(make_node("node-1"))
    for node in ("node-1", "node-2"):
        cluster.create(make_slice(node=node, devices=make_devices(1)))
    assert stray_slices.sweep(cluster.now) == 1
    (told,) = cluster.all(Event)
    assert (told.involved_object.kind, told.reason) == ("ResourceSlice", "NodeMissing")
    assert told.message.startswith("Node node-2 does not exist: it was deleted, or is not registered yet.")


# Events ---------------------------------------------------------------------------------------------------------------


def test_events_go_an_hour_after_they_were_last_seen(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    cluster.settle()
    (written,) = history.last_written(kind(EVENTS), NAMESPACE).values()
    pruning.sweep(written + timedelta(hours=1))
    assert len(cluster.all(Event)) == 1
    pruning.sweep(written + timedelta(hours=1, microseconds=1))
    assert cluster.all(Event) == []


# Claims ---------------------------------------------------------------------------------------------------------------


def test_an_allocation_that_nobody_reserves_is_given_up_by_the_sweep(cluster: Cluster) -> None:
    cluster.create_allocated(make_claim("idle"), make_allocation())
    reservations.sweep(cluster.now)
    assert cluster.claim("idle").status.allocation is not None
    cluster.later(61)
    assert reservations.sweep(cluster.now) == 1
    assert cluster.claim("idle").status.allocation is None


@pytest.mark.parametrize("deleted", [False, True], ids=["idle", "deleted"])
def test_an_allocation_is_kept_for_a_bound_pod_whose_reservation_somebody_removed(
    cluster: Cluster, *, deleted: bool
) -> None:
    """The node still has the devices prepared for it."""
    cluster.with_gpus("node-1")
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    pod, claim = cluster.pod("web"), cluster.claim("training")
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase="Running")))
    cluster.update(structs.replace(claim, status=structs.replace(claim.status, reserved_for=())))
    if deleted:
        cluster.delete(cluster.claim("training"))
    cluster.settle()
    cluster.later(3600)
    reservations.sweep(cluster.now)
    assert cluster.claim("training").status.allocation is not None
    cluster.finish("web")
    cluster.settle()
    reservations.sweep(cluster.now)
    left = cluster.find(ResourceClaim, "training")
    assert left is None or left.status.allocation is None


def test_the_sweeps_find_what_the_followers_never_saw(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    assert generated_claims.sweep(cluster.now) == 1
    cluster.worker.run()
    cluster.delete(cluster.pod("web"))
    assert reservations.sweep(cluster.now) == 1
    assert cluster.all(ResourceClaim) == []


def test_a_claim_deleted_in_use_goes_when_its_pod_is_done(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    cluster.delete(cluster.claim("training"))
    cluster.settle()
    assert cluster.claim("training").metadata.deletion_timestamp is not None
    cluster.finish("web")
    cluster.settle()
    assert cluster.find(ResourceClaim, "training") is None


def test_a_pod_bound_by_hand_gets_the_reservation_of_an_allocated_claim(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create_allocated(make_claim("training"), make_allocation())
    cluster.create(make_pod("web", claims={"gpu": "training"}, node="node-1"))
    cluster.settle()
    assert [one.name for one in cluster.claim("training").status.reserved_for] == ["web"]


# Namespaces -----------------------------------------------------------------------------------------------------------


def test_a_terminating_namespace_goes_when_its_pods_have_gone(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    made = cluster.create(make_namespace("team"))
    cluster.create(make_claim("training", namespace="team"))
    cluster.create(make_pod("web", namespace="team", claims={"gpu": "training"}))
    cluster.settle()
    with objects.writing(sources=objects.Sources(now=cluster.clock)) as writer:
        api_namespaces.hold(writer, kind_of(made), "team")
        writer.delete(kind_of(made), "", "team")
    assert housekeeping.sweep_namespaces(cluster.now) == 0
    cluster.later(api_namespaces.PATIENCE.total_seconds())
    assert housekeeping.sweep_namespaces(cluster.now) == 0
    pod = cluster.get(Pod, "web", "team")
    assert pod.metadata.deletion_timestamp is not None
    cluster.delete(pod)
    cluster.settle()
    housekeeping.sweep_namespaces(cluster.now)
    assert "team" not in cluster.all_namespaces()


# Followers ------------------------------------------------------------------------------------------------------------


def follower(seen: list[str]) -> CursorFollower:
    def handle(records: Sequence[EventRecord]) -> int:
        seen.extend(record.name for record in records)
        return 0

    def sweep(_now: datetime) -> int:
        seen.append("everything")
        return 0

    return CursorFollower(name="test", resources=frozenset({"pods"}), handle=handle, sweep=sweep)


def test_a_follower_sees_everything_first_then_each_event_once(cluster: Cluster) -> None:
    seen: list[str] = []
    one = follower(seen)
    cluster.create(make_pod("before"))
    one.follow(cluster.clock)
    cluster.create(make_pod("a"))
    cluster.create(make_node())
    cluster.create(make_pod("b"))
    one.follow(cluster.clock)
    one.follow(cluster.clock)
    assert seen == ["everything", "a", "b"]


def test_a_second_reader_of_a_cursor_looks_again_and_never_moves_it_back(cluster: Cluster) -> None:
    """The first lost the connection that held its lock, and is slower."""
    seen: list[str] = []
    one = follower(seen)
    cluster.create(make_pod("a"))
    one.follow(cluster.clock)
    cluster.create(make_pod("b"))

    def handle_slowly(records: Sequence[EventRecord]) -> int:
        cluster.create(make_pod("c"))
        one.follow(cluster.clock)
        seen.append(f"slowly {records[0].name}")
        return 0

    replace(one, handle=handle_slowly).follow(cluster.clock)
    assert seen == ["everything", "b", "c", "slowly b"]
    one.follow(cluster.clock)
    assert seen == ["everything", "b", "c", "slowly b"], "what the other one looked at is not looked at again"


def test_what_comes_while_a_follower_looks_is_looked_at_the_next_time(cluster: Cluster) -> None:
    seen: list[str] = []

    def handle(records: Sequence[EventRecord]) -> int:
        names = [record.name for record in records]
        seen.extend(names)
        if "a" in names:
            cluster.create(make_pod("meanwhile"))
        return 0

    one = replace(follower(seen), handle=handle)
    cluster.create(make_node())
    one.follow(cluster.clock)
    cluster.create(make_pod("a"))
    one.follow(cluster.clock)
    assert seen == ["everything", "a"]
    one.follow(cluster.clock)
    assert seen == ["everything", "a", "meanwhile"]
