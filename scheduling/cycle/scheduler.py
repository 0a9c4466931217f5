"""The scheduler: a batch of waiting pods in, bound pods out. Read it from top to bottom: the cycle by extension point.

    1. the state reads the log, and plans the claims that new pods lack          (`scheduling.claims.readiness`)
       the queue is fed from it                                                  PreEnqueue, queueing hints
    2. a batch of the ready pods is taken up, by priority, then age             (or `scheduling.state.fair_share`);
       where none is ready, a few that were woken during their backoff          (`scheduling.queue.queue`)
    3. for each pod (or group, `scheduling.cycle.gangs`), on the state with the batch's placements so far:
       3a. its claims and their classes exist and are usable                     PreFilter
           extensions say whether they take part in placing it                  (`scheduling.state.extensions`)
       3b. nodes are filtered for everything but new devices                     Filter (`scheduling.state.nodes`)
       3c. new devices are allocated on the nodes that are left                  Filter, Score (`scheduling.allocator`)
           within the quotas                                                    (`scheduling.state.quota_room`)
       3d. if nothing fits: free an idle allocation of its own, or evict less    PostFilter
           important pods                                                       (`scheduling.cycle.post_filter`)
       3e. the placement is assumed, so that the next pod does not take it       Reserve
    4. the batch is written in one transaction, planned claims included          PreBind, Bind
       (`scheduling.cycle.commit`)
       a pod whose devices must be attached first waits for that                 PreBind (`scheduling.claims.readiness`)
       in a mirror nothing is written: others place the pods                    (`scheduling.cycle.observation`)
    5. the overlay is undone: the log brings back what was written               Unreserve
    6. pods whose claims could not be made are left to the controller of claims  (`claims.controllers.generated_claims`)

Step 3 is limited in time, for each pod and for the batch, so that no namespace keeps the pods of others waiting
(`scheduling.queue.queue`). The rest of the batch stays ready.

Steps 3 to 5 touch nothing outside the worker but the database, in step 4. A crash anywhere, or a database that goes
away, leaves every pod where it was. An error in one pod costs only that pod: it backs off before it is tried again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TypeVar, overload

from django.conf import settings

from claims.causes.causes import Interrupted, SearchStopped
from claims.controllers import generated_claims
from claims.kinds.pods import Pod
from claims.pod_claims import has_group, is_reserved_for_pod, names_of_claims
from inventory.kinds import gates
from manciple.controllers import coordination
from manciple.controllers.coordination import utc_now
from manciple.controllers.declaration import DELETING, FINISHED, Controller, Queue
from manciple.per_process import PerProcess
from manciple.store.event_log import AnnouncedLog, Follower
from manciple.telemetry.logs import about
from manciple.wire.limits import TimeLimitExceeded, time_limit
from manciple.wire.resources import ADDED, CLAIMS, DELETED, MODIFIED, PODS, QUOTAS, TEMPLATES, Key
from scheduling import metrics, steering
from scheduling.allocator import Allocated, AllocationFailed, Deadline, Features, NodePlacement, NodeView, place
from scheduling.claims import readiness
from scheduling.claims.extended_resources import ServedTwiceEvents
from scheduling.claims.negotiation import Negotiation, StillNegotiating, agreed, restricted
from scheduling.claims.readiness import PodRequest, request_of
from scheduling.cycle import post_filter
from scheduling.cycle.commit import Attempts, binding_ended, binding_timeout, commit
from scheduling.cycle.gangs import decide_with_group
from scheduling.cycle.observation import ANY_CHANGE, observe
from scheduling.cycle.post_filter import (
    Remedies,
    UnfinishedSearches,
    during_negotiations,
    refused_before_nodes,
    refused_by_nodes,
    refused_outright,
    refused_while_negotiating,
)
from scheduling.metrics import PluginRun
from scheduling.placement.policies import policy_of, quietest, score_of, why
from scheduling.queue import hints, queue
from scheduling.queue.queue import TURN_SECONDS, BatchTime, NamespaceTimes
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import (
    SCHEDULER_ERROR,
    AnyVerdict,
    Gone,
    Placement,
    Retry,
    Verdict,
    Wait,
    singles,
)
from scheduling.state import extensions
from scheduling.state.cluster import ClusterState
from scheduling.state.fair_share import FairShare
from scheduling.state.nodes import FilterResult

log = logging.getLogger(__name__)

#: Pods in one transaction.
BATCH = 128

Clock = Callable[[], datetime]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """The result of one run: pods taken, how many of them left the queue, and how many of these found a node."""

    taken: int
    settled: int
    placed: int


class SchedulingWorker:
    """The worker of this process, and its warm state.

    `run` may be called from several threads: one works; a call that finds it working makes it run once more.

    places: not in a mirror. There it decides about each pod alone, as others have left room, and writes to no object.
    Where the mirror steers (`scheduling.steering`), the pods whose node it chooses count for those after them.
    """

    def __init__(self, clock: Clock, *, places: bool | None = None) -> None:
        self._clock = clock
        self._places = not settings.MIRROR if places is None else places
        if not self._places:
            hints.register(ANY_CHANGE)
        # The transaction of a commit brings the state up to date.
        self._following = Follower(self._new_state, source=AnnouncedLog())
        self._searches = UnfinishedSearches()
        self._served_twice = ServedTwiceEvents()
        self._times = NamespaceTimes()
        self._turn = threading.Lock()
        self._requested = threading.Event()
        self._gave_way = False
        #: whether the last run stopped while there was more to do
        self.has_more = False
        #: pods whose claims the controller has to look at
        self._left: Collection[Key] = ()

    def _new_state(self) -> ClusterState:
        state = ClusterState(Features.from_gates(), FairShare.if_wanted(), makes_claims=self._places)
        state.plan_claims(enabled=not generated_claims.concerned().take_their_time)
        return state

    def run(self, *, seconds: float = math.inf) -> CycleReport:
        """Schedule the pods that are ready, and again if another run was requested meanwhile.

        seconds: after these, or after a batch that ended early because others wait, no other batch is taken up. Then
        `has_more` is true, and the caller sees to it that there is another run.
        """
        taken = settled = placed = 0
        end = time.monotonic() + seconds
        self._requested.set()
        while self._requested.is_set() and self._turn.acquire(blocking=False):
            self.has_more = False
            try:
                with coordination.turn() as ours:
                    self._requested.clear()
                    if not ours:
                        break  # another worker has the turn; a worker found busy for long is woken again soon
                    more = True
                    while more:
                        verdicts, more = self._cycle()
                        if self._left:  # step 6; what is made becomes ready with the next cycle
                            more |= bool(generated_claims.sync(self._left, looking=LOOKING))
                            self._left = ()
                        taken += len(verdicts)
                        placed += sum(isinstance(verdict, Placement) for verdict in verdicts)
                        settled += sum(isinstance(verdict, Placement | Gone) for verdict in verdicts)
                        if seconds < math.inf and (self._gave_way or time.monotonic() >= end):
                            self.has_more = more or self._requested.is_set()
                            break
            finally:
                self._turn.release()
            if self.has_more:
                break
        return CycleReport(taken=taken, settled=settled, placed=placed)

    def _cycle(self) -> tuple[list[Verdict | Gone], bool]:
        """One batch: the verdict on each pod, and whether more may be done now."""
        with self._following.view() as state:  # step 1
            state.begin()
            if (chooser := steering.chooser.value) is not None:
                state.promise(chooser.promised())
            if state.planned is not None and state.planned.pods:
                state.plan_claims(enabled=not generated_claims.concerned().take_their_time)
            arrivals = queue.feed(state, self._clock(), offering=BATCH if state.shares is None else 0)
            self._note_left(state)

            # Step 2
            slow, busy = self._times.slow(), self._times.busy()
            if arrivals is not None:
                waiting = arrivals.ready(slow=slow, busy=busy)
            else:
                waiting = queue.ready(BATCH, self._clock(), of_each=state.shares is not None, slow=slow, busy=busy)
            batch = waiting.next
            self._gave_way = False
            if not batch:
                return [], False
            if not waiting.due:
                metrics.INCOMING[("active", "PopFromBackoffQ")].inc(len(batch))
            for type_, size in state.sizes.items():
                metrics.CACHE[type_].set(size)
            attempts, revision, now = Attempts(batch), state.revision, self._clock()
            if state.unsettled:
                post_filter.settle(state, now)
            uids = [pod.uid for pod in batch] if state.shares is None else state.shares.turns(batch, BATCH, now)

            # Step 3
            spent = BatchTime(self._times, batch, revision)
            remedies = Remedies(now=now, searches=self._searches)
            verdicts, gone = decide_batch(state, uids, remedies, attempts, spent, apart=not self._places)

            # Steps 4 and 5
            began = time.perf_counter()
            write = commit if self._places else observe
            try:
                settled = write(state, verdicts, gone=gone, revision=revision, now=self._clock(), arrivals=arrivals)
            finally:
                spent.end()
                state.overlay.undo()
            self._gave_way = spent.gave_way
            self._note_left(state)
            attempts.ended(settled, committing=time.perf_counter() - began, now=self._clock())
        if any(isinstance(verdict, Retry) and verdict.broken for verdict in settled):
            self._following.reset()  # the state may be wrong: it is read again
        return settled, waiting.is_more_to_do(settled, BATCH)

    def _note_left(self, state: ClusterState) -> None:
        if state.planned is not None and state.planned.left:
            self._left = (*self._left, *state.planned.take_left())

    def sweep(self, *, resync: bool = True) -> int:
        """Flush pods that waited for long, and make the queue's rows match the pods there are.

        resync: False where nothing depends on that yet; it reads all rows.
        """
        with self._undisturbed() as alone:
            if not alone:
                return 0  # the next sweep comes soon
            with self._following.view() as state:
                changed = queue.flush(self._clock())
                if resync:
                    changed += queue.mend(state, self._clock())
                self._searches.keep(state.pending)
                metrics.NAMESPACE_TIME.keep(state.nodes.neighbours.namespaces)
                self._served_twice.look(state)
        if self._places:
            self._served_twice.tell(self._clock())
        return changed

    def in_turn(self, work: Callable[[ClusterState], T]) -> T | None:
        """`work` on the state that pods are placed on, while no worker places any; None where another has the turn.
        Pods wait for it."""
        with self._undisturbed() as alone, coordination.turn() if alone else nullcontext(False) as ours:
            if not ours:
                return None
            with self._following.view() as state:
                return work(state)

    @contextmanager
    def _undisturbed(self) -> Iterator[bool]:
        """Whether no thread of this process places pods meanwhile; False where one has done so for long."""
        if not self._turn.acquire(timeout=coordination.PATIENCE):
            yield False
            return
        try:
            yield True
        finally:
            self._turn.release()
        if self._requested.is_set():
            # A run was requested meanwhile, and its caller relies on the thread that has the turn.
            self.run(seconds=TURN_SECONDS)


# Step 3 ---------------------------------------------------------------------------------------------------------------


def decide_batch(
    state: ClusterState,
    uids: Iterable[str],
    remedies: Remedies,
    attempts: Attempts,
    spent: BatchTime,
    *,
    apart: bool = False,
) -> tuple[list[AnyVerdict], list[Gone]]:
    """The verdicts on these pods, and those that do not wait any more. When the time of the batch is over, one untried
    pod stands for all that are left: there is more to do.

    apart: each pod, or group, is decided about as if nothing had been decided before, but for the nodes that are chosen
    here (`scheduling.steering`).
    """
    verdicts, gone, seen = list[AnyVerdict](), list[Gone](), set[str]()
    for uid in uids:
        if uid in seen:
            continue
        pod = state.pending.get(uid)
        if pod is None:
            gone.append(Gone(uid=uid))
            continue
        if spent.is_over(pod.metadata.namespace):
            verdicts.append(Retry(pod=pod, untried=True))
            break
        began, mark = time.perf_counter(), state.overlay.mark()
        group = state.groups.of(pod) if has_group(pod) else None
        with about(pod), spent.deciding(pod, group=len(state.groups.members(group)) if group is not None else 0):
            together: Sequence[AnyVerdict] = (
                decide_with_group(state, pod, remedies, decide_one)
                if has_group(pod)
                else [decide_one(state, pod, remedies.now, remedies)]
            )
        for verdict in together:
            if isinstance(verdict, Retry) and isinstance(verdict.cause, SearchStopped):
                # The pod's condition says that its search took too long.
                refusal = refused_outright(state, verdict.pod, Hold(reasons=Reason.ERROR, cause=verdict.cause))
                verdicts.append(replace(refusal, again=verdict.cause.others_waited))
            else:
                verdicts.append(verdict)
        seen |= attempts.decided(together, time.perf_counter() - began)
        if apart and not any(map(_is_chosen, singles(together))):
            state.overlay.undo(mark)
            post_filter.settle(state, remedies.now)
    return verdicts, gone


def _is_chosen(verdict: Verdict) -> bool:
    """Whether the pod's node is chosen here, though its scheduler binds it."""
    return isinstance(verdict, Placement) and steering.is_chosen_for(verdict.pod)


def decide_one(state: ClusterState, pod: Pod, now: datetime, remedies: Remedies | None) -> Verdict:
    """`decide`, within the time for one pod; also for a pod that waits for its devices, or its group. Never raises."""
    began, limit = time.monotonic(), filter_deadline()
    try:
        with state.overlay.trying(pod), time_limit(limit):
            if has_group(pod) and (hold := state.groups.hold(pod)) is not None:
                return refused_outright(state, pod, hold)
            return _decide_while_binding(state, pod, now) or decide(state, pod, remedies)
    except TimeLimitExceeded as error:
        cause = SearchStopped(
            trials=0,
            timed_out=True,
            claims=names_of_claims(pod),
            seconds=round(time.monotonic() - began, 1),
            others_waited=error.deadline is not limit,
        )
        return Retry(pod=pod, cause=cause)
    except Exception as error:
        log.exception("no decision for pod %s; it will be retried after a backoff", "/".join(pod.key))
        return Retry(pod=pod, cause=Interrupted(f"internal error: {error}"), broken=True)


def _decide_while_binding(state: ClusterState, pod: Pod, now: datetime) -> Wait | None:
    """For a pod that has its devices and waits for them to be attached (it is nominated); None for any other.

    Devices that could not be attached are given up, and avoided as long as there are others.
    """
    node = pod.status.nominated_node_name
    request = request_of(state, pod) if node else None
    if request is None or isinstance(request, Hold):
        return None
    claims = request.every_claim
    failed = readiness.binding_failures(pod, claims, now=now, timeout=binding_timeout())
    if failed:
        given_up = tuple(claim for claim in claims if claim.metadata.uid in failed)
        state.avoid(pod, given_up)
        binding_ended(given_up, "timeout" if any(one.timed_out for one in failed.values()) else "failure", now)
        cause = next(iter(failed.values()))
        hold = replace(readiness.awaiting_binding(pod, node, given_up), cause=cause)
        return Wait(pod=pod, hold=hold, given_up=given_up)
    awaited = [claim for claim in claims if not readiness.is_ready_to_bind(claim)]
    if not awaited or not all(is_reserved_for_pod(claim, pod) for claim in claims):
        return None
    hold = readiness.awaiting_binding(pod, node, awaited)
    return Wait(pod=pod, hold=hold, until=readiness.earliest_deadline(awaited, binding_timeout()), silent=True)


@overload
def decide(state: ClusterState, pod: Pod, *, briefly: bool = False) -> Placement | Wait: ...
@overload
def decide(state: ClusterState, pod: Pod, remedies: Remedies | None) -> Verdict: ...
def decide(state: ClusterState, pod: Pod, remedies: Remedies | None = None, *, briefly: bool = False) -> Verdict:
    """Steps 3a to 3e for one pod. A placement is assumed, and so is an eviction; without remedies there is none.

    briefly: where no node has the devices, not why each has not, which takes longer than to find that out.
    """
    # 3a
    with PluginRun("PreFilter", "DynamicResources") as run:
        request = request_of(state, pod)
        run.status = "Unschedulable" if isinstance(request, Hold) else "Success"
    if isinstance(request, Hold):
        return refused_before_nodes(state, pod, request)
    if request.held and remedies is not None:
        hold = readiness.not_attached(pod, request.held, now=remedies.now, timeout=binding_timeout())
        if hold is not None:
            return refused_outright(state, pod, hold)
    negotiations = state.negotiations(pod, request.claims)
    if isinstance(negotiations, Hold):
        return refused_outright(state, pod, negotiations)
    for negotiation in negotiations:
        request = replace(request, wanting=negotiation.left(request.wanting))
    verdict = _place(state, request, remedies, negotiations, briefly=briefly)
    return during_negotiations(verdict, negotiations) if negotiations else verdict


def _place(
    state: ClusterState,
    request: PodRequest,
    remedies: Remedies | None,
    negotiations: Sequence[Negotiation],
    *,
    briefly: bool,
) -> Verdict:
    """Steps 3b to 3e."""
    filtered = _filter(state, request, negotiations)
    if isinstance(filtered, Wait):
        return filtered
    if not filtered.fitting:
        return refused_by_nodes(state, request, filtered, {}, remedies)
    chosen, filtered = _allocate(state, request, filtered, negotiations)
    if not isinstance(chosen, Placement):
        if briefly:
            return Wait(pod=request.pod, hold=Hold(reasons=Reason.DEVICES))
        return _without_devices(state, request, filtered, chosen, remedies)
    if negotiations:
        outcome = agreed(negotiations, chosen.node, partial(_possible, state, request, filtered.fitting))
        if isinstance(outcome, StillNegotiating):
            return Wait(pod=request.pod, hold=outcome.hold, writes=outcome.writes)
        chosen = replace(chosen, writes=outcome)
    return _reserve(state, chosen)


def _filter(state: ClusterState, request: PodRequest, negotiations: Sequence[Negotiation]) -> FilterResult | Wait:
    """Step 3b: the nodes that fit, but for new devices; a Wait where no node can be chosen yet."""
    charges = state.devices.charges
    if charges is not None and (hold := charges.unshareable(request.pod, request.held)) is not None:
        return refused_outright(state, request.pod, hold)
    with PluginRun("Filter", "NodeResourcesFit") as run:
        filtered = state.nodes.filter(request.pod, request.held)
        run.status = "Success" if filtered.fitting else "Unschedulable"
    if request.extended is not None:
        filtered = request.extended.filtered(state, filtered)
    left = restricted(negotiations, filtered, state.nodes) if negotiations else filtered
    return refused_while_negotiating(state, request.pod, left) if isinstance(left, StillNegotiating) else left


def _allocate(
    state: ClusterState, request: PodRequest, filtered: FilterResult, negotiations: Sequence[Negotiation]
) -> tuple[Placement | NodePlacement, FilterResult]:
    """Step 3c: a node with the devices, or why there is none; and `filtered`, also without nodes that the devices
    themselves would overcharge.
    """
    preferred = filtered.fitting
    for negotiation in negotiations:
        preferred = negotiation.preferred(preferred)
    chosen = _choose(state, request, preferred)
    if preferred is not filtered.fitting and not isinstance(chosen, Placement):
        chosen = _choose(state, request, filtered.fitting)
    if state.devices.charges is None:
        return chosen, filtered
    return state.devices.charges.affordable(chosen, filtered, state.nodes, again=partial(_choose, state, request))


def _without_devices(
    state: ClusterState, request: PodRequest, filtered: FilterResult, chosen: NodePlacement, remedies: Remedies | None
) -> Wait | Retry:
    """Why no node has the devices, and what is done about it."""
    if isinstance(chosen.outcome, AllocationFailed):
        hold = Hold(reasons=Reason.ERROR, cause=chosen.outcome.cause)
        return Wait(pod=request.pod, hold=hold, condition=SCHEDULER_ERROR)
    return refused_by_nodes(state, request, filtered, chosen.refusals, remedies)


def _reserve(state: ClusterState, placement: Placement) -> Placement | Wait:
    """Step 3e, where quotas leave room for the new devices."""
    if placement.allocations and placement.pod.metadata.namespace in state.quotas.by_namespace:
        hold = state.quotas.hold_after(placement.pod, placement.claims, placement.allocations)
        if hold is not None:
            return refused_outright(state, placement.pod, hold)
    if placement.pod.spec.scheduling_group is not None:
        placement = replace(placement, group=state.groups.of(placement.pod))
    for extension in state.extensions:
        placement = extension.placed(placement)
    with PluginRun("Reserve", "DynamicResources"):
        state.overlay.assume(placement)
    return placement


def _possible(state: ClusterState, request: PodRequest, fitting: tuple[NodeView, ...], most: int) -> list[str]:
    """At most so many of the nodes that have the devices that the scheduler allocates itself."""
    if request.is_served:
        return [node.name for node in fitting]
    possible = (node.name for node in fitting if _search(state, request, (node,)).fits)
    return list(islice(possible, most))


def _choose(state: ClusterState, request: PodRequest, fitting: tuple[NodeView, ...]) -> Placement | NodePlacement:
    """The placement on one of these nodes, or why there is none.

    First the node that the pod is nominated for; then all; last, devices that the pod should avoid count, too.
    """
    if request.is_served:
        node = quietest(state, request.pod, fitting)
        return request.placement_on(node, state.nodes.allocatable(node))
    preferred = request.pod.status.nominated_node_name
    nominated = tuple(node for node in fitting if node.name == preferred) if preferred else ()
    with state.overlay.avoiding(request.pod) as avoided:
        placed = _search(state, request, nominated) if nominated else None
        was_nominated = placed is not None and placed.fits
        if placed is None or not placed.fits:
            placed = _search(state, request, fitting)
    if avoided and not placed.fits:
        placed = _search(state, request, fitting)
    if not placed.fits or placed.node is None or not isinstance(placed.outcome, Allocated):
        return placed
    node = placed.node.name
    reason = "it was nominated"
    if not was_nominated:
        reason = why(policy_of(state, request.wanting), placed.choice, placed.outcome.results)
    return request.placement_on(node, state.nodes.allocatable(node), placed.outcome, why=reason)


def _search(state: ClusterState, request: PodRequest, nodes: tuple[NodeView, ...]) -> NodePlacement:
    score, deadline = score_of(state, request.pod, request.wanting), filter_deadline()
    with PluginRun("Filter", "DynamicResources") as run:
        if request.extended is None:
            placed = place(state.snapshot(), request.wanting, nodes, score=score, deadline=deadline)
        else:
            placed = request.extended.place(state, request.wanting, nodes, score=score, deadline=deadline)
        run.status = "Success" if placed.fits else "Unschedulable"
    return placed


def filter_deadline() -> Deadline:
    """When the search for one pod's devices is given up; never where the gate is off (Kubernetes' filterTimeout).

    It counts processor time, not the wait for a busy machine: a pod whose search is given up waits until something
    changes.
    """
    is_limited = gates.enabled("DRASchedulerFilterTimeout")
    return Deadline.after_work(settings.SCHEDULER_FILTER_TIMEOUT if is_limited else math.inf)


# As a controller ------------------------------------------------------------------------------------------------------


#: the one scheduling worker of this process
worker = PerProcess(lambda: SchedulingWorker(utc_now))


def schedule(_now: datetime) -> int:
    """Place the pods that are ready. Returns how many found a node."""
    report = worker.value.run(seconds=TURN_SECONDS)
    coordination.heart.value.did(attempts=report.taken, placed=report.placed)
    return report.placed


def has_more() -> bool:
    """Whether the last run of this process's worker left pods that are ready."""
    return worker.value.has_more


def sweep_queue(_now: datetime) -> int:
    """Flush long waits. Returns how many rows were changed."""
    return worker.value.sweep(resync=False)


def resync_queue(_now: datetime) -> int:
    """Make the queue match the pods there are. Returns how many rows were changed."""
    return worker.value.sweep()


CONTROLLER = Controller(
    name="schedule",
    does="schedules the pods that are ready, and creates the claims from templates that they lack",
    in_mirror=True,
    reconcile=schedule,
    every=1,  # backoffs end without an event
    wakes_on=frozenset({*hints.RULES, (PODS, ADDED), (PODS, DELETING), (PODS, FINISHED), (CLAIMS, DELETING)}),
    also_wakes_on=extensions.changes,
    has_work=queue.ANYBODY_WAITS,
    is_work=frozenset({(PODS, ADDED)}),  # it is not in the queue yet
    queue=Queue.SCHEDULING,
    has_more=has_more,
    # One worker goes on as long as pods come: if workers alternated, each would read what the others have written.
    lock=coordination.TURN,
)

SWEEP = Controller(
    name="sweep_queue",
    does="retries pods that have waited long",
    in_mirror=True,
    reconcile=sweep_queue,
    every=5,
)

RESYNC = Controller(
    name="resync_queue",
    does="synchronises the queue with the existing pods, whatever the log said",
    in_mirror=True,
    reconcile=resync_queue,
    every=60,
)


#: Follows its own writes, like `generated_claims`, and schedules what they make ready.
LOOKING = generated_claims.LOOKING | {CONTROLLER.name}


def _scheduled(pods: Collection[Pod]) -> Collection[str]:
    """The uids of those that the scheduler tries, or has tried: it has looked at each pod that is looked at here."""
    ours = {pod.metadata.uid for pod in pods if readiness.wants_a_node(pod)}
    return ours.difference(queue.held(ours)) if ours else ()


CLAIMS_FOLLOWER = replace(generated_claims.FOLLOWER, handle=partial(generated_claims.handle, spared=_scheduled))


def sync_claims(now: datetime) -> int:  # noqa: ARG001 - driven by the log
    """Create the claims of pods that the scheduler does not try."""
    return CLAIMS_FOLLOWER.follow(up_to=queue.reached())


SYNC_CLAIMS = Controller(
    name="sync_claims",
    does="creates claims from templates for pods that the scheduler does not try",
    reconcile=sync_claims,
    every=5,
    # A pod that another scheduler has bound may lack reservations; the periodic run finds it.
    wakes_on=frozenset(
        {(PODS, ADDED), (PODS, MODIFIED), (TEMPLATES, ADDED), (CLAIMS, DELETED), (QUOTAS, MODIFIED), (QUOTAS, DELETED)}
    ),
    has_work=queue.ANYBODY_LACKS_CLAIMS,
    patience=0.2,  # by then the scheduler has looked at a new pod
    queue=Queue.SCHEDULING,
    queue_name="resource_claim",
)
