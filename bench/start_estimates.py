"""How good estimated starts are: `python bench/start_estimates.py PODS.csv` replays a trace of real tasks.

PODS.csv: tasks with `creation_time`, `scheduled_time` and `deletion_time` in seconds, `num_gpu` and `qos`, as in
Alibaba's cluster-trace-gpu-v2023 (Apache-2.0). Tasks arrive when they did and last as long as they did, on so few nodes
of eight GPUs that many of them wait. Each that has to wait is given an estimate as it arrives, from what is known by
then: how long tasks of its service class that have ended took, and what holds the GPUs. Half of the tasks have a time
limit, of two to four times what they take. The estimate is compared with the start that comes of it.
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
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

import django

django.setup()

from insight.start_estimates import HeldDevices, WaitingEntry, estimate_starts, time_left  # noqa: E402

GPU = frozenset({"gpu"})
#: Durations from which a service class is judged by itself.
ENOUGH = 3


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    at: float
    lasts: float
    gpus: int
    group: str
    limit: float | None


def tasks_of(path: Path, seed: int) -> list[Task]:
    chance = random.Random(seed)
    found = []
    with path.open() as lines:
        for row in csv.DictReader(lines):
            if int(row["num_gpu"]) and row["scheduled_time"]:
                lasts = float(row["deletion_time"]) - float(row["scheduled_time"])
                limit = lasts * chance.uniform(2, 4) if chance.random() < 1 / 2 else None
                at = float(row["creation_time"])
                found.append(Task(row["name"], at, lasts, int(row["num_gpu"]), row["qos"], limit))
    return sorted(found, key=lambda one: one.at)


class Replay:
    """The queue is first come, first served, but that what fits overtakes what does not; the fullest node first."""

    def __init__(self, nodes: int) -> None:
        self.free = {f"node-{one}": 8 for one in range(nodes)}
        self.queue: list[Task] = []
        self.running: dict[str, tuple[Task, str, float]] = {}
        self.past: dict[str, list[float]] = defaultdict(list)
        self.ends: list[tuple[float, int, str]] = []
        self.order = count()
        self.estimated: dict[str, tuple[float, float]] = {}
        self.results: list[tuple[float, float]] = []

    def run(self, tasks: list[Task]) -> None:
        for task in tasks:
            self._until(task.at)
            self.queue.append(task)
            self._start(task.at)
            if self.queue and self.queue[-1] is task:
                self._estimate(task)
        self._until(float("inf"))

    def _until(self, at: float) -> None:
        while self.ends and self.ends[0][0] <= at:
            now, _, name = heapq.heappop(self.ends)
            task, node, began = self.running.pop(name)
            self.free[node] += task.gpus
            insort(self.past[task.group], now - began)
            self._start(now)

    def _start(self, now: float) -> None:
        waiting = []
        for task in self.queue:
            node = min((one for one in self.free if self.free[one] >= task.gpus), key=self.free.__getitem__, default="")
            if not node:
                waiting.append(task)
                continue
            self.free[node] -= task.gpus
            self.running[task.name] = (task, node, now)
            heapq.heappush(self.ends, (now + task.lasts, next(self.order), task.name))
            if task.name in self.estimated:
                asked, estimate = self.estimated.pop(task.name)
                self.results.append((estimate, now - asked))
        self.queue = waiting

    def _known(self, group: str) -> list[float]:
        own = self.past[group]
        return own if len(own) >= ENOUGH else sorted(one for some in self.past.values() for one in some)

    def _estimate(self, task: Task) -> None:
        now = task.at
        waiting = [
            WaitingEntry(one.name, (("gpu", one.gpus),), time_left(0.0, self._known(one.group), one.limit))
            for one in self.queue
        ]
        held = [
            HeldDevices(node, {GPU: one.gpus}, time_left(now - began, self._known(one.group), one.limit))
            for one, node, began in self.running.values()
        ]
        free = {node: Counter({GPU: number}) for node, number in self.free.items()}
        found = estimate_starts(waiting, held, free).get(task.name)
        if found is not None:
            self.estimated[task.name] = (now, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pods", type=Path)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    replay = Replay(asked.nodes)
    replay.run(tasks_of(asked.pods, asked.seed))
    errors = [abs(estimate - waited) for estimate, waited in replay.results]
    waits = [waited for _, waited in replay.results]
    usual = median(waits)
    blind = [abs(usual - waited) for waited in waits]
    print(f"{len(errors)} estimates; waits: median {usual / 60:.1f} min")
    print(
        f"error: median {median(errors) / 60:.1f} min; of always saying the median wait: {median(blind) / 60:.1f} min"
    )
    share = median(error / waited for error, waited in zip(errors, waits, strict=True) if waited)
    print(f"error as a share of the wait: median {share:.0%}")


if __name__ == "__main__":
    main()
