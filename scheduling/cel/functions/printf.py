"""`"%s has %d".format([name, count])`: cel-go's clauses s, d, f, e, b, x, X and o.

The same walk over a template serves evaluation and the check of literal templates before an expression is accepted.
Source: cel-go ext/formatting.go.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from scheduling.cel.errors import EvaluationError
from scheduling.cel.functions.conversions import bytes_to_string, double_to_string
from scheduling.cel.kinds import type_name
from scheduling.cel.times import Duration, Timestamp
from scheduling.cel.values import CelMap, TypeValue, Uint, key_value

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
class Clause:
    """One %-clause: its letter and precision."""

    verb: str
    precision: int = _DEFAULT_PRECISION


def parts(template: str) -> Iterator[str | Clause]:
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


def _clause(template: str, position: int) -> tuple[Clause, int]:
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
    return Clause(verb, precision), position + 1


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


def _refused(value: Any, clause: Clause) -> EvaluationError:
    return EvaluationError(f"error during formatting: {REFUSALS[clause.verb]}{type_name(value)}")


def _string(value: Any, clause: Clause) -> str:
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


def _nested(value: Any, clause: Clause) -> str:
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


def _integer(value: Any, clause: Clause) -> int:
    if type(value) not in (int, Uint):
        raise _refused(value, clause)
    return int(value)


def _decimal(value: Any, clause: Clause) -> str:
    return str(_integer(value, clause))


def _octal(value: Any, clause: Clause) -> str:
    return f"{_integer(value, clause):o}"


def _binary(value: Any, clause: Clause) -> str:
    return f"{value if type(value) is bool else _integer(value, clause):b}"


def _hex(value: Any, clause: Clause) -> str:
    if isinstance(value, str | bytes):
        digits = (value.encode() if isinstance(value, str) else value).hex()
    else:
        digits = f"{_integer(value, clause):x}"
    return digits.upper() if clause.verb == "X" else digits


def _double(value: Any, clause: Clause) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if type(value) is not float:
        raise _refused(value, clause)
    return value


def _fixed(value: Any, clause: Clause) -> str:
    number = _double(value, clause)
    return f"{number:,.{clause.precision}f}" if math.isfinite(number) else _not_finite(number)


def _scientific(value: Any, clause: Clause) -> str:
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


_VERBS: dict[str, Callable[[Any, Clause], str]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hex,
    "X": _hex,
    "o": _octal,
}
