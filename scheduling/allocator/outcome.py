"""The allocator's answers: a value for every case, an exception for none.

`Allocated` is a plan to commit. `Unallocatable` is "no", with the most helpful reason first; the pod waits for an event
that could change one of the reasons. `AllocationFailed` means that a claim, a class or a selector is wrong: no other
node is tried. `Undecided` means that the search was stopped: retry, and never cache it. `overall` is the cause that a
person should read first, out of the reasons that several nodes give.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from claims.causes.causes import (
    CannotAllocate,
    Misconfigured,
    NotTogether,
    OfDevices,
    OfNode,
    SearchStopped,
    TooFew,
)
from claims.kinds.resource_claims import AllocationResult
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.stages import ASKED, Funnel, Shortage, cause_of_shortage, merged, most_left


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReason:
    """Why one request of one claim gets no device on one node."""

    plan: RequestPlan = field(repr=False)
    node: str
    wanted: int  # devices; for allocationMode All, as many as there are, at least 1
    funnel: Funnel
    #: why requests that could be met one by one cannot be met together; None if this one is short by itself
    conflict: NotTogether | None = None

    @property
    def claim(self) -> str:
        """`namespace/name`"""
        return self.plan.claim

    @property
    def request(self) -> str:
        """`request` or `request/subrequest`"""
        return self.plan.full_name

    @property
    def device_class(self) -> str:
        return self.plan.class_name

    @property
    def progress(self) -> float:
        """How many stages still had devices: the fewer, the further the request is from being met."""
        return math.inf if self.conflict else sum(1 for stage in self.funnel if stage.left)

    @property
    def cause(self) -> OfDevices:
        """Computed at each access."""
        return cause_of((self,))


def cause_of(reasons: Sequence[RequestReason], *, asked: int = ASKED) -> OfDevices:
    """The cause of one request's reasons on one or several nodes.

    asked: how many of the devices that a selector refused are examined for the values that they have.
    """
    return reasons[0].conflict or cause_of_shortage(shortage(reasons, asked=asked))


def shortage(reasons: Sequence[RequestReason], *, asked: int = ASKED) -> Shortage:
    """One request's reasons on one or several nodes, combined."""
    funnels = [reason.funnel for reason in reasons]
    return Shortage(
        plan=reasons[0].plan,
        wanted=max(reason.wanted for reason in reasons),
        funnel=merged(funnels),
        most=most_left(funnels),
        nodes=tuple(reason.node for reason in reasons),
        asked=asked,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """One result per claim, in the order of the claims. `trials` counts the devices that the search took in hand."""

    results: tuple[AllocationResult, ...]
    trials: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unallocatable:
    """No solution exists on this node. The dominant reason comes first.

    pool_fault: a pool that could have devices for the claims is incomplete or invalid, in upstream's words; None if no
    such pool is.
    """

    reasons: tuple[RequestReason, ...] = ()
    trials: int = 0
    pool_fault: Misconfigured | None = None

    @property
    def cause(self) -> OfNode:
        """What counts against the node."""
        return self.pool_fault or CannotAllocate()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFailed:
    """Something is wrong with a claim, a class or a selector: the pod waits, whatever other nodes have."""

    cause: Misconfigured
    trials: int = 0

    @property
    def error(self) -> str:
        return self.cause.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """The search stopped after `trials` devices without an answer: at its limit, or at its deadline.

    claims: those whose selectors it was evaluating when it was stopped after `seconds`.
    """

    trials: int
    timed_out: bool = False
    claims: str = ""
    seconds: float = 0.0

    @property
    def cause(self) -> SearchStopped:
        return SearchStopped(self.trials, self.timed_out, claims=self.claims, seconds=self.seconds)


Outcome = Allocated | Unallocatable | AllocationFailed | Undecided


def dominant(refusals: Iterable[Unallocatable]) -> tuple[RequestReason, ...]:
    """The reasons of one request, on all nodes where it is short: the request is the one that fails on the nodes that
    came closest.

    Most nodes have no such devices at all, which is not worth reporting. Of requests that came equally close, the one
    that fails on most nodes is chosen, then the first by name.
    """
    leading = [one.reasons[0] for one in refusals if one.reasons]
    closest = max((reason.progress for reason in leading), default=0)
    by_request: dict[tuple[str, str], list[RequestReason]] = defaultdict(list)
    for reason in leading:
        if reason.progress == closest:
            by_request[reason.claim, reason.request].append(reason)
    if not by_request:
        return ()
    key = min(by_request, key=lambda one: (-len(by_request[one]), one))
    if by_request[key][0].conflict:
        return tuple(by_request[key])
    return tuple(reason for reason in leading if (reason.claim, reason.request) == key and not reason.conflict)


def overall(refusals: Sequence[Unallocatable], *, asked: int = ASKED) -> OfDevices | None:
    """The cause of the dominant reason; None if there are no reasons. asked: as for `cause_of`."""
    reasons = dominant(refusals)
    if not reasons:
        return None
    cause = cause_of(reasons, asked=asked)
    if len(reasons) == len(refusals) or not isinstance(cause, TooFew):
        return cause
    return structs.replace(cause, nodes=(len(reasons), len(refusals)))
