"""Signs of life of nodes that have no agent: renews every Lease, as the agents would."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from typing import cast

from django.db import close_old_connections
from msgspec import structs

from manciple.store import objects
from manciple.wire.errors import ApiError
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import Lease
from manciple.wire.registry import registry
from scheduling.controllers.node_lifecycle import LEASE_NAMESPACE

log = logging.getLogger(__name__)
#: Seconds between two renewals of a Lease; a node counts as silent after 40.
INTERVAL = 10.0


class Heartbeat:
    """A thread that renews until `stop()`."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="demo-heartbeat", daemon=True)

    def start(self) -> None:
        renew()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(INTERVAL)

    def _beat(self) -> None:
        while not self._stopping.wait(INTERVAL):
            try:
                renew()
            except ApiError as error:
                log.warning("the nodes' leases were not renewed: %s", error.message)
            finally:
                close_old_connections()


def renew() -> None:
    """Renew all Leases of nodes, in one transaction."""
    kind = registry.by_resource("leases.coordination.k8s.io")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    with objects.writing(identity=SYSTEM) as writer:
        for lease in cast("tuple[Lease, ...]", writer.list(kind, namespace=LEASE_NAMESPACE)):
            writer.update(kind, structs.replace(lease, spec=structs.replace(lease.spec, renew_time=now)))
