"""The log is bounded in bytes: what is pruned, who prunes it, and that no reader skips an event."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manciple.store import event_log, objects, space, sql
from manciple.store.models import Event, StoredObject
from manciple.wire.errors import Expired
from tests.examples import some
from tests.manciple.store.kinds import NOTES, note
from tests.manciple.store.test_replay import replay, start_over

pytestmark = pytest.mark.django_db

YEAR = timedelta(days=365)
KIB = 1024


def put(name: str, size: int = 1, namespace: str = "home") -> None:
    with objects.writing() as writer:
        write = writer.create if writer.get(NOTES, namespace, name) is None else writer.update
        write(NOTES, note(name, namespace=namespace, text=f"{tail_end()}" + "x" * size))


def tail_end() -> int:
    """Makes every text another one."""
    return event_log.latest_revision()


def drop(name: str) -> None:
    with objects.writing() as writer:
        writer.delete(NOTES, "home", name)


def stored_bytes() -> int:
    return sum(len(text) for text in Event.objects.values_list("document", flat=True))


def test_the_log_counts_its_bytes() -> None:
    put("a", 10 * KIB)
    put("a", 10 * KIB)
    put("b", 5 * KIB)
    drop("a")
    counter = sql.counter()
    assert counter.log_bytes >= stored_bytes() > 35 * KIB
    assert counter.log_bytes < stored_bytes() + 4 * KIB  # the rest of four rows
    ends = list(Event.objects.order_by("revision").values_list("end_offset", flat=True))
    assert ends == sorted(set(ends))
    assert ends[-1] == counter.end_offset


def test_characters_of_several_bytes_count_as_such() -> None:
    with objects.writing() as writer:
        writer.create(NOTES, note("a", text="😀" * KIB))
    assert sql.counter().log_bytes > 4 * KIB


@pytest.mark.parametrize("most", [0, 1, 11 * KIB, 25 * KIB, 1000 * KIB])
def test_pruning_keeps_the_newest_bytes(most: int) -> None:
    for _ in range(8):
        put("a", 10 * KIB)
    before = event_log.latest_revision()
    space.prune(older_than=YEAR, keep_bytes=most)
    counter = sql.counter()
    assert counter.log_bytes <= most
    assert most > counter.end_offset or counter.log_bytes > most - 11 * KIB  # no more than needed
    assert [one.revision for one in event_log.read_after(counter.floor)] == list(range(counter.floor + 1, before + 1))
    if counter.floor > 1:
        with pytest.raises(Expired):
            event_log.read_after(counter.floor - 1)


def test_large_steps_are_cut_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "STEP_BYTES", 15 * KIB)
    for _ in range(8):
        put("a", 10 * KIB)
    steps: list[int] = []
    real = space._prune_step

    def step(target: int) -> int | None:
        before, found = sql.counter(), real(target)
        if found is not None:
            steps.append(sql.counter().floor_offset - before.floor_offset)
        return found

    monkeypatch.setattr(space, "_prune_step", step)
    space.prune(older_than=YEAR, keep_bytes=0)
    assert len(steps) == 4
    assert max(steps) < 25 * KIB


def test_entries_without_an_offset_are_of_an_earlier_version() -> None:
    """In a rolling upgrade they stand between others: they count nothing, and pruning goes on."""
    for number in range(6):
        put("a", 10 * KIB)
        if number % 2:
            Event.objects.filter(revision=event_log.latest_revision()).update(end_offset=0)
    space.prune(older_than=YEAR, keep_bytes=25 * KIB)
    assert sql.counter().log_bytes <= 25 * KIB
    space.prune(older_than=timedelta(0), keep=0)
    assert Event.objects.count() == 1


WRITES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3 * KIB), st.sampled_from(["put", "put", "drop", "prune"])),
    max_size=25,
)


@settings(
    max_examples=some(25), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(writes=WRITES)
def test_a_reader_gets_every_event_or_is_expired(writes: Sequence[tuple[str, int, str]]) -> None:
    start_over()
    seen, state = event_log.latest_revision(), dict[str, str]()
    page = None
    for name, size, what in writes:
        if what == "prune":
            space.prune(older_than=YEAR, keep_bytes=size)
            assert sql.counter().log_bytes <= size
        elif what == "put":
            put(name, size)
        elif objects.get(NOTES, "home", name) is not None:
            drop(name)
        if size % 3 == 0:  # the reader comes now and then
            try:
                events = event_log.read_after(seen)
            except Expired:
                assert seen < sql.counter().floor
                state = {item.name: item.text for item in objects.list(NOTES).items}
            else:
                assert [event.revision for event in events] == list(range(seen + 1, event_log.latest_revision() + 1))
                state = replay(state, events)
            seen = event_log.latest_revision()
            assert state == {item.name: item.text for item in objects.list(NOTES).items}
            page = objects.list(NOTES, limit=1)
            whole = dict(state)
        if page is not None and page.continue_token:
            try:
                rest = objects.list(NOTES, continue_token=page.continue_token)
            except Expired:
                continue
            assert {item.name: item.text for item in (*page.items, *rest.items)} == whole
    assert set(StoredObject.objects.values_list("event_id", flat=True)) <= set(
        Event.objects.values_list("revision", flat=True)
    )


@pytest.mark.django_db(transaction=True)
@override_settings(LOG_BYTES=64 * KIB)
def test_whoever_makes_the_log_too_long_prunes_it() -> None:
    """No controller runs here."""
    longest = 0
    for _ in range(40):
        put("a", 10 * KIB)
        longest = max(longest, sql.counter().log_bytes)
    assert longest <= 64 * KIB
    assert stored_bytes() < 64 * KIB + 11 * KIB  # and what the object was at the floor


@pytest.mark.django_db(transaction=True)
@override_settings(LOG_BYTES=20 * KIB)
def test_a_pruning_that_fails_does_not_fail_the_write(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_target: int) -> int | None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(space, "_prune_step", fail)
        for _ in range(4):
            put("a", 10 * KIB)
    assert "could not prune the log" in caplog.text
    put("a", 10 * KIB)
    assert sql.counter().log_bytes <= 20 * KIB


def test_the_log_gives_way_before_writes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "SHORTEST", 5 * KIB)
    for _ in range(8):
        put("a", 10 * KIB)
    counter = sql.counter()
    for spare, most in ((float("inf"), 2 << 30), (10 * KIB, counter.log_bytes + 10 * KIB), (-1000 * KIB, 5 * KIB)):
        monkeypatch.setattr(space, "spare", lambda spare=spare: spare)
        assert space.byte_limit(counter) == most
    space.prune(older_than=YEAR)
    assert sql.counter().log_bytes <= 5 * KIB
