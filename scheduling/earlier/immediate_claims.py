"""Allocates claims with structured parameters and the mode Immediate: without a pod, on any node that takes pods.

They wait until their parameters are there and some node has what they ask for; an event says what for. Who is allocated
so stays allocated (`claims.pod_claims.stays_allocated`), and pods go where it is.

It works in the turn of who places pods, on the same state, and decides again in the transaction in which it writes; so
no device is given twice, and no pod is told what does not hold.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import cast

from claims import event_recorder
from claims.causes import messages
from claims.causes.causes import AnyCause, NoNodeFits
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds import gates
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
    EVENTS,
    MODIFIED,
    NODE_SLICES,
    RESOURCE_CLASSES,
    kind,
)
from scheduling.allocator import Allocated, Deadline, Unallocatable, overall, place
from scheduling.claims.readiness import given_to
from scheduling.cycle import scheduler
from scheduling.cycle.commit import allocated, allocation_time
from scheduling.queue.verdicts import Placement
from scheduling.state.cluster import ClusterState

#: Claims in one turn, so that pods do not wait for long.
MOST = 100
#: Seconds for one of them, and for all before the rest is left for the next turn.
CLAIM_SECONDS, TURN_SECONDS = 0.25, 0.5
#: Claim uid -> the message of its last attempt; the claims tried longest ago come first.
_last_messages = PerProcess(dict[str, str])


def reconcile(now: datetime) -> int:
    """Returns how many claims were allocated."""
    return scheduler.worker().in_turn(partial(allocate, now=now)) or 0


def allocate(state: ClusterState, now: datetime) -> int:
    """The same on a state that is the caller's. Those come first that were not looked at for longest."""
    waiting = {claim.metadata.uid: claim for claim in state.waiting_for_nobody()}
    last_messages = _last_messages()
    for uid in last_messages.keys() - waiting.keys():
        del last_messages[uid]
    turns = (*(uid for uid in waiting if uid not in last_messages), *last_messages)
    count, deadline = 0, Deadline.after(TURN_SECONDS)
    for uid in turns[:MOST]:
        count += _allocate(state, waiting[uid], now)
        if deadline.has_passed:
            break
    return count


def _allocate(state: ClusterState, claim: ResourceClaim, now: datetime) -> bool:
    """claim: as the allocator reads it."""
    state.begin()
    found = _decide(state, claim)
    message = "" if isinstance(found, Placement) else messages.message(found)
    last_message = _last_messages().pop(claim.metadata.uid, "")
    _last_messages()[claim.metadata.uid] = message
    if not isinstance(found, Placement) and message == last_message:
        return False
    try:
        with objects.writing(identity=SCHEDULER, reads=to_read((kind(CLAIMS), [claim.key]))) as writer:
            state.advance()
            _write(writer, state, claim, found, now)
    except ApiError:
        return False  # what was decided does not hold any more, or a quota is used up: the next turn sees what is then
    state.absorb(writer.written)
    return isinstance(found, Placement)


def _write(
    writer: Writer, state: ClusterState, claim: ResourceClaim, found: Placement | AnyCause, now: datetime
) -> None:
    """Raises: ApiError where it does not hold any more."""
    current = cast("ResourceClaim | None", writer.get(kind(CLAIMS), *claim.key))
    if current is None or current.metadata.uid != claim.metadata.uid:
        raise NotFound.of(CLAIMS, claim.metadata.name)
    if not isinstance(found, Placement):
        note = _note(current, found)
        writer.load(kind(EVENTS), [event_recorder.key_of(note)])
        event_recorder.record(writer, note, now=now)
        return
    if why := state.devices.staleness(found):
        raise Conflict.of(CLAIMS, claim.metadata.name, why)
    writer.update(kind(CLAIMS), allocated(current, found.allocations[claim.metadata.uid], allocation_time(now)))


def _decide(state: ClusterState, claim: ResourceClaim) -> Placement | AnyCause:
    """Where it is allocated, on any node that takes pods, or why it is not."""
    hold = state.structured.hold([claim]) if state.structured is not None else None
    if hold is not None and hold.cause is not None:
        return hold.cause
    nobody = Pod()
    nodes = state.nodes.filter(nobody).fitting
    found = place(state.snapshot(), [claim], nodes, deadline=Deadline.after(CLAIM_SECONDS))
    if not isinstance(found.outcome, Allocated) or found.node is None or state.structured is None:
        refusals = [one for one in found.refusals.values() if isinstance(one, Unallocatable)]
        return NoNodeFits(nodes=len(nodes), because=overall(refusals))
    given = given_to([claim], found.outcome)
    return state.structured.told(Placement(pod=nobody, node=found.node.name, claims=(claim,), allocations=given))


def _note(claim: ResourceClaim, cause: AnyCause) -> EventNote:
    return EventNote(
        regarding=claim,
        type="Warning",
        reason="AllocationPending",
        message=f"not allocated yet: {messages.message(cause)}",
        component=messages.SCHEDULER_NAME,
        cause=cause,
    )


CONTROLLER = Controller(
    name="allocate_immediately",
    does="allocates claims with structured parameters and the mode Immediate, without a pod",
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset(
        (resource, change)
        for resource in (CLAIMS, CLAIM_PARAMETERS, CLASS_PARAMETERS, RESOURCE_CLASSES, NODE_SLICES)
        for change in ((ADDED,) if resource == CLAIMS else (ADDED, MODIFIED))
    ),
    gate=gates.STRUCTURED_PARAMETERS_DRAFT,
)
