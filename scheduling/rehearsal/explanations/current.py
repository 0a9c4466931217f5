"""Explains pods and claims as they are now, from a cluster state that this process follows after the first request.

One request is answered at a time. A rehearsal, which may take seconds, works on a copy that shares the published
devices (`apart`), and lets requests that come meanwhile go first. Nothing is written.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from claims.causes.causes import AnyCause, ClaimNotCreated, GroupDoesNotFit, QuotaUsedUp, decode
from claims.causes.messages import SCHEDULER_NAME, assigned
from claims.event_recorder import PLACEMENT, EventNote, key_of
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import claim_names, has_group, is_done
from manciple.api import subresources
from manciple.controllers.coordination import utc_now
from manciple.store import objects
from manciple.store.event_log import Follower
from manciple.store.objects import decoded
from manciple.wire.base import ApiObject
from manciple.wire.errors import GatewayTimeout, NotFound
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from manciple.wire.machinery import Event
from manciple.wire.resources import CLAIMS, EVENTS, PODS, kind
from scheduling.allocator import Features
from scheduling.claims.extended_resources import ServedRequest, served_requests
from scheduling.claims.readiness import request_of
from scheduling.cycle import preemption
from scheduling.cycle.post_filter import preview
from scheduling.models import QueuedPod
from scheduling.queue.reasons import Hold
from scheduling.rehearsal.explanations.documents import GROUP, KIND, VERSION, Explanation, document
from scheduling.rehearsal.explanations.report import Report, refusals_of, report
from scheduling.rehearsal.quota_refusals import refused_by_quota
from scheduling.state.cluster import ClusterState

_ObjectT = TypeVar("_ObjectT", bound=ApiObject)

#: Seconds for evaluating selectors on behalf of one request to the API.
SECONDS = 4.0
#: Devices and pods that are named in one sentence.
NAMED = 3
#: Seconds of processor time for one answer: others wait for the state meanwhile.
WORK_SECONDS = 1.0


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
    """A copy of the state, up to date, to imagine things in. It is thrown away afterwards."""
    with _imagining, _copied() as copy:
        yield copy


@contextmanager
def apart_within(seconds: float) -> Iterator[Apart | None]:
    """The same; None where others imagine something for longer than that."""
    if not _imagining.acquire(timeout=seconds):
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
        preemption.settle(state, utc_now())
        copy = state.copy()
    with _asking:
        yield Apart(copy, _asking.give_way)


def explain_pod(namespace: str, name: str) -> Explanation:
    """Raises: NotFound."""
    with cluster() as state:
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
        return _waiting(state, pod)


def explain_claim(namespace: str, name: str) -> Explanation:
    """Raises: NotFound."""
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
            with time_limit(Deadline.after_work(WORK_SECONDS)):
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


def _counted(found: Report) -> str:
    fitting, nodes = len(found.fitting), len(found.nodes)
    return f"{fitting} of {nodes} nodes" if nodes > 1 else f"node `{found.fitting[0]}`"


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


def _waiting(state: ClusterState, pod: Pod) -> Explanation:
    preemption.settle(state, utc_now())
    try:
        with state.overlay.trying(pod), time_limit(Deadline.after_work(WORK_SECONDS)):
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
        cause=cause,
        remark="a node fits; it is being scheduled",
        report=found,
        held=request.held,
        extended=() if special is None else served_requests(special.mappings, special.claim),
        preemption=preview(state, request, refusals_of(found), utc_now()) if found.cause else None,
    )


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
    scheduler = pod.spec.scheduler_name or SCHEDULER_NAME
    if scheduler != SCHEDULER_NAME:
        return "Unmanaged", f"scheduler `{scheduler}` places it, not this one"
    return None


def _holding(claim: ResourceClaim) -> str:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else ()
    named = ", ".join(f"`{one.driver}/{one.pool}/{one.device}`" for one in results[:NAMED])
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


def register() -> None:
    """Puts `explain` below pods and claims in the API."""
    for resource, answer in ((PODS, pod_document), (CLAIMS, claim_document)):
        computed = subresources.Computed(name="explain", group=GROUP, version=VERSION, kind=KIND, answer=answer)
        subresources.register(resource, computed)
