"""Writes what a cycle decided: PreBind and binding in one transaction for the whole batch.

Inside the transaction the writer's lock keeps everybody else out. The state is first brought up to the last revision;
what came since the decisions were made is its drift. Then every decision is checked against the objects as they
are now and written: claims (finalizer, allocation, reservation), the pod (nodeName, condition), the event that tells of
it, and the pod's row in the queue. A decision that does not hold any more is undone alone and its pod tried again.
After the commit, the state takes over what was written.
A fault in one decision is undone alone, too: its pod rests, the others are bound. The database's own constraint on
exclusive devices stands behind all this. Should it ever refuse a batch, the batch is committed pod by pod, so that this
too costs only the pod that it concerns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

from django.conf import settings
from django.db import Error, IntegrityError
from msgspec import structs

from claims import event_recorder
from claims.causes import messages
from claims.causes.causes import AnyCause, Interrupted
from claims.controllers.reservations import deallocated, not_reserved
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.pod_claims import can_be_reserved, is_done, reserved
from claims.quotas import QuotaExceeded
from manciple.controllers.coordination import looked_after
from manciple.store import objects
from manciple.store.objects import ObjectT, Wanted, Writer, to_read
from manciple.telemetry.logs import about
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.identity import SCHEDULER
from manciple.wire.resources import CLAIMS, EVENTS, NAMESPACES, POD_GROUPS, PODS, Key, kind
from scheduling.claims import readiness, special_claims
from scheduling.claims.extended_resources import IN_MEMORY, generate_name, owner_uid
from scheduling.claims.negotiation import NegotiationWrite
from scheduling.cycle.attempts import binding_ended, binding_timeout
from scheduling.cycle.decisions import (
    SCHEDULING_GATED,
    AnyDecision,
    Decision,
    GroupDecision,
    Placement,
    PodRefusal,
    Postponed,
    StillBinding,
    allocated,
    charged_as,
    keeps_room,
    nominated,
    not_scheduled,
    scheduled,
    singles,
)
from scheduling.cycle.evictions import PreemptionEvictions, still_helps, withdraw_nomination
from scheduling.cycle.gangs import write_together
from scheduling.cycle.preemption import Asking
from scheduling.metrics import PluginRun
from scheduling.queue import queue
from scheduling.queue.hints import FREED
from scheduling.queue.queue import Done, NotTried, Outcome, Parked, Retry
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.cluster import ClusterState
from scheduling.state.residents import PlannedEviction

log = logging.getLogger(__name__)

#: What a pod may be refused because of what was assumed for another one of its batch.
ASSUMED = FREED | Reason.QUOTA | Reason.CLAIM_BUSY | Reason.CLAIM_ELSEWHERE
#: A nominated pod is looked at again after this long, whatever happened: who was to leave may not have.
NOMINATED_FOR = timedelta(seconds=30)


def commit(
    state: ClusterState,
    decisions: Sequence[AnyDecision],
    *,
    undecided: Sequence[Outcome] = (),
    revision: int,
    now: datetime,
) -> list[Outcome]:
    """Write `decisions`, made on the state of `revision`. Returns the `undecided`, then how each ended, in their order.

    undecided: how it ended for the pods of the batch about which there was nothing to decide.
    """
    if any(map(_is_special, singles(decisions))):
        decisions = special_claims.asked(decisions, state)
    try:
        return _commit_together(state, decisions, undecided=undecided, revision=revision, now=now)
    except (IntegrityError, Conflict):
        log.exception("a batch of %d pods was refused as a whole; committing them one by one", len(decisions))
    outcomes = _commit_together(state, [], undecided=undecided, revision=revision, now=now)
    for decision in decisions:
        outcomes += _commit_alone(state, decision, revision=revision, now=now)
    return outcomes


def _is_special(decision: Decision) -> bool:
    """Whether it makes a claim for extended resources."""
    return isinstance(decision, Placement) and decision.special is not None


def _commit_alone(state: ClusterState, decision: AnyDecision, *, revision: int, now: datetime) -> list[Outcome]:
    try:
        return _commit_together(state, [decision], undecided=(), revision=revision, now=now)
    except (IntegrityError, Conflict) as error:
        cause = Interrupted(str(error))
        outcomes: list[Outcome] = [Retry(uid=one.pod.metadata.uid, cause=cause) for one in singles([decision])]
        with objects.writing(identity=SCHEDULER):
            queue.settle(outcomes, revision=revision, now=now)
        return outcomes


def _commit_together(
    state: ClusterState,
    decisions: Sequence[AnyDecision],
    *,
    undecided: Sequence[Outcome],
    revision: int,
    now: datetime,
) -> list[Outcome]:
    reads = _reads([*singles(decisions)], [one.group.key for one in decisions if isinstance(one, GroupDecision)])
    with (
        objects.writing(identity=SCHEDULER, reads=reads) as writer,
        looked_after().noted(writer, frozenset({"schedule"})),
    ):
        if writer.revision != state.revision:
            state.advance()
        batch = _Batch(state, writer, now)
        if special := [one.pod for one in singles(decisions) if _is_special(one)]:
            writer.draw_names(kind(CLAIMS), [(pod.metadata.namespace, generate_name(pod)) for pod in special])
        written = list[Outcome]()
        for decision in decisions:
            written += batch.write_group(decision) if isinstance(decision, GroupDecision) else [batch.write(decision)]
        outcomes = [*undecided, *_with_what_came_free(decisions, written)]
        queue.settle(outcomes, revision=revision, now=now)
    state.absorb(writer.written)
    return outcomes


def _with_what_came_free(decisions: Iterable[AnyDecision], outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """How each ended; where a pod does not get what was assumed to be its own, those to whom that was refused later in
    the batch are tried again at once: no event will tell of it. Not those of its own group, which it would bring along,
    nor those that had a place and are refused it by the commit: either would go on for ever.
    """
    came_free, left = False, iter(outcomes)
    for decision in decisions:
        ended = [(one, next(left)) for one in singles([decision])]
        for one, outcome in ended:
            if came_free and isinstance(one, PodRefusal) and _waits_for_what_others_have(outcome):
                yield NotTried(uid=outcome.uid)  # nor does it rest, as often as it was tried before
            else:
                yield outcome
        came_free = came_free or any(_lets_go(one, outcome) for one, outcome in ended)


def _waits_for_what_others_have(outcome: Outcome) -> bool:
    return isinstance(outcome, Parked) and outcome.until is None and bool(outcome.hold.reasons & ASSUMED)


def _lets_go(decision: Decision, outcome: Outcome) -> bool:
    """Whether the pod does not get what was assumed to be its own."""
    if not isinstance(decision, Placement):
        return keeps_room(decision) and not isinstance(outcome, Parked)
    if isinstance(outcome, Parked):
        return Reason.BINDING not in outcome.hold.reasons
    return not (isinstance(outcome, Done) and outcome.placed)


def _reads(decisions: Sequence[Decision], groups: Sequence[Key]) -> Wanted:
    """Everything that will be asked for, to be read at once; the namespaces are what the rules ask for."""
    placements = [decision for decision in decisions if isinstance(decision, Placement)]
    return to_read(
        (kind(PODS), [*(one.pod.key for one in decisions), *_others(decisions)]),
        (kind(CLAIMS), [claim.key for placement in placements for claim in _claims_of(placement)]),
        (kind(EVENTS), [event_recorder.key_of(note) for note in map(_note, decisions) if note is not None]),
        (kind(POD_GROUPS), groups),
        (kind(NAMESPACES), [("", decision.pod.metadata.namespace) for decision in decisions]),
    )


def _claims_of(placement: Placement) -> Iterator[ResourceClaim]:
    """Those that are written already."""
    special, outdated = placement.special, placement.outdated
    yield from (one for one in placement.claims if special is None or one.metadata.name != IN_MEMORY)
    if outdated is not None:
        yield outdated


def _others(decisions: Sequence[Decision]) -> Iterator[Key]:
    """Pods that make room, or lose what was kept for them."""
    for decision in decisions:
        if isinstance(decision, PodRefusal):
            yield from (pod.key for pod in decision.withdrawn)
            for victim in decision.eviction.victims if decision.eviction is not None else ():
                yield victim.namespace, victim.name


def allocation_time(now: datetime) -> str | None:
    """What allocations say of when they were made."""
    return timestamp(now) if settings.FEATURE_GATES.get("DRADeviceBindingConditions", True) else None


class _Batch:
    """One transaction's worth of decisions. The state is the one that the transaction sees."""

    def __init__(self, state: ClusterState, writer: Writer, now: datetime) -> None:
        self._state = state
        self._writer = writer
        self._now = now

    def write(self, decision: Decision) -> Outcome:
        with about(decision.pod):
            return self._write(decision)

    def write_group(self, together: GroupDecision) -> list[Outcome]:
        return write_together(together, self.write, self._part, state=self._state, writer=self._writer, now=self._now)

    def _part(self, decision: Decision) -> Outcome:
        """One decision of several that are written together. Raises: ApiError."""
        pod = self._read(PODS, Pod, decision.pod)
        if pod is None or pod.spec.node_name or is_done(pod):
            return Done(uid=decision.pod.metadata.uid)
        with about(pod):
            return self._carry_out(pod, decision)

    def _write(self, decision: Decision) -> Outcome:
        uid = decision.pod.metadata.uid
        pod = self._read(PODS, Pod, decision.pod)
        if pod is None or pod.spec.node_name or is_done(pod):
            return Done(uid=uid)
        try:
            with self._writer.savepoint():
                return self._carry_out(pod, decision)
        except (special_claims.NotMade, QuotaExceeded) as why:
            return self._refuse(pod, special_claims.refusal_by(pod, why))
        except ApiError as error:
            return Retry(uid=uid, cause=Interrupted(error.message), at_once=isinstance(error, Conflict))
        except Error:
            raise  # the transaction is broken, for everybody
        except Exception as error:
            log.exception("pod %s cannot be committed; it will be retried after a backoff", "/".join(pod.key))
            return Retry(uid=uid, cause=Interrupted(f"internal error: {error}"), broken=True)

    def _carry_out(self, pod: Pod, decision: Decision) -> Outcome:
        """pod: as it is now."""
        uid = pod.metadata.uid
        match decision:
            case Placement():
                return self._bind(pod, decision)
            case StillBinding(hold=hold, until=until):
                return Parked(uid=uid, generation=pod.metadata.generation, hold=hold, until=until)
            case Postponed():
                return NotTried(uid=uid)
            case PodRefusal():
                return self._refuse(pod, decision)

    def _read(self, resource: str, type_: type[ObjectT], known: ObjectT) -> ObjectT | None:
        """What `known` is now; None when it is gone, or another object has its name."""
        found = self._writer.get(kind(resource), *known.key)
        if not isinstance(found, type_) or found.metadata.uid != known.metadata.uid:
            return None
        return found

    def _bind(self, pod: Pod, placement: Placement) -> Outcome:
        """PreBind, then Bind, if no device is still to be attached.

        Raises: Conflict when the placement does not hold any more.
        """
        with PluginRun("PreBind", "DynamicResources"):
            self._check(pod, placement)
            _say(self._writer, (one for one in placement.writes if one.wanted is not None))
            given = placement.allocations
            claims = [self._bind_claim(claim, placement, given.get(claim.metadata.uid)) for claim in placement.claims]
            if placement.outdated is not None:
                special_claims.give_back(self._writer, placement.outdated)
            if placement.special is not None or placement.outdated is not None:
                pod = special_claims.with_claim(pod, placement, claims)
        if awaited := [claim for claim in claims if not readiness.is_ready_to_bind(claim)]:
            return self._nominate(pod, placement, awaited)
        bound = scheduled(charged_as(placement.pod, pod), placement.node, timestamp(self._now))
        self._writer.update(kind(PODS), bound, subresource="binding")
        _say(self._writer, (one for one in placement.writes if one.wanted is None))
        self._tell(bound, placement)
        binding_ended(claims, "success", self._now)
        return Done(uid=pod.metadata.uid, placed=True)

    def _nominate(self, pod: Pod, placement: Placement, awaited: Sequence[ResourceClaim]) -> Outcome:
        """The pod has its devices and is bound once they are attached."""
        told = charged_as(placement.pod, nominated(pod, placement.node))
        self._writer.update(kind(PODS), told, subresource="status")
        hold = readiness.awaiting_binding(pod, placement.node, awaited)
        note = EventNote(
            regarding=told,
            reason="BindingConditionsPending",
            message=messages.message(cast("AnyCause", hold.cause)),
            component=messages.SCHEDULER_NAME,
        )
        event_recorder.record(self._writer, note, now=self._now)
        until = readiness.earliest_deadline(awaited, binding_timeout())
        return Parked(uid=pod.metadata.uid, generation=pod.metadata.generation, hold=hold, until=until)

    def _check(self, pod: Pod, placement: Placement) -> None:
        state, name = self._state, pod.metadata.name
        if pod.metadata.generation != placement.pod.metadata.generation or pod.metadata.deletion_timestamp is not None:
            raise Conflict.of(PODS, name)
        if why := state.devices.staleness(placement):
            raise Conflict.of(PODS, name, why)
        state.rooms.yield_to(pod.spec.priority or 0)
        if placement.node in state.devices.drift.nodes and not state.nodes.fits(placement.pod, placement.node):
            raise Conflict.of(PODS, name, f"node {placement.node} has changed")
        drift = state.devices.drift
        if drift.rules or placement.node in drift.nodes or pod.metadata.uid in drift.special:
            extended = state.extended(placement.pod)
            if placement.special is not None or extended is not None:
                special_claims.check(state, placement, extended)

    def _bind_claim(
        self, known: ResourceClaim, placement: Placement, allocation: AllocationResult | None
    ) -> ResourceClaim:
        """Give `known`, as it is now, its allocation and its reservation; returns it as it is then."""
        name = known.metadata.name
        if name == IN_MEMORY:
            return self._make_claim(known, placement, allocation)
        claim = self._read(CLAIMS, ResourceClaim, known)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            raise Conflict.of(CLAIMS, name, "the claim was deleted in the meantime")
        if allocation is not None:
            claim = self._allocated(claim, allocation)
        elif not _keeps_allocation(claim, known):
            raise Conflict.of(CLAIMS, name, "the claim was deallocated in the meantime")
        following = reserved(claim, placement.pod, placement.group)
        if following is not claim and not can_be_reserved(claim):
            raise Conflict.of(CLAIMS, name, messages.CLAIM_IN_USE)
        self._writer.update(kind(CLAIMS), following)
        return following

    def _make_claim(
        self, claim: ResourceClaim, placement: Placement, allocation: AllocationResult | None
    ) -> ResourceClaim:
        """Write the claim for the pod's extended resources, which existed in memory until now."""
        if allocation is None:
            raise Conflict.of(CLAIMS, claim.metadata.generate_name, "nothing was allocated for it")
        return special_claims.make(
            self._writer, claim, reserved(self._allocated(claim, allocation), placement.pod, placement.group)
        )

    def _allocated(self, claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
        return allocated(claim, allocation, allocation_time(self._now))

    def _refuse(self, pod: Pod, refusal: PodRefusal) -> Outcome:
        uid, generation = pod.metadata.uid, pod.metadata.generation
        if refusal.told_before:
            return Parked(uid=uid, generation=generation, hold=refusal.hold)
        _say(self._writer, refusal.writes)
        if refusal.eviction is not None:
            self._make_room(pod, refusal.pod, refusal.eviction)
        for other in refusal.withdrawn:
            withdraw_nomination(self._writer, other)
        told = not_scheduled(pod, reason=refusal.condition, message=refusal.message, now=timestamp(self._now))
        if any(map(owner_uid, (*refusal.deallocate, *refusal.given_up))):
            told = special_claims.without_claim(told)
        self._writer.update(kind(PODS), nominated(told, refusal.nominate), subresource="status")
        self._tell(pod, refusal)
        given_back = [self._deallocate(claim, pod) for claim in refusal.deallocate]
        given_back += [self._give_up(claim, pod) for claim in refusal.given_up]
        if any(given_back) or refusal.again:
            return Retry(uid=uid, cause=refusal.hold.cause)
        until = self._now + NOMINATED_FOR if refusal.nominate else None
        return Parked(uid=uid, generation=generation, hold=refusal.hold, until=until)

    def _make_room(self, pod: Pod, known: Pod, eviction: PlannedEviction) -> None:
        """Evict who is in the way of `pod`. known: as it was decided about.

        Raises: Conflict when that would not help, or is not needed, any more.
        """
        state = self._state
        with state.overlay.trying(known):
            claims = state.pre_filter(known)
            helps = not isinstance(claims, Hold) and still_helps(
                state, Asking.of(known, claims, state.extended(known)), eviction, self._now
            )
        if not helps or pod.metadata.deletion_timestamp is not None:
            raise Conflict.of(PODS, pod.metadata.name, "the pods in its way have changed")
        PreemptionEvictions(self._writer, preemptor=pod, node=eviction.node, now=self._now).evict(eviction.victims)
        for room in state.rooms.on(eviction.node):
            if room.priority < (pod.spec.priority or 0):
                withdraw_nomination(self._writer, room.pod)

    def _deallocate(self, known: ResourceClaim, pod: Pod) -> bool:
        """Take back an allocation that is in the pod's way, unless somebody uses it by now."""
        claim = self._read(CLAIMS, ResourceClaim, known)
        if claim is None or claim.status.allocation is None:
            return False
        if not self._state.is_idle_but_for(pod, claim):
            return False
        if owner_uid(claim):
            special_claims.give_back(self._writer, claim)
        else:
            self._writer.update(kind(CLAIMS), deallocated(claim))
        return True

    def _give_up(self, known: ResourceClaim, pod: Pod) -> bool:
        """Take back devices that could not be attached. Where pods run with the claim, it leaves `pod` alone."""
        claim = self._read(CLAIMS, ResourceClaim, known)
        if claim is None:
            return False
        if claim.status.allocation is None:
            return True  # another pod that waited for them came first
        if not readiness.binding_failures(pod, [claim], now=self._now, timeout=binding_timeout()):
            return False
        if owner_uid(claim):
            special_claims.give_back(self._writer, claim)
        elif self._state.is_in_use(claim):
            self._writer.update(kind(CLAIMS), not_reserved(claim, pod.metadata.uid))
        else:
            self._writer.update(kind(CLAIMS), deallocated(claim))
        return True

    def _tell(self, pod: Pod, decision: Decision) -> None:
        if (note := _note(decision)) is not None:
            event_recorder.record(self._writer, replace(note, regarding=pod), now=self._now)


def _note(decision: Decision) -> EventNote | None:
    """The event that tells of `decision`, if one does: a gated pod is not refused anything, one that waits was told."""
    pod, component = decision.pod, messages.SCHEDULER_NAME
    if isinstance(decision, Placement):
        message = messages.assigned(f"{pod.metadata.namespace}/{pod.metadata.name}", decision.node)
        return EventNote(
            regarding=pod, reason="Scheduled", message=message, component=component, placement=decision.why
        )
    if not isinstance(decision, PodRefusal) or decision.condition == SCHEDULING_GATED or decision.told_before:
        return None
    return EventNote(
        regarding=pod,
        type="Warning",
        reason="FailedScheduling",
        message=decision.message,
        component=component,
        cause=decision.hold.cause,
    )


def _keeps_allocation(claim: ResourceClaim, known: ResourceClaim) -> bool:
    """Whether `claim` has what `known` had, whenever that was given."""
    has, had = claim.status.allocation, known.status.allocation
    if has is None or had is None:
        return False
    return structs.replace(has, allocation_timestamp=had.allocation_timestamp) == had


def _say(writer: Writer, writes: Iterable[NegotiationWrite]) -> None:
    """Raises: Conflict where somebody has written, made or removed an object since that was decided."""
    for write in writes:
        known, wanted, resource = write.known, write.wanted, kind(write.resource)
        told = cast("ApiObject", known or wanted)
        found = writer.get(resource, *told.key)
        if wanted is None:
            if found is not None and found.metadata.uid == told.metadata.uid:
                writer.delete(resource, *told.key, uid=told.metadata.uid)
        elif _version(found) != _version(known):
            raise Conflict.of(write.resource, told.metadata.name, "it has changed in the meantime")
        elif known is None:
            writer.create(resource, wanted)
        else:
            writer.update(resource, wanted, subresource=write.subresource)


def _version(obj: ApiObject | None) -> tuple[str, str] | None:
    return None if obj is None else (obj.metadata.uid, obj.metadata.resource_version)
