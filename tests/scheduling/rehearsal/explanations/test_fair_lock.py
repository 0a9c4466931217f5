"""An explanation does not wait until a rehearsal ends, and says nothing of what was imagined."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from scheduling.rehearsal import explanations as current
from scheduling.rehearsal.explanations import FairLock
from scheduling.rehearsal.rehearsal import Rehearsal
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import Workload
from tests.builders import make_claim, make_node, make_pod, make_request, make_slice
from tests.scheduling.cluster import Cluster

#: Longer than anything here takes; who waits for so long waits for ever.
LONG = 60


def in_a_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """(the thread, what `work` answered once it has ended)."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def in_line(line: FairLock) -> None:
    while not line.somebody_waits:
        threading.Event().wait(0.001)


def test_the_line_is_served_in_order_and_gives_way_only_to_who_waits() -> None:
    line, order = FairLock(), list[str]()
    with line:
        line.give_way()

        def second() -> None:
            with line:
                order.append("second")

        thread, _ = in_a_thread(second)
        in_line(line)
        order.append("first")
        line.give_way()
        order.append("first again")
    thread.join(LONG)
    assert order == ["first", "second", "first again"]


def test_who_is_stopped_while_waiting_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = FairLock()

    def stopped(_condition: object, _predicate: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Condition, "wait_for", stopped)
        with pytest.raises(KeyboardInterrupt):
            line.__enter__()
    with line:
        assert not line.somebody_waits


@pytest.mark.django_db(transaction=True)
def test_an_explanation_is_given_in_the_middle_of_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_claim("waits", requests=[make_request(count=5)]))
    cluster.create(make_pod("waits", claims={"gpu": "waits"}))
    cluster.settle()
    alone = current.pod_document("default", "waits")

    line, answered, under_way = current._asking, threading.Event(), threading.Event()
    steps: list[bool] = []
    place_next = Rehearsal.place_next

    def placing(rehearsal: Rehearsal, *, briefly: bool = False) -> object:
        under_way.set()
        if len(steps) == 1:  # one replica is placed: a question comes
            in_line(line)
        found = place_next(rehearsal, briefly=briefly)
        steps.append(answered.wait(LONG if len(steps) == 1 else 0))
        return found

    monkeypatch.setattr(Rehearsal, "place_next", placing)
    workload = Workload(pod=make_pod("one", claims={"gpu": "one"}), own={"gpu": make_claim(requests=[make_request()])})
    thread, answers = in_a_thread(lambda: simulate(Question(workload=workload, replicas=3)))
    assert under_way.wait(LONG)
    explained = current.pod_document("default", "waits")
    answered.set()
    thread.join(LONG)

    assert steps[:2] == [False, True], "the second step waited for the explanation"
    assert [placed.node for placed in answers[0].placed] == ["node-1"] * 3
    assert explained == alone


@pytest.mark.django_db
def test_a_copy_and_its_state_go_their_own_ways(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_claim("held", requests=[make_request()]))
    cluster.create(make_pod("held", claims={"gpu": "held"}))
    cluster.settle()
    with current.apart() as copy:
        before = current_views(copy.state)
        copy.state.put("nodes", make_node("imagined"))
        copy.state.put("resourceslices.resource.k8s.io", make_slice(node="imagined"))
        copy.state.remove("resourceclaims.resource.k8s.io", cluster.claim("held"))
        copy.state.remove("pods", cluster.pod("held"))
        assert current_views(copy.state) != before
    with current.cluster() as state:
        assert current_views(state) == before


def current_views(state: Any) -> tuple[Any, ...]:
    snapshot = state.snapshot()
    names = [view.name for view in state.nodes.views]
    devices = [len(snapshot.on_node(view).pools) for view in state.nodes.views]
    taken = sorted((str(key), dict(pool.taken)) for key, pool in snapshot.usage.log.now.items() if pool.taken)
    return names, devices, taken, state.nodes.pods_on("node-1"), snapshot.catalogue.device_count
