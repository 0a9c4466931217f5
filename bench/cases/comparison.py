"""The same case with and without something, in turns, so that what the machine does meanwhile meets both alike."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Figures = dict[tuple[str, str], float]  # (name, unit) -> value


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians over the rounds."""

    name: str
    unit: str
    without: float
    whole: float

    def row(self) -> str:
        change = f"{(self.whole / self.without - 1) * 100:>+8.1f} %" if self.without else ""
        return f"{self.name:<44} {self.without:>10,.2f} {self.whole:>10,.2f} {self.unit:<7} {change}"


HEAD = f"{'':<44} {'without':>10} {'whole':>10} {'':<7} {'change':>10}"


def compare(command: Sequence[str], without: str, *, rounds: int) -> list[Compared]:
    """command: of one run that prints its figures as JSON. Each round runs it without `without`, and whole."""
    less, whole = list[Figures](), list[Figures]()
    names: dict[tuple[str, str], None] = {}
    for number in range(rounds):
        pair = [(less, (*command, "--without", without)), (whole, tuple(command))]
        for found, line in pair if number % 2 == 0 else reversed(pair):
            figures = _figures(line)
            names |= dict.fromkeys(figures)
            found.append(figures)
    return [Compared(*key, _median(key, less), _median(key, whole)) for key in names]


def _figures(command: Sequence[str]) -> Figures:
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    return {(f"{figure['name']} {figure['column']}".rstrip(), figure["unit"]): figure["value"] for figure in figures}


def _median(key: tuple[str, str], rounds: Iterable[Figures]) -> float:
    return statistics.median(figures[key] for figures in rounds)
