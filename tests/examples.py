"""How much of its inputs a test tries: few in `make test`, everything in `make test-all`.

`TEST_ALL` in the environment asks for everything: tests marked `long`, whole tables, all examples of property tests.
`MANCIPLE_EXAMPLES=20` asks for twenty times the examples of property tests (`make fuzz`). `TEST_ORDER` is the seed of a
random order of files and tests, and of another sample of each table.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

ALL = "TEST_ALL" in os.environ
ORDER = os.environ.get("TEST_ORDER", "")
#: Names the database that has been migrated once for all parts (tests/parts.py), which a new one is a copy of.
MIGRATED = "TEST_MIGRATED"
_TIMES = float(os.environ.get("MANCIPLE_EXAMPLES", "1" if ALL else "0.25"))


def some(examples: int) -> int:
    """The number of examples for a property test that draws `examples` in `make test-all`."""
    return max(int(examples * _TIMES), min(examples, 5))


def sample(cases: Sequence[T], count: int) -> Sequence[T]:
    """`count` of a table's cases in the table's order, chosen by a fixed seed; in `make test-all` every case."""
    if ALL or len(cases) <= count:
        return cases
    chosen = random.Random(ORDER).sample(range(len(cases)), count)
    return [cases[index] for index in sorted(chosen)]
