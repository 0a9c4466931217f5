"""What claims ask for, whatever they are called: read once for all claims that ask for the same.

A `Shape` belongs to one `NodeIndex`. It holds a `Variant` for each way in which the claims can be met: one, or as many
as the one list of alternatives has that there may be. A variant knows on which nodes it was found to be hopeless:
allocations make nodes only less feasible, so that holds until a device comes free there that one of its requests could
take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from claims.kinds.allocations import DeviceAllocationConfiguration
from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import read_claims
from scheduling.allocator.index import NodeIndex, SignatureCounts
from scheduling.allocator.problem import MAX_RESULTS
from scheduling.allocator.published import make_room
from scheduling.allocator.requests import ClaimPlan, ConstraintPlan, RequestPlan
from scheduling.allocator.results import class_configuration
from scheduling.allocator.snapshot import Snapshot

_ENCODE = msgspec.json.Encoder().encode


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
        #: whether `direct` can meet it; else it takes a search
        self.is_direct = not any(one.plan.admin for one in wants) and not any(one.distinct for one in self.rules)
        #: per claim
        self.class_configuration: list[tuple[DeviceAllocationConfiguration, ...]] = [
            class_configuration(requests) for requests in chosen
        ]
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


class Shape:
    """Claims that ask for the same. Without variants where an index cannot tell: errors, All, several lists."""

    def __init__(self, plans: Sequence[ClaimPlan], index: NodeIndex) -> None:
        self._plans = plans
        self.variants = tuple(
            Variant(plans, chosen, rank=rank, index=index) for rank, chosen in enumerate(_choices(plans))
        )
        self._counts = {one for variant in self.variants for one, _ in variant.thresholds}

    def errs_on(self, among: int) -> bool:
        """Whether a selector errs on one of these nodes, so that only the plain search tells the answer."""
        return any(one.errs and one.errs_on(among) for one in self._counts)

    def plans(self, claims: Sequence[ResourceClaim]) -> tuple[ClaimPlan, ...]:
        """For a search of these claims. Messages about their requests would name the claims that were read."""
        return tuple(plan.of(claim) for plan, claim in zip(self._plans, claims, strict=True))


def shape_of(claims: Sequence[ResourceClaim], snapshot: Snapshot, index: NodeIndex) -> Shape:
    """The shape of the claims, read from them if they are the first that ask for this."""
    if len(claims) == 1:
        asked = claims[0].spec.devices
        key = _ENCODE((asked.requests, asked.constraints))
    else:
        key = _ENCODE([(one.spec.devices.requests, one.spec.devices.constraints) for one in claims])
    known = index.shapes.get(key)
    if known is None:
        make_room(index.shapes)
        known = index.shapes[key] = Shape(read_claims(snapshot, claims), index)
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
