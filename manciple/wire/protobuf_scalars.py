"""How single values stand on the protobuf wire: numbers, text, and Kubernetes' wrapper messages.

The wrappers: resource.Quantity {string=1}, metav1.Time and MicroTime {seconds=1, nanos=2} (empty means no time),
intstr.IntOrString {type=1, intVal=2, strVal=3}, runtime.RawExtension {raw=1} and metav1.FieldsV1 {Raw=1}.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from manciple.wire import documents
from manciple.wire.declarations import Shape
from manciple.wire.errors import BadRequest
from manciple.wire.normalization import time_text
from manciple.wire.wireformat import (
    Payload,
    delimited_field,
    fields,
    malformed,
    signed,
    text,
    varint_field,
)

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
    raise TypeError("a number is written as a varint")


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
    "fieldsV1": Scalar(_read_raw, _write_raw),
    "bytes": Scalar(_read_base64, _write_base64),
}
