"""Functions and files stay of a size that one reads at once."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("manciple", "inventory", "claims", "scheduling", "nodeagent", "bench", "tests")
LONGEST_FUNCTION, LONGEST_FILE = 60, 500


def sources() -> list[Path]:
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return [path for path in found if "migrations" not in path.parts]


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert long == []


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    long = [str(path.relative_to(ROOT)) for path in sources() if path.read_text().count("\n") > LONGEST_FILE]
    assert long == []
