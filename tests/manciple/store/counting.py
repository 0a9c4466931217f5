"""Counts the transactions that write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from manciple.store import sql
from manciple.store.sql import Locked, Query, Reference


@contextmanager
def counted_transactions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The revision at the start of every transaction that takes the lock."""
    seen: list[int] = []
    real = sql._lock

    def lock(references: Sequence[Reference], beside: Sequence[Query]) -> Locked:
        found = real(references, beside)
        seen.append(found.counter.current)
        return found

    monkeypatch.setattr(sql, "_lock", lock)
    yield seen
