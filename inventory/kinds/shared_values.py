"""Equal content is kept once: devices of a kind differ in little more than their names and serial numbers.

A cluster's slices repeat the same attributes and capacities thousands of times, and each decoded document has its own
copy. `shared` makes a slice anew of values that other slices have too, so that 100,000 devices take some tens of MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from inventory.kinds.devices import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    ResourceSlice,
)
from manciple.wire.base import EMPTY, Alike, shared_texts


class SharedValues:
    """What slices are made of, by content."""

    def __init__(self) -> None:
        #: serial numbers are all different, and what is common comes back soon
        self._attributes = Alike[DeviceAttribute]()
        #: names of attributes -> whose instances have attributes of these names
        self._bearers = Alike[type]()
        #: capacities of devices, by what they are
        self._capacities = Alike[dict[str, DeviceCapacity]]()
        #: by its JSON
        self._consumption = Alike[tuple[DeviceCounterConsumption, ...]]()
        #: the slices that were made here, by identity
        self._made: WeakValueDictionary[int, ResourceSlice] = WeakValueDictionary()

    def slice(self, published: ResourceSlice) -> ResourceSlice:
        """An equal slice; one that was made here comes back as it is."""
        if self._made.get(id(published)) is published:
            return published
        spec = published.spec
        made = replace(
            published,
            api_version=intern(published.api_version),
            kind=intern(published.kind),
            metadata=shared_texts(replace(published.metadata)),
            spec=replace(
                spec,
                driver=intern(spec.driver),
                pool=shared_texts(replace(spec.pool)),
                node_name=None if spec.node_name is None else intern(spec.node_name),
                devices=tuple(map(self._device, spec.devices)),
            ),
        )
        self._made[id(made)] = made
        return made

    def _device(self, device: Device) -> Device:
        return replace(
            device,
            name=intern(device.name),
            attributes=self._attributes_of(device),
            capacity=self._capacity(device.capacity),
            consumes_counters=self._counters(device.consumes_counters),
            node_allocatable_resource_mappings=device.node_allocatable_resource_mappings or EMPTY,
            node_allocatable_resources=device.node_allocatable_resources or EMPTY,
        )

    def _attributes_of(self, device: Device) -> dict[str, DeviceAttribute]:
        """Dicts that belong to instances of one class share their table of keys (PEP 412), which halves them."""
        names = tuple(map(intern, device.attributes))
        values = [self._attributes.first(attribute, attribute) for attribute in device.attributes.values()]
        if any(name.startswith("__") for name in names):  # "__class__" is a good name for an attribute of a device
            return dict(zip(names, values, strict=True))
        bearer = self._bearers.get(names)
        if bearer is None:
            bearer = self._bearers.first(names, type("Bearer", (), {}))
        one = bearer()
        for name, value in zip(names, values, strict=True):
            setattr(one, name, value)
        attributes: dict[str, DeviceAttribute] = vars(one)
        return attributes

    def _capacity(self, published: Mapping[str, DeviceCapacity]) -> dict[str, DeviceCapacity]:
        return self._capacities.first(tuple(published.items()), dict(published)) if published else EMPTY

    def _counters(self, consumption: tuple[DeviceCounterConsumption, ...]) -> tuple[DeviceCounterConsumption, ...]:
        return self._consumption.first(_ENCODE(consumption), consumption) if consumption else ()


_ENCODE: Callable[[Any], bytes] = msgspec.json.Encoder().encode


#: by the values of this process
shared = SharedValues().slice
