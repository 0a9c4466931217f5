"""Decides about the pods of one group at once: a gang gets places for as many as it needs, or none of it gets one.

A group is a PodGroup, or a gang by annotation (`claims.kinds.gangs`).

    1. all of the group that wait and can be tried are taken up, by priority, then age
    2. each is decided about in turn, on the state with the places of those before it; among the nodes of one topology
       domain after the other where it wants that (`scheduling.cycle.gang_places`)
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

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from django.db import Error

from claims.causes.causes import GroupDoesNotFit, Interrupted, SearchStopped
from claims.kinds.gangs import is_annotated, shown_name, topology_of
from claims.kinds.pod_groups import KINDS_GATE, PodGroup, is_scheduled
from claims.kinds.pods import Pod
from claims.quotas import QuotaExceeded
from inventory.kinds import gates
from manciple.store.objects import Writer
from manciple.wire.base import timestamp
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.resources import POD_GROUPS, kind
from scheduling import metrics
from scheduling.allocator import Deadline
from scheduling.claims.special_claims import NotMade, refusal_by
from scheduling.cycle.decisions import (
    AnyDecision,
    Decision,
    GroupDecision,
    Placement,
    PodRefusal,
    waiting_for_gang,
    with_refused,
    with_scheduled,
)
from scheduling.cycle.gang_places import Broken, GangSearch, TopologyDomain, decided_in, homes, with_place
from scheduling.cycle.remedies import Remedies, was_overtaken
from scheduling.queue.queue import Done, Outcome, Retry
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.cluster import ClusterState
from scheduling.state.groups import wanted_of

log = logging.getLogger(__name__)

#: Seconds of processor time for one search of a place; of whom it would have to evict.
SEARCH_SECONDS, EVICTING_SECONDS = 0.5, 2.0
#: Topology domains in which it is found out whom it would have to evict.
EMPTIED = 4

WriteOne = Callable[[Decision], Outcome]
#: One pod for itself; without remedies nobody is evicted for it.
DecideOne = Callable[[ClusterState, Pod, datetime, Remedies | None], Decision | Retry]


class GangNeed(NamedTuple):
    """A gang of which too few have a place by now: `placed`, of the `wanted` that get theirs together."""

    group: PodGroup
    placed: int
    wanted: int

    @property
    def lacks(self) -> int:
        return self.wanted - self.placed

    @property
    def name(self) -> str:
        """As people know it."""
        return shown_name(self.group.metadata.name)

    def short_of(self, more: int, *, where: str = "", domains: int = 0) -> Hold | None:
        """What its pods wait for if so many more of them fit; None where that is enough.

        where: the label of the nodes on which they do, the best of `domains`.
        """
        if more >= self.lacks:
            return None
        cause = GroupDoesNotFit(
            shown_name(self.group.metadata.name),
            placed=self.placed + more,
            wanted=self.wanted,
            annotated=is_annotated(self.group),
            where=where,
            domains=domains,
        )
        return Hold(reasons=Reason.GROUP, cause=cause)


def need_of(state: ClusterState, pod: Pod) -> GangNeed | None:
    """None for a pod of no gang, or of one that has what it needs: it goes for itself."""
    if (group := state.groups.of(pod)) is None:
        return None
    need = GangNeed(group, len(state.placed_of(group)), wanted_of(group))
    return need if need.placed < need.wanted else None


def decide_with_group(
    state: ClusterState, pod: Pod, remedies: Remedies, decide_one: DecideOne
) -> Sequence[AnyDecision | Retry]:
    """What is decided, and assumed, about the pod and all of its group that can be tried now."""
    group = state.groups.of(pod)
    if group is None or not _is_on(group) or state.groups.hold(pod) is not None:
        return [decide_one(state, pod, remedies.now, remedies)]
    began = time.perf_counter()
    attempt = _Attempt(state, group, to_try(state, group, pod), remedies, decide_one)
    try:
        decided = attempt.whole() if attempt.is_gang else attempt.each()
    except Broken as broken:
        return [_interrupted(one, broken.retry) for one in attempt.pods]
    except Exception as error:
        log.exception("no decision for gang %s; its pods will be retried after a backoff", "/".join(group.key))
        return [_failed(one, error) for one in attempt.pods]
    metrics.GROUP_ALGORITHM.observe(time.perf_counter() - began)
    return [replace(decided, began=began), *attempt.broken]


def _is_on(group: PodGroup) -> bool:
    return is_annotated(group) or gates.enabled(KINDS_GATE)


def to_try(state: ClusterState, group: PodGroup, pod: Pod) -> tuple[Pod, ...]:
    """The pods of the group that wait for nothing but a place, and `pod`; the most important first."""
    waiting = (state.pending[uid] for uid in state.groups.members(group) if uid in state.pending)
    found = [one for one in waiting if one is pod or state.pre_enqueue(one.metadata.uid) is None]
    return tuple(in_turn(found))


def in_turn(pods: Iterable[Pod]) -> list[Pod]:
    """The most important first, then the oldest; those made within one second by name."""
    return sorted(
        pods,
        key=lambda one: (-(one.spec.priority or 0), one.metadata.creation_timestamp or "", one.metadata.name),
    )


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
        return wanted_of(self.group)

    @property
    def is_gang(self) -> bool:
        """Whether too few of the group have a place by now."""
        return len(self.state.placed_of(self.group)) < self.wanted

    def each(self) -> GroupDecision:
        found = [self._at_home(pod) for pod in self.pods]
        self.broken = tuple(one for one in found if isinstance(one, Retry))
        decisions = tuple(one for one in found if not isinstance(one, Retry))
        return GroupDecision(group=self.group, decisions=decisions, scheduled=bool(self._with_place(decisions)))

    def _at_home(self, pod: Pod) -> Decision | Retry:
        """One pod for itself; the last of the domains to which it may go says why it may not."""
        *others, last = homes(self.state, self.group)
        for domain in others:
            found = self._within(domain, pod, None)
            if isinstance(found, Placement):
                return found
        return self._within(last, pod, self.remedies)

    @property
    def _is_free(self) -> bool:
        """Whether its pods may be on any node, though they may have wishes."""
        return not topology_of(self.group).required

    def _within(self, domain: TopologyDomain | None, pod: Pod, remedies: Remedies | None) -> Decision | Retry:
        try:
            return self._decided_in(domain, pod, remedies)
        except Broken as broken:
            return broken.retry

    def _decided_in(self, domain: TopologyDomain | None, pod: Pod, remedies: Remedies | None) -> Decision:
        """Raises: Broken."""
        return decided_in(self.state, domain, pod, lambda one: self._one(one, remedies))

    def whole(self) -> GroupDecision:
        """Raises: Broken."""
        first, searched = self.pods[0].metadata.uid, self.remedies.searched
        progress = searched.resume("gang", first, self.state)
        search = GangSearch(
            state=self.state,
            group=self.group,
            pods=self.pods,
            decide_one=lambda pod: self._one(pod, None),
            deadline=Deadline.after_work(SEARCH_SECONDS),
            now=self.remedies.now,
            skip=progress.skip,
        )
        found = search.run()
        together = GroupDecision(group=self.group, decisions=found.decisions, wanted=self.wanted)
        if found.whole:
            return replace(together, scheduled=True)
        # As long as domains are left that were not tried nobody is evicted: one of them may hold it as it is.
        if not search.skip and self._may_evict() and (roomy := self._with_room(search)) is not None:
            return roomy
        if search.skip:
            searched.interrupt("gang", first, progress._replace(skip=search.skip))
        again = bool(search.skip) or was_overtaken(self.state, progress)
        if found.domain is not None:
            together = replace(together, where=str(found.domain), domains=search.domains, again=again)
        return with_refused(together, {}, self.state.placed_of(self.group))

    def _may_evict(self) -> bool:
        """Whether anybody is less important, or is leaving for a pod of the group."""
        nominated = any(pod.status.nominated_node_name for pod in self.pods)
        return nominated or any(self.state.residents.any_below(pod.spec.priority or 0) for pod in self.pods)

    def _with_room(self, search: GangSearch) -> GroupDecision | None:
        """The group with the room that others make for it; None where that is too little: nothing is assumed then."""
        deadline = Deadline.after_work(EVICTING_SECONDS)
        domains = [None] if self._is_free else search.required()[:EMPTIED]
        for domain in domains:
            if (found := self._emptied(domain, search, deadline)) is not None:
                return found
        return None

    def _emptied(self, domain: TopologyDomain | None, search: GangSearch, deadline: Deadline) -> GroupDecision | None:
        remedies = replace(self.remedies, deadline=deadline, hopeless={}, keeps_room=False)
        mark, found = self.state.overlay.mark(), list[Decision]()
        for pod in self.pods:
            enough = len(self._with_place(found)) >= self.wanted  # nobody is evicted for more than are wanted
            try:
                found.append(self._decided_in(domain, pod, None if enough else remedies))
            except Exception:
                search.undo(mark)
                raise
        have = self._with_place(found)
        if len(have) < self.wanted:
            search.undo(mark)
            return None
        together = GroupDecision(group=self.group, decisions=tuple(found), wanted=self.wanted, evicting=True)
        kept = tuple(
            waiting_for_gang(together, one.pod, len(have), room=one.node) if isinstance(one, Placement) else one
            for one in found
        )
        return replace(together, decisions=kept)

    def _one(self, pod: Pod, remedies: Remedies | None) -> Decision | Retry:
        return self.decide_one(self.state, pod, self.remedies.now, remedies)

    def _with_place(self, found: Sequence[Decision]) -> set[str]:
        """The uids of the pods of the group that have a place, or would have one."""
        return with_place(self.state, self.group, found)


def _failed(pod: Pod, error: Exception) -> Retry:
    """Of a gang about which something broke that nobody expected to."""
    return Retry(uid=pod.metadata.uid, cause=Interrupted(f"internal error: {error}"), broken=True)


def _interrupted(pod: Pod, broken: Retry) -> Retry:
    if pod.metadata.uid == broken.uid or isinstance(broken.cause, SearchStopped):
        return replace(broken, uid=pod.metadata.uid)
    return replace(broken, uid=pod.metadata.uid, cause=Interrupted("failed to schedule other pod from a pod group"))


# The commit -----------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """The claims for the extended resources of some pods, by uid, cannot be made."""

    def __init__(self, refusals: Mapping[str, PodRefusal]) -> None:
        super().__init__()
        self.refusals = refusals


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
                outcomes = _write_parts(together.decisions, write_part, writer)
                _check_gang(state, together, outcomes)
        except _Refused as refused:
            told = with_refused(together, refused.refusals, state.placed_of(together.group))
            return write_together(told, write, write_part, state=state, writer=writer, now=now)
        except ApiError as error:
            _count(together, "error")
            overtaken = isinstance(error, Conflict)
            uids = [one.pod.metadata.uid for one in together.decisions]
            return [Retry(uid=uid, cause=Interrupted(error.message), at_once=overtaken) for uid in uids]
        except Error:
            raise  # the transaction is broken, for everybody
        except Exception as error:
            _count(together, "error")
            log.exception("gang %s cannot be committed; its pods will be retried", "/".join(together.group.key))
            return [_failed(one.pod, error) for one in together.decisions]
    result = "scheduled" if together.scheduled else "unschedulable"
    _count(together, "waiting_on_preemption" if together.evicting else result)
    _tell(writer, together, now)
    return outcomes


def _write_parts(decisions: Iterable[Decision], write_part: WriteOne, writer: Writer) -> list[Outcome]:
    """Raises: _Refused, for all at once: everything is undone then, and written again without them."""
    outcomes, refused = list[Outcome](), dict[str, PodRefusal]()
    for decision in decisions:
        try:
            with writer.savepoint():
                outcomes.append(write_part(decision))
        except (NotMade, QuotaExceeded) as error:
            refused[decision.pod.metadata.uid] = refusal_by(decision.pod, error)
    if refused:
        raise _Refused(refused)
    return outcomes


def _check_gang(state: ClusterState, together: GroupDecision, outcomes: Sequence[Outcome]) -> None:
    """Raises: Conflict where fewer of the group than it needs have a place by now."""
    gone = {one.uid for one in outcomes if isinstance(one, Done) and not one.placed}
    name, key = together.group.metadata.name, topology_of(together.group).required
    if len(state.placed_of(together.group) | together.promised - gone) < together.wanted:
        raise Conflict.of(POD_GROUPS, name, "pods of the group are gone in the meantime")
    nodes = {one.node for one in together.decisions if isinstance(one, Placement)}
    views = [view for node in nodes if (view := state.nodes.view(node)) is not None]
    if key and len({view.labels.get(key) for view in views}) > 1:
        raise Conflict.of(POD_GROUPS, name, f"label {key} of nodes has changed in the meantime")


def _tell(writer: Writer, together: GroupDecision, now: datetime) -> None:
    """The condition of the group, which stays true once it is (upstream: updatePodGroupCondition)."""
    group = writer.get(kind(POD_GROUPS), *together.group.key)
    if not isinstance(group, PodGroup) or group.metadata.uid != together.group.metadata.uid:
        return
    if together.scheduled or not is_scheduled(group):
        told = with_scheduled(group, scheduled=together.scheduled, evicting=together.evicting, now=timestamp(now))
        writer.update(kind(POD_GROUPS), told, subresource="status")


def _count(together: GroupDecision, result: str) -> None:
    labels = (result, metrics.PROFILE)
    metrics.GROUP_ATTEMPTS[labels].inc()
    metrics.GROUP_DURATIONS[labels].observe(time.perf_counter() - together.began)
