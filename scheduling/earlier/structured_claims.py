"""Claims with structured parameters, the first draft of KEP-4381: the scheduler allocates what vendors describe.

NodeResourceSlices become ordinary pools, and a claim of a class with structured parameters is read as an ordinary
claim (`seen`), so the allocator treats both like any others. The allocation gets the draft's handles before it is
committed (`placed`). A claim whose class or parameters do not exist yet holds its pod.

Claims of the mode Immediate are allocated without a pod, on any node that takes pods, and stay allocated
(`claims.pod_claims.stays_allocated`); an event of a claim says what it waits for. That is done in the turn of the
scheduler, on its state, and checked again in the transaction of the write, so no device is given twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, cast

from claims import event_recorder
from claims.causes import messages
from claims.causes.causes import AnyCause, NoNodeFits, ParametersMissing
from claims.drafts.structured.parameters import KnownParameters, Resolved, Unresolved
from claims.drafts.structured.translation import EVERY_DEVICE, asked_for, with_handles
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import IMMEDIATE, ResourceClaim
from inventory.classic.values import ResourceClaimParameters, ResourceClass, ResourceClassParameters
from inventory.drafts.structured.publishing import NodeResources, with_instances
from inventory.drafts.structured.values import NodeResourceSlice
from inventory.kinds import gates
from inventory.kinds.devices import ResourceSlice
from manciple.controllers import coordination
from manciple.controllers.declaration import Controller
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.objects import Writer, to_read
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.identity import SCHEDULER
from manciple.wire.resources import (
    ADDED,
    CLAIM_PARAMETERS,
    CLAIMS,
    CLASS_PARAMETERS,
    CLASSES,
    DELETED,
    EVENTS,
    MODIFIED,
    NODE_SLICES,
    RESOURCE_CLASSES,
    SLICES,
    Key,
    kind,
)
from scheduling.allocator import Allocated, Deadline, Unallocatable, overall, place
from scheduling.claims.readiness import given_to
from scheduling.cycle import scheduler
from scheduling.cycle.commit import allocated, allocation_time
from scheduling.queue.hints import About, Wake, always, resource_class_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Placement
from scheduling.state.cluster import ClusterState
from scheduling.state.extensions import Extension

AnyParameters = ResourceClass | ResourceClaimParameters | ResourceClassParameters


# Queueing hints -------------------------------------------------------------------------------------------------------


def parameters_key(namespace: str) -> str:
    """What a pod awaits when it waits for parameters of a claim in the namespace; "" for those of classes."""
    return f"parameters:{namespace}"


def _class_written(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLASS_MISSING | Reason.NEGOTIATION, key=resource_class_key(about.name))
    yield Wake(reasons=Reason.DEVICES | Reason.ERROR)


def _claim_parameters_written(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLASS_MISSING, key=parameters_key(about.namespace))
    yield Wake(reasons=Reason.DEVICES | Reason.ERROR)


def _class_parameters_written(_about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLASS_MISSING, key=parameters_key(""))
    yield Wake(reasons=Reason.DEVICES | Reason.ERROR)


_DEVICES_CHANGED = always(Reason.DEVICES | Reason.ERROR)


# The extension of the scheduler ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class StructuredClaims(Extension):
    """The parameters of claims and classes, and the resources of nodes, which become pools of `devices`."""

    follows: ClassVar = (NODE_SLICES, SLICES, RESOURCE_CLASSES, CLASS_PARAMETERS, CLAIM_PARAMETERS)
    wakes: ClassVar = {
        **{(NODE_SLICES, change): _DEVICES_CHANGED for change in (ADDED, MODIFIED, DELETED)},
        **{(RESOURCE_CLASSES, change): _class_written for change in (ADDED, MODIFIED)},
        **{(CLAIM_PARAMETERS, change): _claim_parameters_written for change in (ADDED, MODIFIED, DELETED)},
        **{(CLASS_PARAMETERS, change): _class_parameters_written for change in (ADDED, MODIFIED, DELETED)},
    }
    provides: ClassVar = ((CLASSES, EVERY_DEVICE),)

    parameters: KnownParameters = field(default_factory=KnownParameters)
    resources: NodeResources = field(default_factory=NodeResources)

    def put(self, obj: ResourceSlice | NodeResourceSlice | AnyParameters) -> None:
        if isinstance(obj, ResourceSlice):
            self.parameters.put_slice(obj)
            if (pool := with_instances(obj)) is not obj:
                self._publish((pool,))
        elif isinstance(obj, NodeResourceSlice):
            self._publish(self.resources.put(obj))
        else:
            self.parameters.put(obj)
            self.devices.put(obj)

    def remove(self, obj: ResourceSlice | NodeResourceSlice | AnyParameters) -> None:
        if isinstance(obj, ResourceSlice):
            self.parameters.remove_slice(obj)
        elif isinstance(obj, NodeResourceSlice):
            self._publish(self.resources.remove(obj))
        else:
            self.parameters.remove(obj)
            self.devices.remove(obj)

    def _publish(self, pools: Iterable[ResourceSlice]) -> None:
        """An empty pool means that it was removed."""
        for pool in pools:
            if pool.spec.devices:
                self.devices.put(pool)
            else:
                self.devices.remove(pool)

    def seen(self, claim: ResourceClaim) -> ResourceClaim:
        """The same value for other claims, and for those that cannot be read yet."""
        if not self._is_pending(claim):
            return claim
        readable = self._as_readable(claim)
        return claim if isinstance(readable, Unresolved) else readable

    def hold(self, claims: Sequence[ResourceClaim]) -> Hold | None:
        """One of the claims cannot be read yet."""
        for claim in claims:
            if self._is_pending(claim) and isinstance(unresolved := self._as_readable(claim), Unresolved):
                class_name, namespace = claim.spec.resource_class_name, claim.metadata.namespace
                awaited = {parameters_key(namespace), parameters_key(""), resource_class_key(class_name)}
                cause = ParametersMissing(name=claim.metadata.name, detail=unresolved.message)
                return Hold(reasons=Reason.CLASS_MISSING, awaited=frozenset(awaited), cause=cause)
        return None

    def placed(self, placement: Placement) -> Placement:
        """With handles for the drivers of those of its claims that are allocated now."""
        allocations = dict(placement.allocations)
        for claim in placement.claims:
            uid = claim.metadata.uid
            if uid in allocations and self.is_structured(claim):
                resolved = self.parameters.resolve(claim)
                if not isinstance(resolved, Unresolved):
                    allocations[uid] = with_handles(allocations[uid], resolved, placement.node)
        return placement if allocations == placement.allocations else replace(placement, allocations=allocations)

    def is_structured(self, claim: ResourceClaim) -> bool:
        return bool(claim.spec.resource_class_name) and self.parameters.is_structured(claim)

    def is_immediate(self, claim: ResourceClaim) -> bool:
        """Whether it has to be allocated without a pod."""
        meta, status = claim.metadata, claim.status
        is_due = claim.spec.allocation_mode == IMMEDIATE and status.allocation is None
        return is_due and meta.deletion_timestamp is None and self.is_structured(claim)

    def _is_pending(self, claim: ResourceClaim) -> bool:
        """Whether it waits for an allocation, from the scheduler or from a controller that does not run."""
        name = claim.spec.resource_class_name
        if claim.status.allocation is not None or not name:
            return False
        return (
            self.is_structured(claim)
            or name not in self.parameters.classes
            or not gates.enabled(gates.CONTROL_PLANE_CONTROLLER)
        )

    def _as_readable(self, claim: ResourceClaim) -> ResourceClaim | Unresolved:
        resolved = self.parameters.resolve(claim)
        if isinstance(resolved, Resolved) and not resolved.claim_class.structured_parameters:
            name = claim.spec.resource_class_name
            return Unresolved(
                f"resource class {name} has no structuredParameters, and {gates.CONTROL_PLANE_CONTROLLER} is off"
            )
        return resolved if isinstance(resolved, Unresolved) else asked_for(claim, resolved)


# Immediate claims -----------------------------------------------------------------------------------------------------

#: Claims in one turn, so that pods do not wait for long.
MOST = 100
#: Seconds for one of them, and for all before the rest is left for the next turn.
CLAIM_SECONDS, TURN_SECONDS = 0.25, 0.5
#: Claim uid -> the message of its last attempt; the claims tried longest ago come first.
_last_messages = PerProcess(dict[str, str])


def reconcile(now: datetime) -> int:
    """Returns how many claims were allocated."""
    return scheduler.worker.value.in_turn(partial(allocate, now=now)) or 0


def allocate(state: ClusterState, now: datetime) -> int:
    """The same on the caller's state: new claims first, the oldest of them first, then those tried longest ago."""
    structured = next(part for part in state.extensions if isinstance(part, StructuredClaims))
    immediate = sorted(filter(structured.is_immediate, state.claims.values()), key=_age)
    waiting = {claim.metadata.uid: structured.seen(claim) for claim in immediate}
    last_messages = _last_messages.value
    for uid in last_messages.keys() - waiting.keys():
        del last_messages[uid]
    turns = (*(uid for uid in waiting if uid not in last_messages), *last_messages)
    count, deadline = 0, Deadline.after(TURN_SECONDS)
    for uid in turns[:MOST]:
        count += _allocate(state, structured, waiting[uid], now)
        if deadline.has_passed:
            break
    return count


def _age(claim: ResourceClaim) -> tuple[str, Key]:
    return claim.metadata.creation_timestamp or "", claim.key


def _allocate(state: ClusterState, structured: StructuredClaims, claim: ResourceClaim, now: datetime) -> bool:
    """claim: as the allocator reads it."""
    state.begin()
    verdict = _decide(state, structured, claim)
    message = "" if isinstance(verdict, Placement) else messages.message(verdict)
    last_message = _last_messages.value.pop(claim.metadata.uid, "")
    _last_messages.value[claim.metadata.uid] = message
    if not isinstance(verdict, Placement) and message == last_message:
        return False
    try:
        with objects.writing(identity=SCHEDULER, reads=to_read((kind(CLAIMS), [claim.key]))) as writer:
            state.advance()
            _write(writer, state, claim, verdict, now)
    except ApiError:
        return False  # the cluster has changed, or a quota is used up: the next turn decides again
    state.absorb(writer.written)
    return isinstance(verdict, Placement)


def _write(
    writer: Writer, state: ClusterState, claim: ResourceClaim, verdict: Placement | AnyCause, now: datetime
) -> None:
    """Raises: ApiError if the verdict does not hold any more."""
    current = cast("ResourceClaim | None", writer.get(kind(CLAIMS), *claim.key))
    if current is None or current.metadata.uid != claim.metadata.uid:
        raise NotFound.of(CLAIMS, claim.metadata.name)
    if not isinstance(verdict, Placement):
        note = EventNote(
            regarding=current,
            type="Warning",
            reason="AllocationPending",
            message=f"not allocated yet: {messages.message(verdict)}",
            component=messages.SCHEDULER_NAME,
            cause=verdict,
        )
        writer.load(kind(EVENTS), [event_recorder.key_of(note)])
        event_recorder.record(writer, note, now=now)
        return
    if why := state.devices.staleness(verdict):
        raise Conflict.of(CLAIMS, claim.metadata.name, why)
    writer.update(kind(CLAIMS), allocated(current, verdict.allocations[claim.metadata.uid], allocation_time(now)))


def _decide(state: ClusterState, structured: StructuredClaims, claim: ResourceClaim) -> Placement | AnyCause:
    """A placement on any node that takes pods, or why there is none."""
    hold = structured.hold([claim])
    if hold is not None and hold.cause is not None:
        return hold.cause
    no_pod = Pod()
    nodes = state.nodes.filter(no_pod).fitting
    placed = place(state.snapshot(), [claim], nodes, deadline=Deadline.after(CLAIM_SECONDS))
    if not isinstance(placed.outcome, Allocated) or placed.node is None:
        refusals = [refusal for refusal in placed.refusals.values() if isinstance(refusal, Unallocatable)]
        return NoNodeFits(nodes=len(nodes), because=overall(refusals))
    allocations = given_to([claim], placed.outcome)
    return structured.placed(Placement(pod=no_pod, node=placed.node.name, claims=(claim,), allocations=allocations))


CONTROLLER = Controller(
    name="allocate_immediately",
    does="allocates claims with structured parameters and the mode Immediate, without a pod",
    in_mirror=False,
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset(
        (resource, change)
        for resource in (CLAIMS, CLAIM_PARAMETERS, CLASS_PARAMETERS, RESOURCE_CLASSES, NODE_SLICES)
        for change in ((ADDED,) if resource == CLAIMS else (ADDED, MODIFIED))
    ),
    gate=gates.STRUCTURED_PARAMETERS_DRAFT,
    also_locks=coordination.TURN,
)
