"""Proposed moves: for the waiting pods, a few plans that would start them (`scheduling.rehearsal.moves`).

    proposals = read_proposals()
    proposals.plans      # those that start most with the fewest moves first; none for pods that start without
    proposals.complete   # whether every subject was tried

The waiting pods are taken in the order of the queue, `SUBJECTS` at most; of those that request the same, and of a gang,
one stands for all. A pod for which others are leaving already needs no moves. One for which room is kept, as it has
waited long, may: the pods in its way may run for days.
Each plan is made for the cluster as it is, not as the plans before it would leave it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime

from claims.kinds.pod_groups import gang_name
from claims.kinds.pods import Pod
from claims.pod_claims import has_group
from manciple.controllers.coordination import utc_now
from manciple.per_process import PerProcess
from scheduling.allocator import Deadline
from scheduling.claims.readiness import request_of
from scheduling.cycle.post_filter import gist_of
from scheduling.metrics import imagined
from scheduling.queue.reasons import Hold
from scheduling.rehearsal.departures import queue_order
from scheduling.rehearsal.explanations import Apart, apart
from scheduling.rehearsal.moves import MovePlan, MoveRehearsal
from scheduling.rehearsal.repairs import BUDGET, Findings, FindingsProgress, RehearsedFindings
from scheduling.state.cluster import ClusterState

#: Waiting pods for which moves are looked for; plans that are kept; seconds for each.
SUBJECTS, PLANS, SECONDS = 12, 3, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals(Findings):
    """See the module's docstring."""

    plans: tuple[MovePlan, ...] = ()


UNKNOWN = Proposals(complete=False)


@dataclass(slots=True, kw_only=True)
class _Progress(FindingsProgress[Proposals]):
    """left: uids of the pods that are not tried yet."""

    left: list[str] | None = None
    plans: list[MovePlan] = field(default_factory=list)

    def go_on(self, copy: Apart, deadline: Deadline) -> None:
        if self.left is None:
            self.left = [pod.metadata.uid for pod in _subjects(copy.state)]
        while self.left and len(self.plans) < PLANS:
            pod = copy.state.pending.get(self.left.pop(0))
            plan = None if pod is None else _rehearsal(copy).plan(pod)
            if plan is not None and not any(one.victims == plan.victims for one in self.plans):
                self.plans.append(plan)
            if self.left and deadline.has_passed:
                return  # the next call goes on from here
        ordered = sorted(self.plans, key=lambda one: (-len(one.subject) - len(one.others), one.cost))
        self.found, self.found_all = Proposals(plans=tuple(ordered)), True


class MoveProposals(RehearsedFindings[Proposals]):
    """Those of this process."""

    progress = _Progress


def plan_for(uid: str) -> MovePlan | None:
    """The moves by which this pod would start now; None where there are none, or it needs none."""
    with apart() as copy, imagined():
        pod = copy.state.pending.get(uid)
        return None if pod is None else _rehearsal(copy).plan(pod)


def _rehearsal(copy: Apart) -> MoveRehearsal:
    return MoveRehearsal(copy, now=utc_now(), deadline=Deadline.after_work(SECONDS))


def _subjects(state: ClusterState) -> list[Pod]:
    subjects, seen, now = list[Pod](), set[Hashable](), utc_now()
    for pod in sorted(state.pending.values(), key=queue_order):
        gist = _gist(state, pod)
        if gist is not None and gist not in seen and not room_is_being_made(state, pod, now):
            seen.add(gist)
            subjects.append(pod)
        if len(subjects) >= SUBJECTS:
            break
    return subjects


def room_is_being_made(state: ClusterState, pod: Pod, now: datetime) -> bool:
    """Whether any pod is leaving the node for which this one is nominated."""
    node = pod.status.nominated_node_name
    return bool(node) and any(state.overlay.is_leaving(one, now) for one in state.residents.on(node))


def _gist(state: ClusterState, pod: Pod) -> Hashable:
    """None for a pod that waits for something other than a place."""
    if state.pre_enqueue(pod.metadata.uid) is not None:
        return None
    if has_group(pod):
        return pod.metadata.namespace, gang_name(pod)
    request = request_of(state, pod)
    return None if isinstance(request, Hold) else gist_of(state, request)


_proposals = PerProcess(lambda: MoveProposals(UNKNOWN))


def read_proposals(budget: float = BUDGET) -> Proposals:
    """The moves that are known now; for up to `budget` seconds more are looked for, where that is not all."""
    return _proposals.value.read(budget)
