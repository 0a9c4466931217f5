"""Writes that wait at the same moment share a transaction, and each has its own outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from manciple.store import event_log, hooks, objects, writer
from manciple.store.objects import PendingWrite, Read, Writer
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import AlreadyExists, BadRequest, Conflict
from manciple.wire.identity import SYSTEM, Identity
from tests.manciple.store.counting import counted_transactions
from tests.manciple.store.kinds import NOTES, Note, note

pytestmark = pytest.mark.django_db(transaction=True)

ALICE, BOB = Identity("alice"), Identity("bob")


def creating(name: str) -> Callable[[Writer], Any]:
    return lambda writer: writer.create(NOTES, note(name))


def names() -> list[str]:
    return [item.name for item in objects.list(NOTES).items]


class Crowd:
    """Threads whose writes wait until the one that leads may go on."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(16)
        self._leading, self._may_go_on = threading.Event(), threading.Event()
        self.futures: list[Future[Any]] = []

    def lead(self) -> None:
        """Somebody's write is under way, and stays so."""

        def work(_writer: Writer) -> None:
            self._leading.set()
            assert self._may_go_on.wait(60)

        self.futures.append(self._pool.submit(self._run, work, {}))
        assert self._leading.wait(60)

    def wait_in_line(self, work: Callable[[Writer], Any], **options: Any) -> Future[Any]:
        """Somebody else's write, which stands in line when this returns."""
        if not self.futures:
            self.lead()
        before = objects.commits.value.waiting()
        future = self._pool.submit(self._run, work, options)
        while objects.commits.value.waiting() == before:
            threading.Event().wait(0.001)
        self.futures.append(future)
        return future

    def release(self) -> None:
        """The one who leads goes on."""
        self._may_go_on.set()

    def go(self) -> None:
        self.release()
        for future in self.futures:
            future.exception(60)
        self._pool.shutdown()

    def _run(self, work: Callable[[Writer], Any], options: dict[str, Any]) -> Any:
        try:
            return objects.write(work, **options)
        finally:
            connections.close_all()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    made = Crowd()
    yield made
    made.go()


def test_those_who_wait_together_share_a_transaction(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd.lead()
    with counted_transactions(monkeypatch) as counted:
        for number in range(10):
            crowd.wait_in_line(creating(f"n{number}"))
        crowd.go()
    assert len(counted) == 1
    assert len(names()) == 10


def test_they_are_written_in_the_order_in_which_they_came(crowd: Crowd) -> None:
    futures = [crowd.wait_in_line(creating(name)) for name in ("third", "first", "second")]
    crowd.go()
    revisions = [int(future.result().metadata.resource_version) for future in futures]
    assert revisions == sorted(revisions)
    assert [record.name for record in event_log.read_after(0)] == ["third", "first", "second"]


def test_a_refusal_undoes_one_write_and_meets_the_one_who_asked(crowd: Crowd) -> None:
    def half(writer: Writer) -> None:
        writer.create(NOTES, note("half"))
        raise BadRequest("no")

    first, refused, again, last = [
        crowd.wait_in_line(work) for work in (creating("a"), half, creating("a"), creating("b"))
    ]
    crowd.go()
    assert (first.result().metadata.name, last.result().metadata.name) == ("a", "b")
    assert isinstance(refused.exception(), BadRequest)
    assert isinstance(again.exception(), AlreadyExists)
    assert names() == ["a", "b"]


def test_of_two_updates_of_one_revision_the_first_wins(crowd: Crowd) -> None:
    with objects.writing() as writer:
        stored = writer.create(NOTES, note("a"))
    read = Read(NOTES, "home", "a", objects.known(NOTES, stored))

    def labelled(value: str) -> Callable[[Writer], Any]:
        metadata = structs.replace(stored.metadata, labels={"by": value})
        return lambda writer: writer.update(NOTES, structs.replace(stored, metadata=metadata))

    first, second = (crowd.wait_in_line(labelled(who), reads=[read]) for who in ("first", "second"))
    crowd.go()
    assert first.result().metadata.labels == {"by": "first"}
    assert isinstance(second.exception(), Conflict)


def test_each_writes_under_its_own_name(crowd: Crowd) -> None:
    seen = [crowd.wait_in_line(lambda writer: writer.identity, identity=who) for who in (ALICE, BOB, ALICE)]
    crowd.go()
    assert [future.result() for future in seen] == [ALICE, BOB, ALICE]


def test_what_the_database_refuses_costs_only_the_one_whom_it_concerns(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(changes: Any) -> None:
        if any(change.object.metadata.name == "bad" for change in changes):
            raise IntegrityError("UNIQUE constraint failed")

    monkeypatch.setitem(hooks.PROJECTORS, NOTES.resource, hooks.Projector(NOTES.resource, refuse, lambda: None))
    good, bad, other = [crowd.wait_in_line(creating(name)) for name in ("good", "bad", "other")]
    crowd.go()
    assert isinstance(bad.exception(), IntegrityError)
    assert good.exception() is other.exception() is None
    assert names() == ["good", "other"]


def test_on_a_full_disk_those_that_fit_go_through(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    real = writer.append_events

    def full_for_several(events: Any, now: Any, *, after: int) -> int:
        if len(events) > 1:
            error = OperationalError("could not extend file")
            error.__cause__ = psycopg.errors.DiskFull("could not extend file")
            raise error
        return real(events, now, after=after)

    monkeypatch.setattr(writer, "append_events", full_for_several)
    futures = [crowd.wait_in_line(creating(name)) for name in ("a", "b", "c")]
    crowd.go()
    assert [future.exception() for future in futures] == [None, None, None]
    assert names() == ["a", "b", "c"]


def test_when_the_database_is_away_everybody_hears_of_it_and_the_next_may_write(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_arguments: Any, **_options: Any) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "append_events", away)
        futures = [crowd.wait_in_line(creating(name)) for name in ("a", "b")]
        crowd.go()
    assert [type(future.exception()) for future in futures] == [OperationalError, OperationalError]
    objects.write(creating("c"))
    assert names() == ["c"]


def test_what_is_announced_is_read_in_one_query_and_not_again_where_it_is_known() -> None:
    with objects.writing() as writer:
        stored = writer.create(NOTES, note("a"))
    reads = [Read(NOTES, "home", "a", objects.known(NOTES, stored)), Read(NOTES, "home", "b")]

    def work(writer: Writer) -> tuple[Any, Any]:
        return writer.get(NOTES, "home", "a"), writer.get(NOTES, "home", "b")

    with transaction.atomic(), CaptureQueriesContext(connection) as queries:  # what is run on this very connection
        found, missing = objects.write(work, reads=reads)
    assert found is stored
    assert missing is None
    assert len([query for query in queries if "store_storedobject" in query["sql"]]) == 1


def test_what_was_known_and_is_not_current_is_read_again() -> None:
    with objects.writing() as writer:
        stale = writer.create(NOTES, note("a"))
    with objects.writing() as writer:
        writer.delete(NOTES, "home", "a")
        fresh = writer.create(NOTES, note("a"))
    read = Read(NOTES, "home", "a", objects.known(NOTES, stale))
    assert objects.write(lambda writer: writer.get(NOTES, "home", "a"), reads=[read]) == fresh


def test_the_commit_is_announced_once_for_all(crowd: Crowd) -> None:
    told: list[int] = []
    unsubscribe = event_log.subscribe(lambda one: told.append(one.last))
    for number in range(5):
        crowd.wait_in_line(creating(f"n{number}"))
    crowd.go()
    objects.commits.reset()
    unsubscribe()
    assert told == [event_log.latest_revision()]


def test_the_writer_goes_on_before_anybody_is_told() -> None:
    """Whoever hears the announcement begins to work, on the processor that the writer's answer needs."""
    written, in_time = threading.Event(), []
    unsubscribe = event_log.subscribe(lambda _: in_time.append(written.wait(60)))
    objects.write(creating("a"))
    written.set()
    objects.commits.reset()
    unsubscribe()
    assert in_time == [True]


def test_inside_of_a_transaction_a_write_is_part_of_it() -> None:
    with objects.writing(identity=ALICE) as writer:
        objects.write(creating("inner"))
        assert writer.identity is ALICE
        assert writer.get(NOTES, "home", "inner") is not None
        assert names() == []
    assert names() == ["inner"]


def test_a_dry_run_takes_no_lock_and_waits_for_nobody(crowd: Crowd) -> None:
    """The one who leads holds the store's lock all the while."""
    crowd.lead()
    made = objects.write(creating("never"), dry_run=True)
    assert made.metadata.name == "never"
    crowd.go()
    assert names() == []


def test_a_dry_run_meets_what_a_run_would_meet() -> None:
    objects.write(creating("a"))
    with pytest.raises(AlreadyExists):
        objects.write(creating("a"), dry_run=True)


def test_hundreds_of_writers_at_once_lose_nothing() -> None:
    def write(number: int) -> str:
        try:
            made: Note = objects.write(creating(f"n{number:03}"))
            return made.metadata.name
        finally:
            connections.close_all()

    with ThreadPoolExecutor(12) as pool:
        made = list(pool.map(write, range(300)))
    assert sorted(made) == names()
    records = event_log.read_after(0)
    assert [record.revision for record in records] == list(range(records[0].revision, records[0].revision + 300))


def test_metadata_of_an_object_made_by_the_group_is_complete() -> None:
    made = objects.write(lambda writer: writer.create(NOTES, note("", generate_name="n-")))
    metadata: ObjectMeta = made.metadata
    assert metadata.uid
    assert metadata.name.startswith("n-")
    assert metadata.creation_timestamp


def test_works_that_are_put_in_line_together_share_a_commit_and_end_each_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_writer: Writer) -> Any:
        raise BadRequest("no")

    works = [PendingWrite(work, SYSTEM, ()) for work in (creating("a"), refused, creating("b"))]
    with counted_transactions(monkeypatch) as counted:
        objects.settle(works)
        assert [works[0].outcome().metadata.name, works[2].outcome().metadata.name] == ["a", "b"]
        with pytest.raises(BadRequest, match="no"):
            works[1].outcome()
    assert len(counted) == 1


def test_inside_of_a_transaction_they_are_run_where_they_stand() -> None:
    works = [PendingWrite(creating(name), SYSTEM, ()) for name in "ab"]
    with objects.writing():
        objects.settle(works)
        assert [one.outcome().metadata.name for one in works] == ["a", "b"]
        assert names() == []
    assert names() == ["a", "b"]


def test_a_dry_run_of_several_stores_none() -> None:
    works = [PendingWrite(creating(name), SYSTEM, ()) for name in "aa"]
    objects.settle(works, dry_run=True)
    assert works[0].outcome().metadata.name == "a"
    with pytest.raises(AlreadyExists):
        works[1].outcome()
    assert names() == []


def test_between_two_portions_of_a_collection_others_have_their_turn(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.lead()
    for number in range(3):
        works = [PendingWrite(creating(f"many-{number}-{one}"), SYSTEM, ()) for one in range(3)]
        objects.settle(works, portion=True)
    with counted_transactions(monkeypatch) as counted:
        for number in range(5):
            crowd.wait_in_line(creating(f"other-{number}"))
        crowd.go()
        works[-1].outcome()
    order = [record.name.partition("-")[0] for record in event_log.read_after(0)]
    assert order == ["many"] * 3 + ["other"] * 5 + ["many"] * 6
    assert len(counted) == 4


def test_a_collection_is_worked_through_in_small_portions() -> None:
    sizes = [*[1] * 100, objects.PORTION_BYTES, objects.PORTION_BYTES * 2, 1]
    found = [len(portion) for portion in objects.portions(sizes, lambda size: size)]
    assert found == [32, 32, 32, 4, 1, 1, 1]
