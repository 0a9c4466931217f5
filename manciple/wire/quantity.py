"""Exact quantities, as apimachinery's resource.Quantity: "1.5Gi", "100m", "12e6".

A quantity is a whole number of nanos (1e-9) plus the family of suffixes that it was written with; canonical text keeps
that family: no fraction, no lost digit, the largest suffix that fits. Values below a nano round away from zero.
Source: apimachinery/pkg/api/resource/quantity.go and suffix.go. Where upstream reuses non-canonical input as canonical
text ("+5", "1.500") or drops a suffix it does not have (1000E), this one writes the canonical form.

Documents carry amounts as text that the decoder has not looked into: rules read them with `read_quantity`, or
`read_amounts` where they stand by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import total_ordering

from manciple.copying import immutable
from manciple.wire.errors import FieldError, invalid
from manciple.wire.limits import short_text_cache
from manciple.wire.validation import Path, check_label_key, each

FORMAT_MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMBER_MESSAGE = "unable to parse numeric part of quantity"
SUFFIX_MESSAGE = "unable to parse quantity's suffix"

NANO = 10**9
MAX_INT64 = 2**63 - 1
#: Exponents beyond this are refused: no resource is that large, and the integer would take megabytes.
MAX_EXPONENT = 400

_SHAPE = re.compile(r"([+-]?)([0-9.]++)([eEinumkKMGTP]*[-+]?[0-9]*)")
_NUMBER = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)")

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class Format(Enum):
    """The family of suffixes that a quantity is written with."""

    DECIMAL_EXPONENT = "DecimalExponent"  # 12e6
    BINARY_SI = "BinarySI"  # 12Mi
    DECIMAL_SI = "DecimalSI"  # 12M


@immutable
@total_ordering
class Quantity:
    """An exact, immutable amount. Equal and hashed by value: 1024 and "1Ki" are the same key."""

    __slots__ = ("_text", "format", "nanos")

    #: the amount in 1e-9 units
    nanos: int
    format: Format
    #: the canonical text once asked for
    _text: str

    def __init__(self, nanos: int, format: Format = Format.DECIMAL_SI) -> None:
        object.__setattr__(self, "nanos", nanos)
        object.__setattr__(self, "format", format)
        object.__setattr__(self, "_text", "")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Quantity is immutable: cannot set {name}")

    @staticmethod
    def parse(text: str) -> Quantity:
        """Raises: ValueError with upstream's message when `text` is not a quantity."""
        return _parse(text)

    @classmethod
    def of(cls, units: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """`units` whole units."""
        return cls(units * NANO, format)

    def canonical(self) -> str:
        """The one text of this amount in its family, as the API writes it."""
        if not self._text:
            object.__setattr__(self, "_text", _canonical(self.nanos, self.format))
        return self._text

    def as_int64_ceil(self) -> int:
        """Whole units, rounded away from zero, within int64 (Go: Value())."""
        return _away_from_zero(self.nanos, NANO)

    def milli_value(self) -> int:
        """Thousandths, rounded away from zero, within int64 (Go: MilliValue())."""
        return _away_from_zero(self.nanos, 1_000_000)

    @property
    def is_integer(self) -> bool:
        return self.nanos % NANO == 0

    @property
    def is_zero(self) -> bool:
        return self.nanos == 0

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.nanos > 0) - (self.nanos < 0)

    def __add__(self, other: Quantity) -> Quantity:
        """The sum in this quantity's family, or in the other's where this one is zero."""
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        return self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({self.canonical()!r})"


ZERO = Quantity(0)


@short_text_cache(65536, longest=64)
def _parse(text: str) -> Quantity:
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError(FORMAT_MESSAGE)
    sign, number, suffix = shape.groups()
    digits = _NUMBER.fullmatch(number)
    if digits is None:
        raise ValueError(NUMBER_MESSAGE if number.count(".") == len(number) else FORMAT_MESSAGE)
    whole, fraction = digits.group(1), digits.group(2) or ""
    base, exponent, family = _interpret(suffix)
    nanos = _scaled(int(whole + fraction), places=len(fraction), base=base, exponent=exponent)
    if family is Format.BINARY_SI:
        nanos = min(nanos, MAX_INT64 * NANO)
        family = Format.DECIMAL_SI if 0 < nanos < NANO else family
    return Quantity(-nanos if sign == "-" else nanos, family)


def _interpret(suffix: str) -> tuple[int, int, Format]:
    """(base, exponent, family) of a suffix. Raises: ValueError for one that nobody knows."""
    if suffix in _DECIMAL_SUFFIXES:
        return 10, _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI
    if suffix in _BINARY_SUFFIXES:
        return 2, 10 * _BINARY_SUFFIXES.index(suffix), Format.BINARY_SI
    written = _EXPONENT.fullmatch(suffix)
    if written is None or abs(int(written.group(1))) > MAX_EXPONENT:
        raise ValueError(SUFFIX_MESSAGE)
    return 10, int(written.group(1)), Format.DECIMAL_EXPONENT


def _scaled(digits: int, *, places: int, base: int, exponent: int) -> int:
    """`digits` with `places` of them after the point, times base**exponent, in nanos rounded up."""
    numerator: int = digits * NANO * base ** max(exponent, 0)
    denominator: int = 10**places * base ** max(-exponent, 0)
    return -(-numerator // denominator)


def _away_from_zero(nanos: int, unit: int) -> int:
    magnitude = min(-(-abs(nanos) // unit), MAX_INT64)
    return magnitude if nanos >= 0 else -magnitude


def _canonical(nanos: int, family: Format) -> str:
    if nanos == 0:
        return "0"
    if family is Format.BINARY_SI and nanos % NANO == 0 and abs(nanos) >= 1024 * NANO:
        return _binary_text(nanos // NANO)
    mantissa, exponent = nanos, -9
    largest = 18 if family is not Format.DECIMAL_EXPONENT else 3 * MAX_EXPONENT
    while exponent < largest and mantissa % 1000 == 0:
        mantissa, exponent = mantissa // 1000, exponent + 3
    if family is Format.DECIMAL_EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_BY_EXPONENT[exponent]}"


def _binary_text(units: int) -> str:
    power = 0
    while power < len(_BINARY_SUFFIXES) - 1 and units % 1024 == 0:
        units, power = units // 1024, power + 1
    return f"{units}{_BINARY_SUFFIXES[power]}"


def whole(text: str, *, digits: int = 18) -> int | None:
    """The number that ASCII digits stand for, up to so many: 18 fit into a BIGINT. None for any other text.

    Python itself reads digits of any script, and gives up on thousands of them.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


# Amounts in documents -------------------------------------------------------------------------------------------------

NEGATIVE_MESSAGE = "must be greater than or equal to 0"


def read_quantity(text: str, path: Path) -> tuple[Quantity | None, list[FieldError]]:
    """The amount, or the error that says why it is none."""
    try:
        return Quantity.parse(text), []
    except ValueError as error:
        return None, [invalid(path, text, str(error))]


def _validate_label_key(name: str, path: Path) -> list[FieldError]:
    return each(check_label_key(name), path, name)


def read_amounts(
    amounts: Mapping[str, str],
    path: Path,
    *,
    validate_name: Callable[[str, Path], list[FieldError]] = _validate_label_key,
    is_counted: Callable[[str], bool] = lambda _name: False,
) -> tuple[dict[str, Quantity], list[FieldError]]:
    """The amounts that can be read, and what is wrong with the others or with the names. None may be negative.

    is_counted: whether what has this name comes in whole numbers.
    """
    read: dict[str, Quantity] = {}
    found: list[FieldError] = []
    for name, text in amounts.items():
        at = path.key(name)
        found += validate_name(name, at)
        amount, wrong = read_quantity(text, at)
        found += wrong
        if amount is None:
            continue
        read[name] = amount
        if amount.sign < 0:
            found.append(invalid(at, text, NEGATIVE_MESSAGE))
        if is_counted(name) and not amount.is_integer:
            found.append(invalid(at, text, "must be an integer"))
    return read, found
