"""Decides about the pods of one group together: a gang gets places for as many as it needs, or none of it gets one.

A group is a PodGroup, or a gang by annotation (`claims.kinds.pod_groups`).

    1. all pods of the group that wait and can be tried are taken up, by priority, then age
    2. each is decided about in turn, on the state with the places of those before it; with a topology, within one
       domain after the other (`GangSearch`)
    3. enough have a place                -> these are bound in one transaction; the others wait for themselves
    4. too few, but with room that less important pods would make there are enough
                                          -> these are evicted, in one transaction; the places of the gang are kept
    5. too few                            -> everything is taken back; no pod is evicted, none is bound

One worker at a time decides, and a gang is bound as a whole: two halves of two gangs never wait for each other.
No pod is evicted for a gang that would not fit nevertheless. (Kubernetes 1.36 evicts as it goes through the pods; its
WorkloadAwarePreemption, which searches for the group as a whole, is not built.) Pods of a basic group, or of a gang
that has its places, are decided about one by one.

A topology domain is the nodes with one value of a label. A gang that requires a topology is tried in one domain after
the other, those first where it leaves the least free; of the domains with too few free devices only the largest is
tried, so that the pods can say what is missing. A gang that prefers one is tried in each domain as if it required it,
and then over several, those with most free first, so that it is spread over few. At most `MOST` domains of a key are
tried; an attempt that runs out of time is continued by the next one.
Within a domain the pods are decided about in turn, by the code that schedules any pod. Where they request different
numbers of devices, a second order is tried: those that request most first, or those that request least where not all
are needed. A place that is found is one for each; that there is none is certain only where pods are alike and no choice
of devices for one spoils it for the next.
Source: pkg/scheduler/schedule_one_podgroup.go of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, TypeGuard

from django.db import Error
from msgspec import structs

from claims.causes.causes import GroupDoesNotFit, Interrupted, NodeRefusal, SearchStopped
from claims.kinds.pod_groups import KINDS_GATE, SCHEDULED, PodGroup, is_annotated, is_scheduled, shown_name, topology_of
from claims.kinds.pods import Pod
from claims.pod_claims import names_of_claims
from inventory.kinds import gates
from manciple.store.objects import Writer
from manciple.wire.base import Condition, condition_of, timestamp
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.limits import TimeLimitExceeded, check_time
from manciple.wire.resources import POD_GROUPS, kind
from scheduling import metrics
from scheduling.allocator import Deadline, free_on
from scheduling.claims.readiness import request_of
from scheduling.claims.refusals import MOST_REFUSALS, is_refused, refusal_by
from scheduling.cycle import post_filter
from scheduling.cycle.post_filter import Remedies, gist_of, was_overtaken
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import (
    UNSCHEDULABLE,
    AnyVerdict,
    Gone,
    GroupVerdict,
    Placement,
    Retry,
    Verdict,
    Wait,
    is_refusal,
    promised,
)
from scheduling.state.cluster import ClusterState
from scheduling.state.groups import wanted_of

log = logging.getLogger(__name__)

#: Seconds of processor time for one search of the places; for the search with evictions.
SEARCH_SECONDS, EVICTING_SECONDS = 0.5, 2.0
#: Topology domains in which evictions are tried.
EMPTIED = 4
#: Domains of one key that are tried.
MOST = 64

#: Decides about one pod alone; without remedies no pod is evicted for it.
DecideOne = Callable[[ClusterState, Pod, datetime, Remedies | None], Verdict]
WriteOne = Callable[[Verdict], Verdict | Gone]


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
        """As people write it."""
        return shown_name(self.group.metadata.name)

    def short_of(self, more: int, *, where: str = "", domains: int = 0) -> Hold | None:
        """Why its pods wait if so many more of them fit; None where that is enough.

        where: the label of the nodes on which they fit, the best of `domains`.
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
    """None for a pod of no gang, or of a satisfied one: it is placed alone."""
    if (group := state.groups.of(pod)) is None:
        return None
    need = GangNeed(group, len(state.placed_of(group)), wanted_of(group))
    return need if need.placed < need.wanted else None


def decide_with_group(state: ClusterState, pod: Pod, remedies: Remedies, decide_one: DecideOne) -> Sequence[AnyVerdict]:
    """The verdicts on the pod and all of its group that can be tried now; placements and evictions are assumed."""
    group = state.groups.of(pod)
    is_on = group is not None and (is_annotated(group) or gates.enabled(KINDS_GATE))
    if group is None or not is_on or state.groups.hold(pod) is not None:
        return [decide_one(state, pod, remedies.now, remedies)]
    began = time.perf_counter()
    attempt = _Attempt(state, group, to_try(state, group, pod), remedies, decide_one)
    try:
        verdict = attempt.whole() if attempt.is_gang else attempt.each()
    except Broken as broken:
        return [_interrupted(one, broken.retry) for one in attempt.pods]
    except TimeLimitExceeded:
        return [_stopped(one, seconds=time.perf_counter() - began) for one in attempt.pods]
    except Exception as error:
        log.exception("no decision for gang %s; its pods will be retried after a backoff", "/".join(group.key))
        return [_failed(one, error) for one in attempt.pods]
    metrics.GROUP_ALGORITHM.observe(time.perf_counter() - began)
    return [replace(verdict, began=began), *attempt.broken]


def to_try(state: ClusterState, group: PodGroup, pod: Pod) -> tuple[Pod, ...]:
    """The pods of the group that wait for nothing but a place, and `pod`; the most important first."""
    waiting = (state.pending[uid] for uid in state.groups.members(group) if uid in state.pending)
    return tuple(in_turn(one for one in waiting if one is pod or state.pre_enqueue(one.metadata.uid) is None))


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
    #: of pods that are decided about one by one
    broken: tuple[Retry, ...] = ()

    @property
    def wanted(self) -> int:
        return wanted_of(self.group)

    @property
    def is_gang(self) -> bool:
        """Whether too few of the group have a place by now."""
        return len(self.state.placed_of(self.group)) < self.wanted

    def each(self) -> GroupVerdict:
        """The verdicts on pods that need no others; if the time is up, those that are left stay ready."""
        every = list[Verdict]()
        try:
            for pod in self.pods:
                check_time()
                every.append(self._at_home(pod))
        except TimeLimitExceeded:
            untried = tuple(Retry(pod=pod, untried=True) for pod in self.pods[len(every) :])
        else:
            untried = ()
        self.broken = (*(verdict for verdict in every if _is_fault(verdict)), *untried)
        verdicts = tuple(verdict for verdict in every if not _is_fault(verdict))
        return GroupVerdict(group=self.group, verdicts=verdicts, scheduled=bool(self._with_place(verdicts)))

    def _at_home(self, pod: Pod) -> Verdict:
        """One pod alone; the refusal is that of the last domain to which it may go."""
        *others, last = homes(self.state, self.group)
        for domain in others:
            verdict = self._within(domain, pod, None)
            if isinstance(verdict, Placement):
                return verdict
        return self._within(last, pod, self.remedies)

    def _within(self, domain: TopologyDomain | None, pod: Pod, remedies: Remedies | None) -> Verdict:
        try:
            return self._decide_in(domain, pod, remedies)
        except Broken as broken:
            return broken.retry

    def _decide_in(self, domain: TopologyDomain | None, pod: Pod, remedies: Remedies | None) -> Verdict:
        """Raises: Broken."""
        return decide_in(
            self.state, domain, pod, lambda one: self.decide_one(self.state, one, self.remedies.now, remedies)
        )

    def whole(self) -> GroupVerdict:
        """Raises: Broken."""
        first, searches = self.pods[0].metadata.uid, self.remedies.searches
        progress = searches.resume("gang", first, self.state)
        search = GangSearch(
            state=self.state,
            group=self.group,
            pods=self.pods,
            decide_one=lambda pod: self.decide_one(self.state, pod, self.remedies.now, None),
            deadline=Deadline.after_work(SEARCH_SECONDS),
            now=self.remedies.now,
            skip=progress.skip,
        )
        places = search.run()
        verdict = GroupVerdict(group=self.group, verdicts=places.verdicts, wanted=self.wanted)
        if places.whole:
            return replace(verdict, scheduled=True)
        # As long as untried domains are left no pod is evicted: one of them may hold the gang as it is.
        if not search.skip and self._may_evict() and (roomy := self._with_room(search)) is not None:
            return roomy
        if search.skip:
            searches.interrupt("gang", first, progress._replace(skip=search.skip))
        again = bool(search.skip) or was_overtaken(self.state, progress)
        if places.domain is not None:
            verdict = replace(verdict, where=str(places.domain), domains=search.domains, again=again)
        return verdict.with_refused({}, self.state.placed_of(self.group))

    def _may_evict(self) -> bool:
        """Whether any pod is less important, or is leaving for a pod of the group."""
        nominated = any(pod.status.nominated_node_name for pod in self.pods)
        return nominated or any(self.state.residents.any_below(pod.spec.priority or 0) for pod in self.pods)

    def _with_room(self, search: GangSearch) -> GroupVerdict | None:
        """The group with the room that others make for it; None where that is too little: nothing is assumed then.
        Raises: Broken, TimeLimitExceeded.
        """
        deadline = Deadline.after_work(EVICTING_SECONDS)
        domains = search.required()[:EMPTIED] if topology_of(self.group).required else [None]
        return next((one for domain in domains if (one := self._emptied(domain, search, deadline)) is not None), None)

    def _emptied(self, domain: TopologyDomain | None, search: GangSearch, deadline: Deadline) -> GroupVerdict | None:
        remedies = replace(self.remedies, deadline=deadline, hopeless={}, keeps_room=False)
        mark, verdicts = self.state.overlay.mark(), list[Verdict]()
        have = set(self.state.placed_of(self.group))
        try:
            for left, pod in zip(range(len(self.pods), 0, -1), self.pods, strict=True):
                if len(have) + left < self.wanted:
                    break  # too few, even if all that are left get a place
                check_time()
                # No pod is evicted for more than are wanted.
                verdict = self._decide_in(domain, pod, None if len(have) >= self.wanted else remedies)
                verdicts.append(verdict)
                have |= promised((verdict,))
        except Exception:
            search.undo(mark)
            raise
        have = self._with_place(verdicts)
        if len(have) < self.wanted:
            search.undo(mark)
            return None
        together = GroupVerdict(group=self.group, verdicts=tuple(verdicts), wanted=self.wanted, evicting=True)
        kept = (
            together.waiting(one.pod, len(have), room=one.node) if isinstance(one, Placement) else one
            for one in verdicts
        )
        return replace(together, verdicts=tuple(kept))

    def _with_place(self, verdicts: Sequence[Verdict]) -> set[str]:
        """The uids of the pods of the group that have a place, or would have one."""
        return self.state.placed_of(self.group) | promised(verdicts)


def _is_fault(verdict: Verdict) -> TypeGuard[Retry]:
    """Whether the pod was tried without a verdict."""
    return isinstance(verdict, Retry) and not verdict.untried


def _failed(pod: Pod, error: Exception) -> Retry:
    """After an unexpected error in its gang."""
    return Retry(pod=pod, cause=Interrupted(f"internal error: {error}"), broken=True)


def _stopped(pod: Pod, *, seconds: float) -> Retry:
    """After its gang was cut off because others wait."""
    cause = SearchStopped(
        trials=0, timed_out=True, claims=names_of_claims(pod), seconds=round(seconds, 1), others_waited=True
    )
    return Retry(pod=pod, cause=cause)


def _interrupted(pod: Pod, broken: Retry) -> Retry:
    if pod.metadata.uid == broken.uid or isinstance(broken.cause, SearchStopped):
        return replace(broken, pod=pod)
    return replace(broken, pod=pod, cause=Interrupted("failed to schedule other pod from a pod group"))


# The search -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopologyDomain:
    """The nodes with one value of a label. free: devices that no claim holds; None where their number tells little."""

    key: str
    value: str
    nodes: frozenset[str]
    free: int | None = None

    def __str__(self) -> str:
        return f"{self.key}={self.value}"

    @property
    def refusal(self) -> NodeRefusal:
        """What is said of other nodes."""
        return NodeRefusal("GangTopology", key=self.key, value=self.value)


#: Domains that are filled one after the other; None stands for all nodes.
Confinement = tuple[TopologyDomain | None, ...]


class Broken(Exception):
    """A fault in one pod: there is no verdict on the others."""

    def __init__(self, retry: Retry) -> None:
        super().__init__()
        self.retry = retry


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlaces:
    """The result of one attempt. verdicts: one for each pod. fits: pods that have a place, also from before.
    whole: all that are needed have one, and these are assumed on the state; else nothing is.
    """

    verdicts: tuple[Verdict, ...]
    fits: int
    whole: bool
    where: Confinement

    @property
    def domain(self) -> TopologyDomain | None:
        """That to which all of it is kept; None where it may be anywhere."""
        return self.where[-1]


NOWHERE = GangPlaces(verdicts=(), fits=-1, whole=False, where=(None,))


@dataclass(slots=True, kw_only=True)
class GangSearch:
    """The search for the places of a gang among the topology domains of the nodes.

    skip: attempts that an earlier search has made; after it, how far this one came, 0 at its end.
    tried: the domains that could hold the gang by themselves, and how many of its pods fit there.
    """

    state: ClusterState
    group: PodGroup
    pods: Sequence[Pod]
    decide_one: Callable[[Pod], Verdict]
    deadline: Deadline
    now: datetime
    skip: int = 0
    tried: list[tuple[TopologyDomain, int]] = field(default_factory=list)
    #: of the topology that it requires, including those that are too small
    domains: int = 0
    _needs: dict[str, int] | None = None

    def run(self) -> GangPlaces:
        """Raises: Broken."""
        best, done, self.skip = NOWHERE, self.skip, 0
        every = list(self._every())
        for at, where in enumerate(every[done:] or every):
            if best is not NOWHERE and self.deadline.has_passed:
                self.skip = done + at
                break
            places = self._try_in(where)
            if (domain := places.domain) is not None:
                self.tried.append((domain, places.fits))
            if places.whole:
                return places
            best = places if places.fits > best.fits else best
        return best

    # Where -----------------------------------------------------------------------------------------------------------

    def _every(self) -> Iterator[Confinement]:
        topology = topology_of(self.group)
        outer: list[TopologyDomain | None] = [*self.required()] if topology.required else [None]
        if topology.preferred:
            inner = {one: domains_of(self.state, topology.preferred, one) for one in outer}
            for one in outer:
                yield from ((domain,) for domain in self._feasible(inner[one]))
            for one in outer:
                roomiest = sorted(inner[one], key=lambda domain: (-_or_most(domain.free), domain.value))
                yield (*roomiest[:MOST], one)
        else:
            yield from ((one,) for one in outer)

    def required(self) -> list[TopologyDomain]:
        """The domains that may hold the gang, in the order in which they are tried; at least one."""
        key = topology_of(self.group).required
        every = domains_of(self.state, key)
        self.domains = len(every)
        placed = (self.state.residents.get(uid) for uid in self.state.placed_of(self.group))
        taken = {one.node for one in placed if one is not None}
        if taken and (held := [one for one in every if one.nodes & taken]):
            return held
        largest = sorted(every, key=lambda one: (-_or_most(one.free), one.value))[:1]
        nominated = {pod.status.nominated_node_name for pod in self.pods}
        kept = [one for one in every if one.nodes & nominated]  # what is kept for them is not free
        others = [one for one in self._feasible(every) if one not in kept]
        return [*kept, *others] or largest or [TopologyDomain(key, "", frozenset())]

    def _feasible(self, domains: Iterable[TopologyDomain]) -> list[TopologyDomain]:
        """Those that may have enough free devices, the one with the fewest first."""
        missing = wanted_of(self.group) - len(self.state.placed_of(self.group))
        least = sum(sorted(self._wanted().values())[: max(missing, 0)])  # without these the gang cannot start
        roomy = [one for one in domains if one.free is None or one.free >= least]
        return sorted(roomy, key=lambda one: (_or_most(one.free), len(one.nodes), one.value))[:MOST]

    # What ------------------------------------------------------------------------------------------------------------

    def _wanted(self) -> dict[str, int]:
        """uid of a pod -> devices that it takes of those that are free; a claim that several use counts for none."""
        if self._needs is not None:
            return self._needs
        self._needs, first_users = {}, dict[str, str]()
        for pod in self.pods:
            uid, request = pod.metadata.uid, request_of(self.state, pod)
            wanting = () if isinstance(request, Hold) else request.wanting
            shared = any(first_users.setdefault(claim.metadata.uid, uid) != uid for claim in wanting)
            self._needs[uid] = 0 if shared else post_filter.least_devices(self.state.snapshot(), wanting)
        return self._needs

    def _try_in(self, where: Confinement) -> GangPlaces:
        """Taken back again unless it is enough."""
        best = NOWHERE
        for pods in self._orders():
            mark, places = self.state.overlay.mark(), self._in_turn(pods, where)
            if places.whole:
                return places
            self.undo(mark)
            best = places if places.fits > best.fits else best
        return best

    def _orders(self) -> Iterator[Sequence[Pod]]:
        yield self.pods
        wanted = self._wanted()
        if len(set(wanted.values())) > 1:
            missing = wanted_of(self.group) - len(self.state.placed_of(self.group))
            most_first = -1 if len(self.pods) <= missing else 1
            yield sorted(self.pods, key=lambda pod: most_first * wanted[pod.metadata.uid])

    def _in_turn(self, pods: Sequence[Pod], where: Confinement) -> GangPlaces:
        mark, verdicts, refused = self.state.overlay.mark(), list[Verdict](), dict[Hashable, Wait]()
        for pod in pods:
            try:
                check_time()
                verdicts.append(self._decide_in(where, pod, refused))
            except Exception:
                self.undo(mark)
                raise
        fits = len(self.state.placed_of(self.group) | promised(verdicts))
        return GangPlaces(verdicts=tuple(verdicts), fits=fits, whole=fits >= wanted_of(self.group), where=where)

    def _decide_in(self, where: Confinement, pod: Pod, refused: dict[Hashable, Wait]) -> Verdict:
        """In the first of the domains that takes it. refused: refusals of pods that request the same, by domain."""
        gist = self._gist(pod) if refused else None
        for domain in where[:-1]:
            if gist is not None and (domain, gist) in refused:
                continue
            verdict = decide_in(self.state, domain, pod, self.decide_one)
            if not is_refusal(verdict):
                return verdict
            gist = self._gist(pod) if gist is None else gist
            _note(refused, domain, gist, verdict)
        last = where[-1]
        if gist is not None and (alike := refused.get((last, gist))) is not None:
            # It waits with the pod that requests the same, whose cause says why.
            return replace(alike, pod=pod, hold=replace(alike.hold, reasons=alike.hold.reasons | Reason.GANG))
        verdict = decide_in(self.state, last, pod, self.decide_one)
        if is_refusal(verdict):
            _note(refused, last, self._gist(pod) if gist is None else gist, verdict)
        return verdict

    def _gist(self, pod: Pod) -> Hashable:
        request = request_of(self.state, pod)
        return pod.metadata.uid if isinstance(request, Hold) else (pod.metadata.namespace, gist_of(self.state, request))

    def undo(self, mark: int) -> None:
        """Take back what was assumed since `mark`."""
        self.state.overlay.undo(mark)
        post_filter.settle(self.state, self.now)


def _note(refused: dict[Hashable, Wait], domain: TopologyDomain | None, gist: Hashable, refusal: Wait) -> None:
    """Only a refusal that changes nothing is that of every pod that requests the same."""
    if not (refusal.deallocate or refusal.given_up or refusal.writes):
        refused[domain, gist] = refusal


def decide_in(
    state: ClusterState, domain: TopologyDomain | None, pod: Pod, decide_one: Callable[[Pod], Verdict]
) -> Verdict:
    """Raises: Broken."""
    if domain is None:
        verdict = decide_one(pod)
    else:
        with state.nodes.within(domain.nodes, domain.refusal):
            verdict = decide_one(pod)
    if _is_fault(verdict):
        raise Broken(verdict)
    return verdict


def domains_of(state: ClusterState, key: str, within: TopologyDomain | None = None) -> list[TopologyDomain]:
    """Of the nodes that have the label; of those in a domain alone, where one is given."""
    by_value: dict[str, list[str]] = {}
    free: dict[str, int | None] = {}
    snapshot = state.snapshot()
    inside = None if within is None else (state.nodes.view(name) for name in sorted(within.nodes))
    for view in state.nodes.views if inside is None else inside:
        if view is None or (value := view.labels.get(key)) is None:
            continue
        by_value.setdefault(value, []).append(view.name)
        here, before = free_on(snapshot, view), free.get(value, 0)
        free[value] = None if here is None or before is None else before + here
    return [TopologyDomain(key, value, frozenset(names), free[value]) for value, names in by_value.items()]


def _or_most(free: int | None) -> int:
    return 1 << 62 if free is None else free


def homes(state: ClusterState, group: PodGroup) -> Confinement:
    """Nodes for a late member of a satisfied gang: those of the other members, as far as its topology wants that."""
    topology = topology_of(group)
    placed = {one.node for uid in state.placed_of(group) if (one := state.residents.get(uid)) is not None}
    key = topology.required or topology.preferred
    held = [one for one in domains_of(state, key) if one.nodes & placed] if key and placed else []
    if topology.required:
        return tuple(held) or (None,)
    return (*held, None)


# The commit -----------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """Claims of some pods, by uid, cannot be created, or given what was found for them."""

    def __init__(self, refusals: Mapping[str, Wait]) -> None:
        super().__init__()
        self.refusals = refusals


def write_together(
    verdict: GroupVerdict,
    write: WriteOne,
    write_part: WriteOne,
    *,
    state: ClusterState,
    writer: Writer,
    now: datetime,
    refusals: Mapping[str, int] = MappingProxyType({}),
) -> list[Verdict | Gone]:
    """Write the verdicts on a group, and its condition. A gang gets its places, or none of it does.

    write: writes one alone. write_part: one of a gang; raises ApiError where it does not hold. state: as the
    transaction sees it. refusals: how often what was to be written for a pod was refused before, by its uid.
    """
    if not verdict.wanted:
        settled = [write(one) for one in verdict.verdicts]
    else:
        try:
            with writer.savepoint():
                settled = _write_parts(verdict.verdicts, write_part, writer)
                _check_gang(state, verdict, settled)
        except _Refused as refused:
            refusals = {**refusals, **{uid: refusals.get(uid, 0) + 1 for uid in refused.refusals}}
            if max(refusals.values()) > MOST_REFUSALS:
                _count(verdict, "error")
                hold = next(iter(refused.refusals.values())).hold
                return [Retry(pod=one.pod, cause=hold.cause) for one in verdict.verdicts]
            fewer = verdict.with_refused(refused.refusals, state.placed_of(verdict.group))
            return write_together(fewer, write, write_part, state=state, writer=writer, now=now, refusals=refusals)
        except ApiError as error:
            _count(verdict, "error")
            cause, overtaken = Interrupted(error.message), isinstance(error, Conflict)
            return [Retry(pod=one.pod, cause=cause, at_once=overtaken) for one in verdict.verdicts]
        except Error:
            raise  # the transaction is broken, for all of the batch
        except Exception as error:
            _count(verdict, "error")
            log.exception("gang %s cannot be committed; its pods will be retried", "/".join(verdict.group.key))
            return [_failed(one.pod, error) for one in verdict.verdicts]
    result = "scheduled" if verdict.scheduled else "unschedulable"
    _count(verdict, "waiting_on_preemption" if verdict.evicting else result)
    group = writer.get(kind(POD_GROUPS), *verdict.group.key)
    there = isinstance(group, PodGroup) and group.metadata.uid == verdict.group.metadata.uid
    # The condition stays true once it is (upstream: updatePodGroupCondition).
    if isinstance(group, PodGroup) and there and (verdict.scheduled or not is_scheduled(group)):
        written = with_scheduled(group, scheduled=verdict.scheduled, evicting=verdict.evicting, now=timestamp(now))
        writer.update(kind(POD_GROUPS), written, subresource="status")
    return settled


def _write_parts(verdicts: Iterable[Verdict], write_part: WriteOne, writer: Writer) -> list[Verdict | Gone]:
    """Raises: _Refused, for all at once: everything is undone then, and written again without them."""
    settled, refused = list[Verdict | Gone](), dict[str, Wait]()
    for verdict in verdicts:
        try:
            with writer.savepoint():
                settled.append(write_part(verdict))
        except ApiError as error:
            if not is_refused(error):
                raise
            refused[verdict.uid] = refusal_by(verdict.pod, error)
    if refused:
        raise _Refused(refused)
    return settled


def _check_gang(state: ClusterState, verdict: GroupVerdict, settled: Sequence[Verdict | Gone]) -> None:
    """Raises: Conflict where fewer of the group than it needs have a place by now."""
    gone = {one.uid for one in settled if isinstance(one, Gone)}
    name, key = verdict.group.metadata.name, topology_of(verdict.group).required
    if len(state.placed_of(verdict.group) | verdict.promised - gone) < verdict.wanted:
        raise Conflict.of(POD_GROUPS, name, "pods of the group are gone in the meantime")
    nodes = {one.node for one in verdict.verdicts if isinstance(one, Placement)}
    views = [view for node in nodes if (view := state.nodes.view(node)) is not None]
    if key and len({view.labels.get(key) for view in views}) > 1:
        raise Conflict.of(POD_GROUPS, name, f"label {key} of nodes has changed in the meantime")


def with_scheduled(group: PodGroup, *, scheduled: bool, evicting: bool, now: str) -> PodGroup:
    """`group` with the result of the attempt to place its pods; the same value where its condition says it already."""
    message = "pod group is unschedulable"
    if evicting:
        message += ", pod group is waiting for preemption to complete"
    current = condition_of(group.status.conditions, SCHEDULED)
    fresh = Condition(
        type=SCHEDULED,
        status="True" if scheduled else "False",
        reason="Scheduled" if scheduled else UNSCHEDULABLE,
        message="" if scheduled else message,
        last_transition_time=now,
        observed_generation=group.metadata.generation,
    )
    if current is not None and current.status == fresh.status:
        fresh = structs.replace(fresh, last_transition_time=current.last_transition_time)
    if current == fresh:
        return group
    others = [one for one in group.status.conditions if one.type != SCHEDULED]
    return structs.replace(group, status=structs.replace(group.status, conditions=(*others, fresh)))


def _count(verdict: GroupVerdict, result: str) -> None:
    labels = (result, metrics.PROFILE)
    metrics.GROUP_ATTEMPTS[labels].inc()
    metrics.GROUP_DURATIONS[labels].observe(time.perf_counter() - verdict.began)
