"""PostFilter: the verdict on a pod for which the cycle finds no place, and the remedy, if there is one.

    refused_outright(state, pod, hold)                              no node is searched for it
    refused_before_nodes(state, pod, hold)                          the same, for what PreFilter refuses
    refused_by_nodes(state, request, filtered, refusals, remedies)  refusals: of the nodes that lack devices

An idle allocation of the pod's own that is in the way is freed. Else `Remedies` looks for less important pods to evict
(`scheduling.cycle.preemption`). A batch spends `BATCH_SECONDS` of processor time on that, so that no other pod waits
for longer; a pod whose turn does not come is left to the next batch. A search ends after `SEARCH_SECONDS`, and the next
one for the same pod goes on where it stopped. A search that found no help is not repeated in the batch for pods that
request the same.

Among pods of one priority none is evicted. So that pods that need much do not starve behind those that need little,
room is kept for the one that has waited longest, once it has waited for `MANCIPLE_FAIRNESS_SECONDS`: on the node where
the fewest pods are in its way. What comes free there is not given to others of its priority or less; as pods end, it
starts. Of each priority one pod at a time has such room, so no more stands idle than that one requests; a pod that has
waited longer takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, TypeVar, cast

import msgspec
from django.conf import settings

from claims.causes.causes import (
    ClaimInUse,
    Evicting,
    Ineligible,
    NamedVictim,
    NoNodeFits,
    NotEligible,
    OfDevices,
    OfNode,
    OfPod,
    OfPreemption,
    PreemptionNotHelpful,
    Unhelpful,
    counted,
)
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import is_allocated_by_controller
from claims.pod_claims import can_be_reserved, is_reserved_for, references
from inventory.kinds import gates
from manciple.wire.limits import TimeLimitExceeded, time_limit
from scheduling.allocator import AllocationFailed, Deadline, Unallocatable, Undecided, overall
from scheduling.claims.negotiation import Negotiation, StillNegotiating
from scheduling.claims.readiness import PodRequest
from scheduling.cycle.preemption import Refusals, VictimSearch, age_of, ineligible, nobody_to_evict, turn_of
from scheduling.metrics import PREEMPTION_ATTEMPTS, PluginRun
from scheduling.queue.hints import Wakes, claim_key, resource_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import SCHEDULING_GATED, Placement, Retry, Wait
from scheduling.state import node_fit
from scheduling.state.cluster import ClusterState
from scheduling.state.node_fit import REASON_OF_PLUGIN, extended_names
from scheduling.state.nodes import FilterResult, PlannedEviction, verdict_key

#: Seconds of processor time for finding out which part of a selector refuses the devices. After that the message names
#: the selector alone.
EXPLAIN_SECONDS = 0.03
#: Seconds for one search for victims, and for all of a batch.
SEARCH_SECONDS = 0.05
BATCH_SECONDS = 0.1
#: Seconds for a search that only its reader waits for.
PREVIEW_SECONDS = 1.0
#: Victims that a message names.
NAMED = 8

_ENCODE = msgspec.json.Encoder().encode
_VerdictT = TypeVar("_VerdictT", bound=Placement | Wait | Retry)

# Refusals -------------------------------------------------------------------------------------------------------------


def refused_outright(state: ClusterState, pod: Pod, hold: Hold) -> Wait:
    """The pod's own reason stands in place of the nodes' reasons."""
    if Reason.GATED in hold.reasons:
        return Wait(pod=pod, hold=hold, condition=SCHEDULING_GATED)
    nodes = len(state.nodes)
    unhelpful = None
    if nodes and not hold.reasons & (Reason.CLAIM_MISSING | Reason.GROUP):
        unhelpful = Unhelpful(nodes=((PreemptionNotHelpful(), nodes),))
    cause = NoNodeFits(
        nodes=nodes, because=cast("OfPod", hold.cause), preemption=unhelpful, without_claims=unhelpful is not None
    )
    return Wait(pod=pod, hold=Hold(reasons=hold.reasons, awaited=hold.awaited, cause=cause))


def refused_by_nodes(
    state: ClusterState,
    request: PodRequest,
    filtered: FilterResult,
    refusals: Mapping[str, Unallocatable | AllocationFailed | Undecided],
    remedies: Remedies | None,
) -> Wait | Retry:
    """No node is left: the reason of each, and the remedy, if there is one."""
    reasons = Reason.NODE if not len(state.nodes) else Reason(0)
    of_nodes: dict[str, Sequence[OfNode]] = dict(filtered.refused)
    for refused in filtered.refused.values():
        for refusal in refused:
            reasons |= REASON_OF_PLUGIN.get(refusal.plugin, Reason.NODE)
    for name, outcome in refusals.items():
        of_nodes[name] = [outcome.cause]
        reasons |= Reason.ERROR if isinstance(outcome, Undecided) else Reason.DEVICES
    with PluginRun("PostFilter", "DynamicResources") as run:
        idle = filtered.idle_claim(partial(state.is_idle_but_for, request.pod))
        run.status = "Unschedulable" if idle is None else "Success"
    remedy = Remedy()
    if idle is None and remedies is not None and of_nodes:
        with PluginRun("PostFilter", "DefaultPreemption") as run:
            remedy = remedies.for_pod(state, request, of_nodes)
            run.status = "Unschedulable" if remedy.eviction is None else "Success"
        if remedy.postponed:
            return Retry(pod=request.pod, untried=True)
        if remedy.held is not None:
            return refused_outright(state, request.pod, remedy.held)
    cause = NoNodeFits(
        nodes=len(state.nodes),
        refused=counted(of_nodes.values()),
        because=_because([one for one in refusals.values() if isinstance(one, Unallocatable)]),
        deallocated=idle is not None,
        without_claims=not request.has_claims,
        preemption=remedy.cause,
        room=remedy.nominate if remedy.eviction is None else "",
    )
    awaited = {claim_key(claim.metadata.namespace, claim.metadata.name) for claim in filtered.elsewhere}
    awaited |= {resource_key(name) for name in extended_names(request.pod)}
    hold = Hold(reasons=reasons, awaited=frozenset(awaited), cause=cause)
    return Wait(
        pod=request.pod,
        hold=hold,
        deallocate=() if idle is None else (idle,),
        nominate=remedy.nominate,
        withdrawn=remedy.withdrawn,
        eviction=remedy.eviction,
        again=remedy.again,
    )


def _because(refusals: Sequence[Unallocatable]) -> OfDevices | None:
    limit = Deadline.after_work(EXPLAIN_SECONDS)
    try:
        with time_limit(limit):
            return overall(refusals)
    except TimeLimitExceeded as error:
        if error.deadline is not limit:
            raise
        return None


# Negotiations: drivers decide about claims of the pod -----------------------------------------------------------------


def refused_before_nodes(state: ClusterState, pod: Pod, hold: Hold) -> Wait:
    """`refused_outright`, without a deadlock: of two pods without a node, one of which needs what the other has, the
    later gives back what drivers have reserved for it. In every ring of such pods one is later than the one for which
    it waits. (KEP-3063's pseudo-code picks what to deallocate at random.)
    """
    refusal = refused_outright(state, pod, hold)
    if not state.extensions or not isinstance(hold.cause, ClaimInUse):
        return refusal
    needed = [
        (reference, claim)
        for reference in references(pod)
        if reference.claim and (claim := state.claim(pod.metadata.namespace, reference.claim))
    ]
    users = (user.uid for _, claim in needed if not can_be_reserved(claim) for user in claim.status.reserved_for)
    waiting = (other for uid in users if (other := state.pending.get(uid)) is not None)
    if not any(turn_of(other) < turn_of(pod) for other in waiting):
        return refusal
    given_up = [
        claim
        for one, claim in needed
        if not one.generated and is_reserved_for(claim, pod.metadata.uid) and is_allocated_by_controller(claim)
    ]
    given_up = [claim for claim in given_up if state.is_idle_but_for(pod, claim)]
    negotiations = state.negotiations(pod, [claim for _, claim in needed])
    refusal = replace(refusal, deallocate=tuple(given_up))
    return refusal if isinstance(negotiations, Hold) else during_negotiations(refusal, negotiations)


def refused_while_negotiating(state: ClusterState, pod: Pod, negotiating: StillNegotiating) -> Wait:
    """No node can be chosen yet; the writes are assumed, so that the next pod sees them."""
    state.overlay.say(negotiating.writes)
    return replace(refused_outright(state, pod, negotiating.hold), writes=negotiating.writes)


def during_negotiations(verdict: _VerdictT, negotiations: Sequence[Negotiation]) -> _VerdictT | Wait:
    """`verdict`; a refusal also waits for what the drivers do, which are notified of what the pod gives back."""
    if not isinstance(verdict, Wait):
        return verdict
    hold, awaited = verdict.hold, frozenset[str]().union(*(one.awaited for one in negotiations))
    if awaited:
        hold = replace(hold, reasons=hold.reasons | Reason.NEGOTIATION, awaited=hold.awaited | awaited)
    notices = (write for one in negotiations for write in one.giving_back(verdict.deallocate))
    return replace(verdict, hold=hold, writes=(*verdict.writes, *notices))


# Remedies -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What is done for a pod that fits nowhere. cause: for its message. nominate: where room is made or kept for it."""

    cause: OfPreemption | None = None
    nominate: str = ""
    eviction: PlannedEviction | None = None
    #: pods whose room it takes over
    withdrawn: tuple[Pod, ...] = ()
    again: bool = False
    postponed: bool = False
    #: its devices would exceed a quota: no pod is evicted for it
    held: Hold | None = None


class SearchProgress(NamedTuple):
    """How far a search has come. skip: candidates tried without success; since: the revision that it saw."""

    skip: int
    since: int


class UnfinishedSearches:
    """Searches that ran out of time, by what is searched and the uid of the pod (of a gang, the first) for which."""

    def __init__(self) -> None:
        self._progress: dict[tuple[str, str], SearchProgress] = {}

    def __len__(self) -> int:
        return len(self._progress)

    def resume(self, what: str, uid: str, state: ClusterState) -> SearchProgress:
        """Where to go on: once, then the search begins at the first candidate again."""
        return self._progress.pop((what, uid), None) or SearchProgress(0, state.revision)

    def interrupt(self, what: str, uid: str, progress: SearchProgress) -> None:
        self._progress[what, uid] = progress

    def keep(self, uids: Container[str]) -> None:
        """Forget those for other pods than these."""
        self._progress = {key: progress for key, progress in self._progress.items() if key[1] in uids}


def was_overtaken(state: ClusterState, progress: SearchProgress) -> bool:
    """Whether a search that has gone on from there may have missed something: what it was refused first came free."""
    if not progress.skip:
        return False
    news = state.news_after(progress.since)
    return news is None or bool(Wakes(news).anywhere & (Reason.RESOURCES | Reason.DEVICES | Reason.NODE))


@dataclass(slots=True, kw_only=True)
class Remedies:
    """The remedies of one batch. searches: what its searches go on from; outlives the batch."""

    now: datetime
    searches: UnfinishedSearches = field(default_factory=UnfinishedSearches)
    #: for all of its searches; set by the first one, which always has its turn
    deadline: Deadline | None = None
    hopeless: dict[Hashable, Unhelpful] = field(default_factory=dict)
    #: whether room is kept for pods that have waited longest, without evictions
    keeps_room: bool = True

    def for_pod(self, state: ClusterState, request: PodRequest, refusals: Refusals) -> Remedy:
        """refusals: why each node refuses the pod. An eviction, or room, is assumed."""
        why_not = ineligible(state, request, self.now)
        if why_not is Ineligible.WAITING:
            return Remedy(cause=NotEligible(why_not), nominate=request.pod.status.nominated_node_name)
        result: PlannedEviction | OfPreemption
        if why_not is not None:
            result = NotEligible(why_not)
        else:
            unhelpful = self._without_search(state, request, refusals)
            if unhelpful is None and self._time_is_up:
                return Remedy(postponed=True)
            result = unhelpful or self._search(state, request, refusals)
        if isinstance(result, PlannedEviction):
            held = state.quotas.hold_after(request.pod, request.wanting, result.allocations)
            return Remedy(held=held) if held is not None else self._evict(state, request, result)
        return self._wait(state, request, refusals, result)

    @property
    def _time_is_up(self) -> bool:
        return self.deadline is not None and self.deadline.has_passed

    # Evicting --------------------------------------------------------------------------------------------------------

    def _without_search(self, state: ClusterState, request: PodRequest, refusals: Refusals) -> Unhelpful | None:
        """Where it is clear that no eviction helps."""
        node = request.pod.status.nominated_node_name
        waits = any(state.overlay.is_leaving(one, self.now) for one in state.residents.on(node)) if node else False
        if not waits and not state.residents.any_below(request.priority):
            return nobody_to_evict(refusals, devices=devices_are_preempted())
        return self.hopeless.get(gist_of(state, request))

    def _search(self, state: ClusterState, request: PodRequest, refusals: Refusals) -> PlannedEviction | OfPreemption:
        PREEMPTION_ATTEMPTS.inc()
        self.deadline = self.deadline or Deadline.after_work(BATCH_SECONDS)
        uid = request.pod.metadata.uid
        progress = self.searches.resume("victims", uid, state)
        search = _search_for_victims(state, request, self.now, SEARCH_SECONDS)
        search.skip = progress.skip
        result = search.run(refusals)
        if search.skip:
            self.searches.interrupt("victims", uid, progress._replace(skip=search.skip))
        elif isinstance(result, Unhelpful) and was_overtaken(state, progress):
            return NotEligible(Ineligible.UNDECIDED)  # the first candidates may help by now
        if isinstance(result, Unhelpful):
            self.hopeless[gist_of(state, request)] = result
        return result

    def _evict(self, state: ClusterState, request: PodRequest, eviction: PlannedEviction) -> Remedy:
        taking = request.charged(state.devices.charges, eviction.allocations)
        leaving = [victim.uid for victim in eviction.victims]
        state.overlay.nominate(taking, eviction.node, eviction.allocations, leaving)
        cause = eviction_cause(eviction, sees=request.pod.metadata.namespace.__eq__)
        return Remedy(cause=cause, nominate=eviction.node, eviction=eviction)

    # Waiting ---------------------------------------------------------------------------------------------------------

    def _wait(self, state: ClusterState, request: PodRequest, refusals: Refusals, why: OfPreemption) -> Remedy:
        """No pod is evicted. It may be the pod's turn to have room kept."""
        again = isinstance(why, NotEligible) and why.because is Ineligible.UNDECIDED
        if again or self._time_is_up:
            return Remedy(cause=why, nominate=request.pod.status.nominated_node_name, again=again)
        others = self._waiting_alike(state, request)
        first = self._is_patient(state, request) and not any(age_of(other) < age_of(request.pod) for other in others)
        if not self.keeps_room or not first:
            return Remedy(cause=why)
        node = self._room(state, request, refusals, others)
        return Remedy(cause=why, nominate=node, withdrawn=others if node else ())

    def _waiting_alike(self, state: ClusterState, request: PodRequest) -> tuple[Pod, ...]:
        """The others of its priority for which room is kept without evictions."""
        return tuple(
            room.pod
            for room in state.rooms.all()
            if room.priority == request.priority
            and room.pod.metadata.uid != request.pod.metadata.uid
            and not any(state.overlay.is_leaving(one, self.now) for one in state.residents.on(room.node))
        )

    def _room(self, state: ClusterState, request: PodRequest, refusals: Refusals, instead_of: Sequence[Pod]) -> str:
        """The node on which room is kept for a pod that has waited long; "" where there is none."""
        search = VictimSearch(
            state=state,
            request=request,
            now=self.now,
            seconds=SEARCH_SECONDS,
            below=request.priority + 1,
            by_number=True,
        )
        room = search.run(refusals)
        if not isinstance(room, PlannedEviction):
            return ""
        if state.quotas.hold_after(request.pod, request.wanting, room.allocations) is not None:
            return ""
        state.overlay.withdraw(instead_of)
        taking = request.charged(state.devices.charges, room.allocations)
        state.overlay.nominate(taking, room.node, room.allocations, ())
        return room.node

    def _is_patient(self, state: ClusterState, request: PodRequest) -> bool:
        meta, patience = request.pod.metadata, settings.SCHEDULER_FAIRNESS
        created = meta.creation_timestamp
        if state.shares is not None and not state.shares.has_the_turn(meta.namespace, request.priority):
            return False
        if not created or not patience:
            return False
        return self.now - datetime.fromisoformat(created) >= timedelta(seconds=patience)


def devices_are_preempted() -> bool:
    """While the gate is off, preemption helps no pod that lacks devices, as in Kubernetes 1.36."""
    return gates.enabled("DRAPreemption")


def _search_for_victims(state: ClusterState, request: PodRequest, now: datetime, seconds: float) -> VictimSearch:
    return VictimSearch(
        state=state,
        request=request,
        now=now,
        seconds=seconds,
        below=request.priority,
        devices=devices_are_preempted(),
    )


def preview(
    state: ClusterState, request: PodRequest, refusals: Refusals, now: datetime
) -> PlannedEviction | OfPreemption:
    """What would be done for a pod that fits nowhere; nothing is assumed."""
    why_not = ineligible(state, request, now)
    if why_not is not None:
        return NotEligible(why_not)
    if not state.residents.any_below(request.priority):
        return nobody_to_evict(refusals, devices=devices_are_preempted())
    return _search_for_victims(state, request, now, PREVIEW_SECONDS).run(refusals)


def eviction_cause(eviction: PlannedEviction, *, sees: Callable[[str], bool]) -> Evicting:
    """sees: whether the reader may see the pods of a namespace; those of other namespaces are counted."""
    named = tuple(
        NamedVictim(namespace=one.namespace, name=one.name, priority=one.priority)
        for one in [one for one in eviction.victims if sees(one.namespace)][:NAMED]
    )
    return Evicting(node=eviction.node, victims=named, more=len(eviction.victims) - len(named))


def gist_of(state: ClusterState, request: PodRequest) -> Hashable:
    """Equal for pods that preemption helps alike; its own for one whose neighbours or claims matter."""
    pod = request.pod
    if request.held or state.nodes.neighbours.may_refuse(pod):
        return pod.metadata.uid
    wanted = _ENCODE([claim.spec.devices for claim in request.wanting])
    return request.priority, verdict_key(node_fit.needs_of(pod)), wanted
