"""The parts of the scheduler's state: each is copied by its fields, so that no what-if writes into live state."""

from __future__ import annotations

import inspect
import types
import typing
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from inventory.kinds import gates
from manciple.copying import RESET, SHARED, copies_of_fields, copy_of, is_part
from manciple.wire.resources import BUDGETS, PODS
from scheduling.state import extensions
from scheduling.state.cluster import ClusterState
from scheduling.state.extensions import EXTENSIONS
from scheduling.state.fair_share import FairShare
from tests.builders import make_pod


def origin_of(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def parts_in(hint: Any) -> Iterator[type]:
    """The parts that a field of this type may hold."""
    origin = origin_of(hint)
    if isinstance(origin, type) and is_part(origin):
        yield origin
        subclasses: list[type] = origin.__subclasses__()
        for further in subclasses:
            yield from parts_in(further)
    for argument in typing.get_args(hint):
        yield from parts_in(argument)


def all_parts() -> list[type]:
    """A dataclass with slots takes the place of the class that it decorates, which stays among the subclasses."""
    found, left = dict[str, type](), list[type]([ClusterState])
    while left:
        part = left.pop()
        if part.__qualname__ not in found:
            found[part.__qualname__] = part
            hints = typing.get_type_hints(part)
            left += [new for one in fields(part) for new in parts_in(hints[one.name])]
    return list(found.values())


with gates.using(**dict.fromkeys(EXTENSIONS, True)):
    extensions.enabled()  # parts of the state that are imported now
PARTS = all_parts()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_says_how_it_is_copied(part: type) -> None:
    assert [name for name, _ in copies_of_fields(part)] == [one.name for one in fields(part)]


def test_the_parts_of_the_state_and_of_its_parts_are_looked_at() -> None:
    names = {part.__name__ for part in PARTS}
    assert names >= {"NodeTable", "Neighbours", "Inventory", "UsageLog", "Overlay", "QuotaRoom", "DraftNegotiator"}
    assert len(PARTS) > 30


class Sample:
    """Values of any type, with something in every container; of each part there is one."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def of(self, hint: Any) -> Any:
        origin, args = origin_of(hint), [one for one in typing.get_args(hint) if one is not type(None)]
        value: Any = "value"
        if origin in (typing.Union, types.UnionType):
            value = self.of(args[0])
        elif isinstance(origin, type) and is_part(origin):
            value = self.part(origin)
        elif origin in (dict, defaultdict, Counter):
            value = Counter({"key": 1}) if origin is Counter else {"key": self.of(args[1])}
            value = defaultdict(dict, value) if origin is defaultdict else value
        elif origin in (list, set, deque) or (origin is tuple and any(parts_in(hint))):
            value = origin([self.of(args[0])])
        return value

    def part(self, cls: type) -> Any:
        cls = next(one for one in PARTS if issubclass(one, cls) and not inspect.isabstract(one))
        if cls.__name__ not in self.parts:
            made = self.parts[cls.__name__] = object.__new__(cls)
            hints = typing.get_type_hints(cls)
            for one in fields(cls):  # type: ignore[arg-type]  # of a dataclass
                setattr(made, one.name, self.of(hints[one.name]))
        return self.parts[cls.__name__]


def pictured(value: Any, seen: set[int]) -> Any:
    """Everything in it, in a form that compares equal while nothing has changed."""
    if is_dataclass(value) and is_part(type(value)):
        if id(value) in seen:
            return type(value).__name__
        seen.add(id(value))
        return {one.name: pictured(getattr(value, one.name), seen) for one in fields(value)}
    if isinstance(value, dict):
        return {key: pictured(one, seen) for key, one in value.items()}
    if isinstance(value, list | tuple | deque | set):
        return [pictured(one, seen) for one in value]
    return value


def spoil(value: Any, done: set[int]) -> int:
    """Change every field of every part in it, and every container. Returns how many containers there were."""
    if id(value) in done:
        return 0
    done.add(id(value))
    changed = 0
    if is_dataclass(value) and is_part(type(value)):
        for one in fields(value):
            if one.metadata != SHARED:
                changed += spoil(getattr(value, one.name), done)
            setattr(value, one.name, "spoilt")
    elif isinstance(value, dict):
        changed = 1 + sum(spoil(one, done) for one in value.values())
        value["spoilt"] = 7
    elif isinstance(value, list | set | deque | tuple):
        changed = 1 + sum(spoil(one, done) for one in value)
        if isinstance(value, set):
            value.add("spoilt")
        elif not isinstance(value, tuple):
            value.append("spoilt")
    return changed


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_nothing_that_is_done_to_a_copy_shows_in_the_original(part: type) -> None:
    original = Sample().part(part)
    before = pictured(original, set())
    copy = copy_of(original)
    assert copy is not original
    spoil(copy, set())
    assert pictured(original, set()) == before


def test_the_samples_fill_every_container() -> None:
    assert spoil(Sample().part(ClusterState), set()) > 90


def test_a_copy_has_what_the_original_has() -> None:
    original = Sample().part(ClusterState)
    reset = {one.name for part in PARTS for one in fields(part) if one.metadata == RESET}

    def without_reset(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_reset(one) for key, one in value.items() if key not in reset}
        return [without_reset(one) for one in value] if isinstance(value, list) else value

    assert without_reset(pictured(copy_of(original), set())) == without_reset(pictured(original, set()))


def test_the_state_keeps_nothing_outside_of_its_fields() -> None:
    """An attribute that is set without being declared would be missing in copies."""
    with gates.using(
        DRANodeAllocatableResources=True,
        DRAControlPlaneController=True,
        DRAClaimsDraft=True,
        DRAStructuredParametersDraft=True,
    ):
        state = ClusterState(shares=FairShare())
        state.put(PODS, make_pod())
        state.begin()
    assert vars(state).keys() == {one.name for one in fields(state)}
    open_parts = [part.__name__ for part in PARTS if part is not ClusterState and "__dict__" in dir(part)]
    assert open_parts == [], "declare them with slots=True"


def test_events_reach_the_parts_of_the_copy() -> None:
    with gates.using(DRANodeAllocatableResources=True, DRAControlPlaneController=True, DRAClaimsDraft=True):
        state = ClusterState(shares=FairShare())
    copy = copy_of(state)
    for resource, parts in state._followers.items():
        assert resource in state.resources
        for part, copied in zip(parts, copy._followers[resource], strict=True):
            assert copied is not part
    assert copy._followers[BUDGETS] == (copy.budgets,)


def test_no_part_of_the_state_is_shared_with_its_copies() -> None:
    assert [(part, one.name) for part in PARTS for one in fields(part) if one.metadata == SHARED] == []
