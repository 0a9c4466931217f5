"""Structural schemas as types of the language CEL, and documents as values of them. PURE.

A field whose schema says too little is not there, names that are no identifiers are escaped (`escape`), texts with a
format are times or bytes. Each type knows how large its values can become, which costs are estimated by.
Source: apiserver/pkg/cel/common/schemas.go, pkg/cel/escaping.go.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from manciple.cel.conversions import string_to_duration, string_to_timestamp
from manciple.cel.errors import EvaluationError
from manciple.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    TypeKind,
    list_of,
    map_of,
)
from manciple.cel.values import CelMap
from manciple.extensions.structure import Schema, SchemaNode, node_of

#: Bytes of a request, by which sizes are estimated that nothing limits.
REQUEST_BYTES = 3 * 1024 * 1024

# Names ----------------------------------------------------------------------------------------------------------------


_RESERVED = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
        "let", "loop", "package", "namespace", "return", "var", "void", "while",
    }
)  # fmt: skip
_ESCAPABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_./-]*")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escape(name: str) -> str | None:
    """The name by which expressions know a field; None where they cannot."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _ESCAPABLE.fullmatch(name):
        return None
    return re.sub(r"__|[./-]", lambda match: _ESCAPES[match[0]], name)


# Types ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """A schema as a type of the language.

    least: bytes of the smallest value as JSON. most: elements, or bytes of a text; None where that says nothing.
    names: field -> what expressions call it.
    """

    type: CelType
    node: SchemaNode
    least: int
    most: int | None = None
    fields: Mapping[str, Declared] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    element: Declared | None = None

    def at(self, path: tuple[str, ...]) -> Declared | None:
        """What lies at a path of the cost estimate below this."""
        found: Declared | None = self
        for name in path:
            if found is None:
                return None
            if name in ("@items", "@values"):
                found = found.element
            elif name == "@keys":
                return _KEY if found.type.kind is TypeKind.MAP else None
            else:
                found = found.fields.get(name)
        return found

    def structs(self) -> Iterator[tuple[str, Mapping[str, CelType]]]:
        if self.type.kind is TypeKind.STRUCT:
            yield self.type.name, {name: one.type for name, one in self.fields.items()}
        for one in (*self.fields.values(), *([self.element] if self.element else ())):
            yield from one.structs()


#: The keys of maps.
_KEY = Declared(STRING, SchemaNode({}, type="string"), 2)
_ROOT_FIELDS: Schema = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
    },
}
#: format -> (type, bytes of the smallest, bytes of the largest value)
_TIMES = {
    "duration": (DURATION, 4, 32),
    "date": (TIMESTAMP, 12, 12),
    "date-time": (TIMESTAMP, 22, 37),
}
_PLAIN = {"boolean": (BOOL, 4), "number": (DOUBLE, 1), "integer": (INT, 1)}


def declare(node: SchemaNode, *, root: bool = False, path: str = "object") -> Declared | None:
    """The schema's type; None where it says too little for one. root: an object with a head, embedded ones too."""
    schema = node.raw
    if node.int_or_string:
        most = max(schema["maxLength"], 0) * 4 if "maxLength" in schema else REQUEST_BYTES - 2
        return Declared(DYN, node, 1, most)
    if node.type == "array":
        return _declared_list(node, path)
    if node.type == "object" or root:
        return _declared_map(node, path) if node.values is not None else _declared_struct(node, path, root=root)
    if node.type == "string":
        return _declared_text(node)
    plain = _PLAIN.get(node.type)
    return Declared(plain[0], node, plain[1]) if plain else None


def _declared_list(node: SchemaNode, path: str) -> Declared | None:
    of_items = declare(node.items, root=node.items.embedded, path=f"{path}.@idx") if node.items else None
    if of_items is None:
        return None
    most = node.raw.get("maxItems")
    most = (REQUEST_BYTES - 2) // (of_items.least + 1) if most is None else max(most, 0)
    return Declared(list_of(of_items.type), node, 2, most, element=of_items)


def _declared_map(node: SchemaNode, path: str) -> Declared | None:
    of_values = declare(node.values, root=node.values.embedded, path=f"{path}.@prop") if node.values else None
    if of_values is None:
        return None
    most = node.raw.get("maxProperties")
    most = (REQUEST_BYTES - 2) // (of_values.least + 6) if most is None else max(most, 0)
    return Declared(map_of(STRING, of_values.type), node, 2, most, element=of_values)


def _declared_struct(node: SchemaNode, path: str, *, root: bool) -> Declared:
    parts = dict(node.properties)
    if root:
        parts |= {name: node_of(schema) for name, schema in _ROOT_FIELDS.items()}
    wanted, least = frozenset(node.raw.get("required", ())), 2
    fields: dict[str, Declared] = {}
    names: dict[str, str] = {}
    for name, part in parts.items():
        declared = declare(part, root=part.embedded, path=f"{path}.{name}")
        if declared is None:
            continue
        if (known := escape(name)) is not None:
            fields[known], names[name] = declared, known
        if name in wanted and not part.has_default:
            least += len(name) + declared.least + 4
    return Declared(CelType(TypeKind.STRUCT, path), node, least, 0, fields=fields, names=names)


def _declared_text(node: SchemaNode) -> Declared:
    schema, longest = node.raw, node.raw.get("maxLength")
    format_ = schema.get("format", "")
    if format_ in _TIMES:
        type_, least, most = _TIMES[format_]
        return Declared(type_, node, least, most)
    if format_ == "byte":
        return Declared(BYTES, node, 2, REQUEST_BYTES - 2 if longest is None else max(longest, 0))
    if longest is not None:
        return Declared(STRING, node, 2, max(longest, 0) * 4)
    words = [len(one.encode()) for one in schema.get("enum", ()) if isinstance(one, str)]
    return Declared(STRING, node, 2, max(words) if words else REQUEST_BYTES - 2)


# Values ---------------------------------------------------------------------------------------------------------------


def value_of(document: Any, declared: Declared | None) -> Any:
    """What an expression sees of a value that fits its schema."""
    if declared is None or document is None:
        return document
    if isinstance(document, dict):
        return _map_value(document, declared)
    if isinstance(document, list):
        return [value_of(item, declared.element) for item in document]
    if declared.type is DOUBLE and isinstance(document, int) and not isinstance(document, bool):
        return float(document)
    if isinstance(document, str) and declared.type in (TIMESTAMP, DURATION, BYTES):
        return _read(document, declared)
    return document


def _map_value(document: dict[str, Any], declared: Declared) -> CelMap:
    if declared.element is not None:
        return CelMap((key, value_of(item, declared.element)) for key, item in document.items())
    return CelMap(
        (known, value_of(document[name], declared.fields[known]))
        for name, known in declared.names.items()
        if name in document
    )


def _read(text: str, declared: Declared) -> Any:
    try:
        if declared.type is BYTES:
            return base64.b64decode(text)
        if declared.type is DURATION:
            return string_to_duration(text)
        if declared.node.raw.get("format") == "date":
            return string_to_timestamp(f"{datetime.strptime(text, '%Y-%m-%d').date().isoformat()}T00:00:00Z")  # noqa: DTZ007 - a day
        return string_to_timestamp(text)
    except (EvaluationError, ValueError, binascii.Error) as error:
        return EvaluationError(str(error))
