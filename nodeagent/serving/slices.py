"""Keeps the ResourceSlices of one driver as its pools are, whoever changes or deletes them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Literal

from inventory.kinds.devices import ResourceSlice
from manciple.wire.base import OwnerReference
from nodeagent.client import Change, Client
from nodeagent.drivers.protocol import Driver
from nodeagent.failures import AgentError
from nodeagent.follow import Follower
from nodeagent.publish import Publisher
from nodeagent.resources import NODES, SLICES
from nodeagent.workqueue import WorkQueue

log = logging.getLogger(__name__)

#: Seconds between looks at the slices though nothing was reported.
RESYNC_SECONDS = 60.0

#: Seconds until a change in the API is looked at. Where an old and a new instance of a driver disagree during an
#: update, this is how often each of them writes.
SETTLE_SECONDS = 5.0

#: The only piece of work there is.
_Key = Literal["slices"]
_KEY: _Key = "slices"


class SliceKeeper:
    """Publishes `driver` for the node until stopped. An API server that is away is asked again, ever more seldom.

    settle: seconds until a change in the API is looked at; what the driver announces is published at once.
    """

    def __init__(self, client: Client, driver: Driver, *, node: str, settle: float = SETTLE_SECONDS) -> None:
        self._client = client
        self._driver = driver
        self._node = node
        self._settle = settle
        self._queue: WorkQueue[_Key] = WorkQueue(longest_delay=30.0)
        self._publisher = Publisher(client, node=node, owner=self._owner)
        self._follower = Follower(
            client,
            SLICES,
            field_selector=f"spec.driver={driver.name},spec.nodeName={node}",
            replace=self._listed,
            change=self._changed,
        )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._queue.add(_KEY)
        targets = {"slices": self._work, "slices-watch": self._follower.run}
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in targets.items()]
        for thread in self._threads:
            thread.start()

    def look(self) -> None:
        """The pools may be different now."""
        self._queue.add(_KEY)

    def stop(self, *, seconds: float) -> None:
        """The slices stay: the kubelet removes them when the driver does not come back."""
        self._queue.close()
        self._follower.stop()
        for thread in self._threads:
            thread.join(seconds)

    def _listed(self, _slices: Sequence[ResourceSlice]) -> None:
        self._queue.add_after(_KEY, self._settle)

    def _changed(self, _change: Change[ResourceSlice]) -> None:
        self._queue.add_after(_KEY, self._settle)

    def _owner(self) -> OwnerReference:
        """Asked each time that something is written: a node that was made anew has another uid. Raises: ApiFailure."""
        node = self._client.get(NODES, self._node)
        return OwnerReference(api_version="v1", kind="Node", name=self._node, uid=node.metadata.uid, controller=True)

    def _work(self) -> None:
        while (key := self._queue.get()) is not None:
            try:
                self._publish(key)
            finally:
                self._queue.done(key)

    def _publish(self, key: _Key) -> None:
        try:
            self._publisher.publish(self._driver)
        except AgentError as error:
            seconds = self._queue.retry(key)
            log.warning("slices of driver %s: %s; trying again in %.1f s", self._driver.name, error, seconds)
        except Exception:  # a fault of the driver must not stop it for good
            seconds = self._queue.retry(key)
            log.exception("slices of driver %s; trying again in %.1f s", self._driver.name, seconds)
        else:
            self._queue.forget(key)
            self._queue.add_after(key, RESYNC_SECONDS)
