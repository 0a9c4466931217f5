"""A cluster and the pods that come to it, as a trace tells of them, played on the allocator under a policy.

Nodes have shared GPUs of a model, cpu and memory; a pod asks for so many thousandths of one GPU, or for so many whole
ones, perhaps of certain models, or for none. Pods come in random order until 130% of all GPU capacity has been asked
for; none leaves. The columns are those of Alibaba's cluster-trace-gpu-v2023: of nodes `sn`, `cpu_milli`, `memory_mib`,
`gpu`, `model`; of pods `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli`, `gpu_spec` (models, separated by bars).

Filter is asked as the scheduler does: nodes without the cpu or memory are not given to the allocator. A pod without
GPUs goes, of the nodes that the policy leaves, to the one with the fewest pods.
"""

from __future__ import annotations

import csv
import gc
import random
import time
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from cases.demand_history import DemandHistory
from cases.demands import DRIVER, Json
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceClass, ResourceSlice
from manciple.wire.codec import decode_value
from scheduling.allocator import (
    Allocated,
    Inventory,
    NodeView,
    Score,
    best_fitting,
    first_named,
    most_packed,
    most_spread,
    place,
)
from scheduling.placement.demands import NodeNeeds, RoomTable
from scheduling.placement.fragmentation.policy import Fragmentation

#: The part of all capacity that is asked for in the end, and before.
ASKED, MARKS = 1.3, (1.0, 1.15)
_AMOUNTS = (attrgetter("cpu"), attrgetter("memory"))
FRAGMENTATION = "fragmentation"
POLICIES: Mapping[str, Score | None] = {
    "first-fit": first_named,
    "spread": most_spread,
    "pack": most_packed,
    "best-fit": best_fitting,
    FRAGMENTATION: None,
}


@dataclass(frozen=True, slots=True)
class TraceNode:
    name: str
    room: NodeNeeds
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TraceTask:
    needs: NodeNeeds
    gpus: int
    milli: int
    models: tuple[str, ...]

    @property
    def asked(self) -> int:
        return self.gpus * self.milli

    @property
    def kind(self) -> str:
        if not self.gpus:
            return "no GPU"
        return f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.milli == 1000 else "share"


@dataclass(slots=True)
class Played:
    """allocated: of all capacity, in parts of 1, when so much of it had been asked for; `curve`: on the way there.

    failed, came: tasks by kind. cpu_s: of the process, without reading the trace.
    """

    allocated: dict[float, float] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    came: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0


def read_nodes(path: Path) -> list[TraceNode]:
    """Those with GPUs."""
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["gpu"])]
    return [
        TraceNode(row["sn"], NodeNeeds(int(row["cpu_milli"]), int(row["memory_mib"])), int(row["gpu"]), row["model"])
        for row in rows
    ]


def read_tasks(path: Path) -> list[TraceTask]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [
        TraceTask(
            NodeNeeds(int(row["cpu_milli"]), int(row["memory_mib"])),
            int(row["num_gpu"]),
            int(row["gpu_milli"] or 0),
            tuple(row["gpu_spec"].split("|")) if row.get("gpu_spec") else (),
        )
        for row in rows
    ]


def arrivals(tasks: Sequence[TraceTask], capacity: int, seed: int) -> Iterator[TraceTask]:
    """In random order, each once; then some of them again, until so much is asked for."""
    draw = random.Random(seed)
    order = list(tasks)
    draw.shuffle(order)
    asked, wanted = sum(task.asked for task in order), ASKED * capacity
    while asked < wanted:
        order.append(draw.choice(tasks))
        asked += order[-1].asked
    asked = 0
    for task in order:
        if asked > wanted:
            return
        asked += task.asked
        yield task


class TraceCluster:
    """The nodes with their GPUs, and what pods took of them."""

    def __init__(self, nodes: Sequence[TraceNode], policy: str) -> None:
        self.capacity = 1000 * sum(node.gpus for node in nodes)
        self._policy = policy
        self._inventory = Inventory()
        self._inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {}}))
        for node in nodes:
            self._inventory.apply_slice(published(node))
        self._views = tuple(NodeView(node.name) for node in nodes)
        self._numbers = {node.name: number for number, node in enumerate(nodes)}
        self._left = [node.room for node in nodes]
        self._pods = Counter[str]()
        self._room = RoomTable({node.name: node.room for node in nodes})
        self._history = DemandHistory()
        #: what is asked of a node -> the nodes that have it, by number; and as a tuple, until one is gone
        self._fitting: dict[NodeNeeds, dict[int, NodeView]] = {}
        self._tuples: dict[NodeNeeds, tuple[NodeView, ...]] = {}
        #: what is asked of a node, by the cpu and by the memory of it
        self._asked: tuple[list[NodeNeeds], list[NodeNeeds]] = ([], [])

    def place(self, task: TraceTask, claims: tuple[ResourceClaim, ...]) -> bool:
        """Whether there was a place."""
        fitting = self._filter(task.needs)
        score = POLICIES[self._policy]
        if score is None:
            self._history.note(claims, task.needs)
            score = Fragmentation(mix=self._history.mix(), room=self._room, needs=task.needs)
        if not claims:
            node = self._quietest(fitting, score)
        else:
            placed = place(self._inventory.snapshot(), claims, fitting, score=score)
            node = placed.node
            if node is not None and isinstance(placed.outcome, Allocated):
                self._inventory.assume(((claims[0].metadata.uid, placed.outcome.results[0]),))
        if node is not None:
            self._take(node.name, task.needs)
        return node is not None

    def _quietest(self, fitting: Sequence[NodeView], score: Score) -> NodeView | None:
        if isinstance(score, Fragmentation) and fitting:
            fitting = score.least_stranding(self._inventory.snapshot(), fitting)
        return min(fitting, key=lambda node: self._pods[node.name], default=None)

    def _filter(self, needs: NodeNeeds) -> tuple[NodeView, ...]:
        if needs not in self._fitting:
            fitting = (number for number, left in enumerate(self._left) if _has(left, needs))
            self._fitting[needs] = {number: self._views[number] for number in fitting}
            for asked, key in zip(self._asked, _AMOUNTS, strict=True):
                insort(asked, needs, key=key)
        known = self._tuples.get(needs)
        if known is None:
            known = self._tuples[needs] = tuple(self._fitting[needs].values())
        return known

    def _take(self, name: str, needs: NodeNeeds) -> None:
        number = self._numbers[name]
        self._room.take(name, needs)
        self._pods[name] += 1
        before, left = self._left[number], self._room.left(name)
        self._left[number] = left
        for asked, key in zip(self._asked, _AMOUNTS, strict=True):
            # the node had enough for these, and has not any more
            for other in asked[bisect_right(asked, key(left), key=key) : bisect_right(asked, key(before), key=key)]:
                if self._fitting[other].pop(number, None) is not None:
                    self._tuples.pop(other, None)


def _has(left: NodeNeeds, needs: NodeNeeds) -> bool:
    return left.cpu >= needs.cpu and left.memory >= needs.memory


def published(node: TraceNode) -> ResourceSlice:
    devices = [
        {
            "name": f"gpu-{number}",
            "allowMultipleAllocations": True,
            "attributes": {"model": {"string": node.model}},
            "capacity": {"milli": {"value": "1000"}},
        }
        for number in range(node.gpus)
    ]
    pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": devices}
    made: ResourceSlice = decode_value(ResourceSlice, {"metadata": {"name": node.name}, "spec": spec})
    return made


def claims_of(task: TraceTask, number: int) -> tuple[ResourceClaim, ...]:
    """One claim for its GPUs; none where it asks for none."""
    if not task.gpus:
        return ()
    exactly: Json = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": task.gpus,
        "capacity": {"requests": {"milli": str(task.milli)}},
    }
    if task.models:
        listed = ", ".join(f'"{model}"' for model in task.models)
        exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model in [{listed}]'}}]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    meta = {"name": f"task-{number}", "namespace": "default", "uid": f"uid-{number}"}
    return (decode_value(ResourceClaim, {"metadata": meta, "spec": spec}),)


def play(nodes: Sequence[TraceNode], tasks: Sequence[TraceTask], *, policy: str, seed: int) -> Played:
    cluster, played = TraceCluster(nodes, policy), Played()
    asked = given = 0
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    began = time.process_time()
    for number, task in enumerate(arrivals(tasks, cluster.capacity, seed)):
        for mark in MARKS:
            if asked <= mark * cluster.capacity:
                played.allocated[mark] = given / cluster.capacity
        asked += task.asked
        played.came[task.kind] += 1
        if cluster.place(task, claims_of(task, number)):
            given += task.asked
        else:
            played.failed[task.kind] += 1
        if number % 50 == 0:
            played.curve.append((asked / cluster.capacity, given / cluster.capacity))
    played.cpu_s = time.process_time() - began
    played.allocated[ASKED] = given / cluster.capacity
    played.curve.append((asked / cluster.capacity, given / cluster.capacity))
    return played
