"""OpenAPI schemas and merge rules, derived from the declarations of the types.

`components` (OpenAPI v3) and `definitions` (v2) hold the schemas of the given kinds, of their lists and of everything
they refer to, named and extended as Kubernetes does, so that kubectl can explain, diff and patch.
`manciple.wire.patch` asks `list_merge_key` and `field_type`.
Sources: kube-openapi/pkg/builder3; apimachinery/pkg/util/strategicpatch/meta.go.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from manciple.wire.base import (
    ASIDE,
    MERGE_SCALARS,
    REPLACED,
    ApiObject,
    Declaration,
    ObjectMeta,
    Value,
    declarations,
    declarations_by_name,
    is_atomic,
)
from manciple.wire.machinery import DeleteOptions, ListMeta, Status

Schema = dict[str, Any]
Dialect = Literal["v2", "v3"]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_JSON_SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
_RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"

#: The schema that stands for each encoding.
_ENCODED = MappingProxyType(
    {
        "quantity": _QUANTITY,
        "time": f"{META}.Time",
        "microTime": f"{META}.MicroTime",
        "intOrString": _INT_OR_STRING,
        "raw": _RAW_EXTENSION,
        "fieldsV1": f"{META}.FieldsV1",
        "jsonSchema": _JSON_SCHEMA,
    }
)

#: Schemas that no type declares. `number` in v3, text in v2, as upstream.
_FIXED: MappingProxyType[str, Schema] = MappingProxyType(
    {
        _QUANTITY: {"description": "An exact amount with an optional suffix: 1.5Gi, 500m, 2e3.", "type": "string"},
        _INT_OR_STRING: {"description": "A number or a name.", "type": "string", "format": "int-or-string"},
        _JSON_SCHEMA: {"description": "A JSON Schema, restricted to structural schemas.", "type": "object"},
        _RAW_EXTENSION: {"description": "Any JSON object.", "type": "object"},
        f"{META}.Time": {"description": "RFC 3339, in UTC.", "type": "string", "format": "date-time"},
        f"{META}.MicroTime": {
            "description": "RFC 3339 with microseconds, in UTC.",
            "type": "string",
            "format": "date-time",
        },
        f"{META}.FieldsV1": {"description": "The fields that a manager set, as a trie.", "type": "object"},
        f"{META}.Patch": {
            "description": "A patch of an object, in the format that Content-Type says.",
            "type": "object",
        },
    }
)
_FIXED_V3: MappingProxyType[str, Schema] = MappingProxyType(
    {
        _QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
        _INT_OR_STRING: {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    }
)

_HEAD = MappingProxyType(
    {
        "api_version": "The version of the schema of this object: GROUP/VERSION.",
        "kind": "What this object is, in CamelCase.",
        "metadata": "Names, labels, ownership and versions of this object.",
    }
)


def kind_name(group: str, version: str, kind: str, *, is_open: bool = False) -> str:
    """How OpenAPI calls a kind. is_open: no type declares it."""
    if is_open:
        return ".".join((*reversed(group.split(".")), version, kind))
    return f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{kind}"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind under one of its versions. `type` may be that of another version with the same shape."""

    group: str
    version: str
    kind: str
    type: type[ApiObject]
    #: of a kind that no type declares: its schema, without its head
    declared: Mapping[str, Any] | None = None
    list_kind: str = ""
    #: whether there are lists of it
    is_stored: bool = True

    @property
    def name(self) -> str:
        """The schema's name: io.k8s.api.resource.v1.ResourceClaim; com.example.v1.Widget."""
        return kind_name(self.group, self.version, self.kind, is_open=self.declared is not None)

    @property
    def list_name(self) -> str:
        return kind_name(self.group, self.version, self.listed_as, is_open=self.declared is not None)

    @property
    def listed_as(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @property
    def identity(self) -> list[dict[str, str]]:
        return [{"group": self.group, "kind": self.kind, "version": self.version}]


def components(kinds: Iterable[ServedKind]) -> dict[str, Schema]:
    """The `components.schemas` of an OpenAPI v3 document."""
    return _Collection("v3").of(kinds)


def definitions(kinds: Iterable[ServedKind]) -> dict[str, Schema]:
    """The `definitions` of an OpenAPI v2 document."""
    return _Collection("v2").of(kinds)


def schema_name(type_: type[Value]) -> str:
    """The name under which a type stands in OpenAPI. Raises: AttributeError where its module has no PACKAGE."""
    own: str = type_.__dict__.get("SCHEMA", "")
    return own or f"{sys.modules[type_.__module__].PACKAGE}.{type_.__name__}"


def list_merge_key(type_: Any, json_field: str, /) -> str | None:
    """The merge key of a list field in a strategic merge patch; REPLACED for an object that is replaced whole.

    MERGE_SCALARS where the list is merged as a set; None where it is replaced whole, or where there is no such field.
    """
    declared = _declared(type_, json_field)
    return (declared.merge_key or None) if declared else None


def field_type(type_: Any, json_field: str, /) -> Any:
    """The type of a field's value; of its elements, for a list.

    A map is dict[str, E], whose every key has the type E. None where nothing is known of the value: an unknown field,
    raw JSON, and what lies inside of it.
    """
    if get_origin(type_) is dict:
        return get_args(type_)[1]
    declared = _declared(type_, json_field)
    if declared is None or declared.shape.element is object:
        return None
    element: Any = declared.shape.element
    return dict[str, element] if declared.shape.container == "map" else element


def _declared(type_: Any, json_field: str) -> Declaration | None:
    if not (isinstance(type_, type) and issubclass(type_, Value)):
        return None
    return declarations_by_name(type_).get(json_field)


class _Collection:
    """The schemas of one document, gathered by following references."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._prefix = "#/components/schemas/" if dialect == "v3" else "#/definitions/"
        self._schemas: dict[str, Schema] = {}

    def of(self, kinds: Iterable[ServedKind]) -> dict[str, Schema]:
        for served in kinds:
            self._add_kind(served)
        for type_ in (ObjectMeta, ListMeta, Status, DeleteOptions):
            self._reference(type_)
        self._named(f"{META}.Patch")
        return dict(sorted(self._schemas.items()))

    def _add_kind(self, served: ServedKind) -> None:
        described = self._object(served.type) if served.declared is None else self._open(served.declared)
        self._schemas[served.name] = {**described, "x-kubernetes-group-version-kind": served.identity}
        if not served.is_stored:
            return
        listed = served.listed_as
        self._schemas[served.list_name] = {
            "description": f"A list of {served.kind} objects.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"description": _HEAD["api_version"], "type": "string"},
                "kind": {"description": _HEAD["kind"], "type": "string"},
                "metadata": self._described(self._reference(ListMeta), "Metadata of the list."),
                "items": {"type": "array", "items": self._ref(served.name), "description": "The objects."},
            },
            "x-kubernetes-group-version-kind": [{"group": served.group, "kind": listed, "version": served.version}],
        }

    def _open(self, declared: Mapping[str, Any]) -> Schema:
        """The schema with the head that all objects have."""
        head = {
            "apiVersion": {"description": _HEAD["api_version"], "type": "string"},
            "kind": {"description": _HEAD["kind"], "type": "string"},
            "metadata": self._described(self._reference(ObjectMeta), _HEAD["metadata"]),
        }
        return {**declared, "type": "object", "properties": {**head, **declared.get("properties", {})}}

    def _object(self, type_: type[Value]) -> Schema:
        texts = _descriptions(type_)
        properties = {
            declared.name: self._property(
                declared,
                _field_text(texts.get(declared.attribute, ""), declared.shape.element)
                or _common_text(type_, declared.attribute),
            )
            for declared in declarations(type_)
            if not declared.aside and not _is_undocumented(declared)
        }
        schema: Schema = {"type": "object"}
        if issubclass(type_, _OF_BODIES):
            schema = {"description": _summary(type_), **schema}
        if is_atomic(type_):
            schema["x-kubernetes-map-type"] = "atomic"
        return {**schema, "properties": properties} if properties else schema

    def _property(self, declared: Declaration, text: str) -> Schema:
        element = self._element(declared)
        if declared.shape.container == "map":
            return _with_text({"type": "object", "additionalProperties": element}, text)
        if declared.shape.container == "list":
            return _with_text({"type": "array", "items": element, **_list_extensions(declared)}, text)
        described = self._described(element, text)
        return {**described, "x-kubernetes-patch-strategy": "replace"} if declared.merge_key == REPLACED else described

    def _element(self, declared: Declaration) -> Schema:
        element = declared.shape.element
        if issubclass(element, Value):
            return self._reference(element)
        if declared.encoding == "bytes":
            return {"type": "string", "format": "byte"}
        if declared.encoding == "strings":
            return {"type": "array", "items": {"type": "string"}}
        if declared.encoding == "name":
            return {"type": "string"}
        if declared.encoding:
            return self._named(_ENCODED[declared.encoding])
        return dict(_scalar(element, declared.shape.bits))

    def _reference(self, type_: type[Value]) -> Schema:
        name = schema_name(type_)
        if name not in self._schemas:
            self._schemas[name] = {}  # named before it is filled: types may refer to each other
            self._schemas[name] = self._object(type_)
        return self._ref(name)

    def _named(self, name: str) -> Schema:
        schema = dict(_FIXED[name])
        if self._dialect == "v3" and name in _FIXED_V3:
            schema = {"description": schema["description"], **_FIXED_V3[name]}
        self._schemas[name] = schema
        return self._ref(name)

    def _ref(self, name: str) -> Schema:
        return {"$ref": f"{self._prefix}{name}"}

    def _described(self, schema: Schema, text: str) -> Schema:
        """A schema with a description; v3 allows none beside a reference."""
        if text and "$ref" in schema and self._dialect == "v3":
            return {"description": text, "allOf": [schema]}
        return _with_text(schema, text)


#: The types of whole bodies describe themselves; the others are described by the fields of these types.
_OF_BODIES = (ApiObject, Status)


def _field_text(text: str, element: Any) -> str:
    """The description of a field, followed by that of its type unless the type has one of its own.

    kubectl prints the description of a field, and after it that of the type that its schema refers to: a text that is
    in both is printed twice. In lists of fields it prints the former only, so that has all.
    """
    summary = "" if isinstance(element, type) and issubclass(element, _OF_BODIES) else _summary_of(element)
    return text if summary in text else f"{text} {summary}".strip()


#: Fields that mean the same in every type whose docstring does not describe them.
_EVERYWHERE: Mapping[str, str] = {
    "conditions": "What holds for the object at the moment.",
    "message": "The same as the reason, for people.",
    "observed_generation": "The metadata.generation that this is about.",
    "reason": "Why, as one word in CamelCase.",
}
_OF_CONDITIONS: Mapping[str, str] = {
    "last_heartbeat_time": "When it was last reported.",
    "last_probe_time": "When it was last checked.",
    "last_transition_time": "When its status last changed.",
    "last_update_time": "When it was last written.",
    "status": "True, False or Unknown.",
}
_OF_OBJECTS: Mapping[str, str] = {"spec": "What is wanted.", "status": "What there is; written by the system."}


def _common_text(type_: type[Value], attribute: str) -> str:
    if issubclass(type_, ApiObject):
        return _OF_OBJECTS.get(attribute, "")
    is_condition = type_.__name__.endswith("Condition")
    return _EVERYWHERE.get(attribute, _OF_CONDITIONS.get(attribute, "") if is_condition else "")


def _with_text(schema: Schema, text: str) -> Schema:
    return {"description": text, **schema} if text else schema


def _is_undocumented(declared: Declaration) -> bool:
    return declared.undocumented() if callable(declared.undocumented) else declared.undocumented


def _scalar(element: type, bits: int) -> Schema:
    if element is int:
        return {"type": "integer", "format": f"int{bits}"}
    return {"type": "boolean" if element is bool else "string"}


def _list_extensions(declared: Declaration) -> Schema:
    """How server-side apply and strategic merge treat a list."""
    if declared.merge_key == MERGE_SCALARS:
        return {"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"}
    extensions: Schema = {"x-kubernetes-list-type": "map" if declared.list_keys else "atomic"}
    if declared.list_keys:
        extensions["x-kubernetes-list-map-keys"] = list(declared.list_keys)
    if declared.merge_key:
        extensions["x-kubernetes-patch-merge-key"] = declared.merge_key
        retained = declared.retain_keys() if callable(declared.retain_keys) else declared.retain_keys
        extensions["x-kubernetes-patch-strategy"] = "merge,retainKeys" if retained else "merge"
    return extensions


# Descriptions --------------------------------------------------------------------------------------------------------


#: An attribute whose name in JSON is another.
_ATTRIBUTE = re.compile(r"\b[a-z][a-z0-9]*_[a-z0-9_]*\b")


def _summary(type_: type[Value]) -> str:
    """The first paragraph of a docstring, up to the first field that it describes."""
    first, *_ = _paragraphs(type_)
    head = _heads(type_).search(first)
    return _sentence(first[: head.start()] if head else first)


def _summary_of(element: Any) -> str:
    """Of a type that does not describe itself."""
    is_value = isinstance(element, type) and issubclass(element, Value)
    return _summary(element) if is_value and not issubclass(element, _OF_BODIES) else ""


@cache
def _descriptions(type_: type[Value]) -> dict[str, str]:
    """The descriptions of attributes, from the docstrings of a type, of its bases and of another version's type."""
    texts = dict(_descriptions(type_.DESCRIBED_AS)) if type_.DESCRIBED_AS is not None else {}
    for one in reversed(type_.__mro__):
        if issubclass(one, Value) and declarations(one):
            texts.update(_described_attributes(one))
    return {**texts, **_HEAD} if issubclass(type_, ApiObject) else texts


def _described_attributes(type_: type[Value]) -> dict[str, str]:
    attributes = {_name(one): one.attribute for one in declarations(type_)}
    found: dict[str, str] = {}
    for text in _paragraphs(type_):
        heads = list(_heads(type_).finditer(text))
        for head, following in zip_longest(heads, heads[1:]):
            described = _sentence(text[head.end() : following.start() if following else None])
            names = re.findall(r"\w+", head[1])
            found.update({attributes[name]: described for name in names if name in attributes})
    return found


@cache
def _paragraphs(type_: type[Value]) -> tuple[str, ...]:
    """Those of the docstring, which name fields as JSON does."""
    names = {one.attribute: _name(one) for one in declarations(type_)}
    text = _ATTRIBUTE.sub(lambda match: names.get(match[0]) or _camel(match[0]), cleandoc(type_.__doc__ or ""))
    return tuple(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


@cache
def _heads(type_: type[Value]) -> re.Pattern[str]:
    """The names of fields, with the colon before their description."""
    names = "|".join(sorted(map(_name, declarations(type_)), key=len, reverse=True)) or r"(?!)"
    return re.compile(rf"(?:^|(?<=[.;?!] ))((?:`?(?:{names})`?(?:, | and )?)+): ")


def _name(declared: Declaration) -> str:
    return declared.name.removeprefix(ASIDE)


def _camel(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(word.capitalize() for word in others)


def _sentence(text: str) -> str:
    text = text.strip().rstrip(";")
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else "." if text else "")
