"""The place of waiting pods in the queue, and when they will probably start, as pages say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.models import Pod
from insight.start_estimates import QueuePlace, read_queue
from manciple.durations import duration

#: Waiting pods that a namespace's page lists.
LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPlace:
    """name: of the pod."""

    namespace: str
    name: str
    place: QueuePlace
    now: datetime

    @property
    def classes(self) -> str:
        return ", ".join(f"`{name}`" for name in self.place.classes)

    @property
    def wait(self) -> str:
        """`in about 2 h`; "" where nothing can be said."""
        at = self.place.starts_at
        if at is None:
            return ""
        left = (at - self.now).total_seconds()
        return f"in about {duration(left)}" if left >= 1 else "any moment"


def place_of(pod: Pod | None, now: datetime) -> ShownPlace | None:
    """None of a pod that asks for no devices."""
    place = read_queue(now).get(pod.uid) if pod is not None else None
    if pod is None or place is None:
        return None
    return ShownPlace(namespace=pod.namespace, name=pod.name, place=place, now=now)


def queue_of(namespace: str, now: datetime) -> tuple[Sequence[ShownPlace], int]:
    """(the first of the namespace's waiting pods, in the order of the queue; how many there are besides)."""
    places = read_queue(now)
    waiting = Pod.objects.filter(namespace=namespace, node_name="", uid__in=list(places))
    pods = {pod.uid: pod for pod in waiting.only("uid", "namespace", "name")}
    uids = [uid for uid in places if uid in pods]
    shown = [ShownPlace(namespace=namespace, name=pods[uid].name, place=places[uid], now=now) for uid in uids[:LISTED]]
    return shown, len(uids) - len(shown)
