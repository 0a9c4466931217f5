"""Objects of the API between JSON documents and protobuf bodies, the way client-go writes and reads them.

The messages' field names are those of JSON. Where JSON has a scalar and protobuf a message (times, quantities, raw
JSON), and where a Go struct is embedded, the two differ; that is all this module knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.plugin_driver.messages import Messages

PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON = "application/json"
MAGIC = b"k8s\x00"
#: The field that holds the message of an embedded struct, whose members stand beside it in JSON.
EMBEDDED = "deviceConfiguration"

Document = dict[str, Any]

#: message -> its fields that are no pointers in Go
ZEROS: Mapping[str, tuple[str, ...]] = {
    "ObjectMeta": (
        *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
        "creationTimestamp",
    ),
    "OwnerReference": ("apiVersion", "kind", "name", "uid"),
    "ResourcePool": ("name", "generation", "resourceSliceCount"),
    "DeviceTaint": ("key", "value", "effect"),
    "AllocatedDeviceStatus": ("driver", "pool", "device"),
    "Condition": ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"),
}


def message_name(api_version: str, kind: str) -> str:
    """The full name of the message of an object."""
    if kind == "DeleteOptions":
        return "machinery.DeleteOptions"
    version = "v1beta1" if api_version.endswith("v1beta1") else "v1"
    return f"resource.{version}.{kind}"


def write_protobuf(messages: Messages, document: Document) -> bytes:
    """The body of an object: the magic bytes and the envelope around its message."""
    api_version, kind = document["apiVersion"], document["kind"]
    message = messages[message_name(api_version, kind)]()
    fill(message, {key: value for key, value in document.items() if key not in {"apiVersion", "kind"}})
    write_zeros(message)
    envelope = messages["machinery.Unknown"](
        typeMeta={"apiVersion": api_version, "kind": kind}, raw=message.SerializeToString(), contentEncoding=""
    )
    return MAGIC + bytes(envelope.SerializeToString())


def write_zeros(message: Any) -> None:
    """Go writes what is no pointer even when it is zero: empty texts, zeros, and a time that is not set as an empty
    message. A reader must take them for absent."""
    for name in ZEROS.get(message.DESCRIPTOR.name, ()):
        if not message.HasField(name):
            target = getattr(message, name)
            target.SetInParent() if hasattr(target, "SetInParent") else setattr(message, name, target)
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else (value,):
            write_zeros(one)


def read(messages: Messages, body: bytes, content_type: str) -> Document:
    """The document of an answer, whichever of the two encodings the server chose."""
    if not content_type.startswith(PROTOBUF):
        return dict(json.loads(body))
    assert body.startswith(MAGIC), f"no Kubernetes protobuf: {body[:20]!r}"
    envelope = messages["machinery.Unknown"].FromString(body[len(MAGIC) :])
    head = {"apiVersion": envelope.typeMeta.apiVersion, "kind": envelope.typeMeta.kind}
    message = messages[message_name(head["apiVersion"], head["kind"])].FromString(envelope.raw)
    return head | document_of(message)


def fill(message: Any, document: Document) -> None:
    """Set the fields of `message` that `document` has. Raises: KeyError for one that the message does not know."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in document.items():
        if value is None:
            continue
        if name not in fields and EMBEDDED in fields:
            fill(getattr(message, EMBEDDED), {name: value})
            continue
        _set(message, fields[name], value)


def _set(message: Any, field: Any, value: Any) -> None:
    target = getattr(message, field.name)
    if field.message_type is None:
        target.extend(value) if field.is_repeated else setattr(message, field.name, value)
    elif field.message_type.GetOptions().map_entry:
        _set_map(target, field.message_type.fields_by_name["value"], value)
    elif field.is_repeated:
        for one in value:
            _set_message(target.add(), one)
    else:
        target.SetInParent()
        _set_message(target, value)


def _set_map(target: Any, field: Any, value: Document) -> None:
    for key, one in value.items():
        if field.message_type is None:
            target[key] = one
        else:
            _set_message(target[key], one)


def _set_message(message: Any, value: Any) -> None:
    match message.DESCRIPTOR.name:
        case "Quantity":
            message.string = str(value)
        case "Time":
            message.seconds = int(datetime.fromisoformat(value).timestamp())
            message.nanos = 0
        case "RawExtension":
            message.raw = json.dumps(value).encode()
        case "FieldsV1":
            message.Raw = json.dumps(value).encode()
        case _:
            fill(message, value)


def document_of(message: Any) -> Document:
    """What is set in `message`, as JSON has it."""
    found: Document = {}
    for field, value in message.ListFields():
        if field.name == EMBEDDED:
            found |= document_of(value)
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {key: _one(inner, one) for key, one in value.items()}
    return [_one(field, one) for one in value] if field.is_repeated else _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.message_type is None:
        return value
    match field.message_type.name:
        case "Quantity":
            return value.string
        case "Time":
            return datetime.fromtimestamp(value.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case "RawExtension":
            return json.loads(value.raw)
        case "FieldsV1":
            return json.loads(value.Raw)
        case _:
            return document_of(value)
