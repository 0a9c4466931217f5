"""The whole of it: threads that read, one that writes, and what everybody else is told of the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from django.db import OperationalError, connection

from inventory.kinds import gates
from manciple.mirror import standing
from manciple.mirror.replicator import Replicator
from manciple.mirror.sources import COPIED, Reach
from manciple.mirror.stored_copy import Change, StoredCopy
from tests.manciple.mirror.clusters import claim, cluster, device_class, holding, remote_of
from tests.manciple.mirror.living import KINDS, Living
from tests.manciple.mirror.test_copying import assert_equal, stored

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def replicated(server: Living, *, silence: float = 30.0) -> Iterator[Replicator]:
    replicator = Replicator(remote_of(server), sources=COPIED, context="lab", namespace="team-a", silence=silence)
    stopping = threading.Event()

    def run() -> None:
        try:
            replicator.run(stopping)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield replicator
    finally:
        stopping.set()
        thread.join(timeout=20)
        assert not thread.is_alive()


@pytest.fixture
def server() -> Iterator[Living]:
    with gates.using(), Living(cluster(*holding("n1/gpu-0")), live=True) as server:
        yield server


def until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def fresh() -> standing.RemoteStanding:
    standing.forget()
    found = standing.remote()
    assert found is not None
    return found


def test_every_kind_is_listed_and_changes_follow_and_it_ends_when_it_is_told_to(server: Living) -> None:
    server.forbidden = frozenset({"namespaces"})
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        remote, kinds = fresh(), standing.kinds()
        assert (remote.context, remote.server, remote.version) == ("lab", server.url, "v1.36.2")
        assert (remote.away_since, remote.why) == (None, "")
        assert kinds["pods"].is_whole
        assert kinds["pods"].heard_at is not None
        reaches = {kinds[resource].reach for resource in ("namespaces", "events")}
        assert reaches == {Reach.FORBIDDEN, Reach.ABSENT}
        assert set(kinds) == {source.resource for source in COPIED}
        server.put("resourceclaims", claim("late", "n2/gpu-1"))
        server.delete("pods", "team-b", "holder-0")
        until(lambda: "team-a/late" in stored("resourceclaims") and not stored("pods"))
        assert_equal(server, "pods", "resourceclaims", "nodes", "resourceslices", "deviceclasses")


def test_what_the_cluster_answered_is_stored_at_once_and_what_it_tells_later_changes_nothing(server: Living) -> None:
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        made = server.put("resourceclaims", claim("mine"))
        source, meta = KINDS["resourceclaims"], made["metadata"]
        version = meta["resourceVersion"]
        change = Change(source, "v1", meta["uid"], "team-a", "mine", version, msgspec.json.encode(made))
        assert replicator.keep(change)
        before = stored("resourceclaims")["team-a/mine"]
        server.delete("resourceclaims", "team-b", "holder-0")
        until(lambda: "team-b/holder-0" not in stored("resourceclaims"))
        assert stored("resourceclaims")["team-a/mine"] == before


def test_a_replicator_that_does_not_run_stores_nothing(server: Living) -> None:
    change = Change(KINDS["pods"], "v1", "u", "team-a", "x", "1", None, gone=True)
    assert not Replicator(remote_of(server), sources=COPIED, context="lab").keep(change)


def test_an_installation_that_is_no_mirror_says_so() -> None:
    standing.forget()
    assert (standing.remote(), standing.kinds()) == (None, {})


def test_a_cluster_that_does_not_answer_is_away_since_it_was_last_heard_and_what_is_known_stays(server: Living) -> None:
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        server.answer = lambda _path: (503, {}, b"{}")
        server.end_watches()
        until(lambda: fresh().away_since is not None)
        remote, pods = fresh(), standing.kinds()["pods"]
        assert "503" in remote.why
        assert remote.away_since is not None
        assert pods.listed_at is not None
        assert remote.away_since >= pods.listed_at
        assert pods.reach is Reach.EVERYWHERE
        assert stored("pods")
        server.answer = lambda _path: None
        until(lambda: fresh().away_since is None)


def test_after_a_restart_only_what_differs_is_written_and_what_was_known_is_shown_at_once(server: Living) -> None:
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
    before = {plural: stored(plural) for plural in KINDS}
    standing.forget()
    listed_at = standing.kinds()["pods"].listed_at
    server.delete("resourceclaims", "team-b", "holder-0")
    server.prune()
    server.answer = lambda _path: (503, {}, b"{}")
    with replicated(server) as replicator:
        until(lambda: "503" in fresh().why)
        assert standing.kinds()["pods"].listed_at == listed_at
        assert fresh().version == "v1.36.2"
        server.answer = lambda _path: None
        assert replicator.listed.wait(30)
        assert stored("resourceclaims") == {}
        assert {plural: stored(plural) for plural in KINDS} == {**before, "resourceclaims": {}}


def test_gates_are_those_of_the_cluster(server: Living) -> None:
    server.git_version = "v1.34.1"
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        assert not fresh().gates["DRAExtendedResource"]
        assert not gates.enabled("DRAExtendedResource")
        extended = device_class("extended")
        extended["spec"]["extendedResourceName"] = "example.com/gpu"
        server.put("deviceclasses", extended)
        until(lambda: fresh().gates["DRAExtendedResource"])
        assert gates.enabled("DRAExtendedResource")


def test_while_the_database_is_away_nothing_is_lost(server: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    store, failures = StoredCopy._store, iter(range(2))

    def sometimes(copy: StoredCopy, changes: object) -> None:
        if next(failures, None) is not None:
            raise OperationalError("the database is away")
        store(copy, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredCopy, "_store", sometimes)
    monkeypatch.setattr("manciple.mirror.replicator.DATABASE_PAUSE", 0.01)
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        assert_equal(server, "pods", "resourceclaims", "nodes")


def test_a_server_that_accepts_and_never_answers_is_away_though_its_connections_live(
    server: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is stopped, or behind a firewall that drops everything."""
    monkeypatch.setattr("manciple.mirror.replicator.PROBED_EVERY", 0.2)
    monkeypatch.setattr("manciple.mirror.replicator.PROBE_PATIENCE", 0.3)
    with replicated(server) as replicator:
        assert replicator.listed.wait(30)
        assert fresh().away_since is None
        server.hung = True
        until(lambda: fresh().away_since is not None)
        assert "did not answer in time" in fresh().why
        assert stored("pods"), "what is known is shown"
        server.wake()
        until(lambda: fresh().away_since is None)
        server.put("resourceclaims", claim("late"))
        until(lambda: "team-a/late" in stored("resourceclaims"))
