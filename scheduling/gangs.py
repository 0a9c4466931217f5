"""Decides about the pods of one group at once: a gang gets places for as many as it needs, or none of it gets one.

    1. all of the group that wait and can be tried are taken up, by priority, then age
    2. each is decided about in turn, on the state with the places of those before it
    3. enough have a place                -> these are bound in one transaction; the others wait for themselves
    4. too few, but with room that less important pods would make there are enough
                                          -> these are evicted, in one transaction; the places of the gang are kept
    5. too few                            -> everything is taken back; nobody is evicted, nobody is bound

One worker at a time decides, and a gang is bound as a whole: two halves of two gangs never wait for each other.
Nobody is evicted for a gang that would not fit nevertheless. (Kubernetes 1.36 evicts as it goes through the pods; its
WorkloadAwarePreemption, which asks for the group as a whole, is not built.) Pods of a basic group, or of a gang that
has its places, are decided about each for itself.
Source: pkg/scheduler/schedule_one_podgroup.go of Kubernetes 1.36.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from claims.kinds.pod_groups import GANG_GATE, KINDS_GATE, PodGroup, is_scheduled, min_count
from claims.kinds.pods import Pod
from claims.quotas import QuotaExceeded
from inventory.kinds import gates
from manciple.store.objects import Writer
from manciple.wire.base import timestamp
from manciple.wire.errors import ApiError, Conflict
from scheduling import preemption, scheduler_metrics
from scheduling.allocator import Deadline
from scheduling.assumptions import AssumedSoFar
from scheduling.capture import ClusterState
from scheduling.causes import GroupDoesNotFit, Interrupted
from scheduling.holds import Hold, Reason
from scheduling.plans import (
    AnyDecision,
    Decision,
    GroupDecision,
    Placement,
    PodRefusal,
    waiting_for_gang,
    with_refused,
    with_scheduled,
)
from scheduling.preemption import age_of
from scheduling.queue import Done, Outcome, Retry
from scheduling.remedies import Remedies
from scheduling.resources import POD_GROUPS, kind
from scheduling.special_claims import NotMade, refusal_by

#: Seconds that one gang may take to find out whom it would have to evict.
EVICTING_SECONDS = 2.0

WriteOne = Callable[[Decision], Outcome]
#: One pod for itself; without remedies nobody is evicted for it.
DecideOne = Callable[[ClusterState, Pod, datetime, Remedies | None], Decision | Retry]


class GangNeed(NamedTuple):
    """A gang of which too few have a place by now: `placed`, of the `wanted` that get theirs together."""

    group: PodGroup
    placed: int
    wanted: int

    def short_of(self, more: int) -> Hold | None:
        """What its pods wait for if so many more of them fit; None where that is enough."""
        if self.placed + more >= self.wanted:
            return None
        cause = GroupDoesNotFit(self.group.metadata.name, placed=self.placed + more, wanted=self.wanted)
        return Hold(reasons=Reason.GROUP, cause=cause)


def need_of(state: ClusterState, pod: Pod) -> GangNeed | None:
    """None for a pod of no gang, or of one that has what it needs: it goes for itself."""
    if not (gates.enabled(KINDS_GATE) and gates.enabled(GANG_GATE)) or (group := state.groups.of(pod)) is None:
        return None
    need = GangNeed(group, len(state.placed_of(group)), min_count(group))
    return need if need.placed < need.wanted else None


def decide_with_group(
    state: ClusterState, pod: Pod, remedies: Remedies, decide_one: DecideOne
) -> Sequence[AnyDecision | Retry]:
    """What is decided, and assumed, about the pod and all of its group that can be tried now."""
    group = state.groups.of(pod)
    if group is None or not gates.enabled(KINDS_GATE) or state.groups.hold(pod) is not None:
        return [decide_one(state, pod, remedies.now, remedies)]
    began = time.perf_counter()
    attempt = _Attempt(state, group, _to_try(state, group, pod), remedies, decide_one)
    try:
        decided = attempt.whole() if attempt.is_gang else attempt.each()
    except _Broken as broken:
        return broken.retries
    scheduler_metrics.GROUP_ALGORITHM.observe(time.perf_counter() - began)
    return [replace(decided, began=began), *attempt.broken]


def _to_try(state: ClusterState, group: PodGroup, pod: Pod) -> tuple[Pod, ...]:
    """The pods of the group that wait for nothing but a place, and `pod`; the most important first."""
    waiting = (state.pending[uid] for uid in state.groups.members(group) if uid in state.pending)
    found = [one for one in waiting if one is pod or state.pre_enqueue(one.metadata.uid) is None]
    return tuple(sorted(found, key=lambda one: (-(one.spec.priority or 0), age_of(one))))


class _Broken(Exception):
    """A fault in one pod: nothing is decided about the others."""

    def __init__(self, retries: Sequence[Retry]) -> None:
        super().__init__()
        self.retries = retries


@dataclass(slots=True)
class _Attempt:
    """One attempt to place the pods of a group."""

    state: ClusterState
    group: PodGroup
    pods: tuple[Pod, ...]
    remedies: Remedies
    decide_one: DecideOne
    #: of pods that go for themselves
    broken: tuple[Retry, ...] = ()

    @property
    def wanted(self) -> int:
        return min_count(self.group) if gates.enabled(GANG_GATE) else 0

    @property
    def is_gang(self) -> bool:
        """Whether too few of the group have a place by now."""
        return len(self.state.placed_of(self.group)) < self.wanted

    def each(self) -> GroupDecision:
        found = [self._one(pod, self.remedies) for pod in self.pods]
        self.broken = tuple(one for one in found if isinstance(one, Retry))
        decisions = tuple(one for one in found if not isinstance(one, Retry))
        return GroupDecision(group=self.group, decisions=decisions, scheduled=bool(self._with_place(decisions)))

    def whole(self) -> GroupDecision:
        earlier, found = self.state.overlay(), self._tried(None)
        if len(self._with_place(found)) >= self.wanted:
            return GroupDecision(group=self.group, decisions=found, wanted=self.wanted, scheduled=True)
        self._restore(earlier, found)
        if self._may_evict() and (roomy := self._with_room()) is not None:
            return roomy
        together = GroupDecision(group=self.group, decisions=found, wanted=self.wanted)
        return with_refused(together, {}, self.state.placed_of(self.group))

    def _may_evict(self) -> bool:
        """Whether anybody is less important, or is leaving for a pod of the group."""
        nominated = any(pod.status.nominated_node_name for pod in self.pods)
        return nominated or any(self.state.placed.any_below(pod.spec.priority or 0) for pod in self.pods)

    def _with_room(self) -> GroupDecision | None:
        """The group with the room that others make for it; None where that is too little: nothing is assumed then."""
        deadline = Deadline.after_work(EVICTING_SECONDS)
        remedies = replace(self.remedies, deadline=deadline, hopeless={}, keeps_room=False)
        earlier, found = self.state.overlay(), self._tried(remedies)
        have = self._with_place(found)
        if len(have) < self.wanted:
            self._restore(earlier, found)
            return None
        together = GroupDecision(group=self.group, decisions=found, wanted=self.wanted, evicting=True)
        kept = tuple(
            waiting_for_gang(together, one, len(have), room=one.node) if isinstance(one, Placement) else one
            for one in found
        )
        return replace(together, decisions=kept)

    def _tried(self, remedies: Remedies | None) -> tuple[Decision, ...]:
        """Each pod in turn; nobody is evicted for more than are wanted."""
        earlier, found = self.state.overlay(), list[Decision]()
        for pod in self.pods:
            enough = len(self._with_place(found)) >= self.wanted
            decision = self._one(pod, None if enough else remedies)
            if isinstance(decision, Retry):
                self._restore(earlier, found)
                raise _Broken([_interrupted(one, decision) for one in self.pods])
            found.append(decision)
        return tuple(found)

    def _one(self, pod: Pod, remedies: Remedies | None) -> Decision | Retry:
        return self.decide_one(self.state, pod, self.remedies.now, remedies)

    def _restore(self, earlier: AssumedSoFar, found: Sequence[Decision]) -> None:
        self.state.restore(earlier, found)
        preemption.settle(self.state, self.remedies.now)

    def _with_place(self, found: Sequence[Decision]) -> set[str]:
        """The uids of the pods of the group that have a place, or would have one."""
        made = GroupDecision(group=self.group, decisions=tuple(found))
        return self.state.placed_of(self.group) | made.promised


def _interrupted(pod: Pod, broken: Retry) -> Retry:
    if pod.metadata.uid == broken.uid:
        return broken
    return replace(broken, uid=pod.metadata.uid, cause=Interrupted("failed to schedule other pod from a pod group"))


# The commit -----------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """The claim for the extended resources of one pod cannot be made."""

    def __init__(self, refusal: PodRefusal) -> None:
        super().__init__()
        self.refusal = refusal


def write_together(
    together: GroupDecision,
    write: WriteOne,
    write_part: WriteOne,
    *,
    state: ClusterState,
    writer: Writer,
    now: datetime,
) -> list[Outcome]:
    """Write the decisions about a group, and what its status tells then. A gang gets its places, or none of it does.

    write: writes one for itself. write_part: one of a gang; raises ApiError where it does not hold. state: as the
    transaction sees it.
    """
    if not together.wanted:
        outcomes = [write(decision) for decision in together.decisions]
    else:
        try:
            with writer.savepoint():
                outcomes = [_write_part(decision, write_part) for decision in together.decisions]
                _check_gang(state, together, outcomes)
        except _Refused as refused:
            pod = refused.refusal.pod.metadata.uid
            told = with_refused(together, {pod: refused.refusal}, state.placed_of(together.group))
            return write_together(told, write, write_part, state=state, writer=writer, now=now)
        except ApiError as error:
            _count(together, "error")
            overtaken = isinstance(error, Conflict)
            uids = [one.pod.metadata.uid for one in together.decisions]
            return [Retry(uid=uid, cause=Interrupted(error.message), at_once=overtaken) for uid in uids]
    result = "scheduled" if together.scheduled else "unschedulable"
    _count(together, "waiting_on_preemption" if together.evicting else result)
    _tell(writer, together, now)
    return outcomes


def _write_part(decision: Decision, write_part: WriteOne) -> Outcome:
    try:
        return write_part(decision)
    except (NotMade, QuotaExceeded) as error:
        raise _Refused(refusal_by(decision.pod, error)) from error


def _check_gang(state: ClusterState, together: GroupDecision, outcomes: Sequence[Outcome]) -> None:
    """Raises: Conflict where fewer of the group than it needs have a place by now."""
    gone = {one.uid for one in outcomes if isinstance(one, Done) and not one.placed}
    if len(state.placed_of(together.group) | together.promised - gone) < together.wanted:
        raise Conflict.of(POD_GROUPS, together.group.metadata.name, "pods of the group are gone in the meantime")


def _tell(writer: Writer, together: GroupDecision, now: datetime) -> None:
    """The condition of the group, which stays true once it is (upstream: updatePodGroupCondition)."""
    group = writer.get(kind(POD_GROUPS), *together.group.key)
    if not isinstance(group, PodGroup) or group.metadata.uid != together.group.metadata.uid:
        return
    if together.scheduled or not is_scheduled(group):
        told = with_scheduled(group, scheduled=together.scheduled, evicting=together.evicting, now=timestamp(now))
        writer.update(kind(POD_GROUPS), told, subresource="status")


def _count(together: GroupDecision, result: str) -> None:
    labels = (result, scheduler_metrics.PROFILE)
    scheduler_metrics.GROUP_ATTEMPTS[labels].inc()
    scheduler_metrics.GROUP_DURATIONS[labels].observe(time.perf_counter() - together.began)
