"""What claims ask for, whatever they are called, read once for all that ask for the same; and the short way to meet it.

A `Shape` belongs to one `NodeIndex`. It holds a `Variant` for each way in which the claims can be met: one, or as many
as the one list of alternatives has that there may be. A variant knows on which nodes it was found to be hopeless:
allocations make nodes only less feasible, so that holds until a device comes free there that one of its requests could
take.

`first_devices` is the short way to the devices of one node, for requests of so many exclusive devices each and
matchAttribute. It takes the lowest device that the constraints allow, again and again. What it passes over is proven to
be of no use, so where it gets through, it has found what `search` finds first. Where it does not, it says so: the node
cannot meet the requests (counting proves it), or it takes a search to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from inventory.kinds.nodes import NodeSelector
from manciple.wire.limits import Deadline, time_limit
from scheduling.allocator.allocation import (
    claim_configuration,
    class_configuration,
    node_selector,
    read_claims,
    shared_result,
)
from scheduling.allocator.index import ClassMembers, NodeIndex, SignatureCounts
from scheduling.allocator.pools import bits, union
from scheduling.allocator.problem import MAX_RESULTS, ValueGroups, sharing, value_groups, with_room
from scheduling.allocator.published import PublishedDevice, make_room
from scheduling.allocator.requests import ClaimPlan, ConstraintPlan, RequestPlan, asked_key
from scheduling.allocator.snapshot import Snapshot, UsageTable


@dataclass(slots=True, kw_only=True, eq=False)
class Want:
    """One request of a variant."""

    claim: int
    plan: RequestPlan
    counts: SignatureCounts
    rules: tuple[int, ...]  # indices into Variant.rules: the constraints that cover it


class Variant:
    """One choice among the alternatives."""

    def __init__(
        self, plans: Sequence[ClaimPlan], chosen: Sequence[Sequence[RequestPlan]], *, rank: int, index: NodeIndex
    ) -> None:
        """chosen: for each claim its requests, one alternative of each. rank: alternatives that were passed over."""
        self._index = index
        self.plans = plans
        self.rank = rank
        self.rules: list[ConstraintPlan] = []
        wants: list[Want] = []
        for number, (claim, requests) in enumerate(zip(plans, chosen, strict=True)):
            scope = range(len(self.rules), len(self.rules) + len(claim.constraints))
            self.rules.extend(claim.constraints)
            for plan in requests:
                covering = tuple(rule for rule in scope if self.rules[rule].covers(plan))
                wants.append(Want(claim=number, plan=plan, counts=index.counts(plan), rules=covering))
        self.wants = tuple(wants)
        self.chosen = tuple(tuple(requests) for requests in chosen)
        #: per rule, the numbers of the wants that it covers
        self.covered = [[at for at, want in enumerate(wants) if rule in want.rules] for rule in range(len(self.rules))]
        #: what a node must have at least, each by itself
        self.thresholds = self._thresholds()
        #: whether `first_devices` can meet it; else it takes a search
        self.is_direct = not any(one.plan.admin for one in wants) and not any(one.distinct for one in self.rules)
        #: per claim
        self.class_configuration: list[tuple[DeviceAllocationConfiguration, ...]] = [
            class_configuration(requests) for requests in chosen
        ]
        self._levels: dict[bool, tuple[tuple[ClassMembers, ...], tuple[int, ...]]] = {}
        #: the nodes that cannot meet it
        self._hopeless = 0
        #: whether no claim would get more devices than a claim may have
        self.is_possible = all(sum(one.count for one in requests) <= MAX_RESULTS for requests in chosen)
        self._read = len(index.releases)

    def _thresholds(self) -> tuple[tuple[SignatureCounts, int], ...]:
        needed: dict[SignatureCounts, int] = {}
        for want in self.wants:
            if want.plan.admin or self._index.sharing:
                needed[want.counts] = max(needed.get(want.counts, 0), want.plan.count)
            else:
                # Requests for the same devices do not share them.
                needed[want.counts] = needed.get(want.counts, 0) + want.plan.count
        return tuple(needed.items())

    def levels(self, *, by_size: bool) -> tuple[int, ...]:
        """`NodeIndex.levels` of its requests, kept for as long as what is known of the classes."""
        index = self._index
        if not by_size and len(index.catalogue.classes) <= 1:
            return index.one_level
        members = index.members()
        known = self._levels.get(by_size)
        if known is None or known[0] is not members:
            candidates = [want.counts.candidates for want in self.wants if not want.plan.admin]
            known = self._levels[by_size] = (members, index.levels(candidates, by_size=by_size))
        return known[1]

    def feasible(self, among: int) -> int:
        """The nodes of `among` on which nothing speaks against it so far."""
        if not self.is_possible:
            return 0
        releases = self._index.releases
        if self._read != len(releases):
            if self._hopeless:
                self._hope_again(releases[self._read :])
            self._read = len(releases)
        among &= ~self._hopeless
        for counts, needed in self.thresholds:
            among &= counts.at_least(needed)
        return among

    def give_up(self, number: int) -> None:
        """It was proven that the node cannot meet it, as it is now."""
        self._hopeless |= 1 << number

    def _hope_again(self, releases: Sequence[tuple[int, int]]) -> None:
        for number, freed in releases:
            if any(freed & want.counts.candidates[number] for want in self.wants):
                self._hopeless &= ~(1 << number)


class ClaimShape:
    """Claims that ask for the same. Without variants where an index cannot tell: errors, All, several lists."""

    def __init__(self, plans: Sequence[ClaimPlan], index: NodeIndex) -> None:
        self._plans = plans
        self.variants = tuple(
            Variant(plans, chosen, rank=rank, index=index) for rank, chosen in enumerate(_choices(plans))
        )
        self._counts = {one for variant in self.variants for one, _ in variant.thresholds}
        #: up to which of `NodeIndex.published` its devices are judged
        self.published = -1

    def errs_on(self, among: int) -> bool:
        """Whether a selector errs on one of these nodes, so that only the plain search tells the answer."""
        for one in self._counts:  # noqa: SIM110 - asked of every claim: a generator takes longer than the answer
            if one.errors and one.errs_on(among):
                return True
        return False

    def catch_up(self, index: NodeIndex) -> None:
        """Judge what was published since the last claims of this shape. Raises: TimeLimitExceeded."""
        for counts in self._counts:
            counts.catch_up()
        self.published = index.published

    def plans(self, claims: Sequence[ResourceClaim]) -> tuple[ClaimPlan, ...]:
        """For a search of these claims. Messages about their requests would name the claims that were read."""
        return tuple(plan.of(claim) for plan, claim in zip(self._plans, claims, strict=True))


def shape_of(
    claims: Sequence[ResourceClaim], snapshot: Snapshot, index: NodeIndex, *, deadline: Deadline
) -> ClaimShape:
    """The shape of the claims, read from them if they are the first that ask for this. Raises: TimeLimitExceeded."""
    key = asked_key(claims)
    known: ClaimShape | None = index.shapes.get(key)
    if known is None or known.published != index.published:
        with time_limit(deadline):
            if known is None:
                make_room(index.shapes)
                known = index.shapes[key] = ClaimShape(read_claims(snapshot, claims), index)
            known.catch_up(index)
    return known


def _choices(plans: Sequence[ClaimPlan]) -> list[list[list[RequestPlan]]]:
    """Per variant and claim, the requests. Empty where the index cannot tell."""
    lists = [options for claim in plans for options in claim.requests if len(options) != 1]
    if len(lists) > 1 or any(claim.constraint_error for claim in plans):
        return []
    for claim in plans:
        if any(one.error or one.everything for options in claim.requests for one in options):
            return []
        if sum(min(one.count for one in options) for options in claim.requests) > MAX_RESULTS:
            return []
    longest = len(lists[0]) if lists else 1
    return [
        [[options[rank] if len(options) != 1 else options[0] for options in claim.requests] for claim in plans]
        for rank in range(longest)
    ]


class ShapeAnswer(Enum):
    """Instead of devices."""

    HOPELESS = "the node cannot meet the requests as it is now"
    UNSURE = "ask the search"


def first_devices(
    variant: Variant, index: NodeIndex, number: int, usage: UsageTable, *, within: Sequence[int] = ()
) -> list[list[int]] | ShapeAnswer:
    """The positions of the devices for each want, in order. within: of each want, those that may be taken; all, where
    it is empty.
    """
    for counts, needed in variant.thresholds:
        has = counts.free_on(number).bit_count()
        if has < needed:
            counts.correct(number, has)
            return ShapeAnswer.HOPELESS
    free = [want.counts.free_on(number) for want in variant.wants]
    if within:
        free = [mask & one for mask, one in zip(free, within, strict=True)]
    special = index.special[number]
    if not variant.is_direct or (special and any(mask & special for mask in free)):
        return _first_shares(variant, index, number, free, usage)
    if not variant.rules:
        return _lowest(variant.wants, free)
    groups = [value_groups(index.devices[number], rule.attribute, index.features) for rule in variant.rules]
    if not _narrow(variant, groups, free):
        return ShapeAnswer.HOPELESS
    return _lowest_alike(variant, groups, free)


def _first_shares(
    variant: Variant, index: NodeIndex, number: int, free: Sequence[int], usage: UsageTable
) -> list[list[int]] | ShapeAnswer:
    """For one request that nothing ties to others, of devices that do not draw on counters."""
    devices = index.devices[number]
    if len(free) != 1 or variant.rules or not variant.is_direct or free[0] & devices.consuming:
        return ShapeAnswer.UNSURE
    plan = variant.wants[0].plan
    shared_out = index.shared_out[number] & sharing(devices, index.features)
    positions = list(islice(bits(with_room(devices, plan, free[0], shared_out=shared_out, usage=usage)), plan.count))
    return [positions] if len(positions) == plan.count else ShapeAnswer.HOPELESS


def direct_results(
    claims: Sequence[ResourceClaim], variant: Variant, found: Sequence[Sequence[int]], *, index: NodeIndex, number: int
) -> tuple[AllocationResult, ...] | None:
    """One result per claim, as `allocation.build_results` makes them; None where that has to be asked."""
    devices = index.devices[number]
    conditions = index.features.binding_conditions
    shared = devices.shared if index.features.consumable_capacity else 0
    given: list[list[PublishedDevice]] = [[] for _ in claims]
    entries: list[list[DeviceRequestAllocationResult]] = [[] for _ in claims]
    for want, positions in zip(variant.wants, found, strict=True):
        for position in positions:
            device = devices.device(position)
            given[want.claim].append(device)
            result = want.plan.exclusive_result(device, conditions=conditions)
            if shared >> position & 1:
                consumed = device.capacities.consumption(want.plan.capacity)
                result = shared_result(result, claims[want.claim], device, consumed or {})
            entries[want.claim].append(result)
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


def _lowest(wants: Sequence[Want], free: Sequence[int]) -> list[list[int]] | ShapeAnswer:
    """Without constraints."""
    used = 0
    found = []
    for want, mine in zip(wants, free, strict=True):
        positions = []
        for _ in range(want.plan.count):
            left = mine & ~used
            if not left:
                # Others took what only this one can use.
                return ShapeAnswer.UNSURE
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


def _lowest_alike(
    variant: Variant, groups: Sequence[ValueGroups], free: Sequence[int]
) -> list[list[int]] | ShapeAnswer:
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
                return ShapeAnswer.UNSURE
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
    return union(groups.carriers[number] for number in bits(values))
