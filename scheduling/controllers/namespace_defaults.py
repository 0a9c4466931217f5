"""Restores what every namespace has; what that is, `manciple.access.namespace_defaults` knows."""

from __future__ import annotations

from datetime import datetime

from manciple.access import namespace_defaults
from manciple.access.namespace_defaults import CONFIG_MAPS, SERVICE_ACCOUNTS
from scheduling.controllers.declaration import DELETED, MODIFIED, Controller


def reconcile(now: datetime) -> int:  # noqa: ARG001 - every controller is run at a time
    """Returns how many objects were made or mended."""
    return namespace_defaults.restore()


CONTROLLER = Controller(
    name="restore_namespace_defaults",
    does="creates the service account `default` and kube-root-ca.crt in every namespace",
    reconcile=reconcile,
    every=60,
    wakes_on=frozenset({(SERVICE_ACCOUNTS, DELETED), (CONFIG_MAPS, DELETED), (CONFIG_MAPS, MODIFIED)}),
)
