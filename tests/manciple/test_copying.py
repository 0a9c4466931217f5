"""Copies of mutable state are derived from the types of its fields."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import pytest

from manciple.copying import RESET, SHARED, copies_of_fields, copy_of


@dataclass(frozen=True)
class Value:
    number: int = 1


@dataclass(slots=True, eq=False)
class Leaf:
    names: dict[str, set[str]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class State:
    leaf: Leaf = field(default_factory=Leaf)
    same_leaf: Leaf | None = None
    parent: State | None = None
    amounts: dict[str, Counter[str]] = field(default_factory=dict)
    held: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    steps: list[Value] = field(default_factory=list)
    last: deque[int] = field(default_factory=deque)
    leaves: tuple[Leaf, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list, metadata=SHARED)
    cache: dict[str, str] = field(default_factory=dict, metadata=RESET)
    read: int = field(default=0, metadata=RESET)


def test_what_is_done_to_a_copy_does_not_show_in_the_original() -> None:
    state = State(amounts={"a": Counter(x=1)}, steps=[Value()], last=deque([1], maxlen=2), leaves=(Leaf({"a": {"b"}}),))
    state.held["a"]["x"] += 1
    copy = copy_of(state)
    copy.amounts["a"]["x"] += 1
    copy.held["a"]["x"] += 1
    copy.held["new"]["x"] += 1
    copy.steps.append(Value(2))
    copy.last.append(2)
    copy.leaves[0].names["a"].add("c")
    assert (state.amounts, dict(state.held)) == ({"a": Counter(x=1)}, {"a": Counter(x=1)})
    assert (state.steps, state.last, state.leaves[0].names) == ([Value()], deque([1]), {"a": {"b"}})
    assert copy.last.maxlen == 2


def test_parts_refer_to_each_other_in_the_copy_as_in_the_original() -> None:
    state = State()
    state.same_leaf, state.parent = state.leaf, state
    copy = copy_of(state)
    assert copy.same_leaf is copy.leaf is not state.leaf
    assert copy.parent is copy


def test_fields_may_be_shared_or_start_again() -> None:
    state = State(log=["one"], cache={"a": "b"}, read=3, labels={"a": "b"})
    copy = copy_of(state)
    assert copy.log is state.log
    assert copy.labels is state.labels
    assert (copy.cache, copy.read) == ({}, 0)
    assert state.cache == {"a": "b"}


@dataclass
class WithCallable:
    look_up: Callable[[str], str]


@dataclass
class WithAnything:
    anything: dict[str, Any] = field(default_factory=dict)


@dataclass
class WithChoice:
    choice: list[str] | dict[str, str] = field(default_factory=list)


class Plain:
    pass


@dataclass
class WithPlainObject:
    plain: tuple[Plain, ...] = ()


@pytest.mark.parametrize("part", [WithCallable, WithAnything, WithChoice, WithPlainObject])
def test_a_field_whose_type_does_not_say_how_it_is_copied_is_refused(part: type) -> None:
    (name,) = get_type_hints(part)
    with pytest.raises(TypeError, match=f"{part.__name__}.{name}"):
        copies_of_fields(part)


def test_an_attribute_that_is_no_field_is_not_shared_silently() -> None:
    state = WithPlainObject()
    state.extra = {}  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        copy_of(state)
    bare = WithChoiceless()
    bare.extra = {}  # type: ignore[attr-defined]
    assert not hasattr(copy_of(bare), "extra")


@dataclass
class WithChoiceless:
    number: int = 1
