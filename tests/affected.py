"""`make check`: the quick tests that changes of the working tree can affect, for at most half a minute.

    python -m tests.affected            what differs from the last commit
    python -m tests.affected --since main

A file of tests is affected if it changed, or if it imports or names what changed, however indirectly. Imports come from
grimp's graph; names are the paths that sources give for templates, documents and recorded data. What runs in a test
without either, such as a view behind its address, is found by its place: `tests/dashboard/workloads/test_pods.py` is
about `dashboard/workloads/pods/` and `templates/workloads/pods/`. The nearest tests come first, so that those left out
when the time is over are the least likely to fail. Tests that start services or take long are left to `make test`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "manciple",
    "inventory",
    "claims",
    "networking",
    "workloads",
    "scheduling",
    "insight",
    "dashboard",
    "nodeagent",
    "tests",
)
#: Where files lie that are no modules, but that modules and tests name.
NAMED = ("templates", "static", "docs", "deploy", "tests/conformance_data")
#: Tests beyond this many steps of imports have little to do with a change; most go through an entry point.
FARTHEST = 4
#: A change here can affect every test.
EVERYTHING = ("tests/conftest.py", "manciple/settings.py", "pyproject.toml", "uv.lock")
SECONDS = 30.0
#: Files of tests collected at most: what is imported for them costs time, too.
MOST = 60
WITH_SERVICES = ("tests/e2e/", "tests/test_on_postgresql.py")
#: Fixtures that start a service.
SERVICES = {"postgresql", "redis_server"}


def changed_paths(since: str) -> list[str]:
    """Paths of files that differ from that commit, untracked ones too."""
    differing = _git("diff", "--name-only", "--diff-filter=d", since)
    return sorted({*differing, *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()


class Graph:
    """Which file leads to which others: those that import it or name it."""

    def __init__(self, importers: Mapping[str, Iterable[str]], texts: Mapping[str, str]) -> None:
        """`importers`: path -> files that import it; `texts`: path -> the text, of every file that may name others."""
        self._importers = importers
        self._texts = texts

    def _users(self, path: str) -> set[str]:
        if path.endswith(".py"):
            return set(self._importers.get(path, ()))
        # A template is named by its place below templates/, other files often by their name alone.
        name = PurePosixPath(path).name.removesuffix(".gz")
        if path.startswith("templates/"):
            name = path.removeprefix("templates/")
        return {user for user, text in self._texts.items() if name in text and user != path}

    def distances(self, path: str) -> dict[str, int]:
        """The path itself, and whatever uses it, however indirectly -> the number of steps."""
        found = {path: 0}
        waiting = [path]
        for one in waiting:
            for user in self._users(one):
                if user not in found and found[one] < FARTHEST:
                    found[user] = found[one] + 1
                    waiting.append(user)
        return found


def affected(changed: Sequence[str], graph: Graph, tests: Sequence[str]) -> list[str]:
    """Those of `tests` (paths) that the changed files can affect, the nearest first."""
    nearest: dict[str, float] = {}
    for path in changed:
        distances = graph.distances(path)
        if path in EVERYTHING:
            distances |= {test: distances.get(test, FARTHEST) for test in tests}
        for test in tests:
            found: list[float] = [distances[test]] if test in distances else []
            if (alike := _alike(path, test)) is not None:
                found.append(alike)
            if found:
                nearest[test] = min(nearest.get(test, FARTHEST + 1), *found)
    return sorted(nearest, key=lambda test: (nearest[test], test))


def _alike(path: str, test: str) -> float | None:
    """How near a test is by its place and name, in steps of imports; None where it is about something else."""
    folder, name = PurePosixPath(path).parent, PurePosixPath(path).stem
    about = PurePosixPath(test).parent.relative_to("tests")
    subject = PurePosixPath(test).stem.removeprefix("test_")
    if path.startswith("templates/"):
        folder = PurePosixPath("dashboard", *folder.parts[1:])
    if path == test:
        return 0
    if path.startswith("tests/"):
        beside = folder == PurePosixPath(test).parent or PurePosixPath(test).is_relative_to(folder)
        return 1 if name == "conftest" and beside else None
    if test.startswith("tests/architecture/"):
        return 3  # they read every source and document
    if about == folder:
        return 0.5 if subject.startswith(name) or name.startswith(subject) else 2.5
    # tests/dashboard/workloads/test_pods.py, test_pod_page.py: about the package dashboard/workloads/pods
    if about == folder.parent:
        return 0.5 if subject.startswith((folder.name.rstrip("s"), name)) else None
    return None


def project_graph() -> Graph:
    """That of this repository."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    modules = grimp.build_graph(*PACKAGES, cache_dir=str(ROOT / ".import_linter_cache"))
    paths = {module: path for module in modules.modules if (path := _path(module))}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module, path in paths.items():
        users = modules.find_modules_that_directly_import(module)
        importers[path].update(paths[user] for user in users if user in paths)
    named = (file for folder in NAMED for file in (ROOT / folder).rglob("*.html"))
    texts = {path: (ROOT / path).read_text() for path in paths.values()}
    for path, text in texts.items():
        if "manciple.wire.deferred" in text:  # it names modules that it imports on demand
            for module in re.findall(r'"([\w.]+)(?::\w+)?"', text):
                if module in paths:
                    importers[paths[module]].add(path)
    texts |= {str(file.relative_to(ROOT)): file.read_text() for file in named}
    return Graph(importers, texts)


def _path(module: str) -> str:
    """The file of a module, or nothing: a folder without `__init__.py`."""
    place = module.replace(".", "/")
    return next((path for path in (f"{place}.py", f"{place}/__init__.py") if (ROOT / path).is_file()), "")


class QuickTests:
    """The pytest plugin that leaves out tests which need a service, and all that remain when the time is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None
        self._left_out: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        slow = {item for item in items if _needs_services(item)}
        config.hook.pytest_deselected(items=list(slow))
        items[:] = [item for item in items if item not in slow]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if self._end is None:  # the first test: what it took to collect them does not count
            self._end = time.monotonic() + self._seconds
        if time.monotonic() < self._end:
            return None
        self._left_out.add(item.nodeid.partition("::")[0])
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left_out:
            terminalreporter.write_line(f"The time was over; left to `make test`: {len(self._left_out)} of the files")


def _needs_services(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in ("e2e", "browser", "postgres"))
    return marked or bool(SERVICES & set(getattr(item, "fixturenames", ())))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the quick tests that changes can affect.")
    parser.add_argument("--since", default="HEAD", help="the commit to compare with (default: the last one)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for how long tests are started")
    parser.add_argument("--list", action="store_true", help="only name the files of tests")
    options = parser.parse_args(arguments)
    changed = changed_paths(options.since)
    every = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    tests = [test for test in every if not test.startswith(WITH_SERVICES)]
    chosen = affected(changed, project_graph(), tests) if changed else []
    print(f"{len(changed)} changed files can affect {len(chosen)} files of quick tests", flush=True)
    if options.list or not chosen:
        print(*chosen, sep="\n")
        return 0
    if len(chosen) > MOST:
        print(f"The nearest {MOST} are run; `make test` runs the others", flush=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    code = pytest.main(["-q", *chosen[:MOST]], plugins=[QuickTests(options.seconds)])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
