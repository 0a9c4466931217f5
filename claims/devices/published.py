"""What drivers publish, read once from its documents: devices, pools, counter sets.

Pure. A `CandidateDevice` lives as long as its ResourceSlice stays as it is, so that what was found out about it can be
kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from claims.devices.states import DeviceState
from claims.kinds.resource_claims import DrawnCounters, highest, recorded_draw
from inventory.kinds import gates
from inventory.kinds.devices import (
    HARD_EFFECTS,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourceSlice,
    ResourceSliceSpec,
    is_unhealthy,
)
from inventory.kinds.pools import DRAFT_GENERATION, PoolKey, SliceTally
from manciple.wire.limits import short_text_cache
from manciple.wire.quantity import Quantity

#: (driver, pool, device, node of the pool)
DeviceKey = tuple[str, str, str, str]
#: counter set -> counter -> nanos
Draw = Mapping[str, Mapping[str, int]]

_NO_DRAW: Draw = {}

#: Attributes that drivers use for the model, best first.
MODEL_ATTRIBUTES = ("productName", "model")
#: What tells a network interface: an attribute of one of these names (whatever its domain), or the capacity
#: `bandwidth`. dranet says ifName and mac, the SR-IOV driver pfName, Manciple's own interface and macAddress.
GAUGE_ATTRIBUTES = {"macAddress", "mac", "ifName", "interface", "interfaceName", "pfName", "netdev", "rdmaDevice"}
GAUGE_CAPACITY = "bandwidth"


def pool_of(device: DeviceKey) -> PoolKey:
    driver, pool, _, node = device
    return PoolKey(driver, pool, node)


def address_of(device: DeviceKey) -> str:
    """driver/pool/device, with ?node=NODE unless the pool is named after its node or is of no single node.

    Pools of several nodes may have one name.
    """
    driver, pool, name, node = device
    address = f"{driver}/{pool}/{name}"
    return address if node in ("", pool) else f"{address}?node={node}"


class Keyed:
    """What is known by the key of a device."""

    __slots__ = ()

    @property
    def key(self) -> DeviceKey:
        raise NotImplementedError

    @property
    def name(self) -> str:
        return self.key[2]

    @property
    def driver(self) -> str:
        return self.key[0]

    @property
    def pool(self) -> str:
        return self.key[1]

    @property
    def address(self) -> str:
        """As it stands in URLs and element ids."""
        return address_of(self.key)


class Traits(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """What devices of a slice have in common that are alike; of these one object."""

    home: PoolKey
    node: str
    model: str
    fence: DeviceState | None
    gauge: bool
    draws: Draw


class CandidateDevice(Keyed, msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One published device. Compared by identity; nothing that it holds leads back to it (`gc=False`)."""

    traits: Traits
    device: Device

    @property
    def home(self) -> PoolKey:
        """Its pool."""
        return self.traits.home

    @property
    def node(self) -> str:
        """Empty where it is not one node's."""
        return self.traits.node

    @property
    def model(self) -> str:
        return self.traits.model

    @property
    def fence(self) -> DeviceState | None:
        """TAINTED or UNHEALTHY where claims are kept away."""
        return self.traits.fence

    @property
    def gauge(self) -> bool:
        """Whether it is a network interface."""
        return self.traits.gauge

    @property
    def draws(self) -> Draw:
        """What it takes of its pool's counters."""
        return self.traits.draws

    @property
    def key(self) -> DeviceKey:
        """Made when it is asked for: a large cluster's would take as much as the devices' states."""
        driver, pool, node = self.home
        return driver, pool, self.device.name, node

    @property
    def facts(self) -> Iterable[tuple[str, str]]:
        """What filters ask for: (name, value). Not kept: of a large cluster they would take more than all else."""
        for name, attribute in self.device.attributes.items():
            yield short_name(self.driver, name), attribute_text(attribute)
        for name, capacity in self.device.capacity.items():
            yield short_name(self.driver, name), str(capacity.value)

    @property
    def place(self) -> str:
        """Its node, or its pool where that belongs to no single node."""
        return self.node or self.pool

    @property
    def title(self) -> str:
        return f"{self.place} / {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceSlice:
    """A ResourceSlice. published: itself; others who follow slices hold the same one.

    memo: what others derived from it, for as long as it is published.
    """

    name: str
    pool: PoolKey
    generation: int
    expected: int
    node: str
    candidates: tuple[CandidateDevice, ...]
    counters: Draw  # what its counter sets hold
    published: ResourceSlice
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def spec(self) -> ResourceSliceSpec:
        return self.published.spec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DevicePool:
    """The slices of a pool's highest generation, by name. memo: as of `DeviceSlice`."""

    key: PoolKey
    generation: int
    expected: int
    slices: tuple[DeviceSlice, ...]
    complete: bool
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def generation_said(self) -> str:
        """For pages; a pool of NodeResourceSlices has no generation."""
        return "none" if self.generation == DRAFT_GENERATION else str(self.generation)

    @property
    def count(self) -> SliceTally:
        return SliceTally(self.generation, self.expected, len(self.slices))

    @property
    def node(self) -> str:
        """Empty if it is not one node's."""
        return self.key.node

    @property
    def candidates(self) -> Iterable[CandidateDevice]:
        return (candidate for one in self.slices for candidate in one.candidates)

    @property
    def counters(self) -> Draw:
        return {name: amounts for one in self.slices for name, amounts in one.counters.items()}

    def left(self, held: Mapping[DeviceKey, Iterable[DrawnCounters]]) -> dict[str, dict[str, int]]:
        """counter set -> counter -> what the held devices leave of it, in nanos. held: with what each drew when it was
        allocated: some may not be published any more.
        """
        left = {name: dict(amounts) for name, amounts in self.counters.items()}
        if not left or not held:
            return left
        published = {one.key: one.draws for one in self.candidates}
        for device, draws in held.items():
            now = published.get(device, _NO_DRAW)
            by_counter = {(name, counter): amount for name, draw in now.items() for counter, amount in draw.items()}
            recorded = (recorded_draw(one, left, device_is_published=device in published) for one in draws)
            for (name, counter), amount in highest((by_counter, *recorded)).items():
                charge({name: {counter: amount}}, left)
        return left


class Published:
    """Every published device, in published order. The same object as long as nothing is published anew."""

    def __init__(self, slices: Iterable[DeviceSlice]) -> None:
        self.slices = tuple(slices)
        #: as of `DeviceSlice`
        self.memo: dict[Any, Any] = {}
        self.candidates = tuple(candidate for one in self.slices for candidate in one.candidates)


def read_slice(published: ResourceSlice) -> DeviceSlice:
    spec = published.spec
    pool = PoolKey(spec.driver, spec.pool.name, spec.node_name or "")
    alike: dict[Hashable, Traits] = {}
    return DeviceSlice(
        name=published.metadata.name,
        pool=pool,
        generation=spec.pool.generation,
        expected=spec.pool.resource_slice_count,
        node=spec.node_name or "",
        candidates=tuple(
            candidate_of(pool, device, node=device.node_name or spec.node_name or "", alike=alike)
            for device in spec.devices
        ),
        counters={one.name: _amounts(one) for one in spec.shared_counters} or _NO_DRAW,
        published=published,
    )


def gather(key: PoolKey, slices: Iterable[DeviceSlice], namesakes: Iterable[SliceTally] = ()) -> DevicePool:
    """The pool that these slices make up; without slices an incomplete one.

    namesakes: the counts of the other pools with its driver and name.
    """
    known = list(slices)
    highest = max((one.generation for one in known), default=0)
    current = tuple(sorted((one for one in known if one.generation == highest), key=lambda one: one.name))
    count = SliceTally(highest, current[0].expected if current else 1, len(current))
    return DevicePool(
        key=key, generation=highest, expected=count.expected, slices=current, complete=count.is_complete(namesakes)
    )


def candidate_of(
    pool: PoolKey, device: Device, *, node: str = "", alike: dict[Hashable, Traits] | None = None
) -> CandidateDevice:
    """alike: the traits of other devices of its slice; its own are added where they differ."""
    model, fence, gauge = _model(pool[0], device), fence_of(device.taints), _is_gauge(device)
    # Equal consumption is one object already, in slices whose values are shared.
    key = (node, model, fence, gauge, id(device.consumes_counters))
    traits = alike.get(key) if alike is not None else None
    if traits is None:
        draws = {one.counter_set: _amounts(one) for one in device.consumes_counters} or _NO_DRAW
        traits = Traits(home=pool, node=node, model=model, fence=fence, gauge=gauge, draws=draws)
        if alike is not None:
            alike[key] = traits
    return CandidateDevice(traits=traits, device=device)


def fence_of(taints: Iterable[DeviceTaint]) -> DeviceState | None:
    """UNHEALTHY where a driver says that it is broken, TAINTED where claims are kept away for another reason.

    Taints keep nobody away while their gate is off.
    """
    if not gates.enabled("DRADeviceTaints"):
        return None
    fencing = [taint for taint in taints if taint.effect in HARD_EFFECTS]
    if any(is_unhealthy(taint.key) for taint in fencing):
        return DeviceState.UNHEALTHY
    return DeviceState.TAINTED if fencing else None


def is_blocked(candidate: CandidateDevice, left: Draw) -> bool:
    """Whether others hold hardware that the device needs."""
    return not all(fits(draw, left.get(name, {})) for name, draw in candidate.draws.items())


def fits(draw: Mapping[str, int], left: Mapping[str, int]) -> bool:
    return all(amount <= left.get(name, 0) for name, amount in draw.items())


def charge(draws: Draw, left: Mapping[str, dict[str, int]]) -> None:
    """Take what a device draws from what is left."""
    for name, draw in draws.items():
        for counter, amount in draw.items():
            if counter in left.get(name, {}):
                left[name][counter] -= amount


def short_name(driver: str, name: str) -> str:
    """An attribute's or a capacity's name as its driver would write it: without the driver's own domain."""
    return name.removeprefix(f"{driver}/")


def attribute_text(attribute: DeviceAttribute) -> str:
    """Its value as a person writes it; several as a list."""
    for values in (attribute.int_values, attribute.string_values, attribute.version_values):
        if values:
            return ", ".join(map(str, values))
    if attribute.bool_values:
        return ", ".join(map(_truth, attribute.bool_values))
    if attribute.bool_value is not None:
        return _truth(attribute.bool_value)
    for value in (attribute.int_value, attribute.string_value, attribute.version_value):
        if value is not None:
            return str(value)
    return ""


def _truth(value: Any) -> str:
    return "true" if value else "false"


def _model(driver: str, device: Device) -> str:
    """What to call this kind of device: its model attribute, else its driver's name."""
    for name in MODEL_ATTRIBUTES:
        found = device.attributes.get(name) or device.attributes.get(f"{driver}/{name}")
        if found is not None and found.string_value:
            return found.string_value
    return driver


def _is_gauge(device: Device) -> bool:
    names = {name.rpartition("/")[2] for name in device.attributes}
    return not names.isdisjoint(GAUGE_ATTRIBUTES) or any(
        name.rpartition("/")[2] == GAUGE_CAPACITY for name in device.capacity
    )


def _amounts(one: CounterSet | DeviceCounterConsumption) -> dict[str, int]:
    return {name: nanos(counter.value) for name, counter in one.counters.items()}


@short_text_cache(4096)
def nanos(amount: str) -> int:
    """A quantity as a number to reckon with; nothing where it cannot be read."""
    try:
        return Quantity.parse(amount).nanos
    except ValueError:
        return 0
