"""Restores the Service `kubernetes` where somebody deleted it or changed where it leads (`kubernetes_service`)."""

from __future__ import annotations

from datetime import datetime

from manciple.controllers.declaration import Controller
from manciple.wire.resources import DELETED
from networking import kubernetes_service
from networking.kinds.endpoint_slices import ENDPOINT_SLICE
from networking.kinds.services import SERVICE


def reconcile(_now: datetime) -> int:
    return kubernetes_service.ensure()


CONTROLLER = Controller(
    name="keep_kubernetes_service",
    does="restores the Service kubernetes",
    in_mirror=False,
    reconcile=reconcile,
    every=60,
    wakes_on=frozenset({(SERVICE.resource, DELETED), (ENDPOINT_SLICE.resource, DELETED)}),
)
