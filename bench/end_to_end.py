"""How fast the whole system is: `python bench/end_to_end.py` prints every figure beside its budget.

Each case runs in a process of its own, on a PostgreSQL (and Redis) that it starts on free ports and stops again:

    throughput  pods created from a template -> claims -> allocated -> bound
    large       the same with 5,000 nodes of 20 devices
    extended    pods that ask by the names of 25 and 50 extended resources, beside as many with claims from a template
    clients     100 HTTPS clients create pods while 500 nodes renew their Leases: throughput, and CPU by process
    deployment  one Deployment of 10,000 pods: how soon they are there and gone; CPU and memory at rest before and after
    jobs        2,000 Jobs: the same, and what somebody in another namespace sees meanwhile
    paced       pods at steady rates: the CPU, statements, commits, WAL and messages of a pod, and its latency
    latency     POST pod -> bound, seen through a watch, at a steady rate: API process, two workers
    silence     the same while a thousand other nodes fall silent at once
    taints      the same while 5,000 devices that pods hold are tainted NoExecute
    simulate    what an autoscaler waits for: simulations of 1,000 pods on 500 nodes
    page        the device page's server time, whole and for one pool
    live        commit -> message on an open page's WebSocket
    quotas      200 clients make 10,000 claims and pods while processes are killed: no quota is exceeded or miscounts
    scale       5,000 nodes with 100,000 devices and 50,000 pods at rest, 1,000 watches: CPU, memory, restart, lists
    isolation   what one tenant can cost another: attacks one after the other, and what somebody else sees meanwhile
    chaos       clients create pods while every process is killed at random: what must hold afterwards (`make chaos`)

`--case NAME` runs one of them (paced, scale, quotas, isolation and chaos are run only so), `--json` prints it as a line
of JSON. The machine's load stands beside each case: figures of a busy machine compare only with each other.

`--without authorization,audit,admission` runs it without these guards (`bench/without`), and `--compare ROUNDS` in
turns without and with them, and prints the medians beside each other: what the guards cost. The case paced is compared
with another checkout by `--against FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cases.comparison import HEAD, compare
from cases.figures import Figure, as_tables
from cases.surroundings import servers
from without.apps import GUARDS

Options = argparse.Namespace
#: The cases that are tests: they exit with 1 where anything is not as promised.
CHAOS, QUOTAS, ISOLATION = "chaos", "quotas", "isolation"
TESTS = {CHAOS, QUOTAS, ISOLATION}
#: A quarter of an hour each: run only where they are asked for.
SCALE, PACED = "scale", "paced"


def _throughput(options: Options) -> list[Figure]:
    from cases import throughput  # noqa: PLC0415 - Django is set up by now

    return throughput.measure(
        nodes=options.nodes or 500, devices=options.devices or 10, pods=options.pods or 3000, budget=1000
    )


def _large(options: Options) -> list[Figure]:
    from cases import throughput  # noqa: PLC0415

    return throughput.measure(
        nodes=options.nodes or 5000, devices=options.devices or 20, pods=options.pods or 3000, budget=500
    )


def _extended(options: Options) -> list[Figure]:
    from cases import extended  # noqa: PLC0415

    return extended.measure(nodes=options.nodes or 500, devices=options.devices or 10, pods=options.pods or 1500)


def _clients(options: Options) -> list[Figure]:
    from cases import clients  # noqa: PLC0415

    return clients.measure(
        nodes=options.nodes or 500,
        devices=options.devices or 10,
        pods=options.pods or 2500,
        clients=options.clients or 100,
        workers=2,
    )


def _deployment(options: Options) -> list[Figure]:
    from cases import deployment  # noqa: PLC0415

    return deployment.measure(
        nodes=options.nodes or 1000, devices=options.devices or 10, pods=options.pods or 10_000, workers=2
    )


def _jobs(options: Options) -> list[Figure]:
    from cases import jobs  # noqa: PLC0415

    return jobs.measure(
        nodes=options.nodes or 500, devices=options.devices or 10, jobs=options.pods or 2_000, workers=2
    )


def _paced(options: Options) -> list[Figure]:
    from cases import paced  # noqa: PLC0415

    return paced.measure(
        paced.Plan(
            rates=[float(rate) for rate in options.rates.split(",")] if options.rates else paced.RATES,
            seconds=options.seconds or 30.0,
            nodes=options.nodes or paced.NODES,
            devices=options.devices or 10,
            workers=2,
            rounds=options.rounds or (2 if options.against else 1),
            embedded=options.embedded,
            without=options.without,
            against=options.against,
            profile=options.profile,
            only_bound=options.only_bound,
        )
    )


def _latency(options: Options) -> list[Figure]:
    from cases import latency  # noqa: PLC0415

    return latency.measure(
        nodes=options.nodes or 100, devices=options.devices or 10, rate=options.rate, seconds=options.seconds or 15.0
    )


def _silence(options: Options) -> list[Figure]:
    from cases import silent_nodes  # noqa: PLC0415

    return silent_nodes.measure(silent=options.nodes or 1000, devices=options.devices or 10, rate=options.rate)


def _taints(options: Options) -> list[Figure]:
    from cases import taints  # noqa: PLC0415

    return taints.measure(taints=options.pods or 10_000, devices=options.devices or 10, rate=options.rate)


def _simulate(options: Options) -> list[Figure]:
    from cases import simulations  # noqa: PLC0415

    return simulations.measure(nodes=options.nodes or 500, devices=options.devices or 10, pods=options.pods or 1000)


def _page(options: Options) -> list[Figure]:
    from cases import pages  # noqa: PLC0415

    return pages.measure_page(nodes=options.nodes or 500, devices=options.devices or 10)


def _live(options: Options) -> list[Figure]:
    from cases import pages  # noqa: PLC0415

    return pages.measure_live(nodes=options.nodes or 500, devices=options.devices or 10, changes=100)


def _chaos(options: Options) -> list[Figure]:
    from cases import chaos  # noqa: PLC0415

    return chaos.measure(
        seed=options.seed,
        nodes=options.nodes or 50,
        devices=options.devices or 10,
        pods=options.pods or 300,
        clients=options.clients or 30,
        postgresql=options.postgresql,
        redis=options.redis,
    )


def _quotas(options: Options) -> list[Figure]:
    from cases import quotas  # noqa: PLC0415

    return quotas.measure(
        seed=options.seed,
        nodes=options.nodes or 50,
        devices=options.devices or 10,
        claims=options.pods or 10_000,
        clients=options.clients or 200,
    )


def _isolation(options: Options) -> list[Figure]:
    from cases import isolation  # noqa: PLC0415

    return isolation.measure(
        nodes=options.nodes or 300, devices=options.devices or 10, seconds=options.seconds or 15.0, only=options.only
    )


def _scale(options: Options) -> list[Figure]:
    from cases import scale  # noqa: PLC0415

    nodes = options.nodes or 5000
    return scale.measure(
        nodes=nodes, devices=options.devices or 20, pods=options.pods or nodes * 10, watches=options.clients or 1000
    )


CASES: dict[str, Callable[[Options], list[Figure]]] = {
    "throughput": _throughput,
    "large": _large,
    "extended": _extended,
    "clients": _clients,
    "deployment": _deployment,
    "jobs": _jobs,
    PACED: _paced,
    "latency": _latency,
    "silence": _silence,
    "taints": _taints,
    "simulate": _simulate,
    "page": _page,
    "live": _live,
    SCALE: _scale,
    QUOTAS: _quotas,
    ISOLATION: _isolation,
    CHAOS: _chaos,
}


#: The cases that need a Redis: those with workers.
REDIS = {"clients", "deployment", "jobs", "latency", "silence", "taints", "simulate", "live", SCALE, *TESTS}


def _run(name: str, options: Options) -> list[Figure]:
    if name == PACED:  # starts its own, for each checkout
        return CASES[name](options)
    with servers(redis=name in REDIS, without=options.without) as started:
        options.postgresql, options.redis = started.postgresql, started.redis
        return CASES[name](options)


def _told(name: str, options: Options) -> bool:
    """Returns whether every budget was met."""
    figures = _run(name, options)
    met = all(figure.met is not False for figure in figures)
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"case": name, "load": load, "figures": [asdict(figure) for figure in figures]}))
        return met
    print(f"-- {name} (load average {load:.1f}, {os.cpu_count()} cores)")
    if any(figure.column for figure in figures):
        print("\n".join(as_tables(figures)))
        return met
    for figure in figures:
        print(figure.row())
    return met


def _compared(name: str, options: Options) -> None:
    command = [__file__, "--case", name, "--json"]
    for option in ("nodes", "devices", "pods", "clients", "rate", "rates", "seconds", "seed"):
        if (given := getattr(options, option)) is not None:
            command += [f"--{option}", str(given)]
    without = options.without or ",".join(GUARDS)
    print(f"-- {name}, in turns without and with {without} (load average {os.getloadavg()[0]:.1f})", HEAD, sep="\n")
    for row in compare(command, without, rounds=options.compare):
        print(row.row())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=tuple(CASES))
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--pods", type=int)
    parser.add_argument(
        "--clients", type=int, help="connections that create pods (clients, chaos), claims (quotas), or watch (scale)"
    )
    parser.add_argument("--rate", type=float, default=20.0, help="pods a second (latency)")
    parser.add_argument(
        "--seconds", type=float, help="for so long (latency, isolation each attack: 15; paced, each rate: 30)"
    )
    parser.add_argument("--rates", help="pods a second, separated by commas (paced)")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="compare with it, in turns (paced)")
    parser.add_argument("--rounds", type=int, help="windows of each rate (paced: 1, or 2 with --against)")
    parser.add_argument("--embedded", action="store_true", help="everything in one process, on SQLite (paced)")
    parser.add_argument("--only-bound", action="store_true", help="pods without agents and deletion (paced)")
    parser.add_argument("--profile", action="store_true", help="print the statements of a pod (paced)")
    parser.add_argument(
        "--seed", type=int, default=1, help="which processes are killed, when and for how long (chaos, quotas)"
    )
    parser.add_argument("--only", default="", help="attacks whose names contain this (isolation)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--without", default="", help="guards that are taken out, separated by commas")
    parser.add_argument("--compare", type=int, default=0, metavar="ROUNDS", help="without and with guards, in turns")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended
    if options.compare:
        _compared(options.case or "clients", options)
        return
    if options.case is not None:
        met = _told(options.case, options)
        sys.exit(options.case in TESTS and not met)
    for name in [name for name in CASES if name not in {*TESTS, SCALE, PACED}]:
        subprocess.run([sys.executable, __file__, "--case", name, *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
