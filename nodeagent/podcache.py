"""The pods of the node as the API last showed them, by uid: two pods of one name are two pods."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from claims.kinds.pods import Pod


class PodCache:
    """What the watch saw, and what our own writes returned, whichever is newer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._listed = False

    @property
    def listed(self) -> bool:
        """Whether a full list has been seen. Before that, a pod that is not here is not known to be gone."""
        with self._lock:
            return self._listed

    def get(self, uid: str) -> Pod | None:
        with self._lock:
            return self._pods.get(uid)

    def uids(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._pods)

    def all(self) -> tuple[Pod, ...]:
        with self._lock:
            return tuple(self._pods.values())

    def replace(self, pods: Sequence[Pod]) -> frozenset[str]:
        """Take a full list; returns the uids of those that were known and are gone."""
        with self._lock:
            current = {pod.metadata.uid: pod for pod in pods}
            gone = self._pods.keys() - current.keys()
            self._pods = {uid: _newer(self._pods.get(uid), pod) for uid, pod in current.items()}
            self._listed = True
        return frozenset(gone)

    def see(self, pod: Pod) -> None:
        """Take what the watch says."""
        with self._lock:
            self._pods[pod.metadata.uid] = _newer(self._pods.get(pod.metadata.uid), pod)

    def put(self, pod: Pod) -> None:
        """Take the answer to a write of our own; a pod that the watch has seen go meanwhile stays gone."""
        with self._lock:
            known = self._pods.get(pod.metadata.uid)
            if known is not None:
                self._pods[pod.metadata.uid] = _newer(known, pod)

    def remove(self, uid: str) -> None:
        with self._lock:
            self._pods.pop(uid, None)


def _newer(known: Pod | None, pod: Pod) -> Pod:
    if known is None:
        return pod
    return pod if int(pod.metadata.resource_version or 0) >= int(known.metadata.resource_version or 0) else known
