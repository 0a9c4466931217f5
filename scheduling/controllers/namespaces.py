"""Empties namespaces that are being deleted and lets them go; the rules are `manciple.api.namespaces`'s."""

from __future__ import annotations

from datetime import datetime

from manciple.api import namespaces
from manciple.store import persistence
from scheduling.controllers.declaration import ANY, DELETED, DELETING, MODIFIED, Controller
from scheduling.resources import NAMESPACES


def sweep(now: datetime) -> int:
    """Returns how many namespaces went."""
    return namespaces.sweep(now)


CONTROLLER = Controller(
    name="sweep_namespaces",
    does="empties and removes namespaces that are being deleted",
    reconcile=sweep,
    every=5,
    wakes_on=frozenset({(NAMESPACES, MODIFIED), (NAMESPACES, DELETING), (ANY, DELETED)}),
    has_work=persistence.any_being_deleted(NAMESPACES),
)
