"""The agent's work: watches, a queue of keys, the workers, and locks by name.

Changes of the watched objects (its own Node, the pods bound to it, the slices of its devices) are queued by key.
Workers take keys from the queue and sync what they name. `NamedLocks` exclude workers from each other's claims.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from claims.kinds.persistent_volumes import PersistentVolume
from claims.kinds.pods import Pod
from inventory.kinds import gates
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from nodeagent.api.client import NODES, PODS, SLICES, Client, WatchEvent, WatchFollower

# A key that is added while a worker has it is queued again afterwards, so no change is missed and no two workers have
# the same pod. Failures are retried with exponential backoff. Modelled on client-go's workqueue.

Item = TypeVar("Item", bound=Hashable)


class WorkQueue(Generic[Item]):
    """A delaying, deduplicating queue. `clock` is monotonic seconds."""

    def __init__(
        self, *, first_delay: float = 0.2, longest_delay: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._clock = clock
        self._condition = threading.Condition()
        self._ready: deque[Item] = deque()
        self._queued: set[Item] = set()  # in _ready, or added to it once its worker is done
        self._busy: set[Item] = set()
        self._failures: dict[Item, int] = {}
        self._later: list[tuple[float, int, Item]] = []  # heap of (due, tie-break, key)
        self._due: dict[Item, float] = {}  # the earliest due time of each delayed key
        self._ticket = itertools.count()
        self._closed = False
        self._retries = 0

    def add(self, key: Item) -> None:
        with self._condition:
            self._add(key)
            self._condition.notify()

    def add_after(self, key: Item, seconds: float) -> None:
        """Add `key` in `seconds`, or earlier if it is due earlier already."""
        with self._condition:
            due = self._clock() + seconds
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, next(self._ticket), key))
                self._condition.notify()

    def retry(self, key: Item) -> float:
        """Add a failed key again after its backoff, which is returned in seconds."""
        with self._condition:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._retries += 1
        seconds = min(self._first_delay * 2.0 ** (failures - 1), self._longest_delay)
        self.add_after(key, seconds)
        return seconds

    def counts(self) -> tuple[int, int]:
        """(queued keys, retries since the start)"""
        with self._condition:
            return len(self._ready), self._retries

    def forget(self, key: Item) -> None:
        """Reset the backoff of `key` after a success."""
        with self._condition:
            self._failures.pop(key, None)

    def get(self) -> Item | None:
        """The next key; blocks until there is one. None once the queue is closed. Call `done` afterwards."""
        with self._condition:
            while not self._closed:
                timeout = self._promote()
                if self._ready:
                    key = self._ready.popleft()
                    self._queued.discard(key)
                    self._busy.add(key)
                    return key
                self._condition.wait(timeout)
            return None

    def done(self, key: Item) -> None:
        with self._condition:
            self._busy.discard(key)
            if key in self._queued:
                self._ready.append(key)
                self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _add(self, key: Item) -> None:
        if key not in self._queued:
            self._queued.add(key)
            if key not in self._busy:
                self._ready.append(key)

    def _promote(self) -> float | None:
        """Make due keys ready; returns the seconds until the next one is due, None if there is none."""
        while self._later:
            due, _, key = self._later[0]
            remaining = due - self._clock()
            if remaining > 0:
                return remaining
            heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)
        return None


# A driver may take 45 seconds to fail; a container may be slow to stop. That must not delay other pods: a worker that
# has been busy with one key for long counts as blocked, and another takes its place, and exits when there are enough.

#: Seconds with one key after which a worker counts as blocked.
PATIENCE: Final = 0.5


class Crew(Generic[Item]):
    """The worker threads of `queue`. Thread-safe.

    size: unblocked workers, or as many as are blocked if that is more: with a hundred blocked keys, four unblocked
    workers would take too long. most: workers in all. work: handles one key, raises nothing. patience, clock: seconds.
    """

    def __init__(
        self,
        queue: WorkQueue[Item],
        work: Callable[[Item], None],
        *,
        size: int,
        most: int,
        name: str,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._work = work
        self._size = size
        self._most = most
        self._name = name
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._workers: dict[threading.Thread, float | None] = {}  # -> since when it has its key
        self._busy = threading.Event()  # some worker has a key
        self._over = threading.Event()

    def run(self) -> None:
        """Replace blocked workers until `stop`. Sleeps while no worker is busy."""
        while not self._over.is_set():
            self.reinforce()
            self._over.wait(self._patience / 2)
            with self._lock:
                if not self._over.is_set() and all(since is None for since in self._workers.values()):
                    self._busy.clear()
            self._busy.wait()

    def stop(self) -> None:
        """The workers exit once the queue is closed, each after its current key."""
        with self._lock:
            self._over.set()
            self._busy.set()

    def join(self, deadline: float) -> None:
        """Wait for busy workers until `deadline` on the monotonic clock."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def strength(self) -> int:
        """The number of workers, blocked or not."""
        with self._lock:
            return len(self._workers)

    def reinforce(self) -> None:
        """Add workers for blocked ones."""
        with self._lock:
            missing = min(-self._surplus(), self._most - len(self._workers))
            fresh = [threading.Thread(target=self._loop, name=self._name, daemon=True) for _ in range(missing)]
            self._workers.update(dict.fromkeys(fresh))
            for worker in fresh:
                worker.start()

    def _loop(self) -> None:
        me = threading.current_thread()
        while (key := self._queue.get()) is not None:
            with self._lock:
                self._workers[me] = self._clock()
                self._busy.set()
            try:
                self._work(key)
            finally:
                self._queue.done(key)
            with self._lock:
                self._workers[me] = None
                if self._surplus() > 0:
                    break
        with self._lock:
            self._workers.pop(me, None)

    def _surplus(self) -> int:
        """The number of superfluous workers; negative if workers are missing."""
        now = self._clock()
        blocked = sum(1 for since in self._workers.values() if since is not None and now - since >= self._patience)
        return len(self._workers) - blocked - max(self._size, blocked)


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class NamedLocks:
    """One lock per name."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entries: dict[str, _Entry] = {}  # of names that are held or waited for

    @contextmanager
    def hold(self, names: Iterable[str]) -> Iterator[None]:
        """Hold all `names` at once, locked in one order to avoid deadlocks; not reentrant."""
        with ExitStack() as held:
            for name in sorted(set(names)):
                held.enter_context(self._hold_one(name))
            yield

    @contextmanager
    def _hold_one(self, name: str) -> Iterator[None]:
        with self._guard:
            entry = self._entries.setdefault(name, _Entry())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._guard:
                entry.users -= 1
                if not entry.users:
                    del self._entries[name]


class Key(NamedTuple):
    """A key of the queue. name: a pod's uid, or a driver's name; "" for kinds without.

    unused: claims without pods. volumes: folders of deleted ones. away: a driver behind a socket that has departed.
    published: slices that such drivers publish through the agent. credential: the node's client certificate. health:
    taints by the health reports of drivers behind sockets. uses: reports of the drivers in this process about the use
    of their devices. meters: what the meters of these devices read.
    """

    kind: Literal[
        "node", "pod", "slices", "unused", "volumes", "away", "published", "credential", "health", "uses", "meters"
    ]
    name: str = ""


AgentQueue = WorkQueue[Key]


class PodCache:
    """The node's pods by uid: the newer of what the watch saw and the agent's writes returned.

    A pod that is gone is kept aside until its containers are removed (`forget`): events still name it. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._gone: dict[str, Pod] = {}
        self._listed = False

    @property
    def listed(self) -> bool:
        """Whether a full list has been seen. Before that, a missing pod may exist."""
        with self._lock:
            return self._listed

    def get(self, uid: str) -> Pod | None:
        with self._lock:
            return self._pods.get(uid)

    def last(self, uid: str) -> Pod | None:
        """The pod as it was last seen, also if it is gone."""
        with self._lock:
            return self._pods.get(uid) or self._gone.get(uid)

    def forget(self, uid: str) -> None:
        """Nothing of a pod that is gone is left on the node."""
        with self._lock:
            self._gone.pop(uid, None)

    def uids(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._pods)

    def all(self) -> tuple[Pod, ...]:
        with self._lock:
            return tuple(self._pods.values())

    def all_if_listed(self) -> tuple[Pod, ...] | None:
        """None before a full list has been seen."""
        with self._lock:
            return tuple(self._pods.values()) if self._listed else None

    def replace(self, pods: Sequence[Pod]) -> frozenset[str]:
        """Take a full list; returns the uids of the pods that it lacks."""
        with self._lock:
            current = {pod.metadata.uid: pod for pod in pods}
            gone = self._pods.keys() - current.keys()
            self._gone |= {uid: self._pods[uid] for uid in gone}
            self._pods = {uid: _newer(self._pods.get(uid), pod) for uid, pod in current.items()}
            self._listed = True
        return frozenset(gone)

    def see(self, pod: Pod) -> None:
        """Take a pod from the watch."""
        with self._lock:
            self._pods[pod.metadata.uid] = _newer(self._pods.get(pod.metadata.uid), pod)

    def put(self, pod: Pod) -> None:
        """Take the answer to a write, unless the watch has seen the pod's deletion meanwhile."""
        with self._lock:
            if (cached := self._pods.get(pod.metadata.uid)) is not None:
                self._pods[pod.metadata.uid] = _newer(cached, pod)

    def remove(self, uid: str) -> None:
        with self._lock:
            if (pod := self._pods.pop(uid, None)) is not None:
                self._gone[uid] = pod


def _newer(cached: Pod | None, pod: Pod) -> Pod:
    if cached is None:
        return pod
    return pod if int(pod.metadata.resource_version or 0) >= int(cached.metadata.resource_version or 0) else cached


Followers = tuple[
    WatchFollower[Node] | WatchFollower[Pod] | WatchFollower[ResourceSlice] | WatchFollower[PersistentVolume], ...
]


class SliceCount:
    """The number of each driver's ResourceSlices on the node, by the watch. Thread-safe."""

    def __init__(self) -> None:
        self._drivers: dict[str, str] = {}  # slice -> driver

    def listed(self, slices: Iterable[ResourceSlice]) -> None:
        self._drivers = {one.metadata.name: one.spec.driver for one in slices}

    def changed(self, change: WatchEvent[ResourceSlice]) -> None:
        name = change.object.metadata.name
        if change.type == "DELETED":
            self._drivers.pop(name, None)
        else:
            self._drivers[name] = change.object.spec.driver

    def by_driver(self) -> Mapping[str, int]:
        return Tally(list(self._drivers.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The watches of one agent, and the keys that their changes queue.

    seen: takes the Node, returns whether to report it. drivers: those whose slices the agent publishes. everything:
    every key that may need a sync. ready: set once the pods of the node are listed.
    """

    client: Client
    node: str
    queue: AgentQueue
    seen: Callable[[Node], bool]
    pods: PodCache
    slice_count: SliceCount
    drivers: Collection[str]
    everything: Callable[[], Sequence[Key]]
    ready: threading.Event

    def look_at_everything(self) -> None:
        for key in self.everything():
            self.queue.add(key)

    def followers(self) -> Followers:
        """Of the node itself, its pods, and its slices if DRA is on; not started."""
        of_slices = WatchFollower(
            self.client,
            SLICES,
            field_selector=f"spec.nodeName={self.node}",
            replace=self._slices_listed,
            change=self._slice_changed,
        )
        return (
            WatchFollower(
                self.client,
                NODES,
                field_selector=f"metadata.name={self.node}",
                replace=self._nodes_listed,
                change=self._node_changed,
            ),
            WatchFollower(
                self.client,
                PODS,
                field_selector=f"spec.nodeName={self.node}",
                replace=self._pods_listed,
                change=self._pod_changed,
                returned=self.look_at_everything,
            ),
            *((of_slices,) if gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) else ()),
        )

    def _nodes_listed(self, nodes: Sequence[Node]) -> None:
        if not nodes or any(self.seen(node) for node in nodes):
            self.queue.add(Key("node"))

    def _node_changed(self, change: WatchEvent[Node]) -> None:
        if change.type == "DELETED" or self.seen(change.object):
            self.queue.add(Key("node"))

    def _pods_listed(self, pods: Sequence[Pod]) -> None:
        """Includes the pods that were deleted while the watch was down."""
        gone = self.pods.replace(pods)
        for key in (*self.everything(), *(Key("pod", uid) for uid in gone)):
            self.queue.add(key)
        self.ready.set()

    def _pod_changed(self, change: WatchEvent[Pod]) -> None:
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

    def _slice_changed(self, change: WatchEvent[ResourceSlice]) -> None:
        self.slice_count.changed(change)
        if (driver := change.object.spec.driver) in self.drivers:
            self.queue.add(Key("slices", driver))
