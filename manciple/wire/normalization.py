"""A document of builtins made fit for its type: what Go's decoder forgives is forgiven, the rest is reported.

- null stands for absent: members are dropped, elements become their zero value;
- amounts may be JSON numbers and become text; times become UTC text in the precision of their type;
- unknown and repeated fields are collected with their paths, in document order, and dropped;
- values of the wrong type are collected with their paths, in the words of Go's decoder, which tells only the first.
Each type is compiled once to a function over its declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from msgspec import inspect

from manciple.wire.base import Value
from manciple.wire.declarations import Declaration, Shape, declarations, shape_of
from manciple.wire.documents import RepeatedKeys

_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")

#: Wrong values that one answer tells of.
MOST_WRONG = 20


@dataclass(slots=True)
class Findings:
    """What is wrong with one document. `strict`: unknown and repeated fields; `wrong`: values no type can take."""

    strict: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def mismatch(self, raw: Any, path: str, expected: str) -> None:
        """Note a value of the wrong type; what is returned in its place is never looked at."""
        got = next((name for types, name in _JSON_NAMES if isinstance(raw, types)), "null")
        into = f"field {path}" if path else "a value"
        self.note(f"json: cannot unmarshal {got} into {into} of type {expected}")

    def note(self, wrong: str) -> None:
        if len(self.wrong) < MOST_WRONG:
            self.wrong.append(wrong)


#: (raw, path, findings) -> the normalised value; worth nothing once something wrong was found
Normalizer = Callable[[Any, str, Findings], Any]


_JSON_NAMES: tuple[tuple[Any, str], ...] = (
    (bool, "bool"),
    (str, "string"),
    (int | float, "number"),
    (list | tuple, "array"),
    (dict, "object"),
)


def normalize(type_: Any, document: Any, findings: Findings) -> Any:
    """`document` fit for `msgspec.convert(..., type_)`, unless `findings` tells of something wrong afterwards.

    type_: a `Value` subclass, or a dict or tuple of them. Only the range of an integer is left for the conversion to
    check.
    """
    return _of_type(type_)(document, "", findings)


@cache
def _of_type(type_: Any) -> Normalizer:
    if isinstance(type_, type) and issubclass(type_, Value):
        return _value(type_)
    return _contained(shape_of(inspect.type_info(type_)), "")


@cache
def _value(type_: type[Value]) -> Normalizer:
    members: dict[str, Normalizer] = {}

    def normalize_value(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, dict):
            return findings.mismatch(raw, path, type_.__name__)
        if not members:  # filled on first use, because types may contain themselves
            members.update({declared.name: _member(declared) for declared in declarations(type_)})
        fitted = {}
        repeated = _report_repeated(raw, path, findings)
        for key, item in raw.items():
            member = members.get(key)
            if member is None:
                if key not in repeated:
                    findings.strict.append(f'unknown field "{_join(path, key)}"')
            elif item is not None:
                fitted[key] = member(item, _join(path, key), findings)
        return fitted

    return normalize_value


def _report_repeated(raw: dict[str, Any], path: str, findings: Findings) -> tuple[str, ...]:
    if not isinstance(raw, RepeatedKeys):
        return ()
    findings.strict += [f'duplicate field "{_join(path, key)}"' for key in raw.repeated]
    return raw.repeated


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _member(declared: Declaration) -> Normalizer:
    return _contained(declared.shape, declared.encoding)


def _contained(shape: Shape, encoding: str) -> Normalizer:
    element = _element(shape, encoding)
    zero = _ZEROS.get(shape.element, {})

    def normalize_list(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, list | tuple):
            return findings.mismatch(raw, path, "array")
        return [zero if item is None else element(item, f"{path}[{at}]", findings) for at, item in enumerate(raw)]

    def normalize_map(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, dict):
            return findings.mismatch(raw, path, "map")
        _report_repeated(raw, path, findings)
        return {key: zero if item is None else element(item, _join(path, key), findings) for key, item in raw.items()}

    return {"": element, "list": normalize_list, "map": normalize_map}[shape.container]


_ZEROS: dict[type, Any] = {str: "", int: 0, bool: False, object: None}


def _element(shape: Shape, encoding: str) -> Normalizer:
    if issubclass(shape.element, Value):
        return _value(shape.element)
    return _SCALARS.get(encoding) or _PLAIN[shape.element]


def _plain(type_: type, expected: str) -> Normalizer:
    def normalize_plain(raw: Any, path: str, findings: Findings) -> Any:
        if type(raw) is not type_:  # bool is an int to isinstance()
            return findings.mismatch(raw, path, expected)
        return raw

    return normalize_plain


def _any(raw: Any, path: str, findings: Findings) -> Any:  # noqa: ARG001
    return raw


def _int_or_string(raw: Any, path: str, findings: Findings) -> Any:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        return findings.mismatch(raw, path, "int or string")
    return raw


def _quantity(raw: Any, path: str, findings: Findings) -> Any:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return findings.mismatch(raw, path, "Quantity")
    return format(Decimal(str(raw)), "f") if isinstance(raw, float) else str(raw)


def time_text(raw: str, *, micro: bool) -> str:
    """An RFC 3339 time as UTC text, with seconds or microseconds. Raises: ValueError."""
    if not _RFC3339.fullmatch(raw):
        raise ValueError(f'parsing time "{raw}" as RFC 3339: cannot parse')
    text = datetime.fromisoformat(raw).astimezone(UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return text.removesuffix("+00:00") + "Z"


def _time(micro: bool) -> Normalizer:
    canonical = len("2006-01-02T15:04:05.000000Z") if micro else len("2006-01-02T15:04:05Z")

    def normalize_time(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, str):
            return findings.mismatch(raw, path, "Time")
        try:
            text = time_text(raw, micro=micro)
        except (ValueError, OverflowError) as error:
            return findings.note(f"{path}: {error}")
        return raw if len(raw) == canonical and raw.endswith("Z") else text

    return normalize_time


_PLAIN: dict[type, Normalizer] = {
    str: _plain(str, "string"),
    bool: _plain(bool, "bool"),
    int: _plain(int, "int"),
    object: _any,
}
_SCALARS: dict[str, Normalizer] = {
    "intOrString": _int_or_string,
    "quantity": _quantity,
    "time": _time(micro=False),
    "microTime": _time(micro=True),
}
