"""What is known of one resource's objects, as lists and watches tell it, or the answers to our own writes, if newer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from manciple.wire.base import ApiObject
from nodeagent.api.client import ApiResource, Client, WatchEvent, WatchFollower

Object = TypeVar("Object", bound=ApiObject)
#: (namespace, name)
Name = tuple[str, str]


class KnownObjects(Generic[Object]):
    """The objects of one resource, by namespace and name. Thread-safe.

    changed: told of every object that the API tells of, and as what it was known before, in the thread that follows.
    """

    def __init__(
        self, client: Client, resource: ApiResource[Object], changed: Callable[[Object, Object | None], None]
    ) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._objects: dict[Name, Object] = {}
        self.listed = threading.Event()
        self.follower = WatchFollower(client, resource, field_selector="", replace=self._replace, change=self._change)

    def get(self, namespace: str, name: str) -> Object | None:
        with self._lock:
            return self._objects.get((namespace, name))

    def all(self) -> Mapping[Name, Object]:
        """As they are now."""
        with self._lock:
            return dict(self._objects)

    def put(self, obj: Object) -> None:
        """Take the answer to a write of our own; what the watch has seen go meanwhile stays gone."""
        with self._lock:
            if _name(obj) in self._objects:
                self._keep(obj)

    def _replace(self, objects: Sequence[Object]) -> None:
        with self._lock:
            known, self._objects = self._objects, {}
            for obj in (*(known[_name(obj)] for obj in objects if _name(obj) in known), *objects):
                self._keep(obj)
        self.listed.set()
        for obj in objects:
            self._changed(obj, known.get(_name(obj)))

    def _change(self, event: WatchEvent[Object]) -> None:
        name = _name(event.object)
        with self._lock:
            known = self._objects.get(name)
            if event.type == "DELETED":
                self._objects.pop(name, None)
                return
            self._keep(event.object)
        self._changed(event.object, known)

    def _keep(self, obj: Object) -> None:
        known = self._objects.get(_name(obj))
        if known is None or _revision(obj) >= _revision(known):
            self._objects[_name(obj)] = obj


def _name(obj: ApiObject) -> Name:
    return obj.metadata.namespace, obj.metadata.name


def _revision(obj: ApiObject) -> int:
    return int(obj.metadata.resource_version or 0)
