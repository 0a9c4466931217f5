"""Typed values from and to protobuf messages, driven by the field numbers that the types declare.

Each type is compiled once to a table from field number to a reader, and a list of writers. Embedded structs are read
from their own nested message into the fields of the embedding value. As Go's generated code does, a reader skips
unknown fields, takes packed and unpacked lists, and lets the last of several values count.

Numbers and text stand as they are, other scalars in Kubernetes' wrapper messages: resource.Quantity {string=1},
metav1.Time and MicroTime {seconds=1, nanos=2} (empty means no time), intstr.IntOrString {type=1, intVal=2, strVal=3},
runtime.RawExtension {raw=1} and metav1.FieldsV1 {Raw=1}.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import msgspec

from manciple.wire import documents, schema_messages
from manciple.wire.base import Declaration, FieldsV1, Shape, Value, declarations, time_text
from manciple.wire.documents import MAX_DEPTH, MAX_VALUES
from manciple.wire.errors import BadRequest
from manciple.wire.wireformat import (
    DELIMITED,
    VARINT,
    Envelope,
    Payload,
    delimited_field,
    fields,
    malformed,
    read_envelope,
    read_varint,
    signed,
    text,
    varint_field,
    write_envelope,
)

# Scalars --------------------------------------------------------------------------------------------------------------


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT32_MAX, _UINT32_MAX = 2**31 - 1, 2**32 - 1
_INT_TYPE, _STRING_TYPE = 0, 1
_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class Scalar:
    """`read` takes a payload (Raises: BadRequest); `write` gives the bytes of a length-delimited one."""

    read: Callable[[Payload], Any]
    write: Callable[[Any], bytes]


def scalar(shape: Shape, encoding: str) -> Scalar:
    """The wire form of the elements of a declared field. Raises: KeyError for an encoding that nobody defined."""
    if encoding:
        return _WRAPPERS[encoding]
    if shape.element is int:
        return _INT32 if shape.bits == 32 else _INT64  # noqa: PLR2004
    return {bool: _BOOL, str: _TEXT}[shape.element]


def _number(payload: Payload) -> int:
    if not isinstance(payload, int):
        raise malformed("bytes stand where a number is expected")
    return signed(payload)


def _read_int32(payload: Payload) -> int:
    value = _number(payload) & _UINT32_MAX  # as Go: what does not fit is cut off
    return value - _UINT32_MAX - 1 if value > _INT32_MAX else value


def _unwritable(_value: Any) -> bytes:
    raise TypeError("numbers are written as varints, and definitions of custom resources are answered as JSON alone")


def _parts(payload: Payload) -> dict[int, Payload]:
    """A small message as {number: last payload}."""
    if isinstance(payload, int):
        raise malformed("a number stands where a message is expected")
    return {number: part for number, _, part in fields(payload)}


def _read_quantity(payload: Payload) -> str:
    return text(_parts(payload).get(1, _NOTHING)) or "0"


def _read_time(payload: Payload, *, micro: bool) -> str | None:
    parts = _parts(payload)
    if not parts:
        return None
    seconds, nanos = _number(parts.get(1, 0)), _read_int32(parts.get(2, 0))
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000 if micro else 0)
    except OverflowError as error:
        raise malformed(f"{seconds} seconds is no time") from error
    return time_text(moment.isoformat(), micro=micro)


def _write_time(value: str) -> bytes:
    since = datetime.fromisoformat(value) - _EPOCH
    whole = timedelta(seconds=since // timedelta(seconds=1))
    return varint_field(1, since // timedelta(seconds=1)) + varint_field(2, (since - whole).microseconds * 1000)


def _read_int_or_string(payload: Payload) -> int | str:
    parts = _parts(payload)
    if _number(parts.get(1, _INT_TYPE)) == _STRING_TYPE:
        return text(parts.get(3, _NOTHING))
    return _read_int32(parts.get(2, 0))


def _write_int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return varint_field(1, _STRING_TYPE) + varint_field(2, 0) + delimited_field(3, value.encode())
    return varint_field(1, _INT_TYPE) + varint_field(2, value) + delimited_field(3, b"")


def _read_raw(payload: Payload) -> Any:
    raw = text(_parts(payload).get(1, _NOTHING))
    if not raw:
        return None
    try:
        return documents.parse(raw.encode(), media="application/json")
    except BadRequest as error:
        raise malformed(f"an embedded document is not JSON: {error.message}") from error


def _write_raw(value: Any) -> bytes:
    return delimited_field(1, msgspec.json.encode(value))


def _read_fields_v1(payload: Payload) -> FieldsV1:
    return FieldsV1(msgspec.json.encode(_read_raw(payload)))


def _write_fields_v1(fields: FieldsV1) -> bytes:
    return delimited_field(1, bytes(fields))


def _read_strings(payload: Payload) -> list[str]:
    if isinstance(payload, int):
        raise malformed("a number stands where a message is expected")
    return [text(part) for number, _, part in fields(payload) if number == 1]


def _write_strings(values: Any) -> bytes:
    return b"".join(delimited_field(1, value.encode()) for value in values)


def _read_base64(payload: Payload) -> str:
    if isinstance(payload, int):
        raise malformed("a number stands where bytes are expected")
    return base64.b64encode(payload).decode()


def _write_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise BadRequest(f"illegal base64 data: {error}") from error


_BOOL = Scalar(lambda payload: _number(payload) != 0, _unwritable)
_INT32 = Scalar(_read_int32, _unwritable)
_INT64 = Scalar(_number, _unwritable)
_TEXT = Scalar(text, str.encode)

_WRAPPERS: dict[str, Scalar] = {
    "quantity": Scalar(_read_quantity, lambda value: delimited_field(1, value.encode())),
    "time": Scalar(lambda payload: _read_time(payload, micro=False), _write_time),
    "microTime": Scalar(lambda payload: _read_time(payload, micro=True), _write_time),
    "intOrString": Scalar(_read_int_or_string, _write_int_or_string),
    "raw": Scalar(_read_raw, _write_raw),
    "fieldsV1": Scalar(_read_fields_v1, _write_fields_v1),
    "bytes": Scalar(_read_base64, _write_base64),
    "strings": Scalar(_read_strings, _write_strings),
    "name": _TEXT,
    "jsonSchema": Scalar(schema_messages.read_schema, _unwritable),
}


# Messages -------------------------------------------------------------------------------------------------------------


__all__ = ["Envelope", "decode", "encode", "encode_object", "read_envelope", "write_envelope"]

V = TypeVar("V", bound=Value)

#: Puts a payload into the members of the value that is being read; the last argument is how deep the message stands.
Reader = Callable[[dict[str, Any], Payload, int, int], None]
#: (attribute's value) -> its fields on the wire
Writer = Callable[[Any], bytes]
#: The element of a list or map, or a single value: (payload, depth) -> value
ElementReader = Callable[[Payload, int], Any]


class _Budget(threading.local):
    """How many values the message that is being read may still hold: two bytes of it may be an object of hundreds."""

    left = 0

    def spend(self) -> None:
        """Raises: BadRequest."""
        self.left -= 1
        if self.left < 0:
            raise malformed(f"it holds more than {MAX_VALUES} values")


_budget = _Budget()


@dataclass(slots=True)
class _Message:
    """How one type stands on the wire."""

    type: type[Value]
    readers: dict[int, Reader] = field(default_factory=dict)
    #: attributes that are collected as lists while reading
    lists: set[str] = field(default_factory=set)
    writers: list[tuple[Declaration, Writer]] = field(default_factory=list)


def decode(type_: type[V], data: bytes) -> V:
    """The value in a message of `type_`. Raises: BadRequest for data that is no such message, or holds too much."""
    _budget.left = MAX_VALUES
    value = _read(_message(type_), memoryview(data), 0)
    assert isinstance(value, type_)  # noqa: S101  # for the type checker: _message() belongs to type_
    return value


def encode(value: Value) -> bytes:
    """The message of a value: what is set, in the order of the field numbers."""
    message = _message(type(value))
    parts: _Parts = {}
    for declared, write in message.writers:
        member = getattr(value, declared.attribute)
        if member is None or member is declared.default or (not member and not declared.shape.optional):
            continue
        around: Any = parts
        for number in declared.embedded:
            around = around.setdefault(number, {})
        around[declared.number] = write(member)
    return _joined(parts)


#: number -> the written field, or the fields of an embedded message
_Parts = dict[int, "bytes | _Parts"]


def _joined(parts: _Parts) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else delimited_field(number, _joined(part))
        for number, part in sorted(parts.items())
    )


def encode_object(value: Any) -> bytes:
    """A whole body: the envelope with the object's apiVersion and kind around its message."""
    return write_envelope(Envelope(api_version=value.api_version, kind=value.kind, raw=encode(value)))


@cache
def _message(type_: type[Value]) -> _Message:
    message = _Message(type_)
    known: dict[tuple[int, ...], dict[int, Reader]] = {(): message.readers}
    for declared in declarations(type_):
        if not declared.number:
            continue
        for one in filter(None, (declared, declared.as_list)):
            element_reader, element_writer = _element(one)
            _readers_within(one.embedded, known)[one.number] = _reader(one, element_reader)
            if one.shape.container == "list":
                message.lists.add(one.attribute)
            write = _writer(one, element_writer)
            message.writers.append((one, _of_its_own(one, write) if declared.as_list else write))
    return message


def _of_its_own(declared: Declaration, write: Writer) -> Writer:
    """Of a field with two declarations: nothing is written of what the other declares."""
    listed = declared.shape.container == "list"
    return lambda member: write(member) if isinstance(member, tuple) is listed else b""


def _readers_within(around: tuple[int, ...], known: dict[tuple[int, ...], dict[int, Reader]]) -> dict[int, Reader]:
    """The readers of the embedded message that these numbers lead to."""
    if around not in known:
        known[around] = {}
        _readers_within(around[:-1], known)[around[-1]] = _embedded_reader(known[around])
    return known[around]


def _read(message: _Message, data: memoryview, depth: int) -> Value:
    members: dict[str, Any] = {}
    _fill(members, message.readers, data, depth)
    for attribute in message.lists & members.keys():
        if isinstance(members[attribute], list):  # else the object came that may stand in its place
            members[attribute] = tuple(members[attribute])
    return message.type(**members)


def _fill(members: dict[str, Any], readers: dict[int, Reader], data: memoryview, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise malformed(f"it nests deeper than {MAX_DEPTH} levels")
    for number, wire_type, payload in fields(data):
        reader = readers.get(number)
        if reader is not None:
            _budget.spend()
            reader(members, payload, wire_type, depth)


def _embedded_reader(readers: dict[int, Reader]) -> Reader:
    def read(members: dict[str, Any], payload: Payload, _wire_type: int, depth: int) -> None:
        _fill(members, readers, _bytes(payload), depth + 1)

    return read


def _bytes(payload: Payload) -> memoryview:
    if isinstance(payload, int):
        raise malformed("a number stands where a message is expected")
    return payload


# Reading -------------------------------------------------------------------------------------------------------------


def _reader(declared: Declaration, element: ElementReader) -> Reader:
    attribute = declared.attribute
    if declared.shape.container == "map":
        return _map_reader(attribute, element)
    if declared.shape.container == "list":
        return _list_reader(attribute, element, packable=declared.shape.element in (int, bool))

    def read(members: dict[str, Any], payload: Payload, _wire_type: int, depth: int) -> None:
        members[attribute] = element(payload, depth)

    return read


def _list_reader(attribute: str, element: ElementReader, *, packable: bool) -> Reader:
    def read(members: dict[str, Any], payload: Payload, wire_type: int, depth: int) -> None:
        collected = members.setdefault(attribute, [])
        if not isinstance(collected, list):
            collected = members[attribute] = []
        if not packable or wire_type != DELIMITED:
            collected.append(element(payload, depth))
            return
        packed, at = _bytes(payload), 0
        while at < len(packed):
            _budget.spend()
            value, at = read_varint(packed, at)
            collected.append(element(value, depth))

    return read


def _map_reader(attribute: str, element: ElementReader) -> Reader:
    empty = memoryview(b"")

    def read(members: dict[str, Any], payload: Payload, _wire_type: int, depth: int) -> None:
        entry = {number: part for number, _, part in fields(_bytes(payload))}
        members.setdefault(attribute, {})[text(entry.get(1, empty))] = element(entry.get(2, empty), depth)

    return read


# Writing -------------------------------------------------------------------------------------------------------------


def _writer(declared: Declaration, element: Writer) -> Writer:
    number, shape = declared.number, declared.shape
    wire_type = VARINT if shape.element in (int, bool) else DELIMITED

    def write_one(value: Any) -> bytes:
        return varint_field(number, value) if wire_type == VARINT else delimited_field(number, element(value))

    def write_list(values: Any) -> bytes:
        return b"".join(write_one(value) for value in values)

    def write_map(values: Any) -> bytes:
        return b"".join(
            delimited_field(number, delimited_field(1, key.encode()) + delimited_field(2, element(value)))
            for key, value in sorted(values.items())
        )

    return {"": write_one, "list": write_list, "map": write_map}[shape.container]


def _element(declared: Declaration) -> tuple[ElementReader, Writer]:
    if issubclass(declared.shape.element, Value):
        return _nested(declared.shape)
    form: Scalar = scalar(declared.shape, declared.encoding)
    return (lambda payload, _depth: form.read(payload)), form.write


def _nested(shape: Shape) -> tuple[ElementReader, Writer]:
    def read(payload: Payload, depth: int) -> Value:
        return _read(_message(shape.element), _bytes(payload), depth + 1)

    return read, encode
