"""Carries out a plan of moves (`scheduling.rehearsal.moves`): each eviction only if a rehearsal at that moment still
holds.

    outcome = carry_out(pod, victims, evict)    # evict(pod): what stands against it, "" for nothing

    1. the whole plan is rehearsed on the cluster as it is
    2. the pod that waits (of a gang, each) is nominated for its node: what comes free there is kept for it, and not
       given to those that are created again while others still have to leave
    3. before each eviction what is left of the plan is rehearsed; where it does not hold any more, nobody else goes

Nothing is undone then: whoever went had a place elsewhere when it was rehearsed. A nomination that leads to nothing
ends with the next attempt to place its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from claims import event_recorder
from claims.causes import messages
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from manciple.controllers.coordination import utc_now
from manciple.store import objects
from manciple.wire.identity import SCHEDULER
from manciple.wire.resources import PODS, kind
from scheduling.allocator import Deadline
from scheduling.cycle.decisions import nominated
from scheduling.metrics import imagined
from scheduling.rehearsal.departures import StartedPod
from scheduling.rehearsal.explanations.current import apart
from scheduling.rehearsal.move_plans import Move, MovePlan
from scheduling.rehearsal.moves import MoveRehearsal

#: Seconds for one rehearsal.
SECONDS = 2.0

#: Evicts one pod; returns what stands against it, "" for nothing.
Evict = Callable[[Pod], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome:
    """moved: who was evicted. stopped: why the others were not; "" where nobody is left. plan: as it was rehearsed."""

    moved: tuple[Move, ...] = ()
    stopped: str = ""
    plan: MovePlan | None = None


def verified(pod: Pod, victims: Sequence[Pod], gone: Iterable[str] = ()) -> MovePlan | str:
    """What comes of these moves on the cluster as it is; or why they would be in vain."""
    with apart() as copy, imagined():
        rehearsal = MoveRehearsal(copy, now=utc_now(), deadline=Deadline.after_work(SECONDS))
        return rehearsal.verified(pod, victims, gone)


def carry_out(pod: Pod, victims: Sequence[Pod], evict: Evict) -> MoveOutcome:
    """See the module's docstring. The least important go first."""
    moved: list[Move] = []
    plan: MovePlan | None = None
    for victim in sorted(victims, key=lambda one: (one.spec.priority or 0, one.key)):
        found = verified(pod, victims, [one.pod.metadata.uid for one in moved])
        if isinstance(found, str):
            return MoveOutcome(moved=tuple(moved), stopped=found, plan=plan)
        if plan is None:
            _nominate(found.subject)
        plan = found
        if refused := evict(victim):
            why = f"pod {victim.metadata.namespace}/{victim.metadata.name} was not evicted: {refused}"
            return MoveOutcome(moved=tuple(moved), stopped=why, plan=plan)
        move = next(one for one in found.moves if one.pod.metadata.uid == victim.metadata.uid)
        moved.append(move)
        _tell(move, found)
    return MoveOutcome(moved=tuple(moved), plan=plan)


def _nominate(subject: Iterable[StartedPod]) -> None:
    with objects.writing(identity=SCHEDULER) as writer:
        for one in subject:
            pod = writer.get(kind(PODS), one.namespace, one.name)
            if isinstance(pod, Pod) and not pod.spec.node_name and pod.metadata.deletion_timestamp is None:
                writer.update(kind(PODS), nominated(pod, one.node), subresource="status")


def _tell(move: Move, plan: MovePlan) -> None:
    first = plan.subject[0]
    whom = f"gang {plan.gang} of namespace {first.namespace}" if plan.gang else f"pod {first.namespace}/{first.name}"
    note = EventNote(
        regarding=move.pod,
        reason="Moved",
        message=f"Evicted from node {move.source} so that {whom} can start; one like it fits on node {move.target}",
        component=messages.SCHEDULER_NAME,
        action="Moving",
    )
    with objects.writing(identity=SCHEDULER) as writer:
        event_recorder.record(writer, note, now=utc_now())
