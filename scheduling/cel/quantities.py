"""Quantities as an expression sees them: an exact amount, and whether upstream holds it as a plain 64-bit integer.

asInteger() and isInteger() answer from how resource.Quantity stores the amount, not from the amount: "1.5Gi", "1000m"
and "1Pi" are no integers although they are whole. `scale` follows that storage: the power of ten of the last digit, or
None where upstream has fallen back to a big decimal. Source: apimachinery/pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from manciple.wire.quantity import NANO, Quantity
from scheduling.cel.values import MAX_INT, MIN_INT, Strict

_PARTS = re.compile(r"[+-]?0*([0-9]*)(?:\.([0-9]*))?(.*)")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_INT64_DIGITS = 18
_NANO_SCALE = -9


@dataclass(frozen=True, slots=True, eq=False)
class Amount(Strict):
    nanos: int
    #: None: a big decimal
    scale: int | None

    def same(self, other: Amount) -> bool:
        return self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def as_integer(self) -> int | None:
        """The amount where upstream can give it as an int64."""
        if self.scale is None or self.scale < 0:
            return None
        units = self.nanos // NANO
        return units if MIN_INT <= units <= MAX_INT else None

    def plus(self, other: Amount) -> Amount:
        nanos = self.nanos + other.nanos
        if self.nanos == 0:
            return Amount(nanos, other.scale)
        if other.nanos == 0 and other.scale is not None:
            return self
        return Amount(nanos, _common_scale(nanos, self.scale, other.scale))

    def minus(self, other: Amount) -> Amount:
        return self.plus(Amount(-other.nanos, other.scale))


def _common_scale(nanos: int, first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return None
    scale = min(first, second)
    mantissa = nanos * 10 ** max(-scale, 0) // (NANO * 10 ** max(scale, 0))
    return scale if MIN_INT <= mantissa <= MAX_INT else None


def of_units(units: int) -> Amount:
    return Amount(units * NANO, 0)


@lru_cache(maxsize=65536)
def parse_amount(text: str) -> Amount:
    """Raises: ValueError with upstream's message when `text` is not a quantity."""
    return Amount(Quantity.parse(text).nanos, _stored_scale(text))


def _stored_scale(text: str) -> int | None:
    match = _PARTS.fullmatch(text)
    if match is None:
        return None
    whole, fraction, suffix = match.group(1) or "0", match.group(2) or "", match.group(3)
    if suffix in _BINARY:
        exponent = _BINARY[suffix]
        room = 15 - len(whole) - int(exponent * 3 / 10) - 1
        return 0 if not fraction and room >= 0 else None
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    scale = exponent - len(fraction)
    return scale if len(whole) + len(fraction) <= _INT64_DIGITS and scale >= _NANO_SCALE else None
