"""What a scalar of a document must be to fit a field, and what is found wrong with a document. PURE.

A function for each type and each encoding that a field may declare (`manciple.wire.base.pb`): it takes what JSON has
and gives what the field has, as lenient as Go's decoder is; what does not fit is noted with its path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from manciple.wire import json_schema
from manciple.wire.base import time_text
from manciple.wire.quantity import Quantity

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_BASE64_BEGINNING = re.compile(r"[A-Za-z0-9+/]*")

#: Wrong values that one answer tells of.
MOST_WRONG = 20
#: Unknown and repeated fields that one answer tells of.
MOST_STRICT = 500


@dataclass(slots=True)
class Findings:
    """What is wrong with one document. `strict`: unknown and repeated fields; `wrong`: values no type can take."""

    strict: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Note an unknown or repeated field."""
        if len(self.strict) < MOST_STRICT:
            self.strict.append(text)

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


def joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


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


def _strings(raw: Any, path: str, findings: Findings) -> Any:
    if not isinstance(raw, list | tuple):
        return findings.mismatch(raw, path, "array")
    return ["" if item is None else PLAIN[str](item, f"{path}[{at}]", findings) for at, item in enumerate(raw)]


def _name(raw: Any, path: str, findings: Findings) -> Any:
    if not isinstance(raw, dict):
        return PLAIN[str](raw, path, findings)
    for key in raw.keys() - {"name"}:
        findings.warn(f'unknown field "{joined(path, key)}"')
    return PLAIN[str](raw.get("name", ""), joined(path, "name"), findings)


def _quantity(raw: Any, path: str, findings: Findings) -> Any:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return findings.mismatch(raw, path, "Quantity")
    text = format(Decimal(str(raw)), "f") if isinstance(raw, float) else str(raw)
    try:
        Quantity.parse(text)
    except ValueError as error:
        return findings.note(f"{path}: {error}")
    return text


def _base64(raw: Any, path: str, findings: Findings) -> Any:
    """As Go reads it: padded, in lines or not."""
    if not isinstance(raw, str):
        return findings.mismatch(raw, path, "[]uint8")
    text = raw.replace("\r", "").replace("\n", "") if "\n" in raw or "\r" in raw else raw
    if len(text) % 4 or not _BASE64.fullmatch(text):
        ends = _BASE64_BEGINNING.match(text)
        return findings.note(f"illegal base64 data at input byte {ends.end() if ends else 0}")
    return text


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


PLAIN: dict[type, Normalizer] = {
    str: _plain(str, "string"),
    bool: _plain(bool, "bool"),
    int: _plain(int, "int"),
    object: _any,
}
SCALARS: dict[str, Normalizer] = {
    "intOrString": _int_or_string,
    "bytes": _base64,
    "strings": _strings,
    "name": _name,
    "quantity": _quantity,
    "time": _time(micro=False),
    "microTime": _time(micro=True),
    "jsonSchema": json_schema.normalize,
}
