"""Pods at a steady rate, one after the other: what each costs the servers, and how soon it is bound.

The load is open (cases/paced_load.py): a pod is created when it is due, whatever the answers to others. A pod includes
its creation, a claim made from a template, allocation and binding, two reports of the node's agent (that it runs, and
that it succeeded), and the deletion of pod and claim. The load begins long enough before the window that is measured:
as many pods are deleted in it as are created. With `--only-bound` a pod is its creation and placement alone.

Between the rates, only the agents' Leases are renewed. What that costs is subtracted from each window, at the mean of
before and after: all figures a pod are above idle. The load's own CPU is not counted.

With another checkout (`--against`), its installation runs beside that of this one, and each rate is measured with one
and the other in turn: A B, B A, ...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec

from cases.checkout import Running, embedded, production
from cases.counters import Counters
from cases.figures import Figure, quantile
from cases.paced_load import Order, Report, Start

HERE = Path(__file__).resolve().parents[2]
RATES = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
#: The budgets are for this many nodes. Server CPU a pod (ms) at most, by pods a second.
NODES = 500
BUDGETS = {2.0: 18.0, 10.0: 12.0, 30.0: 9.0, 60.0: 8.0}
#: POST to bound (ms) at most, at this rate; the servers while idle (% of a core) at most.
LATENCY_RATE, P50, P99 = 30.0, 25.0, 120.0
IDLE = 6.0
#: How the CPU of the yardstick is called.
FIXED = "a fixed computation, CPU"
#: Statements of the profile, and characters of each.
PROFILE, STATEMENT = 40, 300
#: Seconds after which the first reading is taken: everything has run once.
SETTLING = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rates: Sequence[float]
    seconds: float  # of each window, and of each idle one
    nodes: int
    devices: int
    workers: int
    rounds: int
    embedded: bool
    without: str
    against: Path | None
    profile: bool
    only_bound: bool = False


@dataclass(slots=True)
class _Windows:
    """Windows of the same kind, as one. counts: what was spent. reports: of the load."""

    seconds: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    #: CPU seconds of a fixed computation, each time that it was done
    fixed: list[float] = field(default_factory=list)

    def add(
        self, seconds: float, counts: Mapping[str, float], fixed: Iterable[float], report: Report | None = None
    ) -> None:
        self.seconds += seconds
        self.fixed += fixed
        for key, count in counts.items():
            self.counts[key] = self.counts.get(key, 0.0) + count
        self.reports += [report] if report else []

    def a_second(self) -> dict[str, float]:
        return {key: count / self.seconds for key, count in self.counts.items()}

    def a_pod(self, idle: Mapping[str, float]) -> dict[str, float]:
        """Above idle, which is a second's."""
        bound = max(sum(report.bound for report in self.reports), 1)
        return {key: (count - idle.get(key, 0.0) * self.seconds) / bound for key, count in self.counts.items()}


class _Yardstick:
    """Does the same computation twice a second, to tell how much CPU other load on the machine makes it cost."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def taken(self) -> list[float]:
        """CPU seconds of each computation since the last call, of which there is one at least."""
        while not self.took:
            time.sleep(0.1)
        took, self.took = self.took, []
        return took

    def _work(self) -> None:
        text = json.dumps([{"number": number, "text": str(number) * 3} for number in range(1000)])
        while not self._stop.wait(0.5):
            began = time.thread_time()
            json.dumps(json.loads(text), sort_keys=True)
            self.took.append(time.thread_time() - began)


class _Side:
    """An installation with its load, and the windows measured on it."""

    def __init__(
        self, running: Running, load: subprocess.Popen[bytes], counters: Counters, yardstick: _Yardstick
    ) -> None:
        self.name, self._load, self._counters, self._yardstick = running.name, load, counters, yardstick
        self.roles = list(dict.fromkeys(running.roles.values()))
        self._idle: list[_Windows] = []
        #: pods a second -> its windows
        self.loaded: dict[float, _Windows] = defaultdict(_Windows)

    def begin_idle(self) -> None:
        self._before = self._counters.begun()

    def end_idle(self, fixed: Iterable[float]) -> None:
        self._idle.append(_Windows())
        self._idle[-1].add(*self._counters.since(self._before), fixed)

    def load(self, order: Order) -> None:
        assert self._load.stdin is not None
        self._load.stdin.write(msgspec.json.encode(order) + b"\n")
        self._load.stdin.flush()
        self.expect("begin")
        before = self._counters.begun()
        self._yardstick.taken()
        self.expect("end")
        spent, fixed = self._counters.since(before), self._yardstick.taken()
        report = self.expect("done")
        self.loaded[order.rate].add(*spent, fixed, report)
        p50 = quantile(report.latencies, 0.5)
        print(f"{self.name} {order.rate:g}/s: {report.bound} bound, p50 {p50:.0f} ms", file=sys.stderr, flush=True)

    def expect(self, at: str) -> Report:
        """The next line of the load. Raises: RuntimeError where it ended, with its own error on standard error."""
        assert self._load.stdout is not None
        line = self._load.stdout.readline()
        if not line:
            raise RuntimeError(f"the load of {self.name} ended with {self._load.wait()}")
        report = msgspec.json.decode(line, type=Report)
        assert report.at == at, report
        return report

    def idle(self, *numbers: int) -> _Windows:
        """These idle windows, or all."""
        together = _Windows()
        for window in [self._idle[number] for number in numbers] or self._idle:
            together.add(window.seconds, window.counts, window.fixed)
        return together

    def a_pod(self, rate: float) -> dict[str, float]:
        """Above the idle windows before and after this rate."""
        number = list(self.loaded).index(rate)
        return self.loaded[rate].a_pod(self.idle(number, number + 1).a_second())


def measure(plan: Plan) -> list[Figure]:
    """Prints the profile where it is asked for."""
    with ExitStack() as stack:
        yardstick = stack.enter_context(closing(_Yardstick()))
        sides = [stack.enter_context(_side(folder, name, plan, yardstick)) for name, folder in _folders(plan).items()]
        time.sleep(min(SETTLING, plan.seconds))
        _stay_idle(sides, yardstick, plan.seconds)
        for rate in plan.rates:
            for number in range(plan.rounds):
                for side in sides if number % 2 == 0 else reversed(sides):
                    side.load(Order(rate=rate, seconds=plan.seconds, only_bound=plan.only_bound))
            _stay_idle(sides, yardstick, plan.seconds)
    if plan.profile:
        for side in sides:
            _print_profile(side)
    return list(_figures(sides, plan))


def _folders(plan: Plan) -> dict[str, Path]:
    """name -> checkout: this one, and the one that it is compared with."""
    if plan.against is None:
        return {"": HERE}
    other = plan.against.resolve()
    return {"this": HERE, "other" if other.name == "this" else other.name: other}


@contextmanager
def _side(folder: Path, name: str, plan: Plan, yardstick: _Yardstick) -> Iterator[_Side]:
    with ExitStack() as stack:
        running = stack.enter_context(
            embedded(folder, name=name)
            if plan.embedded
            else production(folder, name=name, workers=plan.workers, without=plan.without)
        )
        counters = stack.enter_context(closing(Counters(running)))
        load = stack.enter_context(_load_of(running, plan))
        side = _Side(running, load, counters, yardstick)
        side.expect("ready")
        yield side


@contextmanager
def _load_of(running: Running, plan: Plan) -> Iterator[subprocess.Popen[bytes]]:
    paths = os.pathsep.join([str(HERE), str(HERE / "bench")])
    load = subprocess.Popen(
        [sys.executable, "-m", "cases.paced_load"],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert load.stdin is not None
        start = Start(
            api=running.api,
            token=running.token,
            authority=str(running.authority),
            nodes=plan.nodes,
            devices=plan.devices,
        )
        load.stdin.write(msgspec.json.encode(start) + b"\n")
        load.stdin.flush()
        yield load
    finally:
        load.kill()
        load.wait()


def _stay_idle(sides: Sequence[_Side], yardstick: _Yardstick, seconds: float) -> None:
    for side in sides:
        side.begin_idle()
    yardstick.taken()
    time.sleep(seconds)
    fixed = yardstick.taken()
    for side in sides:
        side.end_idle(fixed)


# Figures -------------------------------------------------------------------------------------------------------------

#: name, unit, counters, what one of them is in that unit
_COUNTED = (
    ("statements", "", ("statements",), 1.0),
    ("  that read the log", "", ("log reads",), 1.0),
    ("commits", "", ("commits",), 1.0),
    ("WAL", "kB", ("wal",), 0.001),
    ("messages", "", ("redis publish", "redis lpush"), 1.0),
)


def _figures(sides: Sequence[_Side], plan: Plan) -> Iterator[Figure]:
    tables = [list(_figures_of(side, plan)) for side in sides]
    for table in tables:
        yield from table
    if len(tables) == 2:
        this, other = tables
        values = {(figure.name, figure.unit, figure.column): figure.value for figure in other}
        for figure in this:
            before = values.get((figure.name, figure.unit, figure.column))
            if before:
                yield Figure(
                    name=figure.name,
                    unit="",
                    value=figure.value / before,
                    column=figure.column,
                    table=f"{sides[0].name} / {sides[1].name}",
                )


def _figures_of(side: _Side, plan: Plan) -> Iterator[Figure]:
    """A column for what is spent a second while idle, and one for each rate, for what a pod costs above that."""
    of_budgets = plan.nodes == NODES and not plan.embedded
    idle = side.idle()
    yield from _spent(side, idle.a_second(), column="idle, a s", budget=IDLE * 10 if of_budgets else None)
    yield Figure(name=FIXED, value=median(idle.fixed) * 1000, unit="ms", column="idle, a s", table=side.name)
    for rate, windows in side.loaded.items():
        column, reports = f"{rate:g}/s", windows.reports
        latencies = [latency for report in reports for latency in report.latencies]
        promised = of_budgets and rate == LATENCY_RATE
        rows: list[tuple[str, float, str, float | None]] = [
            (FIXED, median(windows.fixed) * 1000, "ms", None),
            ("bound, pods a second", sum(report.bound for report in reports) / windows.seconds, "", None),
            ("POST to bound, p50", quantile(latencies, 0.5), "ms", P50 if promised else None),
            ("POST to bound, p99", quantile(latencies, 0.99), "ms", P99 if promised else None),
            ("the load's own delay, p99", max(report.late for report in reports), "ms", None),
            ("told to come back", sum(report.turned_away for report in reports), "", None),
            ("refused or unfinished", sum(report.refused for report in reports), "", 0.0),
        ]
        for name, value, unit, budget in rows:
            yield Figure(name=name, value=value, unit=unit, budget=budget, column=column, table=side.name)
        yield from _spent(side, side.a_pod(rate), column=column, budget=BUDGETS.get(rate) if of_budgets else None)


def _spent(side: _Side, counts: Mapping[str, float], *, column: str, budget: float | None) -> Iterator[Figure]:
    """budget: of the CPU, in ms."""
    cpu = {role: counts.get(f"cpu {role}", 0.0) * 1000 for role in side.roles}
    wakeups = {role: counts.get(f"wakeups {role}", 0.0) for role in side.roles}
    table = side.name
    yield Figure(name="server CPU", value=sum(cpu.values()), unit="ms", budget=budget, column=column, table=table)
    for role, spent in cpu.items():
        yield Figure(name=f"  {role}", value=spent, unit="ms", column=column, table=table)
    yield Figure(name="wake-ups", value=sum(wakeups.values()), unit="", column=column, table=table)
    for role, woken in wakeups.items():
        yield Figure(name=f"  of {role}", value=woken, unit="", column=column, table=table)
    if "statements" in counts:
        for name, unit, keys, scale in _COUNTED:
            value = sum(counts.get(key, 0.0) for key in keys) * scale
            yield Figure(name=name, value=value, unit=unit, column=column, table=table)


def _print_profile(side: _Side) -> None:
    """The most frequent statements, and all commands to Redis, a pod above idle."""
    for rate in side.loaded:
        counts = side.a_pod(rate)
        calls = {key.removeprefix("calls "): count for key, count in counts.items() if key.startswith("calls ")}
        print(f"-- {side.name} at {rate:g}/s, a pod: calls, ms in PostgreSQL, statement")
        for text, count in sorted(calls.items(), key=lambda item: -item[1])[:PROFILE]:
            print(f"{count:>8.3f} {counts[f'ms {text}']:>8.3f}  {text[:STATEMENT]}")
        used = {key.removeprefix("redis "): count for key, count in counts.items() if key.startswith("redis ")}
        print(f"-- {side.name} at {rate:g}/s, a pod: commands to Redis")
        print(", ".join(f"{name} {count:.2f}" for name, count in sorted(used.items(), key=lambda item: -item[1])))
