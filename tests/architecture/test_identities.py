"""Every write of the product says who writes, because the rules of writing depend on it."""

from __future__ import annotations

import ast
from functools import cache

from tests.architecture.sources import calls, sources

FOLDERS = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard")
CALLS = {"objects.writing", "writing", "objects.write"}
#: Opens the transactions of others.
OPENERS = {"manciple/store/objects.py"}


@cache
def opened() -> list[tuple[str, ast.Call]]:
    """(where, the call) of every `writing(...)` and `objects.write(...)` of the product."""
    files = sources(r"\b(writing|objects\.write)\(", *FOLDERS)
    return [(place, call) for place, nodes in files.items() for name, call in calls(nodes) if name in CALLS]


def test_there_are_writes() -> None:
    assert len(opened()) > 10


def test_whoever_opens_a_transaction_says_who_writes() -> None:
    silent = [
        (place, call.lineno) for place, call in opened() if "identity" not in {word.arg for word in call.keywords}
    ]
    assert [(place, line) for place, line in silent if place not in OPENERS] == []
