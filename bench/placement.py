"""How much of a cluster each placement policy gets allocated: `python bench/placement.py [NODES.csv PODS.csv]`.

With a trace (columns: `bench/cases/trace.py`) it plays that, under each of `--policies`, with `--seeds` orders in which
the pods come (from `--first-seed` on), and prints the part of all GPU capacity that is allocated when 100, 115 and 130%
of it have been asked for, the tasks that failed by kind, and placements a second of processor time. `--plot FILE` draws
what is allocated against what is asked for, as SVG; `--json` prints one line a policy.

Without a trace it plays mixes of partitions (MIG profiles) and of linked pairs, and prints the part of the capacity
that is stranded; beside it, for small clusters, what would be with the best choice of places (`best`), and with the
best policy that does not know what comes next (`unforeseen`), both found by trying everything; after churn the latter
is told by playing it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
django.setup()

from cases.mixes import (  # noqa: E402 - models can be imported from here on
    SyntheticMix,
    best_churned,
    best_mig,
    best_mig_unforeseen,
    best_pairs,
    churn,
    fill,
    mig_mix,
    pair_mix,
    sequence,
)
from cases.trace import ASKED, FRAGMENTATION, MARKS, POLICIES, Played, play, read_nodes, read_tasks  # noqa: E402 - see above

COLOURS = {
    "first-fit": "#8a8a8a",
    "spread": "#b9770e",
    "pack": "#2e86c1",
    "best-fit": "#7d3c98",
    FRAGMENTATION: "#1e8449",
}


# A trace -------------------------------------------------------------------------------------------------------------


def trace(options: argparse.Namespace) -> None:
    nodes, tasks = read_nodes(options.nodes), read_tasks(options.pods)
    marks = (*MARKS, ASKED)
    if not options.json:
        heads = " ".join(f"at {mark:.0%}" for mark in marks)
        print(f"{len(nodes)} nodes with {sum(node.gpus for node in nodes)} GPUs, {options.pods.name}")
        print(f"{'policy':<14} {heads}  ±    placements/s  failed, by kind")
    curves = {}
    for policy in options.policies:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        runs = [play(nodes, tasks, policy=policy, seed=seed) for seed in seeds]
        curves[policy] = runs[0].curve
        _tell(policy, runs, marks, as_json=options.json)
    if options.plot:
        options.plot.write_text(drawing(curves))


def _tell(policy: str, runs: Sequence[Played], marks: Sequence[float], *, as_json: bool) -> None:
    allocated = {mark: 100 * mean(run.allocated[mark] for run in runs) for mark in marks}
    last = [100 * run.allocated[ASKED] for run in runs]
    rate = mean(run.came.total() / run.cpu_s for run in runs)
    came, failed = sum((run.came for run in runs), Counter[str]()), sum((run.failed for run in runs), Counter[str]())
    parts = {kind: round(100 * failed[kind] / number, 1) for kind, number in sorted(came.items())}
    if as_json:
        line = {"policy": policy, "allocated": last, "mean": allocated[ASKED], "per_s": rate, "failed_percent": parts}
        print(json.dumps(line | {f"at_{mark:.0%}": allocated[mark] for mark in MARKS}), flush=True)
        return
    figures = " ".join(f"{allocated[mark]:>{len(f'at {mark:.0%}')}.2f}" for mark in marks)
    spread = stdev(last) if len(last) > 1 else 0.0
    said = ", ".join(f"{kind} {part}%" for kind, part in parts.items())
    print(f"{policy:<14} {figures} {spread:>4.2f} {rate:>12,.0f}  {said}", flush=True)


def drawing(curves: dict[str, list[tuple[float, float]]]) -> str:
    """SVG: what is allocated, from 80% on, against what is asked for."""
    width, height, left, low = 720, 400, 50, 0.8

    def at(asked: float, allocated: float) -> str:
        x = left + (width - left - 10) * min(asked, ASKED) / ASKED
        y = height - 30 - (height - 50) * max(allocated - low, 0) / (1 - low)
        return f"{x:.1f},{y:.1f}"

    lines = []
    for number, (policy, points) in enumerate(curves.items()):
        path = " ".join(at(*point) for point in points if point[1] >= low)
        colour = COLOURS[policy]
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        lines.append(f'<text x="{left + 10}" y="{30 + 16 * number}" fill="{colour}">{policy}</text>')
    for percent in range(80, 101, 5):
        x, y = at(0, percent / 100).split(",")
        lines.append(f'<text x="{float(x) - 40:.0f}" y="{y}" fill="#555">{percent}%</text>')
        lines.append(f'<line x1="{x}" x2="{width - 10}" y1="{y}" y2="{y}" stroke="#ddd"/>')
    for percent in (0, 50, 100, 130):
        x, _ = at(percent / 100, low).split(",")
        lines.append(f'<text x="{x}" y="{height - 10}" text-anchor="middle" fill="#555">{percent}% asked</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="12">'
    return "\n".join((head, *lines, "</svg>\n"))


# Made-up mixes -------------------------------------------------------------------------------------------------------


MIG_WEIGHTS = {
    "even": {"1g": 0.2, "2g": 0.2, "3g": 0.2, "4g": 0.2, "7g": 0.2},
    "small": {"1g": 0.4, "2g": 0.25, "3g": 0.2, "4g": 0.1, "7g": 0.05},
    "large": {"1g": 0.1, "2g": 0.2, "3g": 0.3, "4g": 0.2, "7g": 0.2},
    "no 1g": {"2g": 0.4, "3g": 0.3, "4g": 0.2, "7g": 0.1},
}
#: Times the seeds for two cards, and for the best that pairs after churn could have: the mean of ten is chance.
MANY = 10
PAIR_WEIGHTS = {"7 pairs of 10": (0.3, 0.7), "4 pairs of 10": (0.6, 0.4), "2 pairs of 10": (0.8, 0.2)}

Measure = Callable[[SyntheticMix, str, int], float]


def mixes(options: argparse.Namespace) -> None:
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    print(f"capacity that is stranded, in percent, mean of {options.seeds}")
    print(f"{'':<34} " + " ".join(f"{policy:>13}" for policy in options.policies) + f" {'best':>8} {'unforeseen':>10}")
    for name, weights in MIG_WEIGHTS.items():
        mix, small = mig_mix(weights, nodes=30), mig_mix(weights, nodes=1, cards=3)
        _row(f"MIG, {name}, 60 cards, filled", mix, options, _filled)
        best = mean(100 * best_mig(sequence(small, seed), 3) for seed in seeds)
        _row(f"MIG, {name}, 3 cards, filled", small, options, _small, best=best)
        smallest = mig_mix(weights, nodes=1, cards=2)
        best = mean(100 * best_mig(sequence(smallest, seed), 2) for seed in _seeds(options, MANY))
        unforeseen = 100 * best_mig_unforeseen(smallest, 2)
        _row(f"MIG, {name}, 2 cards, filled", smallest, options, _small, best=best, unforeseen=unforeseen, times=MANY)
    for name, (single, pair) in PAIR_WEIGHTS.items():
        mix, small = pair_mix(single, pair, nodes=40), pair_mix(single, pair, nodes=1, gpus=16)
        unforeseen = mean(100 * best_churned(mix, seed) for seed in _seeds(options, MANY))
        _row(f"{name}, 320 GPUs, after churn", mix, options, _churned, unforeseen=unforeseen)
        best = mean(100 * best_pairs(sequence(small, seed), 16) for seed in seeds)
        _row(f"{name}, 16 GPUs, filled", small, options, _filled, best=best)


def _filled(mix: SyntheticMix, policy: str, seed: int) -> float:
    return fill(mix, policy=policy, seed=seed)


def _small(mix: SyntheticMix, policy: str, seed: int) -> float:
    """With so few requests it takes others before to know what usually comes."""
    return fill(mix, policy=policy, seed=seed, before=200)


def _churned(mix: SyntheticMix, policy: str, seed: int) -> float:
    return churn(mix, policy=policy, seed=seed)


def _seeds(options: argparse.Namespace, times: int = 1) -> range:
    return range(options.first_seed, options.first_seed + times * options.seeds)


def _row(
    name: str,
    mix: SyntheticMix,
    options: argparse.Namespace,
    measure: Measure,
    *,
    best: float | None = None,
    unforeseen: float | None = None,
    times: int = 1,
) -> None:
    seeds = _seeds(options, times)
    found = [mean(100 * measure(mix, policy, seed) for seed in seeds) for policy in options.policies]
    told = ("" if one is None else f"{one:.2f}" for one in (best, unforeseen))
    cells = " ".join(f"{one:>13.2f}" for one in found)
    print(f"{name:<34} {cells} {next(told):>8} {next(told):>10}".rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", nargs="?", type=Path)
    parser.add_argument("pods", nargs="?", type=Path)
    parser.add_argument("--policies", type=lambda text: text.split(","), default=list(POLICIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=42)
    parser.add_argument("--plot", type=Path, help="an SVG file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.policies) - set(POLICIES):
        parser.error(f"no such policy: {', '.join(sorted(unknown))}; there are {', '.join(POLICIES)}")
    if options.nodes is not None and options.pods is None:
        parser.error("a trace has two files: NODES.csv PODS.csv")
    trace(options) if options.nodes is not None else mixes(options)


if __name__ == "__main__":
    main()
