"""Every write of the product says who writes, because the rules of writing depend on it."""

from __future__ import annotations

from tests.architecture.sources import Call, within

FOLDERS = ("manciple", "inventory", "claims", "scheduling")
CALLS = {"objects.writing", "writing", "objects.write"}
#: Opens the transactions of others.
OPENERS = {"manciple/store/transactions.py"}


def opened() -> list[tuple[str, Call]]:
    """(where, the call) of every `writing(...)` and `objects.write(...)` of the product."""
    return [(place, call) for place, source in within(*FOLDERS).items() for call in source.calls if call.name in CALLS]


def test_there_are_writes() -> None:
    assert len(opened()) > 10


def test_whoever_opens_a_transaction_says_who_writes() -> None:
    silent = [(place, call.line) for place, call in opened() if "identity" not in call.keywords]
    assert [(place, line) for place, line in silent if place not in OPENERS] == []
