"""No import runs back up, and none in a circle: those within functions and for types alone included.

The layers are those of import-linter's contracts in pyproject.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard", "nodeagent")
#: (who imports, what is imported) -> why it must be so
EXCEPTIONS = {
    ("manciple.store.hooks", "manciple.store.writer"): "for types alone: the writer gives itself to the rules it asks",
}


def contracts() -> list[list[str]]:
    """The layers of each contract that has some, the highest first."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers"]


@cache
def imports() -> Mapping[str, Sequence[str]]:
    """module -> those of ours that it imports, wherever in its text; a package is a module too."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: sorted(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def layer(module: str, layers: Sequence[str]) -> int | None:
    """Which of `layers` holds `module`, the most narrowly."""
    homes = [
        (len(name), number)
        for number, names in enumerate(layers)
        for name in names.replace(" ", "").split("|")
        if module == name or module.startswith(f"{name}.")
    ]
    return max(homes)[1] if homes else None


def climbs(layers: Sequence[str]) -> set[tuple[str, str]]:
    found = set()
    for module, imported in imports().items():
        here = layer(module, layers)
        for name in imported:
            there = layer(name, layers)
            if here is not None and there is not None and there < here:
                found.add((module, name))
    return found


@pytest.mark.parametrize("layers", contracts(), ids=lambda layers: str(layers[0]))
def test_no_import_runs_back_up(layers: list[str]) -> None:
    assert climbs(layers) - EXCEPTIONS.keys() == set()


def test_no_import_runs_in_a_circle() -> None:
    graph = {module: [n for n in names if (module, n) not in EXCEPTIONS] for module, names in imports().items()}
    assert [circle for circle in circles(graph) if len(circle) > 1] == []


def test_every_exception_is_needed() -> None:
    assert [pair for pair in EXCEPTIONS if pair[1] not in imports().get(pair[0], ())] == []


def circles(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The strongly connected parts. Source: Tarjan, "Depth-first search and linear graph algorithms" (1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for name in graph[module]:
            if name not in order:
                visit(name)
                lowest[module] = min(lowest[module], lowest[name])
            elif name in stack:
                lowest[module] = min(lowest[module], order[name])
        if lowest[module] == order[module]:
            circle = []
            while module not in circle:
                circle.append(stack.pop())
            found.append(circle)

    for module in graph:
        if module not in order:
            visit(module)
    return found


def test_a_circle_is_found() -> None:
    parts = circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]})
    assert sorted(map(sorted, parts)) == [["a"], ["b", "c"], ["d"]]
