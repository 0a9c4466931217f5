"""`make test`: the types and all tests, in parts that run beside each other, each in a process of its own.

A part is what shares something expensive: a browser, a running system, what an area's tests have compiled and decoded.
(One pool of processes that all collect all tests costs more CPU: docs/reference/dependencies.md has the figures.) All
are forked from one process that has imported what most of them need. The longest begin first, those that mostly wait
among them. What a part prints comes at once, behind its name; at the end stand the slowest tests, what failed and why
(of a long output often only the last lines are kept), and the totals.

    TEST_WORKERS    parts that run at the same time, 3 by default: those of systems wait half of their time
"""

from __future__ import annotations

import atexit
import gc
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import mkdtemp
from typing import NoReturn, cast

import django
import pytest
from django.core.management import call_command
from django.db import connections

from tests.e2e.nursery import NURSERY
from tests.examples import MIGRATED

#: What CI keeps nobody reads.
TYPES = ("mypy", *(["--cache-dir=/dev/null"] if "CI" in os.environ else []))
_API, _EXTENSIONS = ("tests/manciple/api",), ("tests/manciple/extensions", "tests/manciple/admission")
_ALLOCATOR = tuple(
    f"tests/scheduling/{name}"
    for name in (
        "allocator",
        "cel",
        "controllers",
        "earlier/classic",
        "rehearsal/autoscaling",
        "rehearsal/explanations",
    )
)


def _without(*folders: str) -> tuple[str, ...]:
    return tuple(f"--ignore={folder}" for folder in folders)


#: Pages of a system whose nodes run; the others are those of the demo's laboratory.
_LIVE = (
    "ages", "claims", "classes", "devices", "drafts", "grid", "moves", "names", "nodes", "overview", "pods", "tour",
)  # fmt: skip
_LIVE_PAGES = tuple(f"tests/e2e/pages/test_{name}.py" for name in _LIVE)
#: Those that start systems of their own.
_SYSTEMS = (
    *(
        f"tests/e2e/test_{name}.py"
        for name in ("faults", "limits_storm", "restart", "two_versions", "upgrade", "wheel")
    ),
    "tests/e2e/plugins",
)
#: name -> the arguments of pytest. The longest first, those that mostly wait between those that work, and at the end
#: the shortest, so that no part is left to run alone.
PARTS = {
    "laboratory": ("tests/e2e/pages", *_without(*_LIVE_PAGES)),
    "systems": _SYSTEMS,
    "manciple": ("tests/manciple", *_without(*_API, *_EXTENSIONS)),
    "api": _API,
    "live pages": _LIVE_PAGES,
    "nodeagent": ("tests/nodeagent",),
    "pages": ("tests/dashboard",),
    "kubectl": ("tests/e2e", *_without("tests/e2e/production", "tests/e2e/pages", *_SYSTEMS)),
    "security": ("tests/security", "tests/deploy"),
    "scheduling": ("tests/scheduling", *_without(*_ALLOCATOR)),
    "production": ("tests/e2e/production",),
    "extensions": _EXTENSIONS,
    "postgresql": ("tests/test_on_postgresql.py",),
    "allocator": _ALLOCATOR,
    "claims": (
        "tests/claims",
        "tests/networking",
        "tests/workloads",
        "tests/inventory",
        "tests/architecture",
        "tests/chaos",
    ),
}
#: What most parts import, but no tests: pytest rewrites their assertions when it imports them itself.
IMPORTS = (
    "django.test.client", "hypothesis.strategies", "manciple.celery", "manciple.live.consumers",
    "manciple.controllers.tasks", "manciple.processes.accounts", "manciple.urls", "psycopg", "redis",
    "scheduling.invariants", "tests.laboratory", "yaml",
)  # fmt: skip
#: pytest would rather rewrite the assertions of hypothesis, too.
KNOWN = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
WORKERS = int(os.environ.get("TEST_WORKERS", "3"))
FORKING = multiprocessing.get_context("fork")
#: Tests named at the end because they took longest.
NAMED = 20
_DURATION = re.compile(r"([\d.]+)s (?:call|setup|teardown) +tests/")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected)")
_FAILURE = re.compile(r"(?:FAILED|ERROR) tests/")
_REASON = re.compile(r"E   |tests/\S+:\d+: ")
#: Lines of reasons kept for each part: the last ones.
REASONS = 15
_SUMMARY = re.compile(r"^=*\s*\d+ \w+.* in [\d.]+s")


@dataclass
class Totals:
    """What the parts told, together."""

    counts: Counter[str] = field(default_factory=Counter)
    durations: list[tuple[float, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    reasons: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=REASONS)))

    def read(self, part: str, line: str) -> None:
        if _REASON.match(line):
            self.reasons[part].append(line.rstrip())
        elif _FAILURE.match(line):
            self.failures.append(line.rstrip())
        if duration := _DURATION.match(line.strip()):
            self.durations.append((float(duration[1]), line.strip()))
        elif _SUMMARY.match(line):
            self.counts.update({what: int(number) for number, what in _COUNT.findall(line)})

    def told(self) -> str:
        slowest = [line for _, line in sorted(self.durations, reverse=True)[:NAMED]]
        counts = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        told = [f"== slowest {NAMED}", *slowest]
        if self.failures:
            told += ["== failed", *(line for reasons in self.reasons.values() for line in reasons), *self.failures]
        return "\n".join([*told, f"== {counts}"])


class Run:
    """All parts, once. One thread: what forks must hold no lock of another thread."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self._nursery = NURSERY.share()
        self._running: dict[Connection, tuple[str, BaseProcess | subprocess.Popen[bytes]]] = {}
        self._rest: dict[Connection, str] = {}
        self.totals = Totals()
        self.failed: list[str] = []

    def start(self, name: str) -> None:
        reading, writing = FORKING.Pipe(duplex=False)
        if name in PARTS:
            arguments = ["-q", f"--durations={NAMED}", *KNOWN, *self._options, *PARTS[name]]
            forked = FORKING.Process(target=_test, args=(arguments, writing, self._nursery))
            forked.start()
            self._running[reading] = name, forked
        else:
            self._running[reading] = (
                name,
                subprocess.Popen(
                    [sys.executable, "-u", "-m", *TYPES],
                    stdout=writing.fileno(),
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                ),
            )
        writing.close()

    def follow(self, *, at_once: int = 0) -> None:
        """Print what the parts say until no more than `at_once` of them run."""
        while len(self._running) > at_once:
            for ready in cast("list[Connection]", wait(list(self._running))):
                said = os.read(ready.fileno(), 1 << 16).decode(errors="replace")
                *lines, self._rest[ready] = (self._rest.get(ready, "") + said).split("\n")
                for line in lines if said else [*lines, self._rest[ready]]:
                    self._tell(self._running[ready][0], line)
                if not said:
                    self._end(ready)

    def _tell(self, name: str, line: str) -> None:
        self.totals.read(name, line)
        if line and not _DURATION.match(line.strip()):
            print(f"{name:10} {line}", flush=True)

    def _end(self, ended: Connection) -> None:
        name, process = self._running.pop(ended)
        ended.close()
        if isinstance(process, subprocess.Popen):
            status: int | None = process.wait()
        else:
            process.join()
            status = process.exitcode
        if status != 0:
            self.failed.append(name)

    def stop(self) -> None:
        """Each part ends what it has started."""
        for _, process in self._running.values():
            if process.pid:
                os.kill(process.pid, signal.SIGINT)


def _test(arguments: list[str], output: Connection, nursery: int) -> NoReturn:
    """In a process of its own: pytest, which says what it has to say to `output`."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    os.closerange(3, nursery)
    os.closerange(nursery + 1, 1024)
    sys.argv[:] = ["pytest", *arguments]
    status = pytest.main(arguments)
    getattr(threading, "_shutdown")()  # noqa: B009 - waits for threads, as at every end; it has no public name
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _prepare(folder: Path) -> None:
    """Import what most parts need, and migrate a database that they copy: each would take three seconds for it."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
    gc.disable()
    django.setup()
    for module in IMPORTS:
        importlib.import_module(module)
    database = folder / "manciple.sqlite3"
    settings = connections["default"].settings_dict
    if settings["ENGINE"].endswith("sqlite3"):
        name, settings["NAME"] = settings["NAME"], str(database)
        call_command("migrate", verbosity=0, interactive=False)
        del connections["default"]
        settings["NAME"] = name
        os.environ[MIGRATED] = str(database)
    gc.collect()
    gc.freeze()  # a collection in a part would copy every page of memory that the parts share
    gc.enable()


def _interrupt(*_signal: object) -> NoReturn:
    raise KeyboardInterrupt


def main(options: Sequence[str]) -> int:
    began = time.monotonic()
    run = Run(options)
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(mkdtemp())  # a TemporaryDirectory would go with the first part that ends
    try:
        run.start("types")
        _prepare(folder)
        for name in PARTS:
            run.follow(at_once=WORKERS - 1)
            run.start(name)
        run.follow()
    except KeyboardInterrupt:
        run.stop()
        return 130
    finally:
        NURSERY.end()
        shutil.rmtree(folder, ignore_errors=True)
    failed = f"; FAILED: {', '.join(run.failed)}" if run.failed else ""
    print(run.totals.told(), f"in {time.monotonic() - began:.0f} s", failed)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
