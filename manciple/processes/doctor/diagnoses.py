"""What the doctor tells: something that is wrong, with which object, and what to do."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from django.db import DatabaseError, InterfaceError

#: problem: something does not work, or is lost when the next thing goes wrong. warning: somebody should know.
Level = Literal["problem", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """about: the object, as a person names it: "node gpu-a01", "PostgreSQL". what: a sentence. advice: what to do."""

    level: Level
    about: str
    what: str
    advice: str


def problem(about: str, what: str, advice: str) -> Diagnosis:
    return Diagnosis(level="problem", about=about, what=what, advice=advice)


def warning(about: str, what: str, advice: str) -> Diagnosis:
    return Diagnosis(level="warning", about=about, what=what, advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """name: as the report lists it. examine: asked with the time; yields what is wrong.

    needs: checkups without which it is not made where they found a problem.
    """

    name: str
    examine: Callable[[datetime], Iterator[Diagnosis]]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckupResult:
    """skipped: what it would have needed."""

    name: str
    found: tuple[Diagnosis, ...] = ()
    skipped: str = ""


def examined(checkups: Sequence[Checkup], now: datetime) -> Iterator[CheckupResult]:
    """One that cannot be made is a problem, too."""
    failed: set[str] = set()
    for one in checkups:
        if missing := [need for need in one.needs if need in failed]:
            failed.add(one.name)
            yield CheckupResult(one.name, skipped=missing[0])
            continue
        try:
            found = tuple(one.examine(now))
        except (DatabaseError, InterfaceError, OSError) as error:
            found = (problem(one.name, f"could not be examined: {error}", "fix what is named here"),)
        if any(diagnosis.level == "problem" for diagnosis in found):
            failed.add(one.name)
        yield CheckupResult(one.name, found)


def as_text(all_of_them: Sequence[CheckupResult]) -> str:
    lines = []
    for one in all_of_them:
        if one.skipped:
            lines.append(f"skipped  {one.name}: needs {one.skipped}")
        elif not one.found:
            lines.append(f"ok       {one.name}")
        for found in one.found:
            lines.append(f"{found.level.upper().ljust(8)} {found.about}: {found.what}")
            lines.append(textwrap.indent(f"What to do: {found.advice}", " " * 9))
    counts = {level: count(all_of_them, level) for level in ("problem", "warning")}
    return "\n".join([*lines, "", ", ".join(number_of(counts[level], level) for level in counts)])


def number_of(count: int, noun: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def as_json(all_of_them: Sequence[CheckupResult]) -> str:
    found = [{"checkup": one.name, **asdict(diagnosis)} for one in all_of_them for diagnosis in one.found]
    return json.dumps({"checkups": [one.name for one in all_of_them], "found": found}, indent=2)


def count(all_of_them: Sequence[CheckupResult], level: str) -> int:
    return sum(found.level == level for one in all_of_them for found in one.found)
