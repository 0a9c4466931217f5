"""An edit of what we know of an object leaves all the rest of it as it is, and never lands on another state."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manciple.mirror.edits import Ambiguous, carried, patch_of, same
from manciple.wire.errors import ApiError
from manciple.wire.patch import json_patch
from tests.examples import some
from tests.manciple.mirror.living import with_unknown_fields

VERSION = "41"
#: there, before, after -> what it becomes
EDITS: dict[str, tuple[Any, Any, Any, Any]] = {
    "a field is set": ({"x": 1}, {}, {"a": True}, {"x": 1, "a": True}),
    "a field changes": ({"x": 1, "a": 1}, {"a": 1}, {"a": 2}, {"x": 1, "a": 2}),
    "a field goes": ({"x": 1, "a": 1}, {"a": 1}, {}, {"x": 1}),
    "true is not 1": ({"a": 1}, {"a": 1}, {"a": True}, {"a": True}),
    "nothing changes": ({"x": 1, "a": None}, {}, {}, {"x": 1, "a": None}),
    "a default that was written out": ({"a": False, "x": 1}, {}, {"a": True}, {"a": True, "x": 1}),
    "a null where a list is": ({"a": None}, {}, {"a": [1]}, {"a": [1]}),
    "deep inside": ({"s": {"x": 1, "a": 1}}, {"s": {"a": 1}}, {"s": {"a": 2}}, {"s": {"x": 1, "a": 2}}),
    "an element comes": ([{"name": "a", "x": 1}], [{"name": "a"}], [{"name": "a"}, {"name": "b"}],
                         [{"name": "a", "x": 1}, {"name": "b"}]),
    "the first element goes": ([{"name": "a", "x": 1}, {"name": "b", "x": 2}], [{"name": "a"}, {"name": "b"}],
                               [{"name": "b"}], [{"name": "b", "x": 2}]),
    "elements change places": ([{"key": "a", "x": 1}, {"key": "b", "x": 2}], [{"key": "a"}, {"key": "b"}],
                               [{"key": "b"}, {"key": "a"}], [{"key": "b", "x": 2}, {"key": "a", "x": 1}]),
    "one goes and another changes": (
        [{"key": "a", "x": 1}, {"key": "b", "x": 2}],
        [{"key": "a"}, {"key": "b"}],
        [{"key": "b", "value": "v"}],
        [{"key": "b", "value": "v", "x": 2}],
    ),
    "two of one key": (
        [{"key": "a", "effect": "NoSchedule", "x": 1}, {"key": "a", "effect": "NoExecute", "x": 2}],
        [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}],
        [{"key": "a", "effect": "NoExecute", "value": "v"}],
        [{"key": "a", "effect": "NoExecute", "value": "v", "x": 2}],
    ),
    "an element without a name": ([{"cel": {"e": "1", "x": 1}}], [{"cel": {"e": "1"}}], [{"cel": {"e": "2"}}],
                                  [{"cel": {"e": "2", "x": 1}}]),
    "one of several without names": (
        [{"cel": {"e": "1", "x": 1}}, {"cel": {"e": "2", "x": 2}}],
        [{"cel": {"e": "1"}}, {"cel": {"e": "2"}}],
        [{"cel": {"e": "2"}}, {"cel": {"e": "3"}}],
        [{"cel": {"e": "2", "x": 2}}, {"cel": {"e": "3", "x": 1}}],
    ),
    "scalars": (["a", "b"], ["a", "b"], ["b", "c"], ["b", "c"]),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_keeps_what_is_not_known(case: str) -> None:
    there, before, after, becomes = deepcopy(EDITS[case])
    assert same(carried(there, before, after), becomes)
    assert same(there, EDITS[case][0]), "the object itself stays as it is"


AMBIGUOUS: dict[str, tuple[Any, Any, Any]] = {
    "elements that are not known": ([1, 2], [1], [1, 3]),
    "all of it is unknown": ({"a": {"x": 1}}, {}, {"a": {"b": 1}}),
    "a list that is unknown": ({"a": [1]}, {}, {"a": [2]}),
    "nobody can tell which of two changed": (
        [{"cel": {"e": "1", "x": 1}}, {"cel": {"e": "2", "x": 2}}],
        [{"cel": {"e": "1"}}, {"cel": {"e": "2"}}],
        [{"cel": {"e": "3"}}],
    ),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_an_edit_that_would_lose_something_is_refused(case: str) -> None:
    with pytest.raises(Ambiguous):
        carried(*AMBIGUOUS[case])


def test_what_goes_may_take_unknown_fields_with_it() -> None:
    there = [{"cel": {"e": "1", "x": 1}}, {"cel": {"e": "2"}}]
    assert carried(there, [{"cel": {"e": "1"}}, {"cel": {"e": "2"}}], [{"cel": {"e": "2"}}]) == [{"cel": {"e": "2"}}]


def versioned(document: dict[str, Any], version: str = VERSION) -> dict[str, Any]:
    return {"metadata": {"name": "a", "resourceVersion": version}, **document}


PATCHES: dict[str, tuple[Any, Any, list[tuple[str, str]]]] = {
    "a field comes": ({}, {"spec": 1}, [("add", "/spec")]),
    "a field goes": ({"spec": 1}, {}, [("remove", "/spec")]),
    "a field changes": ({"s": {"a": 1, "b": 1}}, {"s": {"a": 2, "b": 1}}, [("replace", "/s/a")]),
    "names are escaped": ({"s": {}}, {"s": {"a/b~c": 1}}, [("add", "/s/a~1b~0c")]),
    "an element changes": ({"s": [{"a": 1}, {"a": 1}]}, {"s": [{"a": 1}, {"a": 2}]}, [("replace", "/s/1/a")]),
    "a list of another length": ({"s": [1]}, {"s": [1, 2]}, [("replace", "/s")]),
    "true in place of 1": ({"s": 1}, {"s": True}, [("replace", "/s")]),
}


@pytest.mark.parametrize("case", PATCHES)
def test_a_patch_tests_the_version_and_says_no_more_than_the_difference(case: str) -> None:
    there, wanted, operations = PATCHES[case]
    patch = patch_of(versioned(there), versioned(wanted))
    assert patch[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": VERSION}
    assert [(one["op"], one["path"]) for one in patch[1:]] == operations


def test_there_is_no_patch_without_a_difference() -> None:
    assert patch_of(versioned({"s": [1]}), versioned({"s": [1]})) == []


def test_a_patch_changes_nothing_where_somebody_else_wrote() -> None:
    patch = patch_of(versioned({"s": 1}), versioned({"s": 2}))
    with pytest.raises(ApiError):
        json_patch(versioned({"s": 1}, version="42"), patch)


# Whatever the documents -----------------------------------------------------------------------------------------------

_NAMED = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from("abcd")}, optional={"value": st.sampled_from("vw")}),
    max_size=4,
    unique_by=lambda one: one["key"],
)
_KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "unschedulable": st.booleans(),
        "taints": _NAMED,
        "podCIDRs": st.lists(st.sampled_from("pqr"), max_size=3, unique=True),
        "nested": st.fixed_dictionaries({}, optional={"a": st.integers(0, 2), "things": _NAMED}),
    },
)


def known_of(there: Any) -> Any:
    """As types have it that do not know the fields which `with_unknown_fields` adds."""
    if isinstance(there, dict):
        return {name: known_of(one) for name, one in there.items() if not name.startswith("xUnknown")}
    return [known_of(one) for one in there] if isinstance(there, list) else there


def assert_kept(there: Any, after: Any, patched: Any) -> None:
    """The unknown fields of all parts that are there afterwards. Elements are known by their key."""
    if isinstance(there, dict):
        for name, value in there.items():
            if name.startswith("xUnknown"):
                assert same(patched[name], value)
            elif name in after:
                assert_kept(value, after[name], patched[name])
    elif isinstance(there, list) and any(isinstance(one, dict) for one in there):
        left, now = ({one["key"]: one for one in those} for those in (after, patched))
        for one in there:
            if one["key"] in left:
                assert_kept(one, left[one["key"]], now[one["key"]])


@settings(max_examples=some(400), deadline=None)
@given(before=_KNOWN, after=_KNOWN, seed=st.integers(0, 2**32))
def test_the_patch_makes_the_edit_and_keeps_every_unknown_field(
    before: dict[str, Any], after: dict[str, Any], seed: int
) -> None:
    there = versioned({"spec": with_unknown_fields(before, random.Random(seed))})
    wanted = carried(there, versioned({"spec": before}), versioned({"spec": after}))
    patched = json_patch(there, patch_of(there, wanted)) if not same(there, wanted) else there
    assert same(known_of(patched)["spec"], after)
    assert_kept(there["spec"], after, patched["spec"])
