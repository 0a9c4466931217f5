"""Metadata and collections: what every kind checks alike."""

from typing import Any

import pytest

from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.errors import FieldError, required
from manciple.wire.validation import (
    Path,
    check_namespace_name,
    shortened,
    validate_map,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

OWNER = OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def fields(errors: list[FieldError]) -> list[tuple[str, str]]:
    return [(error.field, error.type) for error in errors]


def test_paths_name_members_items_and_keys() -> None:
    assert Path("spec").child("devices", "requests").at(0).key("a.b") == "spec.devices.requests[0][a.b]"


@pytest.mark.parametrize(
    ("meta", "expected"),
    {
        "valid": ({"name": "a", "namespace": "b"}, []),
        "generated": ({"generate_name": "a-", "namespace": "b"}, []),
        "no name": ({"namespace": "b"}, [("metadata.name", "FieldValueRequired")]),
        "bad name": ({"name": "A", "namespace": "b"}, [("metadata.name", "FieldValueInvalid")]),
        "bad generated name": (
            {"generate_name": "A-", "namespace": "b"},
            [("metadata.generateName", "FieldValueInvalid")],
        ),
        "no namespace": ({"name": "a"}, [("metadata.namespace", "FieldValueRequired")]),
        "dotted namespace": ({"name": "a", "namespace": "b.c"}, [("metadata.namespace", "FieldValueInvalid")]),
        "negative generation": (
            {"name": "a", "namespace": "b", "generation": -1},
            [("metadata.generation", "FieldValueInvalid")],
        ),
        "bad label key": (
            {"name": "a", "namespace": "b", "labels": {"-": "x"}},
            [("metadata.labels", "FieldValueInvalid")],
        ),
        "bad label value": (
            {"name": "a", "namespace": "b", "labels": {"x": "-"}},
            [("metadata.labels", "FieldValueInvalid")],
        ),
        "annotation keys in any case": ({"name": "a", "namespace": "b", "annotations": {"Example.COM/X": ""}}, []),
        "annotations of 256 KiB": ({"name": "a", "namespace": "b", "annotations": {"k": "x" * (256 * 1024 - 1)}}, []),
        "annotations above 256 KiB": (
            {"name": "a", "namespace": "b", "annotations": {"k": "x" * 256 * 1024}},
            [("metadata.annotations", "FieldValueTooLong")],
        ),
        "bad finalizer": (
            {"name": "a", "namespace": "b", "finalizers": ("a/b/c",)},
            [("metadata.finalizers", "FieldValueInvalid")],
        ),
        "contradicting finalizers": (
            {"name": "a", "namespace": "b", "finalizers": ("orphan", "foregroundDeletion")},
            [("metadata.finalizers", "FieldValueInvalid")],
        ),
        "incomplete owner": (
            {"name": "a", "namespace": "b", "owner_references": (OwnerReference(kind="Pod", name="p"),)},
            [
                ("metadata.ownerReferences.apiVersion", "FieldValueInvalid"),
                ("metadata.ownerReferences.uid", "FieldValueInvalid"),
            ],
        ),
        "an event as owner": (
            {
                "name": "a",
                "namespace": "b",
                "owner_references": (OwnerReference(api_version="v1", kind="Event", name="e", uid="u"),),
            },
            [("metadata.ownerReferences", "FieldValueInvalid")],
        ),
    }.values(),
)
def test_metadata_of_a_new_object(meta: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert fields(validate_object_meta(ObjectMeta(**meta), namespaced=True)) == expected


def test_cluster_scoped_objects_have_no_namespace() -> None:
    found = validate_object_meta(ObjectMeta(name="a", namespace="b"), namespaced=False)
    assert texts(found) == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_only_one_owner_is_the_controller() -> None:
    first = OwnerReference(api_version="v1", kind="Pod", name="p", uid="u", controller=True)
    second = OwnerReference(api_version="v1", kind="Pod", name="q", uid="v", controller=True)
    meta = ObjectMeta(name="a", namespace="b", owner_references=(first, OWNER, second))
    (found,) = validate_object_meta(meta, namespaced=True)
    assert 'Found "true" in references for Pod/p and Pod/q' in found.detail


def test_kinds_may_have_their_own_rule_for_names() -> None:
    found = validate_object_meta(ObjectMeta(name="a.b"), namespaced=False, name_rule=check_namespace_name)
    assert texts(found) == ['metadata.name: Invalid value: "a.b": must not contain dots']


STORED = ObjectMeta(name="a", namespace="b", uid="u", creation_timestamp="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("change", "expected"),
    {
        "nothing": ({}, []),
        "left out by the client": ({"uid": "", "creation_timestamp": None}, []),
        "name": ({"name": "z"}, [("metadata.name", "FieldValueInvalid")]),
        "namespace": ({"namespace": "z"}, [("metadata.namespace", "FieldValueInvalid")]),
        "uid": ({"uid": "z"}, [("metadata.uid", "FieldValueInvalid")]),
        "creation": (
            {"creation_timestamp": "2027-01-01T00:00:00Z"},
            [("metadata.creationTimestamp", "FieldValueInvalid")],
        ),
        "deletion": (
            {"deletion_timestamp": "2027-01-01T00:00:00Z"},
            [("metadata.deletionTimestamp", "FieldValueInvalid")],
        ),
        "labels are checked": ({"labels": {"-": ""}}, [("metadata.labels", "FieldValueInvalid")]),
    }.values(),
)
def test_what_an_update_may_not_touch(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    known = {name: getattr(STORED, name) for name in ("name", "namespace", "uid", "creation_timestamp")}
    assert fields(validate_object_meta_update(ObjectMeta(**{**known, **change}), STORED)) == expected


def test_a_deleting_object_gets_no_new_finalizers() -> None:
    old = ObjectMeta(name="a", finalizers=("x/a",), deletion_timestamp="2026-01-01T00:00:00Z")
    new = ObjectMeta(name="a", finalizers=("x/b",), deletion_timestamp="2026-01-01T00:00:00Z")
    assert texts(validate_object_meta_update(new, old)) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"x/b"}'
    ]


def refuse_empty(text: str, path: Path) -> list[FieldError]:
    return [] if text else [required(path)]


def test_sets_name_every_wrong_item_and_every_repetition() -> None:
    found = validate_set(["a", "", "a", ""], Path("x"), refuse_empty, key=str)
    assert texts(found) == [
        "x[1]: Required value",
        "x[3]: Required value",
        'x[2]: Duplicate value: "a"',
        'x[3]: Duplicate value: ""',
    ]


def test_a_set_that_is_too_long_is_only_said_to_be_that() -> None:
    assert texts(validate_set(["", ""], Path("x"), refuse_empty, key=str, maximum=1)) == [
        "x: Too many: 2: must have at most 1 item"
    ]


def test_maps_shorten_long_keys_in_paths() -> None:
    found = validate_map(
        {"a" * 20: ""}, Path("x"), validate_key=lambda _key, _path: [], validate_item=refuse_empty, longest_key=9
    )
    assert texts(found) == ["x[aaa...aaa]: Required value"]
    assert shortened("abc", 9) == "abc"
