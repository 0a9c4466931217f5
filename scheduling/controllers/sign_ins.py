"""Forgets sessions that have expired, finished or not: anybody may begin one."""

from __future__ import annotations

from manciple.access import sign_ins
from scheduling.controllers.declaration import Controller

CONTROLLER = Controller(
    name="sign_ins",
    does="removes sessions of the pages that have expired",
    reconcile=sign_ins.prune,
    every=300,
)
