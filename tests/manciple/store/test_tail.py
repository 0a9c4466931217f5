"""Following the log: order without gaps, latecomers, failures of subscribers and of the database, pruning."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError
from msgspec import structs

from manciple.store import event_log, objects, records, sql
from manciple.store.event_log import Announcement, Tail
from manciple.store.records import EventRecord
from manciple.store.space import prune
from manciple.store.writer import Writer, with_meta
from manciple.wire.errors import Expired
from tests.e2e.processes import wait_for
from tests.manciple.store.kinds import NOTES, SHELVES, note, shelf

pytestmark = pytest.mark.django_db(transaction=True)

#: Seconds after which a test gives up waiting.
PATIENCE = 60


class Reader:
    """A subscriber that remembers what it was given, and can be waited for."""

    def __init__(self) -> None:
        self.records: list[EventRecord] = []
        self._news = threading.Condition()

    def __call__(self, records: Sequence[EventRecord]) -> None:
        with self._news:
            self.records.extend(records)
            self._news.notify_all()

    @property
    def revisions(self) -> list[int]:
        return [record.revision for record in self.records]

    def wait_for(self, revision: int) -> None:
        """Until `revision` was given. Raises: AssertionError when it does not come."""

        def reached() -> bool:
            return bool(self.records) and self.records[-1].revision >= revision

        with self._news:
            assert self._news.wait_for(reached, PATIENCE), f"{revision} never came after {self.revisions}"


def unexpected(error: Expired) -> None:
    raise error


@pytest.fixture
def following() -> Iterator[Tail]:
    """A tail of the test's own that is woken by announcements alone: its polls are an hour apart."""
    own = Tail(poll_interval=3600)
    yield own
    own.stop()


def write(*names: str) -> int:
    """One transaction a note. Returns the newest revision."""
    for name in names:
        with objects.writing() as writer:
            writer.create(NOTES, note(name))
    return event_log.latest_revision()


def test_reading_is_in_order_and_bounded() -> None:
    write("a", "b", "c")
    assert [record.revision for record in event_log.read_after(1)] == [2, 3, 4]
    assert [record.revision for record in event_log.read_after(2, limit=1)] == [3]
    assert event_log.read_after(4) == []


def test_reading_only_some_resources() -> None:
    write("a")
    with objects.writing() as writer:
        writer.create(SHELVES, shelf("s"))
    assert [record.name for record in event_log.read_after(0, resources=[SHELVES.resource])] == ["s"]
    assert [record.name for record in event_log.read_after(0, resources=[SHELVES.resource, NOTES.resource])] == [
        "a",
        "s",
    ]
    assert event_log.read_after(0, resources=[]) == []


def changed(name: str) -> tuple[EventRecord, EventRecord, EventRecord]:
    """What the log says of a note that was made, changed and deleted."""
    with objects.writing() as writer:
        writer.create(NOTES, note(name))
        writer.update(NOTES, structs.replace(note(name, shelf="s")))
        writer.delete(NOTES, "home", name, grace_seconds=0)
    added, modified, deleted = event_log.read_after(event_log.latest_revision() - 3)
    return added, modified, deleted


@pytest.fixture
def documents_sent(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The documents of each event that the database has sent."""
    sent, fetch = list[str | None](), sql.fetch

    def fetched(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        rows = fetch(statement, parameters)
        sent.extend(row[-2] for row in rows if len(row) == len(event_log._HEAD.split(", ")) + 4)
        return rows

    monkeypatch.setattr(sql, "fetch", fetched)
    return sent


def test_what_this_process_has_written_is_not_sent_to_it_and_reads_the_same(documents_sent: list[str | None]) -> None:
    own = changed("a")
    assert documents_sent == [None] * 3
    records.cache.reset()
    assert list(own) == event_log.read_after(own[0].revision - 1)
    assert documents_sent[3:] == [one.text for one in own]


@pytest.mark.parametrize("differs", ["uid", "at"])
def test_a_revision_of_another_database_is_not_taken_for_ours(differs: str) -> None:
    own = changed("a")
    others = []
    for record in own:
        object_ = objects.decode(NOTES, record.text)
        if differs == "uid":
            object_ = with_meta(object_, uid="another")
        at = datetime.now(UTC) if differs == "at" else records.cache.value.written_after(0)[record.revision].at
        others.append(records.Committed(key=("notes", "home", "a"), text="{}", object=object_, gone=False, at=at))
    records.cache.reset()
    records.cache.value.add(others)
    assert event_log.read_after(own[0].revision - 1) == list(own)


def test_who_needs_few_documents_gets_those_of_what_came_and_went() -> None:
    own = changed("a")
    after = own[0].revision - 1
    assert event_log.stretch_after(after, lean=True).changes == list(own), "what is at hand costs nothing"
    records.cache.reset()
    added, modified, deleted = event_log.stretch_after(after, lean=True).changes
    assert (added, deleted) == (own[0], own[2])
    assert modified == replace(own[1], document=None)
    with pytest.raises(LookupError):
        _ = modified.text
    assert event_log.with_documents([added, modified, deleted]) == list(own)


def test_events_tell_what_selectors_saw_before() -> None:
    with objects.writing() as writer:
        created = writer.create(NOTES, note("a", labels={"app": "web"}))
        writer.update(NOTES, structs.replace(note("a", labels={"app": "db"}, shelf="s")))
        writer.delete(NOTES, "home", "a", grace_seconds=0)
    added, modified, deleted = event_log.read_after(0)
    assert (added.type, added.labels, added.previous_labels, added.previous_fields) == (
        "ADDED",
        {"app": "web"},
        None,
        None,
    )
    assert (modified.labels, modified.previous_labels) == ({"app": "db"}, {"app": "web"})
    assert modified.fields["spec.shelf"] == "s"
    assert modified.previous_fields == added.fields
    assert (deleted.type, deleted.previous_labels, deleted.previous_fields) == (
        "DELETED",
        {"app": "db"},
        modified.fields,
    )
    assert {record.uid for record in (added, modified, deleted)} == {created.metadata.uid}
    assert f'"resourceVersion":"{deleted.revision}"' in deleted.text


def test_a_subscriber_gets_what_it_missed_and_then_what_comes(following: Tail) -> None:
    write("a", "b")
    reader = Reader()
    following.subscribe(reader, after=2, on_expired=unexpected)
    reader.wait_for(3)
    reader.wait_for(write("c", "d"))
    assert reader.revisions == [3, 4, 5]


def test_subscribers_at_different_places_each_see_every_event_once(following: Tail) -> None:
    newest = write(*"abcdef")
    readers = {after: Reader() for after in (1, 3, 5, newest)}
    for after, reader in readers.items():
        following.subscribe(reader, after=after, on_expired=unexpected)
    newest = write("g", "h")
    for after, reader in readers.items():
        reader.wait_for(newest)
        assert reader.revisions == list(range(after + 1, newest + 1))


def tell_no_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written has to be read in the log."""
    monkeypatch.setattr(Writer, "entries", lambda *_: ())


def read_at_most(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Any = event_log.stretch_after
    monkeypatch.setattr(event_log, "stretch_after", partial(read, limit=limit))


def test_a_long_past_is_replayed_in_batches(following: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_most(2, monkeypatch)
    newest = write(*"abcde")
    reader = Reader()
    following.subscribe(reader, after=1, on_expired=unexpected)
    reader.wait_for(newest)
    assert reader.revisions == [2, 3, 4, 5, 6]


def test_the_end_of_the_log_is_not_read_again_after_what_was_new(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_no_entries(monkeypatch)
    monkeypatch.setattr(Tail, "_start", lambda _tail: None)
    reads, read = list[int](), event_log.stretch_after

    def counted(revision: int, *, limit: int = event_log.BATCH) -> event_log.Stretch[EventRecord]:
        reads.append(revision)
        return read(revision, limit=limit)

    monkeypatch.setattr(event_log, "stretch_after", counted)
    tail, reader = Tail(), Reader()
    tail.subscribe(reader, after=write("a"), on_expired=unexpected)
    write("b", "c")
    tail._deliver()
    assert (reads, reader.revisions) == ([2], [3, 4])
    read_at_most(2, monkeypatch)
    write("d", "e", "f")
    tail._deliver()
    assert reader.revisions == [3, 4, 5, 6, 7]


def _by_another_process(announcement: Announcement) -> Announcement:
    return replace(announcement, entries=())


Told = list[Announcement]


@pytest.mark.parametrize(
    ("heard", "reads"),
    [
        pytest.param(lambda told: told, 0, id="all"),
        pytest.param(lambda told: told[::-1], 0, id="in-another-order"),
        pytest.param(lambda told: told[:2], 0, id="the-last-is-late"),
        pytest.param(lambda told: told[1:], 1, id="the-first-is-lost"),
        pytest.param(lambda told: [told[0], told[2]], 1, id="one-between-is-lost"),
        pytest.param(lambda told: [told[0], _by_another_process(told[1]), told[2]], 1, id="one-of-another-process"),
        pytest.param(lambda told: [*told[:2], _by_another_process(told[2])], 1, id="the-last-of-another-process"),
        pytest.param(lambda _told: [], 1, id="none"),
    ],
)
def test_what_its_process_has_written_is_read_only_where_something_is_missing(
    heard: Callable[[Told], Told], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tail, "_start", lambda _tail: None)
    told, read, stretch_after = Told(), list[int](), event_log.stretch_after

    def counted(revision: int, **options: Any) -> event_log.Stretch[EventRecord]:
        read.append(revision)
        return stretch_after(revision, **options)

    monkeypatch.setattr(event_log, "stretch_after", counted)
    tail, reader = Tail(), Reader()
    tail.subscribe(reader, after=write("a"), on_expired=unexpected)
    announce = event_log.announce
    monkeypatch.setattr(event_log, "announce", told.append)
    for name in "bcd":
        changed(name)
    read.clear()
    for announcement in heard(told):
        announce(announcement)
    tail._deliver()
    assert len(read) == reads
    tail._deliver()  # a poll
    records.cache.reset()
    assert reader.records == event_log.read_after(2), "each once, and as the log has it"


@pytest.mark.parametrize(
    ("quick", "told"),
    [
        pytest.param([True, True], True, id="all-are-quick"),
        pytest.param([True, False], False, id="one-is-not"),
    ],
)
def test_who_only_hands_on_is_called_by_whoever_announces(
    quick: list[bool], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tail, "_start", lambda _tail: None)
    tail, readers = Tail(), [Reader() for _ in quick]
    first = write("a")
    for reader, is_quick in zip(readers, quick, strict=True):
        tail.subscribe(reader, after=first, on_expired=unexpected, quick=is_quick)
    stop = event_log.subscribe(tail._on_announcement)
    newest = write("b", "c")
    stop()
    assert [reader.revisions for reader in readers] == [[newest - 1, newest] if told else []] * 2
    tail._deliver()
    assert [reader.revisions for reader in readers] == [[newest - 1, newest]] * 2


def test_a_subscriber_that_fails_goes_on_and_hurts_nobody(following: Tail) -> None:
    failing, reader = Reader(), Reader()

    def fail(records: Sequence[EventRecord]) -> None:
        failing(records)
        raise RuntimeError

    following.subscribe(fail, after=1, on_expired=unexpected)
    following.subscribe(reader, after=1, on_expired=unexpected)
    reader.wait_for(write("a"))
    newest = write("b")
    reader.wait_for(newest)
    failing.wait_for(newest)
    assert failing.revisions == reader.revisions == [2, 3]


def test_nothing_comes_after_unsubscribing(following: Tail) -> None:
    leaving, staying = Reader(), Reader()
    leave = following.subscribe(leaving, after=1, on_expired=unexpected)
    following.subscribe(staying, after=1, on_expired=unexpected)
    first = write("a")
    leaving.wait_for(first)
    leave()
    staying.wait_for(write("b"))
    assert leaving.revisions == [first]


def test_subscribing_below_the_floor_is_expired(following: Tail) -> None:
    write("a", "b")
    prune(older_than=timedelta(days=1), keep=0)
    with pytest.raises(Expired, match=r"too old resource version: 2 \(3\)"):
        following.subscribe(Reader(), after=2, on_expired=unexpected)


def test_a_subscriber_that_pruning_overtook_is_told(following: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database cannot be read for so long that the log is pruned past a subscriber."""
    away = threading.Event()
    away.set()
    lost: list[Expired] = []
    told = threading.Event()

    def expire(error: Expired) -> None:
        lost.append(error)
        told.set()

    fail_while(away, monkeypatch)
    following.subscribe(Reader(), after=event_log.latest_revision(), on_expired=expire)
    write("a", "b")
    prune(older_than=timedelta(days=1), keep=0)
    away.clear()
    assert told.wait(PATIENCE)
    assert lost[0].code == 410
    reader = Reader()
    following.subscribe(reader, after=event_log.latest_revision(), on_expired=unexpected)
    reader.wait_for(write("c"))


def test_a_subscriber_that_cannot_read_the_database_is_asked_again_to_start_over() -> None:
    polling = Tail(poll_interval=0.02)
    first, reader = Reader(), Reader()
    attempts: list[Expired] = []

    def start_over(error: Expired) -> None:
        attempts.append(error)
        if len(attempts) == 1:
            raise DatabaseError("the server closed the connection unexpectedly")
        polling.subscribe(reader, after=event_log.latest_revision(), on_expired=unexpected)

    polling.subscribe(first, after=99, on_expired=start_over)  # of a newer database
    try:
        wait_for("the second attempt", lambda: len(attempts) == 2)
        reader.wait_for(write("a"))
    finally:
        polling.stop()
    assert (first.revisions, reader.revisions) == ([], [2])


def fail_while(away: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail's reads, which whatever is written takes, fail as long as `away` is set."""
    tell_no_entries(monkeypatch)
    read = event_log.stretch_after

    def read_or_fail(revision: int) -> event_log.Stretch[EventRecord]:
        if away.is_set():
            raise DatabaseError("the server closed the connection unexpectedly")
        return read(revision)

    monkeypatch.setattr(event_log, "stretch_after", read_or_fail)


def test_the_tail_outlives_database_errors(following: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    away = threading.Event()
    away.set()
    fail_while(away, monkeypatch)
    reader = Reader()
    monkeypatch.setattr(following, "_poll_interval", 0.01)
    following.subscribe(reader, after=1, on_expired=unexpected)
    newest = write("a", "b")
    assert wait_for("the tail to say that it is behind", lambda: following.behind) > 0
    away.clear()
    reader.wait_for(newest)
    assert reader.revisions == [2, 3]
    wait_for("the tail to be up to date", lambda: not following.behind)


def test_polling_makes_a_lost_announcement_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "announce", lambda *_: None)
    polling = Tail(poll_interval=0.02)
    reader = Reader()
    polling.subscribe(reader, after=1, on_expired=unexpected)
    reader.wait_for(write("a"))
    polling.stop()


def test_a_stopped_tail_starts_again_with_the_next_subscriber(following: Tail) -> None:
    reader = Reader()
    leave = following.subscribe(reader, after=1, on_expired=unexpected)
    reader.wait_for(write("a"))
    leave()
    following.stop()
    again = Reader()
    following.subscribe(again, after=2, on_expired=unexpected)
    again.wait_for(write("b"))
    assert again.revisions == [3]


def test_a_process_has_one_tail() -> None:
    assert Tail.instance() is Tail.instance()
