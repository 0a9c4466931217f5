"""Residents, the pods with a place on a node, and the room that is kept for nominated pods. PURE.

A resident keeps what preemption decides by: its priority, its start, its claims, whether it is leaving. The cost of
evicting several is a value (`cost_of`).

A room is what a nominated pod will take of its node: its requests, its neighbours and the very devices. It counts
against every pod but the pod itself and more important ones: `yield_to` takes it off while one of those is tried.
Devices that others still hold count twice then, which keeps them when they come free. One thread at a time.
Upstream: pkg/scheduler/util/utils.go (MoreImportantPod, GetPodStartTime), framework/preemption/preemption.go
(pickOneNodeForPreemption).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import nlargest

from msgspec import Struct

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.pod_claims import claim_names
from scheduling.allocator import Inventory, NodeView, RequestPlan, Snapshot, free_on, read_claims
from scheduling.state.nodes import NodeTable

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


#: namespace, name -> the claim
FindByKey = Callable[[str, str], ResourceClaim | None]


class Supply:
    """How many devices a pod asks for, a node has free and others hold: what a search can be spared by counting.

    Only where each device is one claim's alone: how many shares or partitions another one makes room for is not told by
    their number.
    """

    def __init__(self, snapshot: Snapshot, wanting: Sequence[ResourceClaim], claim: FindByKey) -> None:
        self._snapshot = snapshot
        self._claim = claim
        wanted = least_devices(snapshot, wanting)
        #: a single one need not be counted: somebody has to go for it
        self._wanted = wanted if wanted > 1 else 0

    def short_on(self, view: NodeView) -> int:
        """So many more have to come free on the node, at least."""
        if not self._wanted:
            return 0
        free = free_on(self._snapshot, view)
        return 0 if free is None else max(0, self._wanted - free)

    def held_by(self, one: Resident) -> int:
        """Devices that come free as the pod goes, at most."""
        claims = [self._claim(*key) for key in one.claims] if self._wanted else ()
        given = [claim.status.allocation for claim in claims if claim is not None]
        return sum(len(allocation.devices.results) for allocation in given if allocation is not None)


def least_devices(snapshot: Snapshot, wanting: Sequence[ResourceClaim]) -> int:
    """So many devices these claims take from others, at least."""
    plans = read_claims(snapshot, wanting)
    return sum(min(map(_least, options), default=0) for plan in plans for options in plan.requests)


def _least(plan: RequestPlan) -> int:
    """Devices that a request, or an alternative of one, takes from others, at least."""
    return 0 if plan.admin else 1 if plan.everything else plan.count


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


# Room -----------------------------------------------------------------------------------------------------------------


#: Less than any priority: every room counts.
NOBODY = -(1 << 32)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Room:
    """The room of a nominated pod. allocations: claim uid -> devices. counts: whether it is taken off the node now."""

    pod: Pod
    node: str
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    counts: bool = False

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


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

    def keep(self, pod: Pod, node: str, allocations: Mapping[str, AllocationResult]) -> None:
        """Keep room for `pod`, in place of the room that it has."""
        self.drop(pod.metadata.uid)
        room = self._rooms[pod.metadata.uid] = Room(pod=pod, node=node, allocations=allocations)
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
        self._inventory.assume((_key(uid), given) for uid, given in room.allocations.items())

    def _discount(self, room: Room) -> None:
        room.counts = False
        self._nodes.remove_pod(room.pod.metadata.uid)
        self._inventory.forget(_key(uid) for uid in room.allocations)


def _key(claim_uid: str) -> str:
    """The key of the kept devices in the inventory: the claim itself may hold others meanwhile."""
    return f"room/{claim_uid}"
