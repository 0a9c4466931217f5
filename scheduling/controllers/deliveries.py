"""Sends the notifications that are due by webhook and e-mail, and tries again what was not taken."""

from __future__ import annotations

from manciple.notifications import delivering
from scheduling.controllers.declaration import Controller

CONTROLLER = Controller(
    name="deliver_notifications",
    does="sends notifications by webhook and e-mail, again where they were not taken",
    reconcile=delivering.deliver,
    every=5,
    most_per_turn=delivering.MOST,
)
