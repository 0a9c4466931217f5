"""Every field that is declared anywhere survives every format, and the declarations keep their own rules."""

from __future__ import annotations

import re
from typing import Any

import pytest

from claims.classic import later
from inventory.kinds.conversion import BasicDevice
from inventory.kinds.devices import Device
from manciple.wire import codec, protobuf
from manciple.wire.base import ApiObject, Value, declarations
from manciple.wire.machinery import DeleteOptions, Status
from tests.conformance import objects
from tests.manciple.wire.kinds import TYPES
from tests.manciple.wire.samples import all_types, make_full

ROOTS: list[type[Value]] = [*dict.fromkeys(TYPES.values()), Status, DeleteOptions]
EVERY_TYPE = all_types(ROOTS)
#: What earlier versions had, and the reference's has not.
EARLIER: dict[type[Value], set[str]] = {type_: {"nodeAllocatableResourceMappings"} for type_ in (Device, BasicDevice)}
#: Two names in JSON for what is one field in protobuf.
SPELLED_TWICE: dict[type[Value], set[str]] = {
    later.ResourceClaimSpec: {"controller"},
    later.AllocationResult: {"controller"},
}


def name_of(type_: type[Value]) -> str:
    return f"{type_.__module__}.{type_.__name__}"


@pytest.mark.parametrize("type_", ROOTS, ids=name_of)
def test_a_value_with_every_field_set_survives_json(type_: type[Value]) -> None:
    full = make_full(type_)
    document = codec.to_builtins(full)
    assert codec.decode_value(type_, document) == full
    assert codec.decode_text(type_, codec.encode(full)) == full


@pytest.mark.parametrize("type_", ROOTS, ids=name_of)
def test_a_value_with_every_field_set_survives_protobuf(type_: type[Value]) -> None:
    full = make_full(type_)
    body = protobuf.encode(full)
    assert without_head(protobuf.decode(type_, body)) == without_head(full)


# Three hundred types: each rule looks at all of them in one test.


def test_an_empty_value_is_an_empty_message() -> None:
    for type_ in EVERY_TYPE:
        assert protobuf.encode(type_()) == b"", type_
        assert protobuf.decode(type_, b"") == type_()


def test_field_numbers_are_unique_within_their_message() -> None:
    for type_ in EVERY_TYPE:
        numbers = [(d.embedded, d.number) for d in declarations(type_) if d.number]
        outer = {embedded for embedded, _ in numbers if embedded}
        assert len(set(numbers)) == len(numbers), type_
        assert not outer & {number for embedded, number in numbers if not embedded}, type_


def test_every_field_has_a_number_but_the_head_of_an_object_and_what_is_kept_aside() -> None:
    for type_ in EVERY_TYPE:
        unnumbered = {d.attribute for d in declarations(type_) if not d.number and not d.aside}
        head = {"api_version", "kind"} if issubclass(type_, ApiObject | Status | DeleteOptions) else set()
        assert unnumbered - SPELLED_TWICE.get(type_, set()) == head, type_


def test_every_type_says_what_it_is() -> None:
    assert [name_of(type_) for type_ in EVERY_TYPE if not type_.__dict__.get("__doc__")] == []


def test_a_merge_key_is_a_field_of_the_elements() -> None:
    for declared in (declared for type_ in EVERY_TYPE for declared in declarations(type_)):
        keys = {key for key in (*declared.list_keys, declared.merge_key) if key not in ("", "*")}
        if keys:
            assert keys <= {one.name for one in declarations(declared.shape.element)}, declared.name


def test_the_reference_objects_name_every_integer_by_its_field_number() -> None:
    """Their integers, and the years of their times, are the numbers of the fields that hold them."""
    for document in objects().values():
        type_ = TYPES[document["apiVersion"], document["kind"]]
        assert_numbers(type_, document, path=document["kind"])


def assert_numbers(type_: type[Value], document: object, *, path: str) -> None:
    assert isinstance(document, dict)
    for declared in declarations(type_):
        if declared.aside or declared.undocumented or declared.name in EARLIER.get(type_, set()):
            continue
        value = document[declared.name]
        one = value[0] if declared.shape.container == "list" else value
        one = next(iter(one.values())) if declared.shape.container == "map" else one
        where = f"{path}.{declared.name}"
        if issubclass(declared.shape.element, Value):
            assert_numbers(declared.shape.element, one, path=where)
        elif declared.shape.element is int:
            assert one == declared.number, where
        elif declared.encoding in ("time", "microTime"):
            year = re.match(r"(\d{4})", one)
            assert year is not None
            assert int(year[1]) - 2000 == declared.number, where


def without_head(value: Value) -> object:
    """The value's document without apiVersion and kind, which protobuf keeps outside of the messages."""
    return headless(codec.to_builtins(value), type(value))


def headless(document: Any, type_: type[Value]) -> dict[str, Any]:
    found = {}
    for declared in declarations(type_):
        if declared.number and declared.name in document:
            member = document[declared.name]
            nested = issubclass(declared.shape.element, Value) and not declared.shape.container
            found[declared.name] = headless(member, declared.shape.element) if nested else member
    return found
