"""What `manciple why`, `devices` and `mirror` cost: `python bench/mirror.py` prints each figure beside its budget.

    why      `manciple why pod` and `manciple devices`: time, CPU and memory of the process, the median of some runs
    copy     `manciple mirror` from its start to its first pages: the same, and how long the pages take, and their size
    listed   the same of a server that cannot begin a watch with the state, so that it is listed in pages

The commands run as a user types them, in a process of their own, with compiled modules and without packages that only
tests install. The cluster is served by another process on the same machine, whose CPU does not count.

With `--against CHECKOUT` each run is followed by one of the other checkout, whose figures stand behind "against".
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from statistics import median
from typing import Final
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

from cases.figures import Figure
from cases.remote_cluster import Size, serving

ROOT = Path(__file__).resolve().parents[1]
#: Not in an installation, and imported by others where they are there.
_ABSENT: Final = ("pygments", "regex", "requests", "rich")
_START: Final = (
    f"import sys; sys.modules.update(dict.fromkeys({_ABSENT!r})); "
    "from manciple.processes.command_line import main; sys.exit(main())"
)
SMALL, LARGE = Size(nodes=500, pods=2_520, claims=2_520), Size(nodes=5_000, pods=100_000, claims=40_000)
#: Seconds for a start of the mirror.
PATIENCE: Final = 900
COMMANDS: Final = {
    "why": ("why", "pod", "team-0/waiting-0"),
    "devices": ("devices",),
}
_LINK = re.compile(r"(http://\S+)/enter\?key=\S+")


@dataclass(frozen=True, slots=True)
class Cost:
    """seconds: on the clock, and of processor time. memory: MiB, resident at its highest."""

    seconds: float
    cpu: float
    memory: float


def _environment(tree: Path, folder: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MANCIPLE_", "KUBE", "DJANGO"))}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**own, "PYTHONPATH": str(tree), "HOME": str(folder)}


# Commands -------------------------------------------------------------------------------------------------------------


def commands(trees: Sequence[Path], size: Size, rounds: int, folder: Path) -> Iterator[Figure]:
    with serving(size, folder) as kubeconfig:
        for name, words in COMMANDS.items():
            costs: dict[Path, list[Cost]] = {tree: [] for tree in trees}
            for number in range(rounds + 1):
                for tree in trees if number % 2 else reversed(trees):
                    cost = _command(tree, [*words, "--kubeconfig", str(kubeconfig)], folder)
                    if number:  # the first compiles the modules
                        costs[tree].append(cost)
            yield from _figures(name, trees, costs, seconds=3)


def _command(tree: Path, words: Sequence[str], folder: Path) -> Cost:
    """Raises: CalledProcessError."""
    began = time.monotonic()
    with (folder / "answer").open("w") as answer:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, *words], cwd=tree, env=_environment(tree, folder), stdout=answer
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def _figures(
    name: str, trees: Sequence[Path], costs: dict[Path, list[Cost]], *, seconds: float, memory: float | None = None
) -> Iterator[Figure]:
    for number, tree in enumerate(trees):
        called = f"{name}, against" if number else name
        yield Figure(name=f"{called}: time", value=median(one.seconds for one in costs[tree]), unit="s", budget=seconds)
        yield Figure(name=f"{called}: CPU", value=median(one.cpu for one in costs[tree]), unit="s")
        yield Figure(
            name=f"{called}: memory", value=median(one.memory for one in costs[tree]), unit="MiB", budget=memory
        )


# The mirror -----------------------------------------------------------------------------------------------------------


def copying(trees: Sequence[Path], size: Size, folder: Path, *, watch_lists: bool) -> Iterator[Figure]:
    with serving(size, folder, watch_lists=watch_lists) as kubeconfig:
        for number, tree in enumerate(trees):
            name = f"{'copy' if watch_lists else 'listed'} of {size.objects:,}{', against' if number else ''}"
            with (
                tempfile.TemporaryDirectory(dir=folder) as home,
                _mirror(tree, kubeconfig, Path(home)) as (pid, link, cost),
            ):
                yield from _figures(name, [tree], {tree: [cost]}, seconds=60, memory=800)
                yield from _pages(name, pid, link)


@contextmanager
def _mirror(tree: Path, kubeconfig: Path, home: Path) -> Iterator[tuple[int, str, Cost]]:
    """Its process, the link that it printed, and what it took until then."""
    words = ["mirror", "--kubeconfig", str(kubeconfig), "--home", str(home / "copy")]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", _START, *words],
        cwd=tree,  # from where -c imports first
        env=_environment(tree, home),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        signal.alarm(PATIENCE)
        link = next((found[0] for line in process.stdout if (found := _LINK.search(line))), "")
        signal.alarm(0)
        if not link:
            raise RuntimeError("the mirror has ended")
        yield process.pid, link, Cost(time.monotonic() - began, _cpu(process.pid), _peak(process.pid))
    finally:
        process.kill()
        process.wait()


def _pages(name: str, pid: int, link: str) -> Iterator[Figure]:
    """The first view of each page, then the second."""
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    browser.addheaders.append(("Accept-Encoding", "gzip"))
    root = link.partition("/enter")[0]
    browser.open(link).read()
    for path, seconds, size in (("/overview", 1.5, None), ("/devices", None, 200)):
        for which in ("first", "second"):
            took, cpu, body = _get(browser, f"{root}{path}", pid)
            yield Figure(
                name=f"{name}: {which} {path} ({cpu:.1f} s of CPU)",
                value=took,
                unit="s",
                budget=seconds if which == "first" else None,
            )
        yield Figure(name=f"{name}: {path}, compressed", value=len(body) / 1024, unit="KiB", budget=size)
    yield Figure(name=f"{name}: memory by then", value=_peak(pid), unit="MiB")


def _get(browser: OpenerDirector, address: str, pid: int) -> tuple[float, float, bytes]:
    began, before = time.monotonic(), _cpu(pid)
    body = browser.open(address).read()
    return time.monotonic() - began, _cpu(pid) - before, body


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> float:
    """MiB. SQLite's mapping of the database, whose pages are the system's, is part of it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="*", choices=("why", "copy", "listed"), default=("why", "copy"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=int, default=1, metavar="N", help="the copied cluster is so many times smaller")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    asked = parser.parse_args()
    trees = [ROOT, *([asked.against.resolve()] if asked.against else [])]
    large = Size(LARGE.nodes // asked.scale, LARGE.pods // asked.scale, LARGE.claims // asked.scale)
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as path:
        for case in asked.case:
            figures = (
                commands(trees, SMALL, asked.rounds, Path(path))
                if case == "why"
                else copying(trees, large, Path(path), watch_lists=case == "copy")
            )
            for figure in figures:
                print(figure.row(), flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
