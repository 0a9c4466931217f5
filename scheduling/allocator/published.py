"""One published ResourceSlice, read once: the nodes that it targets, its devices, and the selector verdicts on them.

A `SliceContent` is immutable; a new version of the ResourceSlice makes a new one. It carries the cache of selector
verdicts, so that a verdict lives exactly as long as the devices that it is about.

Equal content is stored once (`inventory.kinds.shared_values`), and what is derived from it (what a request consumes of
a capacity, a selector's verdict on some attributes) is derived once (`Interner`).

Consumable capacity (`Capacities`): a request consumes, of every capacity of a device, the amount that it asks for,
rounded as the capacity's policy says; otherwise the policy's default; otherwise all of it. Names match literally. A
range's step counts in whole units. Source: upstream's structured/internal/experimental/consumable_capacity.go (v1.37).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import msgspec

from inventory.kinds import gates
from inventory.kinds.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
    ResourceSliceSpec,
)
from inventory.kinds.nodes import NodeSelector
from inventory.kinds.pools import PoolKey
from inventory.kinds.shared_values import shared
from inventory.kinds.taint_rules import TaintRules
from manciple.copying import immutable
from manciple.wire.quantity import Quantity
from manciple.wire.selectors import ParsedNodeTerm, parsed_node_terms
from scheduling.cel import DeviceView, is_readable

#: field of Features -> (Kubernetes gate, name in upstream's structured.Features)
_NAMES: dict[str, tuple[str, str]] = {
    "admin_access": ("DRAAdminAccess", "adminAccess"),
    "prioritized_list": ("DRAPrioritizedList", "prioritizedList"),
    "partitionable_devices": ("DRAPartitionableDevices", "partitionableDevices"),
    "consumable_capacity": ("DRAConsumableCapacity", "consumableCapacity"),
    "device_taints": ("DRADeviceTaints", "deviceTaints"),
    "binding_conditions": ("DRADeviceBindingConditions", "deviceBindingAndStatus"),
    "list_attributes": ("DRAListTypeAttributes", "listTypeAttributes"),
    "extended_resources": ("DRAExtendedResource", "extendedResource"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """All on by default; each field is one gate."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    consumable_capacity: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    list_attributes: bool = True
    #: does not affect the search: its callers make the claims of extended resources
    extended_resources: bool = True

    @classmethod
    def from_gates(cls) -> Features:
        """The features whose gates are on in this process."""
        return cls(**{f.name: gates.enabled(_NAMES[f.name][0]) for f in fields(cls)})

    @classmethod
    def from_upstream(cls, flags: Mapping[str, bool]) -> Features:
        """From upstream's `structured.Features` names, which scenarios use; features that are not named are off."""
        return cls(**{f.name: bool(flags.get(_NAMES[f.name][1], False)) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's name and labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


#: capacity name -> amount
Consumption = Mapping[str, Quantity]
#: capacity name, quantity text; sorted
Asked = tuple[tuple[str, str], ...]

#: Cached amounts.
MAX_ASKED = 512


class Capacities:
    """The capacities of a device, one object for all devices with equal capacities, and what is derived from them."""

    __slots__ = ("_consumed", "_needed", "published", "readable", "totals")

    def __init__(self, published: Mapping[str, DeviceCapacity]) -> None:
        #: by name, as in `Device.capacity`
        self.published = dict(published)
        #: asked -> what is consumed, and whether an untouched device has that much
        self._consumed: dict[Asked, tuple[Consumption | None, bool]] = {}
        #: asked -> (capacity name, nanos of it that may be consumed already); None as for `consumption`
        self._needed: dict[Asked, tuple[tuple[str, int], ...] | None] = {}
        #: capacity name -> nanos
        self.totals: dict[str, int] = {}
        #: whether every amount is a quantity
        self.readable = True
        for name, capacity in published.items():
            try:
                self.totals[name] = Quantity.parse(capacity.value).nanos
            except ValueError:
                self.readable = False

    def consumption(self, asked: Asked) -> Consumption | None:
        """What a request for `asked` takes; None if a device with these capacities cannot serve it."""
        return self._known(asked)[0]

    def serves(self, asked: Asked) -> bool:
        """Whether an untouched device serves the request."""
        return self._known(asked)[1]

    def have(self, asked: Asked) -> bool:
        """Whether the device has that much of each capacity in all."""
        return all(name in self.totals and Quantity.parse(text).nanos <= self.totals[name] for name, text in asked)

    def has_room(self, asked: Asked, consumed: Mapping[str, int]) -> bool:
        """Whether a request for `asked` is served beside what is `consumed` already (capacity name -> nanos)."""
        try:
            needed = self._needed[asked]
        except KeyError:
            needed = self._needed_for(asked)
        if needed is None:
            return False
        matched, new = 0, False
        for name, most in needed:
            used = consumed.get(name)
            if used is None:
                used, new = 0, True
            else:
                matched += 1
            if used > most:
                return False
        # Shares consume something of every capacity: if one of these has gone and another has come, it may have been
        # renamed.
        return matched == len(consumed) or not new

    def _needed_for(self, asked: Asked) -> tuple[tuple[str, int], ...] | None:
        taken = self.consumption(asked)
        if len(self._needed) >= MAX_ASKED:
            self._needed.clear()
        left = None if taken is None else tuple((name, self.totals[name] - one.nanos) for name, one in taken.items())
        self._needed[asked] = left
        return left

    def _known(self, asked: Asked) -> tuple[Consumption | None, bool]:
        cached = self._consumed.get(asked)
        if cached is None:
            if len(self._consumed) >= MAX_ASKED:
                self._consumed.clear()
            taken = _consumption(self.published, dict(asked))
            cached = self._consumed[asked] = (taken, taken is not None and self.fits(taken))
        return cached

    def fits(self, taken: Consumption, *consumed: Mapping[str, int]) -> bool:
        """Whether `taken` fits beside what is `consumed` already (capacity name -> nanos)."""
        for name, amount in taken.items():
            total = amount.nanos + sum(one.get(name, 0) for one in consumed)
            if total > self.totals[name]:
                return False
        return True


def _consumption(published: Mapping[str, DeviceCapacity], wanted: Mapping[str, str]) -> Consumption | None:
    if any(name not in published for name in wanted):
        return None
    taken: dict[str, Quantity] = {}
    for name, capacity in published.items():
        amount = _consumed(wanted.get(name), capacity)
        if amount is None:
            return None
        taken[name] = amount
    return taken


def _consumed(asked: str | None, capacity: DeviceCapacity) -> Quantity | None:
    """None if the policy does not allow the amount."""
    text, policy = _amount(asked, capacity)
    if policy is None:
        return text if isinstance(text, Quantity) else Quantity.parse(text)
    # Upstream compares the default as it is written, so 3072Mi is not the default 3Gi.
    if isinstance(text, str) and text == policy.default:
        return Quantity.parse(text)
    amount = text if isinstance(text, Quantity) else Quantity.parse(text)
    return None if _violates(amount, policy) else amount


def _amount(asked: str | None, capacity: DeviceCapacity) -> tuple[str | Quantity, CapacityRequestPolicy | None]:
    """The amount, as text if it is used as written."""
    policy = capacity.request_policy
    if asked is None:
        return (policy.default if policy is not None and policy.default is not None else capacity.value), policy
    if policy is None:
        return asked, None
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_to_range(asked, policy.valid_range), policy
    if policy.valid_values:
        wanted = Quantity.parse(asked)
        return next((one for one in policy.valid_values if Quantity.parse(one) >= wanted), asked), policy
    return asked, policy


@lru_cache(maxsize=4096)
def _round_to_range(asked: str, allowed: CapacityRequestPolicyRange) -> str | Quantity:
    minimum, wanted = Quantity.parse(allowed.min or "0"), Quantity.parse(asked)
    if wanted < minimum:
        return allowed.min or "0"
    if allowed.step is None:
        return asked
    step = Quantity.parse(allowed.step)
    start, unit = minimum.as_int64_ceil(), step.as_int64_ceil()
    steps = -(-(wanted.as_int64_ceil() - start) // unit) if unit else 0
    return Quantity.of(start + steps * unit, step.format)


def _violates(amount: Quantity, policy: CapacityRequestPolicy) -> bool:
    allowed = policy.valid_range
    if allowed is not None:
        if allowed.max is not None and amount > Quantity.parse(allowed.max):
            return True
        if allowed.step is None:
            return False
        unit = Quantity.parse(allowed.step).as_int64_ceil()
        start = Quantity.parse(allowed.min or "0").as_int64_ceil()
        return bool(unit) and (amount.as_int64_ceil() - start) % unit != 0
    if policy.valid_values:
        return all(amount != Quantity.parse(one) for one in policy.valid_values)
    return False


@immutable
class Interner:
    """A cache of what is derived from devices, once for all equal ones. One for all slices of an inventory."""

    def __init__(self) -> None:
        self._capacities: dict[tuple[tuple[str, DeviceCapacity], ...], Capacities] = {}
        #: CEL expression -> the values that it looks at -> its verdict; `requests` fills it
        self.verdicts: dict[str, dict[Hashable, bool | str]] = {}

    def derived(self, device: Device) -> tuple[Capacities, bool]:
        """The device's capacities, and whether selectors can read it."""
        capacities = self._capacity(device.capacity)
        return capacities, capacities.readable and all(map(is_readable, device.attributes.values()))

    def _capacity(self, published: Mapping[str, DeviceCapacity]) -> Capacities:
        key = tuple(published.items())
        capacities = self._capacities.get(key)
        if capacities is None:
            if len(self._capacities) >= MAX_SHARED:
                self._capacities.clear()
            capacities = self._capacities[key] = Capacities(dict(published))
        return capacities


#: Cached capacities; at that size the cache is reset, and sharing starts over.
MAX_SHARED = 4096


#: Size at which a cache of one device, slice, pool, node or index is reset. Its keys are selectors and amounts that
#: users write, so their number is unbounded.
MAX_KEPT = 512


def make_room(kept: MutableMapping[Any, Any]) -> None:
    """Call before adding to a cache."""
    if len(kept) >= MAX_KEPT:
        kept.clear()


@dataclass(frozen=True, slots=True)
class Targeting:
    """Which nodes a slice or a device is for. The first field that is set decides; none set means no node."""

    node_name: str = ""
    all_nodes: bool = False
    node_selector: NodeSelector | None = None
    #: of the selector, parsed once for all nodes
    _terms: tuple[ParsedNodeTerm, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        selector = self.node_selector
        object.__setattr__(self, "_terms", () if selector is None else parsed_node_terms(selector))

    def matches(self, node: NodeView) -> bool:
        """Upstream: NodeMatches."""
        if self.node_name:
            return node.name == self.node_name
        if self.all_nodes:
            return True
        return any(term.matches(node.name, node.labels) for term in self._terms)

    @property
    def is_set(self) -> bool:
        return bool(self.node_name) or self.all_nodes or self.node_selector is not None


class SliceHead:
    """What all devices of a slice have in common."""

    __slots__ = ("key", "per_device", "pinned", "skip_node_operations", "targeting")

    def __init__(self, spec: ResourceSliceSpec) -> None:
        self.targeting = _targeting(spec)
        self.key = PoolKey(spec.driver, spec.pool.name, self.targeting.node_name)
        #: each device selects its nodes itself
        self.per_device = bool(spec.per_device_node_selection)
        #: all devices are on one node
        self.pinned = bool(self.targeting.node_name) and not self.per_device
        self.skip_node_operations = spec.skip_node_operations


class DeviceCondition(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The taints of a device and whether selectors can read it. Nearly all devices share one object (SOUND)."""

    #: the driver's own, then those of taint rules
    taints: tuple[DeviceTaint, ...] = ()
    #: the names of these rules, in the same order
    tainted_by: tuple[str, ...] = ()
    #: whether selectors can be evaluated on it at all
    readable: bool = True


SOUND = DeviceCondition()


class PublishedDevice(msgspec.Struct, frozen=True, eq=False, gc=False, kw_only=True):
    """A device as the search sees it. Compared by identity; nothing that it holds leads back to it (`gc=False`)."""

    published: Device
    slice: SliceHead
    capacities: Capacities
    condition: DeviceCondition

    @property
    def key(self) -> PoolKey:
        """That of its pool. Not a field, since there may be a hundred thousand devices."""
        return self.slice.key

    @property
    def view(self) -> DeviceView:
        """What an expression sees. Not cached: verdicts are, views are not."""
        return DeviceView.of(self.key.driver, self.published)

    @property
    def name(self) -> str:
        return self.published.name

    @property
    def targeting(self) -> Targeting:
        """The device's own if the slice selects nodes per device, otherwise the slice's."""
        return _targeting(self.published) if self.slice.per_device else self.slice.targeting

    def __str__(self) -> str:
        return f"{self.key}/{self.published.name}"


@dataclass(slots=True)
class VerdictMasks:
    """An expression's verdicts on devices, a bit per device. Filled on demand."""

    known: int = 0
    match: int = 0
    error: int = 0


NO_RULES = TaintRules()


@immutable
class SliceContent:
    """A ResourceSlice with the taints that rules add to it. Compared by identity: a new version is a new content."""

    __slots__ = (
        "counter_sets",
        "devices",
        "generation",
        "interner",
        "key",
        "name",
        "own_targetings",
        "per_device",
        "per_device_named",
        "published",
        "slice_count",
        "targeting",
        "verdicts",
    )

    def __init__(self, published: ResourceSlice, interner: Interner, rules: TaintRules = NO_RULES) -> None:
        published = shared(published)
        spec = published.spec
        head = SliceHead(spec)
        self.interner = interner
        self.published = published
        self.name = published.metadata.name
        self.key = head.key
        self.generation = spec.pool.generation
        self.slice_count = spec.pool.resource_slice_count
        self.targeting = head.targeting
        self.per_device = head.per_device
        #: whether the field is set, even to false: such a slice needs the partitionable devices feature
        self.per_device_named = spec.per_device_node_selection is not None
        self.counter_sets: tuple[CounterSet, ...] = spec.shared_counters
        self.devices = tuple(
            PublishedDevice(
                published=one,
                slice=head,
                capacities=capacities,
                condition=_condition(one, tainting, readable=readable),
            )
            for one, tainting, (capacities, readable) in (
                (one, rules.of(head.key.driver, head.key.name, one.name), interner.derived(one)) for one in spec.devices
            )
        )
        #: CEL expression -> the verdicts on these devices
        self.verdicts: dict[str, VerdictMasks] = {}
        masks: dict[Targeting, int] = {}
        if self.per_device and not self.targeting.is_set:
            for position, device in enumerate(self.devices):
                targeting = device.targeting
                masks[targeting] = masks.get(targeting, 0) | 1 << position
        #: where each device selects its nodes itself: (targeting, devices that have it), a bit each
        self.own_targetings = tuple(masks.items())

    def targets(self, node: NodeView, features: Features) -> bool:
        """Whether the slice is relevant for the node. Slices with counter sets are relevant everywhere, unless they
        name a node: no node's slices may make a pool incomplete on another node.
        """
        if not features.partitionable_devices and (self.per_device_named or self.counter_sets):
            return False
        if self.counter_sets and not self.targeting.node_name:
            return True
        return self.reaches(node)

    def reaches(self, node: NodeView) -> bool:
        """Whether the slice, or one of its devices, is for the node."""
        if self.targeting.is_set:
            return self.targeting.matches(node)
        return any(targeting.matches(node) for targeting, _ in self.own_targetings)

    def named_nodes(self) -> set[str] | None:
        """The only nodes that the slice can be relevant for; None if each node must be checked."""
        if self.counter_sets and not self.targeting.node_name:
            return set()
        if self.targeting.is_set or not self.per_device:
            targetings: Iterable[Targeting] = (self.targeting,)
        else:
            targetings = (targeting for targeting, _ in self.own_targetings)
        names = set()
        for targeting in targetings:
            if targeting.node_name:
                names.add(targeting.node_name)
            elif targeting.is_set:
                return None
        return names


def _condition(device: Device, tainting: Sequence[DeviceTaintRule], *, readable: bool) -> DeviceCondition:
    """tainting: the rules that taint it."""
    if readable and not device.taints and not tainting:
        return SOUND
    taints = (*device.taints, *(rule.spec.taint for rule in tainting))
    return DeviceCondition(taints, tuple(rule.metadata.name for rule in tainting), readable)


def _targeting(published: Device | object) -> Targeting:
    return Targeting(
        node_name=getattr(published, "node_name", None) or "",
        all_nodes=bool(getattr(published, "all_nodes", None)),
        node_selector=getattr(published, "node_selector", None),
    )
