"""A measured figure beside its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One result. `budget` is the least (where `at_least`) or the most it may be; None where nothing is promised."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget

    def row(self) -> str:
        sign = ">=" if self.at_least else "<="
        budget = "" if self.budget is None else f"{sign} {self.budget:,.0f}"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return f"{self.name:<44} {self.value:>10,.1f} {self.unit:<7} {budget:>10} {verdict}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
