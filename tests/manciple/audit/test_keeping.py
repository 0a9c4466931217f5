"""How long the trail is kept, and how it leaves the database."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from manciple.audit import retention, trail
from manciple.audit.happenings import Happened
from manciple.audit.models import Entry
from manciple.audit.searching import Search
from manciple.audit.shipping import Shipment
from manciple.controllers import housekeeping
from manciple.store.records import Origin
from manciple.wire.identity import Identity
from tests.manciple.audit.reading import look

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
SCHEDULER = "system:kube-scheduler"
pytestmark = pytest.mark.django_db


def entry(
    name: str, *, days: float = 0, routine: bool = False, code: int = 200, user: str = "alice", verb: str = "patch"
) -> None:
    """Of an object `name`, that many days old."""
    Entry.objects.create(
        at=NOW - timedelta(days=days), audit_id=name, username=user, impersonator="", verb=verb, resource="pods",
        subresource="", namespace="lab", name=name, uid="", code=code, reason="", message="", dry_run=False,
        routine=routine, count=1, note="{}",
    )  # fmt: skip


def names() -> list[str]:
    return list(Entry.objects.order_by("id").values_list("name", flat=True))


def test_what_is_old_goes_and_the_works_of_the_system_sooner() -> None:
    for name, days, routine in (("old", 91, False), ("work", 8, True), ("recent", 89, False), ("new work", 6, True)):
        entry(name, days=days, routine=routine)
    entry("made", days=8, routine=True, code=201, verb="create")
    entry("deleted", days=8, routine=True, verb="delete")
    assert retention.prune(NOW) == 2
    assert names() == ["recent", "new work", "made", "deleted"]


def test_of_too_much_who_has_the_most_loses_the_oldest_and_the_system_before_a_person() -> None:
    for name, user in (("a", "alice"), ("work 1", SCHEDULER), ("b", "alice"), ("work 2", SCHEDULER)):
        entry(name, user=user, routine=user == SCHEDULER)
    assert retention.prune(NOW, keep=3) == 1
    assert names() == ["a", "b", "work 2"]
    assert retention.prune(NOW, keep=2) == 1
    assert names() == ["b", "work 2"]


def test_what_was_counted_once_is_not_counted_again_until_as_many_can_have_come() -> None:
    for name in "abcde":
        entry(name)
    retention.prune(NOW, keep=7)
    with CaptureQueriesContext(connection) as queries:
        for name in "fg":
            entry(name)
            assert retention.prune(NOW, keep=7) == 0
    assert not [one for one in queries if "COUNT" in one["sql"] and '"wrote"' in one["sql"]]
    entry("h")
    assert retention.prune(NOW, keep=7) == 1
    assert names() == list("bcdefgh")


def test_a_routine_write_that_comes_late_goes_within_the_hour() -> None:
    retention.prune(NOW)
    entry("late", days=30, routine=True)
    entry("just of age", days=7.01, routine=True)
    retention.prune(NOW + timedelta(minutes=1))
    assert names() == ["late"]
    retention.prune(NOW + retention.THOROUGH)
    assert names() == []


def test_the_controller_keeps_the_trail() -> None:
    entry("old", days=91)
    assert housekeeping.keep_audit_trail(NOW) == 1


def _exported(*arguments: str, tmp_path: Path) -> list[str]:
    target = tmp_path / "out.jsonl"
    call_command("audit", "export", *arguments, "--output", str(target))
    return [json.loads(line)["objectRef"]["name"] for line in target.read_text().splitlines()]


EXPORTS = {
    "everything that is no routine": ((), ["a", "denied"]),
    "also the routine": (("--routine",), ["a", "work", "denied"]),
    "somebody's": (("--user", "bob"), ["denied"]),
    "what was denied": (("--outcome", "denied"), ["denied"]),
    "since a moment": (("--since", "2026-11-22T00:00:00Z"), ["denied"]),
    "until a moment": (("--until", "2026-11-22T00:00:00"), ["a"]),
    "another namespace": (("--namespace", "other"), []),
    "one object": (("--resource", "pods", "--name", "a", "--verb", "patch"), ["a"]),
}


@pytest.mark.parametrize(("arguments", "expected"), EXPORTS.values(), ids=EXPORTS.keys())
def test_what_a_filter_lets_through_is_exported(
    arguments: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    entry("a", days=3)
    entry("work", days=2, routine=True)
    entry("denied", code=403, user="bob")
    assert _exported(*arguments, tmp_path=tmp_path) == expected


def test_the_command_prunes() -> None:
    entry("a", days=2)
    entry("b", days=1)
    out = StringIO()
    call_command("audit", "prune", "--keep", "1", "--days", "36500", stdout=out)
    assert out.getvalue() == "deleted 1 entries\n"


def test_a_file_is_continued_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "log" / "audit.jsonl"
    entry("a")
    assert Shipment(path, Search()).ship() == 1
    entry("b")
    assert Shipment(path, Search()).ship() == 1
    assert [json.loads(line)["auditID"] for line in path.read_text().splitlines()] == ["a", "b"]
    assert path.stat().st_mode & 0o777 == 0o600


ROTATIONS = {
    "it is moved away": lambda path: path.rename(path.with_suffix(".1")),
    "it is emptied in place": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("rotate", ROTATIONS.values(), ids=ROTATIONS.keys())
def test_a_file_that_is_rotated_begins_anew(rotate: object, tmp_path: Path) -> None:
    assert callable(rotate)
    path = tmp_path / "audit.jsonl"
    shipment = Shipment(path, Search())
    entry("a")
    shipment.ship()
    rotate(path)
    entry("b")
    shipment.ship()
    assert [json.loads(line)["auditID"] for line in path.read_text().splitlines()] == ["b"]
    shipment.close()


def test_a_file_can_be_opened_anew_by_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    shipment = Shipment(path, Search())
    for name in ("a", "b"):
        entry(name)
        shipment.reopen()
        shipment.ship()
    assert len(path.read_text().splitlines()) == 2
    shipment.close()


@pytest.mark.django_db(transaction=True)
def test_a_follower_goes_on_when_the_disk_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.jsonl"
    path.mkdir()
    entry("a")
    stopping = _Stopping({1: path.rmdir, 3: None})
    Shipment(path, Search()).follow(stopping)
    assert len(path.read_text().splitlines()) == 1
    assert caplog.text.count("cannot be shipped at the moment") == 1


class _Stopping(threading.Event):
    """Is asked after each look at the trail, does something then, and is set at the last."""

    def __init__(self, rounds: dict[int, Callable[[], None] | None]) -> None:
        super().__init__()
        self._rounds, self._round = rounds, 0

    def wait(self, timeout: float | None = None) -> bool:
        self._round += 1
        if act := self._rounds.get(self._round):
            act()
        return self._round == max(self._rounds)


def test_what_was_written_before_it_was_remembered_is_written_again_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    entry("a")
    Shipment(path, Search()).ship()
    (tmp_path / "audit.jsonl.place").unlink()
    assert Shipment(path, Search()).ship() == 1


def test_entries_become_visible_in_the_order_of_their_ids() -> None:
    entry("a")
    origin = Origin(audit_id="b", received=NOW, verb="get", identity=Identity("bob"))
    trail.tell(Happened(origin=origin, code=403, resource="pods", name="b"))
    assert [one.name for one in look()] == ["b", "a"]
