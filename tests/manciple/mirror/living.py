"""A cluster that changes: a `Replay` that keeps a log and answers watches, with the faults that a network has.

    with Living() as cluster:
        cluster.put("pods", pod("train"))
        cluster.prune()             # watches from before are answered with 410

Unless it is `live`, a watch ends once it has told everything, so that a test needs no thread of its own.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from manciple.mirror.sources import COPIED, LEASE, Source
from tests.manciple.mirror.replay import Answer, Document, Place, Replay

KINDS = {source.plural: source for source in (*COPIED, LEASE)}


class Entry(NamedTuple):
    version: int
    type: str
    document: Document


@dataclass
class Living(Replay):
    """watch_lists: it can begin a watch with the state. unwatchable: plurals that may be listed only. broken_after: the
    next watch breaks off within the line behind so many. busy: so many requests for objects are answered with 429.
    silent: watches tell nothing. strict: it refuses a watch from a version that does not exist yet. hung: requests are
    accepted, and not answered. live: watches go on until the cluster ends, `timeoutSeconds` or `end_watches`.
    """

    objects: dict[str, list[Document]] = field(default_factory=dict)
    watch_lists: bool = True
    unwatchable: frozenset[str] = frozenset()
    broken_after: int | None = None
    busy: int = 0
    silent: bool = False
    strict: bool = True
    hung: bool = False
    live: bool = False

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._versions = count(100)
        self._version = self._floor = 99
        self._log: dict[str, list[Entry]] = {}
        self._snapshots: dict[str, tuple[int, list[Document]]] = {}
        self._ended = 0
        self._backup: tuple[dict[str, list[Document]], int] = ({}, 99)
        for plural, documents in self.objects.items():
            for document in documents:
                self._next(document)
            self._log[plural] = []

    def __exit__(self, *error: object) -> None:
        self.wake()
        self.end_watches()
        super().__exit__(*error)

    # What happens ----------------------------------------------------------------------------------------------------

    def put(self, plural: str, document: Document) -> Document:
        """Create it or replace it."""
        with self._changed:
            document = self._next(deepcopy(document))
            meta = document["metadata"]
            key = (meta.get("namespace", ""), meta["name"])
            before = self.get(plural, *key)
            if before is not None and before["metadata"].get("uid") != meta.get("uid"):
                self.delete(plural, *key)
                document, before = self._next(document), None
            listed = [one for one in self.objects.get(plural, []) if one is not before]
            self.objects[plural] = [*listed, document]
            self._log.setdefault(plural, []).append(Entry(self._version, "MODIFIED" if before else "ADDED", document))
            self._changed.notify_all()
        return document

    def delete(self, plural: str, namespace: str, name: str) -> None:
        with self._changed:
            before = self.get(plural, namespace, name)
            if before is not None:
                self.objects[plural] = [one for one in self.objects[plural] if one is not before]
                last = self._next(deepcopy(before))
                self._log.setdefault(plural, []).append(Entry(self._version, "DELETED", last))
                self._changed.notify_all()

    def get(self, plural: str, namespace: str, name: str) -> Document | None:
        found = (one for one in self.objects.get(plural, ()) if one["metadata"]["name"] == name)
        return next((one for one in found if one["metadata"].get("namespace", "") == namespace), None)

    def prune(self) -> None:
        """Nothing of the past is known any more: not to watches, and not to later pages of lists."""
        with self._changed:
            self._floor = self._version
            self._log = {plural: [] for plural in self._log}
            self._snapshots.clear()

    def backup(self) -> None:
        self._backup = (deepcopy(self.objects), self._version)

    def restore(self) -> None:
        """Go back to the last backup: its objects and its version. Nothing that was before is known any more."""
        with self._changed:
            objects, version = self._backup
            self.objects, self._versions = deepcopy(objects), count(version + 1)
            self._version = self._floor = version
            self._log = {plural: [] for plural in self._log}
            self._snapshots.clear()
            self.end_watches()

    def wake(self) -> None:
        with self._changed:
            self.hung = False
            self._changed.notify_all()

    def end_watches(self) -> None:
        with self._changed:
            self._ended += 1
            self._changed.notify_all()

    def _next(self, document: Document) -> Document:
        self._version = next(self._versions)
        document["metadata"]["resourceVersion"] = str(self._version)
        return document

    # Answers ---------------------------------------------------------------------------------------------------------

    def respond(self, target: str, headers: Any) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: not self.hung, timeout=60)
        return super().respond(target, headers)

    def places(self) -> list[Place]:
        known = {place[2] for place in super().places()}
        more = [source for plural, source in KINDS.items() if plural not in known and plural in self.objects]
        return [*super().places(), *((source.group, "v1", source.plural) for source in more)]

    def _objects(self, plural: str, namespace: str, name: str, query: Mapping[str, list[str]]) -> Answer:
        if self.busy:
            self.busy -= 1
            code, _, body = self._status(429, "too many requests")
            return code, {"Retry-After": "0"}, body
        if "watch" in query:
            return self._watch(plural, namespace, query)
        if name or (plural in self.forbidden and (not namespace or namespace != self.only)):
            return super()._objects(plural, namespace, name, query)
        return self._list(plural, namespace, query)

    def _list(self, plural: str, namespace: str, query: Mapping[str, list[str]]) -> Answer:
        with self._changed:
            token, limit = query.get("continue", [""])[0], int(query.get("limit", ["0"])[0])
            snapshot, _, start = token.partition("/")
            if not token:
                snapshot = str(len(self._snapshots))
                found = [one for one in self.objects.get(plural, ()) if _is_in(namespace, one)]
                self._snapshots[snapshot] = (self._version, sorted(found, key=_key))
            elif snapshot not in self._snapshots:
                return self._status(410, "The provided continue parameter is too old")
            version, found = self._snapshots[snapshot]
            first = int(start or 0)
            end = first + limit if limit else len(found)
            meta = {"resourceVersion": str(version)}
            if end < len(found):
                meta["continue"] = f"{snapshot}/{end}"
            return 200, {}, json.dumps({"kind": "List", "metadata": meta, "items": found[first:end]}).encode()

    def _watch(self, plural: str, namespace: str, query: Mapping[str, list[str]]) -> Answer:
        if plural in self.unwatchable or (plural in self.forbidden and (not namespace or namespace != self.only)):
            return self._status(403, f'{plural} is forbidden: User "me" cannot watch resource "{plural}"')
        with self._changed:
            begins_with_state = "sendInitialEvents" in query
            if begins_with_state and not self.watch_lists:
                return self._status(422, "sendInitialEvents is forbidden for watch unless the feature is enabled")
            since = self._version if begins_with_state else int(query["resourceVersion"][0])
            if since < self._floor:
                return self._status(410, f"too old resource version: {since} ({self._floor})")
            if since > self._version and self.strict:
                return self._status(504, f"Too large resource version: {since}, current: {self._version}")
            state = [one for one in self.objects.get(plural, ()) if begins_with_state and _is_in(namespace, one)]
            broken_after, self.broken_after = self.broken_after, None
            ended = self._ended
        kind = KINDS[plural]
        lines = self._events(kind, namespace, since, ended, state if begins_with_state else None)
        return 200, {}, lines if broken_after is None else _broken(lines, broken_after)

    def _events(
        self, kind: Source, namespace: str, since: int, ended: int, state: list[Document] | None
    ) -> Iterator[bytes]:
        for document in state or ():
            yield _line("ADDED", document)
        if state is not None:
            yield _bookmark(since, {"k8s.io/initial-events-end": "true"})
        while True:
            with self._changed:
                if self.silent:
                    self._changed.wait_for(lambda: self._ended > ended)
                if self.live:
                    while self._ended == ended and (self.hung or not self._is_news(kind.plural, since)):
                        self._changed.wait()
                is_lost = since < self._floor
                entries = [one for one in self._log.get(kind.plural, ()) if one.version > since]
                since, is_over = self._version, not self.live or self._ended > ended
            if is_lost:
                yield _line("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
                return
            for entry in entries:
                if _is_in(namespace, entry.document):
                    yield _line(entry.type, entry.document)
            yield _bookmark(since)
            if is_over:
                return

    def _is_news(self, plural: str, since: int) -> bool:
        log = self._log.get(plural)
        return since < self._floor or bool(log and log[-1].version > since)


def _key(document: Document) -> tuple[str, str]:
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _is_in(namespace: str, document: Document) -> bool:
    return namespace in ("", document["metadata"].get("namespace", ""))


def _line(type_: str, document: Document) -> bytes:
    return json.dumps({"type": type_, "object": document}, ensure_ascii=False).encode() + b"\n"


def _bookmark(version: int, annotations: Mapping[str, str] | None = None) -> bytes:
    meta: Document = {"resourceVersion": str(version), **({"annotations": annotations} if annotations else {})}
    return _line("BOOKMARK", {"metadata": meta})


def _broken(lines: Iterator[bytes], after: int) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number == after:
            yield line[: len(line) // 2]
            return
        yield line


# Documents ------------------------------------------------------------------------------------------------------------

_ODDITIES: tuple[Any, ...] = (None, True, 7, 0.5, "text", [], {}, [{"a": 1}], {"b": [1, "2"]}, "é\u2028\x85")
#: Whose members are names that people choose.
_MAPS = frozenset(
    {"labels", "matchLabels", "annotations", "attributes", "capacity", "allocatable", "requests", "limits"}
)


def with_unknown_fields(part: Any, chance: random.Random) -> Any:
    """With fields that nobody knows in every object. Maps of names stay as they are."""
    if isinstance(part, list):
        return [with_unknown_fields(one, chance) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: value if name in _MAPS else with_unknown_fields(value, chance) for name, value in part.items()}
    for _ in range(chance.randint(0, 2)):
        made[f"xUnknown{chance.randrange(10**9)}"] = deepcopy(chance.choice(_ODDITIES))
    return made
