"""Workers that share a PostgreSQL schedule one after the other, and a lost race costs no rest."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from claims.causes.causes import Interrupted
from manciple.controllers import coordination
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.queue import MOST_AT_ONCE
from scheduling.queue.verdicts import Retry
from scheduling.state.cluster import ClusterState
from tests.builders import make_pod
from tests.scheduling.cluster import Cluster


def in_another_thread(step: Callable[[], None]) -> threading.Thread:
    """A thread with a database connection of its own."""

    def run() -> None:
        try:
            step()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True)
def test_a_turn_ends_before_the_next_begins() -> None:
    held, release, order = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        with coordination.turn():
            held.set()
            release.wait(60)
            order.append("first")

    def second() -> None:
        held.wait(60)
        with coordination.turn():
            order.append("second")

    threads = [in_another_thread(first), in_another_thread(second)]
    held.wait(60)
    if connection.vendor == "postgresql":
        assert order == []
    release.set()
    for thread in threads:
        thread.join(10)
    assert sorted(order) == ["first", "second"]
    assert connection.vendor != "postgresql" or order == ["first", "second"]


def test_a_pod_that_lost_a_race_is_tried_again_at_once_but_not_for_ever(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    state = ClusterState.captured()
    queue.feed(state, cluster.now)
    lost = [Retry(pod=cluster.pod("web"), cause=Interrupted("conflict"), at_once=True)]
    for _ in range(MOST_AT_ONCE):
        assert [pod.uid for pod in queue.ready(10, cluster.now).due] == [lost[0].uid]
        queue.settle(lost, revision=state.revision, now=cluster.now)
    assert [pod.uid for pod in queue.ready(10, cluster.now).due] == [lost[0].uid]
    queue.settle(lost, revision=state.revision, now=cluster.now)
    assert queue.ready(10, cluster.now).due == []
    assert cluster.queued("web").state == QueuedPod.State.BACKOFF
