"""Masks over the devices of one node: what is in use, what a request selects, what has room.

What depends on published content alone is kept with the node's devices (`NodeDevices.memo`), by the request's
signature; what depends on the usage is ANDed in for each attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scheduling.allocator.attributes import ODD, AttributeValue, groups_of
from scheduling.allocator.features import Features
from scheduling.allocator.pools import KEEPING_AWAY, NodeDevices, PoolOnNode, bits
from scheduling.allocator.published import make_room
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.selectors import chosen, error_text
from scheduling.allocator.usage import NO_USAGE, UsageTable


class InUse(NamedTuple):
    """`taken`: nobody else may have them. `shared_out`: devices with shares out, whether shared still or not."""

    taken: int
    shared_out: int


class ValueGroups(NamedTuple):
    """The values of one attribute on one node, a bit per value."""

    carriers: tuple[int, ...]  # value number -> devices
    of_device: Mapping[int, int]  # position -> value bits
    odd: int  # the values that nothing else equals


def in_use(devices: NodeDevices, usage: UsageTable, features: Features) -> InUse:
    """A share keeps a device that is (or has become) exclusive as a whole."""
    taken = shared_out = 0
    for view, shift in zip(devices.pools, devices.shifts, strict=True):
        known = usage.get(view.key)
        if known is not NO_USAGE:
            exclusive, shares = known.masks(view.generation)
            taken |= exclusive << shift
            shared_out |= shares << shift
    return InUse(taken | (shared_out & ~sharing(devices, features)), shared_out)


def sharing(devices: NodeDevices, features: Features) -> int:
    """Devices that several requests may use."""
    return devices.shared if features.consumable_capacity else 0


def selected(devices: NodeDevices, plan: RequestPlan, features: Features) -> tuple[int, int]:
    """(devices that serve the request if nobody uses them, devices whose selectors err)."""
    known = devices.memo.get(plan.signature)
    if known is None:
        make_room(devices.memo)
        candidates = errors = 0
        for view, shift in zip(devices.pools, devices.shifts, strict=True):
            if not view.trouble:
                matching, erring = chosen(view.generation, plan.selectors, scanned(view, features))
                errors |= erring << shift
                candidates |= (
                    usable(view, plan, serving(view, plan, matching & view.visible, features), features) << shift
                )
        known = devices.memo[plan.signature] = (candidates, errors)
    found: tuple[int, int] = known
    return found


def scanned(view: PoolOnNode, features: Features) -> int:
    """What selectors are tried on. Devices with binding conditions are left out while that feature is off."""
    return view.scan if features.binding_conditions else view.scan & ~view.generation.binding


def usable(view: PoolOnNode, plan: RequestPlan, mask: int, features: Features) -> int:
    """Drop what the request does not tolerate and what the features do not allow."""
    if not features.partitionable_devices:
        mask &= ~view.generation.consuming
    if features.device_taints and mask & view.generation.tainted:
        mask &= ~intolerable(view, plan, mask & view.generation.tainted)
    return mask


def intolerable(view: PoolOnNode, plan: RequestPlan, tainted: int) -> int:
    """Of the `tainted` devices, those with a taint that the request does not tolerate."""
    kept_away = 0
    for position in bits(tainted):
        taints = view.generation.devices[position].taints
        if any(taint.effect in KEEPING_AWAY and not plan.tolerates(taint) for taint in taints):
            kept_away |= 1 << position
    return kept_away


def serving(view: PoolOnNode, plan: RequestPlan, mask: int, features: Features) -> int:
    """Devices whose capacity serves the request as long as nobody consumes it."""
    if not features.consumable_capacity:
        return mask
    able = 0
    for capacities, devices in view.generation.by_capacity:
        if mask & devices and capacities.serves(plan.capacity):
            able |= mask & devices
    return able


def with_room(devices: NodeDevices, plan: RequestPlan, mask: int, *, shared_out: int, usage: UsageTable) -> int:
    """Drop shared devices whose allocated shares (`shared_out`) leave too little."""
    for position in bits(mask & shared_out):
        device = devices.device(position)
        shares = usage.get(device.key).shares[device.name]
        taken = device.capacities.consumption(plan.capacity)
        if taken is None or not device.capacities.fits(taken, shares.consumed):
            mask &= ~(1 << position)
    return mask


def value_groups(devices: NodeDevices, attribute: str, features: Features) -> ValueGroups:
    """The node's devices by the values of an attribute."""
    key = ("values", attribute)
    known = devices.memo.get(key)
    if known is None:
        make_room(devices.memo)
        known = devices.memo[key] = _value_groups(devices, attribute, features)
    groups: ValueGroups = known
    return groups


def _value_groups(devices: NodeDevices, attribute: str, features: Features) -> ValueGroups:
    carriers: dict[AttributeValue, int] = {}
    for view, shift in zip(devices.pools, devices.shifts, strict=True):
        groups = groups_of(view.generation, attribute, lists=features.list_attributes)
        for value, mask in groups.carriers.items():
            if mask & view.visible:
                carriers[value] = carriers.get(value, 0) | ((mask & view.visible) << shift)
    of_device: dict[int, int] = {}
    for number, mask in enumerate(carriers.values()):
        for position in bits(mask):
            of_device[position] = of_device.get(position, 0) | (1 << number)
    odd = sum(1 << number for number, (kind, _) in enumerate(carriers) if kind == ODD)
    return ValueGroups(tuple(carriers.values()), of_device, odd)


def device_error(plan: RequestPlan, view: PoolOnNode, position: int) -> str:
    """The text of the selector error on a device. `position`: in the pool's generation."""
    return error_text(plan.selectors, view.generation.devices[position])
