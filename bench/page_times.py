"""What each page of the demo's laboratory costs the server: `python bench/page_times.py` prints milliseconds of CPU.

With `--against CHECKOUT` it compares another checkout (first column) with this one (second column). The code of each
serves a copy of the same laboratory, and each page is asked for in turns, A B B A A B, so that whatever else runs on
this machine slows both alike. A figure is the least of `--rounds` GETs, as other work only adds to it. With `--limit
10` the command fails if a page takes more than 10% longer, and still does when it is asked for again, AGAIN times as
often.

The laboratory's clock is stopped (tests/still_laboratory.py), so every GET does the same work, with warm caches:
devices that have not changed are not read again, and a rehearsal's result is kept. Compare a checkout with itself to
see the noise; pages below MEASURABLE count only in the sum of all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

import django
import httpx

from manciple.processes.demolab.pages import every_page
from tests.e2e.api_client import submit_form
from tests.still_laboratory import CPU_HEADER, ROOT, USER, served

#: GETs of each page before the first that counts.
WARMING_UP = 2
#: Times `--rounds`, for pages that seem slower.
AGAIN = 3
#: Milliseconds.
MEASURABLE = 2.0


def measure(home: Path, trees: Sequence[Path], options: argparse.Namespace) -> Mapping[str, Sequence[float]]:
    """address -> milliseconds of CPU, one for each tree; pages that only lead elsewhere are left out."""
    pages = [page for page in every_page() if options.only in page.name]
    with ExitStack() as stack:
        clients = []
        for tree in trees:
            laboratory = stack.enter_context(served(home, tree))
            client = stack.enter_context(httpx.Client(base_url=laboratory.web, timeout=60))
            submit_form(client, "/login", {"username": USER, "password": laboratory.password})
            clients.append(client)
        costs = {}
        for page in pages:
            if all(client.get(page.path).status_code == HTTPStatus.OK for client in clients):
                costs[page.path] = _alternate(clients, page.path, options.rounds)
        for path, first in costs.items():
            if _is_slower(first, options.limit):
                again = _alternate(clients, path, AGAIN * options.rounds)
                costs[path] = [min(pair) for pair in zip(first, again, strict=True)]
        return costs


def _alternate(clients: Sequence[httpx.Client], path: str, rounds: int) -> Sequence[float]:
    taken: list[list[float]] = [[] for _ in clients]
    for number in range(-WARMING_UP, rounds):
        # Whoever comes second finds the processor's caches as the first one left them: they take turns.
        order = range(len(clients)) if number % 2 else reversed(range(len(clients)))
        for at in order:
            cost = float(clients[at].get(path).headers[CPU_HEADER])
            if number >= 0:
                taken[at].append(cost)
    return [min(costs) for costs in taken]


def _is_slower(costs: Sequence[float], limit: float) -> bool:
    """Whether the page takes more than `limit` percent longer; never where there is nothing to compare or no limit."""
    return bool(limit) and len(costs) > 1 and costs[0] >= MEASURABLE and costs[1] > costs[0] * (1 + limit / 100)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="compare with the code of another checkout")
    parser.add_argument("--limit", type=float, default=0, metavar="PERCENT", help="fail if a page takes so much longer")
    parser.add_argument("--rounds", type=int, default=7, help="how often each page is asked for")
    parser.add_argument("--only", default="", help="only pages whose name contains it")
    parser.add_argument("--home", type=Path, help="a laboratory that is kept; filled where there is none")
    options = parser.parse_args()
    django.setup()
    trees = [options.against, ROOT] if options.against else [ROOT]
    with tempfile.TemporaryDirectory(prefix="manciple-page-times-") as folder:
        costs = measure(options.home or Path(folder) / "home", trees, options)
    slower = _report(costs, options.limit)
    return 1 if options.limit and slower else 0


def _report(costs: Mapping[str, Sequence[float]], limit: float) -> int:
    """Print the table; return how many measurable pages take longer than the limit allows."""
    print(f"-- page times (load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores), ms CPU")
    slower = 0
    for path, each in sorted(costs.items(), key=lambda item: -item[1][0]):
        is_slower = _is_slower(each, limit)
        slower += is_slower
        print(f"{_row(each)}{' SLOWER' if is_slower else ''}  {path}")
    sums = [sum(costs_of_tree) for costs_of_tree in zip(*costs.values(), strict=True)]
    print(f"{_row(sums)}  all {len(costs)} pages" + (f"; {slower} take more than {limit:.0f}% longer" if limit else ""))
    return slower


def _row(costs: Sequence[float]) -> str:
    row = "".join(f"{cost:>9.1f}" for cost in costs)
    return row + f"{(costs[1] / costs[0] - 1) * 100:>+8.1f}%" if len(costs) > 1 else row


if __name__ == "__main__":
    sys.exit(main())
