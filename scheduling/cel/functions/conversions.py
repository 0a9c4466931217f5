"""int(), string(), timestamp() and the other functions that make one type from another."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from scheduling.cel.errors import EvaluationError
from scheduling.cel.functions.operators import bounded_int, bounded_uint
from scheduling.cel.times import SECOND, Duration, Timestamp, parse_duration, parse_timestamp
from scheduling.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UINT = re.compile(r"[0-9]+", re.ASCII)
_FLOAT = re.compile(r"(?i)[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII)
#: Go's 'g' format writes an exponent outside of these powers of ten.
_LEAST_PLAIN_POWER, _GREATEST_PLAIN_POWER = -4, 5
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def conversion_error(source: str, target: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{source}' to '{target}'")


def _identity(value: Any) -> Any:
    return value


def string_to_int(text: str) -> int:
    if not _INT.fullmatch(text) or not MIN_INT <= int(text) <= MAX_INT:
        raise conversion_error("string", "int")
    return int(text)


def double_to_int(value: float) -> int:
    # The bounds themselves are out: they may have come from rounding.
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def string_to_uint(text: str) -> Uint:
    if not _UINT.fullmatch(text) or int(text) > MAX_UINT:
        raise conversion_error("string", "uint")
    return Uint(int(text))


def double_to_uint(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return Uint(int(value))


def string_to_double(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise conversion_error("string", "double")
    return float(text)


def string_to_bool(text: str) -> bool:
    if text not in _BOOLS:
        raise conversion_error("string", "bool")
    return _BOOLS[text]


def bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def string_to_timestamp(text: str) -> Timestamp:
    try:
        return parse_timestamp(text)
    except ValueError:
        raise conversion_error("string", "google.protobuf.Timestamp") from None


def string_to_duration(text: str) -> Duration:
    try:
        return parse_duration(text)
    except ValueError:
        raise conversion_error("string", "google.protobuf.Duration") from None


def double_to_string(value: float) -> str:
    """Go's shortest 'g' format: the fewest digits that read back, an exponent below 1e-4 and from 1e6 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    digits, power = _shortest_digits(abs(value))
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if not _LEAST_PLAIN_POWER <= power <= _GREATEST_PLAIN_POWER:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole, rest = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
    return f"{sign}{whole}{'.' + rest if rest else ''}"


def _shortest_digits(value: float) -> tuple[str, int]:
    """(significant digits, power of ten of the first of them)."""
    digits = "".join(map(str, Decimal(repr(value)).as_tuple().digits))
    return digits.rstrip("0") or "0", Decimal(repr(value)).adjusted() if value else 0


IMPLEMENTATIONS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            "bool_to_bool",
            "bytes_to_bytes",
            "double_to_double",
            "duration_to_duration",
            "int64_to_int64",
            "string_to_string",
            "timestamp_to_timestamp",
            "uint64_to_uint64",
            "to_dyn",
        ),
        _identity,
    ),
    "string_to_bool": string_to_bool,
    "string_to_bytes": str.encode,
    "int64_to_double": float,
    "uint64_to_double": float,
    "string_to_double": string_to_double,
    "int64_to_duration": Duration,
    "string_to_duration": string_to_duration,
    "double_to_int64": double_to_int,
    "duration_to_int64": lambda value: value.nanos,
    "string_to_int64": string_to_int,
    "timestamp_to_int64": lambda value: value.nanos // SECOND,
    "uint64_to_int64": lambda value: bounded_int(int(value)),
    "bool_to_string": lambda value: str(value).lower(),
    "bytes_to_string": bytes_to_string,
    "double_to_string": double_to_string,
    "duration_to_string": Duration.text,
    "int64_to_string": str,
    "timestamp_to_string": Timestamp.text,
    "uint64_to_string": lambda value: str(int(value)),
    "int64_to_timestamp": lambda value: Timestamp(value * SECOND),
    "string_to_timestamp": string_to_timestamp,
    "double_to_uint64": double_to_uint,
    "int64_to_uint64": bounded_uint,
    "string_to_uint64": string_to_uint,
}
