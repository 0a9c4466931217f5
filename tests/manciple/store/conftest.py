"""The store's tests speak of two small kinds of their own: notes (namespaced) and shelves (cluster-wide)."""

from __future__ import annotations

from collections import defaultdict

import pytest

from manciple.store import hooks
from manciple.wire.registry import registry
from tests.manciple.store.kinds import NOTES, SHELVES


@pytest.fixture(autouse=True)
def notes_and_shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds are registered for the test, and only for it."""
    for kind in (NOTES, SHELVES):
        monkeypatch.setitem(registry._by_resource, kind.resource, kind)
        monkeypatch.setitem(registry._by_gvr, (kind.group, kind.version, kind.plural), kind)


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs rights or a namespace: identities matter only to the store itself."""
    monkeypatch.setattr(hooks, "rules_for", defaultdict(tuple))
