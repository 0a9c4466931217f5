"""What steering is worth: `python bench/steering.py NODES.csv PODS.csv` plays a trace under a simulated kube-scheduler.

Once it chooses nodes by itself, once pods with devices come with the node that the policy `fragmentation` nominates
(`cases/steering.py` says what of kube-scheduler is simulated). Files: as for `bench/placement.py`.

filled: all nodes; pods come in random order, none leaves. The part of all GPU capacity that is allocated when 100, 115
and 130% of it have been asked for, mean and standard deviation of `--seeds`, and the pods that found no node by kind.

in use: `--sample` of the nodes, and `--number` pods that fit on one of them, all drawn at random. Pods come at random
times (Poisson), as often as makes each of `--loads`, a part of all GPU time, and last as long as they did, `--longest`
at most. Of the pods with GPUs that came after the first third: the GPUs in use, the mean wait by kind in minutes, how
many waited, and for how long half of these did; how many never started, whose waits are counted to the end.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median, stdev

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
django.setup()

from cases.steering import WHOLE, Churned, Coming, Machine, churn, fill  # noqa: E402 - models can be imported from here on
from cases.trace import ASKED, MARKS, TraceNode, TraceTask, read_nodes, read_tasks  # noqa: E402 - see above

NAMES = {False: "alone", True: "steered"}


def read_lasting(path: Path, longest: float) -> list[tuple[TraceTask, float]]:
    """Those that ran, each with its seconds."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [
        (task, min(max(1.0, float(row["deletion_time"]) - float(row["scheduled_time"])), longest))
        for task, row in zip(read_tasks(path), rows, strict=True)
        if row["scheduled_time"]
    ]


def coming(
    lasting: Sequence[tuple[TraceTask, float]], *, number: int, load: float, capacity: int, seed: int
) -> list[Coming]:
    draw = random.Random(seed)
    drawn = draw.choices(lasting, k=number)
    rate = load * capacity * number / sum(task.asked * lasts for task, lasts in drawn)
    now, made = 0.0, []
    for task, lasts in drawn:
        now += draw.expovariate(rate)
        made.append(Coming(now, lasts, task))
    return made


def filled(nodes: Sequence[TraceNode], tasks: Sequence[TraceTask], seeds: range) -> None:
    marks = (*MARKS, ASKED)
    print(f"filled: {len(nodes)} nodes with {sum(node.gpus for node in nodes)} GPUs, {len(seeds)} seeds")
    print(f"{'':<8} {' '.join(f'at {mark:.0%}' for mark in marks)}  ±    pods/s  without a node, by kind")
    for steered, name in NAMES.items():
        runs = [fill(nodes, tasks, seed=seed, steered=steered) for seed in seeds]
        figures = " ".join(
            f"{100 * mean(run.allocated[mark] for run in runs):>{len(f'at {mark:.0%}')}.2f}" for mark in marks
        )
        last = [100 * run.allocated[ASKED] for run in runs]
        came, failed = (
            sum((run.came for run in runs), Counter[str]()),
            sum((run.failed for run in runs), Counter[str]()),
        )
        kinds = ", ".join(f"{kind} {100 * failed[kind] / count:.1f}%" for kind, count in sorted(came.items()))
        rate = came.total() / sum(run.cpu_s for run in runs)
        print(f"{name:<8} {figures} {stdev(last) if len(last) > 1 else 0.0:>4.2f} {rate:>7,.0f}  {kinds}", flush=True)


def in_use(asked: argparse.Namespace, nodes: Sequence[TraceNode], seeds: range) -> None:
    lasting = read_lasting(asked.pods, asked.longest)
    print(
        f"in use: {asked.sample} nodes, {asked.number} pods of at most {asked.longest / 3600:g} h, {len(seeds)} seeds"
    )
    heads = "".join(
        f"{head:>14}" for head in ("in use", "share, 1 GPU", "2, 4 GPUs", "8 GPUs", "waited", "half", "never")
    )
    print(f"{'load':<14}{heads}")
    for load in asked.loads:
        for steered, name in NAMES.items():
            runs = list[Churned]()
            for seed in seeds:
                some = random.Random(seed).sample(nodes, asked.sample)
                capacity = WHOLE * sum(node.gpus for node in some)
                fitting = [one for one in lasting if any(Machine.of(node).fits(one[0]) for node in some)]
                pods = coming(fitting, number=asked.number, load=load, capacity=capacity, seed=seed)
                runs.append(churn(some, pods, seed=seed, steered=steered))
            print(f"{load:<5.0%} {name:<8}{figures(runs)}", flush=True)


def figures(runs: Sequence[Churned]) -> str:
    waits = [wait for run in runs for wait in run.all_waits]
    waited = [wait for wait in waits if wait > 0]

    def mean_of(*kinds: str) -> str:
        found = [wait for run in runs for kind in kinds for wait in run.waits.get(kind, ())]
        return f"{mean(found) / 60 if found else 0:.1f}"

    cells = (
        f"{100 * mean(run.used for run in runs):.1f}%",
        mean_of("share", "1 GPU"),
        mean_of("2 GPUs", "4 GPUs"),
        mean_of("8 GPUs"),
        f"{100 * len(waited) / len(waits):.1f}%",
        f"{median(waited) / 60 if waited else 0:.1f}",
        str(sum((run.unstarted for run in runs), Counter[str]()).total()),
    )
    return "".join(f"{cell:>14}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", type=Path)
    parser.add_argument("pods", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=42)
    parser.add_argument("--loads", type=float, nargs="*", default=[0.8, 1.0])
    parser.add_argument("--sample", type=int, default=100, metavar="NODES", help="of the nodes in use")
    parser.add_argument("--number", type=int, default=16_000, metavar="PODS", help="that come to them")
    parser.add_argument("--longest", type=float, default=6 * 3600.0, metavar="SECONDS", help="that a pod lasts")
    asked = parser.parse_args()
    nodes, seeds = read_nodes(asked.nodes), range(asked.first_seed, asked.first_seed + asked.seeds)
    filled(nodes, read_tasks(asked.pods), seeds)
    in_use(asked, nodes, seeds)


if __name__ == "__main__":
    main()
