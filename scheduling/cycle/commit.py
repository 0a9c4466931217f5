"""Writes the verdicts of a cycle: PreBind and Bind in one transaction for the whole batch.

Inside the transaction the writer's lock excludes all other writers. The state first reads the log up to the last
revision; what came since the verdicts is its drift. Then every verdict is checked against the current objects and
written: the claims that the pod lacks, if they were planned (`scheduling.claims.readiness`), what its claims get
(finalizer, allocation, reservation), the pod (nodeName, condition), its event, and the pod's row in the queue. A
placement that does not hold any more is undone alone and its pod tried again. After the commit, the state takes over
what was written.
An error in one verdict is undone alone, too: its pod backs off, the others are bound. Behind all this is the database's
own constraint on exclusive devices: should it ever refuse a batch, the batch is committed pod by pod, so that only the
pod that caused it pays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal, cast

from django.conf import settings
from django.db import Error, IntegrityError
from msgspec import structs

from claims import event_recorder
from claims.causes import messages
from claims.causes.causes import AnyCause, Interrupted
from claims.controllers import generated_claims
from claims.controllers.reservations import deallocated, not_reserved
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod, uses_volume_claims
from claims.kinds.resource_claims import DELETE_PROTECTION, AllocationResult, ResourceClaim, node_of
from claims.models import DeviceKey
from claims.pod_claims import STRUCTURED_FINALIZER, can_be_reserved, claim_for, is_done, reserved
from claims.projectors import asking_for_holders, holders_asked
from inventory.kinds import gates
from manciple.controllers.coordination import looked_after
from manciple.store import objects
from manciple.store.objects import ObjectT, Wanted, Writer, to_read
from manciple.telemetry import traces
from manciple.telemetry.logs import about
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.identity import SCHEDULER
from manciple.wire.limits import Deadline, TimeLimitExceeded, check_time, time_limit
from manciple.wire.resources import CLAIMS, EVENTS, NAMESPACES, POD_GROUPS, PODS, Key, kind
from scheduling import metrics
from scheduling.claims import extended_resources, readiness
from scheduling.claims.extended_resources import generate_name, owner_uid
from scheduling.claims.negotiation import NegotiationWrite
from scheduling.claims.readiness import PlannedClaim, request_of, with_names
from scheduling.claims.refusals import MOST_REFUSALS, ClaimsNotMade, is_refused, refusal_by
from scheduling.cycle.gangs import write_together
from scheduling.cycle.post_filter import PreemptionEvictions, still_helps, withdraw_nomination
from scheduling.metrics import PluginRun
from scheduling.queue import queue
from scheduling.queue.hints import FREED
from scheduling.queue.queue import Arrivals, ReadyPod
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import (
    IN_MEMORY,
    SCHEDULING_GATED,
    AnyVerdict,
    Gone,
    GroupVerdict,
    Placement,
    Retry,
    Verdict,
    Wait,
    charged_as,
    nominated,
    not_scheduled,
    scheduled,
    singles,
)
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import PlannedEviction

log = logging.getLogger(__name__)

#: A pod may wait for one of these because of what was assumed for another one of its batch.
ASSUMED = FREED | Reason.QUOTA | Reason.CLAIM_BUSY | Reason.CLAIM_ELSEWHERE
#: A nominated pod is tried again after this long, whatever happened: the pods that were to leave may not have.
NOMINATED_FOR = timedelta(seconds=30)


def commit(
    state: ClusterState,
    verdicts: Sequence[AnyVerdict],
    *,
    gone: Sequence[Gone] = (),
    revision: int,
    now: datetime,
    arrivals: Arrivals | None = None,
) -> list[Verdict | Gone]:
    """Write `verdicts`, reached on the state of `revision`. Returns the `gone`, then what became of each, in order.

    arrivals: the pods, where these have no rows in the queue yet.
    """
    decided = verdicts
    if any(isinstance(one, Placement) and one.special is not None for one in singles(verdicts)):
        verdicts = extended_resources.asked(verdicts, state)
    verdicts = _asked_about_claims(state, verdicts)
    try:
        return _commit_together(
            state, verdicts, decided=decided, gone=gone, revision=revision, now=now, arrivals=arrivals
        )
    except (IntegrityError, Conflict):
        log.exception("a batch of %d pods was refused as a whole; committing them one by one", len(verdicts))
    settled = _commit_together(state, [], decided=[], gone=gone, revision=revision, now=now, arrivals=arrivals)
    for verdict in verdicts:
        try:
            settled += _commit_together(state, [verdict], decided=[verdict], gone=(), revision=revision, now=now)
        except (IntegrityError, Conflict) as error:
            retries = [Retry(pod=one.pod, cause=Interrupted(str(error))) for one in singles([verdict])]
            with objects.writing(identity=SCHEDULER):
                queue.settle(retries, revision=revision, now=now)
            settled += retries
    return settled


def _asked_about_claims(state: ClusterState, verdicts: Sequence[AnyVerdict]) -> Sequence[AnyVerdict]:
    """Ahead of the transaction: `verdicts`, once admission was asked about the claims that it makes.

    A pod is left to the controller if a policy refuses one of its claims; all pods are if webhooks are asked, which may
    be slow, or claims may be changed. Policies have a limited time for all claims of a batch. Pods for which none is
    left are tried again in the next batch; a pod, or a group, for which all of it is too little goes to the controller.
    """
    planned = state.planned
    if planned is None or not any(planned.of(one.uid) for one in singles(verdicts)):
        return verdicts
    concerned = generated_claims.concerned()
    if concerned.take_their_time:
        state.plan_claims(enabled=False)
    if concerned.take_their_time or not concerned.policies:
        return verdicts
    deadline, checked, is_first = Deadline.after(generated_claims.PATIENCE), list[AnyVerdict](), True
    for verdict in verdicts:
        lacking = [one for one in singles([verdict]) if planned.of(one.uid)]
        left = lacking
        try:
            with time_limit(deadline):
                left = [one for one in lacking if _is_refused(one.pod, planned.of(one.uid))]
        except TimeLimitExceeded:
            if not is_first:
                checked += (Retry(pod=one.pod, untried=True) for one in singles([verdict]))
                continue
        for one in left:
            state.leave_claims(one.uid)
        checked.append(verdict)
        is_first = is_first and not lacking
    return checked


def _is_refused(pod: Pod, planned: Iterable[PlannedClaim]) -> bool:
    """Whether a policy refuses one of these claims. Raises: TimeLimitExceeded."""
    for one in planned:
        check_time()
        claim = claim_for(pod, one.entry, one.template)
        if isinstance(generated_claims.admitted(claim, generated_claims.IDENTITY), ApiError):
            return True
    return False


def _commit_together(
    state: ClusterState,
    verdicts: Sequence[AnyVerdict],
    *,
    decided: Sequence[AnyVerdict],
    gone: Sequence[Gone],
    revision: int,
    now: datetime,
    arrivals: Arrivals | None = None,
) -> list[Verdict | Gone]:
    """decided: the verdicts on the same pods before admission was asked."""
    every = singles(verdicts)
    reads = _reads(state, every, [one.group.key for one in verdicts if isinstance(one, GroupVerdict)])
    devices, taking_over = _devices_given(every), arrivals.taken_over() if arrivals else []
    beside = [*taking_over, *asking_for_holders(devices)]
    with (
        holders_asked(devices) as holders_found,
        objects.writing(identity=SCHEDULER, reads=reads, beside=beside) as writer,
        looked_after.value.noted(writer, frozenset({"schedule"})),
    ):
        holders_found(writer.beside[len(taking_over) :])
        if writer.revision != state.revision:
            state.advance()
        batch = _Batch(state, writer, now)
        if special := [one.pod for one in every if isinstance(one, Placement) and one.special is not None]:
            writer.draw_names(kind(CLAIMS), [(pod.metadata.namespace, generate_name(pod)) for pod in special])
        written = list[Verdict | Gone]()
        for verdict in verdicts:
            written += batch.write_group(verdict) if isinstance(verdict, GroupVerdict) else [batch.write(verdict)]
        settled = [*gone, *_retry_what_came_free(decided, written)]
        queue.settle(settled, revision=revision, now=now, arrivals=arrivals, stored=writer.beside[: len(taking_over)])
    state.absorb(writer.written)
    if arrivals is not None:
        state.fed = arrivals.reached
    return settled


def _retry_what_came_free(
    verdicts: Iterable[AnyVerdict], written: Iterable[Verdict | Gone]
) -> Iterator[Verdict | Gone]:
    """`written`; but where a pod does not get what was assumed to be its own, those to which that was refused later in
    the batch are tried again at once: no event will tell of it. Not those of its own group, which it would bring along,
    nor those that had a place and are refused it by the commit: either would never end.
    """
    came_free, left = False, iter(written)
    for verdict in verdicts:
        pairs = [(before, next(left)) for before in singles([verdict])]
        for before, after in pairs:
            short = isinstance(after, Wait) and after.until is None and bool(after.hold.reasons & ASSUMED)
            if came_free and isinstance(before, Wait) and short:
                yield Retry(pod=before.pod, untried=True)  # without a backoff, however often it was tried before
            else:
                yield after
        came_free = came_free or any(_lets_go(before, after) for before, after in pairs)


def _lets_go(before: Verdict, after: Verdict | Gone) -> bool:
    """Whether the pod does not get what was assumed to be its own."""
    if isinstance(before, Placement):
        binds = isinstance(after, Placement) or (isinstance(after, Wait) and Reason.BINDING in after.hold.reasons)
        return not binds
    return isinstance(before, Wait) and before.keeps_room and not isinstance(after, Wait)


def _reads(state: ClusterState, verdicts: Sequence[Verdict], groups: Sequence[Key]) -> Wanted:
    """Every object that the batch needs, to be read at once; the namespaces are for the writer's rules."""
    placements = [verdict for verdict in verdicts if isinstance(verdict, Placement)]
    waits = [verdict for verdict in verdicts if isinstance(verdict, Wait)]
    pods = [verdict.pod.key for verdict in verdicts] + [pod.key for wait in waits for pod in wait.withdrawn]
    victims = (one for wait in waits if wait.eviction is not None for one in wait.eviction.victims)
    claims = [claim.key for one in placements for claim in one.claims if claim.metadata.name != IN_MEMORY]
    claims += [one.outdated.key for one in placements if one.outdated is not None]
    if state.planned is not None:  # their names are to be free
        claims += [one.claim.key for wait in waits for one in state.planned.of(wait.uid)]
    return to_read(
        (kind(PODS), [*pods, *((victim.namespace, victim.name) for victim in victims)]),
        (kind(CLAIMS), claims),
        (kind(EVENTS), [event_recorder.key_of(note) for note in map(_note, verdicts) if note is not None]),
        (kind(POD_GROUPS), groups),
        (kind(NAMESPACES), [("", verdict.pod.metadata.namespace) for verdict in verdicts]),
    )


def _devices_given(verdicts: Iterable[Verdict]) -> Collection[DeviceKey]:
    """Those that the verdicts give as a whole."""
    given = (one for verdict in verdicts if isinstance(verdict, Placement) for one in verdict.allocations.values())
    return {
        (result.driver, result.pool, result.device, node_of(allocation))
        for allocation in given
        for result in allocation.devices.results
        if not result.admin_access and not result.share_id
    }


def allocation_time(now: datetime) -> str | None:
    """The allocationTimestamp of new allocations."""
    return timestamp(now) if gates.enabled("DRADeviceBindingConditions") else None


def allocated(claim: ResourceClaim, allocation: AllocationResult, at: str | None) -> ResourceClaim:
    """`claim`, as it is now, with its allocation and its finalizer. Raises: Conflict where it has an allocation."""
    if claim.status.allocation is not None:
        raise Conflict.of(CLAIMS, claim.metadata.name, "the claim was allocated elsewhere in the meantime")
    finalizers, driver = {DELETE_PROTECTION: None}, ""
    if allocation.resource_handles:  # by structured parameters
        finalizers[STRUCTURED_FINALIZER], driver = None, allocation.resource_handles[0].driver_name
    if at is not None:
        allocation = structs.replace(allocation, allocation_timestamp=at)
    protected = tuple(dict.fromkeys((*claim.metadata.finalizers, *finalizers)))
    return structs.replace(
        claim,
        metadata=structs.replace(claim.metadata, finalizers=protected),
        status=structs.replace(claim.status, allocation=allocation, driver_name=driver),
    )


class _Batch:
    """The verdicts of one transaction. The state is the one that the transaction sees."""

    def __init__(self, state: ClusterState, writer: Writer, now: datetime) -> None:
        self._state = state
        self._writer = writer
        self._now = now

    def write_group(self, group: GroupVerdict) -> list[Verdict | Gone]:
        return write_together(group, self.write, self._part, state=self._state, writer=self._writer, now=self._now)

    def write(self, verdict: Verdict, *, refusals: int = 0) -> Verdict | Gone:
        """One verdict alone: where it fails, it is undone alone.

        refusals: how often what was to be written for the pod was refused before, each time with another verdict.
        """
        if isinstance(verdict, Retry):
            return verdict
        with about(verdict.pod):
            if (pod := self._waiting(verdict.pod)) is None:
                return Gone(uid=verdict.uid)
            try:
                with self._writer.savepoint():
                    return self._carry_out(pod, verdict)
            except ApiError as error:
                if is_refused(error) and refusals < MOST_REFUSALS:
                    return self.write(refusal_by(verdict.pod, error), refusals=refusals + 1)
                return Retry(pod=pod, cause=Interrupted(error.message), at_once=isinstance(error, Conflict))
            except Error:
                raise  # the transaction is broken, for all of the batch
            except Exception as error:
                log.exception("pod %s cannot be committed; it will be retried after a backoff", "/".join(pod.key))
                return Retry(pod=pod, cause=Interrupted(f"internal error: {error}"), broken=True)

    def _part(self, verdict: Verdict) -> Verdict | Gone:
        """One verdict of several that are written together. Raises: ApiError."""
        if isinstance(verdict, Retry):
            return verdict
        with about(verdict.pod):
            pod = self._waiting(verdict.pod)
            return Gone(uid=verdict.uid) if pod is None else self._carry_out(pod, verdict)

    def _waiting(self, decided: Pod) -> Pod | None:
        """The current version of the pod; None where it needs no node any more."""
        pod = self._read(PODS, Pod, decided)
        return None if pod is None or pod.spec.node_name or is_done(pod) else pod

    def _carry_out(self, pod: Pod, verdict: Placement | Wait) -> Verdict:
        return self._bind(pod, verdict) if isinstance(verdict, Placement) else self._refuse(pod, verdict)

    def _with_claims(self, pod: Pod, verdict: Placement | Wait) -> Pod:
        """`pod`, with the claims made that were planned for the verdict: the controller's writes, by its name.

        Raises: Conflict where it lacks others by now; ClaimsNotMade.
        """
        named = set(verdict.pod.status.resource_claim_statuses).difference(pod.status.resource_claim_statuses)
        is_left = isinstance(verdict, Wait) and Reason.CLAIM_MISSING in verdict.hold.reasons
        if not named or is_left or self._state.planned is None:
            return pod
        uid, planned = pod.metadata.uid, self._state.planned.of(pod.metadata.uid)
        if self._state.planned.could_not_be_made(uid):
            raise ClaimsNotMade("a claim was refused", min(one.name for one in named))
        if named != {one.status for one in planned}:
            raise Conflict.of(PODS, pod.metadata.name, "its claims have changed in the meantime")
        with self._writer.savepoint(identity=generated_claims.IDENTITY) as writer:
            for one in planned:
                try:
                    generated_claims.create(writer, one.claim)
                except ApiError as error:
                    self._state.leave_claims(uid)
                    raise ClaimsNotMade(error.message, one.entry.name) from error
            status = structs.replace(
                pod.status, resource_claim_statuses=with_names(pod, (one.status for one in planned))
            )
            return cast("Pod", writer.update(kind(PODS), structs.replace(pod, status=status), subresource="status"))

    def _read(self, resource: str, type_: type[ObjectT], decided: ObjectT) -> ObjectT | None:
        """The current version of `decided`; None when it is gone, or another object has its name."""
        current = self._writer.get(kind(resource), *decided.key)
        if not isinstance(current, type_) or current.metadata.uid != decided.metadata.uid:
            return None
        return current

    def _bind(self, pod: Pod, placement: Placement) -> Placement | Wait:
        """PreBind; then Bind, if no device is still to be attached.

        Raises: Conflict when the placement does not hold any more.
        """
        with PluginRun("PreBind", "DynamicResources"):
            self._check(pod, placement)
            pod = self._with_claims(pod, placement)
            _write_negotiations(self._writer, (one for one in placement.writes if one.after is not None))
            claims = [self._bind_claim(claim, placement) for claim in placement.claims]
            if placement.outdated is not None:
                extended_resources.give_back(self._writer, placement.outdated)
            if placement.special is not None or placement.outdated is not None:
                pod = extended_resources.with_claim(pod, placement, claims)
        if awaited := [claim for claim in claims if not readiness.is_ready_to_bind(claim)]:
            return self._nominate(pod, placement, awaited)
        bound = scheduled(charged_as(placement.pod, pod), placement.node, timestamp(self._now))
        self._writer.update(kind(PODS), bound, subresource="binding")
        _write_negotiations(self._writer, (one for one in placement.writes if one.after is None))
        self._record_event(bound, placement)
        binding_ended(claims, "success", self._now)
        return placement

    def _nominate(self, pod: Pod, placement: Placement, awaited: Sequence[ResourceClaim]) -> Wait:
        """The pod has its devices and is bound once they are attached."""
        pod = charged_as(placement.pod, nominated(pod, placement.node))
        self._writer.update(kind(PODS), pod, subresource="status")
        hold = readiness.awaiting_binding(pod, placement.node, awaited)
        note = EventNote(
            regarding=pod,
            reason="BindingConditionsPending",
            message=messages.message(cast("AnyCause", hold.cause)),
            component=messages.SCHEDULER_NAME,
        )
        event_recorder.record(self._writer, note, now=self._now)
        return Wait(pod=pod, hold=hold, until=readiness.earliest_deadline(awaited, binding_timeout()))

    def _check(self, pod: Pod, placement: Placement) -> None:
        state, name = self._state, pod.metadata.name
        if pod.metadata.generation != placement.pod.metadata.generation or pod.metadata.deletion_timestamp is not None:
            raise Conflict.of(PODS, name)
        if why := state.devices.staleness(placement):
            raise Conflict.of(PODS, name, why)
        state.rooms.yield_to(pod.spec.priority or 0)
        if placement.node in state.devices.drift.nodes and not state.nodes.fits(placement.pod, placement.node):
            raise Conflict.of(PODS, name, f"node {placement.node} has changed")
        if uses_volume_claims(pod):
            held = state.nodes.volumes.hold(placement.pod)
            if held is not None or not state.nodes.fits(placement.pod, placement.node):
                raise Conflict.of(PODS, name, "its volumes have changed")
        drift = state.devices.drift
        if drift.rules or placement.node in drift.nodes or pod.metadata.uid in drift.special:
            extended = state.extended(placement.pod)
            if placement.special is not None or extended is not None:
                extended_resources.check(state, placement, extended)

    def _bind_claim(self, decided: ResourceClaim, placement: Placement) -> ResourceClaim:
        """Write the allocation and the reservation of a claim of the placement; returns it as written."""
        name, allocation = decided.metadata.name, placement.allocations.get(decided.metadata.uid)
        at = allocation_time(self._now)
        if name == IN_MEMORY:  # for the pod's extended resources
            if allocation is None:
                raise Conflict.of(CLAIMS, decided.metadata.generate_name, "nothing was allocated for it")
            given = reserved(allocated(decided, allocation, at), placement.pod, placement.group)
            return extended_resources.make(self._writer, decided, given)
        claim = self._read(CLAIMS, ResourceClaim, decided)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            raise Conflict.of(CLAIMS, name, "the claim was deleted in the meantime")
        if allocation is not None:
            claim = allocated(claim, allocation, at)
        elif not _keeps_allocation(claim, decided):
            raise Conflict.of(CLAIMS, name, "the claim was deallocated in the meantime")
        following = reserved(claim, placement.pod, placement.group)
        if following is not claim and not can_be_reserved(claim):
            raise Conflict.of(CLAIMS, name, messages.CLAIM_IN_USE)
        self._writer.update(kind(CLAIMS), following)
        return following

    def _refuse(self, pod: Pod, refusal: Wait) -> Wait | Retry:
        """pod: as it is now."""
        pod = self._with_claims(pod, refusal)
        if refusal.writes_nothing:
            return replace(refusal, pod=pod)
        _write_negotiations(self._writer, refusal.writes)
        if refusal.eviction is not None:
            self._make_room(pod, refusal.pod, refusal.eviction)
        for other in refusal.withdrawn:
            withdraw_nomination(self._writer, other)
        written = not_scheduled(pod, reason=refusal.condition, message=refusal.message, now=timestamp(self._now))
        if any(map(owner_uid, (*refusal.deallocate, *refusal.given_up))):
            written = extended_resources.without_claim(written)
        self._writer.update(kind(PODS), nominated(written, refusal.nominate), subresource="status")
        self._record_event(pod, refusal)
        freed = [self._deallocate(claim, pod) for claim in refusal.deallocate]
        freed += [self._give_up(claim, pod) for claim in refusal.given_up]
        if any(freed) or refusal.again:
            return Retry(pod=pod, cause=refusal.hold.cause)
        return replace(refusal, pod=pod, until=self._now + NOMINATED_FOR if refusal.nominate else None)

    def _make_room(self, pod: Pod, decided: Pod, eviction: PlannedEviction) -> None:
        """Evict the pods in the way of `pod`. decided: the pod as the verdict has it.

        Raises: Conflict when that would not help, or is not needed, any more.
        """
        state = self._state
        with state.overlay.trying(decided):
            request = request_of(state, decided)
            helps = not isinstance(request, Hold) and still_helps(state, request, eviction, self._now)
        if not helps or pod.metadata.deletion_timestamp is not None:
            raise Conflict.of(PODS, pod.metadata.name, "the pods in its way have changed")
        PreemptionEvictions(self._writer, preemptor=pod, node=eviction.node, now=self._now).evict(eviction.victims)
        for room in state.rooms.on(eviction.node):
            if room.priority < (pod.spec.priority or 0):
                withdraw_nomination(self._writer, room.pod)

    def _deallocate(self, decided: ResourceClaim, pod: Pod) -> bool:
        """Free an allocation that is in the pod's way, unless it is in use by now. Returns whether it was freed."""
        claim = self._read(CLAIMS, ResourceClaim, decided)
        if claim is None or claim.status.allocation is None:
            return False
        if not self._state.is_idle_but_for(pod, claim):
            return False
        if owner_uid(claim):
            extended_resources.give_back(self._writer, claim)
        else:
            self._writer.update(kind(CLAIMS), deallocated(claim))
        return True

    def _give_up(self, decided: ResourceClaim, pod: Pod) -> bool:
        """Free devices that could not be attached; where pods run with the claim, only the pod's reservation of it."""
        claim = self._read(CLAIMS, ResourceClaim, decided)
        if claim is None:
            return False
        if claim.status.allocation is None:
            return True  # another pod that waited for them came first
        if not readiness.binding_failures(pod, [claim], now=self._now, timeout=binding_timeout()):
            return False
        if owner_uid(claim):
            extended_resources.give_back(self._writer, claim)
        elif self._state.is_in_use(claim):
            self._writer.update(kind(CLAIMS), not_reserved(claim, pod.metadata.uid))
        else:
            self._writer.update(kind(CLAIMS), deallocated(claim))
        return True

    def _record_event(self, pod: Pod, verdict: Verdict) -> None:
        if (note := _note(verdict)) is not None:
            event_recorder.record(self._writer, replace(note, regarding=pod), now=self._now)


def _note(verdict: Verdict) -> EventNote | None:
    """The event about `verdict`; None for a gated pod, which is not refused anything, and where nothing is new."""
    pod, component = verdict.pod, messages.SCHEDULER_NAME
    if isinstance(verdict, Placement):
        message = messages.assigned(f"{pod.metadata.namespace}/{pod.metadata.name}", verdict.node)
        return EventNote(regarding=pod, reason="Scheduled", message=message, component=component, placement=verdict.why)
    if isinstance(verdict, Retry) or verdict.condition == SCHEDULING_GATED or verdict.writes_nothing:
        return None
    return EventNote(
        regarding=pod,
        type="Warning",
        reason="FailedScheduling",
        message=verdict.message,
        component=component,
        cause=verdict.hold.cause,
    )


def _keeps_allocation(claim: ResourceClaim, decided: ResourceClaim) -> bool:
    """Whether `claim` has the devices that it had, at whatever time they were allocated."""
    has, had = claim.status.allocation, decided.status.allocation
    if has is None or had is None:
        return False
    return structs.replace(has, allocation_timestamp=had.allocation_timestamp) == had


def _write_negotiations(writer: Writer, writes: Iterable[NegotiationWrite]) -> None:
    """Raises: Conflict where another writer has changed, created or deleted an object since the verdict."""
    for write in writes:
        before, after, resource = write.before, write.after, kind(write.resource)
        meta = cast("ApiObject", before or after).metadata
        key = meta.namespace, meta.name
        current = writer.get(resource, *key)
        if after is None:
            if current is not None and current.metadata.uid == meta.uid:
                writer.delete(resource, *key, uid=meta.uid)
        elif _version(current) != _version(before):
            raise Conflict.of(write.resource, meta.name, "it has changed in the meantime")
        elif before is None:
            writer.create(resource, after)
        else:
            writer.update(resource, after, subresource=write.subresource)


def _version(obj: ApiObject | None) -> tuple[str, str] | None:
    return None if obj is None else (obj.metadata.uid, obj.metadata.resource_version)


# Metrics and traces of the attempts -----------------------------------------------------------------------------------


Result = Literal["scheduled", "unschedulable", "error"]
#: More attempts than this share one label (upstream: getAttemptsLabel).
MOST_LABELS = 15


class Attempts:
    """The attempts of one cycle, for metrics and traces."""

    def __init__(self, pods: Sequence[ReadyPod]) -> None:
        self._pods: Mapping[str, ReadyPod] = {pod.uid: pod for pod in pods}
        self._searched: dict[str, float] = {}
        #: for traces: when the search for a pod ended, in POSIX seconds
        self._search_ended: dict[str, float] = {}

    def decided(self, verdicts: Sequence[AnyVerdict], seconds: float) -> set[str]:
        """The verdicts of one search, and its duration. Returns the uids of their pods."""
        every = singles(verdicts)
        searched = {one.pod.metadata.uid for one in every if not isinstance(one, Retry) or one.untried}
        for uid in searched:
            self._searched[uid] = seconds / len(searched)
            if traces.recorder.value:
                self._search_ended[uid] = time.time()
            metrics.ALGORITHM.observe(seconds / len(searched))
        return {one.pod.metadata.uid for one in every}

    def ended(self, settled: Iterable[Verdict | Gone], *, committing: float, now: datetime) -> None:
        """committing: seconds of the commit of all of them; each counts its part."""
        share = committing / max(1, len(self._pods))
        for verdict in settled:
            result = result_of(verdict)
            if result is None:
                continue
            metrics.ATTEMPTS[(result, metrics.PROFILE)].inc()
            uid = verdict.uid
            metrics.ATTEMPT_DURATIONS[(result, metrics.PROFILE)].observe(self._searched.get(uid, 0.0) + share)
            pod = self._pods.get(uid)
            if result == "scheduled" and pod is not None:
                attempts = pod.attempts + 1
                metrics.POD_ATTEMPTS.observe(attempts)
                label = str(attempts) if attempts < MOST_LABELS else f"{MOST_LABELS}+"
                metrics.POD_DURATIONS[label].observe(max(0.0, (now - pod.ready_since).total_seconds()))
                if pod.flushed:
                    metrics.AFTER_FLUSH.inc()
            if traces.recorder.value and pod is not None:
                self._trace(pod, result, committing)

    def _trace(self, pod: ReadyPod, result: Result, committing: float) -> None:
        """What the pod waited for first, its search, and the commit of the batch, which ended just now."""
        uid, bound = pod.uid, time.time()
        searched = self._search_ended.get(uid, bound)
        began = searched - self._searched.get(uid, 0.0)
        if not pod.attempts:
            traces.tell(uid, "queue", began=pod.ready_since.timestamp(), ended=began)
        error = "" if result == "scheduled" else result
        traces.tell(
            uid, "schedule", began=began, ended=searched, error=error, attributes={"manciple.attempt": pod.attempts + 1}
        )
        if result == "scheduled":
            traces.tell(
                uid, "bind", began=bound - committing, ended=bound, attributes={"manciple.pods": len(self._pods)}
            )


def result_of(verdict: Verdict | Gone) -> Result | None:
    """None where it was no attempt: the pod was gone, was not tried, or waits for what it has already."""
    match verdict:
        case Placement():
            return "scheduled"
        case Wait(hold=hold):
            if verdict.silent or hold.reasons & (Reason.BINDING | Reason.GATED):
                return None
            return "error" if hold.reasons & Reason.ERROR else "unschedulable"
        case Retry(untried=False, at_once=at_once):
            return "unschedulable" if at_once else "error"
        case _:
            return None


def binding_timeout() -> timedelta:
    """How long a pod waits for its devices to be attached."""
    return timedelta(seconds=settings.SCHEDULER_BINDING_TIMEOUT)


def binding_ended(
    claims: Iterable[ResourceClaim], status: Literal["success", "failure", "timeout"], now: datetime
) -> None:
    """The wait of these claims for their devices to be attached is over; of claims that did not wait, nothing."""
    for claim in claims:
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        drivers = {result.driver for result in results if result.binding_conditions}
        began = allocation.allocation_timestamp if allocation is not None else None
        for driver in drivers:
            metrics.BINDING_ALLOCATIONS[(driver, status, metrics.PROFILE)].inc()
            if began is not None:
                waited = (now - datetime.fromisoformat(began)).total_seconds()
                metrics.BINDING_WAITS[(driver, status, metrics.PROFILE)].observe(max(0.0, waited))
