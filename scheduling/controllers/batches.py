"""Much work in small steps: between two of them, whoever waits for the store or for the processor has its turn."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from manciple.store import bulk

#: Seconds of rest between two batches, at most.
LONGEST_REST = 0.25

T = TypeVar("T")


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """`values`, so many at a time; before the next come, it rests for as long as the last ones took."""
    began = None
    for batch in bulk.chunks(values, size):
        if began is not None:
            time.sleep(min(time.monotonic() - began, LONGEST_REST))
        began = time.monotonic()
        yield batch
