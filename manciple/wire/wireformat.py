"""The protobuf wire format: varints, tags, length-delimited fields, and the envelope of Kubernetes' protobuf bodies.

A message is read as a stream of (number, wire type, payload); what cannot be read is a BadRequest. The typed view of
it is `manciple.wire.protobuf`. Sources: protobuf.dev/programming-guides/encoding and
apimachinery/pkg/runtime/serializer/protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from manciple.wire.errors import BadRequest

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

#: What every Kubernetes protobuf body starts with; a runtime.Unknown message follows.
MAGIC: Final = b"k8s\x00"

_MAX_VARINT_BYTES = 10
_WORD = 1 << 64
_MAX_NUMBER = (1 << 29) - 1

#: A varint's value, or the bytes of anything else.
Payload = int | memoryview


def malformed(what: str) -> BadRequest:
    return BadRequest(f"the protobuf body cannot be read: {what}")


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(unsigned value, position after it). Raises: BadRequest at the end of the data or beyond 64 bits."""
    value = shift = 0
    for position in range(at, min(len(data), at + _MAX_VARINT_BYTES)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  # the continuation bit is not set
            if value >= _WORD:
                raise malformed("a varint overflows 64 bits")
            return value, position + 1
        shift += 7
    raise malformed("a varint overflows 64 bits" if len(data) - at >= _MAX_VARINT_BYTES else "unexpected end of data")


def signed(value: int) -> int:
    """An int64 from the two's complement in which the wire carries it."""
    return value - _WORD if value >= _WORD >> 1 else value


def fields(data: memoryview) -> Iterator[tuple[int, int, Payload]]:
    """(number, wire type, payload) of every field of a message; groups are skipped. Raises: BadRequest."""
    at, end, groups = 0, len(data), 0
    while at < end:
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number <= _MAX_NUMBER:
            raise malformed(f"illegal tag {number}")
        if wire_type in (START_GROUP, END_GROUP):
            groups += 1 if wire_type == START_GROUP else -1
            if groups < 0:
                raise malformed("unexpected end of group")
            continue
        payload, at = _payload(data, at, wire_type)
        if not groups:
            yield number, wire_type, payload
    if groups:
        raise malformed("unexpected end of data")


def _payload(data: memoryview, at: int, wire_type: int) -> tuple[Payload, int]:
    if wire_type == VARINT:
        return read_varint(data, at)
    if wire_type == DELIMITED:
        length, at = read_varint(data, at)
    elif wire_type in (FIXED64, FIXED32):
        length = 8 if wire_type == FIXED64 else 4
    else:
        raise malformed(f"illegal wire type {wire_type}")
    if length > len(data) - at:
        raise malformed("unexpected end of data")
    return data[at : at + length], at + length


def varint(value: int) -> bytes:
    """An int64 or bool as a varint; negative numbers take ten bytes. Raises: OverflowError beyond 64 bits."""
    if not -(_WORD >> 1) <= value < _WORD:
        raise OverflowError(f"{value} does not fit in 64 bits")
    value %= _WORD
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004  # seven bits go into a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def delimited_field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | DELIMITED) + varint(len(payload)) + payload


def text(payload: Payload) -> str:
    """Raises: BadRequest for a payload that is no UTF-8 text."""
    if isinstance(payload, int):
        raise malformed("a number stands where text is expected")
    try:
        return bytes(payload).decode()
    except UnicodeDecodeError as error:
        raise malformed("a text is not UTF-8") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """runtime.Unknown: what a body is, and the message itself. `content_encoding` is "" for a plain one."""

    api_version: str = ""
    kind: str = ""
    raw: bytes = b""
    content_encoding: str = ""
    content_type: str = ""


def read_envelope(body: bytes) -> Envelope:
    """Raises: BadRequest for a body without the magic bytes, a broken one, or an encoding that we do not read."""
    if not body.startswith(MAGIC):
        raise malformed("it does not start with the Kubernetes protobuf prefix")
    api_version = kind = ""
    rest: dict[int, Payload] = {}
    for number, _, payload in fields(memoryview(body)[len(MAGIC) :]):
        if number == 1 and isinstance(payload, memoryview):
            head = {inner: text(value) for inner, kind_of, value in fields(payload) if kind_of == DELIMITED}
            api_version, kind = head.get(1, ""), head.get(2, "")
        else:
            rest[number] = payload
    raw = rest.get(2, memoryview(b""))
    if isinstance(raw, int):
        raise malformed("a number stands where the message is expected")
    envelope = Envelope(
        api_version=api_version,
        kind=kind,
        raw=bytes(raw),
        content_encoding=text(rest.get(3, memoryview(b""))),
        content_type=text(rest.get(4, memoryview(b""))),
    )
    if envelope.content_encoding:
        raise malformed(f"unsupported content encoding {envelope.content_encoding}")
    return envelope


def write_envelope(envelope: Envelope) -> bytes:
    """The body that `read_envelope` reads. Its message is always there, the head and the rest where they are set."""
    head = b"".join(
        delimited_field(number, part.encode())
        for number, part in ((1, envelope.api_version), (2, envelope.kind))
        if part
    )
    ends = ((3, envelope.content_encoding), (4, envelope.content_type))
    tail = b"".join(delimited_field(number, part.encode()) for number, part in ends if part)
    return MAGIC + delimited_field(1, head) + delimited_field(2, envelope.raw) + tail
