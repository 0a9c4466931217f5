"""What commits announce whole need not be read in the log; whatever is missing is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from manciple.store import event_log, objects
from manciple.store.announce_redis import decode, encode, joined
from manciple.store.event_log import LONGEST_TOLD, AnnouncedLog, Announcement, Follower, ObjectsView
from manciple.wire.errors import Expired
from manciple.wire.resources import LEASES
from tests.manciple.store.kinds import NOTES, note

pytestmark = pytest.mark.django_db(transaction=True)

Told = list[Announcement]


class Notes(ObjectsView):
    resources: ClassVar[Sequence[str]] = (NOTES.resource,)


class NotesAndLeases(ObjectsView):
    resources: ClassVar[Sequence[str]] = (NOTES.resource, LEASES)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What commits announce from now on, instead of that it is heard."""
    kept = Told()
    monkeypatch.setattr(event_log, "announce", kept.append)
    return kept


def hear(announcements: Sequence[Announcement]) -> None:
    for one in announcements:
        event_log._announcer.value.announce(one)


def write(*names: str, text: str = "") -> None:
    """One transaction a note."""
    for name in names:
        with objects.writing() as writer:
            writer.create(NOTES, note(name, text=text))


def looked(following: Follower[ObjectsView]) -> tuple[list[str], int]:
    """(the names in the view, queries that looking took)."""
    with CaptureQueriesContext(connection) as queries, following.view() as view:
        names = sorted(name for _, name in view._objects[NOTES.resource])
    return names, len(queries)


def quietly(announcement: Announcement) -> Announcement:
    """As another process hears of renewed Leases."""
    return Announcement(announcement.first, announcement.last, ())


def sent(announcements: Told) -> Told:
    """As another process hears them, in one message."""
    made = list[Announcement]()
    for one in announcements:
        made = joined(made, one)
    return list(decode(encode(made)))


@pytest.mark.parametrize(
    ("heard", "seen", "queries"),
    [
        pytest.param(lambda told: told, "abcd", 0, id="all"),
        pytest.param(sent, "abcd", 0, id="all-by-message"),
        pytest.param(lambda told: told[::-1], "abcd", 0, id="in-another-order"),
        pytest.param(lambda told: [], "abcd", 1, id="none"),
        pytest.param(lambda told: told[1:], "abcd", 1, id="the-first-is-lost"),
        pytest.param(lambda told: [told[0], told[2]], "abcd", 1, id="one-between-is-lost"),
        pytest.param(lambda told: [*told[:2], replace(told[2], entries=())], "abcd", 1, id="one-without-entries"),
        pytest.param(lambda told: told[:2], "abc", 0, id="one-is-on-its-way"),
    ],
)
def test_the_log_is_read_only_where_something_is_missing(
    heard: Callable[[Told], Told], seen: str, queries: int, told: Told
) -> None:
    write("a")
    following = Follower[ObjectsView](Notes, source=AnnouncedLog())
    assert looked(following)[0] == ["a"]
    told.clear()
    write("b", "c", "d")
    hear(heard(told))
    assert looked(following) == (list(seen), queries)
    assert looked(following) == (list("abcd"), 1), "with nothing announced beyond the view, the log is asked"


@pytest.mark.parametrize(("view", "queries"), [(Notes, 0), (NotesAndLeases, 1)])
def test_renewed_leases_are_read_only_by_who_follows_them(view: type[ObjectsView], queries: int, told: Told) -> None:
    write("a")
    following = Follower[ObjectsView](view, source=AnnouncedLog())
    looked(following)
    told.clear()
    write("b", "c")
    hear([quietly(told[0]), told[1]])
    names, asked = looked(following)
    assert asked == queries
    assert names[-1] == "c"


def test_the_tail_passes_over_no_lease(told: Told) -> None:
    write("a", "b")
    assert event_log.entries_after(told[0].first - 1) is None
    hear([quietly(told[0]), told[1]])
    assert event_log.entries_after(told[0].first - 1) is None


def test_what_is_announced_is_forgotten_where_an_older_database_was_put_back(told: Told) -> None:
    write("a", "b")
    hear(told)
    after = told[0].first - 1
    assert event_log.entries_after(after) is not None
    with pytest.raises(Expired):
        event_log.read_after(event_log.latest_revision() + 1)
    assert event_log.entries_after(after) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(NOTES, "x" * LONGEST_TOLD, id="long"),
        pytest.param(replace(NOTES, confidential=True), "", id="confidential"),
    ],
)
def test_long_and_confidential_documents_are_not_announced(kind: object, text: str, told: Told) -> None:
    with objects.writing() as writer:
        writer.create(NOTES, note("beside"))
        writer.create(kind, note("a", text=text))  # type: ignore[arg-type]
    (announcement,) = told
    assert announcement.entries == ()
    assert announcement.changes is not None
    assert len(announcement.changes) == 2


def test_messages_say_the_same_of_long_documents_without_them(told: Told) -> None:
    """Redis was away for a while: what waits for it is bounded."""
    write("a", "b", "c", text="x" * (LONGEST_TOLD // 2))
    heard = sent(told)
    assert [one for each in heard for one in each.changes or ()] == [one for each in told for one in each.changes or ()]
    assert sum(len(one.document or "") for each in heard for one in each.entries) <= LONGEST_TOLD
