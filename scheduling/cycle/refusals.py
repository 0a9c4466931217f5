"""What becomes of a pod for which a cycle of the scheduler finds no place: why, and the remedy (PostFilter), if any.

    refused_outright(state, pod, hold)                             no node is to be asked about it
    refused_before_nodes(state, pod, hold)                         the same, for what PreFilter says
    refused_by_nodes(state, asking, filtered, refusals, remedies)  refusals: of the nodes that lack devices

An allocation of its own that is idle and in the way is given back; else less important pods make room, or room is kept
(`scheduling.cycle.remedies`). What is decided here is written by `scheduling.cycle.commit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from claims.causes.causes import (
    ClaimInUse,
    NoNodeFits,
    OfDevices,
    OfNode,
    OfPod,
    PreemptionNotHelpful,
    Unhelpful,
    counted,
)
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller
from claims.pod_claims import ClaimReference, can_be_reserved, is_reserved_for, references
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from scheduling.allocator import AllocationFailed, Unallocatable, Undecided, overall
from scheduling.claims.negotiation import Negotiation, StillNegotiating
from scheduling.cycle.decisions import SCHEDULING_GATED, UNSCHEDULABLE, Placement, PodRefusal, Postponed
from scheduling.cycle.preemption import Asking
from scheduling.cycle.remedies import Remedies, Remedy
from scheduling.metrics import PluginRun
from scheduling.queue.hints import claim_key, resource_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.cluster import ClusterState
from scheduling.state.node_fit import REASON_OF_PLUGIN, extended_names
from scheduling.state.nodes import FilterResult

#: Seconds of processor time for finding out which part of a selector refuses the devices. After that the message names
#: the selector alone.
EXPLAIN_SECONDS = 0.03

_Decided = TypeVar("_Decided", bound=Placement | PodRefusal | Postponed)


def refused_outright(state: ClusterState, pod: Pod, hold: Hold) -> PodRefusal:
    """PreFilter said no: the reason stands in place of the nodes' reasons."""
    if Reason.GATED in hold.reasons:
        return PodRefusal(pod=pod, hold=hold, condition=SCHEDULING_GATED)
    nodes = len(state.nodes)
    unhelpful = None
    if nodes and not hold.reasons & (Reason.CLAIM_MISSING | Reason.GROUP):
        unhelpful = Unhelpful(nodes=((PreemptionNotHelpful(), nodes),))
    cause = NoNodeFits(
        nodes=nodes, because=cast("OfPod", hold.cause), preemption=unhelpful, without_claims=unhelpful is not None
    )
    return PodRefusal(pod=pod, hold=Hold(reasons=hold.reasons, awaited=hold.awaited, cause=cause))


def refused_by_nodes(
    state: ClusterState,
    asking: Asking,
    filtered: FilterResult,
    refusals: Mapping[str, Unallocatable | AllocationFailed | Undecided],
    remedies: Remedies | None,
) -> PodRefusal | Postponed:
    """No node was left: for each, why; and PostFilter's remedy, if there is one."""
    reasons = Reason.NODE if not len(state.nodes) else Reason(0)
    told: dict[str, Sequence[OfNode]] = dict(filtered.refused)
    for found in filtered.refused.values():
        for refusal in found:
            reasons |= REASON_OF_PLUGIN.get(refusal.plugin, Reason.NODE)
    for name, outcome in refusals.items():
        told[name] = [outcome.cause]
        reasons |= Reason.ERROR if isinstance(outcome, Undecided) else Reason.DEVICES
    with PluginRun("PostFilter", "DynamicResources") as run:
        idle = filtered.idle_claim(partial(state.is_idle_but_for, asking.pod))
        run.status = "Unschedulable" if idle is None else "Success"
    remedy = Remedy()
    if idle is None and remedies is not None and told:
        with PluginRun("PostFilter", "DefaultPreemption") as run:
            remedy = remedies.for_pod(state, asking, told)
            run.status = "Unschedulable" if remedy.eviction is None else "Success"
        if remedy.postponed:
            return Postponed(pod=asking.pod)
        if remedy.held is not None:
            return refused_outright(state, asking.pod, remedy.held)
    cause = NoNodeFits(
        nodes=len(state.nodes),
        refused=counted(told.values()),
        because=_because([one for one in refusals.values() if isinstance(one, Unallocatable)]),
        deallocated=idle is not None,
        without_claims=not asking.has_claims,
        preemption=remedy.told,
        room=remedy.nominate if remedy.eviction is None else "",
    )
    awaited = {claim_key(claim.metadata.namespace, claim.metadata.name) for claim in filtered.elsewhere}
    awaited |= {resource_key(name) for name in extended_names(asking.pod)}
    hold = Hold(reasons=reasons, awaited=frozenset(awaited), cause=cause)
    return PodRefusal(
        pod=asking.pod,
        hold=hold,
        condition=UNSCHEDULABLE,
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


# Where others decide about claims of the pod --------------------------------------------------------------------------


def refused_before_nodes(state: ClusterState, pod: Pod, hold: Hold) -> PodRefusal:
    """`refused_outright`; and of two pods without a node, one of which needs what the other has, the later gives back
    what drivers have reserved for it: each might have what the other needs, and both wait for ever. In every ring of
    such pods one is later than the one for which it waits. KEP-3063's pseudo-code picks what to deallocate at random.
    """
    refusal = refused_outright(state, pod, hold)
    if not state.negotiators or not isinstance(hold.cause, ClaimInUse):
        return refusal
    needed = [(one, claim) for one in references(pod) if (claim := _claim_of(state, pod, one))]
    users = (user.uid for _, claim in needed if not can_be_reserved(claim) for user in claim.status.reserved_for)
    waiting = (other for uid in users if (other := state.pending.get(uid)) is not None)
    if not any(_turn(other) < _turn(pod) for other in waiting):
        return refusal
    given_up = [
        claim
        for one, claim in needed
        if not one.generated and is_reserved_for(claim, pod.metadata.uid) and is_allocated_by_controller(claim)
    ]
    given_up = [claim for claim in given_up if state.is_idle_but_for(pod, claim)]
    talks = state.negotiations(pod, [claim for _, claim in needed])
    refusal = replace(refusal, deallocate=tuple(given_up))
    return refusal if isinstance(talks, Hold) else during_negotiations(refusal, talks)


def _claim_of(state: ClusterState, pod: Pod, reference: ClaimReference) -> ResourceClaim | None:
    return state.claim(pod.metadata.namespace, reference.claim) if reference.claim else None


def _turn(pod: Pod) -> tuple[int, str, str]:
    """The more important first, then the older."""
    return -(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.metadata.uid


def told_to_wait(state: ClusterState, pod: Pod, found: StillNegotiating) -> PodRefusal:
    """No node is to be chosen yet; the next pod finds what is said."""
    state.overlay.say(found.writes)
    return replace(refused_outright(state, pod, found.hold), writes=found.writes)


def during_negotiations(decided: _Decided, talks: Sequence[Negotiation]) -> _Decided | PodRefusal:
    """`decided`, where a refusal may be lifted by what the others do, who are told of what the pod gives back."""
    if not isinstance(decided, PodRefusal):
        return decided
    hold, awaited = decided.hold, frozenset[str]().union(*(one.awaited for one in talks))
    if awaited:
        hold = replace(hold, reasons=hold.reasons | Reason.NEGOTIATION, awaited=hold.awaited | awaited)
    said = (write for one in talks for write in one.giving_back(decided.deallocate))
    return replace(decided, hold=hold, writes=(*decided.writes, *said))
