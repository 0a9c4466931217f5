"""How good estimated starts are: `python bench/start_estimates.py PODS.csv` replays a trace of real tasks.

PODS.csv: tasks with `creation_time`, `scheduled_time` and `deletion_time` in seconds, `num_gpu` and `qos`, as in
Alibaba's cluster-trace-gpu-v2023 (Apache-2.0). Tasks with GPUs arrive when they did and last as long as they did, each
with a claim for whole GPUs that the allocator places, on so few nodes of eight GPUs that many of them wait. The queue
is first come, first served, but that what fits overtakes what does not.

Each task that has to wait is given an estimate as it arrives, unless more than `LOOKED_AT` wait: from how long tasks of
its service class that have ended took, what holds the GPUs, and (of a part of the tasks) a time limit of two to four
times what they take. It is compared with the start that comes of it.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import os
import random
import sys
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

import django

django.setup()

from claims.kinds.resource_claims import ResourceClaim  # noqa: E402 - models can be imported from here on
from insight.start_estimates import (  # noqa: E402 - see above
    ENOUGH,
    LOOKED_AT,
    HeldDevices,
    WaitingEntry,
    estimate_starts,
    share,
    time_left,
)
from inventory.kinds.devices import DeviceClass, ResourceSlice  # noqa: E402 - see above
from manciple.wire.codec import decode_value  # noqa: E402 - see above
from scheduling.allocator import Allocated, Inventory, NodeView, most_packed, place  # noqa: E402 - see above

EACH = 8
GPU = frozenset({"gpu"})


@dataclass(frozen=True, slots=True)
class Task:
    """at, lasts, limit: seconds. group: of tasks whose durations are alike."""

    name: str
    at: float
    lasts: float
    gpus: int
    group: str
    limit: float | None

    @property
    def claim(self) -> ResourceClaim:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": self.gpus}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        meta = {"name": self.name, "namespace": "default", "uid": self.name}
        made: ResourceClaim = decode_value(ResourceClaim, {"metadata": meta, "spec": spec})
        return made


@dataclass(frozen=True, slots=True)
class Running:
    task: Task
    node: str
    since: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one task that waited, in seconds. estimate: None where nothing could be said."""

    estimate: float | None
    waited: float


def read_tasks(path: Path, *, limited: float, seed: int) -> list[Task]:
    """limited: the part of the tasks that have a time limit."""
    chance = random.Random(seed)
    found = []
    with path.open() as lines:
        for row in csv.DictReader(lines):
            if int(row["num_gpu"]) and row["scheduled_time"]:
                lasts = float(row["deletion_time"]) - float(row["scheduled_time"])
                limit = lasts * chance.uniform(2, 4) if chance.random() < limited else None
                at = float(row["creation_time"])
                found.append(Task(row["name"], at, lasts, int(row["num_gpu"]), row["qos"], limit))
    return sorted(found, key=lambda one: one.at)


class Replay:
    def __init__(self, nodes: int) -> None:
        self.inventory = Inventory()
        self.inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {}}))
        self.views = tuple(NodeView(f"node-{number}") for number in range(nodes))
        for view in self.views:
            self.inventory.apply_slice(_published(view.name))
        self.free = {view.name: EACH for view in self.views}
        self.queue: list[Task] = []
        self.running: dict[str, Running] = {}
        #: group -> how long its tasks that have ended took, sorted
        self.past: dict[str, list[float]] = defaultdict(list)
        self.ends: list[tuple[float, int, str]] = []
        self.order = count()
        #: name of a waiting task -> when its start was estimated, and the estimate in seconds
        self.asked: dict[str, tuple[float, float | None]] = {}
        self.outcomes: list[Outcome] = []

    def run(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._end_until(task.at)
            self.queue.append(task)
            self._start(task.at)
            if self.queue and self.queue[-1] is task and len(self.queue) <= LOOKED_AT:
                self.asked[task.name] = (task.at, self._estimate(task))
        self._end_until(float("inf"))

    def _end_until(self, at: float) -> None:
        while self.ends and self.ends[0][0] <= at:
            now, _, name = heapq.heappop(self.ends)
            ended = self.running.pop(name)
            self.inventory.forget((name,))
            self.free[ended.node] += ended.task.gpus
            insort(self.past[ended.task.group], now - ended.since)
            self._start(now)

    def _start(self, now: float) -> None:
        waiting: list[Task] = []
        refused = EACH + 1
        for task in self.queue:
            node = self._place(task) if task.gpus < refused else ""
            if not node:
                refused = min(refused, task.gpus)
                waiting.append(task)
                continue
            self.free[node] -= task.gpus
            self.running[task.name] = Running(task, node, now)
            heapq.heappush(self.ends, (now + task.lasts, next(self.order), task.name))
            if task.name in self.asked:
                asked, estimate = self.asked.pop(task.name)
                self.outcomes.append(Outcome(estimate, now - asked))
        self.queue = waiting

    def _place(self, task: Task) -> str:
        """The node that has it now; "" for none."""
        placed = place(self.inventory.snapshot(), (task.claim,), self.views, score=most_packed)
        if placed.node is None or not isinstance(placed.outcome, Allocated):
            return ""
        self.inventory.assume(((task.name, placed.outcome.results[0]),))
        return placed.node.name

    def _known(self, group: str) -> list[float]:
        own = self.past[group]
        return own if len(own) >= ENOUGH else sorted(one for some in self.past.values() for one in some)

    def _estimate(self, task: Task) -> float | None:
        number = Counter[tuple[str, bool]]()  # of tasks of a group, whether they wait

        def left(one: Task, elapsed: float, *, waits: bool) -> float | None:
            before = share(number[one.group, waits])
            number[one.group, waits] += 1
            return time_left(elapsed, self._known(one.group), one.limit, before)

        held = [
            HeldDevices(one.node, {GPU: one.task.gpus}, left(one.task, task.at - one.since, waits=False))
            for one in self.running.values()
        ]
        waiting = [
            WaitingEntry(one.name, (("gpu", one.gpus),), left(one, 0.0, waits=True)) for one in self.queue[:LOOKED_AT]
        ]
        free = {node: Counter({GPU: number}) for node, number in self.free.items()}
        return estimate_starts(waiting, held, free).get(task.name)


def _published(node: str) -> ResourceSlice:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(EACH)]
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    made: ResourceSlice = decode_value(ResourceSlice, {"metadata": {"name": node}, "spec": spec})
    return made


def figures(outcomes: Sequence[Outcome]) -> str:
    """usual: what somebody who knows all waits would always say, their median."""
    told = [(one.estimate, one.waited) for one in outcomes if one.estimate is not None]
    waits = [waited for _, waited in told]
    errors = [abs(estimate - waited) for estimate, waited in told]
    usual = median(waits)
    blind = median(abs(usual - waited) for waited in waits)
    early = sum(estimate < waited for estimate, waited in told) / len(told)
    parts = (
        f"{len(outcomes):>6} waited",
        f"{len(told) / len(outcomes):>5.0%} told",
        f"wait {usual / 60:>6.1f} min",
        f"error {median(errors) / 60:>6.1f} min (nine in ten {quantiles(errors, n=10)[-1] / 60:.0f})",
        f"always the median wait {blind / 60:>6.1f} min",
        f"{early:.0%} too early",
    )
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pods", type=Path)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 5, 6])
    parser.add_argument("--limited", type=float, default=0.5, help="the part of the tasks that have a time limit")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    tasks = read_tasks(asked.pods, limited=asked.limited, seed=asked.seed)
    for nodes in asked.nodes:
        replay = Replay(nodes)
        replay.run(tasks)
        print(f"{nodes * EACH} GPUs: {figures(replay.outcomes)}", flush=True)


if __name__ == "__main__":
    main()
