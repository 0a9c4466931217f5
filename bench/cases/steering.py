"""kube-scheduler's choice of nodes, simulated, alone and with the nodes that the policy `fragmentation` nominates.

What is simulated of kube-scheduler (1.36, default profile):

    filter      cpu, memory and devices; nodes are looked at in turn from where the last pod ended, until enough fit:
                all of up to 100, else (50 - nodes/125)% and 100 at least (schedule_one.go)
    score       least allocated and balanced allocation of cpu and memory, in whole numbers up to 100 each
                (noderesources). What else scores is the same everywhere: there are no taints, preferences, spreading
                or images, and devices score only requests with alternatives
    node        one with the highest score, at random among equals
    devices     the first of the node's slice that fit
    queue       whoever waits is tried again, in the order of coming, when a pod ends; only that pod's node has more

Steered, a pod with devices goes to the nominated node, which fits by then. Devices on it are kube-scheduler's choice as
well. Pods without devices are not steered. What is not simulated: priorities, preemption, groups, the time that
scheduling takes, and gates that end, because a pod waits at them only while no node fits.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from msgspec import structs

from cases.demand_history import DemandHistory
from cases.trace import ASKED, MARKS, Played, TraceNode, TraceTask, arrivals, claims_of, published
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceClass
from manciple.wire.codec import decode_value
from scheduling.allocator import Allocated, Inventory, NodeView, place
from scheduling.placement.demands import RoomTable
from scheduling.placement.fragmentation.policy import Fragmentation

#: Of a GPU.
WHOLE = 1000
#: Nodes up to which all are looked at, and the least that must fit.
ALL_OF = 100


@dataclass(slots=True)
class Machine:
    """A node. free: of each GPU, in thousandths, in the order of its slice."""

    node: TraceNode
    cpu: int
    memory: int
    free: list[int]

    @classmethod
    def of(cls, node: TraceNode) -> Machine:
        return cls(node, node.room.cpu, node.room.memory, [WHOLE] * node.gpus)

    def fits(self, task: TraceTask) -> bool:
        if self.cpu < task.needs.cpu or self.memory < task.needs.memory:
            return False
        if not task.gpus:
            return True
        if task.models and self.node.model not in task.models:
            return False
        wanted = task.milli
        if task.gpus == 1:
            return max(self.free) >= wanted
        return sum(free >= wanted for free in self.free) >= task.gpus

    def score(self, task: TraceTask) -> int:
        """The sum of both plugins with a weight, as kube-scheduler rounds."""
        room = self.node.room
        cpu, memory = room.cpu - self.cpu + task.needs.cpu, room.memory - self.memory + task.needs.memory
        least = ((room.cpu - cpu) * 100 // room.cpu + (room.memory - memory) * 100 // room.memory) // 2
        return least + int((1 - abs(cpu / room.cpu - memory / room.memory) / 2) * 100)

    def take(self, task: TraceTask) -> tuple[int, ...]:
        """The GPUs that it gets."""
        self.cpu -= task.needs.cpu
        self.memory -= task.needs.memory
        devices = [number for number, free in enumerate(self.free) if free >= task.milli][: task.gpus]
        for number in devices:
            self.free[number] -= task.milli
        return tuple(devices)

    def give(self, task: TraceTask, devices: Sequence[int]) -> None:
        self.cpu += task.needs.cpu
        self.memory += task.needs.memory
        for number in devices:
            self.free[number] += task.milli


class Nominations:
    """The nodes that the policy `fragmentation` nominates, knowing what kube-scheduler has allocated so far."""

    def __init__(self, nodes: Sequence[TraceNode]) -> None:
        self._inventory = Inventory()
        self._inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {}}))
        for node in nodes:
            self._inventory.apply_slice(published(node))
        self._views = [NodeView(node.name) for node in nodes]
        self._numbers = {node.name: number for number, node in enumerate(nodes)}
        self._room = RoomTable({node.name: node.room for node in nodes})
        self._history = DemandHistory()
        self._chosen: Allocated | None = None

    def choose(self, task: TraceTask, claims: tuple[ResourceClaim, ...], fitting: Sequence[int]) -> int | None:
        self._history.note(claims, task.needs)
        score = Fragmentation(mix=self._history.mix(), room=self._room, needs=task.needs)
        views = tuple(self._views[number] for number in fitting)
        placed = place(self._inventory.snapshot(), claims, views, score=score)
        self._chosen = placed.outcome if isinstance(placed.outcome, Allocated) else None
        return self._numbers[placed.node.name] if placed.node is not None else None

    def note(self, task: TraceTask, claims: tuple[ResourceClaim, ...], number: int, devices: Sequence[int]) -> None:
        """kube-scheduler gave these devices of a node."""
        self._room.take(self._views[number].name, task.needs)
        if not claims:
            return
        if self._chosen is None:  # it waited, and came to the node where something ended
            view = (self._views[number],)
            outcome = place(self._inventory.snapshot(), claims, view).outcome
            assert isinstance(outcome, Allocated), "the arithmetic here and the allocator agree on what fits"
            self._chosen = outcome
        (result,), self._chosen = self._chosen.results, None
        given = tuple(
            structs.replace(one, device=f"gpu-{device}")
            for one, device in zip(result.devices.results, devices, strict=True)
        )
        allocated = structs.replace(result, devices=structs.replace(result.devices, results=given))
        self._inventory.assume(((claims[0].metadata.uid, allocated),))

    def forget(self, task: TraceTask, claims: tuple[ResourceClaim, ...], number: int) -> None:
        self._room.take(self._views[number].name, task.needs, sign=-1)
        if claims:
            self._inventory.forget((claims[0].metadata.uid,))


@dataclass(slots=True)
class Scheduler:
    """kube-scheduler on these nodes; with nominations if it is steered."""

    machines: list[Machine]
    chance: random.Random
    nominations: Nominations | None = None
    _next: int = 0

    @classmethod
    def on(cls, nodes: Sequence[TraceNode], seed: int, *, steered: bool) -> Scheduler:
        return cls([*map(Machine.of, nodes)], random.Random(seed), Nominations(nodes) if steered else None)

    def choose(self, task: TraceTask, claims: tuple[ResourceClaim, ...]) -> int | None:
        if self.nominations is not None and claims:
            fitting = [number for number, machine in enumerate(self.machines) if machine.fits(task)]
            return self.nominations.choose(task, claims, fitting) if fitting else None
        best, most, ties = None, -1, 0
        for number in self._feasible(task):
            score = self.machines[number].score(task)
            ties = 1 if score > most else ties + (score == most)
            if score > most or (score == most and self.chance.randrange(ties) == 0):
                best, most = number, score
        return best

    def _feasible(self, task: TraceTask) -> list[int]:
        """In turn from where the last pod ended, until there are enough."""
        machines, size, found = self.machines, len(self.machines), list[int]()
        enough = size if size <= ALL_OF else max(ALL_OF, size * max(5, 50 - size // 125) // 100)
        for looked in range(size):
            number = (self._next + looked) % size
            if machines[number].fits(task):
                found.append(number)
                if len(found) == enough:
                    self._next = (number + 1) % size
                    break
        return found

    def take(self, number: int, task: TraceTask, claims: tuple[ResourceClaim, ...]) -> tuple[int, ...]:
        devices = self.machines[number].take(task)
        if self.nominations is not None:
            self.nominations.note(task, claims, number, devices)
        return devices

    def give(self, number: int, task: TraceTask, claims: tuple[ResourceClaim, ...], devices: Sequence[int]) -> None:
        self.machines[number].give(task, devices)
        if self.nominations is not None:
            self.nominations.forget(task, claims, number)


# Pods that come and stay ----------------------------------------------------------------------------------------------


def fill(nodes: Sequence[TraceNode], tasks: Sequence[TraceTask], *, seed: int, steered: bool) -> Played:
    """As `cases.trace.play`, under kube-scheduler."""
    scheduler, played = Scheduler.on(nodes, seed, steered=steered), Played()
    capacity = WHOLE * sum(node.gpus for node in nodes)
    asked = given = 0
    began = time.process_time()
    for number, task in enumerate(arrivals(tasks, capacity, seed)):
        for mark in MARKS:
            if asked <= mark * capacity:
                played.allocated[mark] = given / capacity
        asked += task.asked
        played.came[task.kind] += 1
        claims = claims_of(task, number)
        if (chosen := scheduler.choose(task, claims)) is None:
            played.failed[task.kind] += 1
        else:
            scheduler.take(chosen, task, claims)
            given += task.asked
    played.cpu_s = time.process_time() - began
    played.allocated[ASKED] = given / capacity
    return played


# Pods that come and go ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Churned:
    """waits: seconds, of each pod with GPUs that came after the first third, by kind; of those that never started,
    until the last one came. used: the mean part of all capacity that was allocated meanwhile.
    """

    waits: dict[str, list[float]] = field(default_factory=dict)
    unstarted: Counter[str] = field(default_factory=Counter)
    used: float = 0.0

    @property
    def all_waits(self) -> list[float]:
        return [wait for waits in self.waits.values() for wait in waits]


@dataclass(frozen=True, slots=True)
class Coming:
    """at, lasts: seconds."""

    at: float
    lasts: float
    task: TraceTask


def churn(nodes: Sequence[TraceNode], coming: Sequence[Coming], *, seed: int, steered: bool) -> Churned:
    scheduler, churned = Scheduler.on(nodes, seed, steered=steered), Churned()
    capacity = WHOLE * sum(node.gpus for node in nodes)
    first, last = coming[len(coming) // 3].at, coming[-1].at
    waiting: dict[int, tuple[Coming, tuple[ResourceClaim, ...]]] = {}
    #: (time, number of the pod, node, devices, pod, claims)
    ends: list[tuple[float, int, int, tuple[int, ...], Coming, tuple[ResourceClaim, ...]]] = []

    def start(number: int, node: int, pod: Coming, claims: tuple[ResourceClaim, ...], now: float) -> None:
        devices = scheduler.take(node, pod.task, claims)
        heappush(ends, (now + pod.lasts, number, node, devices, pod, claims))
        churned.used += pod.task.asked * max(0.0, min(now + pod.lasts, last) - max(now, first))
        if pod.task.gpus and pod.at >= first:
            churned.waits.setdefault(pod.task.kind, []).append(now - pod.at)

    for number, pod in enumerate(coming):
        while ends and ends[0][0] <= pod.at:
            now, _, node, devices, over, given = heappop(ends)
            scheduler.give(node, over.task, given, devices)
            machine = scheduler.machines[node]
            for waiter, (one, claims) in list(waiting.items()):
                if machine.fits(one.task):
                    del waiting[waiter]
                    start(waiter, node, one, claims, now)
        claims = claims_of(pod.task, number)
        chosen = scheduler.choose(pod.task, claims)
        if chosen is None:
            waiting[number] = (pod, claims)
        else:
            start(number, chosen, pod, claims, pod.at)
    for pod, _ in waiting.values():
        if pod.task.gpus and pod.at >= first:
            churned.waits.setdefault(pod.task.kind, []).append(last - pod.at)
            churned.unstarted[pod.task.kind] += 1
    churned.used /= capacity * (last - first)
    return churned
