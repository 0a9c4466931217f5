"""The transaction: what a writer sees, savepoints, dry runs, projectors, and how many queries it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from manciple.store import event_log, hooks, objects, sql
from manciple.store.objects import Sources
from manciple.store.records import Change
from manciple.wire.base import ApiObject
from manciple.wire.errors import Conflict, NotFound
from manciple.wire.selectors import parse_field_selector, parse_label_selector
from tests.manciple.store.kinds import NOTES, SHELVES, note, shelf

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_writer_sees_its_own_writes() -> None:
    with objects.writing() as writer:
        created = writer.create(NOTES, note("a"))
        assert writer.get(NOTES, "home", "a") == created
        assert writer.get_by_uid(NOTES, created.metadata.uid) == created
        updated = writer.update(NOTES, structs.replace(created, status="read"))
        assert writer.list(NOTES) == (updated,)
        writer.delete(NOTES, "home", "a")
        assert writer.get(NOTES, "home", "a") is None
        assert writer.get_by_uid(NOTES, created.metadata.uid) is None
        assert writer.list(NOTES) == ()


def test_a_writer_lists_stored_and_own_objects_together() -> None:
    with objects.writing() as writer:
        for name in ("b", "d", "gone"):
            writer.create(NOTES, note(name, labels={"app": "web"}))
        writer.create(NOTES, note("other", namespace="office", labels={"app": "web"}))
    with objects.writing() as writer:
        writer.create(NOTES, note("c", labels={"app": "web"}))
        writer.create(NOTES, note("unlabelled"))
        writer.update(NOTES, note("d", shelf="s"))
        writer.delete(NOTES, "home", "gone")
        labelled = writer.list(NOTES, namespace="home", labels=parse_label_selector("app=web"))
        shelved = writer.list(NOTES, fields=parse_field_selector("spec.shelf=s"))
        everything = writer.list(NOTES)
    assert [obj.metadata.name for obj in labelled] == ["b", "c"]
    assert [obj.metadata.name for obj in shelved] == ["d"]
    assert [obj.metadata.name for obj in everything] == ["b", "c", "d", "unlabelled", "other"]


def test_an_object_of_a_transaction_that_failed_was_never_there() -> None:
    before = event_log.latest_revision()

    def fail() -> None:
        with objects.writing() as writer:
            writer.create(NOTES, note("a"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert objects.get(NOTES, "home", "a") is None
    assert event_log.latest_revision() == before


def test_a_dry_run_checks_everything_and_stores_nothing() -> None:
    before = event_log.latest_revision()
    with objects.writing(dry_run=True) as writer:
        assert writer.create(NOTES, note("a")).metadata.uid
        with pytest.raises(NotFound):
            writer.delete(NOTES, "home", "b")
    assert objects.get(NOTES, "home", "a") is None
    assert event_log.latest_revision() == before


def test_an_inner_transaction_joins_the_outer_one() -> None:
    with objects.writing() as outer:
        outer.create(NOTES, note("a"))
        with objects.writing() as inner:
            assert inner is outer
            inner.create(NOTES, note("b"))
        assert len(event_log.read_after(0)) == 0
    assert [event.name for event in event_log.read_after(0)] == ["a", "b"]


def test_a_failed_inner_transaction_costs_only_its_own_writes() -> None:
    def lose(kept: ApiObject) -> None:
        with objects.writing() as inner:
            inner.create(NOTES, note("b"))
            inner.update(NOTES, structs.replace(kept, status="lost"))
            raise Conflict("somebody was faster")

    with objects.writing() as writer:
        kept = writer.create(NOTES, note("a"))
        with pytest.raises(Conflict):
            lose(kept)
        writer.create(NOTES, note("c"))
        assert writer.get(NOTES, "home", "a") == kept
    events = event_log.read_after(0)
    assert [(event.revision, event.name) for event in events] == [(2, "a"), (3, "c")]


def test_an_inner_dry_run_leaves_nothing_behind() -> None:
    with objects.writing() as writer:
        with objects.writing(dry_run=True):
            writer.create(NOTES, note("a"))
        assert writer.get(NOTES, "home", "a") is None


def test_loading_many_saves_the_queries_of_getting_each() -> None:
    with objects.writing() as writer:
        for name in ("a", "b"):
            writer.create(NOTES, note(name))
    with objects.writing() as writer:
        writer.load(NOTES, [("home", "a"), ("home", "b"), ("home", "missing")])
        with CaptureQueriesContext(connection) as queries:
            found = [writer.get(NOTES, "home", name) for name in ("a", "b", "missing")]
    assert [obj.metadata.name if obj else None for obj in found] == ["a", "b", None]
    assert len(queries) == 0


def test_more_are_listed_than_one_query_reads() -> None:
    count = sql.CHUNK + 1
    with objects.writing() as writer:
        for number in range(count):
            writer.create(NOTES, note(f"note-{number}"))
    with objects.writing() as writer:
        assert len(writer.list(NOTES)) == count


def test_names_drawn_beforehand_cost_their_creates_no_query() -> None:
    names = iter(["1", "taken", "2", "2", "3"])
    with objects.writing() as writer:
        writer.create(NOTES, note("n-taken"))
    with objects.writing(sources=Sources(name_from=lambda base: base + next(names))) as writer:
        writer.draw_names(NOTES, [("home", "n-")] * 3)
        with CaptureQueriesContext(connection) as queries:
            made = [writer.create(NOTES, note(generate_name="n-")).metadata.name for _ in range(2)]
        made.append(writer.create(NOTES, note(generate_name="n-")).metadata.name)
    assert made == ["n-2", "n-1", "n-3"]  # "n-taken" was not free, and neither was the second "n-2"
    assert len(queries) == 0


def test_a_writer_tells_what_it_wrote() -> None:
    with objects.writing() as writer:
        first = writer.create(NOTES, note("a"))
        with objects.writing(dry_run=True):
            writer.create(NOTES, note("b"))
        gone = writer.delete(NOTES, "home", "a")
    told = [(one.revision, one.type, one.resource, one.object.metadata.name) for one in writer.written]
    assert told == [(event.revision, event.type, event.resource, event.name) for event in event_log.read_after(0)]
    assert [one.object.metadata.uid for one in writer.written] == [first.metadata.uid, gone.object.metadata.uid]


def test_the_cost_of_a_transaction_does_not_grow_with_its_writes() -> None:
    def queries_for(count: int, prefix: str) -> int:
        with CaptureQueriesContext(connection) as queries, objects.writing() as writer:
            writer.load(NOTES, [("home", f"{prefix}{number}") for number in range(count)])
            for number in range(count):
                created = writer.create(NOTES, note(f"{prefix}{number}"))
                writer.update(NOTES, structs.replace(created, status="read"))
        return len(queries)

    queries_for(1, "first-")  # makes the counter's row
    small, large = queries_for(3, "small-"), queries_for(15, "large-")
    assert small == large
    assert large <= 8  # begin, lock, load, events, objects, counter, commit, and one to spare


# Projectors and announcements ----------------------------------------------------------------------------------------


@pytest.fixture
def seen() -> Iterator[list[Change]]:
    """The changes of notes, as a projector sees them."""
    changes: list[Change] = []
    hooks.register_projector(NOTES.resource, changes.extend, clear=changes.clear)
    yield changes
    hooks.unregister_projector(NOTES.resource)


def told(changes: Sequence[Change]) -> list[tuple[str, str, bool]]:
    return [(change.type, change.object.metadata.name, change.previous is not None) for change in changes]


def test_a_projector_sees_what_a_transaction_did_altogether(seen: list[Change]) -> None:
    with objects.writing() as writer:
        first = writer.create(NOTES, note("replaced"))
        kept = writer.create(NOTES, note("kept"))
        writer.update(NOTES, structs.replace(kept, status="read"))
        writer.create(NOTES, note("passing"))
        writer.delete(NOTES, "home", "passing")
    assert told(seen) == [("ADDED", "replaced", False), ("ADDED", "kept", False)]
    seen.clear()
    with objects.writing() as writer:
        writer.update(NOTES, note("kept", text="new"))
        writer.delete(NOTES, "home", "replaced")
        writer.create(NOTES, note("replaced"))
    assert told(seen) == [("DELETED", "replaced", True), ("MODIFIED", "kept", True), ("ADDED", "replaced", False)]
    assert seen[0].previous == first
    assert seen[0].object.metadata.uid == first.metadata.uid != seen[2].object.metadata.uid


def test_a_projector_may_refuse_and_nothing_is_written() -> None:
    def refuse(changes: Sequence[Change]) -> None:
        raise Conflict("not twice")

    def write() -> None:
        with objects.writing() as writer:
            writer.create(SHELVES, shelf("s"))
            writer.create(NOTES, note("a"))

    hooks.register_projector(NOTES.resource, refuse, clear=lambda: None)
    try:
        with pytest.raises(Conflict):
            write()
    finally:
        hooks.unregister_projector(NOTES.resource)
    assert objects.get(SHELVES, "", "s") is None
    assert event_log.read_after(0) == []


def test_the_newest_revision_is_announced_once_after_the_commit() -> None:
    heard: list[tuple[int, int]] = []
    unsubscribe = event_log.subscribe(lambda one: heard.append((one.last, event_log.latest_revision())))
    with objects.writing() as writer:
        writer.create(NOTES, note("a"))
        writer.create(NOTES, note("b"))
        assert heard == []
    assert heard == [(3, 3)]
    with objects.writing() as writer:
        writer.update(NOTES, note("a"))  # changes nothing
    unsubscribe()
    with objects.writing() as writer:
        writer.delete(NOTES, "home", "a")
    assert heard == [(3, 3)]


def test_a_listener_that_fails_does_not_fail_the_write() -> None:
    def fail(_announcement: event_log.Announcement) -> None:
        raise RuntimeError("on purpose")

    unsubscribe = event_log.subscribe(fail)
    with objects.writing() as writer:
        writer.create(NOTES, note("a"))
    unsubscribe()
    assert objects.get(NOTES, "home", "a") is not None
