"""Patches of documents: JSON patch, merge patch, strategic merge patch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.kinds.pods import Pod
from manciple.wire.errors import BadRequest, Invalid
from manciple.wire.patch import json_patch, merge_patch, strategic_merge_patch

Document = dict[str, Any]


@pytest.mark.parametrize(
    ("document", "operations", "expected"),
    {
        "add a member": ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        "add into a list": ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        "append to a list": ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        "add replaces a member": ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
        "add null": ({}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
        "remove a member": ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        "remove from a list": ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        "replace in a list": ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        "replace the document": ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        "move": ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        "copy": ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        "escaped names": (
            {"a/b": 1, "c~d": 2},
            [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}],
            {},
        ),
        "test that holds": ({"a": [1]}, [{"op": "test", "path": "/a", "value": [1.0]}], {"a": [1]}),
    }.values(),
)
def test_a_json_patch_does_what_rfc_6902_says(
    document: Document, operations: list[Document], expected: Document
) -> None:
    before = repr(document)
    assert json_patch(document, operations) == expected
    assert repr(document) == before


@pytest.mark.parametrize(
    ("operations", "error", "message"),
    {
        "no list": (
            {"op": "add"},
            BadRequest,
            "error decoding patch: json: cannot unmarshal object into Go value of type []interface {}",
        ),
        "a list of no operations": ([1], BadRequest, "a JSON patch is a list of operations"),
        "unknown operation": ([{"op": "spam", "path": "/a"}], Invalid, "unexpected kind: spam"),
        "no path": ([{"op": "remove"}], Invalid, "is missing 'path'"),
        "no value": ([{"op": "add", "path": "/b"}], BadRequest, "is missing 'value'"),
        "no pointer": ([{"op": "remove", "path": "a"}], Invalid, "is not a JSON pointer"),
        "remove nothing": ([{"op": "remove", "path": "/b"}], Invalid, 'doc is missing path: "/b"'),
        "replace nothing": ([{"op": "replace", "path": "/b", "value": 1}], Invalid, 'doc is missing path: "/b"'),
        "below a scalar": ([{"op": "add", "path": "/a/b/c", "value": 1}], Invalid, "doc is missing path"),
        "beyond the end": ([{"op": "add", "path": "/l/2", "value": 1}], Invalid, "doc is missing path"),
        "no index": ([{"op": "remove", "path": "/l/01"}], Invalid, "doc is missing path"),
        "into itself": ([{"op": "move", "from": "/o", "path": "/o/p"}], Invalid, "cannot move into itself"),
        "test that fails": ([{"op": "test", "path": "/a", "value": 2}], Invalid, "testing value /a failed"),
        "true is not one": ([{"op": "test", "path": "/a", "value": True}], Invalid, "testing value /a failed"),
        "no object left": ([{"op": "replace", "path": "", "value": 1}], Invalid, "is not an object"),
        "too many": ([{"op": "test", "path": "/a", "value": 1}] * 10_001, BadRequest, "maximum operations"),
    }.values(),
)
def test_a_json_patch_that_cannot_be_applied_says_why(operations: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as refused:
        json_patch({"a": 1, "l": [1], "o": {}}, operations)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    {
        "replace": ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        "add": ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        "remove": ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        "lists are replaced": ({"a": ["b"]}, {"a": ["c", "d"]}, {"a": ["c", "d"]}),
        "nested": ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        "object over scalar": ({"a": "b"}, {"a": {"c": None, "d": 1}}, {"a": {"d": 1}}),
        "nulls in lists stay": ({}, {"a": [None]}, {"a": [None]}),
    }.values(),
)
def test_a_merge_patch_does_what_rfc_7386_says(document: Document, patch: Document, expected: Document) -> None:
    assert merge_patch(document, patch) == expected


@pytest.mark.parametrize(
    ("patch", "type_"),
    [([{"op": "remove", "path": "/a"}], "array"), ("a", "string"), (3, "number"), (True, "bool"), (None, "null")],
)
def test_a_merge_patch_that_is_no_object_is_refused_as_by_kubernetes(patch: Any, type_: str) -> None:
    with pytest.raises(BadRequest) as refused:
        merge_patch({"a": "secret"}, patch)
    wrong = f"json: cannot unmarshal {type_} into Go value of type map[string]interface {{}}"
    assert str(refused.value) == f"error decoding patch: {wrong}"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.text("ab", max_size=2), values, max_size=3)


@given(documents, documents)
def test_applying_a_merge_patch_twice_is_applying_it_once(document: Document, patch: Document) -> None:
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once


def strategic(document: Document, patch: Document) -> Document:
    return strategic_merge_patch(document, patch, Pod)


def pod(*containers: Document, **spec: Any) -> Document:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


A, B, C = {"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    {
        "elements merge by key": (
            pod(A, B),
            {"spec": {"containers": [{"name": "b", "image": "2"}]}},
            pod(A, {"name": "b", "image": "2"}),
        ),
        "new elements come first": (pod(A), {"spec": {"containers": [C]}}, pod(C, A)),
        "elements are deleted": (pod(A, B), {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, pod(B)),
        "a list is replaced": (pod(A, B), {"spec": {"containers": [{"$patch": "replace"}, C]}}, pod(C)),
        "a map is replaced": (
            pod(A, nodeSelector={"x": "1", "y": "2"}),
            {"spec": {"nodeSelector": {"$patch": "replace", "z": "3"}}},
            pod(A, nodeSelector={"z": "3"}),
        ),
        "a map is merged when it says so": (
            pod(A, nodeSelector={"x": "1"}),
            {"spec": {"nodeSelector": {"$patch": "merge", "z": "3"}}},
            pod(A, nodeSelector={"x": "1", "z": "3"}),
        ),
        "a map is emptied": (
            pod(A, nodeSelector={"x": "1"}),
            {"spec": {"nodeSelector": {"$patch": "delete"}}},
            pod(A, nodeSelector={}),
        ),
        "null removes": (pod(A, nodeName="n"), {"spec": {"nodeName": None}}, pod(A)),
        "lists without a key are replaced": (
            pod(A, tolerations=[{"key": "x"}]),
            {"spec": {"tolerations": [{"key": "y"}]}},
            pod(A, tolerations=[{"key": "y"}]),
        ),
        "scalars of a set are added once": (
            {"metadata": {"finalizers": ["x", "y"]}},
            {"metadata": {"finalizers": ["y", "z"]}},
            {"metadata": {"finalizers": ["x", "y", "z"]}},
        ),
        "scalars of a set are deleted": (
            {"metadata": {"finalizers": ["x", "y"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}},
            {"metadata": {"finalizers": ["y"]}},
        ),
        "elements are ordered": (
            pod(A, B, C),
            {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}},
            pod(C, A, B),
        ),
        "an element that only the server has keeps its place": (
            pod(A, B, C),
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
                    "containers": [{"name": "c", "image": "2"}],
                }
            },
            pod(A, {"name": "c", "image": "2"}, B),
        ),
        "only named keys are retained": (
            pod(A, volumes=[{"name": "v", "emptyDir": {}}]),
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
            pod(A, volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
        ),
        "directives and nulls never become content": (
            pod(A),
            {"spec": {"affinity": {"nodeAffinity": None, "$setElementOrder/x": []}}},
            pod(A, affinity={}),
        ),
        "labels merge": (
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"a": None, "c": "3"}}},
            {"metadata": {"labels": {"b": "2", "c": "3"}}},
        ),
    }.values(),
)
def test_a_strategic_merge_patch_follows_the_merge_keys(
    document: Document, patch: Document, expected: Document
) -> None:
    before = repr(document)
    assert strategic(document, patch) == expected
    assert repr(document) == before


@pytest.mark.parametrize(
    ("patch", "message"),
    {
        "no object": ([], "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        "unknown directive": ({"spec": {"$patch": "swap"}}, "Unknown patch directive: swap"),
        "no merge key": ({"spec": {"containers": [{"image": "2"}]}}, "does not contain declared merge key: name"),
        "no elements": ({"spec": {"containers": ["a"]}}, "the elements of containers must be objects"),
        "stray key": ({"spec": {"$retainKeys": ["nodeName"], "hostname": "x"}}, "not in its $retainKeys: hostname"),
    }.values(),
)
def test_a_strategic_merge_patch_that_cannot_be_read_is_refused(patch: Any, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        strategic(pod(A), patch)
    assert message in str(refused.value)
