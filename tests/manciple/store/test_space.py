"""The reserve: what is refused when the database is full, what goes on, and that pruning makes room."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.test import override_settings

from manciple.store import objects, space, sql
from manciple.store.models import Event
from manciple.store.writer import with_meta
from manciple.wire.errors import InsufficientStorage
from manciple.wire.identity import MASTERS, NODES, SCHEDULER, SYSTEM, Identity
from tests.manciple.store.kinds import NOTES, note
from tests.outlines import Outline

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_rules")]

KIB, MIB = 1 << 10, 1 << 20
ALICE, ADMINISTRATOR = Identity("alice"), Identity("root", (MASTERS,))
NODE = Identity("system:node:n1", (NODES,))


def create(identity: Identity, name: str, *, size: int = 10, finalizers: tuple[str, ...] = ()) -> None:
    with objects.writing(identity=identity) as writer:
        writer.create(NOTES, note(name, text="x" * size, finalizers=finalizers))


def update(identity: Identity, name: str, text: str) -> None:
    with objects.writing(identity=identity) as writer:
        writer.update(NOTES, note(name, text=text))


@pytest.fixture
def full() -> Iterator[None]:
    """A database that may take a little less than it has."""
    create(ALICE, "a")
    create(ALICE, "held", finalizers=("example.com/a",))
    with override_settings(DATABASE_BYTES=space.measure().used, DATABASE_RESERVE=64 * KIB):
        space._last.reset()
        yield
    space._last.reset()


@pytest.mark.parametrize("identity", [ALICE, ADMINISTRATOR], ids=["a tenant", "an administrator"])
def test_a_full_database_takes_no_creations_and_updates(full: None, identity: Identity) -> None:
    with pytest.raises(InsufficientStorage) as refused:
        create(identity, "b")
    assert (refused.value.code, refused.value.reason) == (507, "InsufficientStorage")
    with pytest.raises(InsufficientStorage):
        update(identity, "a", "other")


def test_deletions_go_on(full: None) -> None:
    with objects.writing(identity=ALICE) as writer:
        writer.delete(NOTES, "home", "a")
        writer.delete(NOTES, "home", "held")
        held = writer.get(NOTES, "home", "held")
        assert held is not None
        writer.update(NOTES, with_meta(held, finalizers=()))
    assert objects.list(NOTES).items == ()


def test_the_control_plane_and_the_status_of_nodes_go_on(full: None) -> None:
    create(SYSTEM, "b")
    update(SCHEDULER, "b", "bound")
    update(NODE, "b", "running")
    with pytest.raises(InsufficientStorage):
        create(NODE, "c")


def test_a_dry_run_of_a_full_database_is_no_write(full: None) -> None:
    with objects.writing(identity=ALICE, dry_run=True) as writer:
        writer.create(NOTES, note("b"))


def test_there_is_room_again_after_pruning() -> None:
    """The files stay as large; what is free in them counts, after a vacuum on PostgreSQL."""
    create(ALICE, "a")
    for number in range(30):
        update(ALICE, "a", long_text(number))
    before = space.measure().used
    space.prune(older_than=timedelta(0), keep=0)
    if sql.on_postgresql():
        return  # in the transaction of a test nothing can be vacuumed: see below
    assert space.measure().used < before - 20 * 100 * KIB


def long_text(number: int) -> str:
    """Of 100 KiB, and another for each number."""
    return f"{number}" + "".join(chr(33 + number * index % 90) for index in range(90)) * (100 * KIB // 90)


@pytest.mark.django_db(transaction=True)
def test_a_full_database_prunes_itself_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "SHORTEST", 64 * KIB)
    monkeypatch.setattr(space, "FRESH", 0.0)
    monkeypatch.setattr(space, "VACUUM_EVERY", 0.0)
    create(ALICE, "a")
    start = space.measure().used
    with override_settings(DATABASE_BYTES=start + 6 * MIB, DATABASE_RESERVE=2 * MIB, WRITE_RATE=0):
        for number in range(200):  # 20 MB
            update(ALICE, "a", long_text(number))
        assert space.measure().used < start + 5 * MIB


@pytest.mark.parametrize(
    ("used", "capacity", "said"),
    [
        (100 * MIB, None, ""),
        (100 * MIB, 2000 * MIB, ""),
        (1600 * MIB, 2000 * MIB, "92% of the room for the database is used"),
        (
            1745 * MIB,
            2000 * MIB,
            "the database is full: only deletions and the control plane's own writes are accepted",
        ),
        (74 * MIB, 100 * MIB, "99% …"),  # a small disk keeps a quarter
    ],
)
def test_it_says_how_full_it_is(used: int, capacity: int | None, said: str) -> None:
    assert space.warning(space.DatabaseRoom(used, capacity)) == Outline(said)


def test_measuring_costs_no_query_of_whoever_writes() -> None:
    space._last.reset()
    with connection.execute_wrapper(refuse):
        space.refresh()
    assert space.spare() < float("inf") or sql.on_postgresql()


def refuse(*_arguments: object) -> None:
    raise AssertionError("a query")


@pytest.mark.django_db(transaction=True)
def test_a_long_write_ahead_log_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    if sql.on_postgresql():
        return
    monkeypatch.setattr(space, "LONG_WAL", 100 * KIB)
    sql.fetch("PRAGMA wal_autocheckpoint = 0")
    create(ALICE, "a", size=300 * KIB)
    assert space.measure().wal > 300 * KIB
    space.prune()
    assert space.measure().wal == 0
    sql.fetch("PRAGMA wal_autocheckpoint = 1000")
    assert Event.objects.exists()
