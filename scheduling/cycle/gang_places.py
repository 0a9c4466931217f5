"""Where the pods of a gang find places together: the search among the topology domains of the nodes.

    search = GangSearch(state=state, group=group, pods=pods, decide_one=decide_one, deadline=deadline)
    found = search.run()
    found.whole     # all that are needed have a place: these are assumed on the state; else nothing is
    found.fits      # how many have one, those that had one before included, where most have

A domain is the nodes with one value of a label. A gang that requires a topology is tried in one domain after the other,
those first where it leaves the least free; of those that are known to have too few free devices none is tried but the
largest, so that it can be told what is missing. A gang that prefers one is tried in each domain as if it required it,
and then over several, those with most free first, so that it is spread over few. At most `MOST` domains of a key are
tried; an attempt whose time is up goes on with the next one.

Within a domain the pods are decided about in turn, by the code that schedules any pod, each on the state with the
places of those before it. Where they ask for different numbers of devices, a second order is tried: those that want
most first, or those that want least where not all are needed. What is found is a place for each; that there is none is
certain only where pods are alike and no choice of devices for one spoils it for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from claims.causes.causes import NodeRefusal
from claims.kinds.gangs import topology_of
from claims.kinds.pod_groups import PodGroup
from claims.kinds.pods import Pod
from scheduling.allocator import Deadline, free_on
from scheduling.cycle import preemption
from scheduling.cycle.decisions import Decision, Placement, PodRefusal, keeps_room
from scheduling.cycle.preemption import Asking
from scheduling.cycle.remedies import gist_of
from scheduling.queue.queue import Retry
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.cluster import ClusterState
from scheduling.state.groups import wanted_of
from scheduling.state.residents import least_devices

#: Domains of one key that are tried.
MOST = 64


@dataclass(frozen=True, slots=True)
class TopologyDomain:
    """The nodes with one value of a label. free: devices that nobody holds; None where their number tells little."""

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
#: Decides about one pod; a placement is assumed.
DecideOne = Callable[[Pod], Decision | Retry]


class Broken(Exception):
    """A fault in one pod: nothing is decided about the others."""

    def __init__(self, retry: Retry) -> None:
        super().__init__()
        self.retry = retry


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlaces:
    """What one attempt came to. decisions: one for each pod."""

    decisions: tuple[Decision, ...]
    fits: int
    whole: bool
    where: Confinement

    @property
    def domain(self) -> TopologyDomain | None:
        """That to which all of it is kept; None where it may be anywhere."""
        return self.where[-1]


NOWHERE = GangPlaces(decisions=(), fits=-1, whole=False, where=(None,))


@dataclass(slots=True, kw_only=True)
class GangSearch:
    """See the module's docstring. skip: attempts that an earlier search has made; after it, how far this one came, 0 at
    its end. tried: the domains that could hold the gang by themselves, and how many of its pods fit there.
    """

    state: ClusterState
    group: PodGroup
    pods: Sequence[Pod]
    decide_one: DecideOne
    deadline: Deadline
    now: datetime
    skip: int = 0
    tried: list[tuple[TopologyDomain, int]] = field(default_factory=list)
    #: of the topology that it requires, those included that are known to be too small
    domains: int = 0
    _needs: dict[str, int] | None = None

    def run(self) -> GangPlaces:
        """Raises: Broken."""
        best, done, self.skip = NOWHERE, self.skip, 0
        for at, where in enumerate(self._confinements(done)):
            if best is not NOWHERE and self.deadline.has_passed:
                self.skip = done + at
                break
            found = self._tried_in(where)
            if (domain := found.domain) is not None:
                self.tried.append((domain, found.fits))
            if found.whole:
                return found
            best = found if found.fits > best.fits else best
        return best

    # Where -----------------------------------------------------------------------------------------------------------

    def _confinements(self, done: int) -> Sequence[Confinement]:
        """Those that are left after `done`; from the first on where none is."""
        every = list(self._every())
        return every[done:] or every

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
        taken = self._nodes_of(self.state.placed_of(self.group))
        if taken and (held := [one for one in every if one.nodes & taken]):
            return held
        largest = sorted(every, key=lambda one: (-_or_most(one.free), one.value))[:1]
        nominated = {pod.status.nominated_node_name for pod in self.pods}
        kept = [one for one in every if one.nodes & nominated]  # what is kept for them is not free
        found = [one for one in self._feasible(every) if one not in kept]
        return [*kept, *found] or largest or [TopologyDomain(key, "", frozenset())]

    def _nodes_of(self, uids: Iterable[str]) -> set[str]:
        placed = (self.state.residents.get(uid) for uid in uids)
        return {one.node for one in placed if one is not None}

    def _feasible(self, domains: Iterable[TopologyDomain]) -> list[TopologyDomain]:
        """Those that may have enough free devices, the one with the fewest first."""
        wanted = self._least_wanted()
        found = [one for one in domains if one.free is None or one.free >= wanted]
        return sorted(found, key=lambda one: (_or_most(one.free), len(one.nodes), one.value))[:MOST]

    def _least_wanted(self) -> int:
        """Devices without which the gang cannot start."""
        missing = wanted_of(self.group) - len(self.state.placed_of(self.group))
        return sum(sorted(self._wanted().values())[: max(missing, 0)])

    # What ------------------------------------------------------------------------------------------------------------

    def _wanted(self) -> dict[str, int]:
        """uid of a pod -> devices that it takes of those that are free; a claim that several use counts for none."""
        if self._needs is None:
            self._needs = self._read_wanted()
        return self._needs

    def _read_wanted(self) -> dict[str, int]:
        found, seen = dict[str, int](), dict[str, str]()
        for pod in self.pods:
            claims = self.state.pre_filter(pod)
            wanting = () if isinstance(claims, Hold) else Asking.of(pod, claims).wanting
            shared = any(seen.setdefault(one.metadata.uid, pod.metadata.uid) != pod.metadata.uid for one in wanting)
            found[pod.metadata.uid] = 0 if shared else least_devices(self.state.snapshot(), wanting)
        return found

    def _tried_in(self, where: Confinement) -> GangPlaces:
        """What comes of it; taken back again unless it is enough."""
        best = NOWHERE
        for pods in self._orders():
            mark, found = self.state.overlay.mark(), self._in_turn(pods, where)
            if found.whole:
                return found
            self.undo(mark)
            best = found if found.fits > best.fits else best
        return best

    def _orders(self) -> Iterator[Sequence[Pod]]:
        yield self.pods
        wanted = self._wanted()
        if len(set(wanted.values())) > 1:
            missing = wanted_of(self.group) - len(self.state.placed_of(self.group))
            most_first = -1 if len(self.pods) <= missing else 1
            yield sorted(self.pods, key=lambda pod: most_first * wanted[pod.metadata.uid])

    def _in_turn(self, pods: Sequence[Pod], where: Confinement) -> GangPlaces:
        mark, found, refused = self.state.overlay.mark(), list[Decision](), dict[Hashable, PodRefusal]()
        for pod in pods:
            try:
                found.append(self._placed_in(pod, where, refused))
            except Exception:
                self.undo(mark)
                raise
        fits = len(with_place(self.state, self.group, found))
        return GangPlaces(decisions=tuple(found), fits=fits, whole=fits >= wanted_of(self.group), where=where)

    def _placed_in(self, pod: Pod, where: Confinement, refused: dict[Hashable, PodRefusal]) -> Decision:
        """In the first of the domains that takes it. refused: where pods that ask for the same were refused."""
        *others, last = where
        for domain in others:
            decision = self._decided(pod, domain, refused)
            if not isinstance(decision, PodRefusal):
                return decision
        return self._decided(pod, last, refused)

    def _decided(self, pod: Pod, domain: TopologyDomain | None, refused: dict[Hashable, PodRefusal]) -> Decision:
        gist = (domain, self._gist(pod)) if refused else None
        if gist is not None and gist in refused:
            return _refused_like(refused[gist], pod)
        decision = decided_in(self.state, domain, pod, self.decide_one)
        if isinstance(decision, PodRefusal) and not (decision.deallocate or decision.given_up or decision.writes):
            refused[domain, self._gist(pod)] = decision
        return decision

    def _gist(self, pod: Pod) -> Hashable:
        claims = self.state.pre_filter(pod)
        if isinstance(claims, Hold):
            return pod.metadata.uid
        return pod.metadata.namespace, gist_of(self.state, Asking.of(pod, claims, self.state.extended(pod)))

    def undo(self, mark: int) -> None:
        """Take back what was assumed since `mark`."""
        self.state.overlay.undo(mark)
        preemption.settle(self.state, self.now)


def decided_in(state: ClusterState, domain: TopologyDomain | None, pod: Pod, decide_one: DecideOne) -> Decision:
    """Raises: Broken."""
    if domain is None:
        decision = decide_one(pod)
    else:
        with state.nodes.within(domain.nodes, domain.refusal):
            decision = decide_one(pod)
    if isinstance(decision, Retry):
        raise Broken(decision)
    return decision


def with_place(state: ClusterState, group: PodGroup, found: Sequence[Decision]) -> set[str]:
    """The uids of the pods of the group that have a place, or would have one by these decisions."""
    promised = {one.pod.metadata.uid for one in found if isinstance(one, Placement) or keeps_room(one)}
    return state.placed_of(group) | promised


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


def _refused_like(known: PodRefusal, pod: Pod) -> PodRefusal:
    """It asks for what another of the gang was refused: that one says why."""
    return replace(known, pod=pod, hold=replace(known.hold, reasons=known.hold.reasons | Reason.GANG))


def homes(state: ClusterState, group: PodGroup) -> Confinement:
    """Where a pod goes that comes to a gang which has what it needs: to the others, as far as that is wanted."""
    topology = topology_of(group)
    placed = {one.node for uid in state.placed_of(group) if (one := state.residents.get(uid)) is not None}
    key = topology.required or topology.preferred
    held = [one for one in domains_of(state, key) if one.nodes & placed] if key and placed else []
    if topology.required:
        return tuple(held) or (None,)
    return (*held, None)
