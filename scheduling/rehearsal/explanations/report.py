"""The report on a pod or a claim: every node's answer, the funnels over all nodes, and the dominant cause. PURE.

The nodes that refuse the pod are examined too: what they could give is worth a hint. A hint is a what-if that the
allocator itself has tried: without one selector, or without the refusal of a node, the claims could be allocated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import structs

from claims.causes.causes import AnyCause, CannotAllocate, NodeRefusal, NoNodeFits, OfNode, SearchStopped, counted
from claims.causes.messages import of_nodes
from claims.kinds.resource_claims import DeviceRequest, ResourceClaim
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    NodeView,
    Snapshot,
    Unallocatable,
    Undecided,
    overall,
    place,
)
from scheduling.allocator.allocation import Examination, Examined, examine
from scheduling.allocator.outcome import dominant
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.stages import ASKED_THOROUGHLY, Funnel, Shortage, merged, most_left

#: Seconds for evaluating the claims' selectors.
SECONDS = 2.0
#: Selectors that are tried without, at most.
TRIED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport:
    """One request, or alternative of a list, over the nodes in question."""

    plan: RequestPlan
    wanted: int
    funnel: Funnel
    most: tuple[int, ...]
    met: bool  # some node has enough for it alone
    decisive: bool  # the dominant reason is about it
    stops: int | None  # the stage at which even the best node falls short

    @property
    def short_by(self) -> int:
        return max(self.wanted - self.most[-1], 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One node: what speaks against it as such, and what its devices could do."""

    examination: Examination
    refusals: tuple[NodeRefusal, ...] = ()

    @property
    def name(self) -> str:
        return self.examination.node.name

    @property
    def fits(self) -> bool:
        return not self.refusals and isinstance(self.examination.outcome, Allocated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loosening:
    """Without one selector of a request the claims could be met on `node` now. index: of the selector, from 0."""

    claim: str  # "namespace/name"
    request: str
    index: int
    of: int  # how many selectors the request has
    node: str

    @property
    def text(self) -> str:
        which = f"selector {self.index + 1}" if self.of > 1 else "its selector"
        return f"Without {which}, `{self.node}` has what request `{self.request}` wants, free now."


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`cause` is None where some node could take everything now."""

    cause: AnyCause | None
    requests: tuple[RequestReport, ...] = ()
    nodes: tuple[NodeReport, ...] = ()
    #: what speaks against nodes that could give the devices
    notes: tuple[str, ...] = field(default=())
    loosenings: tuple[Loosening, ...] = field(default=())

    @property
    def hints(self) -> tuple[str, ...]:
        """What-ifs in plain words."""
        return (*self.notes, *(one.text for one in self.loosenings))

    @property
    def fitting(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.fits)


def refusals_of(found: Report) -> dict[str, Sequence[OfNode]]:
    """node -> why it refuses the pod, for a report in which no node fits."""
    refusals = dict[str, Sequence[OfNode]]()
    for node in found.nodes:
        outcome = node.examination.outcome
        of_devices = CannotAllocate() if isinstance(outcome, Allocated) else outcome.cause
        refusals[node.name] = node.refusals or (of_devices,)
    return refusals


def report(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    *,
    nodes: Sequence[NodeView],
    refused: Mapping[str, tuple[NodeRefusal, ...]],
) -> Report:
    """claims: those that wait for devices. nodes: all of them; refused: those that do not take the pod, and why.

    Nodes that are not reached in `SECONDS` are undecided, and what the answers have in common is left out then.
    """
    deadline = Deadline.after(SECONDS)
    with time_limit(deadline):
        found = tuple(
            NodeReport(examination=examine(snapshot, claims, node), refusals=refused.get(node.name, ()))
            for node in nodes
        )
        try:
            return _summed_up(snapshot, claims, found, refused)
        except TimeLimitExceeded:
            return Report(cause=SearchStopped(trials=0, timed_out=True), nodes=found, requests=())


def _summed_up(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    found: tuple[NodeReport, ...],
    refused: Mapping[str, tuple[NodeRefusal, ...]],
) -> Report:
    """Raises: TimeLimitExceeded."""
    eligible = [node for node in found if not node.refusals]
    if any(node.fits for node in found):
        return Report(cause=None, nodes=found, requests=_requests(eligible, ()))
    refusals = [node.examination.outcome for node in eligible if isinstance(node.examination.outcome, Unallocatable)]
    leading = dominant(refusals)
    decisive = () if not leading else (leading[0].claim, leading[0].request)
    loosenings = list[Loosening]()
    if leading:
        views = [node.examination.node for node in found if not node.refusals]
        with suppress(TimeLimitExceeded):  # those that are found before the deadline
            loosenings.extend(
                _without_selectors(snapshot, claims, views, claim=leading[0].claim, request=leading[0].request)
            )
    return Report(
        cause=_cause(eligible, refusals, refused, nodes=len(found)),
        requests=_requests(eligible or found, decisive),
        nodes=found,
        notes=tuple(_notes(claims, found)),
        loosenings=tuple(loosenings),
    )


def _cause(
    eligible: Sequence[NodeReport],
    refusals: Sequence[Unallocatable],
    refused: Mapping[str, tuple[NodeRefusal, ...]],
    *,
    nodes: int,
) -> AnyCause:
    """Errors that a person must mend come first; then devices; then what speaks against the nodes."""
    outcomes = [node.examination.outcome for node in eligible]
    failed = next((one for one in outcomes if isinstance(one, AllocationFailed)), None)
    if failed is not None:
        return failed.cause
    undecided = [one for one in outcomes if isinstance(one, Undecided)]
    if undecided:
        return SearchStopped(sum(one.trials for one in undecided), any(one.timed_out for one in undecided))
    found = overall(refusals, asked=ASKED_THOROUGHLY)
    if found is not None:
        return found
    return NoNodeFits(nodes=nodes, refused=counted(refused.values()))


def _requests(nodes: Sequence[NodeReport], decisive: tuple[str, ...]) -> tuple[RequestReport, ...]:
    by_request: dict[tuple[str, str], list[Examined]] = {}
    for node in nodes:
        for one in node.examination.requests:
            by_request.setdefault((one.plan.claim, one.plan.full_name), []).append(one)
    return tuple(_request(examined, decisive=key == decisive) for key, examined in by_request.items())


def _request(examined: Sequence[Examined], *, decisive: bool) -> RequestReport:
    funnels = [one.funnel for one in examined]
    plan, wanted = examined[0].plan, max(one.wanted for one in examined)
    met = any(not one.short for one in examined)
    short = Shortage(plan=plan, wanted=wanted, funnel=merged(funnels), most=most_left(funnels), nodes=())
    return RequestReport(
        plan=plan,
        wanted=wanted,
        funnel=short.funnel,
        most=short.most,
        met=met,
        decisive=decisive,
        stops=None if met else short.failing,
    )


# What-ifs ------------------------------------------------------------------------------------------------------------


#: Nodes that a note names.
_NAMED = 3


def _notes(claims: Sequence[ResourceClaim], nodes: Sequence[NodeReport]) -> Iterator[str]:
    able = [node for node in nodes if node.refusals and isinstance(node.examination.outcome, Allocated)]
    if able and claims:
        named = ", ".join(f"`{node.name}`" for node in able[:_NAMED])
        more = f" and {len(able) - _NAMED} more" if len(able) > _NAMED else ""
        against = "; ".join(of_nodes(*one) for one in Counter(node.refusals[0] for node in able).items())
        yield f"{named}{more} could give the devices now, but the pod may not run there: {against}."


def _without_selectors(
    snapshot: Snapshot, claims: Sequence[ResourceClaim], nodes: Sequence[NodeView], *, claim: str, request: str
) -> Iterator[Loosening]:
    """Which single selector of the request stands between the claims and some node."""
    found = next((one for one in claims if f"{one.metadata.namespace}/{one.metadata.name}" == claim), None)
    wanted = next((one for one in found.spec.devices.requests if one.name == request), None) if found else None
    if found is None or wanted is None or wanted.exactly is None:
        return
    count = len(wanted.exactly.selectors)
    for index in range(min(count, TRIED)):
        loosened = [_loosened(found, wanted, index) if one is found else one for one in claims]
        placed = place(snapshot, loosened, nodes)
        if placed.node is not None:
            yield Loosening(claim=claim, request=request, index=index, of=count, node=placed.node.name)


def _loosened(claim: ResourceClaim, request: DeviceRequest, index: int) -> ResourceClaim:
    """The claim without one selector of one request."""
    if request.exactly is None:
        return claim
    kept = (*request.exactly.selectors[:index], *request.exactly.selectors[index + 1 :])
    loose = structs.replace(request, exactly=structs.replace(request.exactly, selectors=kept))
    requests = tuple(loose if one is request else one for one in claim.spec.devices.requests)
    devices = structs.replace(claim.spec.devices, requests=requests)
    return structs.replace(claim, spec=structs.replace(claim.spec, devices=devices))
