"""What a check is, how a list of them is run, and what is told of it: text for people, JSON for programs."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from nodeagent.driver_check.subject import CheckFailed, DriverUnderTest, NotChecked
from nodeagent.plugins.protocol import CallFailed

Verdict = Literal["passed", "failed", "skipped"]
_MARKS: Mapping[Verdict, str] = {"passed": "ok     ", "failed": "FAILED ", "skipped": "skipped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCheck:
    """id: "prepare.twice". title: what a good driver does. advice: what to look at where it does not.

    run: returns where the driver does it; raises CheckFailed, or NotChecked. needs: checks without which this one means
    nothing. slow: takes a minute or two with a driver on Kubernetes' library.
    """

    id: str
    title: str
    advice: str
    run: Callable[[DriverUnderTest], None]
    needs: tuple[str, ...] = ()
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """detail: what the driver did, or why it was not checked. seconds: that it took."""

    id: str
    title: str
    verdict: Verdict
    detail: str = ""
    advice: str = ""
    seconds: float = 0.0


def run_checks(
    subject: DriverUnderTest,
    checks: Sequence[DriverCheck],
    *,
    only: Collection[str] = (),
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[CheckResult]:
    """Each in turn; with `only`, those and what they need."""
    wanted = _with_needs(checks, only) if only else {check.id for check in checks}
    passed: set[str] = set()
    for check in checks:
        if check.id not in wanted:
            continue
        began = clock()
        verdict, detail = _judge(check, subject, passed)
        if verdict == "passed":
            passed.add(check.id)
        advice = check.advice if verdict == "failed" else ""
        seconds = round(clock() - began, 3)
        yield CheckResult(
            id=check.id, title=check.title, verdict=verdict, detail=detail, advice=advice, seconds=seconds
        )


def _with_needs(checks: Sequence[DriverCheck], only: Collection[str]) -> set[str]:
    known = {check.id: check for check in checks}
    wanted, left = set[str](), list(only)
    while left:
        one = left.pop()
        if one not in wanted:
            wanted.add(one)
            left += known[one].needs
    return wanted


def _judge(check: DriverCheck, subject: DriverUnderTest, passed: Collection[str]) -> tuple[Verdict, str]:
    if missing := [need for need in check.needs if need not in passed]:
        return "skipped", f"needs {' and '.join(missing)}"
    if check.slow and not subject.options.slow:
        return "skipped", "takes long; asked for by --slow"
    try:
        check.run(subject)
    except NotChecked as reason:
        return "skipped", str(reason)
    except (CheckFailed, CallFailed) as failure:
        return "failed", str(failure)
    return "passed", ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Of one driver."""

    driver: str
    services: tuple[str, ...]
    results: tuple[CheckResult, ...]

    def count(self, verdict: Verdict) -> int:
        return sum(result.verdict == verdict for result in self.results)

    @property
    def passed(self) -> bool:
        return self.count("failed") == 0 and self.count("passed") > 0

    def as_json(self) -> str:
        counts = {verdict: self.count(verdict) for verdict in _MARKS}
        return json.dumps({**asdict(self), "passed": self.passed, "counts": counts}, indent=2)

    def summary(self) -> str:
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in _MARKS)
        return f"driver {self.driver or 'unknown'} ({', '.join(self.services) or 'no services'}): {counts}"


def lines_of(result: CheckResult) -> Iterable[str]:
    """As a terminal shows it."""
    yield f"{_MARKS[result.verdict]} {result.id.ljust(24)} {result.title}"
    if result.detail:
        yield textwrap.indent(result.detail, " " * 8)
    if result.advice:
        yield textwrap.indent(f"What to do: {result.advice}", " " * 8)
