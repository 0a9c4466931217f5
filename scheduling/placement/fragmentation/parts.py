"""A pod's claims as parts: what has to be found together.

Requests that a matchAttribute constraint ties to each other are one part; any other request is one by itself. What
depends on more than one choice at a time (distinctAttribute, several constraints on one request) is left to the search:
a part is what a score is made of, not what is promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scheduling.allocator.published import Asked
from scheduling.allocator.requests import ClaimPlan, RequestPlan


class Pick(NamedTuple):
    """So many devices for one request. want: which, of all requests of the claims laid end to end."""

    want: int
    plan: RequestPlan
    devices: int

    @property
    def asked(self) -> Asked:
        return self.plan.capacity


class ClaimPart(NamedTuple):
    """attribute: what all its devices must have in common; "" where nothing."""

    attribute: str
    picks: tuple[Pick, ...]

    @property
    def devices(self) -> int:
        return sum(pick.devices for pick in self.picks)


def parts_of(plans: Sequence[ClaimPlan], chosen: Sequence[Sequence[RequestPlan]]) -> tuple[ClaimPart, ...]:
    """chosen: for each claim its requests, one alternative of each. Those that take nothing are left out."""
    return tuple(_parts(plans, chosen))


def _parts(plans: Sequence[ClaimPlan], chosen: Sequence[Sequence[RequestPlan]]) -> Iterator[ClaimPart]:
    first = 0
    for plan, requests in zip(plans, chosen, strict=True):
        picks = {
            at: Pick(first + at, one, one.count)
            for at, one in enumerate(requests)
            if one.count and not one.admin and not one.error
        }
        first += len(requests)
        for constraint in plan.constraints:
            tied = tuple(at for at, pick in picks.items() if constraint.covers(pick.plan))
            if not constraint.distinct and sum(picks[at].devices for at in tied) > 1:
                yield ClaimPart(constraint.attribute, tuple(picks.pop(at) for at in tied))
        yield from (ClaimPart("", (pick,)) for pick in picks.values())
