"""What the agent watches: its own Node, the pods bound to it, the slices of its devices.

Whatever changes is put on the queue by name; the workers then compare what should be with what is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from claims.kinds.pods import Pod
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from nodeagent.client import NODES, PODS, SLICES, Change, Client, Follower
from nodeagent.metrics import SliceCount
from nodeagent.work import AgentQueue, Key


class PodCache:
    """The node's pods by uid (two of one name are two): as seen, or as our writes returned, whichever is newer.

    Thread-safe.
    """

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


Followers = tuple[Follower[Node], Follower[Pod], Follower[ResourceSlice]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The followers of one agent, and what each does with what it hears.

    seen: told what the Node is like. drivers: whose slices the agent keeps as they should be. everything: every piece
    of work there may be. ready: set once the pods of the node are known.
    """

    client: Client
    node: str
    queue: AgentQueue
    seen: Callable[[Node], None]
    pods: PodCache
    slice_count: SliceCount
    drivers: Collection[str]
    everything: Callable[[], Sequence[Key]]
    ready: threading.Event

    def look_at_everything(self) -> None:
        for key in self.everything():
            self.queue.add(key)

    def followers(self) -> Followers:
        """Of the node itself, its pods and its slices, not yet running."""
        return (
            Follower(
                self.client,
                NODES,
                field_selector=f"metadata.name={self.node}",
                replace=self._nodes_listed,
                change=self._node_changed,
            ),
            Follower(
                self.client,
                PODS,
                field_selector=f"spec.nodeName={self.node}",
                replace=self._pods_listed,
                change=self._pod_changed,
                returned=self.look_at_everything,
            ),
            Follower(
                self.client,
                SLICES,
                field_selector=f"spec.nodeName={self.node}",
                replace=self._slices_listed,
                change=self._slice_changed,
            ),
        )

    def _nodes_listed(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.seen(node)
        if not nodes:
            self.queue.add(Key("node"))

    def _node_changed(self, change: Change[Node]) -> None:
        if change.type == "DELETED":
            self.queue.add(Key("node"))
        else:
            self.seen(change.object)

    def _pods_listed(self, pods: Sequence[Pod]) -> None:
        """Also wakes the pods that vanished while nobody watched."""
        gone = self.pods.replace(pods)
        for key in (*self.everything(), *(Key("pod", uid) for uid in gone)):
            self.queue.add(key)
        self.ready.set()

    def _pod_changed(self, change: Change[Pod]) -> None:
        uid = change.object.metadata.uid
        if change.type == "DELETED":
            self.pods.remove(uid)
        else:
            self.pods.see(change.object)
        self.queue.add(Key("pod", uid))

    def _slices_listed(self, slices: Sequence[ResourceSlice]) -> None:
        self.slice_count.listed(slices)
        for name in self.drivers:
            self.queue.add(Key("slices", name))

    def _slice_changed(self, change: Change[ResourceSlice]) -> None:
        self.slice_count.changed(change)
        if (driver := change.object.spec.driver) in self.drivers:
            self.queue.add(Key("slices", driver))
