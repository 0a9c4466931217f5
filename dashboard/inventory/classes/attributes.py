"""What the published devices have: attributes and capacities by domain, with their types and values; examples of use.

Pure: worked out once for the devices that are published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from insight.selector_matches import JudgedDevices
from manciple.cel.kubernetes import Amount, Semver
from scheduling.cel.clauses import extremes, shown

#: Different values of one attribute that are remembered.
REMEMBERED = 200
#: Numbers that are named one by one; of more, their span.
NAMED = 3

#: Names that drivers use for what people most often select by.
_TELLING = frozenset(("productName", "model", "memory", "driverVersion", "numaNode", "interface", "bandwidth"))

_TYPES: dict[type, str] = {bool: "bool", int: "int", str: "string", Semver: "semver", Amount: "quantity", list: "list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassProperty:
    """One attribute or capacity that devices have."""

    field: str  # attributes or capacity
    domain: str
    name: str
    type: str  # bool, int, string, semver, quantity or list
    values: tuple[Any, ...]  # different ones, at most REMEMBERED
    more: bool
    devices: int  # that have it

    @property
    def text(self) -> str:
        """How an expression names it."""
        return f'device.{self.field}["{self.domain}"].{self.name}'

    @property
    def summary(self) -> str:
        """`3 values`, `0, 1`, `48Gi-141Gi`, `semver`."""
        if self.type in ("bool", "semver", "list"):
            return self.type
        if self.type == "string":
            count = len(self.values)
            return shown(self.values[0]).strip('"') if count == 1 else f"{count}{'+' if self.more else ''} values"
        ends = extremes(self.values)
        if ends is None or len(self.values) <= NAMED:
            order = attrgetter("nanos") if self.type == "quantity" else None
            return ", ".join(map(shown, sorted(self.values, key=order)))
        return f"{shown(ends[0])}\N{EN DASH}{shown(ends[1])}"


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    properties: tuple[ClassProperty, ...]
    #: shown open at first
    open: bool = False


@dataclass(slots=True)
class _Found:
    type: str
    values: dict[str, Any] = field(default_factory=dict)
    devices: int = 0
    more: bool = False


def domains(devices: JudgedDevices) -> tuple[Domain, ...]:
    """The domains by how many devices have them, each with its attributes and capacities."""
    return devices.derived("domains", lambda: _domains(devices))


def drivers(devices: JudgedDevices) -> tuple[str, ...]:
    """Whose devices there are, the one with most devices first."""
    return devices.derived("drivers", lambda: _drivers(devices))


def _drivers(devices: JudgedDevices) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for candidate in devices.candidates:
        counts[candidate.driver] = counts.get(candidate.driver, 0) + 1
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def _domains(devices: JudgedDevices) -> tuple[Domain, ...]:
    found: dict[tuple[str, str, str], _Found] = {}
    for view in devices.views:
        for place, maps in (("attributes", view.attributes), ("capacity", view.capacity)):
            for domain, values in maps.items():
                for name, value in values.items():
                    _note(found.setdefault((domain, place, name), _Found(_type_of(value))), value)
    properties: dict[str, list[ClassProperty]] = {}
    for (domain, place, name), one in sorted(found.items()):
        properties.setdefault(domain, []).append(
            ClassProperty(
                field=place,
                domain=domain,
                name=name,
                type=one.type,
                values=tuple(one.values.values()),
                more=one.more,
                devices=one.devices,
            )
        )
    size = {domain: max(one.devices for one in these) for domain, these in properties.items()}
    own = drivers(devices)
    ordered = sorted(properties, key=lambda domain: (domain not in own, -size[domain], domain))
    return tuple(Domain(name, tuple(properties[name]), open=index < 2) for index, name in enumerate(ordered))  # noqa: PLR2004 - what fits beside the editor


def _type_of(value: Any) -> str:
    return _TYPES.get(type(value), "string")


def _note(found: _Found, value: Any) -> None:
    found.devices += 1
    key = shown(value)
    if key not in found.values:
        if len(found.values) < REMEMBERED:
            found.values[key] = value
        else:
            found.more = True


def examples(devices: JudgedDevices) -> Iterator[tuple[str, str]]:
    """(what it selects, expression) made from what is really published."""
    for driver in drivers(devices)[:1]:
        yield f"Every device of {driver}", f'device.driver == "{driver}"'
    wanted = {"string": 1, "quantity": 1, "semver": 1, "int": 1, "bool": 1}
    for domain in domains(devices):
        for one in sorted(domain.properties, key=lambda one: (one.name not in _TELLING, len(one.values))):
            if wanted.get(one.type) and one.values and not one.more:
                wanted[one.type] -= 1
                yield _example(one)


def _example(one: ClassProperty) -> tuple[str, str]:
    ends = extremes(one.values)
    guard = f'"{one.name}" in device.{one.field}["{one.domain}"] && '
    if one.type == "quantity" and ends:
        most = shown(ends[1])
        return f"At least {most} of {one.name}", f'{guard}{one.text}.compareTo(quantity("{most}")) >= 0'
    if one.type == "semver" and ends:
        least = shown(ends[0])
        return f"{one.name} {least} or later", f'{guard}!{one.text}.isLessThan(semver("{least}"))'
    value = one.values[0]
    return f"{one.name} is {shown(value)}", f"{guard}{one.text} == {shown(value)}"
