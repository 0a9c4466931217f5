"""Whatever is written, in whatever order: the log replayed gives the state, and the state keeps its rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from manciple.store import event_log, garbage, objects, sql
from manciple.store.models import Event, OwnerLink, Revision, StoredObject
from manciple.store.records import EventRecord
from manciple.store.space import prune
from manciple.store.writer import with_meta
from manciple.wire.errors import ApiError
from tests.examples import some
from tests.manciple.store.kinds import NOTES, NoteSpec, note, owned_by

pytestmark = pytest.mark.django_db

State = dict[str, str]  # name -> document

NAMES = st.sampled_from("abcd")
VERBS = {
    "create": lambda writer, name, other: writer.create(NOTES, note(name)),
    "create held": lambda writer, name, other: writer.create(NOTES, note(name, finalizers=("example.com/hold",))),
    "create owned": lambda writer, name, other: writer.create(
        NOTES, note(name, owner_references=(owned_by(writer.get(NOTES, "home", other)),))
    ),
    "rewrite": lambda writer, name, other: writer.update(
        NOTES, structs.replace(writer.get(NOTES, "home", name), spec=NoteSpec(text=other))
    ),
    "let go": lambda writer, name, other: writer.update(
        NOTES, with_meta(writer.get(NOTES, "home", name), finalizers=())
    ),
    "delete": lambda writer, name, other: writer.delete(NOTES, "home", name),
    "delete deep": lambda writer, name, other: writer.delete(NOTES, "home", name, propagation="Foreground"),
    "delete leaving orphans": lambda writer, name, other: writer.delete(NOTES, "home", name, propagation="Orphan"),
}
WRITES = st.tuples(st.sampled_from(sorted(VERBS)), NAMES, NAMES)
#: transactions of a few writes each; those marked failing are undone
TRANSACTIONS = st.lists(st.tuples(st.lists(WRITES, min_size=1, max_size=4), st.booleans()), max_size=12)


class Undo(Exception):
    """Ends a transaction that shall leave nothing."""


def transact(writes: Sequence[tuple[str, str, str]], *, fails: bool) -> None:
    with objects.writing() as writer:
        for verb, name, other in writes:
            try:
                VERBS[verb](writer, name, other)
            except (ApiError, AttributeError, TypeError):
                continue  # the object is missing, or exists: refused, and the transaction goes on
        if fails:
            raise Undo


def replay(state: State, events: Sequence[EventRecord]) -> State:
    following = dict(state)
    for event in events:
        assert (event.name in following) == (event.type != "ADDED")
        following[event.name] = event.text
        if event.type == "DELETED":
            del following[event.name]
    return following


def current() -> State:
    return {item.name: item.text for item in objects.list(NOTES).items}


def start_over() -> None:
    for model in (OwnerLink, StoredObject, Event, Revision):
        sql.clear(model)


@settings(
    max_examples=some(40), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(transactions=TRANSACTIONS)
def test_the_log_replayed_is_the_state(transactions: list[tuple[list[tuple[str, str, str]], bool]]) -> None:
    start_over()
    state: State = {}
    seen = event_log.latest_revision()
    for writes, fails in transactions:
        first_page = objects.list(NOTES, limit=1)
        before = current()
        try:
            transact(writes, fails=fails)
        except Undo:
            assert current() == before
        events = event_log.read_after(seen)
        assert [event.revision for event in events] == list(range(seen + 1, event_log.latest_revision() + 1))
        state, seen = replay(state, events), event_log.latest_revision()
        assert state == current()
        if first_page.continue_token:
            rest = objects.list(NOTES, continue_token=first_page.continue_token)
            assert {item.name: item.text for item in (*first_page.items, *rest.items)} == before
    while garbage.collect():
        pass
    state = replay(state, event_log.read_after(seen))
    prune(older_than=timedelta(days=1), keep=0)
    assert state == current()
    links = OwnerLink.objects.values_list("object_id", flat=True)
    assert set(links) <= set(StoredObject.objects.values_list("uid", flat=True))
    assert Event.objects.count() == StoredObject.objects.count()
