"""Messages about pods, and about the node, for people: `kubectl describe` shows them.

The same message about the same object is one Event whose count grows. Events inform and decide nothing: one that cannot
be written is logged and dropped, and so are those of an object about which too much is said.

Source: kubernetes staging/src/k8s.io/client-go/tools/record/events_cache.go (EventSourceObjectSpamFilter);
pkg/kubelet/container/ref.go (fieldPath).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from claims.kinds.pods import Pod
from manciple.wire.base import ObjectMeta, ObjectReference
from manciple.wire.machinery import Event, EventSource
from nodeagent.api.client import EVENTS, Client, seconds_text
from nodeagent.failures import ApiFailure
from nodeagent.work import NamedLocks

log = logging.getLogger(__name__)

COMPONENT = "manciple-nodeagent"
#: core/v1 NoteLengthLimit
LONGEST_MESSAGE = 1024
#: How many messages are remembered for counting, and of how many objects how much was said.
REMEMBERED = 512
#: Messages about one object that are written at once, and seconds until another one may follow.
BURST, REFILL_SECONDS = 25, 300.0


@dataclass(frozen=True, slots=True)
class _Message:
    about: str  # the object's uid
    part: str  # of the object, as a path
    reason: str
    message: str
    type: str = "Warning"


def about_pod(pod: Pod, container: str = "") -> ObjectReference:
    """A pod, or one of its containers."""
    meta = pod.metadata
    lists = {
        "containers": pod.spec.containers,
        "initContainers": pod.spec.init_containers,
        "ephemeralContainers": pod.spec.ephemeral_containers,
    }
    paths = (f"spec.{name}{{{one.name}}}" for name, some in lists.items() for one in some if one.name == container)
    return ObjectReference(
        kind="Pod",
        api_version="v1",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        field_path=next(paths, ""),
    )


def about_node(name: str) -> ObjectReference:
    """As the kubelet refers to its Node: by name, also in the place of the uid."""
    return ObjectReference(kind="Node", api_version="v1", name=name, uid=name)


class EventRecorder:
    """Writes Events about the pods of a node and the node itself. Thread-safe. `clock`: POSIX seconds.

    component: whose Events they are; node: the one on which it runs, if any.
    """

    def __init__(
        self, client: Client, *, node: str = "", component: str = COMPONENT, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._component = component
        self._node = node
        self._clock = clock
        self._lock = threading.Lock()
        self._writing = NamedLocks()  # one thread at a time counts up one message; others are not held up
        self._known: OrderedDict[_Message, tuple[str, int]] = OrderedDict()  # -> (event name, count)
        self._said: OrderedDict[str, tuple[float, float]] = OrderedDict()  # uid -> (messages left, as of when)
        self._ticket = itertools.count()

    def warn(self, pod: Pod, reason: str, message: str, *, container: str = "") -> None:
        """Say that something is wrong with `pod`. `reason`: a CamelCase word, as in FailedPrepareDynamicResources."""
        self.warn_about(about_pod(pod, container), reason, message)

    def note(self, pod: Pod, reason: str, message: str, *, container: str = "") -> None:
        """Say what has been done with `pod`."""
        self._tell(about_pod(pod, container), reason, message, "Normal")

    def warn_node(self, reason: str, message: str) -> None:
        """Say that something is wrong with the node."""
        self.warn_about(about_node(self._node), reason, message)

    def warn_about(self, about: ObjectReference, reason: str, message: str) -> None:
        """Say that something is wrong with any object."""
        self._tell(about, reason, message, "Warning")

    def _tell(self, about: ObjectReference, reason: str, message: str, type_: str) -> None:
        message = message[:LONGEST_MESSAGE]
        key = _Message(about.uid, about.field_path, reason, message, type_)
        if not self._may_say_more(about.uid):
            log.info("event %s about %s %s is left out: %s", reason, about.kind, about.name, message)
            return
        try:
            with self._writing.hold([f"{key}"]):
                self._record(about, key)
        except ApiFailure as failure:
            # Nobody can read the events of a namespace that ends: client-go drops them silently, too.
            level = logging.DEBUG if failure.namespace_ends else logging.WARNING
            log.log(level, "event %s about %s %s: %s: %s", reason, about.kind, about.name, message, failure)

    def _may_say_more(self, uid: str) -> bool:
        now = self._clock()
        with self._lock:
            left, since = self._said.get(uid, (BURST, now))
            left = min(BURST, left + max(0.0, now - since) / REFILL_SECONDS)
            self._said[uid] = (left - 1 if left >= 1 else left, now)
            self._said.move_to_end(uid)
            while len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
        return left >= 1

    def _record(self, about: ObjectReference, key: _Message) -> None:
        now = self._clock()
        with self._lock:
            known = self._known.get(key)
        if known is not None and self._count(about, known, now):
            known = (known[0], known[1] + 1)
        else:
            # The number keeps two messages apart that fall on one instant of the clock.
            name = f"{about.name[:230].rstrip('.-')}.{int(now * 1e9):x}{next(self._ticket) % 4096:03x}"
            self._client.create(EVENTS, self._event(about, key, name, now))
            known = (name, 1)
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)

    def _count(self, about: ObjectReference, known: tuple[str, int], now: float) -> bool:
        """Count up an Event; False when it is gone."""
        name, count = known
        patch = {"count": count + 1, "lastTimestamp": seconds_text(now)}
        try:
            self._client.patch(EVENTS, name, patch, namespace=_namespace(about))
        except ApiFailure as failure:
            if failure.not_found:
                return False
            raise
        return True

    def _event(self, about: ObjectReference, key: _Message, name: str, now: float) -> Event:
        return Event(
            metadata=ObjectMeta(name=name, namespace=_namespace(about)),
            involved_object=about,
            reason=key.reason,
            message=key.message,
            source=EventSource(component=self._component, host=self._node),
            first_timestamp=seconds_text(now),
            last_timestamp=seconds_text(now),
            count=1,
            type=key.type,
            reporting_component=self._component,
            reporting_instance=self._node,
        )


def _namespace(about: ObjectReference) -> str:
    """Events about objects without a namespace are kept in "default"."""
    return about.namespace or "default"
