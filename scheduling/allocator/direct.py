"""The short way to the devices of one node, for requests of so many exclusive devices each and matchAttribute.

It takes the lowest device that the constraints allow, again and again. What it passes over is proven to be of no use,
so where it gets through, it has found what `search` finds first. Where it does not, it says so: the node cannot meet
the requests (counting proves it), or it takes a search to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from claims.kinds.allocations import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.node_selectors import NodeSelector
from scheduling.allocator.index import NodeIndex
from scheduling.allocator.masks import ValueGroups, value_groups
from scheduling.allocator.pools import bits
from scheduling.allocator.published import PublishedDevice
from scheduling.allocator.results import claim_configuration, exclusive_result, node_selector
from scheduling.allocator.shapes import Variant, Want


class Answer(Enum):
    """Instead of devices."""

    HOPELESS = "the node cannot meet the requests as it is now"
    UNSURE = "ask the search"


def first_devices(variant: Variant, index: NodeIndex, number: int) -> list[list[int]] | Answer:
    """The positions of the devices for each want, in order."""
    for counts, needed in variant.thresholds:
        has = counts.free_on(number).bit_count()
        if has < needed:
            counts.correct(number, has)
            return Answer.HOPELESS
    free = [want.counts.free_on(number) for want in variant.wants]
    special = index.special[number]
    if not variant.is_direct or (special and any(mask & special for mask in free)):
        return Answer.UNSURE
    if not variant.rules:
        return _lowest(variant.wants, free)
    groups = [value_groups(index.devices[number], rule.attribute, index.features) for rule in variant.rules]
    if not _narrow(variant, groups, free):
        return Answer.HOPELESS
    return _lowest_alike(variant, groups, free)


def direct_results(
    claims: Sequence[ResourceClaim], variant: Variant, found: Sequence[Sequence[int]], *, index: NodeIndex, number: int
) -> tuple[AllocationResult, ...] | None:
    """One result per claim, as `results.build_results` makes them; None where that has to be asked."""
    devices = index.devices[number]
    conditions = index.features.binding_conditions
    given: list[list[PublishedDevice]] = [[] for _ in claims]
    entries: list[list[DeviceRequestAllocationResult]] = [[] for _ in claims]
    for want, positions in zip(variant.wants, found, strict=True):
        for position in positions:
            device = devices.device(position)
            given[want.claim].append(device)
            entries[want.claim].append(exclusive_result(want.plan, device, conditions=conditions))
    results = []
    for at, claim in enumerate(claims):
        selector = _selector(given[at], index, number)
        if isinstance(selector, str):
            return None
        config = variant.class_configuration[at]
        if claim.spec.devices.config:
            config += claim_configuration(claim, variant.chosen[at])
        given_devices = DeviceAllocationResult(results=tuple(entries[at]), config=config)
        results.append(AllocationResult(devices=given_devices, node_selector=selector))
    return tuple(results)


def _selector(devices: Sequence[PublishedDevice], index: NodeIndex, number: int) -> NodeSelector | str | None:
    if devices and devices[0].slice.pinned:
        return index.selector(number)
    return node_selector(devices, index.nodes[number])


def _lowest(wants: Sequence[Want], free: Sequence[int]) -> list[list[int]] | Answer:
    """Without constraints."""
    used = 0
    found = []
    for want, mine in zip(wants, free, strict=True):
        positions = []
        for _ in range(want.plan.count):
            left = mine & ~used
            if not left:
                # Others took what only this one can use.
                return Answer.UNSURE
            low = left & -left
            positions.append(low.bit_length() - 1)
            used |= low
        found.append(positions)
    return found


def _narrow(variant: Variant, groups: Sequence[ValueGroups], free: list[int]) -> bool:
    """Leave each want the devices with a value that serves all wants of the constraint; False where one has too few."""
    while True:
        before = free.copy()
        for covered, values in zip(variant.covered, groups, strict=True):
            counted = [at for at in covered if variant.wants[at].plan.count]
            allowed = 0
            for carriers in values.carriers:
                if _is_enough(carriers, variant.wants, counted=counted, free=free):
                    allowed |= carriers
            for at in counted:
                free[at] &= allowed
        if any(mask.bit_count() < want.plan.count for mask, want in zip(free, variant.wants, strict=True)):
            return False
        if len(variant.rules) == 1 or before == free:
            return True


def _is_enough(carriers: int, wants: Sequence[Want], *, counted: Sequence[int], free: Sequence[int]) -> bool:
    union = total = 0
    for at in counted:
        mine = free[at] & carriers
        count = wants[at].plan.count
        if mine.bit_count() < count:
            return False
        union |= mine
        total += count
    return union.bit_count() >= total


def _lowest_alike(variant: Variant, groups: Sequence[ValueGroups], free: Sequence[int]) -> list[list[int]] | Answer:
    used = 0
    #: per rule, the values that all devices so far have in common, and the devices that carry one of them
    common = [-1] * len(groups)
    allowed = [-1] * len(groups)
    found = []
    for want, mine in zip(variant.wants, free, strict=True):
        positions = []
        for _ in range(want.plan.count):
            mask = mine & ~used
            for rule in want.rules:
                mask &= allowed[rule]
            if not mask:
                return Answer.UNSURE
            low = mask & -mask
            position = low.bit_length() - 1
            positions.append(position)
            used |= low
            for rule in want.rules:
                values = common[rule] & groups[rule].of_device[position]
                if values != common[rule]:
                    common[rule] = values
                    allowed[rule] = _carriers(groups[rule], values)
        found.append(positions)
    return found


def _carriers(groups: ValueGroups, values: int) -> int:
    if not values & (values - 1):
        return groups.carriers[values.bit_length() - 1]
    mask = 0
    for number in bits(values):
        mask |= groups.carriers[number]
    return mask
