"""The scheduler: a batch of waiting pods in, bound pods out. All of its cycle on this page, by extension point.

    1. the state is brought up to date with the log, the queue fed from it      (PreEnqueue, queueing hints)
    2. a batch of the pods that are ready is taken up, by priority, then age  (or scheduling.state.fair_share)
       where none is, a few that were woken during their rest                   (scheduling.queue.queue)
    3. for each pod (or group, `scheduling.cycle.gangs`), on the state with what the batch has decided so far:
       3a. its claims exist, are usable, their classes exist                     PreFilter
           how it stands with claims about which others decide               (scheduling.claims.negotiation)
       3b. nodes are asked for everything but new devices                        Filter (scheduling.state.nodes, policy)
       3c. new devices are searched on the nodes that are left                   Filter, Score (scheduling.allocator)
           and quotas leave room for them (before the search, too)               (scheduling.state.quota_room)
       3d. if nothing fits: is an idle allocation of its own in the way, are     PostFilter
           less important pods (scheduling.cycle.preemption)?                      (scheduling.cycle.refusals)
       3e. what was found is assumed, so that the next pod does not find it      Reserve
    4. the batch is written in one transaction                                   PreBind, Bind (scheduling.cycle.commit)
       a pod whose devices must be attached first waits for that                 PreBind (scheduling.claims.pod_claims)
    5. the overlay is undone: the log brings back what was written               Unreserve

The time for step 3 is limited, for each pod and for the batch, so that no namespace keeps the pods of others waiting
(`scheduling.queue.namespace_time`). The rest of the batch stays ready.

Steps 3 to 5 touch nothing outside the worker but the database, in step 4. A crash anywhere, or a database that goes
away, leaves every pod where it was. A fault in one pod costs only that pod: it rests before it is tried again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TypeVar, overload

from django.conf import settings

from claims.causes.causes import Interrupted, SearchStopped
from claims.classic.rules import NODES_MAX
from claims.controllers import generated_claims
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import has_group, is_reserved_for_pod, names_of_claims
from manciple.controllers import coordination
from manciple.controllers.coordination import utc_now
from manciple.controllers.declaration import ADDED, DELETED, DELETING, FINISHED, MODIFIED, Controller, Queue
from manciple.per_process import PerProcess
from manciple.store import sql
from manciple.store.event_log import Follower
from manciple.telemetry.logs import about
from manciple.wire.limits import TimeLimitExceeded, time_limit
from manciple.wire.resources import CLAIMS, PODS, QUOTAS, TEMPLATES
from scheduling import metrics
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    Deadline,
    Features,
    NodePlacement,
    NodeView,
    place,
)
from scheduling.claims import extended_placing, readiness
from scheduling.claims.negotiation import Negotiation, StillNegotiating, agreed
from scheduling.claims.readiness import may_be_negotiated
from scheduling.claims.special_claims import ServedTwiceEvents
from scheduling.cycle import preemption
from scheduling.cycle.attempts import Attempts, binding_ended, binding_timeout
from scheduling.cycle.commit import commit
from scheduling.cycle.decisions import (
    SCHEDULER_ERROR,
    AnyDecision,
    Decision,
    Placement,
    PodRefusal,
    Postponed,
    StillBinding,
)
from scheduling.cycle.gangs import decide_with_group
from scheduling.cycle.preemption import Asking
from scheduling.cycle.refusals import (
    during_negotiations,
    refused_before_nodes,
    refused_by_nodes,
    refused_outright,
    told_to_wait,
)
from scheduling.cycle.remedies import Remedies, UnfinishedSearches
from scheduling.metrics import PluginRun
from scheduling.placement.policies import policy_of, quietest, score_of, why
from scheduling.queue import hints, queue, sweep
from scheduling.queue.namespace_time import TURN_SECONDS, BatchTime, NamespaceTimes
from scheduling.queue.queue import Done, NotTried, Outcome, Retry
from scheduling.queue.reasons import Hold, Reason
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
    """What one call did: pods taken, how many of them left the queue, and how many of these found a node."""

    taken: int
    settled: int
    placed: int


class SchedulingWorker:
    """The worker of this process, and its warm state.

    `run` may be called from several threads: one works, a call that finds it working only makes it look once more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._following = Follower(
            lambda: ClusterState(Features.from_gates(settings.FEATURE_GATES), FairShare.if_wanted())
        )
        self._searched = UnfinishedSearches()
        self._served_twice = ServedTwiceEvents()
        self._times = NamespaceTimes()
        self._turn = threading.Lock()
        #: the thread that keeps the turn for a `run` of its own
        self._keeper = 0
        self._asked = threading.Event()
        self._gave_way = False
        #: whether the last run stopped while there was more to do
        self.has_more = False

    def run(self, *, seconds: float = math.inf) -> CycleReport:
        """Schedule the pods that are ready, and again while somebody has asked meanwhile.

        Who becomes ready meanwhile has somebody who asks for it. seconds: after these, or after a batch that ended
        early because others wait, no other batch is taken up. Then `has_more` is true, and the caller sees to it that
        there is another run.
        """
        taken = settled = placed = 0
        end = time.monotonic() + seconds
        self._asked.set()
        kept = self._keeper == threading.get_ident()
        while self._asked.is_set() and (kept or self._turn.acquire(blocking=False)):
            self.has_more = False
            try:
                with coordination.turn() as ours:
                    self._asked.clear()
                    if not ours:
                        break  # another worker has the turn; who finds it busy for so long is asked again soon
                    more = True
                    while more:
                        outcomes, more = self._cycle()
                        taken += len(outcomes)
                        done = [outcome for outcome in outcomes if isinstance(outcome, Done)]
                        settled += len(done)
                        placed += sum(one.placed for one in done)
                        if seconds < math.inf and (self._gave_way or time.monotonic() >= end):
                            self.has_more = more or self._asked.is_set()
                            break
            finally:
                if not kept:
                    self._turn.release()
            if self.has_more:
                break
        return CycleReport(taken=taken, settled=settled, placed=placed)

    def wait_until_idle(self, seconds: float) -> None:
        """Return when nobody places pods, and after `seconds` in this process and as many in others in any case.

        Whoever asks in this very moment is served by the caller's own `run`, which comes next.
        """
        if self._keeper == threading.get_ident():
            return
        if self._turn.acquire(timeout=seconds):
            self._turn.release()
        with coordination.turn(patience=seconds):
            pass

    @contextmanager
    def next_turn(self) -> Iterator[None]:
        """The turn is kept for a `run` within, if nobody has it."""
        with self._undisturbed(patience=0) as alone:
            if not alone:
                yield
                return
            with coordination.turn(patience=0):
                self._keeper = threading.get_ident()
                try:
                    yield
                finally:
                    self._keeper = 0

    def sweep(self) -> int:
        """Flush pods that waited for long, and make the queue's rows match the pods there are."""
        with self._undisturbed() as alone:
            if not alone:
                return 0  # the next sweep comes soon
            with self._following.view() as state:
                changed = sweep.sweep(state, self._clock())
                self._searched.keep(state.pending)
                metrics.NAMESPACE_TIME.keep(state.nodes.neighbours.namespaces)
                self._served_twice.look(state)
        self._served_twice.tell(self._clock())
        return changed

    def in_turn(self, work: Callable[[ClusterState], T]) -> T | None:
        """What `work` returns on the state that pods are placed on, while nobody places any; None where others have the
        turn. Pods wait for it."""
        with self._undisturbed() as alone, coordination.turn() if alone else nullcontext(False) as ours:
            if not ours:
                return None
            with self._following.view() as state:
                return work(state)

    @contextmanager
    def _undisturbed(self, *, patience: float = coordination.PATIENCE) -> Iterator[bool]:
        """Whether no thread of this process places pods meanwhile; False where one has done so for `patience`."""
        if not self._turn.acquire(timeout=patience):
            yield False
            return
        try:
            yield True
        finally:
            self._turn.release()
        if self._asked.is_set():
            # Somebody asked for a run meanwhile and went away, trusting whoever works to do it.
            self.run(seconds=TURN_SECONDS)

    def _cycle(self) -> tuple[list[Outcome], bool]:
        """How it ended for each pod of a batch, and whether more may be done now."""
        with self._following.view() as state:  # step 1
            state.begin()
            outcomes, more = self._schedule_batch(state)
        if any(isinstance(outcome, Retry) and outcome.broken for outcome in outcomes):
            self._following.reset()  # whatever broke, what is known may not be what is written
        return outcomes, more

    def _schedule_batch(self, state: ClusterState) -> tuple[list[Outcome], bool]:
        """Steps 2 to 5."""
        queue.feed(state, self._clock())
        slow, busy = self._times.slow(), self._times.busy()
        found = queue.ready(BATCH, self._clock(), of_each=state.shares is not None, slow=slow, busy=busy)
        ready = found.next
        self._gave_way = False
        if not ready:
            return [], False
        if not found.due:
            metrics.INCOMING[("active", "PopFromBackoffQ")].inc(len(ready))
        for type_, size in state.sizes.items():
            metrics.CACHE[type_].set(size)
        attempts, revision, now = Attempts(ready), state.revision, self._clock()
        preemption.settle(state, now)
        remedies, shares = Remedies(now=now, searched=self._searched), state.shares
        turns = [pod.uid for pod in ready] if shares is None else shares.turns(ready, BATCH, now)
        spent = BatchTime(self._times, ready, revision)
        decisions, undecided = _decisions(state, turns, remedies, attempts, spent)
        began = time.perf_counter()
        try:
            outcomes = commit(state, decisions, undecided=undecided, revision=revision, now=self._clock())
        finally:
            spent.end()
            state.overlay.undo()
        self._gave_way = spent.gave_way
        attempts.ended(outcomes, committing=time.perf_counter() - began, now=self._clock())
        return outcomes, found.is_more_to_do(outcomes, BATCH)


def _decisions(
    state: ClusterState, uids: Iterable[str], remedies: Remedies, attempts: Attempts, spent: BatchTime
) -> tuple[list[AnyDecision], list[Outcome]]:
    """Step 3: (what was decided, how it ends for the pods about which nothing could be). When the time of the batch is
    over, one of those that are left stands for all: there is more to do.
    """
    decisions, undecided, seen = list[AnyDecision](), list[Outcome](), set[str]()
    for uid in uids:
        pod = None if uid in seen else state.pending.get(uid)
        if pod is None:
            undecided += () if uid in seen else (Done(uid=uid),)
            continue
        if spent.is_over(pod.metadata.namespace):
            undecided.append(NotTried(uid=uid))
            break
        began = time.perf_counter()
        group = state.groups.of(pod) if has_group(pod) else None
        with about(pod), spent.deciding(pod, group=len(state.groups.members(group)) if group is not None else 0):
            decided: Sequence[AnyDecision | Retry] = (
                [_decision(state, pod, remedies.now, remedies)]
                if not has_group(pod)
                else decide_with_group(state, pod, remedies, _decision)
            )
        decided = [_cut_off(state, one) for one in decided]
        seen |= attempts.decided(decided, time.perf_counter() - began)
        undecided += (one for one in decided if isinstance(one, Retry))
        decisions += (one for one in decided if not isinstance(one, Retry))
    return decisions, undecided


def _cut_off(state: ClusterState, decided: AnyDecision | Retry) -> AnyDecision | Retry:
    """A refusal in place of a Retry for a pod whose decision took too long, so that the pod says so."""
    if not isinstance(decided, Retry) or not isinstance(decided.cause, SearchStopped):
        return decided
    pod = state.pending.get(decided.uid)
    if pod is None:
        return decided
    refusal = refused_outright(state, pod, Hold(reasons=Reason.ERROR, cause=decided.cause))
    return replace(refusal, again=decided.cause.others_waited)


def _decision(state: ClusterState, pod: Pod, now: datetime, remedies: Remedies | None) -> Decision | Retry:
    began, limit = time.monotonic(), filter_deadline()
    try:
        with state.overlay.trying(pod), time_limit(limit):
            if has_group(pod) and (hold := state.groups.hold(pod)) is not None:
                return refused_outright(state, pod, hold)
            return _while_binding(state, pod, now) or decide(state, pod, remedies)
    except TimeLimitExceeded as error:
        cause = SearchStopped(
            trials=0,
            timed_out=True,
            claims=names_of_claims(pod),
            seconds=round(time.monotonic() - began, 1),
            others_waited=error.deadline is not limit,
        )
        return Retry(uid=pod.metadata.uid, cause=cause)
    except Exception as error:
        log.exception("no decision for pod %s; it will be retried after a backoff", "/".join(pod.key))
        return Retry(uid=pod.metadata.uid, cause=Interrupted(f"internal error: {error}"), broken=True)


def _while_binding(state: ClusterState, pod: Pod, now: datetime) -> PodRefusal | StillBinding | None:
    """What becomes of a pod that has its devices and waits for them to be attached; None where there is none to wait.

    Devices that failed it are given back, and avoided as long as there are others. A pod that waits is nominated.
    """
    node = pod.status.nominated_node_name
    claims = state.pre_filter(pod) if node else ()
    if isinstance(claims, Hold):
        return None
    if node and (extended := state.extended(pod)) is not None:
        claims = (*claims, *extended.held)
    failed = readiness.binding_failures(pod, claims, now=now, timeout=binding_timeout())
    if failed:
        given_up = tuple(claim for claim in claims if claim.metadata.uid in failed)
        state.avoid(pod, given_up)
        binding_ended(given_up, "timeout" if any(one.timed_out for one in failed.values()) else "failure", now)
        cause = next(iter(failed.values()))
        hold = replace(readiness.awaiting_binding(pod, node, given_up), cause=cause)
        return PodRefusal(pod=pod, hold=hold, given_up=given_up)
    awaited = [claim for claim in claims if not readiness.is_ready_to_bind(claim)]
    if not awaited or not all(is_reserved_for_pod(claim, pod) for claim in claims):
        return None
    hold = readiness.awaiting_binding(pod, node, awaited)
    return StillBinding(pod=pod, hold=hold, until=readiness.earliest_deadline(awaited, binding_timeout()))


@overload
def decide(state: ClusterState, pod: Pod) -> Placement | PodRefusal: ...
@overload
def decide(state: ClusterState, pod: Pod, remedies: Remedies | None) -> Placement | PodRefusal | Postponed: ...
def decide(state: ClusterState, pod: Pod, remedies: Remedies | None = None) -> Placement | PodRefusal | Postponed:
    """Step 3 for one pod; a placement is assumed, and so is an eviction. Without remedies nobody is evicted."""
    with PluginRun("PreFilter", "DynamicResources") as run:
        claims = state.pre_filter(pod)
        run.status = "Unschedulable" if isinstance(claims, Hold) else "Success"
    if isinstance(claims, Hold):
        return refused_before_nodes(state, pod, claims)
    asking = Asking.of(pod, claims, state.extended(pod)).uncharged()
    if asking.held and remedies is not None:
        hold = readiness.not_attached(pod, asking.held, now=remedies.now, timeout=binding_timeout())
        if hold is not None:
            return refused_outright(state, pod, hold)
    if may_be_negotiated(pod, claims):
        return _negotiated(state, asking, claims, remedies)
    return _decided(state, asking, remedies)


def _decided(
    state: ClusterState, asking: Asking, remedies: Remedies | None, talks: Sequence[Negotiation] = ()
) -> Placement | PodRefusal | Postponed:
    """talks: the negotiations about claims of the pod."""
    pod = asking.pod
    charges = state.devices.charges
    if charges is not None and (hold := charges.unshareable(pod, asking.held)) is not None:
        return refused_outright(state, pod, hold)
    with PluginRun("Filter", "NodeResourcesFit") as run:
        filtered = state.nodes.filter(asking.pod, asking.held)
        run.status = "Success" if filtered.fitting else "Unschedulable"
    if asking.extended is not None:
        filtered = extended_placing.filtered(state, asking.extended, filtered)
    for one in talks:
        restricted = one.restricted(filtered, state.nodes)
        if isinstance(restricted, StillNegotiating):
            return told_to_wait(state, pod, restricted)
        filtered = restricted
    if not filtered.fitting:
        return refused_by_nodes(state, asking, filtered, {}, remedies)
    fitting = filtered.fitting
    for one in talks:
        fitting = one.preferred(fitting)
    found = _chosen(state, asking, fitting)
    if fitting is not filtered.fitting and not isinstance(found, Placement):
        found = _chosen(state, asking, filtered.fitting)
    if charges is not None:
        found, filtered = charges.affordable(found, filtered, state.nodes, again=partial(_chosen, state, asking))
    if not isinstance(found, Placement):
        return _refused(state, asking, filtered, found, remedies)
    if talks:
        outcome = agreed(talks, found.node, partial(_possible, state, asking, filtered.fitting))
        if isinstance(outcome, StillNegotiating):
            return PodRefusal(pod=pod, hold=outcome.hold, writes=outcome.writes)
        found = replace(found, writes=outcome)
    return _reserve(state, found)


def _refused(
    state: ClusterState, asking: Asking, filtered: FilterResult, found: NodePlacement, remedies: Remedies | None
) -> PodRefusal | Postponed:
    if isinstance(found.outcome, AllocationFailed):
        hold = Hold(reasons=Reason.ERROR, cause=found.outcome.cause)
        return PodRefusal(pod=asking.pod, hold=hold, condition=SCHEDULER_ERROR)
    return refused_by_nodes(state, asking, filtered, found.refusals, remedies)


def _negotiated(
    state: ClusterState, asking: Asking, claims: Sequence[ResourceClaim], remedies: Remedies | None
) -> Placement | PodRefusal | Postponed:
    """What becomes of a pod with claims about which others decide."""
    talks = state.negotiations(asking.pod, claims)
    if isinstance(talks, Hold):
        return refused_outright(state, asking.pod, talks)
    for one in talks:
        asking = replace(asking, wanting=one.left(asking.wanting))
    return during_negotiations(_decided(state, asking, remedies, talks), talks)


def _possible(state: ClusterState, asking: Asking, fitting: tuple[NodeView, ...]) -> list[str]:
    """Nodes that have the devices that the scheduler allocates itself; at most so many as drivers are asked about."""
    if asking.is_served:
        return [node.name for node in fitting]
    having = (node.name for node in fitting if isinstance(_search(state, asking, (node,)).outcome, Allocated))
    return list(islice(having, NODES_MAX))


def _chosen(state: ClusterState, asking: Asking, fitting: tuple[NodeView, ...]) -> Placement | NodePlacement:
    """One of these nodes and what the claims get there, or why there is none."""
    if asking.is_served:
        node = quietest(state, asking.pod, fitting)
        return asking.placement_on(node, state.nodes.allocatable(node))
    placed = _placed(state, asking, fitting)
    if not isinstance(placed.outcome, Allocated) or placed.node is None:
        return placed
    node, policy = placed.node.name, policy_of(state, asking.wanting)
    told = why(policy, placed.choice, placed.outcome.results)
    return asking.placement_on(node, state.nodes.allocatable(node), placed.outcome, why=told)


def _placed(state: ClusterState, asking: Asking, fitting: tuple[NodeView, ...]) -> NodePlacement:
    """Where the pod goes: on the node that it is nominated for, if that will do; elsewhere; at last with devices that
    it is to avoid.
    """
    pod, nominated = asking.pod, asking.pod.status.nominated_node_name
    with state.overlay.avoiding(pod) as avoided:
        if nominated and (known := tuple(node for node in fitting if node.name == nominated)):
            placed = _search(state, asking, known)
            if isinstance(placed.outcome, Allocated):
                return placed
        placed = _search(state, asking, fitting)
    if avoided and not isinstance(placed.outcome, Allocated):
        placed = _search(state, asking, fitting)
    return placed


def _search(state: ClusterState, asking: Asking, nodes: tuple[NodeView, ...]) -> NodePlacement:
    score, deadline = score_of(state, asking.pod, asking.wanting), filter_deadline()
    with PluginRun("Filter", "DynamicResources") as run:
        if asking.extended is None:
            found = place(state.snapshot(), asking.wanting, nodes, score=score, deadline=deadline)
        else:
            found = extended_placing.place(state, asking, nodes, score=score, deadline=deadline)
        run.status = "Success" if isinstance(found.outcome, Allocated) else "Unschedulable"
    return found


def filter_deadline() -> Deadline:
    """When the search for one pod's devices is given up; never where the gate is off (Kubernetes' filterTimeout).

    It counts work, not the wait for a busy machine: a pod whose search is given up waits until something changes.
    """
    gated = settings.FEATURE_GATES.get("DRASchedulerFilterTimeout", True)
    return Deadline.after_work(settings.SCHEDULER_FILTER_TIMEOUT if gated else math.inf)


def _reserve(state: ClusterState, placement: Placement) -> Placement | PodRefusal:
    """Assume the placement, if the quotas of its namespace have room for the allocations."""
    if placement.allocations and placement.pod.metadata.namespace in state.quotas.by_namespace:
        hold = state.quotas.hold_after(placement.pod, placement.claims, placement.allocations)
        if hold is not None:
            return refused_outright(state, placement.pod, hold)
    if placement.pod.spec.scheduling_group is not None:
        placement = replace(placement, group=state.groups.of(placement.pod))
    if state.structured is not None:
        placement = state.structured.told(placement)
    with PluginRun("Reserve", "DynamicResources"):
        state.overlay.assume(placement)
    return placement


# As a controller ------------------------------------------------------------------------------------------------------


#: the one scheduling worker of this process
worker = PerProcess(lambda: SchedulingWorker(utc_now))


def schedule(_now: datetime) -> int:
    """Place the pods that are ready. Returns how many found a node."""
    report = worker().run(seconds=TURN_SECONDS)
    coordination.heart().did(attempts=report.taken, placed=report.placed)
    return report.placed


def next_turn() -> AbstractContextManager[None]:
    """Nobody else places pods before a `schedule` within, if nobody does already."""
    return worker().next_turn()


def has_more() -> bool:
    """Whether the last run of this process's worker left pods that are ready."""
    return worker().has_more


def sweep_queue(_now: datetime) -> int:
    """Flush long waits, and make the queue match the pods there are. Returns how many rows were changed."""
    return worker().sweep()


CONTROLLER = Controller(
    name="schedule",
    does="schedules the pods that are ready",
    reconcile=schedule,
    every=1,  # rests after failed attempts end without an event
    wakes_on=frozenset({*hints.RULES, (PODS, ADDED), (PODS, DELETING), (PODS, FINISHED), (CLAIMS, DELETING)}),
    # Pods that the queue does not know yet are brought there by whoever creates their claims.
    has_work=queue.ANYBODY_WAITS,
    queue=Queue.SCHEDULING,
    has_more=has_more,
    singleton=False,  # the workers take turns by themselves, and wait for theirs
)

SWEEP = Controller(
    name="sweep_queue",
    does="retries pods that have waited long, and synchronises the queue with the existing pods",
    reconcile=sweep_queue,
    every=5,
)


def sync_claims(now: datetime) -> int:  # noqa: ARG001 - the log says what to do
    """Make the claims that new pods ask for by template, all that come while others are placed."""
    worker().wait_until_idle(generated_claims.GATHERING)
    coordination.wakeups().asked_again(SYNC_CLAIMS.name)  # this run answers every request made before it
    return generated_claims.FOLLOWER.follow()


#: Whether any pod lacks a node: hardly any other lacks a claim.
ANY_WITHOUT_NODE: sql.Query = ("SELECT EXISTS (SELECT 1 FROM claims_pod WHERE node_name = '' AND NOT deleting)", ())

SYNC_CLAIMS = Controller(
    name="sync_claims",
    does="creates claims from templates for new pods, and schedules these pods",
    reconcile=sync_claims,
    # Placing a pod can take seconds. A pod without its claims is not ready, so a slow search is not cut off for it:
    # another worker has to be able to make them meanwhile.
    then=schedule,
    # Who makes the next claims waits for these pods, and not only for who places pods already.
    keeping=next_turn,
    every=5,
    # A pod that somebody else has bound may lack reservations; the periodic run finds it.
    wakes_on=frozenset(
        {(PODS, ADDED), (PODS, MODIFIED), (TEMPLATES, ADDED), (CLAIMS, DELETED), (QUOTAS, MODIFIED), (QUOTAS, DELETED)}
    ),
    has_work=ANY_WITHOUT_NODE,
    is_work=frozenset({(PODS, ADDED), (TEMPLATES, ADDED)}),  # a pod that came with its node may lack them too
    queue=Queue.SCHEDULING,
    covers=frozenset({CONTROLLER.name}),
    has_more=has_more,
    known_as="resource_claim",
)
