"""Carries out plans of moves (`scheduling.rehearsal.moves`): for a person, or for the controller, which is off by
default. Each eviction is made only if a rehearsal at that moment still holds.

    outcome = carry_out(pod, victims, evict)    # evict(pod): why it is refused, "" where it is done

    1. the whole plan is rehearsed on the cluster as it is
    2. the waiting pod (of a gang, each) is nominated for its node: what comes free there is kept for it, and not given
       to the replacements while others still have to leave
    3. before each eviction the rest of the plan is rehearsed; where it does not hold any more, no other pod is evicted

Nothing is undone then: each evicted pod had a place elsewhere when it was rehearsed. A nomination that leads to nothing
ends with the next attempt to place its pod.

The controller follows one plan at a time: none while a pod waits for room that is being made. Only for pods that have
waited for `MANCIPLE_FAIRNESS_SECONDS`, and only with pods that have run for `SETTLED`, so that none is moved about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from claims import event_recorder, evictions
from claims.causes import messages
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from manciple.controllers import coordination
from manciple.controllers.coordination import utc_now
from manciple.controllers.declaration import Controller
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.errors import ApiError
from manciple.wire.identity import SCHEDULER
from manciple.wire.resources import PODS, kind
from scheduling.allocator import Deadline
from scheduling.metrics import imagined
from scheduling.queue.verdicts import nominated
from scheduling.rehearsal.departures import StartedPod
from scheduling.rehearsal.explanations import apart, cluster
from scheduling.rehearsal.move_proposals import MoveProposals, Proposals, room_is_being_made
from scheduling.rehearsal.moves import Move, MovePlan, MoveRehearsal

#: Seconds for one rehearsal.
SECONDS = 2.0

#: Evicts one pod; returns why it is refused, "" where it is done.
Evict = Callable[[Pod], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome:
    """moved: the evicted pods. stopped: why the others were not evicted; "" where none is left. plan: as rehearsed."""

    moved: tuple[Move, ...] = ()
    stopped: str = ""
    plan: MovePlan | None = None


def verified(pod: Pod, victims: Sequence[Pod], gone: Iterable[str] = ()) -> MovePlan | str:
    """The plan with these moves on the cluster as it is; or why they would not help."""
    with apart() as copy, imagined():
        rehearsal = MoveRehearsal(copy, now=utc_now(), deadline=Deadline.after_work(SECONDS))
        return rehearsal.verified(pod, victims, gone)


def carry_out(pod: Pod, victims: Sequence[Pod], evict: Evict) -> MoveOutcome:
    """See the module's docstring. The least important go first."""
    moved: list[Move] = []
    plan: MovePlan | None = None
    for victim in sorted(victims, key=lambda one: (one.spec.priority or 0, one.key)):
        rehearsed = verified(pod, victims, [one.pod.metadata.uid for one in moved])
        if isinstance(rehearsed, str):
            return MoveOutcome(moved=tuple(moved), stopped=rehearsed, plan=plan)
        if plan is None:
            _nominate(rehearsed.subject)
        plan = rehearsed
        if refused := evict(victim):
            why = f"pod {victim.metadata.namespace}/{victim.metadata.name} was not evicted: {refused}"
            return MoveOutcome(moved=tuple(moved), stopped=why, plan=plan)
        move = next(one for one in plan.moves if one.pod.metadata.uid == victim.metadata.uid)
        moved.append(move)
        _record_event(move, plan)
    return MoveOutcome(moved=tuple(moved), plan=plan)


def _nominate(subject: Iterable[StartedPod]) -> None:
    with objects.writing(identity=SCHEDULER) as writer:
        for one in subject:
            pod = writer.get(kind(PODS), one.namespace, one.name)
            if isinstance(pod, Pod) and not pod.spec.node_name and pod.metadata.deletion_timestamp is None:
                writer.update(kind(PODS), nominated(pod, one.node), subresource="status")


def _record_event(move: Move, plan: MovePlan) -> None:
    first = plan.subject[0]
    subject = f"gang {plan.gang} of namespace {first.namespace}" if plan.gang else f"pod {first.namespace}/{first.name}"
    note = EventNote(
        regarding=move.pod,
        reason="Moved",
        message=f"Evicted from node {move.source} so that {subject} can start; one like it fits on node {move.target}",
        component=messages.SCHEDULER_NAME,
        action="Moving",
    )
    with objects.writing(identity=SCHEDULER) as writer:
        event_recorder.record(writer, note, now=utc_now())


# As a controller ------------------------------------------------------------------------------------------------------

#: How long a pod has run before it is moved; seconds for finding the plans.
SETTLED, PLAN_SECONDS = timedelta(minutes=10), 2.0

_proposals = PerProcess(lambda: MoveProposals(Proposals(complete=False)))


def reconcile(now: datetime) -> int:
    """Returns how many pods were evicted."""
    if not settings.SCHEDULER_DEFRAGMENTATION:
        return 0
    with cluster() as state:
        if any(room_is_being_made(state, pod, now) for pod in state.pending.values()):
            return 0
    for plan in _proposals.value.read(PLAN_SECONDS).plans:
        first = plan.subject[0]
        stored = objects.get(kind(PODS), first.namespace, first.name)
        pod = None if stored is None else decoded(stored, Pod)
        if pod is not None and _is_due(pod, plan, now):
            return len(carry_out(pod, [one.pod for one in plan.moves], lambda victim: _evict(victim, now)).moved)
    return 0


def _is_due(pod: Pod, plan: MovePlan, now: datetime) -> bool:
    created = pod.metadata.creation_timestamp
    if not created or now - datetime.fromisoformat(created) < timedelta(seconds=settings.SCHEDULER_FAIRNESS):
        return False
    started = [one.pod.status.start_time or one.pod.metadata.creation_timestamp for one in plan.moves]
    return all(at and now - datetime.fromisoformat(at) >= SETTLED for at in started)


def _evict(pod: Pod, now: datetime) -> str:
    budgets = evictions.covering(pod)
    try:
        with objects.writing(identity=SCHEDULER) as writer:
            current = writer.get(kind(PODS), *pod.key)
            if isinstance(current, Pod):
                evictions.admit(writer, current, budgets, now)
            evictions.disrupt(writer, pod, evictions.DEFRAGMENTATION, now=now)
    except ApiError as refusal:
        return evictions.said(refusal)
    return ""


CONTROLLER = Controller(
    name="move_pods",
    does="moves pods so that others can start, where the setting MANCIPLE_DEFRAGMENTATION asks for it",
    in_mirror=False,
    reconcile=reconcile,
    every=30,
    also_locks=coordination.TURN,
)
