"""Explains why a pod or a claim waits, to people and programs, from the current state. Nothing is written.

1. The cluster state that this process follows from the first request on (`cluster`), and copies of it (`apart`): one
   request is answered at a time, and a rehearsal of seconds works on a copy and lets other requests go first.
2. The report: each node's answer by the code that schedules, the funnels over all nodes, and the dominant cause. Nodes
   that refuse the pod are examined too: what they could give is worth a hint. A hint is a what-if that the allocator
   has tried: without one selector, or without the refusal of a node, the claims could be allocated.
3. The explanation of a pod or a claim, and its document in the API (`_document`).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from msgspec import structs

from claims.causes.causes import (
    AnyCause,
    CannotAllocate,
    ClaimNotCreated,
    Evicting,
    GroupDoesNotFit,
    NodeRefusal,
    NoNodeFits,
    NotPlaced,
    NotTogether,
    OfNode,
    OfPreemption,
    QuotaUsedUp,
    SearchStopped,
    counted,
    decode,
)
from claims.causes.messages import (
    SCHEDULER_NAME,
    assigned,
    clause,
    message,
    of_nodes,
    preemption_clause,
    sentence,
    why_it_waits,
)
from claims.causes.next_steps import outside
from claims.event_recorder import PLACEMENT, EventNote, key_of
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DeviceRequest, ResourceClaim
from claims.pod_claims import claim_names, has_group, is_done
from manciple.api import subresources
from manciple.durations import moment
from manciple.gaps import demand, lacking
from manciple.per_process import PerProcess
from manciple.renewals import renewals
from manciple.store import objects
from manciple.store.event_log import Follower
from manciple.store.objects import decoded
from manciple.wire.base import ApiObject, condition_of
from manciple.wire.errors import GatewayTimeout, NotFound
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_is_up, time_limit
from manciple.wire.machinery import Event
from manciple.wire.resources import BUDGETS, CLAIMS, EVENTS, PODS, Key, kind
from scheduling import judgement
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    Features,
    NodeView,
    Snapshot,
    Unallocatable,
    Undecided,
    overall,
    place,
)
from scheduling.allocator.allocation import Examination, Examined, examine
from scheduling.allocator.outcome import (
    ASKED_THOROUGHLY,
    ConstraintStep,
    Drop,
    Funnel,
    Shortage,
    Stage,
    dominant,
    drops,
    merged,
    most_left,
)
from scheduling.allocator.requests import RequestPlan
from scheduling.claims.extended_resources import ServedRequest, served_requests
from scheduling.claims.readiness import is_judged, request_of, scheduler_of
from scheduling.cycle import post_filter
from scheduling.cycle.post_filter import eviction_cause, preview
from scheduling.models import QueuedPod
from scheduling.placement import policies
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import POD_SCHEDULED
from scheduling.rehearsal.quota_refusals import refused_by_quota
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import PlannedEviction

#: Seconds of processor time for one answer: others wait for the state meanwhile.
WORK_SECONDS = 1.0
#: Seconds for evaluating selectors: on behalf of one request to the API, and for one report.
SECONDS, REPORT_SECONDS = 4.0, 2.0
#: Explanations of waiting pods that are kept, and for how many seconds: which evictions would help depends on the time.
MOST_KEPT, KEPT_SECONDS = 4, 10.0
#: Selectors that are tried without, at most; devices, pods and nodes that one sentence names.
TRIED, NAMED = 6, 3
GROUP, VERSION, KIND = "manciple.dev", "v1alpha1", "Explanation"

_ObjectT = TypeVar("_ObjectT", bound=ApiObject)


# The state, and copies of it ------------------------------------------------------------------------------------------


class FairLock:
    """A lock that is handed on in the order of asking; who holds it for long may let others go first (`give_way`)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: who has the state, and after that who waits for it
        self._standing: deque[object] = deque()

    def __enter__(self) -> None:
        me = object()
        with self._changed:
            self._standing.append(me)
            try:
                self._changed.wait_for(lambda: self._standing[0] is me)
            except BaseException:
                self._standing.remove(me)
                self._changed.notify_all()
                raise

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        with self._changed:
            self._standing.popleft()
            self._changed.notify_all()

    @property
    def somebody_waits(self) -> bool:
        return len(self._standing) > 1

    def give_way(self) -> None:
        """By who has the state: those who wait now go first. Nothing happens where nobody waits."""
        if self.somebody_waits:
            self.__exit__(None, None, None)
            self.__enter__()


#: What is derived from published content is shared by the state and its copy: one thread at a time looks at either.
_asking = FairLock()
#: One copy at a time.
_imagining = threading.Lock()
_following = Follower(lambda: ClusterState(Features.from_gates()), turn=_asking)
#: The state, up to date, for one short question, which leaves it as it is.
cluster = _following.view


def is_known() -> bool:
    """Whether the state was listed once, so that the next question costs no more than what happened since."""
    return _following.place[1] > 0


@dataclass(frozen=True, slots=True)
class Apart:
    """A copy of the state. give_way: to be called often; the questions that wait are answered first."""

    state: ClusterState
    give_way: Callable[[], None]


@contextmanager
def apart() -> Iterator[Apart]:
    """A copy of the state, up to date, to imagine things in. It is thrown away afterwards.

    Raises: NotEnoughKnown.
    """
    demand(*judgement.TO_REHEARSE, consequence="nothing can be rehearsed")
    with _imagining, _copied() as copy:
        yield copy


@contextmanager
def apart_within(seconds: float) -> Iterator[Apart | None]:
    """The same; None where others imagine something for longer than that, or not everything is known."""
    if lacking(*judgement.TO_REHEARSE) or not _imagining.acquire(timeout=seconds):
        yield None
        return
    try:
        with _copied() as copy:
            yield copy
    finally:
        _imagining.release()


@contextmanager
def _copied() -> Iterator[Apart]:
    with cluster() as state:
        post_filter.settle(state, datetime.now(UTC))
        policies.learn(state)
        copy = state.copy()
    with _asking:
        yield Apart(copy, _asking.give_way)


# The report -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport:
    """One request, or alternative of a list, over the nodes in question."""

    plan: RequestPlan
    wanted: int
    funnel: Funnel
    most: tuple[int, ...]
    met: bool  # some node has enough for it alone, with its constraints
    decisive: bool  # the dominant reason is about it
    stops: int | None  # the stage at which even the best node falls short
    constraints: tuple[ConstraintStep, ...] = ()  # each as on the node that comes closest to meeting it
    by_itself: bool = False  # it is met, but not together with the others: on other nodes, or by devices they want too
    #: what follows in the funnel is not known, so it is not known either whether it can be met
    is_cut: bool = False
    refused: bool = False  # every node refuses the pod; this is what their devices could do

    @property
    def fits(self) -> bool:
        """Met together with the others, on a node that takes the pod."""
        return self.met and not self.by_itself and not self.refused

    @property
    def short_by(self) -> int:
        return max(self.wanted - self.most[-1], 0) if self.most else 0


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
    #: whether a time limit cut it short
    is_partial: bool = False
    #: what others derived from the report
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

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

    Nodes that are not reached in `REPORT_SECONDS` are undecided, and what the answers have in common is left out then.
    """
    deadline = Deadline.after(REPORT_SECONDS * settings.EXPLANATION_PATIENCE)
    with time_limit(deadline):
        found = tuple(
            NodeReport(examination=examine(snapshot, claims, node), refusals=refused.get(node.name, ()))
            for node in nodes
        )
        try:
            return replace(_summed_up(snapshot, claims, found, refused), is_partial=time_is_up())
        except TimeLimitExceeded:
            return Report(cause=SearchStopped(trials=0, timed_out=True), nodes=found, requests=(), is_partial=True)


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
    cause = _cause(eligible, refusals, refused, nodes=len(found))
    return Report(
        cause=cause,
        requests=_apart(_requests(eligible or found, decisive), eligible or found, cause),
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


def _apart(
    requests: Sequence[RequestReport], nodes: Sequence[NodeReport], cause: AnyCause
) -> tuple[RequestReport, ...]:
    """Marks those that are met by themselves alone, or only by nodes that refuse the pod."""
    met = {(one.plan.claim, one.plan.full_name) for one in requests if one.met}
    on_one_node = any(
        met <= {(one.plan.claim, one.plan.full_name) for one in node.examination.requests if one.met} for node in nodes
    )
    conflict = cause if isinstance(cause, NotTogether) else None
    claim = getattr(conflict, "claim", "")
    return tuple(
        replace(
            one,
            by_itself=one.met and (not on_one_node or (conflict is not None and claim in ("", one.plan.claim))),
            refused=all(node.refusals for node in nodes),
        )
        for one in requests
    )


def _request(examined: Sequence[Examined], *, decisive: bool) -> RequestReport:
    funnels = [one.funnel for one in examined]
    plan, wanted = examined[0].plan, max(one.wanted for one in examined)
    able = [one for one in examined if not one.short]
    short = Shortage(plan=plan, wanted=wanted, funnel=merged(funnels), most=most_left(funnels), nodes=())
    return RequestReport(
        plan=plan,
        wanted=wanted,
        funnel=short.funnel,
        most=short.most,
        met=any(one.met for one in able),
        decisive=decisive,
        stops=None if able else short.failing,
        constraints=tuple(
            max(same, key=lambda step: (step.met, step.left))
            for same in zip(*(one.constraints for one in able), strict=True)
        ),
    )


def _notes(claims: Sequence[ResourceClaim], nodes: Sequence[NodeReport]) -> Iterator[str]:
    able = [node for node in nodes if node.refusals and isinstance(node.examination.outcome, Allocated)]
    if able and claims:
        named = ", ".join(f"`{node.name}`" for node in able[:NAMED])
        more = f" and {len(able) - NAMED} more" if len(able) > NAMED else ""
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


# The explanation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """Devices of `node`, (driver, pool, device), that are kept for a nominated pod."""

    namespace: str
    pod: str
    node: str
    devices: frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is to be said of one pod or claim."""

    about: ApiObject
    revision: int
    state: str = "Waiting"
    cause: AnyCause | None = None  # why it waits
    #: where it does not wait: a clause, and what to do next
    remark: str = ""
    advice: str = ""
    node: str = ""  # where a pod is bound
    placement: str = ""  # why there
    report: Report | None = None
    held: tuple[ResourceClaim, ...] = field(default=())  # claims that are allocated
    #: what serves the extended resources that it asks for, where devices do
    extended: tuple[ServedRequest, ...] = ()
    #: of a pod that waits: whom it would evict, or why nobody
    preemption: PlannedEviction | OfPreemption | None = None
    #: where devices that it may not have are kept for others that wait
    rooms: tuple[KeptRoom, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether it is still to be placed, or allocated."""
        return self.state in ("Waiting", "Schedulable", "Unknown")

    @property
    def reason(self) -> str:
        """A clause."""
        return clause(self.cause) if self.cause else self.remark

    @property
    def sentence(self) -> str:
        if self.cause is not None:
            return why_it_waits(self.cause)
        return f"It waits because {self.remark}." if self.state == "Waiting" else f"{sentence(self.remark)}."


@dataclass(frozen=True, slots=True)
class _KeptExplanation:
    """at: when it was made, by the monotonic clock. of: the state that it is about, at `revision`."""

    of: weakref.ref[ClusterState]
    revision: int
    at: float
    explanation: Explanation


#: (namespace, name) of a waiting pod -> its last explanation. Used only while the state is held.
_kept = PerProcess(OrderedDict[Key, _KeptExplanation])


def explain_pod(namespace: str, name: str) -> Explanation:
    """While nothing changes, a waiting pod's report is not computed again for `KEPT_SECONDS`. Raises: NotFound."""
    return _as_known(_explained_pod(namespace, name))


def _explained_pod(namespace: str, name: str) -> Explanation:
    """As if what is known were all there is."""
    with cluster() as state:
        kept = _kept.value.get((namespace, name))
        if (
            kept is not None
            and kept.of() is state
            and state.news_after(kept.revision) == []
            and time.monotonic() - kept.at < KEPT_SECONDS
        ):
            return replace(kept.explanation, revision=state.revision)
        pod = _found(PODS, Pod, namespace, name)
        settled = _settled(pod)
        if settled is not None:
            where, remark = settled
            held = tuple(_allocated(pod))
            return Explanation(
                about=pod,
                revision=state.revision,
                state=where,
                remark=remark,
                node=pod.spec.node_name,
                placement=_why_there(pod),
                held=held,
                extended=_served(pod, held),
            )
        explanation = _waiting(state, pod)
        _keep(state, pod, explanation)
        return explanation


def _keep(state: ClusterState, pod: Pod, explanation: Explanation) -> None:
    """Only what follows from the state alone: not from the database, nor from a time limit."""
    cache = _kept.value
    cache.pop(pod.key, None)
    report = explanation.report
    if report is None or report.is_partial or has_group(pod) or isinstance(explanation.cause, SearchStopped):
        return
    cache[pod.key] = _KeptExplanation(weakref.ref(state), state.revision, time.monotonic(), explanation)
    while len(cache) > MOST_KEPT:
        cache.popitem(last=False)


def explain_claim(namespace: str, name: str) -> Explanation:
    """Raises: NotFound."""
    return _as_known(_explained_claim(namespace, name))


def _explained_claim(namespace: str, name: str) -> Explanation:
    """As if what is known were all there is."""
    with cluster() as state:
        claim = _found(CLAIMS, ResourceClaim, namespace, name)
        if claim.status.allocation is not None:
            return Explanation(
                about=claim, revision=state.revision, state="Allocated", remark=_holding(claim), held=(claim,)
            )
        if (hold := state.extension_hold([claim])) is not None:
            return Explanation(about=claim, revision=state.revision, cause=hold.cause)
        claim = state.seen(claim)
        try:
            with time_limit(Deadline.after_work(WORK_SECONDS * settings.EXPLANATION_PATIENCE)):
                found = report(state.snapshot(), [claim], nodes=state.nodes.views, refused={})
        except TimeLimitExceeded:
            return _costly(state, claim)
        if found.cause is not None:
            return Explanation(about=claim, revision=state.revision, cause=found.cause, report=found)
        return Explanation(
            about=claim,
            revision=state.revision,
            state="Schedulable",
            remark=f"{_counted(found)} could give it devices; it gets them when a pod that uses it is scheduled",
            advice="Create a pod that names the claim, or look at the pod that does.",
            report=found,
        )


def _as_known(explained: Explanation) -> Explanation:
    """In a mirror, without what cannot be concluded from the kinds that are known (`scheduling.judgement`)."""
    if not settings.MIRROR or not explained.waits:
        return explained
    about, fits = explained.about, explained.state == "Schedulable"
    unknown = judgement.not_judged(explained.cause, about) if explained.cause or fits else None
    if judgement.lacking_for(about):
        report = explained.report and _known_part(explained.report, about)
        explained = replace(explained, report=report, preemption=None)
    elif lacking(BUDGETS):
        explained = replace(explained, preemption=None)
    if unknown is None:
        return explained
    return replace(explained, state="Unknown", cause=unknown, remark="", advice="")


def _known_part(report: Report, about: ApiObject) -> Report:
    """The beginnings of its funnels. What its nodes and hints say depends on more than is known."""
    requests = tuple(_cut(one, judgement.known_stages(one.funnel, about)) for one in report.requests)
    return Report(cause=report.cause, requests=requests, is_partial=True)


def _cut(request: RequestReport, funnel: Funnel) -> RequestReport:
    stops = request.stops if request.stops is not None and request.stops < len(funnel) else None
    decisive = request.decisive and stops is not None
    most = request.most[: len(funnel)]
    return replace(
        request, funnel=funnel, most=most, met=False, decisive=decisive, stops=stops, constraints=(), by_itself=False,
        is_cut=True,
    )  # fmt: skip


def _counted(found: Report) -> str:
    fitting, nodes = len(found.fitting), len(found.nodes)
    return f"{fitting} of {nodes} nodes" if nodes > 1 else f"node `{found.fitting[0]}`"


def _waiting(state: ClusterState, pod: Pod) -> Explanation:
    post_filter.settle(state, datetime.now(UTC))
    try:
        with state.overlay.trying(pod), time_limit(Deadline.after_work(WORK_SECONDS * settings.EXPLANATION_PATIENCE)):
            return _explained(state, pod)
    except TimeLimitExceeded:
        return _costly(state, pod)


def _costly(state: ClusterState, about: ApiObject) -> Explanation:
    return Explanation(
        about=about,
        revision=state.revision,
        remark="its selectors take too long to evaluate",
        advice="Simplify the selectors, or use fewer different ones.",
    )


def _explained(state: ClusterState, pod: Pod) -> Explanation:
    if has_group(pod) and (hold := state.groups.hold(pod)) is not None:
        return Explanation(about=pod, revision=state.revision, cause=hold.cause)
    request = request_of(state, pod)
    if not isinstance(request, Hold):
        request = state.undecided(pod, request.claims) or request
    if isinstance(request, Hold):
        return Explanation(about=pod, revision=state.revision, cause=_with_quota(pod, request.cause))
    filtered = state.restricted(pod, request.claims, state.nodes.filter(pod, request.held))
    if isinstance(filtered, Hold):
        return Explanation(about=pod, revision=state.revision, cause=filtered.cause)
    special = request.special_on({})
    found = report(state.snapshot(), request.wanting_on({}), nodes=state.nodes.views, refused=dict(filtered.refused))
    cause = found.cause or _of_its_gang(state, pod)
    return Explanation(
        about=pod,
        revision=state.revision,
        state="Waiting" if cause else "Schedulable",
        cause=cause or (not_placed(pod, found.fitting) if settings.MIRROR else None),
        remark="a node fits; it is being scheduled",
        report=found,
        held=request.held,
        extended=() if special is None else served_requests(special.mappings, special.claim),
        preemption=preview(state, request, refusals_of(found), datetime.now(UTC)) if found.cause else None,
        rooms=tuple(_rooms_kept(state)),
    )


def _rooms_kept(state: ClusterState) -> Iterator[KeptRoom]:
    """Against the pod that is being tried."""
    for room in state.rooms.all():
        if room.counts and room.allocations:
            results = (one for given in room.allocations.values() for one in given.devices.results)
            devices = frozenset((one.driver, one.pool, one.device) for one in results)
            yield KeptRoom(room.pod.metadata.namespace, room.pod.metadata.name, room.node, devices)


def not_placed(pod: Pod, nodes: Sequence[str]) -> NotPlaced:
    """nodes: those on which it fits."""
    scheduler = scheduler_of(pod)
    silent = renewals.value.silent_since(scheduler) is not None
    more = max(len(nodes) - NAMED, 0)
    return NotPlaced(scheduler=scheduler, nodes=tuple(nodes[:NAMED]), more=more, silent=silent)


def with_time(explained: Explanation) -> Explanation:
    """With for how long a pod has not been placed that fits. Not kept: pages have a clock beside it."""
    if not isinstance(explained.cause, NotPlaced) or not isinstance(explained.about, Pod):
        return explained
    return replace(explained, cause=structs.replace(explained.cause, seconds=int(waiting_seconds(explained.about))))


def waiting_seconds(pod: Pod) -> float:
    """Since its scheduler could have placed it."""
    condition = condition_of(pod.status.conditions, POD_SCHEDULED)
    since = moment(condition.last_transition_time if condition else None) or moment(pod.metadata.creation_timestamp)
    return max((datetime.now(UTC) - since).total_seconds(), 0.0) if since else 0.0


def _of_its_gang(state: ClusterState, pod: Pod) -> AnyCause | None:
    """What the last attempt came to where the pod would fit and too few of its gang do.

    Told of any pod of the gang: the one that the others left no room says what it lacks, and alone it lacks nothing.
    """
    if not has_group(pod) or (group := state.groups.of(pod)) is None:
        return None
    rows = QueuedPod.objects.filter(uid__in=state.groups.members(group))
    causes = map(decode, rows.order_by("uid").values_list("cause", flat=True))
    return next((one for one in causes if isinstance(one, GroupDoesNotFit)), None)


def _with_quota(pod: Pod, cause: AnyCause | None) -> AnyCause | None:
    """In place of a claim that is not made: the quota that refuses it, where one does."""
    if not isinstance(cause, ClaimNotCreated):
        return cause
    excess = refused_by_quota(pod, cause.entry)
    if excess is None:
        return cause
    return QuotaUsedUp(
        quota=excess.quota,
        key=excess.key,
        requested=excess.requested,
        used=excess.used,
        hard=excess.hard,
        entry=cause.entry,
    )


def _served(pod: Pod, held: Iterable[ResourceClaim]) -> tuple[ServedRequest, ...]:
    """held: the claims of a pod that has its node."""
    status = pod.status.extended_resource_claim_status
    name = status.resource_claim_name if status is not None else ""
    claim = next((one for one in held if one.metadata.name == name), None)
    return () if status is None or claim is None else served_requests(status.request_mappings, claim)


def _why_there(pod: Pod) -> str:
    """What the event of its binding says of that, as long as there is one."""
    node = pod.spec.node_name
    if not node:
        return ""
    told = assigned(f"{pod.metadata.namespace}/{pod.metadata.name}", node)
    note = EventNote(regarding=pod, reason="Scheduled", message=told, component=SCHEDULER_NAME)
    stored = objects.get(kind(EVENTS), *key_of(note))
    return "" if stored is None else decoded(stored, Event).metadata.annotations.get(PLACEMENT, "")


def _settled(pod: Pod) -> tuple[str, str] | None:
    """(state, what is to be said) of a pod that no longer waits for this scheduler, or never did."""
    if is_done(pod):
        return "Ended", f"it has ended: {pod.status.phase}"
    if pod.metadata.deletion_timestamp is not None:
        return "Deleting", "it is being deleted"
    if pod.spec.node_name:
        return "Bound", f"it is bound to node `{pod.spec.node_name}`"
    if not is_judged(scheduler := scheduler_of(pod)):
        return "Unmanaged", f"scheduler `{scheduler}` places it, not this one"
    return None


def _holding(claim: ResourceClaim) -> str:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else ()
    named = ", ".join(f"`{one.driver}/{one.pool}/{one.device}`" for one in results[:NAMED])
    if not named:  # a driver's controller need not say which devices it allocated
        driver = allocation.controller_name if allocation else ""
        named = f"what driver `{driver}` allocated" if driver else "no device"
    more = f" and {len(results) - NAMED} more" if len(results) > NAMED else ""
    users = ", ".join(f"`{one.name}`" for one in claim.status.reserved_for[:NAMED])
    return f"it holds {named}{more}" + (f", for {users}" if users else ", and nobody uses it")


def _allocated(pod: Pod) -> Iterator[ResourceClaim]:
    """The pod's claims that hold devices."""
    for name in claim_names(pod):
        stored = objects.get(kind(CLAIMS), pod.metadata.namespace, name)
        if stored is not None:
            claim = decoded(stored, ResourceClaim)
            if claim.status.allocation is not None:
                yield claim


def _found(resource: str, type_: type[_ObjectT], namespace: str, name: str) -> _ObjectT:
    stored = objects.get(kind(resource), namespace, name)
    if stored is None:
        raise NotFound.of(resource, name)
    return decoded(stored, type_)


#: What says the next step of an explanation. `insight`, which lies above and rehearses it, adds its own.
next_steps: list[Callable[[Explanation], str]] = [
    lambda explained: outside(explained.cause) if explained.cause else explained.advice
]


# The API's document ---------------------------------------------------------------------------------------------------


# kind: Explanation, apiVersion: manciple.dev/v1alpha1
# involvedObject: what is explained; resourceVersion: the state that was read
# state: Waiting, Schedulable, Unknown (in a mirror: it cannot be judged), Bound, Allocated, Ended, Deleting or
# Unmanaged; reason, nextStep, hints: for people
# preemption: whether evicting pods would help, and which
# cause: why it waits, for programs: its code (`claims.causes.causes`) and what belongs to it
# extendedResources: which class and which request of its claim serve the resources of its containers
# requests: the funnel of each over all eligible nodes; nodes: each node's answer; allocations: the devices it has


def pod_document(namespace: str, name: str) -> Mapping[str, Any]:
    return _in_time(explain_pod, namespace, name)


def claim_document(namespace: str, name: str) -> Mapping[str, Any]:
    return _in_time(explain_claim, namespace, name)


def _in_time(explain: Callable[[str, str], Explanation], namespace: str, name: str) -> Mapping[str, Any]:
    """Raises: GatewayTimeout."""
    try:
        with time_limit(Deadline.after(SECONDS)):
            return document(explain(namespace, name))
    except TimeLimitExceeded as error:
        raise GatewayTimeout(f"the selectors take longer than {SECONDS:g} seconds to evaluate") from error


def document(explained: Explanation) -> dict[str, Any]:
    """The JSON document; empty fields are left out."""
    explained = with_time(explained)
    about, report = explained.about, explained.report or Report(cause=None)
    meta = about.metadata
    made = {
        "kind": KIND,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {"namespace": meta.namespace, "name": meta.name, "resourceVersion": str(explained.revision)},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        },
        "state": explained.state,
        "cause": msgspec.to_builtins(explained.cause),
        "reason": f"{sentence(explained.reason)}.",
        "nextStep": next_steps[-1](explained),
        "nodeName": explained.node,
        "placement": explained.placement,
        "preemption": _preemption_document(explained),
        "hints": list(report.hints),
        "extendedResources": [_served_document(one) for one in explained.extended],
        "allocations": [_allocation_document(claim) for claim in explained.held],
        "requests": [_request_document(one) for one in report.requests],
        "nodes": [_node_document(one) for one in report.nodes],
    }
    return {name: value for name, value in made.items() if value not in ("", [], None)}


def _preemption_document(explained: Explanation) -> dict[str, Any] | None:
    """Pods of other namespaces than that of the pod itself are counted, and not named."""
    found = explained.preemption
    if found is None:
        return None
    namespace = explained.about.metadata.namespace
    told = eviction_cause(found, sees=namespace.__eq__) if isinstance(found, PlannedEviction) else found
    made: dict[str, Any] = {"helps": isinstance(told, Evicting), "reason": f"{sentence(preemption_clause(told))}."}
    if isinstance(told, Evicting):
        made |= {"nodeName": told.node, "victims": msgspec.to_builtins(told.victims), "moreVictims": told.more}
    return made


def _allocation_document(claim: ResourceClaim) -> dict[str, Any]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else ()
    return {
        "claim": f"{claim.metadata.namespace}/{claim.metadata.name}",
        "devices": [
            {"request": one.request, "driver": one.driver, "pool": one.pool, "device": one.device} for one in results
        ],
        "reservedFor": [{"resource": one.resource, "name": one.name} for one in claim.status.reserved_for],
    }


def _served_document(one: ServedRequest) -> dict[str, str]:
    told = {
        "containerName": one.container,
        "resourceName": one.resource,
        "deviceClassName": one.device_class,
        "requestName": one.request,
        "claim": one.claim,
    }
    return {name: value for name, value in told.items() if value}


def _request_document(one: RequestReport) -> dict[str, Any]:
    return {
        "claim": one.plan.claim,
        "request": one.plan.full_name,
        "deviceClassName": one.plan.class_name,
        **({"allocationMode": "All"} if one.plan.everything else {"count": one.wanted}),
        **({} if one.is_cut else {"met": one.met}),
        **({"byItself": True} if one.by_itself else {}),
        **({} if one.is_cut else {"decisive": one.decisive}),
        "stages": list(_stages(one.funnel)),
        **({"constraints": [_constraint_document(step) for step in one.constraints]} if one.constraints else {}),
    }


def _constraint_document(step: ConstraintStep) -> dict[str, Any]:
    name = "distinctAttribute" if step.distinct else "matchAttribute"
    return {name: step.attribute, "wanted": step.wanted, "left": step.left, "met": step.met}


def _stages(funnel: Funnel) -> Iterator[dict[str, Any]]:
    for before, stage in pairwise((*funnel[:1], *funnel)):
        yield {**_count(stage), "lost": before.left - stage.left} | _detail(before, stage)


def _count(stage: Stage) -> dict[str, Any]:
    return {"name": stage.name, "left": stage.left}


def _detail(before: Stage, stage: Stage) -> dict[str, Any]:
    if stage.troubles:
        pools = [
            {"driver": one.key.driver, "pool": one.key.name, "trouble": one.trouble, "detail": one.detail}
            | {"devices": one.devices, "matching": one.matching}
            for one in stage.troubles
        ]
        return {"pools": pools}
    if stage.selector is None:
        return {"asked": stage.clause} if stage.clause else {}
    refused = drops(stage.selector, before.devices - stage.devices)
    return {"expression": stage.selector.expression, "refusedBy": [_drop(one) for one in refused]}


def _drop(drop: Drop) -> dict[str, Any]:
    made: dict[str, Any] = {"clause": drop.clause.text, "short": str(drop.clause), "devices": drop.count}
    if drop.values:
        made["values"] = [{"value": value, "devices": count} for value, count in drop.values]
    ends = {"least": drop.least, "greatest": drop.greatest}
    return made | {name: text for name, text in ends.items() if text} | {"example": drop.one_device}


def _node_document(node: NodeReport) -> dict[str, Any]:
    outcome = node.examination.outcome
    made: dict[str, Any] = {"name": node.name, "fits": node.fits}
    if node.refusals:
        made["refusals"] = [{"plugin": one.plugin, "message": message(one)} for one in node.refusals]
    match outcome:
        case Allocated(results=results):
            made["devices"] = [
                f"{one.driver}/{one.pool}/{one.device}" for result in results for one in result.devices.results
            ]
        case Unallocatable(reasons=reasons):
            made["reason"] = f"{sentence(clause(reasons[0].cause, names_claim=True))}." if reasons else ""
        case _:
            made["reason"] = message(outcome.cause)
    if node.examination.requests:
        made["requests"] = [
            {
                "claim": one.plan.claim,
                "request": one.plan.full_name,
                "met": one.met,
                "stages": [_count(stage) for stage in one.funnel],
            }
            for one in node.examination.requests
        ]
    return made


def register() -> None:
    """Puts `explain` below pods and claims in the API."""
    for resource, answer in ((PODS, pod_document), (CLAIMS, claim_document)):
        computed = subresources.Computed(name="explain", group=GROUP, version=VERSION, kind=KIND, answer=answer)
        subresources.register(resource, computed)
