"""Pruning: what is kept, what goes, and who is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from manciple.store import event_log, objects, space
from manciple.store.models import Event
from manciple.store.objects import Sources
from manciple.wire.errors import Expired
from tests.manciple.store.kinds import NOTES, note

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def write_at(minute: int, name: str, text: str) -> None:
    """Create or update a note, `minute` minutes after noon."""
    with objects.writing(sources=Sources(now=lambda: NOON + timedelta(minutes=minute))) as writer:
        if writer.get(NOTES, "home", name) is None:
            writer.create(NOTES, note(name, text=text))
        else:
            writer.update(NOTES, note(name, text=text))


def prune_at(minute: int, **options: int) -> int:
    """Prune what is older than ten minutes, `minute` minutes after noon."""
    return space.prune(older_than=timedelta(minutes=10), now=NOON + timedelta(minutes=minute), **options)


def kept() -> list[int]:
    return list(Event.objects.order_by("revision").values_list("revision", flat=True))


def test_young_events_stay() -> None:
    write_at(0, "a", "1")
    write_at(1, "a", "2")
    assert prune_at(9) == 0
    assert kept() == [2, 3]
    assert [event.revision for event in event_log.read_after(1)] == [2, 3]


def test_superseded_events_go_with_age_and_objects_stay_readable() -> None:
    write_at(0, "a", "1")  # revision 2
    write_at(1, "a", "2")  # 3
    write_at(1, "b", "1")  # 4
    write_at(20, "a", "3")  # 5
    assert prune_at(20) == 1
    assert event_log.floor() == 4
    assert kept() == [3, 4, 5]  # 3 was superseded above the floor: lists at 4 need it
    assert prune_at(40) == 1
    assert kept() == [4, 5]
    assert [item.revision for item in objects.list(NOTES).items] == [5, 4]


def test_deletions_go_with_what_they_deleted() -> None:
    write_at(0, "a", "1")
    with objects.writing(sources=Sources(now=lambda: NOON)) as writer:
        writer.delete(NOTES, "home", "a")
    assert prune_at(20) == 2
    assert kept() == []


def test_no_more_events_stay_than_wanted() -> None:
    for number in range(5):
        write_at(0, "a", str(number))
    prune_at(0, keep=2)
    assert event_log.floor() == event_log.latest_revision() - 2
    assert kept() == [4, 5, 6]  # 4 is what lists at the floor show


def test_pruning_goes_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "STEP", 2)
    for number in range(9):
        write_at(0, "a", str(number))
    assert prune_at(20) == 8
    assert kept() == [event_log.latest_revision()]
    assert prune_at(20) == 0


def test_readers_below_the_floor_are_expired_and_others_miss_nothing() -> None:
    for number in range(3):
        write_at(number, "a", str(number))
    prune_at(11)  # 12:01 and later stay: the floor is at revision 2
    assert [event.revision for event in event_log.read_after(2)] == [3, 4]
    with pytest.raises(Expired, match=r"too old resource version: 1 \(2\)"):
        event_log.read_after(1)
    with pytest.raises(Expired):
        event_log.read_after(0, resources=["shelves.test.example.com"])


def test_the_command_prunes_and_says_so() -> None:
    write_at(0, "a", "1")
    write_at(0, "a", "2")
    output = StringIO()
    call_command("prune", "--keep", "0", stdout=output, skip_checks=True)
    assert output.getvalue() == "events removed: 1\n"
