"""Ranges of costs and sizes, with arithmetic that stops at 2**64-1 instead of overflowing.

Source: cel-go checker/cost.go. Multiplying by a factor goes through floating point there, so it does here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """From `min` to `max`, both within 0 and 2**64-1: a cost or the size of a value."""

    min: int
    max: int

    def __add__(self, other: Range) -> Range:
        return Range(min(self.min + other.min, MAX), min(self.max + other.max, MAX))

    def __mul__(self, other: Range) -> Range:
        return Range(min(self.min * other.min, MAX), min(self.max * other.max, MAX))

    def __or__(self, other: Range) -> Range:
        """What covers both."""
        return Range(min(self.min, other.min), max(self.max, other.max))

    def times(self, factor: float) -> Range:
        return Range(_times(self.min, factor), _times(self.max, factor))


def fixed(value: int) -> Range:
    return Range(value, value)


def _times(value: int, factor: float) -> int:
    if value > 0 and factor > 0 and float(value) > MAX / factor:
        return MAX
    scaled = math.ceil(float(value) * factor)
    return MAX if scaled >= 2**64 else scaled


UNKNOWN = Range(0, MAX)
ZERO = fixed(0)
ONE = fixed(1)

#: cel-go common/cost.go
LIST_CREATE = 10
MAP_CREATE = 30
STRUCT_CREATE = 40
TRAVERSAL = 0.1
REGEX_LENGTH = 0.25
