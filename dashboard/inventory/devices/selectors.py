"""A CEL selector that chooses exactly some of the published devices. PURE.

A selector sees a device's driver, attributes and capacity, and neither its name nor its pool. So what tells the chosen
devices from the others is looked for in the attributes: the one that leaves the fewest others, and within each of its
values that both have, again. Having nothing there is a value too. Devices that are alike in everything that a selector
sees cannot be told apart: the selector then chooses those others as well, and says how many.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from claims.devices.published import CandidateDevice, DeviceKey, short_name
from inventory.kinds.devices import DeviceAttribute
from manciple.wire.validation import natural
from scheduling.cel.device import split_name

#: Characters that an expression of a DeviceClass or claim may have (resource/v1 CELSelectorExpressionMaxLength).
LONGEST = 10 * 1024

#: (field, domain, name) of an attribute or a capacity
Place = tuple[str, str, str]
#: (type, value as CEL); None where a device has nothing.
Value = tuple[str, str] | None
#: A device as selectors see it; what it lacks is left out.
Vector = Mapping[Place, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSelector:
    """also: devices that were not chosen and that it chooses too. too_long: for a class or a claim."""

    expression: str
    also: tuple[CandidateDevice, ...] = ()

    @property
    def too_long(self) -> bool:
        return len(self.expression) > LONGEST


def exact_selector(chosen: Collection[CandidateDevice], published: Iterable[CandidateDevice]) -> ExactSelector:
    """chosen: some of `published`."""
    wanted = {one.key for one in chosen}
    by_driver: dict[str, list[CandidateDevice]] = {driver: [] for driver in sorted({one.driver for one in chosen})}
    for one in published:
        if one.driver in by_driver:
            by_driver[one.driver].append(one)
    parts, also = list[str](), list[CandidateDevice]()
    for driver, devices in by_driver.items():
        found, left = _of_driver(driver, devices, wanted)
        parts.append(found)
        also += left
    expression = parts[0] if len(parts) == 1 else " ||\n".join(f"({part})" for part in parts)
    return ExactSelector(expression=expression, also=tuple(also))


def _of_driver(
    driver: str, devices: Sequence[CandidateDevice], wanted: Collection[DeviceKey]
) -> tuple[str, list[CandidateDevice]]:
    inside, outside = list[_Seen](), list[_Seen]()
    for one in devices:
        (inside if one.key in wanted else outside).append(_Seen(_vector(one), one))
    usable = _of_one_type(seen.vector for seen in (*inside, *outside))
    found, left = _told_apart(inside, outside, usable)
    clause = f"device.driver == {json.dumps(driver)}"
    return (f"{clause} &&\n{found}" if found else clause), [seen.device for seen in left]


class _Seen(NamedTuple):
    vector: Vector
    device: CandidateDevice


def _told_apart(
    inside: Sequence[_Seen], outside: Sequence[_Seen], places: frozenset[Place]
) -> tuple[str, Sequence[_Seen]]:
    """(what holds of all inside and, as far as that can be, of none outside; those outside of whom it holds).

    "" where nothing helps, or nothing needs to be said. places: those not asked for yet.
    """
    best = _best(inside, outside, places) if outside else None
    if best is None:
        return "", outside
    within, without = _by_value(inside, best), _by_value(outside, best)
    alternatives: dict[str, list[Value]] = defaultdict(list)
    left = list[_Seen]()
    for value, some in within.items():
        rest, mixed = _told_apart(some, without.get(value, ()), places - {best})
        left += mixed
        alternatives[rest].append(value)
    if len(left) == len(outside):
        return "", outside
    lacking = any(best not in seen.vector for seen in (*inside, *outside))
    texts = [
        _is_one_of(best, values, guarded=lacking) + (f" && {rest}" if rest else "")
        for rest, values in alternatives.items()
    ]
    return (texts[0] if len(texts) == 1 else f"({' || '.join(texts)})"), left


def _best(inside: Sequence[_Seen], outside: Sequence[_Seen], places: Iterable[Place]) -> Place | None:
    """What leaves the fewest outside; of equals what all inside have, and then what has the fewest values to list."""
    costs = list[tuple[int, bool, int, Place]]()
    for place in places:
        values = {seen.vector.get(place) for seen in inside}
        left = sum(seen.vector.get(place) in values for seen in outside)
        if left < len(outside) or len(values) > 1:
            costs.append((left, None in values, len(values), place))
    return min(costs)[3] if costs else None


def _by_value(some: Iterable[_Seen], place: Place) -> dict[Value, list[_Seen]]:
    found: dict[Value, list[_Seen]] = defaultdict(list)
    for seen in some:
        found[seen.vector.get(place)].append(seen)
    return found


# As CEL --------------------------------------------------------------------------------------------------------------


def _is_one_of(place: Place, values: Sequence[Value], *, guarded: bool) -> str:
    """guarded: some devices that are asked have nothing there."""
    field, domain, name = place
    there = f"{json.dumps(name)} in device.{field}[{json.dumps(domain)}]"
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return _equals_one_of(place, known, guard=f"{there} && " if guarded else "")
    lacks = f"!({there})"
    return f"({lacks} || {_equals_one_of(place, known, guard='')})" if known else lacks


def _equals_one_of(place: Place, values: Sequence[tuple[str, str]], *, guard: str) -> str:
    field, domain, name = place
    where = f"device.{field}[{json.dumps(domain)}].{name}"
    texts = sorted((text for _, text in values), key=natural)
    if values[0][0] in ("version", "quantity"):
        compared = " || ".join(f"{where}.compareTo({text}) == 0" for text in texts)
        return guard + (compared if len(texts) == 1 else f"({compared})")
    return f"{guard}{where} == {texts[0]}" if len(texts) == 1 else f"{guard}{where} in [{', '.join(texts)}]"


def _vector(one: CandidateDevice) -> Vector:
    found: dict[Place, tuple[str, str]] = {}
    for name, attribute in one.device.attributes.items():
        if (value := _value(attribute)) is not None:
            found["attributes", *split_name(name, one.driver)] = value
    for name, capacity in one.device.capacity.items():
        found["capacity", *split_name(name, one.driver)] = "quantity", f"quantity({json.dumps(str(capacity.value))})"
    return found


def _value(attribute: DeviceAttribute) -> tuple[str, str] | None:
    """None for attributes with several values: their order may change."""
    if attribute.bool_value is not None:
        return "bool", "true" if attribute.bool_value else "false"
    if attribute.int_value is not None:
        return "int", str(attribute.int_value)
    if attribute.string_value is not None:
        return "string", json.dumps(attribute.string_value)
    if attribute.version_value is not None:
        return "version", f"semver({json.dumps(attribute.version_value)})"
    return None


def _of_one_type(vectors: Iterable[Vector]) -> frozenset[Place]:
    """What has the same type on every device that has it: others cannot be compared on all of them."""
    types: dict[Place, set[str]] = defaultdict(set)
    for vector in vectors:
        for place, (type_, _) in vector.items():
            types[place].add(type_)
    return frozenset(place for place, found in types.items() if len(found) == 1)


#: Where a device sits, which says nothing about its kind.
_PLACES = {"index", "numaNode", "rack", "placement", "resource.kubernetes.io/pcieRoot"}


def selector_of(candidate: CandidateDevice, counts: Mapping[str, Counter[str]]) -> str:
    """counts: name -> value -> how many devices have it. What is different on every device (a uuid) is left out."""
    driver = candidate.key[0]
    clauses = [f"device.driver == {json.dumps(driver)}"]
    for name, attribute in sorted(candidate.device.attributes.items()):
        short = short_name(driver, name)
        common = counts.get(short, Counter())
        tells_apart = 1 < len(common) == common.total()
        if short not in _PLACES and not tells_apart:
            clauses += _of_attribute(_access("attributes", driver, name), attribute)
    for name, capacity in sorted(candidate.device.capacity.items()):
        where = _access("capacity", driver, name)
        clauses.append(f'{where}.compareTo(quantity("{capacity.value}")) >= 0')
    return " &&\n".join(clauses)


def _access(kind: str, driver: str, name: str) -> str:
    domain, slash, identifier = name.rpartition("/")
    return f"device.{kind}[{json.dumps(domain if slash else driver)}].{identifier}"


def _of_attribute(where: str, attribute: DeviceAttribute) -> Iterator[str]:
    """Nothing of attributes with several values: which of them matters is for a person to say."""
    type_, text = _value(attribute) or ("", "")
    if type_ == "bool":
        yield where if attribute.bool_value else f"!{where}"
    elif type_:
        yield f"{where}.compareTo({text}) >= 0" if type_ == "version" else f"{where} == {text}"
