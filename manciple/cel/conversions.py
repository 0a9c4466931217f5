"""int(), string(), timestamp() and the other functions that make one type from another; and format().

`"%s has %d".format([name, count])` knows cel-go's clauses s, d, f, e, b, x, X and o. The same walk over a template
serves evaluation and the check of literal templates before an expression is accepted. Source: cel-go ext/formatting.go.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from manciple.cel.errors import EvaluationError
from manciple.cel.operators import bounded_int, bounded_uint, type_name
from manciple.cel.times import SECOND, Duration, Timestamp, parse_duration, parse_timestamp
from manciple.cel.values import MAX_INT, MAX_UINT, MIN_INT, CelMap, TypeValue, Uint, key_value

_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UINT = re.compile(r"[0-9]+", re.ASCII)
_FLOAT = re.compile(r"(?i)[+-]?(?:(?:[0-9]++\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII)
#: Go's 'g' format writes an exponent outside of these powers of ten.
_LEAST_PLAIN_POWER, _GREATEST_PLAIN_POWER = -4, 5
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def conversion_error(source: str, target: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{source}' to '{target}'")


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


_DEFAULT_PRECISION = 6
_MAX_PRECISION = 1000
_STRINGS = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"

_SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")

#: what a clause says of an argument that it cannot show; the type's name follows
REFUSALS = {
    "s": f"string clause can only be used on {_STRINGS}, was given ",
    "d": "decimal clause can only be used on integers, was given ",
    "f": "fixed-point clause can only be used on doubles, was given ",
    "e": "scientific clause can only be used on doubles, was given ",
    "b": "only integers and bools can be formatted as binary, was given ",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given ",
    "X": "only integers, byte buffers, and strings can be formatted as hex, was given ",
    "o": "octal clause can only be used on integers, was given ",
}


class TemplateError(Exception):
    """A template that means nothing."""


@dataclass(frozen=True, slots=True)
class FormatClause:
    """One %-clause: its letter and precision."""

    verb: str
    precision: int = _DEFAULT_PRECISION


def parts(template: str) -> Iterator[str | FormatClause]:
    """Texts and clauses, in order. Raises: TemplateError."""
    position = 0
    while True:
        percent = template.find("%", position)
        if percent < 0:
            yield template[position:]
            return
        yield template[position:percent]
        position = percent + 1
        if template[position : position + 1] == "%":
            yield "%"
            position += 1
            continue
        clause, position = _clause(template, position)
        yield clause


def _clause(template: str, position: int) -> tuple[FormatClause, int]:
    """The clause that begins behind its percent sign, and where the text goes on."""
    precision = _DEFAULT_PRECISION
    if template[position : position + 1] == ".":
        end = position + 1
        while template[end : end + 1].isdigit():
            end += 1
        if end == position + 1:
            raise TemplateError("could not parse precision: no precision given")
        precision = int(template[position + 1 : end])
        if precision > _MAX_PRECISION:
            raise TemplateError(f"precision {precision} is too large")
        position = end
    verb = template[position : position + 1]
    if not verb:
        raise TemplateError("unexpected end of string")
    if verb not in REFUSALS:
        raise TemplateError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
    return FormatClause(verb, precision), position + 1


def format_text(template: str, arguments: list[Any]) -> str:
    """Raises: EvaluationError."""
    shown: list[str] = []
    used = 0
    try:
        for part in parts(template):
            if isinstance(part, str):
                shown.append(part)
                continue
            if used >= len(arguments):
                raise EvaluationError(f"index {used} out of range")
            shown.append(_VERBS[part.verb](arguments[used], part))
            used += 1
    except TemplateError as error:
        raise EvaluationError(str(error)) from None
    return "".join(shown)


def _refused(value: Any, clause: FormatClause) -> EvaluationError:
    return EvaluationError(f"error during formatting: {REFUSALS[clause.verb]}{type_name(value)}")


def _string(value: Any, clause: FormatClause) -> str:
    if value is None:
        return "null"
    kind = type(value)
    if kind in _TEXTS:
        return _TEXTS[kind](value)
    if kind is list:
        return f"[{', '.join(_nested(item, clause) for item in value)}]"
    if isinstance(value, CelMap):
        pairs = sorted((_nested(key_value(key), clause), _nested(item, clause)) for key, item in value.items())
        return "{" + ", ".join(f"{key}:{item}" for key, item in pairs) + "}"
    raise _refused(value, clause)


def _nested(value: Any, clause: FormatClause) -> str:
    """A value inside a list or map: as the language would write it."""
    kind = type(value)
    if kind is str:
        return _go_quoted(value)
    if kind is bytes:
        return f"b{_go_quoted(bytes_to_string(value))}"
    if kind is float:
        return f"{value:.6f}" if math.isfinite(value) else _go_quoted(double_to_string(value))
    if kind is Timestamp:
        return f'timestamp("{value.text()}")'
    if kind is Duration:
        return f'duration("{value.text()}")'
    return _string(value, clause)


def _go_quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_TEXTS: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: lambda value: str(value).lower(),
    bytes: bytes_to_string,
    int: str,
    Uint: lambda value: str(int(value)),
    float: double_to_string,
    TypeValue: lambda value: value.name,
    Timestamp: lambda value: value.text(),
    Duration: lambda value: value.text(),
}


def _integer(value: Any, clause: FormatClause) -> int:
    if type(value) not in (int, Uint):
        raise _refused(value, clause)
    return int(value)


def _hex(value: Any, clause: FormatClause) -> str:
    if isinstance(value, str | bytes):
        digits = (value.encode() if isinstance(value, str) else value).hex()
    else:
        digits = f"{_integer(value, clause):x}"
    return digits.upper() if clause.verb == "X" else digits


def _double(value: Any, clause: FormatClause) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if type(value) is not float:
        raise _refused(value, clause)
    return value


def _fixed(value: Any, clause: FormatClause) -> str:
    number = _double(value, clause)
    return f"{number:,.{clause.precision}f}" if math.isfinite(number) else _not_finite(number)


def _scientific(value: Any, clause: FormatClause) -> str:
    number = _double(value, clause)
    if not math.isfinite(number):
        return _not_finite(number)
    mantissa, _, exponent = f"{number:.{clause.precision}e}".partition("e")
    # As upstream's default locale writes it: a times sign between narrow spaces, a raised exponent.
    return f"{mantissa}\u202f\u00d7\u202f10{exponent.removeprefix('+').translate(_SUPERSCRIPTS)}"


def _not_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "∞" if number > 0 else "-∞"


_VERBS: dict[str, Callable[[Any, FormatClause], str]] = {
    "s": _string,
    "d": lambda value, clause: str(_integer(value, clause)),
    "f": _fixed,
    "e": _scientific,
    "b": lambda value, clause: f"{value if type(value) is bool else _integer(value, clause):b}",
    "x": _hex,
    "X": _hex,
    "o": lambda value, clause: f"{_integer(value, clause):o}",
}

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
        lambda value: value,
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
    "string_format": format_text,
}
