"""Moves pods so that others can start (`scheduling.rehearsal.moving`): the policy, which is off unless a setting says
otherwise.

One plan at a time: none while a pod waits for room that is being made. Only for pods that have waited for
`MANCIPLE_FAIRNESS_SECONDS`, and only of pods that have run for `SETTLED`, so that nobody is sent about.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from claims import evictions
from claims.kinds.disruption_budgets import disrupted
from claims.kinds.pods import Pod
from manciple.controllers.declaration import Controller
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import timestamp
from manciple.wire.errors import ApiError
from manciple.wire.identity import SCHEDULER
from manciple.wire.resources import PODS, kind
from scheduling.rehearsal.explanations.current import cluster
from scheduling.rehearsal.move_plans import MovePlan
from scheduling.rehearsal.move_proposals import MoveProposals, Proposals, room_is_being_made
from scheduling.rehearsal.moving import carry_out

#: How long a pod has run before it is moved; seconds for finding out whom.
SETTLED, SECONDS = timedelta(minutes=10), 2.0

_proposals = PerProcess(lambda: MoveProposals(Proposals(complete=False)))


def reconcile(now: datetime) -> int:
    """Returns how many pods were evicted."""
    if not settings.SCHEDULER_DEFRAGMENTATION or _room_is_being_made(now):
        return 0
    for plan in _proposals().read(SECONDS).plans:
        pod = _waiting(plan)
        if pod is not None and _is_due(pod, plan, now):
            return len(carry_out(pod, [one.pod for one in plan.moves], lambda victim: _evict(victim, now)).moved)
    return 0


def _room_is_being_made(now: datetime) -> bool:
    with cluster() as state:
        return any(room_is_being_made(state, pod, now) for pod in state.pending.values())


def _waiting(plan: MovePlan) -> Pod | None:
    """The pod for which the plan is made, or one of its gang."""
    first = plan.subject[0]
    stored = objects.get(kind(PODS), first.namespace, first.name)
    return None if stored is None else decoded(stored, Pod)


def _is_due(pod: Pod, plan: MovePlan, now: datetime) -> bool:
    created = pod.metadata.creation_timestamp
    if not created or now - datetime.fromisoformat(created) < timedelta(seconds=settings.SCHEDULER_FAIRNESS):
        return False
    started = [one.pod.status.start_time or one.pod.metadata.creation_timestamp for one in plan.moves]
    return all(at and now - datetime.fromisoformat(at) >= SETTLED for at in started)


def _evict(pod: Pod, now: datetime) -> str:
    message = "evicted so that pods that wait can start; one like it fits elsewhere"
    told = disrupted(pod, reason="EvictionByDefragmentation", message=message, now=timestamp(now))
    known = evictions.covering(pod)
    try:
        with objects.writing(identity=SCHEDULER) as writer:
            current = writer.get(kind(PODS), *pod.key)
            if isinstance(current, Pod):
                evictions.admit(writer, current, known, now)
            writer.delete(kind(PODS), *pod.key, uid=pod.metadata.uid, told=told)
    except ApiError as refusal:
        return evictions.said(refusal)
    return ""


CONTROLLER = Controller(
    name="move_pods",
    does="moves pods so that others can start, where the setting MANCIPLE_DEFRAGMENTATION asks for it",
    reconcile=reconcile,
    every=30,
)
