"""New pods that are tried at once have no row in the queue, unless they stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from manciple.controllers.coordination import utc_now
from manciple.controllers.models import Cursor
from manciple.store import event_log
from manciple.wire.machinery import Lease
from scheduling.cycle import commit, scheduler
from scheduling.cycle.scheduler import SchedulingWorker
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.queue import Arrivals, BatchTime
from scheduling.queue.reasons import Reason
from scheduling.state.cluster import ClusterState
from tests.builders import make_meta, make_pod, make_priority
from tests.scheduling.cluster import Cluster


@pytest.fixture
def ready(cluster: Cluster) -> Cluster:
    cluster.with_gpus("node-1")
    cluster.settle()
    return cluster


def offered(cluster: Cluster, **late: Any) -> list[str] | None:
    """The names of the pods that are offered without rows, in the order in which they are tried; None for nobody."""
    arrivals = queue.feed(ClusterState.captured(), cluster.now, offering=9)
    if arrivals is None:
        return None
    names = {row.uid: row.name for row in arrivals.rows}
    return [names[one.uid] for one in arrivals.ready(**late).next]


def cursor() -> int:
    return Cursor.objects.get(name=queue.CURSOR).revision


def test_a_pod_that_is_placed_at_once_never_has_a_row(ready: Cluster) -> None:
    pod = ready.create(make_pod("web"))
    with CaptureQueriesContext(connection) as queries:
        assert ready.worker.run().placed == 1
    written = [one["sql"] for one in queries if "scheduling_queuedpod" in one["sql"]]
    assert not any("INSERT" in statement or "DELETE" in statement for statement in written)
    assert cursor() >= int(pod.metadata.resource_version)


def test_a_pod_that_stays_has_one_with_its_attempt(ready: Cluster) -> None:
    ready.create(make_pod("fits"))
    ready.create(make_pod("waits", node_selector={"zone": "z"}))
    ready.worker.run()
    (row,) = QueuedPod.objects.all()
    assert (row.name, row.state, row.attempts) == ("waits", "unschedulable", 1)
    assert row.held_by & int(Reason.NODE)


def test_pods_for_which_no_time_was_left_have_theirs(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        ready.create(make_pod(name))
    with monkeypatch.context() as patched:
        patched.setattr(BatchTime, "is_over", lambda batch, _namespace: bool(batch._last))
        assert ready.worker.run(seconds=0).placed == 1
    assert {(row.state, row.attempts) for row in QueuedPod.objects.all()} == {("active", 0)}
    assert QueuedPod.objects.count() == 2
    assert ready.worker.run().placed == 2
    assert not QueuedPod.objects.exists()


def test_the_most_important_is_tried_first_then_the_oldest(ready: Cluster) -> None:
    ready.create(make_priority("high", 9))
    for name, priority in (("old", ""), ("young", ""), ("important", "high")):
        ready.create(make_pod(name, priority_class_name=priority))
        ready.later(1)
    ready.create(make_pod("other", namespace="other"))
    assert offered(ready) == ["important", "old", "young", "other"]
    assert offered(ready, busy=["default"]) == ["important", "other", "old", "young"]
    assert offered(ready, slow=["default"]) == ["other", "important", "old", "young"]


OTHERWISE: dict[str, Callable[[Cluster], object]] = {
    "more than may be offered": lambda cluster: [cluster.create(make_pod(f"more-{at}")) for at in range(9)],
    "one that PreEnqueue refuses": lambda cluster: cluster.create(make_pod("held", claims={"gpu": "missing"})),
    "one that may be tried": lambda _cluster: QueuedPod.objects.update(state="active"),
    "one that the events may help": lambda _cluster: QueuedPod.objects.update(held_by=int(Reason.NEIGHBOURS)),
    "one that has changed": lambda cluster: cluster.label(cluster.pod("waits"), "team", "a"),
}


@pytest.mark.parametrize("phrase", OTHERWISE)
def test_nobody_is_offered_where_rows_have_a_part_in_it(ready: Cluster, phrase: str) -> None:
    ready.create(make_pod("waits", node_selector={"zone": "z"}))
    ready.settle()
    ready.create(make_pod("new"))
    OTHERWISE[phrase](ready)
    if "events" in phrase:
        ready.create(make_pod("bound", node="node-1"))
    assert offered(ready) is None
    assert QueuedPod.objects.filter(name="new", state="active").exists()


def test_what_another_worker_did_meanwhile_is_not_done_twice(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fits", "waits"):
        ready.create(make_pod(name, node_selector={"zone": "z"} if name == "waits" else {}))
    write = commit.commit

    def after_another(*arguments: Any, **named: Any) -> Any:
        assert isinstance(named["arrivals"], Arrivals)
        queue.feed(ClusterState.captured(), ready.now)
        assert QueuedPod.objects.count() == 2
        return write(*arguments, **named)

    before = cursor()
    monkeypatch.setattr(scheduler, "commit", after_another)
    ready.worker.run()
    (row,) = QueuedPod.objects.all()
    assert (row.name, row.attempts) == ("waits", 1)
    assert cursor() > before


def test_a_worker_reads_on_from_where_another_one_got_to(ready: Cluster) -> None:
    """Each remembers where the cursor was when it last fed the queue."""
    other = ready.new_worker()
    for turn, worker in enumerate((ready.worker, other, other, ready.worker)):
        ready.create(make_pod(f"web-{turn}"))
        ready.create(make_pod(f"waits-{turn}", node_selector={"zone": "z"}))
        assert worker.run().placed == 1
        assert QueuedPod.objects.count() == turn + 1
    assert {(row.state, row.attempts) for row in QueuedPod.objects.all()} == {("unschedulable", 1)}
    QueuedPod.objects.all().delete()
    Cursor.objects.update(revision=1)  # as in a backup that was put back
    assert ready.worker.run().taken == 4, "those without a row have one again"
    ready.create(make_pod("late"))
    assert ready.worker.run().placed == 1


def lease(number: int) -> Lease:
    return Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=make_meta(f"lease-{number}", "default"))


def test_the_cursor_rests_while_nothing_concerns_a_pod(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while Leases are renewed."""
    ready.create(lease(0))
    ready.settle()
    before = cursor()
    for number in range(1, 4):
        ready.create(lease(number))
        assert ready.worker.run().taken == 0
    assert cursor() == before
    monkeypatch.setattr(queue, "UNMOVED", 2)
    ready.worker.run()
    assert before < cursor() == event_log.latest_revision()
    ready.create(lease(9))
    ready.create(make_pod("web"))
    assert ready.worker.run().placed == 1
    assert cursor() > before


@pytest.mark.django_db
def test_whoever_waits_for_the_cursor_hears_of_all_that_it_looks_at() -> None:
    """It moves for what the scheduler's state follows."""
    assert scheduler.CLAIMS_FOLLOWER.resources <= {*SchedulingWorker(utc_now)._new_state().resources}


def test_a_failed_commit_leaves_all_as_it_was(ready: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.create(make_pod("web"))
    before = cursor()
    with monkeypatch.context() as patched:
        patched.setattr(queue, "_drop", None)
        with pytest.raises(TypeError):
            ready.worker.run()
    assert (cursor(), QueuedPod.objects.count()) == (before, 0)
    assert ready.new_worker().run().placed == 1
