"""What every value of the API is made of: frozen, typed structs that carry their protobuf field numbers.

A kind is declared once, as a tree of `Value`s. JSON and protobuf decoding, strict-field checks, OpenAPI schemas and
`kubectl explain` all derive from that one declaration:

    class DeviceToleration(Value):
        key: Annotated[str, pb(1)] = ""
        operator: Annotated[str, pb(2)] = ""

Conventions:
- attributes are snake_case in Python and camelCase on the wire (`msgspec.field(name="shareID")` where that rule is wrong);
- a Go pointer, or a Go scalar whose zero value differs from "absent", is `T | None = None`; other strings default to "";
- a Go slice is a `tuple[T, ...]`, a Go map a `dict[str, T]`; absent and empty are the same value;
- a non-pointer struct defaults to its empty value and may be left out;
- values are never changed in place: `msgspec.structs.replace` makes the next one.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

#: Any JSON value that the API carries without looking inside (runtime.RawExtension, FieldsV1, IntOrString aside).
Raw = Any


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """An API value. `gc=False` because documents are trees: they cannot hold reference cycles."""


def pb(number: int, *, inline: bool = False, encoding: str = "") -> msgspec.Meta:
    """The protobuf field number of an annotated field.

    `inline`: Go embeds this struct (`json:",inline"`), so its fields are declared by the enclosing `Value` in JSON
    while protobuf nests them under this number. `encoding`: "bytes" where Go has []byte (base64 in JSON), or the name
    of a well-known wrapper ("quantity", "time", "microTime", "intOrString", "raw", "fieldsV1") where the JSON form is
    a scalar or raw JSON but the protobuf form is a message.
    """
    return msgspec.Meta(extra={"pb": number, "inline": inline, "encoding": encoding})


class OwnerReference(Value):
    """metav1.OwnerReference."""

    api_version: Annotated[str, pb(5)] = ""
    kind: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(3)] = ""
    uid: Annotated[str, pb(4)] = ""
    controller: Annotated[bool | None, pb(6)] = None
    block_owner_deletion: Annotated[bool | None, pb(7)] = None


class ManagedFieldsEntry(Value):
    """metav1.ManagedFieldsEntry."""

    manager: Annotated[str, pb(1)] = ""
    operation: Annotated[str, pb(2)] = ""
    api_version: Annotated[str, pb(3)] = ""
    time: Annotated[str | None, pb(4, encoding="time")] = None
    fields_type: Annotated[str, pb(6)] = ""
    fields_v1: Annotated[Raw, pb(7, encoding="fieldsV1")] = msgspec.field(default=None, name="fieldsV1")
    subresource: Annotated[str, pb(8)] = ""


class ObjectMeta(Value):
    """metav1.ObjectMeta. Timestamps are RFC 3339 text in UTC with seconds, as they stand on the wire."""

    name: Annotated[str, pb(1)] = ""
    generate_name: Annotated[str, pb(2)] = ""
    namespace: Annotated[str, pb(3)] = ""
    self_link: Annotated[str, pb(4)] = ""
    uid: Annotated[str, pb(5)] = ""
    resource_version: Annotated[str, pb(6)] = ""
    generation: Annotated[int, pb(7)] = 0
    creation_timestamp: Annotated[str | None, pb(8, encoding="time")] = None
    deletion_timestamp: Annotated[str | None, pb(9, encoding="time")] = None
    deletion_grace_period_seconds: Annotated[int | None, pb(10)] = None
    labels: Annotated[dict[str, str], pb(11)] = {}
    annotations: Annotated[dict[str, str], pb(12)] = {}
    owner_references: Annotated[tuple[OwnerReference, ...], pb(13)] = ()
    finalizers: Annotated[tuple[str, ...], pb(14)] = ()
    managed_fields: Annotated[tuple[ManagedFieldsEntry, ...], pb(17)] = ()


class ApiObject(Value):
    """The head of every kind. Subclasses add `spec`, `status` and the like, with `metadata` as protobuf field 1."""

    api_version: str = ""
    kind: str = ""
    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()
