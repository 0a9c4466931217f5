"""Every write of the product says who writes, because the rules of writing depend on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("manciple", "inventory", "claims", "scheduling")
CALLS = {"objects.writing", "writing", "objects.write"}
#: Opens the transactions of others.
OPENERS = {"manciple/store/transactions.py"}


@cache
def opened() -> Sequence[tuple[str, ast.Call]]:
    """(where, the call) of every `writing(...)` and `objects.write(...)` of the product."""
    return list(_calls())


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and _name(node.func) in CALLS:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def _name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return f"{called.value.id}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


def test_there_are_writes() -> None:
    assert len(opened()) > 10


def test_whoever_opens_a_transaction_says_who_writes() -> None:
    silent = [where for where, call in opened() if not any(word.arg == "identity" for word in call.keywords)]
    assert [where for where in silent if where.partition(":")[0] not in OPENERS] == []
