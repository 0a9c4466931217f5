"""Equal content is kept once: devices of a kind differ in little more than their names and serial numbers.

A cluster's slices repeat the same attributes and capacities thousands of times, and each decoded document has its own
copy. An `Interner` gives out one value for equal ones, so that 100,000 devices take some tens of MiB, and what is
derived from shared content (what a request consumes of a capacity, what a selector says of some attributes) is derived
once for all devices that share it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from inventory.kinds.slices import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    ResourceSlice,
)
from scheduling.allocator.capacity import Capacities
from scheduling.cel import is_readable

#: Different values of a kind that are kept; past that many the interner starts anew, and sharing with it.
MAX_SHARED = 65_536


class Interner:
    """One for all slices of an inventory."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        #: attribute -> (the one to use, whether selectors can read it)
        self._attributes: dict[DeviceAttribute, tuple[DeviceAttribute, bool]] = {}
        self._capacities: dict[tuple[tuple[str, DeviceCapacity], ...], Capacities] = {}
        self._consumption: dict[bytes, tuple[DeviceCounterConsumption, ...]] = {}
        #: CEL expression -> what it looks at of a device -> its verdict; `selectors` fills it
        self.verdicts: dict[str, dict[Hashable, bool | str]] = {}

    def published(self, published: ResourceSlice) -> tuple[ResourceSlice, tuple[tuple[Capacities, bool], ...]]:
        """The slice made of shared values; for each device its capacities and whether selectors can read it."""
        shared = [self._device(device) for device in published.spec.devices]
        spec = replace(published.spec, devices=tuple(device for device, _, _ in shared))
        return replace(published, spec=spec), tuple((capacities, readable) for _, capacities, readable in shared)

    def _device(self, device: Device) -> tuple[Device, Capacities, bool]:
        readable = True
        attributes = {}
        for name, attribute in device.attributes.items():
            one, can_be_read = self._attribute(attribute)
            attributes[self._name(name)] = one
            readable = readable and can_be_read
        capacities = self._capacity(device.capacity)
        shared = replace(
            device,
            name=self._name(device.name),
            attributes=attributes,
            capacity=capacities.published,
            consumes_counters=self._counters(device.consumes_counters),
            node_allocatable_resources=device.node_allocatable_resources or _NONE,
        )
        return shared, capacities, readable and capacities.readable

    def _name(self, name: str) -> str:
        _limit(self._names)
        return self._names.setdefault(name, name)

    def _attribute(self, attribute: DeviceAttribute) -> tuple[DeviceAttribute, bool]:
        known = self._attributes.get(attribute)
        if known is None:
            _limit(self._attributes)
            known = self._attributes[attribute] = (attribute, is_readable(attribute))
        return known

    def _capacity(self, published: Mapping[str, DeviceCapacity]) -> Capacities:
        key = tuple(published.items())
        known = self._capacities.get(key)
        if known is None:
            _limit(self._capacities)
            known = self._capacities[key] = Capacities(dict(published))
        return known

    def _counters(self, consumption: tuple[DeviceCounterConsumption, ...]) -> tuple[DeviceCounterConsumption, ...]:
        if not consumption:
            return ()
        _limit(self._consumption)
        return self._consumption.setdefault(_ENCODE(consumption), consumption)


_ENCODE = msgspec.json.Encoder().encode
_NONE: dict[str, Any] = {}


def _limit(table: dict[Any, Any]) -> None:
    if len(table) >= MAX_SHARED:
        table.clear()
