"""The cache of what this process has written: found by text and by key, bounded by what the documents take."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

import pytest

from manciple.store import records
from manciple.store.records import Committed, ObjectCache
from manciple.store.writer import with_meta
from tests.builders import make_node

NOW = datetime(2026, 11, 29, tzinfo=UTC)
_revisions = count(1)


def committed(name: str, text: str, *, gone: bool = False) -> Committed:
    node = with_meta(make_node(name), resource_version=str(next(_revisions)))
    return Committed(key=("nodes", "", name), text=text, object=node, gone=gone, at=NOW)


def names_kept(cache: ObjectCache, *names: str) -> list[str]:
    return [name for name in names if cache.by_key(("nodes", "", name)) is not None]


def test_the_last_state_of_an_object_replaces_the_one_before() -> None:
    cache = ObjectCache()
    cache.add([committed("a", "first"), committed("a", "second")])
    assert cache.by_text("second") is cache.by_key(("nodes", "", "a"))


def test_what_was_deleted_is_not_found_by_its_name() -> None:
    cache = ObjectCache()
    cache.add([committed("a", "here"), committed("a", "going", gone=True)])
    assert cache.by_key(("nodes", "", "a")) is None


def test_readers_of_the_log_find_earlier_states_and_deletions_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "ROOM_FOR_EARLIER", 10)
    cache, written = ObjectCache(), [committed("a", "first"), committed("a", "next"), committed("a", "g", gone=True)]
    cache.add(written)
    first = written[0].revision
    assert cache.written_after(first - 1) == {one.revision: one for one in written}
    assert sorted(cache.written_after(first)) == [first + 1, first + 2]
    assert cache.by_text("first") is written[0].object

    cache.add([committed("b", "bb"), committed("b", "b")])
    assert cache.by_text("first") is None
    assert sorted(cache.written_after(first - 1)) == [first + 1, first + 2, first + 3, first + 4]


def test_a_reader_far_behind_is_spared_the_first_documents_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_SPARED", 2)
    cache, written = ObjectCache(), [committed(name, name) for name in "abcd"]
    cache.add(written)
    assert sorted(cache.written_after(0)) == [one.revision for one in written[:2]]


def test_what_was_written_longest_ago_goes_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ROOM", 10)
    cache = ObjectCache()
    cache.add([committed("a", "aaaa"), committed("b", "bbbb"), committed("a", "AAAA"), committed("c", "cc")])
    assert names_kept(cache, "a", "b", "c") == ["a", "b", "c"]
    cache.add([committed("d", "dd")])
    assert names_kept(cache, "a", "b", "c", "d") == ["a", "c", "d"]


def test_a_very_long_document_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 3)
    cache = ObjectCache()
    cache.add([committed("a", "aaaa")])
    assert names_kept(cache, "a") == []
