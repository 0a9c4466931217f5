"""The protobuf codec against bytes worked out by hand, against Google's runtime, and against hostile bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.kinds.containers import Container, EphemeralContainer, HTTPGetAction, Probe, ProbeHandler
from claims.kinds.pods import Pod
from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import DeviceClaimConfiguration
from inventory.kinds.devices import Counter, CounterSet, DeviceAttribute, DeviceTaint, OpaqueDeviceConfiguration
from manciple.wire import codec, protobuf
from manciple.wire.base import ObjectMeta, ObjectReference, Value
from manciple.wire.errors import BadRequest
from manciple.wire.machinery import Binding, DeleteOptions, EventSeries, Preconditions
from manciple.wire.registry import Kind, Served
from manciple.wire.reviews import SelfSubjectAccessReview
from manciple.wire.wireformat import Envelope, read_envelope, write_envelope
from tests.manciple.wire.google_messages import message_class, unknown_fields
from tests.manciple.wire.kinds import TYPES
from tests.manciple.wire.samples import make_full

#: The same examples in every run, however slow the machine is.
reproducible = settings(derandomize=True, deadline=None, database=None)

ROOTS = list(dict.fromkeys(TYPES.values()))


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


#: name -> (value, the bytes that Go writes for its set fields)
VECTORS: dict[str, tuple[Value, bytes]] = {
    "text": (ObjectMeta(name="a"), hexed("0a 01 61")),
    "a text of two bytes a letter": (ObjectMeta(name="é"), hexed("0a 02 c3 a9")),
    "a number of two bytes": (ObjectMeta(generation=300), hexed("38 ac 02")),
    "a negative number takes ten bytes": (DeviceAttribute(int_value=-1), hexed("10 ff ff ff ff ff ff ff ff ff 01")),
    "zero behind a pointer is written": (DeviceAttribute(int_value=0), hexed("10 00")),
    "false behind a pointer is written": (DeviceAttribute(bool_value=False), hexed("18 00")),
    "an empty text behind a pointer is written": (DeviceAttribute(string_value=""), hexed("22 00")),
    "the smallest number": (DeviceAttribute(int_value=-(2**63)), hexed("10 80 80 80 80 80 80 80 80 80 01")),
    "a list of numbers": (DeviceAttribute(int_values=(1, 150)), hexed("30 01 30 96 01")),
    "a list of texts": (ObjectMeta(finalizers=("a", "b")), hexed("72 01 61 72 01 62")),
    "a map": (ObjectMeta(labels={"k": "v"}), hexed("5a 06 0a 01 6b 12 01 76")),
    "a field number beyond 15 takes a tag of two bytes": (
        Container(stdin=True),
        hexed("80 01 01"),
    ),
    "a quantity": (Counter(value="8"), hexed("0a 03 0a 01 38")),
    "a map of messages": (
        CounterSet(name="s", counters={"c": Counter(value="8")}),
        hexed("0a 01 73 12 0a 0a 01 63 12 05 0a 03 0a 01 38"),
    ),
    "a time": (DeviceTaint(time_added="1970-01-01T00:00:02Z"), hexed("22 04 08 02 10 00")),
    "a time before 1970": (
        DeviceTaint(time_added="1969-12-31T23:59:59Z"),
        hexed("22 0d 08 ff ff ff ff ff ff ff ff ff 01 10 00"),
    ),
    "a time in microseconds": (
        EventSeries(last_observed_time="1970-01-01T00:00:00.000001Z"),
        hexed("12 05 08 00 10 e8 07"),
    ),
    "a port by number": (HTTPGetAction(port=80), hexed("12 06 08 00 10 50 1a 00")),
    "a port by name": (HTTPGetAction(port="a"), hexed("12 07 08 01 10 00 1a 01 61")),
    "raw JSON": (
        OpaqueDeviceConfiguration(driver="d", parameters={"a": 1}),
        hexed("0a 01 64 12 09 0a 07") + b'{"a":1}',
    ),
    "an embedded struct is a message of its own": (
        DeviceClaimConfiguration(requests=("r",), opaque=OpaqueDeviceConfiguration(driver="d")),
        hexed("0a 01 72 12 05 0a 03 0a 01 64"),
    ),
    "fields of both the embedded and the embedding struct": (
        EphemeralContainer(name="c", tty=True, target_container_name="t"),
        hexed("0a 06 0a 01 63 90 01 01 12 01 74"),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_value_is_written_as_worked_out_by_hand(name: str) -> None:
    value, expected = VECTORS[name]
    assert protobuf.encode(value).hex(" ") == expected.hex(" ")


@pytest.mark.parametrize("name", VECTORS)
def test_a_value_is_read_as_worked_out_by_hand(name: str) -> None:
    value, data = VECTORS[name]
    assert protobuf.decode(type(value), data) == value


READ_ONLY: dict[str, tuple[bytes, Value]] = {
    "a packed list": (hexed("32 03 01 96 01"), DeviceAttribute(int_values=(1, 150))),
    "packed and single elements together": (hexed("30 01 32 01 02 30 03"), DeviceAttribute(int_values=(1, 2, 3))),
    "the last of several single values counts": (hexed("0a 01 61 0a 01 62"), ObjectMeta(name="b")),
    "unknown fields of every wire type": (
        hexed("f8 07 01 fa 07 01 00 f9 07 00 00 00 00 00 00 00 00 fd 07 00 00 00 00 0a 01 61"),
        ObjectMeta(name="a"),
    ),
    "a group is skipped": (hexed("fb 07 0a 01 62 fc 07 0a 01 61"), ObjectMeta(name="a")),
    "zeros that Go writes": (hexed("0a 00 12 00 38 00 42 00"), ObjectMeta()),
    "a map entry without key and value": (hexed("5a 00"), ObjectMeta(labels={"": ""})),
    "an embedded message in two parts": (
        hexed("0a 03 0a 01 63 0a 03 12 01 69"),
        EphemeralContainer(name="c", image="i"),
    ),
    "an empty quantity": (hexed("0a 00"), Counter(value="0")),
    "an empty probe handler": (hexed("0a 00 10 05"), Probe(initial_delay_seconds=5)),
    "a bool above one": (hexed("18 02"), DeviceAttribute(bool_value=True)),
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_other_ways_to_write_the_same_are_read(name: str) -> None:
    data, value = READ_ONLY[name]
    assert protobuf.decode(type(value), data) == value


BROKEN = {
    "a varint without end": hexed("38 ff"),
    "a varint beyond 64 bits": hexed("38 ff ff ff ff ff ff ff ff ff 02"),
    "a varint of eleven bytes": hexed("38 80 80 80 80 80 80 80 80 80 80 01"),
    "a text beyond the end": hexed("0a 05 61"),
    "a length near 2**64": hexed("0a ff ff ff ff ff ff ff ff ff 01"),
    "a text that is no UTF-8": hexed("0a 01 ff"),
    "a number where text is expected": hexed("08 01"),
    "a text where a number is expected": hexed("3a 01 61"),
    "a number where a map is expected": hexed("58 01"),
    "a number where a time is expected": hexed("40 01"),
    "a time that no calendar has": hexed("42 0b 08 ff ff ff ff ff ff ff ff 7f 10 00"),
    "field number zero": hexed("02 00"),
    "wire type seven": hexed("0f"),
    "a group that does not end": hexed("fb 07"),
    "an end of no group": hexed("fc 07"),
    "raw JSON that is none": hexed("8a 01 05 3a 03 0a 01 7b"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_messages_are_bad_requests(name: str) -> None:
    with pytest.raises(BadRequest):
        protobuf.decode(ObjectMeta, BROKEN[name])


@reproducible
@given(st.binary(max_size=200), st.sampled_from(ROOTS))
def test_random_bytes_are_read_or_refused(data: bytes, type_: type[Value]) -> None:
    try:
        value = protobuf.decode(type_, data)
    except BadRequest:
        return
    assert protobuf.decode(type_, protobuf.encode(value)) == value


@reproducible
@given(st.data())
def test_a_damaged_pod_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(FULL_POD)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BadRequest):
        assert isinstance(protobuf.decode(Pod, bytes(body[: data.draw(st.integers(0, len(body)))])), Pod)


FULL_POD = protobuf.encode(make_full(Pod))


# Google's runtime ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ROOTS, ids=lambda type_: f"{type_.__module__}.{type_.__name__}")
@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "packed"])
def test_googles_runtime_reads_what_we_write_and_writes_what_we_read(type_: type[Value], packed: bool) -> None:
    full = make_full(type_)
    ours = protobuf.encode(full)
    theirs: Any = message_class(type_, packed=packed).FromString(ours)
    assert unknown_fields(theirs) == []
    assert protobuf.decode(type_, theirs.SerializeToString()) == protobuf.decode(type_, ours)
    if not packed:
        assert theirs.SerializeToString(deterministic=True) == ours


# Envelopes -----------------------------------------------------------------------------------------------------------


def test_an_envelope_is_written_as_worked_out_by_hand() -> None:
    envelope = Envelope(api_version="v1", kind="Pod", raw=b"\x0a\x00", content_type="x")
    expected = b"k8s\x00" + hexed("0a 09 0a 02 76 31 12 03 50 6f 64 12 02 0a 00 22 01 78")
    assert write_envelope(envelope) == expected
    assert read_envelope(expected) == envelope


BROKEN_ENVELOPES = {
    "no prefix": hexed("0a 00"),
    "half a prefix": b"k8s",
    "cut off": b"k8s\x00" + hexed("0a 09 0a"),
    "a number as the message": b"k8s\x00" + hexed("10 01"),
    "a number as the content type": b"k8s\x00" + hexed("20 01"),
    "compressed": write_envelope(Envelope(raw=b"", content_encoding="gzip")),
}


@pytest.mark.parametrize("name", BROKEN_ENVELOPES)
def test_broken_envelopes_are_bad_requests(name: str) -> None:
    with pytest.raises(BadRequest):
        read_envelope(BROKEN_ENVELOPES[name])


@reproducible
@given(st.binary(max_size=60))
def test_random_envelopes_are_read_or_refused(data: bytes) -> None:
    try:
        envelope = read_envelope(b"k8s\x00" + data)
    except BadRequest:
        return
    assert read_envelope(write_envelope(envelope)) == envelope


def as_clients_see(kind: Kind) -> Any:
    """Every field set but what is kept aside."""
    return codec.decode_value(kind.type, Served(kind, kind.version).document(codec.to_builtins(make_full(kind.type))))


BODIES: dict[str, Value] = {
    "DeleteOptions": DeleteOptions(
        api_version="v1", kind="DeleteOptions", grace_period_seconds=0, preconditions=Preconditions(uid="u")
    ),
    "Binding": Binding(
        api_version="v1", kind="Binding", metadata=ObjectMeta(name="p"), target=ObjectReference(kind="Node", name="n")
    ),
    "SelfSubjectAccessReview": replace(make_full(SelfSubjectAccessReview), kind="SelfSubjectAccessReview"),
    "ResourceClaim": replace(as_clients_see(RESOURCE_CLAIM), kind="ResourceClaim"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_clients_send_are_read(name: str) -> None:
    value = BODIES[name]
    body = protobuf.encode_object(value)
    assert codec.decode_body(type(value), body, content_type="application/vnd.kubernetes.protobuf") == value


def test_a_message_that_nests_without_end_is_refused() -> None:
    data = b""
    for _ in range(200):
        data = hexed("0a") + protobuf_length(len(data)) + data
    with pytest.raises(BadRequest):
        protobuf.decode(ProbeHandler, data)


def protobuf_length(length: int) -> bytes:
    out = bytearray()
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length])
