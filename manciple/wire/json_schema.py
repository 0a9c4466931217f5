"""The JSON Schemas in definitions of custom resources, as they come: which members one has, and of which types. PURE.

`normalize` makes a document fit: null stands for absent, unknown members are told and dropped, at every depth. What a
schema may say with these members is judged by `manciple.extensions`. Source: JSONSchemaProps of
apiextensions-apiserver/pkg/apis/apiextensions/v1/types_jsonschema.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from manciple.wire.documents import as_go_number


class _Findings(Protocol):
    """What is found on the way (`manciple.wire.codec.Findings`)."""

    def warn(self, text: str) -> None: ...

    def mismatch(self, raw: Any, path: str, expected: str) -> None: ...


Read = Callable[[Any, str, _Findings], Any]


def normalize(raw: Any, path: str, findings: _Findings) -> Any:
    """The schema without what it cannot have."""
    if not isinstance(raw, dict):
        return findings.mismatch(raw, path, "JSONSchemaProps")
    fitted = {}
    for name in getattr(raw, "repeated", ()):
        findings.warn(f'duplicate field "{path}.{name}"')
    for name, value in raw.items():
        read = _MEMBERS.get(name)
        if read is None:
            findings.warn(f'unknown field "{path}.{name}"')
        elif value is not None or name == "default":
            fitted[name] = read(value, f"{path}.{name}", findings)
    return {name: value for name, value in fitted.items() if name in _KEPT or value not in ("", False, [], {}, None)}


#: Members that say something even where they are empty, false or null.
_KEPT = frozenset(
    {
        "additionalItems", "additionalProperties", "default", "example", "maxItems", "maxLength", "maxProperties",
        "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "items",
        "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-map-type",
    }
)  # fmt: skip


def _scalar(types: type | tuple[type, ...], expected: str) -> Read:
    def read(raw: Any, path: str, findings: _Findings) -> Any:
        wrong = not isinstance(raw, types) or (isinstance(raw, bool) and types is not bool)
        return findings.mismatch(raw, path, expected) if wrong else raw

    return read


_text, _flag = _scalar(str, "string"), _scalar(bool, "bool")


def _count(raw: Any, path: str, findings: _Findings) -> Any:
    is_whole = type(raw) is int and isinstance(as_go_number(raw), int)
    return raw if is_whole else findings.mismatch(raw, path, "int64")


def _number(raw: Any, path: str, findings: _Findings) -> Any:
    wrong = isinstance(raw, bool) or not isinstance(raw, int | float)
    return findings.mismatch(raw, path, "float64") if wrong else _anything(raw, path, findings)


def _anything(raw: Any, path: str, findings: _Findings) -> Any:
    """Whatever it is, with numbers that 64 bits hold."""
    if isinstance(raw, dict):
        return {name: _anything(value, f"{path}.{name}", findings) for name, value in raw.items()}
    if isinstance(raw, list):
        return [_anything(item, f"{path}[{at}]", findings) for at, item in enumerate(raw)]
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return raw
    number = as_go_number(raw)
    if number is None:
        return findings.mismatch(raw, path, "float64")
    return raw if isinstance(number, int) else number


def _list_of(read_item: Read) -> Read:
    def read(raw: Any, path: str, findings: _Findings) -> Any:
        if not isinstance(raw, list):
            return findings.mismatch(raw, path, "array")
        return [read_item(item, f"{path}[{at}]", findings) for at, item in enumerate(raw)]

    return read


def _map_of(read_item: Read) -> Read:
    def read(raw: Any, path: str, findings: _Findings) -> Any:
        if not isinstance(raw, dict):
            return findings.mismatch(raw, path, "map")
        for name in getattr(raw, "repeated", ()):
            findings.warn(f'duplicate field "{path}.{name}"')
        return {name: read_item({} if item is None else item, f"{path}.{name}", findings) for name, item in raw.items()}

    return read


def _schema_or_flag(raw: Any, path: str, findings: _Findings) -> Any:
    return raw if isinstance(raw, bool) else normalize(raw, path, findings)


def _schema_or_list(raw: Any, path: str, findings: _Findings) -> Any:
    return _schemas(raw, path, findings) if isinstance(raw, list) else normalize(raw, path, findings)


def _schema_or_texts(raw: Any, path: str, findings: _Findings) -> Any:
    return _list_of(_text)(raw, path, findings) if isinstance(raw, list) else normalize(raw, path, findings)


def _fixed(members: Mapping[str, Read]) -> Read:
    """An object with these members."""

    def read(raw: Any, path: str, findings: _Findings) -> Any:
        if not isinstance(raw, dict):
            return findings.mismatch(raw, path, "object")
        for name in raw.keys() - members.keys():
            findings.warn(f'unknown field "{path}.{name}"')
        return {
            name: members[name](value, f"{path}.{name}", findings)
            for name, value in raw.items()
            if name in members and value is not None
        }

    return read


_schemas, _schemas_by_name, _texts = _list_of(normalize), _map_of(normalize), _list_of(_text)
_rule = _fixed(
    {
        **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), _text),
        "optionalOldSelf": _flag,
    }
)

_MEMBERS: Mapping[str, Read] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "id", "$schema", "$ref", "description", "type", "format", "title", "pattern",
                "x-kubernetes-list-type", "x-kubernetes-map-type",
            ),
            _text,
        ),
        **dict.fromkeys(
            (
                "exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable",
                "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
                "x-kubernetes-int-or-string",
            ),
            _flag,
        ),
        **dict.fromkeys(
            ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), _count
        ),
        **dict.fromkeys(("maximum", "minimum", "multipleOf"), _number),
        **dict.fromkeys(("properties", "patternProperties", "definitions"), _schemas_by_name),
        **dict.fromkeys(("allOf", "oneOf", "anyOf"), _schemas),
        **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), _texts),
        **dict.fromkeys(("additionalProperties", "additionalItems"), _schema_or_flag),
        **dict.fromkeys(("default", "example"), _anything),
        "not": normalize,
        "items": _schema_or_list,
        "enum": _list_of(_anything),
        "dependencies": _map_of(_schema_or_texts),
        "externalDocs": _fixed({"description": _text, "url": _text}),
        "x-kubernetes-validations": _list_of(_rule),
    }
)  # fmt: skip
