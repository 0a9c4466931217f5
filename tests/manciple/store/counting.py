"""Counts the transactions that write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from manciple.store import persistence
from manciple.store.persistence import Locked
from manciple.store.sql import Reference


@contextmanager
def counted_transactions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The revision at the start of every transaction that takes the lock."""
    seen: list[int] = []
    real = persistence._lock

    def lock(references: Sequence[Reference]) -> Locked:
        found = real(references)
        seen.append(found.counter.current)
        return found

    monkeypatch.setattr(persistence, "_lock", lock)
    yield seen
