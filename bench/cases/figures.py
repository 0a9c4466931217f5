"""A measured figure beside its budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One result. `budget` is the least (where `at_least`) or the most it may be; None where nothing is promised.

    column, table: where it is printed, for figures that are printed as a table.
    """

    name: str
    value: float
    unit: str
    budget: float | None = None
    at_least: bool = False
    column: str = ""
    table: str = ""

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


def as_tables(figures: Iterable[Figure]) -> Iterator[str]:
    """Lines: a row for each name, a column for each `column`; budgets stand in a row below, a missed one is marked."""
    by_table: dict[str, list[Figure]] = {}
    for figure in figures:
        by_table.setdefault(figure.table, []).append(figure)
    for title, cells in by_table.items():
        columns = dict.fromkeys(figure.column for figure in cells)
        yield f"{title:<32}" + "".join(f"{column:>10} " for column in columns)
        rows: dict[str, dict[str, Figure]] = {}
        for figure in cells:
            rows.setdefault(f"{figure.name:<26}{figure.unit:>5} ", {})[figure.column] = figure
        for name, row in rows.items():
            yield name + "".join(_cell(row.get(column)) for column in columns)
            budgets = {column: figure.budget for column, figure in row.items() if figure.budget}
            if budgets:
                limits = (f"{budgets[column]:>10.4g} " if column in budgets else " " * 11 for column in columns)
                yield f"{'    at most':<32}{''.join(limits)}".rstrip()
        yield ""


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return " " * 11
    value = f"{figure.value:,.0f}" if abs(figure.value) >= 1000 else f"{figure.value:.2f}"
    return f"{value:>10}{'!' if figure.met is False else ' '}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
