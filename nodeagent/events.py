"""Messages about pods for people: `kubectl describe` shows them.

The same message about the same pod is one Event whose count grows. Events inform and decide nothing: one that cannot
be written is logged and dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from claims.kinds.pods import Pod
from manciple.wire.base import ObjectMeta
from manciple.wire.conditions import ObjectReference
from manciple.wire.machinery import Event, EventSource
from nodeagent.client import Client
from nodeagent.failures import ApiFailure
from nodeagent.resources import EVENTS
from nodeagent.times import seconds_text

log = logging.getLogger(__name__)

COMPONENT = "manciple-nodeagent"
#: How many messages are remembered for counting.
REMEMBERED = 512


@dataclass(frozen=True, slots=True)
class _Message:
    pod_uid: str
    type: str
    reason: str
    message: str


class EventRecorder:
    """Writes Events about pods. Thread-safe. `clock`: POSIX seconds."""

    def __init__(self, client: Client, *, node: str, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[_Message, tuple[str, int]] = OrderedDict()  # -> (event name, count)

    def warn(self, pod: Pod, reason: str, message: str) -> None:
        """Say that something is wrong with `pod`. `reason`: a CamelCase word, as in FailedPrepareDynamicResources."""
        key = _Message(pod.metadata.uid, "Warning", reason, message)
        try:
            with self._lock:
                self._record(pod, key)
        except ApiFailure as failure:
            log.warning("event %s about pod %s/%s: %s", reason, pod.metadata.namespace, pod.metadata.name, failure)

    def _record(self, pod: Pod, key: _Message) -> None:
        now = self._clock()
        known = self._known.get(key)
        if known is not None and self._count(pod, known, now):
            self._known[key] = (known[0], known[1] + 1)
        else:
            name = f"{pod.metadata.name}.{int(now * 1e9):x}"
            self._client.create(EVENTS, self._event(pod, key, name, now))
            self._known[key] = (name, 1)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _count(self, pod: Pod, known: tuple[str, int], now: float) -> bool:
        """Count up an Event; False when it is gone."""
        name, count = known
        patch = {"count": count + 1, "lastTimestamp": seconds_text(now)}
        try:
            self._client.patch(EVENTS, name, patch, namespace=pod.metadata.namespace)
        except ApiFailure as failure:
            if failure.not_found:
                return False
            raise
        return True

    def _event(self, pod: Pod, key: _Message, name: str, now: float) -> Event:
        return Event(
            metadata=ObjectMeta(name=name, namespace=pod.metadata.namespace),
            involved_object=ObjectReference(
                kind="Pod",
                api_version="v1",
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=pod.metadata.uid,
                resource_version=pod.metadata.resource_version,
            ),
            reason=key.reason,
            message=key.message,
            source=EventSource(component=COMPONENT, host=self._node),
            first_timestamp=seconds_text(now),
            last_timestamp=seconds_text(now),
            count=1,
            type=key.type,
            reporting_component=COMPONENT,
            reporting_instance=self._node,
        )
