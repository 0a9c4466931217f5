"""JSON schemas as protobuf carries them in a CustomResourceDefinition: messages read as documents. PURE.

A message is a table of its fields. A schema that was read is then made to fit like one that came as JSON
(`json_schema`), so both are stored alike. Field numbers: generated.proto of
apiextensions-apiserver/pkg/apis/apiextensions/v1.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from manciple.wire import documents, json_schema
from manciple.wire.documents import MAX_DEPTH, MAX_VALUES
from manciple.wire.errors import BadRequest
from manciple.wire.wireformat import Payload, fields, malformed, signed, text

_NOTHING = memoryview(b"")
_DOUBLE_BYTES = 8


@dataclass(slots=True)
class _Reading:
    """What one message may still hold, and how deep it stands."""

    left: int = MAX_VALUES
    depth: int = 0


ReadPart = Callable[[_Reading, Payload], Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """A field. name: in JSON. many: "" (the last counts), "list" or "map"."""

    name: str
    read: ReadPart
    many: str = ""


_Parts = Mapping[int, _Part]


class _Findings:
    """A number that JSON cannot hold is all that can be wrong with what was read."""

    def warn(self, text: str) -> None:
        """Nothing that was read is unknown."""

    def mismatch(self, _raw: Any, path: str, expected: str) -> None:
        raise malformed(f"{path} is no {expected}")


def read_schema(payload: Payload) -> Any:
    """JSONSchemaProps. Raises: BadRequest."""
    return json_schema.normalize(_schema(_Reading(), payload), "openAPIV3Schema", _Findings())


# Messages -------------------------------------------------------------------------------------------------------------


def _read(parts: _Parts, reading: _Reading, payload: Payload) -> dict[str, Any]:
    if reading.depth > MAX_DEPTH:
        raise malformed(f"it nests deeper than {MAX_DEPTH} levels")
    reading.depth += 1
    found: dict[str, Any] = {}
    for number, _, part in fields(_bytes(payload)):
        if (known := parts.get(number)) is not None:
            reading.left -= 1
            if reading.left < 0:
                raise malformed(f"it holds more than {MAX_VALUES} values")
            _put(found, known, reading, part)
    reading.depth -= 1
    return found


def _put(found: dict[str, Any], part: _Part, reading: _Reading, payload: Payload) -> None:
    if part.many == "list":
        found.setdefault(part.name, []).append(part.read(reading, payload))
    elif part.many == "map":
        entry = {number: one for number, _, one in fields(_bytes(payload))}
        value = part.read(reading, entry.get(2, _NOTHING))
        found.setdefault(part.name, {})[text(entry.get(1, _NOTHING))] = value
    else:
        found[part.name] = part.read(reading, payload)


def _filled(parts: _Parts, reading: _Reading, payload: Payload) -> dict[str, Any]:
    """Without empty texts: Go writes them where nothing stands."""
    return {name: value for name, value in _read(parts, reading, payload).items() if value != ""}


def _bytes(payload: Payload) -> memoryview:
    if isinstance(payload, int):
        raise malformed("a number stands where a message is expected")
    return payload


def _text(_reading: _Reading, payload: Payload) -> str:
    return text(payload)


def _number(_reading: _Reading, payload: Payload) -> int:
    if not isinstance(payload, int):
        raise malformed("bytes stand where a number is expected")
    return signed(payload)


def _flag(reading: _Reading, payload: Payload) -> bool:
    return _number(reading, payload) != 0


def _double(_reading: _Reading, payload: Payload) -> float | int:
    data = _bytes(payload)
    if len(data) != _DOUBLE_BYTES:
        raise malformed("a number of eight bytes is expected")
    (value,) = struct.unpack("<d", data)
    if value - value != 0:
        raise malformed("JSON has no such number")
    return documents.as_go_writes(value)


def _base64(_reading: _Reading, payload: Payload) -> str:
    return base64.b64encode(_bytes(payload)).decode()


def _json(reading: _Reading, payload: Payload) -> Any:
    raw = _read({1: _Part("raw", lambda _, data: bytes(_bytes(data)))}, reading, payload).get("raw")
    if not raw:
        return None
    try:
        return documents.parse(raw, media="application/json")
    except BadRequest as error:
        raise malformed(f"an embedded document is not JSON: {error.message}") from error


def _schema(reading: _Reading, payload: Payload) -> dict[str, Any]:
    return _read(_SCHEMA, reading, payload)


def _schema_or_flag(reading: _Reading, payload: Payload) -> Any:
    found = _read({1: _Part("allows", _flag), 2: _Part("schema", _schema)}, reading, payload)
    return found["schema"] if "schema" in found else found.get("allows", False)


def _schema_or_list(items: ReadPart, reading: _Reading, payload: Payload) -> Any:
    found = _read({1: _Part("schema", _schema), 2: _Part("items", items, "list")}, reading, payload)
    return found["items"] if "items" in found else found.get("schema")


_RULE: _Parts = {
    1: _Part("rule", _text),
    2: _Part("message", _text),
    3: _Part("messageExpression", _text),
    4: _Part("reason", _text),
    5: _Part("fieldPath", _text),
    6: _Part("optionalOldSelf", _flag),
}
_SCHEMA: _Parts = {
    1: _Part("id", _text),
    2: _Part("$schema", _text),
    3: _Part("$ref", _text),
    4: _Part("description", _text),
    5: _Part("type", _text),
    6: _Part("format", _text),
    7: _Part("title", _text),
    8: _Part("default", _json),
    9: _Part("maximum", _double),
    10: _Part("exclusiveMaximum", _flag),
    11: _Part("minimum", _double),
    12: _Part("exclusiveMinimum", _flag),
    13: _Part("maxLength", _number),
    14: _Part("minLength", _number),
    15: _Part("pattern", _text),
    16: _Part("maxItems", _number),
    17: _Part("minItems", _number),
    18: _Part("uniqueItems", _flag),
    19: _Part("multipleOf", _double),
    20: _Part("enum", _json, "list"),
    21: _Part("maxProperties", _number),
    22: _Part("minProperties", _number),
    23: _Part("required", _text, "list"),
    24: _Part("items", partial(_schema_or_list, _schema)),
    25: _Part("allOf", _schema, "list"),
    26: _Part("oneOf", _schema, "list"),
    27: _Part("anyOf", _schema, "list"),
    28: _Part("not", _schema),
    29: _Part("properties", _schema, "map"),
    30: _Part("additionalProperties", _schema_or_flag),
    31: _Part("patternProperties", _schema, "map"),
    32: _Part("dependencies", partial(_schema_or_list, _text), "map"),
    33: _Part("additionalItems", _schema_or_flag),
    34: _Part("definitions", _schema, "map"),
    35: _Part("externalDocs", partial(_filled, {1: _Part("description", _text), 2: _Part("url", _text)})),
    36: _Part("example", _json),
    37: _Part("nullable", _flag),
    38: _Part("x-kubernetes-preserve-unknown-fields", _flag),
    39: _Part("x-kubernetes-embedded-resource", _flag),
    40: _Part("x-kubernetes-int-or-string", _flag),
    41: _Part("x-kubernetes-list-map-keys", _text, "list"),
    42: _Part("x-kubernetes-list-type", _text),
    43: _Part("x-kubernetes-map-type", _text),
    44: _Part("x-kubernetes-validations", partial(_filled, _RULE), "list"),
}
