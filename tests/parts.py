"""`make test`: the types and all tests, in parts that run beside each other, each in a process of its own.

A part is what shares something expensive: a browser, a running system, what an area's tests have compiled and decoded.
(One pool of processes that all collect all tests costs more CPU: docs/dependencies.md has the figures.) The longest
begin first: browser and systems, which mostly wait, take half of the run. What a part prints comes at once, behind its
name; at the end stand the slowest tests, what failed and why (of a long output often only the last lines are kept), and
the totals.

    TEST_WORKERS    parts that run at the same time, 3 by default: those of systems wait half of their time
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NoReturn

#: What CI keeps nobody reads.
TYPES = ("mypy", *(["--cache-dir=/dev/null"] if "CI" in os.environ else []))
_API = ("tests/manciple/api", "tests/manciple/extensions", "tests/manciple/admission")
_ALLOCATOR = tuple(
    f"tests/scheduling/{name}" for name in ("allocator", "autoscaling", "cel", "classic", "controllers", "explanations")
)


def _without(*folders: str) -> tuple[str, ...]:
    return tuple(f"--ignore={folder}" for folder in folders)


#: name -> the arguments of pytest. The longest first, those that mostly wait between those that work.
PARTS = {
    "browser": ("tests/e2e/pages",),
    "systems": ("tests/e2e", *_without("tests/e2e/production", "tests/e2e/pages")),
    "manciple": ("tests/manciple", *_without(*_API)),
    "production": ("tests/e2e/production",),
    "scheduling": ("tests/scheduling", *_without("tests/scheduling/pages", *_ALLOCATOR)),
    "nodeagent": ("tests/nodeagent",),
    "pages": ("tests/scheduling/pages",),
    "api": _API,
    "postgresql": ("tests/test_on_postgresql.py",),
    "allocator": _ALLOCATOR,
    "security": ("tests/security", "tests/deploy"),
    "claims": ("tests/claims", "tests/inventory", "tests/architecture", "tests/chaos"),
}
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
    """All parts, once."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self._printing = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self.totals = Totals()

    def part(self, name: str) -> bool:
        """Whether it passed. Raises: OSError."""
        pytest = ("pytest", "-q", f"--durations={NAMED}", *self._options, *PARTS.get(name, ()))
        command = [sys.executable, "-u", "-m", *(pytest if name in PARTS else TYPES)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self._processes.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            with self._printing:
                self.totals.read(name, line)
                if not _DURATION.match(line.strip()):
                    print(f"{name:10} {line}", end="", flush=True)
        return process.wait() == 0

    def stop(self) -> None:
        """Each part ends what it has started."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)


def _interrupt(*_signal: object) -> NoReturn:
    raise KeyboardInterrupt


def main(options: Sequence[str]) -> int:
    began = time.monotonic()
    run = Run(options)
    signal.signal(signal.SIGTERM, _interrupt)
    names = ("types", *PARTS)
    with ThreadPoolExecutor(int(os.environ.get("TEST_WORKERS", "3"))) as pool:
        try:
            passed = dict(zip(names, pool.map(run.part, names), strict=True))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            run.stop()
            return 130
    failed = [name for name, well in passed.items() if not well]
    print(run.totals.told(), f"in {time.monotonic() - began:.0f} s", f"; FAILED: {', '.join(failed)}" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
