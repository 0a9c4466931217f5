"""The cache of what this process has written: found by text and by key, bounded by what the documents take."""

from __future__ import annotations

import pytest

from manciple.store import records
from manciple.store.records import Committed, ObjectCache
from tests.builders import make_node


def committed(name: str, text: str, *, gone: bool = False) -> Committed:
    return Committed(key=("nodes", "", name), text=text, object=make_node(name), gone=gone)


def names_kept(cache: ObjectCache, *names: str) -> list[str]:
    return [name for name in names if cache.by_key(("nodes", "", name)) is not None]


def test_the_last_state_of_an_object_replaces_the_one_before() -> None:
    cache = ObjectCache()
    cache.add([committed("a", "first"), committed("a", "second")])
    assert cache.by_text("first") is None
    assert cache.by_text("second") is cache.by_key(("nodes", "", "a"))


def test_what_was_deleted_is_not_kept() -> None:
    cache = ObjectCache()
    cache.add([committed("a", "here"), committed("a", "going", gone=True)])
    assert cache.by_text("here") is cache.by_text("going") is cache.by_key(("nodes", "", "a")) is None


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
