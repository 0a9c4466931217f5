"""The nodes as a worker caches them, the pods with a place on them, and the room kept for nominated pods. PURE.

Nodes (`NodeTable`). Pods from one template ask the same of a node, so verdicts are cached by what is asked (`_Shape`),
and only the nodes that changed since are filtered again: each change is appended to a journal, and each shape remembers
how far it has read. Rules about neighbours (`scheduling.state.node_fit`) depend on all nodes at once and are counted
for each pod that has any.

Residents, the pods with a place. A resident keeps what preemption decides by: its priority, its start, its claims,
whether it is leaving. The cost of evicting several is a value (`cost_of`).

Rooms. A room is what a nominated pod will take of its node: its requests, its neighbours and the very devices. It
counts against every pod but the pod itself and more important ones: `yield_to` takes it off while one of those is
tried. A firm one counts against these, too. Devices that others still hold count twice then, so the pod gets them when
they come free.

One thread at a time. Upstream: pkg/scheduler/util/utils.go (MoreImportantPod, GetPodStartTime),
framework/preemption/preemption.go (pickOneNodeForPreemption).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from heapq import nlargest
from operator import attrgetter
from typing import ClassVar

from msgspec import Struct, structs

from claims.causes.causes import NodeRefusal
from claims.kinds.pods import Pod, uses_volume_claims
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.kinds.resource_usage import node_requests_of
from claims.pod_claims import claim_names
from inventory.kinds.nodes import Node, NodeSpec, NodeStatus, has_reported
from manciple.copying import RESET
from manciple.wire.base import EMPTY, Alike, ObjectMeta
from manciple.wire.quantity import Quantity
from manciple.wire.resources import NODES
from manciple.wire.selectors import parsed_node_terms
from manciple.wire.validation import is_device_resource_name
from scheduling.allocator import Inventory, NodeView
from scheduling.placement.demands import NodeNeeds
from scheduling.state import node_fit
from scheduling.state.node_fit import Neighbours, PodNeeds, ServingClasses
from scheduling.state.part import Part
from scheduling.state.volumes import VolumeClaims

#: Shapes in the cache; the least recently used goes first.
SHAPES = 64
#: The preferences of a pod and of its neighbours are clamped to this.
HEAVIEST_WISHES = 100_000
NOT_HERE = NodeRefusal("DynamicResources")
#: many nodes have equal specs and equal allocatable resources
_specs = Alike[NodeSpec]()
_statuses = Alike[NodeStatus]()


class _Load(Struct, frozen=True, gc=False):
    """What runs on a node: requests in nanos by resource, and the number of pods. Replaced, never changed: a copy of
    the table has thousands.
    """

    used: Mapping[str, int] = EMPTY
    pods: int = 0

    def plus(self, requests: Mapping[str, int], sign: int) -> _Load:
        used = dict(self.used)
        for resource, amount in requests.items():
            used[resource] = used.get(resource, 0) + sign * amount
        return _Load(used, self.pods + sign)


@dataclass(slots=True)
class _Shape:
    """The verdicts on all nodes, for pods that ask the same of a node."""

    needs: PodNeeds
    read: int = 0  # entries of the journal that are in the verdicts
    fitting: dict[str, NodeView] = field(default_factory=dict)
    refused: dict[str, tuple[NodeRefusal, ...]] = field(default_factory=dict)
    #: the values of `fitting`; the same tuple while nothing changes, because the allocator caches by its identity
    _views: tuple[NodeView, ...] | None = None

    @property
    def views(self) -> tuple[NodeView, ...]:
        if self._views is None:
            self._views = tuple(self.fitting.values())
        return self._views

    def fits(self, name: str, view: NodeView) -> None:
        self.refused.pop(name, None)
        if self.fitting.get(name) is not view:
            self.fitting[name] = view
            self._views = None

    def fits_not(self, name: str, refusals: tuple[NodeRefusal, ...]) -> None:
        """refusals: none where there is no such node."""
        if self.fitting.pop(name, None) is not None:
            self._views = None
        if refusals:
            self.refused[name] = refusals
        else:
            self.refused.pop(name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterResult:
    """The nodes that a pod fits on, apart from new devices, and the refusals of the others."""

    fitting: tuple[NodeView, ...]
    refused: Mapping[str, tuple[NodeRefusal, ...]]
    #: allocated claims of the pod that are not available on some node that would fit otherwise
    elsewhere: tuple[ResourceClaim, ...] = ()

    def idle_claim(self, is_idle: Callable[[ResourceClaim], bool]) -> ResourceClaim | None:
        """An allocated claim that rules out nodes, and that only the pod could be using."""
        return next(filter(is_idle, self.elsewhere), None)


@dataclass(slots=True, eq=False, repr=False)
class NodeTable(Part):
    """See the module's docstring. serving: the DeviceClasses that serve extended resources.

    A copy has the same nodes and pods. It starts without verdicts and without a restriction to some nodes.
    """

    follows: ClassVar[tuple[str, ...]] = (NODES,)

    serving: ServingClasses = field(default_factory=ServingClasses)
    neighbours: Neighbours = field(default_factory=Neighbours)
    volumes: VolumeClaims = field(default_factory=VolumeClaims)
    _nodes: dict[str, Node] = field(default_factory=dict)
    _views: dict[str, NodeView] = field(default_factory=dict)
    _loads: dict[str, _Load] = field(default_factory=dict)
    #: pod uid -> (node, requests)
    _pods: dict[str, tuple[str, Mapping[str, int]]] = field(default_factory=dict)
    _last_read: tuple[Pod, Mapping[str, int]] | None = None
    #: nodes with a taint of effect PreferNoSchedule
    _softly_tainted: set[str] = field(default_factory=set)
    #: extended resource -> the nodes that advertise some of it themselves
    _advertising: dict[str, set[str]] = field(default_factory=dict)
    _shapes: dict[Hashable, _Shape] = field(default_factory=dict, metadata=RESET)
    _journal: list[str] = field(default_factory=list, metadata=RESET)
    #: changes before those in the journal
    _journal_began: int = field(default=0, metadata=RESET)
    #: `only`: the one node that is filtered
    _only: str | None = field(default=None, metadata=RESET)
    #: `within`: the nodes that may be chosen, and the refusal of the others
    _within: tuple[Collection[str], NodeRefusal] | None = field(default=None, metadata=RESET)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    @property
    def views(self) -> tuple[NodeView, ...]:
        """Every node, by name."""
        return tuple(self._views[name] for name in sorted(self._views))

    # Changing --------------------------------------------------------------------------------------------------------

    def put(self, node: Node) -> None:
        """Add a node, or replace it. Only the fields that filters read are kept: images alone are kilobytes."""
        name, labels, allocatable = node.metadata.name, node.metadata.labels, node.status.allocatable
        spec = node.spec
        if not has_reported(node):
            spec = structs.replace(spec, taints=(*spec.taints, node_fit.UNHEARD_TAINT))
        self._nodes[name] = Node(
            metadata=ObjectMeta(name=name, labels=labels, annotations=EMPTY),
            spec=_specs.first(spec, spec),
            status=_statuses.first(tuple(allocatable.items()), NodeStatus(allocatable=allocatable)),
        )
        self._views[name] = NodeView(name, labels)
        self._softly_tainted.discard(name)
        if any(taint.effect in node_fit.SOFT_EFFECTS for taint in spec.taints):
            self._softly_tainted.add(name)
        self._note_advertised(name, allocatable)
        self._changed(name)

    def remove(self, node: Node) -> None:
        name = node.metadata.name
        self._nodes.pop(name, None)
        self._views.pop(name, None)
        self._softly_tainted.discard(name)
        self._note_advertised(name, EMPTY)
        self._changed(name)

    def _note_advertised(self, name: str, allocatable: Mapping[str, str]) -> None:
        for nodes in self._advertising.values():
            nodes.discard(name)
        for resource, amount in allocatable.items():
            if is_device_resource_name(resource) and Quantity.parse(amount).nanos > 0:
                self._advertising.setdefault(resource, set()).add(name)

    def place(self, pod: Pod, node: str) -> bool:
        """Count `pod` on `node`. Returns whether that changed anything."""
        uid, requests = pod.metadata.uid, self.requests_of(pod)
        if self._pods.get(uid) == (node, requests):
            return self.neighbours.place(pod, node)
        self.remove_pod(uid)
        self.neighbours.place(pod, node)
        if uses_volume_claims(pod):
            self.volumes.place(pod, node)
        self._pods[uid] = (node, requests)
        self._loads[node] = self._loads.get(node, _IDLE).plus(requests, 1)
        self._changed(node)
        return True

    def requests_of(self, pod: Pod) -> Mapping[str, int]:
        """What the pod takes of its node, in nanos. Read once for the pod that is being tried: many nodes are asked."""
        if self._last_read is None or self._last_read[0] is not pod:
            self._last_read = (pod, node_requests_of(pod))
        return self._last_read[1]

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod. One that isn't counted is no error."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        self.neighbours.remove_pod(uid)
        if uid in self.volumes.claims_of:
            self.volumes.remove_pod(uid)
        node, requests = known
        load = self._loads[node].plus(requests, -1)
        if load.pods:
            self._loads[node] = load
        else:
            del self._loads[node]
        self._changed(node)

    def _changed(self, name: str) -> None:
        self._journal.append(name)
        if len(self._journal) > 4 * len(self._nodes) + 1000:
            # Reading the journal would cost more than looking at every node again.
            self._journal_began += len(self._journal)
            self._journal.clear()
            self._shapes.clear()

    # Asking ----------------------------------------------------------------------------------------------------------

    def fits(self, pod: Pod, name: str) -> bool:
        """Whether `name` would take `pod` as it is now, which is not counted twice if it is counted there already."""
        return not self.refusals_without(pod, name, (pod.metadata.uid,))

    def refusals_without(
        self, pod: Pod, name: str, gone: Collection[str], *, claims: Sequence[ResourceClaim] = ()
    ) -> tuple[NodeRefusal, ...]:
        """The refusals of node `name` without the pods `gone`; empty if it would take `pod`.

        claims: those of the pod's claims that are allocated already.
        """
        node = self._nodes.get(name)
        if node is None:
            return (NodeRefusal("NodeName"),)
        load = self._loads.get(name, _IDLE)
        used, pods = dict(load.used), load.pods
        for uid in gone:
            known = self._pods.get(uid)
            if known is not None and known[0] == name:
                pods -= 1
                for resource, amount in known[1].items():
                    used[resource] = used.get(resource, 0) - amount
        refusals = node_fit.check(self._needs_of(pod), node, used=used, pods=pods, claims=claims)
        if refusals or not self.neighbours.may_refuse(pod):
            return refusals
        with self.neighbours.without(gone):
            rules = self.neighbours.rules_for(pod, self._nodes)
            refusal = None if rules is None else rules.refusal(node)
        return () if refusal is None else (refusal,)

    def _needs_of(self, pod: Pod) -> PodNeeds:
        """Where no node advertises what devices serve, pods that ask for it are judged like those that do not."""
        needs = node_fit.needs_of(pod, self.serving.by_resource, self.requests_of(pod))
        if uses_volume_claims(pod):
            needs = replace(needs, volumes=self.volumes.nodes_for(pod))
        if not needs.by_devices or self.advertise(needs.by_devices):
            return needs
        others = {name: amount for name, amount in needs.requests.items() if name not in needs.by_devices}
        return replace(needs, requests=others, by_devices=frozenset())

    def fewest_to_leave(self, pod: Pod, name: str, others: Collection[str]) -> int:
        """At least so many of the pods `others` (uids) have to leave `name` for the requests of `pod` to fit there."""
        node, load = self._nodes[name], self._loads.get(name, _IDLE)
        needs = node_fit.needs_of(pod, self.serving.by_resource, self.requests_of(pod))
        held = [known[1] for uid in others if (known := self._pods.get(uid)) is not None]
        fewest = 0
        for resource, short in node_fit.shortages(needs, node, used=load.used, pods=load.pods):
            each = [10**9 if resource == node_fit.PODS else requests.get(resource, 0) for requests in held]
            fewest = max(fewest, fewest_of(each, short))
        return fewest

    def filter(self, pod: Pod, claims: Sequence[ResourceClaim] = ()) -> FilterResult:
        """Ask every node about `pod`. claims: those of the pod's claims that are allocated already."""
        shape = self._asked_of(self._shape_of(pod))
        rules = self.neighbours.rules_for(pod, self._nodes)
        allocated = [(claim, claim.status.allocation) for claim in claims if claim.status.allocation is not None]
        bound = [
            (claim, parsed_node_terms(given.node_selector))
            for claim, given in allocated
            if given.node_selector is not None
        ]
        if rules is None and not bound:
            return FilterResult(fitting=shape.views, refused=shape.refused)
        fitting, refused = [], dict(shape.refused)
        elsewhere: dict[str, ResourceClaim] = {}
        for name, view in shape.fitting.items():
            if rules is not None and (refusal := rules.refusal(self._nodes[name])) is not None:
                refused[name] = (refusal,)
                continue
            away = [claim for claim, terms in bound if not any(term.matches(name, view.labels) for term in terms)]
            elsewhere.update({claim.metadata.uid: claim for claim in away})
            if away:
                refused[name] = (NOT_HERE,)
            else:
                fitting.append(view)
        return FilterResult(fitting=tuple(fitting), refused=refused, elsewhere=tuple(elsewhere.values()))

    @contextmanager
    def only(self, name: str) -> Iterator[None]:
        """Within it, `filter` asks this node alone."""
        self._only = name
        try:
            yield
        finally:
            self._only = None

    @contextmanager
    def within(self, names: Collection[str], refusal: NodeRefusal) -> Iterator[None]:
        """Within it, `filter` refuses all nodes but these."""
        before, self._within = self._within, (names, refusal)
        try:
            yield
        finally:
            self._within = before

    def _asked_of(self, shape: _Shape) -> _Shape:
        if self._within is not None:
            names, refusal = self._within
            outside = {name: (*shape.refused.get(name, ()), refusal) for name in self._nodes if name not in names}
            inside = {name: found for name, found in shape.refused.items() if name in names}
            fitting = {name: shape.fitting[name] for name in names if name in shape.fitting}
            return _Shape(shape.needs, fitting=fitting, refused={**inside, **outside})
        if self._only is None:
            return shape
        fitting = {name: view for name, view in [(self._only, shape.fitting.get(self._only))] if view is not None}
        refused = {name: shape.refused[name] for name in (self._only,) if name in shape.refused}
        return _Shape(shape.needs, fitting=fitting, refused=refused)

    def preference(self, pod: Pod) -> Callable[[str], int] | None:
        """How much the pod prefers a node, by its name: higher is better; None if it prefers none.

        A soft taint outweighs all affinities.
        """
        needs = node_fit.needs_of(pod, self.serving.by_resource, self.requests_of(pod))
        rules = self.neighbours.rules_for(pod, self._nodes)
        if rules is not None and rules.is_indifferent:
            rules = None
        if rules is None and not needs.preferences and not self._softly_tainted:
            return None

        def preference(name: str) -> int:
            node = self._nodes[name]
            taints, weight = node_fit.preference(needs, node)
            if rules is not None:
                weight += rules.wish(node)
            return taints * HEAVIEST_WISHES * 2 + max(-HEAVIEST_WISHES, min(HEAVIEST_WISHES, weight))

        return preference

    @property
    def pods(self) -> int:
        """On all nodes."""
        return len(self._pods)

    def view(self, name: str) -> NodeView | None:
        return self._views.get(name)

    def allocatable(self, name: str) -> Mapping[str, str]:
        """The node's allocatable resources; empty if there is no such node."""
        node = self._nodes.get(name)
        return EMPTY if node is None else node.status.allocatable

    def advertise(self, resources: Iterable[str]) -> bool:
        """Whether any node advertises some of one of these extended resources itself."""
        return any(self._advertising.get(resource) for resource in resources)

    def advertising(self, resource: str) -> frozenset[str]:
        """The nodes that advertise some of an extended resource themselves."""
        return frozenset(self._advertising.get(resource, ()))

    def left_of(self, name: str, resource: str) -> int:
        """How much of what the node advertises no pod there has asked for, in nanos."""
        text = self.allocatable(name).get(resource)
        given = self._loads.get(name, _IDLE).used.get(resource, 0)
        return (0 if text is None else Quantity.parse(text).nanos) - given

    def left(self, name: str) -> NodeNeeds:
        """What no pod there has asked for of the node's cpu and memory (`demands.NodeRoom`)."""
        return NodeNeeds(self.left_of(name, "cpu") // 10**6, self.left_of(name, "memory") // (10**9 << 20))

    def changed_since(self, mark: int) -> tuple[Iterable[str] | None, int]:
        """As `demands.NodeRoom` has it."""
        now = self._journal_began + len(self._journal)
        return (None if mark < self._journal_began else self._journal[mark - self._journal_began :]), now

    def taken_by(self, uid: str) -> NodeNeeds:
        """What a pod with a place takes of its node."""
        known = self._pods.get(uid)
        return NodeNeeds() if known is None else NodeNeeds.of(known[1])

    def pods_on(self, name: str) -> int:
        return self._loads.get(name, _IDLE).pods

    def _shape_of(self, pod: Pod) -> _Shape:
        needs = self._needs_of(pod)
        key = verdict_key(needs)
        shape = self._shapes.pop(key, None) or _Shape(needs, read=-1)
        self._shapes[key] = shape  # the last is the one that was asked for last
        if len(self._shapes) > SHAPES:
            del self._shapes[next(iter(self._shapes))]
        stale = self._nodes if shape.read < 0 else dict.fromkeys(self._journal[shape.read :])
        for name in stale:
            node, load = self._nodes.get(name), self._loads.get(name, _IDLE)
            refusals = () if node is None else node_fit.check(shape.needs, node, used=load.used, pods=load.pods)
            if node is None or refusals:
                shape.fits_not(name, refusals)
            else:
                shape.fits(name, self._views[name])
        shape.read = len(self._journal)
        return shape


_IDLE = _Load()


def fewest_of(amounts: Iterable[int], wanted: int) -> int:
    """How many of `amounts` come to `wanted` at best; one more than there are where all are too little."""
    number = 0
    for amount in sorted(amounts, reverse=True):
        if wanted <= 0:
            return number
        wanted -= amount
        number += 1
    return number if wanted <= 0 else number + 1


#: All fields but those named here: a filter that reads a new one must not get another pod's verdict.
_NEEDS_OF_VERDICT = attrgetter(*(field.name for field in fields(PodNeeds) if field.name != "preferences"))


def verdict_key(needs: PodNeeds) -> Hashable:
    """Equal for pods on which every node gives the same verdict; preferences are no verdict."""
    return tuple(
        tuple(sorted(value.items())) if isinstance(value, Mapping) else value for value in _NEEDS_OF_VERDICT(needs)
    )


# Residents ------------------------------------------------------------------------------------------------------------


#: A deleted pod that is still there so long after its grace period has no agent to end it: it isn't leaving.
OVERDUE_AFTER = timedelta(seconds=30)


class Resident(Struct, frozen=True, kw_only=True, gc=False):
    """One pod with a place. bound: else it waits there for its devices to be attached, and nothing of it runs.

    There are as many as pods, and the garbage collector need not look at any.
    """

    uid: str
    namespace: str
    name: str
    node: str
    priority: int
    #: seconds since the epoch
    started: float
    #: (namespace, name)
    claims: tuple[tuple[str, str], ...]
    bound: bool
    #: when its grace period ends, where it is being deleted
    going: datetime | None

    @classmethod
    def of(cls, pod: Pod, node: str) -> Resident:
        meta = pod.metadata
        started = pod.status.start_time or meta.creation_timestamp
        return cls(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            node=node,
            priority=pod.spec.priority or 0,
            started=datetime.fromisoformat(started).timestamp() if started else 0.0,
            claims=tuple((meta.namespace, name) for name in claim_names(pod)),
            bound=bool(pod.spec.node_name),
            going=datetime.fromisoformat(meta.deletion_timestamp) if meta.deletion_timestamp else None,
        )

    def is_leaving(self, now: datetime) -> bool:
        """Whether it is being deleted, and will be gone soon."""
        return self.going is not None and now < self.going + OVERDUE_AFTER

    @property
    def importance(self) -> tuple[int, float]:
        """Less is more important: a higher priority, then the earlier start."""
        return -self.priority, self.started


#: What is added to each priority, so that more victims never cost less (upstream: MaxInt32 + 1).
OFFSET = 1 << 31

#: (highest priority, sum of the priorities, number, when the earliest of the most important started, negated)
Cost = tuple[int, int, int, float]
FREE: Cost = (-OFFSET - 1, 0, 0, 0.0)
#: (evictions that no disruption budget allows, *Cost)
Price = tuple[int, int, int, int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEviction:
    """If `victims` leave `node`, the pod fits. allocations: claim uid -> what it gets then.

    violations: how many of the victims no disruption budget lets go.
    """

    node: str
    #: the most important first; none where those that leave anyhow make the room
    victims: tuple[Resident, ...]
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    violations: int = 0

    @property
    def price(self) -> Price:
        return self.violations, *cost_of(self.victims)


def cost_of(victims: Collection[Resident]) -> Cost:
    """Less is better (upstream: pickOneNodeForPreemption, after the disruption budgets)."""
    if not victims:
        return FREE
    highest = max(one.priority for one in victims)
    started = min(one.started for one in victims if one.priority == highest)
    return highest, sum(one.priority + OFFSET for one in victims), len(victims), -started


def least_cost(pods: Collection[Resident], number: int) -> Cost:
    """What at least so many of these pods cost together. number: at least 1, and not more than there are."""
    lowest = sorted(one.priority for one in pods)[:number]
    highest = lowest[-1]
    started = sorted((one.started for one in pods if one.priority == highest), reverse=True)
    return highest, sum(lowest) + number * OFFSET, number, -started[lowest.count(highest) - 1]


@dataclass(slots=True, eq=False, repr=False)
class Residents:
    """The pods with a place, by node."""

    _by_uid: dict[str, Resident] = field(default_factory=dict)
    _by_node: dict[str, dict[str, Resident]] = field(default_factory=dict)
    _priorities: Counter[int] = field(default_factory=Counter)

    def put(self, resident: Resident) -> None:
        """Add a pod, or replace it."""
        self.remove(resident.uid)
        self._by_uid[resident.uid] = resident
        self._by_node.setdefault(resident.node, {})[resident.uid] = resident
        self._priorities[resident.priority] += 1

    def remove(self, uid: str) -> None:
        """Remove a pod. One that has no place is no error."""
        known = self._by_uid.pop(uid, None)
        if known is None:
            return
        on_node = self._by_node[known.node]
        del on_node[uid]
        if not on_node:
            del self._by_node[known.node]
        self._priorities[known.priority] -= 1
        if not self._priorities[known.priority]:
            del self._priorities[known.priority]

    def get(self, uid: str) -> Resident | None:
        return self._by_uid.get(uid)

    def latest(self, most: int) -> list[Resident]:
        """Those that started last."""
        return nlargest(most, self._by_uid.values(), key=lambda one: (one.started, one.uid))

    def on(self, node: str) -> Iterable[Resident]:
        known: Mapping[str, Resident] = self._by_node.get(node, {})
        return known.values()

    def any_below(self, priority: int) -> bool:
        """Whether any pod has a lower priority."""
        return any(one < priority for one in self._priorities)


# Rooms ----------------------------------------------------------------------------------------------------------------


#: Less than any priority, and more: every room counts; a room that counts against every pod.
NOBODY, EVERYBODY = -(1 << 32), 1 << 32


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Room:
    """The room of a nominated pod. allocations: claim uid -> devices. counts: whether it is taken off the node now.
    is_firm: it counts against every other pod.
    """

    pod: Pod
    node: str
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    counts: bool = False
    is_firm: bool = False

    @property
    def priority(self) -> int:
        return EVERYBODY if self.is_firm else self.pod.spec.priority or 0


@dataclass(slots=True, eq=False, repr=False)
class Rooms:
    """The rooms that are kept, counted on the nodes and in the inventory."""

    _nodes: NodeTable
    _inventory: Inventory
    _rooms: dict[str, Room] = field(default_factory=dict)
    _level: int = NOBODY

    def __contains__(self, uid: str) -> bool:
        return uid in self._rooms

    def get(self, uid: str) -> Room | None:
        return self._rooms.get(uid)

    def all(self) -> tuple[Room, ...]:
        return tuple(self._rooms.values())

    def on(self, node: str) -> tuple[Room, ...]:
        return tuple(room for room in self._rooms.values() if room.node == node)

    def keep(self, pod: Pod, node: str, allocations: Mapping[str, AllocationResult], *, is_firm: bool = False) -> None:
        """Keep room for `pod`, in place of the room that it has."""
        self.drop(pod.metadata.uid)
        room = self._rooms[pod.metadata.uid] = Room(pod=pod, node=node, allocations=allocations, is_firm=is_firm)
        if room.priority >= self._level:
            self._count(room)

    def drop(self, uid: str) -> None:
        """Keep no room for the pod any more. One without a room is no error."""
        room = self._rooms.pop(uid, None)
        if room is not None and room.counts:
            self._discount(room)

    def yield_to(self, priority: int) -> None:
        """Count the rooms that are kept against pods of this priority, and no others."""
        if priority == self._level:
            return
        self._level = priority
        for room in self._rooms.values():
            if room.priority < priority and room.counts:
                self._discount(room)
            elif room.priority >= priority and not room.counts:
                self._count(room)

    def set_aside(self, uid: str) -> bool:
        """Do not count the pod's own room. Returns whether it has one."""
        room = self._rooms.get(uid)
        if room is not None and room.counts:
            self._discount(room)
        return room is not None

    def restore(self, uid: str) -> None:
        """Count the pod's own room again."""
        room = self._rooms.get(uid)
        if room is not None and not room.counts and room.priority >= self._level:
            self._count(room)

    def _count(self, room: Room) -> None:
        room.counts = True
        self._nodes.place(room.pod, room.node)
        self._inventory.assume((_room_key(uid), given) for uid, given in room.allocations.items())

    def _discount(self, room: Room) -> None:
        room.counts = False
        self._nodes.remove_pod(room.pod.metadata.uid)
        self._inventory.forget(_room_key(uid) for uid in room.allocations)


def _room_key(claim_uid: str) -> str:
    """The key of the kept devices in the inventory: the claim itself may hold others meanwhile."""
    return f"room/{claim_uid}"
