"""Equal content is kept once: devices of a kind differ in little more than their names and serial numbers.

A cluster's slices repeat the same attributes and capacities thousands of times, and each decoded document has its own
copy. `shared` makes a slice anew of values that other slices have too, so that 100,000 devices take some tens of MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar
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

#: Different values of a kind that are known; past that many it starts anew, and sharing with it. Serial numbers are
#: all different: what is common comes back soon.
MOST = 4096

Value = TypeVar("Value")


class SharedValues:
    """What slices are made of, by content."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._attributes: dict[DeviceAttribute, DeviceAttribute] = {}
        #: names of attributes -> whose instances have attributes of these names
        self._bearers: dict[tuple[str, ...], type] = {}
        self._capacities: dict[tuple[tuple[str, DeviceCapacity], ...], dict[str, DeviceCapacity]] = {}
        self._consumption: dict[bytes, tuple[DeviceCounterConsumption, ...]] = {}
        #: the slices that were made here, by identity
        self._made: WeakValueDictionary[int, ResourceSlice] = WeakValueDictionary()

    def slice(self, published: ResourceSlice) -> ResourceSlice:
        """An equal slice; one that was made here comes back as it is."""
        if self._made.get(id(published)) is published:
            return published
        spec = replace(published.spec, devices=tuple(map(self._device, published.spec.devices)))
        made = replace(published, spec=spec)
        self._made[id(made)] = made
        return made

    def _device(self, device: Device) -> Device:
        return replace(
            device,
            name=self._name(device.name),
            attributes=self._attributes_of(device),
            capacity=self._capacity(device.capacity),
            consumes_counters=self._counters(device.consumes_counters),
            node_allocatable_resources=device.node_allocatable_resources or _NONE,
        )

    def _attributes_of(self, device: Device) -> dict[str, DeviceAttribute]:
        """Dicts that belong to instances of one class share their table of keys (PEP 412), which halves them."""
        names = tuple(map(self._name, device.attributes))
        values = [_first(self._attributes, attribute, attribute) for attribute in device.attributes.values()]
        if any(name.startswith("__") for name in names):  # "__class__" is a good name for an attribute of a device
            return dict(zip(names, values, strict=True))
        bearer = self._bearers.get(names)
        if bearer is None:
            bearer = _first(self._bearers, names, type("Bearer", (), {}))
        one = bearer()
        for name, value in zip(names, values, strict=True):
            setattr(one, name, value)
        attributes: dict[str, DeviceAttribute] = vars(one)
        return attributes

    def _name(self, name: str) -> str:
        return _first(self._names, name, name)

    def _capacity(self, published: Mapping[str, DeviceCapacity]) -> dict[str, DeviceCapacity]:
        return _first(self._capacities, tuple(published.items()), dict(published)) if published else _NONE

    def _counters(self, consumption: tuple[DeviceCounterConsumption, ...]) -> tuple[DeviceCounterConsumption, ...]:
        return _first(self._consumption, _ENCODE(consumption), consumption) if consumption else ()


_ENCODE: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_NONE: dict[str, Any] = {}


def _first(known: dict[Any, Value], key: Hashable, value: Value) -> Value:
    """The first value that came under `key`."""
    if len(known) >= MOST:
        known.clear()
    return known.setdefault(key, value)


#: by the values of this process
shared = SharedValues().slice
