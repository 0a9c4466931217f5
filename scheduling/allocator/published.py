"""One published ResourceSlice, read once: whom it targets, its devices, and the selector verdicts on them.

A `SliceContent` never changes; a new version of the ResourceSlice makes a new one. It carries the cache of selector
verdicts, so that a verdict lives exactly as long as the devices that it was reached on.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from inventory.kinds.node_selectors import NodeSelector
from inventory.kinds.slices import CounterSet, Device, ResourceSlice, ResourceSliceSpec
from inventory.kinds.taints import DeviceTaint, DeviceTaintRule
from manciple.wire.selectors import node_selector_matches
from scheduling.allocator.capacity import Capacities
from scheduling.allocator.features import Features
from scheduling.allocator.interning import Interner
from scheduling.allocator.nodeview import NodeView
from scheduling.cel import DeviceView

#: Derived answers that one device, slice, pool, node or index keeps; past that many it starts anew. Selectors and
#: amounts are what users write, so there is no end to them.
MAX_KEPT = 512


def make_room(kept: MutableMapping[Any, Any]) -> None:
    """Call before adding to what is kept."""
    if len(kept) >= MAX_KEPT:
        kept.clear()


class PoolKey(NamedTuple):
    """(driver, pool name). Sorts bytewise, which is the order in which pools are searched."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


@dataclass(frozen=True, slots=True)
class Targeting:
    """Which nodes a slice or a device is for. The first field that is set decides; none set means no node."""

    node_name: str = ""
    all_nodes: bool = False
    node_selector: NodeSelector | None = None

    def matches(self, node: NodeView) -> bool:
        """Upstream: NodeMatches."""
        if self.node_name:
            return node.name == self.node_name
        if self.all_nodes:
            return True
        return self.node_selector is not None and node_selector_matches(self.node_selector, node.name, node.labels)

    @property
    def is_set(self) -> bool:
        return bool(self.node_name) or self.all_nodes or self.node_selector is not None


class SliceHead:
    """What the devices of a slice have in common."""

    __slots__ = ("key", "per_device", "pinned", "skip_node_operations", "targeting")

    def __init__(self, spec: ResourceSliceSpec) -> None:
        self.key = PoolKey(spec.driver, spec.pool.name)
        self.targeting = _targeting(spec)
        #: each device says by itself which nodes it is for
        self.per_device = bool(spec.per_device_node_selection)
        #: all devices are on one node
        self.pinned = bool(self.targeting.node_name) and not self.per_device
        self.skip_node_operations = spec.skip_node_operations


class PublishedDevice(msgspec.Struct, frozen=True, eq=False, gc=False, kw_only=True):
    """A device as the search sees it. Compared by identity; nothing that it holds leads back to it (`gc=False`)."""

    key: PoolKey
    published: Device
    slice: SliceHead
    #: the driver's own, then those of taint rules
    taints: tuple[DeviceTaint, ...]
    capacities: Capacities
    #: whether selectors can be evaluated on it at all
    readable: bool

    @property
    def view(self) -> DeviceView:
        """What an expression sees. Made anew each time: verdicts are kept, views are not."""
        return DeviceView.of(self.key.driver, self.published)

    @property
    def name(self) -> str:
        return self.published.name

    @property
    def targeting(self) -> Targeting:
        """Of the device itself where the slice selects nodes per device, else of the slice."""
        return _targeting(self.published) if self.slice.per_device else self.slice.targeting

    def __str__(self) -> str:
        return f"{self.key}/{self.published.name}"


@dataclass(slots=True)
class Verdicts:
    """What one expression says of devices, a bit per device. Filled on demand."""

    known: int = 0
    match: int = 0
    error: int = 0


class SliceContent:
    """A ResourceSlice with the taints that rules add to it. Compared by identity: a new version is a new content."""

    __slots__ = (
        "counter_sets",
        "devices",
        "generation",
        "interner",
        "key",
        "name",
        "per_device",
        "per_device_named",
        "published",
        "slice_count",
        "targeting",
        "verdicts",
    )

    def __init__(self, published: ResourceSlice, interner: Interner, rules: Sequence[DeviceTaintRule] = ()) -> None:
        published, read = interner.published(published)
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
        #: the field is there, even if false: such a slice needs the partitionable devices feature
        self.per_device_named = spec.per_device_node_selection is not None
        self.counter_sets: tuple[CounterSet, ...] = spec.shared_counters
        self.devices = tuple(
            PublishedDevice(
                key=self.key,
                published=one,
                slice=head,
                taints=(*one.taints, *_added(rules, self.key, one)),
                capacities=capacities,
                readable=readable,
            )
            for one, (capacities, readable) in zip(spec.devices, read, strict=True)
        )
        #: CEL expression -> the verdicts on these devices
        self.verdicts: dict[str, Verdicts] = {}

    def targets(self, node: NodeView, features: Features) -> bool:
        """Whether the slice is relevant for the node. Slices with counter sets are relevant everywhere."""
        if not features.partitionable_devices and (self.per_device_named or self.counter_sets):
            return False
        if self.counter_sets:
            return True
        if self.targeting.is_set:
            return self.targeting.matches(node)
        return self.per_device and any(device.targeting.matches(node) for device in self.devices)

    def named_nodes(self) -> set[str] | None:
        """The only nodes that the slice can be relevant for, or None where that takes a look at each node."""
        if self.counter_sets:
            return set()
        if self.targeting.is_set or not self.per_device:
            targetings: Iterable[Targeting] = (self.targeting,)
        else:
            targetings = (device.targeting for device in self.devices)
        names = set()
        for targeting in targetings:
            if targeting.node_name:
                names.add(targeting.node_name)
            elif targeting.is_set:
                return None
        return names


def _added(rules: Sequence[DeviceTaintRule], key: PoolKey, device: Device) -> tuple[DeviceTaint, ...]:
    return tuple(rule.spec.taint for rule in rules if tainted_by(rule, key, device=device.name))


def tainted_by(rule: DeviceTaintRule, key: PoolKey, *, device: str | None = None) -> bool:
    """Whether the rule taints the device, or (None) could taint some device of the pool."""
    selector = rule.spec.device_selector
    if selector is None:
        return True
    wanted = ((selector.driver, key.driver), (selector.pool, key.name), (selector.device, device))
    return all(is_ is None or has is None or is_ == has for is_, has in wanted)


def _targeting(published: Device | object) -> Targeting:
    return Targeting(
        node_name=getattr(published, "node_name", None) or "",
        all_nodes=bool(getattr(published, "all_nodes", None)),
        node_selector=getattr(published, "node_selector", None),
    )
