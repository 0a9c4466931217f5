"""What the devices of a class publish that a request can ask for: models, places that can be equal, memory, shares.

Counted by pool, and kept with it for as long as the pool and the class stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from claims.devices.cache import DeviceSnapshot
from claims.devices.published import MODEL_ATTRIBUTES, CandidateDevice, DevicePool
from insight.selector_matches import class_selectors, passing
from manciple.wire.limits import TimeLimitExceeded
from scheduling.cel import CompileError, Selector, compile_selector

#: Names of attributes, whatever their domain, by which drivers say where a device is plugged in -> in words.
PLACES = {"pcieRoot": "PCIe root", "numaNode": "NUMA node", "numa": "NUMA node"}
#: Part of a capacity's name that says that it is the device's memory.
MEMORY = "mem"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTraits:
    """Names are qualified: `gpu.example.com/memory`. Each with the number of devices that have it.

    devices: of the class; models: (attribute, value); places: attributes; shares: capacities of devices that several
    claims may share, as they are published, since claims name them so.
    """

    devices: int = 0
    models: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    capacities: Counter[str] = field(default_factory=Counter)
    shares: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: ClassTraits) -> ClassTraits:
        return ClassTraits(
            devices=self.devices + other.devices,
            models=self.models + other.models,
            places=self.places + other.places,
            capacities=self.capacities + other.capacities,
            shares=self.shares + other.shares,
        )

    @property
    def memory(self) -> str:
        """The capacity that is the devices' memory; "" if they publish none."""
        named = [(count, name) for name, count in self.capacities.items() if MEMORY in name.rpartition("/")[2].lower()]
        return max(named)[1] if named else ""


def traits_of(snapshot: DeviceSnapshot) -> Callable[[str], ClassTraits | None]:
    """class -> its traits; None for a class that does not exist, or whose selectors cannot be used in time."""
    selectors, known = class_selectors(), dict[str, ClassTraits | None]()

    def traits(name: str) -> ClassTraits | None:
        if name not in known:
            known[name] = _read(snapshot, name, selectors[name]) if name in selectors else None
        return known[name]

    return traits


def _read(snapshot: DeviceSnapshot, name: str, expressions: tuple[str, ...]) -> ClassTraits | None:
    try:
        compiled = [compile_selector(one) for one in expressions]
        return sum((_of_pool(state.pool, name, compiled) for state in snapshot.pools.values()), ClassTraits())
    except (CompileError, TimeLimitExceeded):
        return None


def _of_pool(pool: DevicePool, name: str, selectors: list[Selector]) -> ClassTraits:
    key, expressions = (ClassTraits, name), tuple(one.expression for one in selectors)
    kept = pool.memo.get(key)
    if kept is None or kept[0] != expressions:
        match, traits = passing(pool, selectors).match, ClassTraits()
        matching = [one for place, one in enumerate(pool.candidates) if match >> place & 1]
        for one in matching:
            _count(one, traits)
        kept = pool.memo[key] = (expressions, replace(traits, devices=len(matching)))
    found: ClassTraits = kept[1]
    return found


def _count(one: CandidateDevice, traits: ClassTraits) -> None:
    for name, attribute in one.device.attributes.items():
        short = name.rpartition("/")[2]
        if short in PLACES:
            traits.places[_qualified(one.driver, name)] += 1
        elif short in MODEL_ATTRIBUTES and attribute.string_value:
            traits.models[_qualified(one.driver, name), attribute.string_value] += 1
    for name in one.device.capacity:
        traits.capacities[_qualified(one.driver, name)] += 1
        if one.device.allow_multiple_allocations:
            traits.shares[name] += 1


def _qualified(driver: str, name: str) -> str:
    return name if "/" in name else f"{driver}/{name}"
