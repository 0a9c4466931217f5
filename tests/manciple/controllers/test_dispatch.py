"""Commits become wake-ups: which, how many, and that nothing about it can fail a commit."""

from __future__ import annotations

import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.db import connection

from claims.kinds.pods import PodSchedulingGate
from manciple.controllers import tasks
from manciple.controllers.declaration import ANY, Controller, Queue, controllers, task_name
from manciple.controllers.tasks import Coverage, Dispatcher, WakeTable, change_of
from manciple.store import event_log, garbage, sql
from manciple.store.event_log import Announcement
from manciple.store.records import EventType, Sketch, dump
from manciple.wire.resources import DELETED
from tests.builders import make_claim, make_node, make_pod, make_template
from tests.e2e.processes import wait_for
from tests.scheduling.cluster import Cluster

CLAIMS = "resourceclaims.resource.k8s.io"

WAKES: dict[str, tuple[tuple[str, str], set[str]]] = {
    "a new pod": (("pods", "ADDED"), {"schedule", "sync_claims"}),
    "a changed pod": (("pods", "MODIFIED"), {"schedule", "sync_claims"}),
    "a pod that got a node": (("pods", "BOUND"), set()),
    "a pod that ended": (("pods", "FINISHED"), {"schedule", "release_claims"}),
    "a pod that went": (
        ("pods", "DELETED"),
        {"schedule", "release_claims", "collect_garbage", "sweep_namespaces"},
    ),
    "a new template": (("resourceclaimtemplates.resource.k8s.io", "ADDED"), {"sync_claims"}),
    "a changed claim": ((CLAIMS, "MODIFIED"), {"schedule"}),
    "a claim on its way out": ((CLAIMS, "DELETING"), {"schedule", "release_claims"}),
    "a renewed lease": (("leases.coordination.k8s.io", "MODIFIED"), set()),
    "a lease that went": (("leases.coordination.k8s.io", "DELETED"), set()),
    "an event about something": (("events", "ADDED"), set()),
    "an event that nobody asks for any more": (("events", "DELETED"), set()),
    "a node that was written": (("nodes", "MODIFIED"), {"schedule", "sweep_nodes", "record_incidents"}),
    "a node that went": (
        ("nodes", "DELETED"),
        {"schedule", "sweep_pods", "collect_garbage", "sweep_namespaces", "record_incidents"},
    ),
    "a namespace on its way out": (("namespaces", "MODIFIED"), {"sweep_namespaces"}),
}


@pytest.mark.parametrize("phrase", WAKES)
def test_change_concerns(phrase: str) -> None:
    change, expected = WAKES[phrase]
    declared = [one for one in controllers.value if not one.rests_without_work]
    assert set(WakeTable(declared).concerned([change])) == expected


NODE = {"spec.nodeName": "node-1"}


def _sketch(
    resource: str, type_: EventType, fields: dict[str, str], *, deleting: bool = False, revision: int = 7
) -> Sketch:
    return Sketch(revision, resource, type_, deleting, stored_fields=dump(fields))


CHANGES: dict[str, tuple[Sketch, str]] = {
    "one that came": (_sketch("pods", "ADDED", NODE), "ADDED"),
    "one that went": (_sketch("pods", "DELETED", NODE, deleting=True), "DELETED"),
    "an unbound pod": (_sketch("pods", "MODIFIED", {"spec.nodeName": ""}), "MODIFIED"),
    "a bound pod": (_sketch("pods", "MODIFIED", NODE), "BOUND"),
    "a bound pod on its way out": (_sketch("pods", "MODIFIED", NODE, deleting=True), "DELETING"),
    "a pod that ended": (_sketch("pods", "MODIFIED", {**NODE, "status.phase": "Failed"}), "FINISHED"),
    "one that ended on its way out": (
        _sketch("pods", "MODIFIED", {"status.phase": "Succeeded"}, deleting=True),
        "FINISHED",
    ),
    "any other thing": (_sketch(CLAIMS, "MODIFIED", {}), "MODIFIED"),
}


@pytest.mark.parametrize("phrase", CHANGES)
def test_what_happened_to(phrase: str) -> None:
    sketch, expected = CHANGES[phrase]
    assert change_of(sketch) == (sketch.resource, expected)


def test_every_controller_runs_on_an_empty_cluster(cluster: Cluster) -> None:
    for controller in controllers.value:
        tasks.run(controller.name)


def test_the_tasks_alone_bring_a_pod_up_and_clean_up_after_it(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    tasks.run("schedule")
    claim = cluster.generated_claim("web")
    assert cluster.pod("web").spec.node_name == "node-1"

    cluster.delete(cluster.pod("web"))
    tasks.run("release_claims")
    assert cluster.find(type(claim), claim.metadata.name) is None


#: Whoever a dispatcher wakes last when it starts.
LAST = controllers.value[-1].name
#: All but those that are for what a cluster has none of.
WOKEN_AT_FIRST = {task_name(one.name) for one in controllers.value if not one.rests_without_work}


class Sent:
    """Collects what a dispatcher sends, and waits for it."""

    def __init__(self) -> None:
        self._tasks: queue.Queue[str] = queue.Queue()

    def __call__(self, task: str) -> None:
        self._tasks.put(task)

    def until(self, task: str) -> list[str]:
        """What was sent up to and including `task`; fails when it does not come."""
        found = [self._tasks.get(timeout=60)]
        while found[-1] != task_name(task):
            found.append(self._tasks.get(timeout=60))
        return found

    def rest(self) -> list[str]:
        return list(self._tasks.queue)


#: Woken by new pods, and otherwise by nobody for as long as a test takes.
AT_PODS = Controller(
    name="at_pods",
    does="nothing",
    reconcile=lambda _now: 0,
    every=600.0,
    wakes_on=frozenset({("pods", "ADDED")}),
    queue=Queue.SCHEDULING,
)


@contextmanager
def dispatching(send: Callable[[str], None], declared: Sequence[Controller] | None = None) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(send, send, declared)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        dispatcher.stop()


@pytest.mark.django_db(transaction=True)
def test_at_its_start_it_wakes_everybody_then_whom_changes_concern() -> None:
    sent = Sent()
    with dispatching(sent):
        assert set(sent.until(LAST)) == WOKEN_AT_FIRST
        Cluster().create(make_node())  # nobody waits for it, nor for the template
        Cluster().create(make_template("first"))
        Cluster().create(make_pod("waits", claims={"gpu": "missing"}))
        assert sent.until("schedule") == [task_name("schedule")]


@pytest.mark.django_db(transaction=True)
def test_a_burst_of_commits_becomes_few_messages() -> None:
    sent, commits = Sent(), 50
    with dispatching(sent):
        sent.until(LAST)
        for number in range(commits):
            Cluster().create(make_pod(f"pod-{number}"))
        sent.until("schedule")
        assert len(sent.rest()) < commits


@pytest.mark.django_db(transaction=True)
def test_the_log_is_not_read_for_what_was_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LOOK_EVERY", 600.0)
    sent, reads = Sent(), list[int]()
    monkeypatch.setattr(tasks, "since", lambda position, _read: reads.append(position or 0))
    with dispatching(sent, [AT_PODS]):
        sent.until("at_pods")
        before = len(reads)
        Cluster().create(make_pod("web"))
        assert sent.until("at_pods") == [task_name("at_pods")]
        assert len(reads) == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lost", ["the announcement", "its changes", "the one before"])
def test_what_was_not_announced_is_read_in_the_log(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.05)
    announce, sent, pods = event_log.announce, Sent(), iter(("web", "other"))

    def distorted(announcement: Announcement) -> None:
        name = next(pods, "")
        if lost == "its changes":
            announce(replace(announcement, changes=None))
        elif lost == "the one before" and name == "other":
            announce(replace(announcement, changes=()))

    with dispatching(sent, [AT_PODS]):
        sent.until("at_pods")
        monkeypatch.setattr(event_log, "announce", distorted)
        Cluster().create(make_pod("web"))
        Cluster().create(make_pod("other"))
        assert sent.until("at_pods") == [task_name("at_pods")]


@pytest.mark.django_db(transaction=True)
def test_a_log_that_does_not_lead_on_wakes_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older database was put back."""
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.05)
    sent = Sent()
    with dispatching(sent):
        sent.until(LAST)
        event_log.announce(Announcement(1, 10**6, ()))
        assert set(sent.until(LAST)) == WOKEN_AT_FIRST


@pytest.mark.django_db(transaction=True)
def test_of_two_dispatchers_one_leads_until_it_stops() -> None:
    first, second = Sent(), Sent()
    with dispatching(first, [AT_PODS]) as leader:
        first.until("at_pods")
        with dispatching(second, [AT_PODS]):
            Cluster().create(make_pod("web"))
            assert first.until("at_pods") == [task_name("at_pods")]
            assert second.rest() == []
            leader.stop()
            second.until("at_pods")
            Cluster().create(make_pod("other"))
            assert second.until("at_pods") == [task_name("at_pods")]


@pytest.mark.django_db(transaction=True)
def test_a_leader_whose_connection_ends_is_followed_by_another_or_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "postgresql":
        return  # the lock is the process's there
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(tasks, "RETRY_AFTER", 0.05)
    sent = Sent()
    with dispatching(sent, [AT_PODS]):
        sent.until("at_pods")
        sql.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        sent.until("at_pods")
        Cluster().create(make_pod("web"))
        sent.until("at_pods")


@pytest.mark.django_db(transaction=True)
def test_while_redis_is_away_the_log_is_read_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LOOK_WHILE_AWAY", 0.02)
    monkeypatch.setattr(tasks, "LOOK_EVERY", 600.0)
    monkeypatch.setattr(event_log, "is_connected", lambda: False)
    monkeypatch.setattr(event_log, "announce", lambda _announcement: None)
    sent = Sent()
    with dispatching(sent, [AT_PODS]):
        sent.until("at_pods")
        Cluster().create(make_pod("web"))
        sent.until("at_pods")


@pytest.mark.django_db(transaction=True)
def test_everybody_is_woken_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.02)
    deletions = frozenset({("nodes", DELETED)})
    often = Controller(name="often", does="nothing", reconcile=lambda _now: 0, every=0.05, wakes_on=deletions)
    rarely = replace(often, name="rarely", every=600.0)
    sent, began = Sent(), time.monotonic()  # before the first: a busy machine can only make the others come later
    dispatcher = Dispatcher(sent, sent, [often, rarely])
    dispatcher.start()
    try:
        assert sent.until("rarely") == [task_name("often"), task_name("rarely")]
        for _ in range(9):
            sent.until("often")
        assert time.monotonic() - began >= 9 * 0.05
    finally:
        dispatcher.stop()
    assert task_name("rarely") not in sent.rest()


@pytest.mark.django_db(transaction=True)
def test_who_rests_without_work_is_woken_in_its_interval_where_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.05)
    works = Controller(
        name="works",
        does="it",
        reconcile=lambda _now: 0,
        every=0.05,
        has_work=("SELECT 1", ()),
        rests_without_work=True,
    )
    rests = replace(works, name="rests", queue_name="rests", lock="rests", has_work=("SELECT 0", ()))
    sent = Sent()
    with dispatching(sent, [works, rests]):
        for _ in range(3):
            assert task_name("rests") not in sent.until("works")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ends", ["longest rest", "time", "run elsewhere", "announcements"])
def test_whom_only_changes_give_work_is_not_woken_in_its_interval(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """For as long as that is certain here."""
    works = Controller(name="works", does="it", reconcile=lambda _now: 0, every=0.0)
    asked, until = list[float](), [math.inf]

    def rests_until(since: float) -> float:
        asked.append(since)
        return until[0]

    rests = replace(works, name="rests", rests_until=rests_until)
    sent = Sent()
    dispatcher = Dispatcher(sent, sent, [rests, works])
    dispatcher._look()
    dispatcher._wake_periodic(began := time.monotonic())
    assert sent.until("works") == [task_name("rests"), task_name("works")], "whoever comes to lead wakes everybody"
    dispatcher._wake_periodic(began + 1)
    assert sent.until("works") == [task_name("works")]
    assert asked[-1] >= began, "a run that began before it was woken says nothing"
    now = began + 1
    if ends == "longest rest":
        now = time.monotonic() + tasks.LONGEST_REST
    elif ends == "time":
        until[0] = time.time()
    elif ends == "run elsewhere":
        until[0] = 0.0
    else:
        monkeypatch.setattr(event_log, "is_connected", lambda: False)
    dispatcher._wake_periodic(now)
    assert sent.until("works") == [task_name("rests"), task_name("works")]


@pytest.mark.parametrize(
    ("says", "asked_first"), [(True, ["keeper"]), (False, ["keeper"] * 2)], ids=["says-what-is-work", "does-not"]
)
def test_who_has_nothing_to_look_after_is_not_asked_about_for_each_pod(
    monkeypatch: pytest.MonkeyPatch, *, says: bool, asked_first: list[str]
) -> None:
    """Until something comes that it is for, where it says what that is."""
    monkeypatch.setitem(tasks.REST, Queue.SWEEPS, 0.0)
    keeper = Controller(
        name="keeper",
        does="it",
        reconcile=lambda _now: 0,
        every=60,
        wakes_on=frozenset({("things", "ADDED"), ("pods", "BOUND")}),
        is_work=frozenset({("things", "ADDED")}) if says else frozenset(),
        has_work=("SELECT 0", ()),
        rests_without_work=True,
    )
    asked, sent = list[str](), Sent()
    dispatcher = Dispatcher(sent, sent, [keeper])

    def with_work(names: Sequence[str]) -> Sequence[str]:
        asked.extend(names)
        return []

    def tell(resource: str, type_: EventType) -> None:
        with dispatcher._news:
            dispatcher._note([_sketch(resource, type_, NODE)])
        dispatcher._wake_concerned()

    monkeypatch.setattr(dispatcher._table, "with_work", with_work)
    tell("pods", "MODIFIED")
    tell("pods", "MODIFIED")
    assert (asked, sent.rest()) == (asked_first, [])
    if not says:
        return
    tell("things", "ADDED")
    assert (asked, sent.rest()) == (asked_first, [task_name("keeper")])
    tell("pods", "MODIFIED")
    assert asked == ["keeper"] * 2, "a pod may be one of those"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_what_is_announced_in_any_order_is_known_up_to_the_first_gap(order: tuple[int, ...]) -> None:
    stretches, coverage, heard = [(11, 12), (13, 13), (14, 20), (21, 22)], Coverage(10), set[int]()
    for number in order:
        coverage.add(*stretches[number])
        heard.update(range(stretches[number][0], stretches[number][1] + 1))
        assert {one for one in range(11, 25) if coverage.has(one)} == heard
        assert coverage.revision == max(one for one in range(10, 23) if set(range(11, one + 1)) <= heard)


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_down_neither_fails_nor_delays_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRY_AFTER", 0.01)
    down, attempts = threading.Event(), Sent()
    down.set()

    def send(task: str) -> None:
        attempts(task)
        if down.is_set():
            raise ConnectionRefusedError

    with dispatching(send):
        attempts.until(controllers.value[0].name)
        Cluster().create(make_node())
        down.clear()
        attempts.until(LAST)


@pytest.mark.django_db(transaction=True)
def test_after_its_end_it_hears_nothing() -> None:
    sent = Sent()
    with dispatching(sent):
        sent.until(LAST)
    event_log.announce(Announcement(1, 10**6, (_sketch("pods", "ADDED", {}),)))
    assert sent.rest() == []


def _work_of(*names: str) -> list[str]:
    return WakeTable(controllers.value).with_work(names)


@pytest.mark.django_db
def test_who_can_tell_that_there_is_nothing_to_do_is_not_woken(cluster: Cluster) -> None:
    told = ("collect_garbage", "sweep_namespaces", "schedule", "sync_claims", "release_claims")
    assert _work_of(*told) == ["release_claims"]


@pytest.mark.django_db
def test_only_a_pod_that_is_held_may_be_work_for_the_controller_of_claims(cluster: Cluster) -> None:
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.create(make_pod("named", claims={"gpu": "gpu"}))
    tasks.run("schedule")
    assert _work_of("sync_claims") == ["sync_claims"]
    cluster.create(make_claim("gpu"))
    cluster.create(make_template("one-gpu"))
    tasks.run("sync_claims")
    tasks.run("schedule")
    assert cluster.pod("web").status.resource_claim_statuses
    assert _work_of("sync_claims") == []


@pytest.mark.django_db
def test_a_gated_pod_is_work_for_the_controller_of_claims_until_it_has_them(cluster: Cluster) -> None:
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("without", scheduling_gates=(PodSchedulingGate(name="wait"),)))
    tasks.run("schedule")
    assert _work_of("sync_claims") == []
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}, scheduling_gates=(PodSchedulingGate(name="wait"),)))
    tasks.run("schedule")
    assert _work_of("sync_claims") == ["sync_claims"]
    tasks.run("sync_claims")
    assert cluster.pod("web").status.resource_claim_statuses
    assert _work_of("sync_claims") == []


@pytest.mark.django_db
def test_a_new_pod_is_work_for_the_scheduler_before_it_is_in_the_queue(cluster: Cluster) -> None:
    table, position = WakeTable(controllers.value), event_log.latest_revision()
    cluster.create(make_pod("web"))
    concerned = {"schedule": True, "sync_claims": False, "make_ephemeral_volumes": False}
    assert table.concerned_by(table.read(position).changes) == concerned
    assert _work_of("schedule", "sync_claims") == []


@pytest.mark.django_db
def test_a_pod_in_the_queue_is_work_for_the_scheduler(cluster: Cluster) -> None:
    cluster.create(make_pod("waits", claims={"gpu": "missing"}))
    tasks.run("schedule")
    assert _work_of("schedule") == ["schedule"]


@pytest.mark.django_db
def test_what_has_lost_its_owner_is_work_for_the_collector(cluster: Cluster) -> None:
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    tasks.run("schedule")
    assert _work_of("collect_garbage") == []
    cluster.delete(cluster.pod("web"))
    assert _work_of("collect_garbage") == ["collect_garbage"]


def _controllers(patience: float) -> list[Controller]:
    """Two that deletions wake, the second with patience, as long as there is a claim without its owner."""
    deletions = frozenset({(ANY, DELETED), (CLAIMS, DELETED)})
    at_once = Controller(name="at_once", does="nothing", reconcile=lambda _now: 0, every=60.0, wakes_on=deletions)
    return [at_once, replace(at_once, name="patient", patience=patience, has_work=garbage.HAS_WORK)]


@pytest.mark.django_db(transaction=True)
def test_who_has_patience_is_woken_later_and_once_for_all_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "REST", dict.fromkeys(Queue, 0.0))
    sent, cluster = Sent(), Cluster()
    cluster.create(make_template("one-gpu"))
    for name in ("first", "second"):
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
        tasks.run("schedule")
    dispatcher = Dispatcher(sent, sent, declared=_controllers(patience=0.3))
    dispatcher.start()
    try:
        sent.until("patient")
        began = time.monotonic()
        for name in ("first", "second"):
            cluster.delete(cluster.pod(name))
            sent.until("at_once")
        assert sent.until("patient") == [task_name("patient")]
        assert time.monotonic() - began >= 0.3
    finally:
        dispatcher.stop()
    assert sent.rest() == []


@pytest.mark.django_db(transaction=True)
def test_who_has_patience_is_not_woken_for_what_others_have_done_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, cluster = Sent(), Cluster()
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    tasks.run("schedule")
    tasks.run("release_claims")  # from here on it follows the log
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.02)
    dispatcher = Dispatcher(sent, sent, declared=_controllers(patience=600))
    dispatcher.start()
    try:
        sent.until("patient")
        cluster.delete(cluster.pod("web"))
        sent.until("at_once")
        tasks.run("release_claims")
        dispatcher.due["patient"] = time.monotonic()
        wait_for("the moment at which it would be woken", lambda: not dispatcher.due)
    finally:
        dispatcher.stop()
    assert task_name("patient") not in sent.rest()


@pytest.mark.django_db(transaction=True)
def test_who_was_just_woken_rests_and_is_woken_once_for_all_that_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "REST", dict.fromkeys(Queue, 600.0))
    monkeypatch.setattr(tasks, "LOOK_EVERY", 0.02)
    sent, at_changes = Sent(), replace(AT_PODS, name="at_changes", wakes_on=frozenset({("pods", "MODIFIED")}))
    pod = Cluster().create(make_pod("web"))
    with dispatching(sent, [at_changes]) as dispatcher:
        sent.until("at_changes")
        woken = time.monotonic()
        Cluster().label(pod, "seen", "once")
        sent.until("at_changes")
        for number in range(5):
            Cluster().label(Cluster().pod("web"), "seen", f"again-{number}")
        wait_for("what came meanwhile to be due", lambda: "at_changes" in dispatcher.due)
        assert dispatcher.due["at_changes"] >= woken + 600
        assert sent.rest() == []
        dispatcher.due["at_changes"] = time.monotonic()  # the rest is over
        assert sent.until("at_changes") == [task_name("at_changes")]
        assert sent.rest() == []


@pytest.mark.django_db(transaction=True)
def test_new_pods_do_not_wait_for_the_whole_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "REST", dict.fromkeys(Queue, 600.0))
    sent = Sent()
    with dispatching(sent, [AT_PODS]):
        for name in ("", "web", "other"):
            if name:
                Cluster().create(make_pod(name))
            sent.until("at_pods")


@pytest.mark.django_db(transaction=True)
def test_what_could_not_be_sent_is_sent_in_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRY_AFTER", 0.01)
    sent, broken = Sent(), threading.Event()

    def send(task: str) -> None:
        if broken.is_set():
            broken.clear()
            raise ConnectionRefusedError
        sent(task)

    with dispatching(send, [AT_PODS]):
        sent.until("at_pods")
        broken.set()
        Cluster().create(make_pod("web"))
