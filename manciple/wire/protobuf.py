"""Typed values from and to protobuf messages, driven by the field numbers that the types declare.

Each type is compiled once to a table from field number to a reader, and a list of writers. Embedded structs are read
from their own nested message into the fields of the embedding value. As Go's generated code does, a reader skips
unknown fields, takes packed and unpacked lists, and lets the last of several values count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from manciple.wire.base import Value
from manciple.wire.declarations import Declaration, Shape, declarations
from manciple.wire.documents import MAX_DEPTH
from manciple.wire.protobuf_scalars import Scalar, scalar
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
    text,
    varint_field,
    write_envelope,
)

__all__ = ["Envelope", "decode", "encode", "encode_object", "read_envelope", "write_envelope"]

V = TypeVar("V", bound=Value)

#: Puts a payload into the members of the value that is being read; the last argument is how deep the message stands.
Reader = Callable[[dict[str, Any], Payload, int, int], None]
#: (attribute's value) -> its fields on the wire
Writer = Callable[[Any], bytes]
#: The element of a list or map, or a single value: (payload, depth) -> value
ElementReader = Callable[[Payload, int], Any]


@dataclass(slots=True)
class _Message:
    """How one type stands on the wire."""

    type: type[Value]
    readers: dict[int, Reader] = field(default_factory=dict)
    #: attributes that are collected as lists while reading
    lists: set[str] = field(default_factory=set)
    #: in the order of their numbers: (number of the embedded message or 0, declaration, writer)
    writers: list[tuple[int, Declaration, Writer]] = field(default_factory=list)


def decode(type_: type[V], data: bytes) -> V:
    """The value in a message of `type_`. Raises: BadRequest for data that is no such message."""
    value = _read(_message(type_), memoryview(data), 0)
    assert isinstance(value, type_)  # noqa: S101  # for the type checker: _message() belongs to type_
    return value


def encode(value: Value) -> bytes:
    """The message of a value: what is set, in the order of the field numbers."""
    message = _message(type(value))
    parts: dict[int, bytes] = {}
    for embedded, declared, write in message.writers:
        member = getattr(value, declared.attribute)
        if member is None or member is declared.default or (not member and not declared.shape.optional):
            continue
        written = write(member)
        key = embedded or declared.number
        parts[key] = parts.get(key, b"") + written
    outer = {embedded for embedded, _, _ in message.writers if embedded}
    return b"".join(
        delimited_field(number, part) if number in outer else part for number, part in sorted(parts.items())
    )


def encode_object(value: Any) -> bytes:
    """A whole body: the envelope with the object's apiVersion and kind around its message."""
    return write_envelope(Envelope(api_version=value.api_version, kind=value.kind, raw=encode(value)))


@cache
def _message(type_: type[Value]) -> _Message:
    message = _Message(type_)
    embedded: dict[int, dict[int, Reader]] = {}
    for declared in declarations(type_):
        if not declared.number:
            continue
        element_reader, element_writer = _element(declared)
        readers = embedded.setdefault(declared.embedded, {}) if declared.embedded else message.readers
        readers[declared.number] = _reader(declared, element_reader)
        if declared.shape.container == "list":
            message.lists.add(declared.attribute)
        message.writers.append((declared.embedded, declared, _writer(declared, element_writer)))
    for number, readers in embedded.items():
        message.readers[number] = _embedded_reader(readers)
    message.writers.sort(key=lambda writer: (writer[0] or writer[1].number, writer[1].number))
    return message


def _read(message: _Message, data: memoryview, depth: int) -> Value:
    members: dict[str, Any] = {}
    _fill(members, message.readers, data, depth)
    for attribute in message.lists & members.keys():
        members[attribute] = tuple(members[attribute])
    return message.type(**members)


def _fill(members: dict[str, Any], readers: dict[int, Reader], data: memoryview, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise malformed(f"it nests deeper than {MAX_DEPTH} levels")
    for number, wire_type, payload in fields(data):
        reader = readers.get(number)
        if reader is not None:
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
        if not packable or wire_type != DELIMITED:
            collected.append(element(payload, depth))
            return
        packed, at = _bytes(payload), 0
        while at < len(packed):
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
