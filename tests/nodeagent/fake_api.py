"""An API server in memory, spoken to through httpx like the real one: documents, revisions, selectors, watches.

It keeps Kubernetes' rules that the agent relies on (conflicts, uid preconditions, graceful deletion, finalizers,
status as a subresource, 410 below the pruned floor) and knows no kinds.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import msgspec

Document = dict[str, Any]
Address = tuple[str, str, str]  # (plural, namespace, name)


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, reason: str, message: str, *, details: Document | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details

    def status(self) -> Document:
        told = {"kind": "Status", "status": "Failure", "code": self.code, "reason": self.reason, "message": str(self)}
        return told if self.details is None else {**told, "details": self.details}


class FakeApi(httpx.BaseTransport):
    """Serves any resource. `requests` lists what was asked: "PUT /api/v1/...". Thread-safe."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.requests: list[str] = []
        self.revision = 0
        #: called before each request is handled, may raise what the network would, or Refused
        self.before: Callable[[httpx.Request], None] = lambda _request: None
        #: what is posted to subresources, by name: (the object's address, the body) -> the answer
        self.connects: dict[str, Callable[[Address, Document], Document]] = {}
        #: how a version of the API shows what is kept; others show it as it is
        self.views: dict[str, Callable[[Document], Document]] = {}
        self._documents: dict[Address, Document] = {}
        self._log: list[tuple[int, str, str, Document, Document]] = []  # revision, type, plural, new, old
        self._floor = 0
        self._streams: list[WatchStream] = []

    # What a test does and looks at.

    def put(self, plural: str, document: Document) -> Document:
        """Create or replace a document, status and all, as another client would."""
        with self.changed:
            address = _address(plural, document)
            known = self._documents.get(address)
            meta = document["metadata"] = {**document["metadata"]}
            meta.setdefault("uid", known["metadata"]["uid"] if known else str(uuid.uuid4()))
            return self._store("MODIFIED" if known else "ADDED", address, document)

    def find(self, plural: str, name: str, namespace: str = "default") -> Document | None:
        with self.changed:
            found = self._documents.get((plural, namespace, name)) or self._documents.get((plural, "", name))
            return _copy(found) if found else None

    def all(self, plural: str) -> list[Document]:
        with self.changed:
            return [_copy(d) for a, d in sorted(self._documents.items()) if a[0] == plural]

    def delete(self, plural: str, name: str, namespace: str = "default", *, grace: int = 30) -> None:
        """As a user does: gracefully, or by force with grace 0."""
        with self.changed:
            self._delete((plural, namespace, name), {"gracePeriodSeconds": grace})

    def prune(self) -> None:
        """Forget the log: a watch from an older revision gets 410, open ones end."""
        with self.changed:
            self._floor = self.revision
            self._log.clear()
        self.disconnect()

    def disconnect(self) -> None:
        """Break every open watch."""
        with self.changed:
            for stream in self._streams:
                stream.closed = True
            self.changed.notify_all()

    # HTTP.

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        self.requests.append(f"{request.method} {request.url.path}")
        try:
            self.before(request)
        except Refused as refused:
            return httpx.Response(refused.code, content=msgspec.json.encode(refused.status()))
        code, answer = self.answer(request.method, request.url.path, request.url.params, body)
        if isinstance(answer, WatchStream):
            return httpx.Response(code, stream=answer)
        return httpx.Response(code, content=answer, headers={"Content-Type": "application/json"})

    def answer(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes | WatchStream]:
        """The code and the body of the answer."""
        try:
            with self.changed:
                answer = self._answer(method, path, params, msgspec.json.decode(body) if body else {})
                if view := self.views.get(path.split("/")[3] if path.startswith("/apis/") else ""):
                    answer = view(_copy(answer)) if isinstance(answer, dict) else answer
                return 200, answer if isinstance(answer, WatchStream) else msgspec.json.encode(answer)
        except Refused as refused:
            return refused.code, msgspec.json.encode(refused.status())

    def _answer(self, method: str, path: str, params: Mapping[str, str], body: Document) -> Document | WatchStream:
        plural, namespace, name, subresource = _parse(path)
        selector = _selector(params.get("fieldSelector", ""), params.get("labelSelector", ""))
        address = (plural, namespace, name)
        if method == "GET":
            if params.get("watch"):
                return self._watch(plural, selector, int(params["resourceVersion"]))
            return self._get(address) if name else self._list(plural, namespace, selector)
        if method == "POST":
            return self.connects[subresource](address, body) if subresource else self._create(plural, body)
        if method == "DELETE":
            return self._delete(address, body) if name else self._delete_collection(plural, selector)
        return self._update(address, merged(self._get(address), body) if method == "PATCH" else body, subresource)

    def _delete_collection(self, plural: str, selector: Callable[[Document], bool]) -> Document:
        for found in [a for a, d in self._documents.items() if a[0] == plural and selector(d)]:
            self._delete(found, {})
        return {"kind": "Status", "status": "Success"}

    def _get(self, address: Address) -> Document:
        if address not in self._documents:
            raise Refused(404, "NotFound", f'{address[0]} "{address[2]}" not found')
        return self._documents[address]

    def _list(self, plural: str, namespace: str, selector: Callable[[Document], bool]) -> Document:
        items = [
            d for a, d in sorted(self._documents.items()) if a[0] == plural and namespace in ("", a[1]) and selector(d)
        ]
        return {"kind": "List", "metadata": {"resourceVersion": str(self.revision)}, "items": items}

    def _create(self, plural: str, document: Document) -> Document:
        meta = document["metadata"]
        if prefix := meta.get("generateName"):
            meta.setdefault("name", f"{prefix}{self.revision}")
        address = _address(plural, document)
        if address in self._documents:
            raise Refused(409, "AlreadyExists", f'{plural} "{address[2]}" already exists')
        document["metadata"]["uid"] = str(uuid.uuid4())
        if plural in ("nodes", "pods"):
            document.pop("status", None)
        return self._store("ADDED", address, document)

    def _update(self, address: Address, document: Document, subresource: str) -> Document:
        known = self._get(address)
        version = document["metadata"].get("resourceVersion")
        if version and version != known["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f'{address[0]} "{address[2]}": the object has been modified')
        if subresource == "status":
            document = {**known, "status": document.get("status", {})}
        elif "status" in known:
            document = {**document, "status": known["status"]}
        document["metadata"] = {**document["metadata"], "uid": known["metadata"]["uid"]}
        if document == known:
            return known
        meta = document["metadata"]
        ends = meta.get("deletionTimestamp") and known["metadata"].get("finalizers") and not meta.get("finalizers")
        return self._store("DELETED" if ends else "MODIFIED", address, document)

    def _delete(self, address: Address, options: Document) -> Document:
        known = self._get(address)
        wanted_uid = options.get("preconditions", {}).get("uid")
        if wanted_uid and wanted_uid != known["metadata"]["uid"]:
            raise Refused(409, "Conflict", f"the UID in the precondition ({wanted_uid}) does not match")
        bound = address[0] == "pods" and known["spec"].get("nodeName")
        grace = options.get("gracePeriodSeconds", 30) if bound else 0
        if grace or known["metadata"].get("finalizers"):
            stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
            if known["metadata"].get("deletionGracePeriodSeconds") == grace:
                return known
            return self._store("MODIFIED", address, {**known, "metadata": {**known["metadata"], **stamp}})
        return self._store("DELETED", address, known)

    def _store(self, type_: str, address: Address, document: Document) -> Document:
        self.revision += 1
        old = self._documents.get(address, document)
        document = _copy(document)
        document["metadata"]["resourceVersion"] = str(self.revision)
        if type_ == "DELETED":
            del self._documents[address]
        else:
            self._documents[address] = document
        self._log.append((self.revision, type_, address[0], document, old))
        self.changed.notify_all()
        return document

    def _watch(self, plural: str, selector: Callable[[Document], bool], revision: int) -> WatchStream:
        if revision < self._floor:
            raise Refused(410, "Expired", f"too old resource version: {revision} ({self._floor})")
        stream = WatchStream(self, plural, selector, revision)
        self._streams.append(stream)
        return stream

    def events_after(self, plural: str, selector: Callable[[Document], bool], revision: int) -> Iterator[Document]:
        for at, type_, of, new, old in self._log:
            if at > revision and of == plural and (selector(new) or selector(old)):
                yield {"type": type_, "object": new}


class WatchStream(httpx.SyncByteStream):
    """The body of a watch; ends when it is closed from either side."""

    def __init__(self, api: FakeApi, plural: str, selector: Callable[[Document], bool], revision: int) -> None:
        self.closed = False
        self._api, self._plural, self._selector, self._revision = api, plural, selector, revision

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._api.changed:
                events = list(self._api.events_after(self._plural, self._selector, self._revision))
                if self.closed:
                    return
                if not events:
                    self._api.changed.wait(10)
                self._revision = self._api.revision if events else self._revision
            for event in events:
                yield json.dumps(event).encode() + b"\n"

    def close(self) -> None:
        with self._api.changed:
            self.closed = True
            self._api.changed.notify_all()


def merged(document: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _copy(document: Document) -> Document:
    copy: Document = msgspec.json.decode(msgspec.json.encode(document))
    return copy


def _address(plural: str, document: Document) -> Address:
    meta = document["metadata"]
    return plural, meta.get("namespace", ""), meta["name"]


def _parse(path: str) -> tuple[str, str, str, str]:
    """(plural, namespace, name, subresource) of a URL path."""
    parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
    namespace = ""
    if parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "")[:3]
    return plural, namespace, name, subresource


def _selector(of_fields: str, of_labels: str) -> Callable[[Document], bool]:
    fields, labels = ([term.split("=", 1) for term in text.split(",") if term] for text in (of_fields, of_labels))

    def selects(document: Document) -> bool:
        for path, value in fields:
            found: Any = document
            for part in path.split("."):
                found = found.get(part, "") if isinstance(found, dict) else ""
            if found != value:
                return False
        return all(document["metadata"].get("labels", {}).get(key) == value for key, value in labels)

    return selects
