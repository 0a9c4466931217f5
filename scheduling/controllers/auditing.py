"""Keeps the audit trail: what was written comes into it before the log forgets it, and what is old goes."""

from __future__ import annotations

from datetime import datetime

from manciple.audit import recording, retention
from scheduling.controllers.declaration import Controller


def keep(now: datetime) -> int:
    """Returns how many entries were forgotten."""
    recording.catch_up()
    return retention.prune(now)


CONTROLLER = Controller(
    name="audit",
    does="copies writes into the audit trail, and prunes it",
    reconcile=keep,
    every=60,
)
