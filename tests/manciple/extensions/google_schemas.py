"""Definitions of custom resources as client-go writes them in protobuf, by Google's runtime and a table of our own."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "double": _Field.TYPE_DOUBLE,
    "bytes": _Field.TYPE_BYTES,
}
#: message -> `name number type` of each field; `[]`: a list, `{}`: a map by name. Names are JSON's without its signs.
_MESSAGES = {
    "JSON": "raw 1 bytes",
    "SchemaOrFlag": "allows 1 bool, schema 2 Schema",
    "SchemaOrList": "schema 1 Schema, items 2 []Schema",
    "SchemaOrTexts": "schema 1 Schema, items 2 []string",
    "Docs": "description 1 string, url 2 string",
    "Rule": "rule 1 string, message 2 string, messageExpression 3 string, reason 4 string, fieldPath 5 string,"
    "optionalOldSelf 6 bool",
    "Schema": "id 1 string, schema 2 string, ref 3 string, description 4 string, type 5 string, format 6 string,"
    "title 7 string, default 8 JSON, maximum 9 double, exclusiveMaximum 10 bool, minimum 11 double,"
    "exclusiveMinimum 12 bool, maxLength 13 int64, minLength 14 int64, pattern 15 string, maxItems 16 int64,"
    "minItems 17 int64, uniqueItems 18 bool, multipleOf 19 double, enum 20 []JSON, maxProperties 21 int64,"
    "minProperties 22 int64, required 23 []string, items 24 SchemaOrList, allOf 25 []Schema, oneOf 26 []Schema,"
    "anyOf 27 []Schema, not 28 Schema, properties 29 {}Schema, additionalProperties 30 SchemaOrFlag,"
    "patternProperties 31 {}Schema, dependencies 32 {}SchemaOrTexts, additionalItems 33 SchemaOrFlag,"
    "definitions 34 {}Schema, externalDocs 35 Docs, example 36 JSON, nullable 37 bool,"
    "xkubernetespreserveunknownfields 38 bool, xkubernetesembeddedresource 39 bool,"
    "xkubernetesintorstring 40 bool, xkuberneteslistmapkeys 41 []string, xkuberneteslisttype 42 string,"
    "xkubernetesmaptype 43 string, xkubernetesvalidations 44 []Rule",
    "Names": "plural 1 string, singular 2 string, shortNames 3 []string, kind 4 string, listKind 5 string,"
    "categories 6 []string",
    "Validation": "openAPIV3Schema 1 Schema",
    "Status": "",
    "Scale": "specReplicasPath 1 string, statusReplicasPath 2 string, labelSelectorPath 3 string",
    "Subresources": "status 1 Status, scale 2 Scale",
    "ColumnHead": "name 1 string, type 2 string, format 3 string, description 4 string, priority 5 int32,"
    "jsonPath 6 string",
    "Selectable": "jsonPath 1 string",
    "Version": "name 1 string, served 2 bool, storage 3 bool, schema 4 Validation, subresources 5 Subresources,"
    "additionalPrinterColumns 6 []ColumnHead, deprecated 7 bool, deprecationWarning 8 string,"
    "selectableFields 9 []Selectable",
    "Service": "namespace 1 string, name 2 string, path 3 string, port 4 int32",
    "ClientConfig": "service 1 Service, caBundle 2 bytes, url 3 string",
    "Webhook": "clientConfig 2 ClientConfig, conversionReviewVersions 3 []string",
    "ConversionOf": "strategy 1 string, webhook 2 Webhook",
    "Spec": "group 1 string, names 3 Names, scope 4 string, versions 7 []Version, conversion 9 ConversionOf,"
    "preserveUnknownFields 10 bool",
    "Meta": "name 1 string, generateName 2 string, namespace 3 string,"
    "labels 11 {}string, annotations 12 {}string, finalizers 14 []string",
    "Definition": "metadata 1 Meta, spec 2 Spec",
}
#: What Go writes although it is empty, because no pointer leads to it.
_ZEROS = {
    "Schema": "id description type format title exclusiveMaximum exclusiveMinimum pattern uniqueItems nullable"
    " xkubernetesembeddedresource xkubernetesintorstring",
    "Rule": "rule message messageExpression fieldPath",
    "Version": "name served storage deprecated",
    "ColumnHead": "name type format description priority jsonPath",
    "Names": "plural singular kind listKind",
    "Spec": "group scope preserveUnknownFields",
}


def written(document: dict[str, Any]) -> bytes:
    """The message of a definition."""
    return bytes(
        _filled("Definition", {k: v for k, v in document.items() if k in ("metadata", "spec")}).SerializeToString()
    )


@cache
def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"schemas.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="schemas.proto", package="schemas", syntax="proto2")
    for name, parts in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for part in filter(None, parts.split(",")):
            _add(message, *part.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add(message: Any, name: str, number: str, shape: str) -> None:
    label = _Field.LABEL_REPEATED if shape[:2] in ("[]", "{}") else _Field.LABEL_OPTIONAL
    kind = shape.removeprefix("[]").removeprefix("{}")
    field = message.field.add(name=name, number=int(number), label=label)
    if shape.startswith("{}"):
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _add(entry, "key", "1", "string")
        _add(entry, "value", "2", kind)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".schemas.{message.name}.{entry.name}"
    elif kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".schemas.{kind}"


def _filled(name: str, value: Any) -> Any:
    """The message that stands for a value of JSON."""
    message = _class(name)()
    if name == "JSON":
        message.raw = json.dumps(value).encode()
        return message
    if name == "SchemaOrFlag" and isinstance(value, bool):
        return _class(name)(allows=value)
    if name.startswith("SchemaOr"):
        value = {"items": value} if isinstance(value, list) else {"schema": value}
        value |= {"allows": True} if name == "SchemaOrFlag" else {}
    for zero in _ZEROS.get(name, "").split():
        setattr(message, zero, getattr(message, zero))
    for member, part in value.items():
        _put(message, member.replace("-", "").replace("$", ""), part)
    return message


def _put(message: Any, name: str, value: Any) -> None:
    field = message.DESCRIPTOR.fields_by_name[name]
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        of = inner.fields_by_name["value"].message_type
        for key, one in value.items():
            if of is None:
                getattr(message, name)[key] = one
            else:
                getattr(message, name)[key].CopyFrom(_filled(of.name, one))
    elif field.is_repeated:
        getattr(message, name).extend(value if inner is None else (_filled(inner.name, one) for one in value))
    elif inner is not None:
        getattr(message, name).CopyFrom(_filled(inner.name, value))
    else:
        setattr(message, name, base64.b64decode(value) if field.type == _Field.TYPE_BYTES else value)
