"""Publishing devices as the Go library's controller does: an informer on the driver's slices of its node, a mutation
cache on top of it, and a comparison of what is with what should be.

Source: k8s.io/dynamic-resource-allocation/resourceslice/resourceslicecontroller.go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.plugin_driver.kube import EXPIRED, NOT_FOUND, Kube, Refused
from tests.plugin_driver.orders import Journal

Document = dict[str, Any]
#: pool -> its slices -> the names of their devices
Pools = Mapping[str, Sequence[Sequence[str]]]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
INDEX_LENGTH = 5
#: Seconds before a failed call is made again, and between looks at what is wanted.
RETRY_SECONDS, LOOK_SECONDS = 0.2, 0.1


def revision(one: Document) -> int:
    return int(one["metadata"]["resourceVersion"])


class Store:
    """The slices as the informer knows them, and as the driver's own writes left them where those are newer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Document] = {}
        self._written: dict[str, Document] = {}
        self.changed = threading.Event()

    def replace(self, slices: Sequence[Document]) -> None:
        with self._lock:
            self._known = {one["metadata"]["uid"]: one for one in slices}
        self.changed.set()

    def put(self, one: Document) -> None:
        with self._lock:
            self._known[one["metadata"]["uid"]] = one
        self.changed.set()

    def remove(self, one: Document) -> None:
        with self._lock:
            self._known.pop(one["metadata"]["uid"], None)
            self._written.pop(one["metadata"]["uid"], None)
        self.changed.set()

    def mutated(self, one: Document) -> None:
        """What the server answered a write with."""
        with self._lock:
            self._written[one["metadata"]["uid"]] = one

    def of_pool(self, pool: str) -> list[Document]:
        with self._lock:
            newest = dict(self._known)
            for uid, one in list(self._written.items()):
                if uid in newest and revision(newest[uid]) >= revision(one):
                    del self._written[uid]
                else:
                    newest[uid] = one
        return [one for one in newest.values() if one["spec"]["pool"]["name"] == pool]

    def pools(self) -> set[str]:
        with self._lock:
            return {one["spec"]["pool"]["name"] for one in (*self._known.values(), *self._written.values())}


@dataclass
class Informer:
    """Keeps a store in step with the server, by a watch that begins with the state, or by a list and a watch."""

    kube: Kube
    selector: str
    store: Store
    watch_list: bool = True
    synced: threading.Event = field(default_factory=threading.Event)

    def run(self, stop: threading.Event) -> None:
        """Until the process ends: a stream cannot be interrupted."""
        position = ""
        while not stop.is_set():
            try:
                position = self._follow(position, stop)
            except Refused as error:
                position = "" if error.code == EXPIRED else position
                stop.wait(RETRY_SECONDS)
            except httpx.HTTPError:
                stop.wait(RETRY_SECONDS)

    def _follow(self, position: str, stop: threading.Event) -> str:
        """One stream to its end; returns from where to go on."""
        params = {"allowWatchBookmarks": "true", "fieldSelector": self.selector, "timeoutSeconds": "300"}
        found: list[Document] | None = None
        if position:
            params["resourceVersion"] = position
        elif self.watch_list:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            found = []
        else:
            position = self._list()
            params["resourceVersion"] = position
        for kind, one in self.kube.watch_slices(**params):
            if stop.is_set():
                break
            position = one["metadata"]["resourceVersion"]
            if found is not None and kind == "ADDED":
                found.append(one)
            elif found is not None and one["metadata"].get("annotations", {}).get(INITIAL_EVENTS_END) == "true":
                self.store.replace(found)
                found = None
                self.synced.set()
            elif kind == "DELETED":
                self.store.remove(one)
            elif kind in ("ADDED", "MODIFIED"):
                self.store.put(one)
        return position if found is None else ""

    def _list(self) -> str:
        answer = self.kube.list_slices(fieldSelector=self.selector, limit="500", resourceVersion="0")
        self.store.replace(answer["items"])
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])


@dataclass
class SliceController:
    """Publishes the pools that `wanted` tells, and puts right what others change after `delay` seconds."""

    kube: Kube
    driver: str
    node: str
    wanted: Callable[[], Pools]
    journal: Journal
    store: Store
    delay: float
    _owner: list[Document] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Until `stop`. What is published stays when the driver ends."""
        published: Pools | None = None
        while not stop.is_set():
            wanted = self.wanted()
            disturbed = self.store.changed.is_set()
            if wanted == published and not disturbed:
                stop.wait(LOOK_SECONDS)
                continue
            if wanted == published:
                stop.wait(self.delay)
            self.store.changed.clear()
            try:
                for pool in {*wanted, *self.store.pools()}:
                    self._sync(pool, wanted.get(pool))
                published = wanted
            except (Refused, httpx.HTTPError) as error:
                self.journal.write(call="sync", error=str(error))
                self.store.changed.set()
                published = None
                stop.wait(RETRY_SECONDS)

    def _sync(self, pool: str, slices: Sequence[Sequence[str]] | None) -> None:
        """Delete what is obsolete, update what is different, create what is missing: in this order."""
        existing = self.store.of_pool(pool)
        if slices is None:
            self._remove(existing)
            return
        self._find_owner()
        generation = max((one["spec"]["pool"]["generation"] for one in existing), default=0)
        current, obsolete = self._sorted(existing, generation, len(slices))
        head: Document = {"name": pool, "generation": generation, "resourceSliceCount": len(slices)}
        changed = {at for at, one in current.items() if self._differs(one, head, slices[at])}
        bumped = len(current) < len(slices) or len(changed) > 1
        head["generation"] += bumped
        self._remove(obsolete)
        for at, one in current.items():
            if at in changed or bumped:
                spec = {**one["spec"], "pool": head, "devices": [self._device(name) for name in slices[at]]}
                self.store.mutated(self.kube.update_slice({**one, "spec": spec}))
        for at in range(len(slices)):
            if at not in current:
                self.store.mutated(self.kube.create_slice(self._new(at, head, slices[at])))

    def _sorted(
        self, existing: Sequence[Document], generation: int, count: int
    ) -> tuple[dict[int, Document], list[Document]]:
        """By index the slices that are kept, and those that are obsolete."""
        current: dict[int, Document] = {}
        obsolete = []
        for one in existing:
            index = _index(one["metadata"]["name"])
            fits = one["spec"]["pool"]["generation"] == generation and 0 <= index < count and index not in current
            if fits:
                current[index] = one
            else:
                obsolete.append(one)
        return current, obsolete

    def _differs(self, one: Document, head: Document, names: Sequence[str]) -> bool:
        return bool(one["spec"]["pool"] != head or one["spec"].get("devices", []) != [self._device(n) for n in names])

    def _new(self, at: int, head: Document, names: Sequence[str]) -> Document:
        return {
            "kind": "ResourceSlice",
            "metadata": {
                "generateName": f"{at:0{INDEX_LENGTH}x}-{self.driver}-{self.node}-",
                "ownerReferences": self._owner,
            },
            "spec": {
                "driver": self.driver,
                "nodeName": self.node,
                "pool": head,
                "devices": [self._device(name) for name in names],
            },
        }

    def _device(self, name: str) -> Document:
        properties = {"attributes": {"name": {"string": name}}, "capacity": {"memory": {"value": "80Gi"}}}
        if self.kube.version == "v1beta1":
            return {"name": name, "basic": properties}
        return {"name": name, **properties}

    def _find_owner(self) -> None:
        """The node, asked for once."""
        if not self._owner:
            uid = self.kube.node(self.node)["metadata"]["uid"]
            self._owner = [{"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid, "controller": True}]

    def _remove(self, slices: Sequence[Document]) -> None:
        for one in slices:
            try:
                self.kube.delete_slice(one)
            except Refused as error:
                if error.code != NOT_FOUND:
                    raise
            self.store.remove(one)


def _index(name: str) -> int:
    """The index that a slice's name begins with; -1 where it begins otherwise."""
    head = name.partition("-")[0]
    try:
        return int(head, 16) if len(head) == INDEX_LENGTH else -1
    except ValueError:
        return -1
