"""Commits become wake-ups: which, how many, and that nothing about it can fail a commit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from claims.kinds.pods import PodSchedulingGate
from manciple.controllers import tasks
from manciple.controllers.declaration import ANY, Controller, controllers, task_name
from manciple.controllers.tasks import Dispatcher, Rests, WakeTable, change_of, longest_rest
from manciple.store import event_log, garbage
from manciple.store.event_log import Sketch
from manciple.store.records import EventType, dump
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Lease
from manciple.wire.resources import DELETED
from tests.builders import make_claim, make_node, make_pod, make_template
from tests.e2e.processes import wait_for
from tests.scheduling.cluster import Cluster, with_spec

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
    "a node that was written": (("nodes", "MODIFIED"), {"schedule", "sweep_nodes"}),
    "a node that went": (
        ("nodes", "DELETED"),
        {"schedule", "sweep_pods", "collect_garbage", "sweep_namespaces"},
    ),
    "a namespace on its way out": (("namespaces", "MODIFIED"), {"sweep_namespaces"}),
}


@pytest.mark.parametrize("phrase", WAKES)
def test_change_concerns(phrase: str) -> None:
    change, expected = WAKES[phrase]
    assert set(WakeTable(controllers.value).concerned([change])) == expected


@pytest.mark.parametrize(
    ("changes", "pods", "seconds"),
    [(5, 1, 0.003), (20, 4, 0.04), (500, 100, 0.3), (500, 0, 0.1), (500, 2, 0.1)],
    ids=["one pod", "a few pods", "many pods", "much else", "a few pods beside much else"],
)
def test_a_rest_is_at_most_as_long_as_what_happens_is_worth(changes: int, pods: int, seconds: float) -> None:
    assert longest_rest(changes, pods) == pytest.approx(seconds)


class Log:
    """What one question after the other finds, and when it was heard of."""

    def __init__(self) -> None:
        self.rests = Rests()
        self._revision, self._now = 0, 0.0

    def rest(self, changes: int, pods: int, *, over: float = 1.0) -> float:
        """How long it is after so many changes, the pods among which came over so many seconds."""
        found = [self._written("MODIFIED") for _ in range(changes - pods)]
        for _ in range(pods):
            self._now += over / max(pods - 1, 1)
            found.append(self._written("ADDED"))
        return self.rests.after(found)

    def _written(self, type_: EventType) -> Sketch:
        self._revision += 1
        self.rests.hear(self._revision, self._now)
        return _sketch("pods", type_, {}, revision=self._revision)


def test_rests_grow_while_pods_keep_coming_and_shrink_when_they_stop() -> None:
    log = Log()
    coming = [log.rest(200, 100) for _ in range(9)]
    assert coming == pytest.approx([0.003, 0.006, 0.012, 0.024, 0.048, 0.096, 0.192, 0.3, 0.3])
    stopped = [log.rest(50, 0) for _ in range(9)]
    assert stopped == pytest.approx([0.1, 0.1, 0.075, *(0.075 / 2**n for n in range(1, 5)), 0.003, 0.003])


def test_pods_that_come_now_and_then_are_seen_at_once() -> None:
    log = Log()
    found = [(50, 10), (30, 0), (40, 0)] * 10
    assert max(log.rest(*each) for each in found) <= 0.02


def test_bursts_of_pods_are_seen_soon_though_every_question_finds_one() -> None:
    """As of a client that creates ten pods once the ten before have their nodes: long rests would make it slow."""
    log = Log()
    assert max(log.rest(50, 10, over=0.008) for _ in range(20)) <= 0.035


def test_a_stream_is_gathered_the_longer_the_longer_its_stretches_are() -> None:
    log = Log()
    rests = [log.rest(100, 20, over=over) for over in (0.01, 0.01, 0.01, 0.01, 0.02, 0.05, 0.1)]
    assert rests == pytest.approx([0.003, 0.006, 0.012, 0.024, 0.048, 0.096, 0.192])


def test_many_changes_are_gathered_though_no_pod_comes() -> None:
    log = Log()
    rests = [log.rest(150, 0) for _ in range(7)]
    assert rests == pytest.approx([0.003, 0.006, 0.012, 0.024, 0.048, 0.096, 0.1])


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


@contextmanager
def dispatching(send: Callable[[str], None]) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(send)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        dispatcher.stop()


@pytest.mark.django_db(transaction=True)
def test_at_its_start_it_wakes_everybody_then_whom_changes_concern() -> None:
    sent = Sent()
    with dispatching(sent):
        assert set(sent.until(LAST)) == {task_name(one.name) for one in controllers.value}
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
def test_a_lease_that_is_renewed_is_nothing_to_claim() -> None:
    sent, claimed = Sent(), list[int]()

    def claim(revision: int) -> bool:
        claimed.append(revision)
        return True

    meta = ObjectMeta(name="node-1", namespace="kube-node-lease")
    lease = Cluster().create(Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta))
    dispatcher = Dispatcher(sent, claim)
    dispatcher.start()
    try:
        sent.until(LAST)
        Cluster().update(with_spec(lease, lease_transitions=1))
        pod = Cluster().create(make_pod("last"))
        sent.until("schedule")
    finally:
        dispatcher.stop()
    assert claimed == [int(pod.metadata.resource_version)]


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
    event_log.announce(10**6)
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
    assert table.concerned_by(table.read(position)) == {"schedule": True, "sync_claims": False}
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


@pytest.mark.django_db(transaction=True)
def test_whose_claim_failed_leaves_the_log_to_the_other_until_that_one_stops() -> None:
    """The other has claimed everything that is written before `stopped` is set."""
    sent, stopped, claims, asked = Sent(), threading.Event(), list[int](), list[int]()

    def claim(revision: int) -> bool:
        claims.append(revision)
        return stopped.is_set()

    def claimed() -> int:
        asked.append(0 if stopped.is_set() else event_log.latest_revision())
        return asked[-1]

    dispatcher = Dispatcher(sent, claim, claimed)
    dispatcher.start()
    try:
        sent.until(LAST)
        Cluster().create(make_template("first"))
        wait_for("the claim that fails", lambda: claims)
        for number in range(5):
            Cluster().create(make_template(f"left-{number}"))
        wait_for("what the other did", lambda: asked[-1:] == [event_log.latest_revision()])
        assert (len(claims), sent.rest()) == (1, [])
        stopped.set()
        Cluster().create(make_pod("last"))
        sent.until("schedule")
    finally:
        dispatcher.stop()


def _controllers(patience: float) -> list[Controller]:
    """Two that deletions wake, the second with patience, as long as there is a claim without its owner."""
    deletions = frozenset({(ANY, DELETED), (CLAIMS, DELETED)})
    at_once = Controller(name="at_once", does="nothing", reconcile=lambda _now: 0, every=60.0, wakes_on=deletions)
    return [at_once, replace(at_once, name="patient", patience=patience, has_work=garbage.HAS_WORK)]


@pytest.mark.django_db(transaction=True)
def test_who_has_patience_is_woken_later_and_once_for_all_that_came() -> None:
    sent, cluster = Sent(), Cluster()
    cluster.create(make_template("one-gpu"))
    for name in ("first", "second"):
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
        tasks.run("schedule")
    dispatcher = Dispatcher(sent, declared=_controllers(patience=0.3))
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
def test_who_has_patience_is_not_woken_for_what_others_have_done_meanwhile() -> None:
    sent, cluster = Sent(), Cluster()
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    tasks.run("schedule")
    tasks.run("release_claims")  # from here on it follows the log
    dispatcher = Dispatcher(sent, declared=_controllers(patience=0.3))
    dispatcher.start()
    try:
        sent.until("patient")
        cluster.delete(cluster.pod("web"))
        sent.until("at_once")
        tasks.run("release_claims")
        wait_for("the moment at which it would be woken", lambda: not dispatcher.due)
    finally:
        dispatcher.stop()
    assert task_name("patient") not in sent.rest()


@pytest.mark.django_db(transaction=True)
def test_who_has_patience_is_woken_before_the_process_ends() -> None:
    """Nobody else will: the others know that this process has claimed the stretch."""
    sent, cluster = Sent(), Cluster()
    template = cluster.create(make_template("one-gpu"))
    dispatcher = Dispatcher(sent, declared=_controllers(patience=600))
    dispatcher.start()
    try:
        sent.until("patient")
        cluster.delete(template)
        sent.until("at_once")
    finally:
        dispatcher.stop()
    assert sent.rest() == [task_name("patient")]


@pytest.mark.django_db(transaction=True)
def test_what_was_claimed_and_could_not_be_sent_is_sent_in_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRY_AFTER", 0.01)
    sent, claimed, broken = Sent(), [0], threading.Event()

    def claim(revision: int) -> bool:
        """As among several processes: nobody claims the same twice."""
        before, claimed[0] = claimed[0], max(claimed[0], revision)
        return before < revision

    def send(task: str) -> None:
        if broken.is_set():
            broken.clear()
            raise ConnectionRefusedError
        sent(task)

    dispatcher = Dispatcher(send, claim)
    dispatcher.start()
    try:
        sent.until(LAST)
        broken.set()
        Cluster().create(make_pod("web"))
        assert sent.until("schedule") == [task_name("schedule")]
    finally:
        dispatcher.stop()
