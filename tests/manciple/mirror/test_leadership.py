"""Of several mirrors on one database one copies, and what it loses the lock over, another one finishes, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from django.db import OperationalError, connection

from inventory.kinds import gates
from manciple.controllers import coordination
from manciple.mirror import leadership
from manciple.mirror.leadership import LOCK, Leadership, is_led
from manciple.mirror.replicator import Replicator
from manciple.mirror.sources import BY_RESOURCE, COPIED
from manciple.mirror.stored_copy import Change, StoredCopy
from manciple.store import sql
from manciple.store.models import Event
from tests.manciple.mirror.clusters import cluster, holding, pod, remote_of
from tests.manciple.mirror.living import Living
from tests.manciple.mirror.test_copying import assert_equal, stored
from tests.manciple.mirror.test_replicator import until
from tests.scheduling.cluster import in_threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Living]:
    monkeypatch.setattr(leadership, "TRIED_EVERY", 0.02)
    monkeypatch.setattr("manciple.mirror.replicator.DATABASE_PAUSE", 0.01)
    with gates.using(), Living(cluster(*holding("n1/gpu-0")), live=True) as server:
        yield server


class Contender:
    """A process' share of it: what it copies, it copies in a thread of this one, with a connection of its own."""

    def __init__(self, server: Living) -> None:
        self.terms = list[Replicator]()
        self.leadership = Leadership(lambda: self._made(server))
        self.thread = threading.Thread(target=self.leadership.run)

    def _made(self, server: Living) -> Replicator:
        made = Replicator(remote_of(server), sources=COPIED, context="lab")
        self.terms.append(made)
        return made

    @property
    def has_listed(self) -> bool:
        return self.leadership.has_listed


@contextmanager
def contending(server: Living, count: int) -> Iterator[Sequence[Contender]]:
    """The first of them leads."""
    contenders = [Contender(server) for _ in range(count)]
    try:
        for one in contenders:
            one.thread.start()
            until(is_led)
            until(lambda: contenders[0].has_listed)
        yield contenders
    finally:
        for one in contenders:
            one.leadership.stop()
        for one in contenders:
            one.thread.join(30)
            assert not one.thread.is_alive()


def end_session_of_leader() -> None:
    """As PostgreSQL does where its process is killed, or the network to it has failed. Returns when it is gone."""
    first, second = coordination._key(LOCK)
    held = (
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted "
        "AND classid = CAST(CAST(%s AS bigint) AS oid) AND objid = CAST(CAST(%s AS bigint) AS oid)"
    )
    ((pid,),) = sql.fetch(held, [first, second % 2**32])
    assert sql.fetch("SELECT pg_terminate_backend(%s, 10000)", [pid])[0][0]


def entries() -> list[tuple[str, str, str]]:
    return list(Event.objects.exclude(resource="events").order_by("revision").values_list("type", "resource", "name"))


def test_one_of_two_copies_and_the_other_takes_over_where_it_stops(server: Living) -> None:
    with contending(server, 2) as (first, second):
        before = entries()
        assert second.terms == []
        assert (first.leadership.is_current, second.leadership.is_current) == (True, False)
        first.leadership.stop()
        first.thread.join(30)
        assert not first.leadership.is_current
        server.put("pods", pod("later"))
        until(lambda: second.has_listed)
        until(lambda: "team-a/later" in stored("pods"))
        assert second.leadership.is_current
        assert entries() == [*before, ("ADDED", "pods", "later")], "nothing is copied twice"
        assert_equal(server, "pods", "resourceclaims", "nodes", "resourceslices", "deviceclasses")
    assert not is_led()


def test_who_loses_its_session_lets_another_one_copy_and_waits_for_its_turn(server: Living) -> None:
    if connection.vendor != "postgresql":
        return  # the lock is the process's there, and dies with it
    with contending(server, 2) as (first, second):
        before = entries()
        in_threads(end_session_of_leader)
        server.put("pods", pod("later"))
        until(lambda: len(first.terms) + len(second.terms) == 2)
        until(lambda: "team-a/later" in stored("pods"))
        until(lambda: (second if second.terms else first).has_listed)
        assert entries() == [*before, ("ADDED", "pods", "later")]
        assert is_led()


def test_who_was_cut_off_in_the_middle_of_a_write_writes_nothing_once_another_one_leads(
    server: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "postgresql":
        return  # as above
    store, reached, go_on, refused = StoredCopy._store, threading.Event(), threading.Event(), list[Exception]()

    def stalls(copy: StoredCopy, changes: Sequence[Change]) -> None:
        if any(change.name == "late" for change in changes) and not reached.is_set():
            reached.set()
            assert go_on.wait(30)
            try:
                store(copy, changes)
            except OperationalError as error:
                refused.append(error)
                raise
            raise AssertionError("it was written")
        store(copy, changes)

    monkeypatch.setattr(StoredCopy, "_store", stalls)
    with contending(server, 2) as (first, second):
        before = entries()
        server.put("pods", pod("late"))
        assert reached.wait(30)
        in_threads(end_session_of_leader)
        until(lambda: second.has_listed)
        newer = pod("late", priorityClassName="urgent")
        server.put("pods", newer)
        until(lambda: "urgent" in str(stored("pods").get("team-a/late")))
        written = [*before, ("ADDED", "pods", "late"), ("MODIFIED", "pods", "late")]
        assert entries() == written
        go_on.set()
        until(lambda: bool(refused))
        server.put("pods", pod("later"))
        until(lambda: "team-a/later" in stored("pods"))
        first.leadership.stop()
        first.thread.join(30)
        assert entries() == [*written, ("ADDED", "pods", "later")], "what it held was out of date"
        assert len(first.terms) == 1


def test_a_session_that_ends_is_noticed_though_nothing_is_written(server: Living) -> None:
    if connection.vendor != "postgresql":
        return  # as above
    with contending(server, 1) as (only,):
        in_threads(end_session_of_leader)
        until(lambda: len(only.terms) == 2)
        until(lambda: only.has_listed)


def test_an_error_that_leaves_the_session_alone_costs_nobody_the_lead(
    server: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contending(server, 1) as (only,):
        store, failures = StoredCopy._store, iter(range(2))

        def sometimes(copy: StoredCopy, changes: Any) -> None:
            if next(failures, None) is not None:
                raise OperationalError("deadlock detected")
            store(copy, changes)

        monkeypatch.setattr(StoredCopy, "_store", sometimes)
        server.put("pods", pod("later"))
        until(lambda: "team-a/later" in stored("pods"))
        assert len(only.terms) == 1


def test_a_thread_that_gives_no_sign_of_life_counts_as_stuck(server: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    store, go_on = StoredCopy._store, threading.Event()

    def stalls(copy: StoredCopy, changes: Any) -> None:
        assert go_on.wait(30)
        store(copy, changes)

    with contending(server, 1) as (only,):
        assert not only.leadership.is_stuck
        monkeypatch.setattr(StoredCopy, "_store", stalls)
        monkeypatch.setattr(leadership, "STUCK_AFTER", 1.0)
        server.put("pods", pod("later"))
        try:
            until(lambda: only.leadership.is_stuck)
        finally:
            go_on.set()
        until(lambda: "team-a/later" in stored("pods"))
        until(lambda: not only.leadership.is_stuck)


# What is done by a process that does not copy -------------------------------------------------------------------------


def answered(server: Living, name: str, *, gone: bool = False) -> Change:
    """What the cluster answers to a write of this pod."""
    known = server.get("pods", "team-a", name)
    assert known is not None
    text = None if gone else msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **known})
    meta = known["metadata"]
    return Change(BY_RESOURCE["pods"], "v1", meta["uid"], "team-a", name, meta["resourceVersion"], text, gone=gone)


@pytest.mark.parametrize("turn", [0, 1], ids=["who copies", "who does not"])
def test_whoever_acts_finds_it_in_the_copy_at_once(server: Living, turn: int) -> None:
    with contending(server, 2) as contenders:
        keep = contenders[turn].leadership.keep
        server.put("pods", pod("made"))
        made = answered(server, "made")
        assert keep(made)
        assert "team-a/made" in stored("pods")
        server.put("pods", pod("made", priorityClassName="urgent"))
        changed = answered(server, "made")
        assert keep(changed)
        assert "urgent" in str(stored("pods")["team-a/made"])
        assert keep(made), "something newer is there"
        gone = answered(server, "made", gone=True)
        server.delete("pods", "team-a", "made")
        assert keep(gone)
        assert "team-a/made" not in stored("pods")
        assert entries()[-3:] == [(one, "pods", "made") for one in ("ADDED", "MODIFIED", "DELETED")], "once each"


def test_what_nobody_copies_is_not_waited_for_again_and_again(server: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "KEPT_WITHIN", 0.2)
    alone = Contender(server).leadership
    server.put("pods", pod("any"))
    never = answered(server, "any")._replace(uid="never")
    assert not alone.keep(never)
    monkeypatch.setattr(leadership, "KEPT_WITHIN", 3600.0)
    alone._late_until += 3600.0
    assert not alone.keep(never), "it looks once"
