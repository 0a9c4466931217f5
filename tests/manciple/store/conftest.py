"""The store's tests speak of two small kinds of their own: notes (namespaced) and shelves (cluster-wide)."""

from __future__ import annotations

import pytest

from manciple.store import hooks
from manciple.wire import registry
from tests.manciple.store.kinds import NOTES, SHELVES


@pytest.fixture(autouse=True)
def notes_and_shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds are registered for the test, and only for it."""
    monkeypatch.setattr(registry.registry, "_by_resource", dict(registry.registry._by_resource))
    monkeypatch.setattr(registry.registry, "_by_gvr", dict(registry.registry._by_gvr))
    registry.registry.register(NOTES)
    registry.registry.register(SHELVES)


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs rights or a namespace: identities matter only to the store itself."""
    monkeypatch.setattr(hooks, "rules_for", lambda _operation, _resource: ())
