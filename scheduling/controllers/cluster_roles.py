"""Keeps the rules of ClusterRoles that gather them from others; what they are is `manciple.access.aggregation`'s."""

from __future__ import annotations

from datetime import datetime

from manciple.access import aggregation
from manciple.access.rbac import CLUSTER_ROLES
from scheduling.controllers.declaration import ADDED, DELETED, MODIFIED, Controller


def reconcile(_now: datetime) -> int:
    """Returns how many roles were written."""
    return aggregation.reconcile()


CONTROLLER = Controller(
    name="aggregate_cluster_roles",
    does="collects the rules of ClusterRoles with an aggregationRule from the roles that it selects",
    reconcile=reconcile,
    every=60,
    wakes_on=frozenset({(CLUSTER_ROLES, ADDED), (CLUSTER_ROLES, MODIFIED), (CLUSTER_ROLES, DELETED)}),
)
