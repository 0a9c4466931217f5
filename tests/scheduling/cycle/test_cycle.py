"""Where pods go, why they go nowhere, and what PostFilter does about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.db import OperationalError
from msgspec import structs
from pytest_django.fixtures import Settings

from claims.causes.causes import DevicesInUse, NoNodeFits, NotVisible
from claims.kinds.pods import Affinity, NodeAffinity, Pod, PreferredSchedulingTerm
from inventory.kinds import gates
from inventory.kinds.nodes import Taint
from manciple.store.space import prune
from scheduling.allocator.placement import place
from scheduling.cycle import commit, scheduler
from scheduling.cycle.scheduler import SchedulingWorker
from scheduling.queue import queue
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import NodeTable
from tests.builders import (
    make_allocation,
    make_claim,
    make_container,
    make_devices,
    make_node,
    make_node_selector,
    make_pod,
    make_request,
    make_result,
    make_slice,
    make_template,
    stored,
)
from tests.scheduling.cluster import Cluster, with_spec


def test_a_pod_goes_where_its_allocated_claim_is_available(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2")
    cluster.create_allocated(make_claim("there"), make_allocation(make_result(pool="node-2"), node="node-2"))
    cluster.create(make_pod("web", claims={"gpu": "there"}))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-2"


def test_post_filter_deallocates_an_idle_claim_that_is_in_the_way(cluster: Cluster) -> None:
    """Upstream: the claim was allocated for a node that cannot run the pod."""
    cluster.with_gpus("node-1", "node-2")
    cluster.create_allocated(make_claim("training"), make_allocation(make_result(pool="node-1"), node="node-1"))
    cluster.update(with_spec(cluster.node("node-1"), unschedulable=True))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.worker.run()
    assert cluster.claim("training").status.allocation is None
    assert cluster.why_pending("web") == (
        "0/2 nodes are available: 1 node(s) were unschedulable, 1 resourceclaim not available on the node. "
        "deallocation of ResourceClaim completed"
    )

    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-2"
    assert cluster.devices(cluster.claim("training")) == ["node-2/gpu-0"]


def test_post_filter_leaves_a_claim_that_another_pod_uses(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2")
    cluster.create(make_claim("shared"))
    cluster.create(make_pod("first", claims={"gpu": "shared"}))
    cluster.settle()
    home = cluster.pod("first").spec.node_name
    cluster.update(with_spec(cluster.node(home), unschedulable=True))
    cluster.create(make_pod("second", claims={"gpu": "shared"}))
    cluster.settle()
    assert cluster.pod("second").spec.node_name == ""
    assert cluster.claim("shared").status.allocation is not None


def test_a_claim_that_is_being_deleted_blocks_its_pods(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_claim("old", finalizers=("example.com/wait",)))
    cluster.delete(cluster.claim("old"))
    cluster.create(make_pod("web", claims={"gpu": "old"}))
    cluster.settle()
    assert cluster.why_pending("web") == (
        '0/1 nodes are available: resourceclaim "old" is being deleted. no new claims to deallocate, '
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )

    claim = cluster.claim("old")
    cluster.update(structs.replace(claim, metadata=structs.replace(claim.metadata, finalizers=())))
    cluster.create(make_claim("old"))
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_generated_claim_of_another_pod_is_refused(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_claim("web-gpu"))
    cluster.create(make_template("one-gpu"))
    pod = cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.needs_no_claim("web", "gpu")
    status = structs.replace(cluster.pod("web").status.resource_claim_statuses[0], resource_claim_name="web-gpu")
    pod = cluster.pod("web")
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, resource_claim_statuses=(status,))))
    cluster.worker.run()
    assert cluster.why_pending("web") == (
        "0/1 nodes are available: ResourceClaim default/web-gpu was not created for pod default/web "
        "(pod is not owner). no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_every_node_says_why_it_does_not_fit(cluster: Cluster) -> None:
    cluster.with_gpus("full", "cordoned", "tainted", "small")
    cluster.update(with_spec(cluster.node("cordoned"), unschedulable=True))
    cluster.update(with_spec(cluster.node("tainted"), taints=(Taint(key="dedicated", value="a", effect="NoSchedule"),)))
    cluster.create(make_node("other", capacity={"cpu": "1", "memory": "1Gi", "pods": "10"}))
    for name in ("full", "small"):
        cluster.delete(cluster.slice(name))
    containers = [make_container(claims=["gpu"], requests={"cpu": "2"})]
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}, containers=containers))
    cluster.settle()
    assert cluster.why_pending("web").startswith(
        "0/5 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {dedicated: a}, "
        "1 node(s) were unschedulable, 2 cannot allocate all claims. "
        "still not schedulable, preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling. "
    )
    cause = cluster.cause("web")
    assert isinstance(cause, NoNodeFits)
    assert cause.because == NotVisible(claim="default/training", request="gpu", wanted=1, before=4, left=0, most=0)


def test_the_node_that_came_closest_is_explained(cluster: Cluster) -> None:
    cluster.with_gpus("full", each=1)
    for name in ("other-1", "other-2"):
        cluster.create(make_node(name))
        cluster.create(make_slice(node=name, driver="nic.example.org", devices=make_devices(1)))
    for name in ("first", "second"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}))
        cluster.settle()
    cause = cluster.cause("second")
    assert isinstance(cause, NoNodeFits)
    assert isinstance(cause.because, DevicesInUse)
    assert (cause.because.claim, cause.because.before, cause.because.left) == ("default/second", 1, 0)


def test_devices_are_packed_pods_without_devices_spread(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=2)
    cluster.create(make_template("one-gpu"))
    for number in range(2):
        cluster.create(make_pod(f"gpu-{number}", templates={"gpu": "one-gpu"}))
        cluster.settle()
    assert {cluster.pod(f"gpu-{number}").spec.node_name for number in range(2)} == {"node-1"}
    cluster.create(make_pod("plain"))
    cluster.settle()
    assert cluster.pod("plain").spec.node_name == "node-2"


@pytest.mark.parametrize("claims", [{}, {"gpu": "training"}], ids=["without devices", "with devices"])
def test_what_the_pod_would_rather_counts_first(cluster: Cluster, claims: dict[str, str]) -> None:
    cluster.with_gpus("node-1", "node-2")
    cluster.label(cluster.node("node-2"), "zone", "b")
    term = make_node_selector({"zone": "b"}).node_selector_terms[0]
    wish = PreferredSchedulingTerm(weight=1, preference=term)
    affinity = Affinity(node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=(wish,)))
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims=claims, affinity=affinity))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-2"


def test_a_batch_counts_what_it_has_placed_before(cluster: Cluster) -> None:
    cluster.create(make_node(capacity={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    for number in range(3):
        cluster.create(make_pod(f"pod-{number}", containers=[make_container(requests={"cpu": "2"})]))
    cluster.settle()
    assert [bool(cluster.pod(f"pod-{number}").spec.node_name) for number in range(3)] == [True, True, False]


def test_a_worker_that_fell_behind_the_pruned_log_starts_from_the_documents(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    cluster.settle()
    cluster.create(make_node())
    prune(older_than=timedelta(0), now=cluster.now + timedelta(days=1))
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_the_warm_state_ends_where_a_fresh_capture_does(cluster: Cluster) -> None:
    """Whatever a worker learned event by event, it decides as one that has just started."""
    cluster.with_gpus("node-1", "node-2", each=3)
    warm = ClusterState.captured()
    cluster.create(make_template("one-gpu"))
    for number in range(6):
        cluster.create(make_pod(f"pod-{number}", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.delete(cluster.pod("pod-2"))
    cluster.finish("pod-4")
    cluster.settle()
    cluster.create(make_claim("next"))
    cluster.create(make_pod("next", claims={"gpu": "next"}))
    warm.advance()
    fresh = ClusterState.captured()
    assert scheduler.decide(warm, cluster.pod("next")) == scheduler.decide(fresh, cluster.pod("next"))
    assert warm.pending.keys() == fresh.pending.keys()


def test_dropped_assumptions_leave_no_trace(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    state = ClusterState.captured()
    first = scheduler.decide(state, cluster.pod("web"))
    assert state.candidate(cluster.pod("web").metadata.uid) is None
    state.overlay.undo()
    assert scheduler.decide(state, cluster.pod("web")) == first


def test_an_outage_of_the_database_leaves_the_pods_to_be_tried_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web"))

    def lost(*_args: object, **_more: object) -> NoReturn:
        raise OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as outage:
        outage.setattr(queue, "settle", lost)
        with pytest.raises(OperationalError):
            cluster.worker.run()
    assert cluster.queued("web").attempts == 0

    assert cluster.worker.run().placed == 1
    assert cluster.pod("web").spec.node_name == "node-1"


def broken_for(name: str, step: Callable[..., Any], pod_of: Callable[..., Pod]) -> Callable[..., Any]:
    """`step`, which nobody expected to break for the pod of that name."""

    def broken(*args: Any, **more: Any) -> Any:
        if pod_of(*args).metadata.name == name:
            raise ZeroDivisionError("division by zero")
        return step(*args, **more)

    return broken


#: what breaks, and which of its arguments is the pod
FAULTS: dict[str, tuple[object, str, Callable[..., Pod]]] = {
    "while it is decided": (scheduler, "decide", lambda _state, pod, _turn: pod),
    "while it is written": (commit._Batch, "_bind", lambda _batch, pod, _placement: pod),
}


@pytest.mark.parametrize("phrase", FAULTS)
def test_a_fault_in_one_pod_costs_only_that_pod_and_it_rests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, phrase: str
) -> None:
    cluster.with_gpus("node-1")
    for name in ("before", "odd", "after"):
        cluster.create(make_pod(name))
    where, step, pod_of = FAULTS[phrase]
    with monkeypatch.context() as fault:
        fault.setattr(where, step, broken_for("odd", getattr(where, step), pod_of))
        assert cluster.worker.run().placed == 2
    assert [cluster.pod(name).spec.node_name for name in ("before", "odd", "after")] == ["node-1", "", "node-1"]
    row = cluster.queued("odd")
    assert (row.state, row.attempts) == ("backoff", 1)
    assert "division by zero" in row.cause

    assert cluster.worker.run().taken == 0
    cluster.later(1)
    assert cluster.worker.run().placed == 1


def test_a_second_call_while_one_runs_hands_its_work_over(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that finds the worker busy returns at once; the running one looks again."""
    cluster.create(make_node())
    worker = cluster.worker
    original = SchedulingWorker._cycle
    calls = 0

    def cycle_once(self: SchedulingWorker) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            cluster.create(make_pod("late"))
            assert worker.run().taken == 0
            return [], False
        return original(self)

    monkeypatch.setattr(SchedulingWorker, "_cycle", cycle_once)
    worker.run()
    assert cluster.pod("late").spec.node_name == "node-1"


def test_a_call_during_the_sweep_is_made_up_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create(make_node())

    def sweep(*_args: object) -> int:
        cluster.create(make_pod("late"))
        assert cluster.worker.run().taken == 0
        return 0

    monkeypatch.setattr("scheduling.queue.queue.mend", sweep)
    cluster.worker.sweep()
    assert cluster.pod("late").spec.node_name == "node-1"


def test_a_call_during_other_work_on_the_state_is_made_up_for(cluster: Cluster) -> None:
    cluster.create(make_node())

    def work(_state: ClusterState) -> int:
        cluster.create(make_pod("late"))
        return cluster.worker.run().taken

    assert cluster.worker.in_turn(work) == 0
    assert cluster.pod("late").spec.node_name == "node-1"


# The node table ------------------------------------------------------------------------------------------------------


def names(table: NodeTable, pod: Pod) -> list[str]:
    return [view.name for view in table.filter(pod).fitting]


def test_a_shape_that_was_asked_before_sees_what_changed_since() -> None:
    table = NodeTable()
    pod = stored(make_pod(containers=[make_container(requests={"cpu": "5"})]))
    for name in ("node-1", "node-2"):
        table.put(stored(make_node(name)))
    assert names(table, pod) == ["node-1", "node-2"]
    other = stored(make_pod("other", containers=[make_container(requests={"cpu": "4"})]))
    table.place(other, "node-1")
    assert names(table, pod) == ["node-2"]
    table.remove_pod(other.metadata.uid)
    assert sorted(names(table, pod)) == ["node-1", "node-2"]
    table.remove(make_node("node-1"))
    assert names(table, pod) == ["node-2"]


def test_a_long_history_of_changes_is_forgotten_not_lost() -> None:
    table = NodeTable()
    pod, other = stored(make_pod()), stored(make_pod("other"))
    table.put(stored(make_node()))
    names(table, pod)
    for _ in range(2000):
        table.place(other, "node-1")
        table.remove_pod(other.metadata.uid)
    table.put(stored(make_node(unschedulable=True)))
    assert names(table, pod) == []


def test_a_pod_counts_on_its_node_once() -> None:
    table = NodeTable()
    table.put(stored(make_node(capacity={"cpu": "4", "memory": "8Gi", "pods": "10"})))
    pod = stored(make_pod(containers=[make_container(requests={"cpu": "3"})]))
    assert table.place(pod, "node-1")
    assert not table.place(pod, "node-1")
    assert table.fits(pod, "node-1")
    assert not table.fits(stored(make_pod("other", containers=pod.spec.containers)), "node-1")
    assert table.pods_on("node-1") == 1


def test_a_search_that_runs_out_of_time_says_so_and_is_tried_again(cluster: Cluster, settings: Settings) -> None:
    """Upstream: filter timeout."""
    cluster.with_gpus("node-1")
    # Plain requests are met without a search; all devices of a class are not.
    cluster.create(make_claim("training", requests=[make_request(all_devices=True)]))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    settings.SCHEDULER_FILTER_TIMEOUT = 0.0
    cluster.settle()
    assert "timed out trying to allocate devices" in cluster.why_pending("web")
    settings.SCHEDULER_FILTER_TIMEOUT = 10.0
    cluster.later(600)  # nothing in the cluster changes: the queue's own sweep brings the pod back
    cluster.worker.sweep()
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_machine_that_stands_still_ends_no_search(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    def after_a_while(*args: Any, **options: Any) -> Any:
        time.sleep(1.1 * settings.SCHEDULER_FILTER_TIMEOUT)
        return place(*args, **options)

    cluster.with_gpus("node-1")
    cluster.create(make_claim("training", requests=[make_request(all_devices=True)]))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    settings.SCHEDULER_FILTER_TIMEOUT = 0.5
    monkeypatch.setattr(scheduler, "place", after_a_while)
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_without_the_gate_a_search_has_no_deadline(settings: Settings) -> None:
    settings.SCHEDULER_FILTER_TIMEOUT = 0.0
    assert scheduler.filter_deadline().has_passed
    with gates.using(DRASchedulerFilterTimeout=False):
        assert not scheduler.filter_deadline().has_passed


def test_no_pod_goes_to_a_node_that_has_never_reported(cluster: Cluster) -> None:
    node = make_node()
    silent = structs.replace(node, status=structs.replace(node.status, conditions=()))
    cluster.create(silent)
    cluster.create(make_pod("web"))
    cluster.settle()
    taint = "{node.kubernetes.io/not-ready: }"
    assert cluster.why_pending("web").startswith(f"0/1 nodes are available: 1 node(s) had untolerated taint {taint}")
    cluster.update(structs.replace(cluster.node(), status=node.status))
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"
