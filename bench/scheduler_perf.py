"""Kubernetes' own benchmark of its scheduler, played to Manciple: `python bench/scheduler_perf.py`.

The workloads of Kubernetes' test/integration/scheduler_perf/dra (bench/cases/workloads.py), through the API by HTTPS
clients, to a production installation (PostgreSQL, Redis, an API process, a worker) on this machine. Each workload runs
in a process of its own. docs/evidence/benchmarks.md has the figures beside Kubernetes' own.

    --workload NAME   only this one, or those that begin so
    --workers N       how many workers; one unless said otherwise, because Kubernetes' test has one scheduler. 0: the
                      API process works, too (`serve --with-worker`)
    --json            each as a line of JSON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cases.surroundings import servers
from cases.workloads import WORKLOADS


def _play(name: str, options: argparse.Namespace) -> None:
    with servers(redis=True):
        from cases import scheduler_perf  # noqa: PLC0415 - Django is set up by now

        figures = scheduler_perf.measure(name, WORKLOADS[name](), workers=options.workers)
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"workload": name, "load": load, "figures": [asdict(figure) for figure in figures]}))
        return
    print(f"-- load average {load:.1f}, {os.cpu_count()} cores")
    for figure in figures:
        print(figure.row())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.workload in WORKLOADS:
        _play(options.workload, options)
        return
    chosen = [name for name in WORKLOADS if name.startswith(options.workload)]
    if not chosen:
        parser.error(f"no workload begins with {options.workload!r}; there are {', '.join(WORKLOADS)}")
    for name in chosen:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--workload", name], check=True)


if __name__ == "__main__":
    main()
