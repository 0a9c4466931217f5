"""An API server in memory for one driver: its Node, its ResourceSlices, and the claims that the check allocates.

It serves the calls of a driver built on Kubernetes' library (docs/reference/plugin-protocol.md): GET of the Node and of
claims, everything with slices, watches with initial events and bookmarks, status of claims, Events; in every version of
resource.k8s.io, in JSON and protobuf. What is written is checked as the real API server checks it; what it refused is
kept for the check. It asks nobody who they are.

`ServedApi` serves it over plain HTTP on loopback to a driver in its own process, and writes the kubeconfig: client-go
and other clients accept HTTP from a kubeconfig, so no certificate is needed.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import yaml

from claims.kinds.registration import RESOURCE_CLAIM
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.registration import NODE, RESOURCE_SLICE, current_time
from manciple.wire import codec, documents, patch
from manciple.wire.errors import AlreadyExists, ApiError, BadRequest, Conflict, Invalid, NotFound
from manciple.wire.machinery import DeleteOptions
from manciple.wire.registry import Kind, Registry, Served
from manciple.wire.selectors import FieldSelector, parse_field_selector

Document = dict[str, Any]
#: (plural, namespace, name)
Address = tuple[str, str, str]

_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
#: Seconds that a watch lasts whose client does not say.
WATCH_SECONDS: Final = 1800.0

KINDS: Final = Registry()
for _kind in (NODE, RESOURCE_SLICE, RESOURCE_CLAIM):
    KINDS.register(_kind)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """path: without the query; query: the last value of each parameter."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """What a path names. name "": the collection."""

    served: Served
    namespace: str
    name: str
    subresource: str

    @property
    def kind(self) -> Kind:
        return self.served.kind

    @property
    def address(self) -> Address:
        return self.kind.plural, self.namespace, self.name


@dataclass(frozen=True, slots=True)
class _Change:
    """One entry of the log. document: as stored; of a deletion the last."""

    revision: int
    type: str
    kind: Kind
    document: Document


class CheckApi:
    """Thread-safe. node: the name of the only Node."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.changed = threading.Condition()
        #: what was refused of what the driver wrote, and what was unknown in it: a sentence each
        self.refusals: list[str] = []
        #: "GET /apis/...", as they came
        self.requests: list[str] = []
        self._revision = 0
        self._documents: dict[Address, Document] = {}
        self._log: list[_Change] = []
        self._closed = False
        self.put(NODE, {"metadata": {"name": node}})

    # What a check does.

    def put(self, kind: Kind, document: Document) -> Document:
        """Create or replace an object, status and all."""
        meta = document["metadata"]
        with self.changed:
            address = (kind.plural, meta.get("namespace", ""), meta["name"])
            return self._store(kind, address, {**document, "metadata": dict(meta)})

    def remove(self, kind: Kind, name: str, namespace: str = "") -> None:
        with self.changed:
            self._delete(kind, (kind.plural, namespace, name))

    def slices(self) -> list[ResourceSlice]:
        with self.changed:
            found = [one for address, one in sorted(self._documents.items()) if address[0] == RESOURCE_SLICE.plural]
        return [codec.decode_value(ResourceSlice, one) for one in found]

    def close(self) -> None:
        """End every watch."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    # What a driver asks.

    def answer(self, request: ApiRequest) -> Document:
        """The document of the answer, of everything but watches. Raises: ApiError."""
        with self.changed:
            self.requests.append(f"{request.method} {request.path}")
            self.changed.notify_all()
            if request.path.rpartition("/")[2] == "events" or "/events/" in request.path:
                return documents.parse(request.body, media="application/json") if request.body[:1] == b"{" else {}
            place = find_place(request.path)
            try:
                return self._answer(place, request)
            except (Invalid, BadRequest) as refusal:
                self.refusals.append(refusal.message)
                raise

    def _answer(self, place: NamedPlace, request: ApiRequest) -> Document:
        match request.method:
            case "GET" if place.name:
                return place.served.document(self._get(place))
            case "GET":
                return self._list(place, request)
            case "POST":
                return self._create(place, request)
            case "PUT" | "PATCH":
                return self._update(place, request)
            case "DELETE" if place.name:
                self._refuse_another(place, request)
                return place.served.document(self._delete(place.kind, place.address))
            case "DELETE":
                for one in self._selected(place, request):
                    self._delete(place.kind, self._address(place.kind, one))
                return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        raise BadRequest(f"{request.method} is not served here")

    def _refuse_another(self, place: NamedPlace, request: ApiRequest) -> None:
        """Raises: Conflict where the object is not the one that is meant."""
        meta = self._get(place)["metadata"]
        options = codec.decode_body(DeleteOptions, request.body, content_type=request.content_type)
        wanted = options.preconditions
        if wanted is None:
            return
        if wanted.uid not in (None, meta["uid"]) or wanted.resource_version not in (None, meta["resourceVersion"]):
            raise Conflict.of(place.kind.resource, place.name, "the precondition does not hold")

    def _get(self, place: NamedPlace) -> Document:
        found = self._documents.get(place.address)
        if found is None:
            raise NotFound.of(place.kind.resource, place.name)
        return found

    def _list(self, place: NamedPlace, request: ApiRequest) -> Document:
        return {
            "kind": place.kind.listed_as,
            "apiVersion": place.served.api_version,
            "metadata": {"resourceVersion": str(self._revision)},
            "items": [place.served.document(one) for one in self._selected(place, request)],
        }

    def _selected(self, place: NamedPlace, request: ApiRequest) -> list[Document]:
        selector = parse_field_selector(request.query.get("fieldSelector", ""))
        found = [one for address, one in sorted(self._documents.items()) if address[0] == place.kind.plural]
        return [one for one in found if _selects(selector, place.kind, one)]

    def _create(self, place: NamedPlace, request: ApiRequest) -> Document:
        obj = self._decoded(place, request)
        new = codec.to_builtins(place.kind.prepare_create(obj))
        meta = new["metadata"]
        if prefix := meta.get("generateName"):
            meta.setdefault("name", f"{prefix}{uuid.uuid4().hex[:5]}")
        address = self._address(place.kind, new)
        if address in self._documents:
            raise AlreadyExists.of(place.kind.resource, address[2])
        _refuse_invalid(place.kind, place.kind.validate_create(codec.decode_value(place.kind.type, new)), address[2])
        return place.served.document(self._store(place.kind, address, new))

    def _update(self, place: NamedPlace, request: ApiRequest) -> Document:
        known = self._get(place)
        old = codec.decode_value(place.kind.type, known)
        sent = self._patched(place, request, known) if request.method == "PATCH" else self._decoded(place, request)
        rule = place.kind.subresources.get(place.subresource)
        if sent.metadata.resource_version not in ("", known["metadata"]["resourceVersion"]):
            raise Conflict.of(place.kind.resource, place.name, "the object has been modified")
        prepare, validate = (
            (rule.prepare_update, rule.validate_update)
            if rule
            else (place.kind.prepare_update, place.kind.validate_update)
        )
        new = prepare(sent, old)
        _refuse_invalid(place.kind, validate(new, old), place.name)
        return place.served.document(self._store(place.kind, place.address, codec.to_builtins(new)))

    def _patched(self, place: NamedPlace, request: ApiRequest, known: Document) -> Any:
        """Merge patches of both kinds and server-side apply are all merged here: nobody else owns anything."""
        shown = place.served.document(known)
        change = codec.read_document(request.body, content_type="application/yaml")
        media = documents.media_type(request.content_type)
        merged = (
            patch.json_patch(shown, change) if media.endswith("json-patch+json") else patch.merge_patch(shown, change)
        )
        return codec.decode_document(place.kind, place.served.to_storage(merged), strictness="Warn").object

    def _decoded(self, place: NamedPlace, request: ApiRequest) -> Any:
        """As the version that is asked for has it. Raises: BadRequest."""
        if documents.media_type(request.content_type) == codec.PROTOBUF_MEDIA:
            document = codec.read_protobuf(place.served.shape, request.body)
        else:
            document = codec.read_document(request.body, content_type=request.content_type or "application/json")
        document = {**document, "apiVersion": place.served.api_version}
        decoded = codec.decode_document(place.kind, place.served.to_storage(document), strictness="Warn")
        self.refusals += decoded.warnings
        return decoded.object

    @staticmethod
    def _address(kind: Kind, document: Document) -> Address:
        meta = document["metadata"]
        return kind.plural, meta.get("namespace", ""), meta["name"]

    def _store(self, kind: Kind, address: Address, document: Document) -> Document:
        known = self._documents.get(address)
        meta = document["metadata"]
        meta["uid"] = known["metadata"]["uid"] if known else meta.get("uid") or str(uuid.uuid4())
        meta["creationTimestamp"] = known["metadata"]["creationTimestamp"] if known else current_time()
        head = {"kind": kind.kind, "apiVersion": kind.api_version}
        if known and {**known, "metadata": {**known["metadata"], "resourceVersion": ""}} == {
            **head,
            **document,
            "metadata": {**meta, "resourceVersion": ""},
        }:
            return known
        self._revision += 1
        meta["resourceVersion"] = str(self._revision)
        stored = self._documents[address] = {**head, **document}
        self._note("MODIFIED" if known else "ADDED", kind, stored)
        return stored

    def _delete(self, kind: Kind, address: Address) -> Document:
        gone = self._documents.pop(address)
        self._revision += 1
        meta = {**gone["metadata"], "resourceVersion": str(self._revision)}
        self._note("DELETED", kind, {**gone, "metadata": meta})
        return gone

    def _note(self, type_: str, kind: Kind, document: Document) -> None:
        self._log.append(_Change(self._revision, type_, kind, document))
        self.changed.notify_all()

    def watch(self, request: ApiRequest) -> Iterator[Document]:
        """The events of a watch, until it ends. Raises: ApiError before the first."""
        place = find_place(request.path)
        with self.changed:
            self.requests.append(f"WATCH {request.path}")
            after = self._revision
            begin = list(self._initial(place, request))
            given = request.query.get("resourceVersion", "")
            if not begin and given not in ("", "0"):
                after = int(given)
        return self._events(place, request, begin, after)

    def _initial(self, place: NamedPlace, request: ApiRequest) -> Iterator[Document]:
        """What there is, where the client asks for it."""
        asked = request.query.get("sendInitialEvents") == "true"
        if not asked and request.query.get("resourceVersion", "") not in ("", "0"):
            return
        for one in self._selected(place, request):
            yield {"type": "ADDED", "object": place.served.document(one)}
        if asked:
            meta = {"resourceVersion": str(self._revision), "annotations": {_INITIAL_EVENTS_END: "true"}}
            head = {"kind": place.kind.kind, "apiVersion": place.served.api_version}
            yield {"type": "BOOKMARK", "object": {**head, "metadata": meta}}

    def _events(
        self, place: NamedPlace, request: ApiRequest, begin: Sequence[Document], after: int
    ) -> Iterator[Document]:
        yield from begin
        selector = parse_field_selector(request.query.get("fieldSelector", ""))
        until = time.monotonic() + float(request.query.get("timeoutSeconds") or WATCH_SECONDS)
        while True:
            with self.changed:
                found = [change for change in self._log if change.revision > after]
                if not found:
                    if self._closed or time.monotonic() >= until:
                        return
                    self.changed.wait(min(1.0, max(until - time.monotonic(), 0.0)))
                    continue
            for change in found:
                after = change.revision
                if change.kind is place.kind and _selects(selector, place.kind, change.document):
                    yield {"type": change.type, "object": place.served.document(change.document)}


def find_place(path: str) -> NamedPlace:
    """Raises: NotFound for a path that nothing is served at."""
    parts = [part for part in path.split("/") if part]
    group, version, rest = ("", parts[1], parts[2:]) if parts[:1] == ["api"] else _of_group(parts)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004 - "namespaces", its name, what is in it
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    served = KINDS.served(group, version, plural)
    if served is None:
        raise NotFound("the server could not find the requested resource")
    return NamedPlace(served, namespace, name, subresource)


def _of_group(parts: Sequence[str]) -> tuple[str, str, list[str]]:
    match parts:
        case ["apis", group, version, *rest]:
            return group, version, rest
    return "", "", []


def _selects(selector: FieldSelector, kind: Kind, document: Document) -> bool:
    if selector.empty:
        return True
    fields = kind.selectable(codec.decode_value(kind.type, document))
    return selector.matches({**fields, "metadata.name": document["metadata"]["name"]})


def _refuse_invalid(kind: Kind, errors: Sequence[Any], name: str) -> None:
    """Raises: Invalid."""
    if errors:
        raise Invalid.of(kind=kind.kind, group=kind.group, name=name, errors=errors)


# Over HTTP ------------------------------------------------------------------------------------------------------------


#: A driver shows some credential; nobody looks at it.
TOKEN = "driver-check"  # noqa: S105 - it opens nothing


class ServedApi:
    """Serves `api` from `start` to `stop`."""

    def __init__(self, api: CheckApi, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Raises: OSError where nobody can listen there."""
        self._api = api
        self._server = _Server((host, port), _handler(api))
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="driver-check-api", daemon=True).start()

    def stop(self) -> None:
        self._api.close()
        self._server.shutdown()
        self._server.server_close()

    def write_kubeconfig(self, path: Path) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "check", "cluster": {"server": self.url}}],
            "users": [{"name": "driver", "user": {"token": TOKEN}}],
            "contexts": [{"name": "check", "context": {"cluster": "check", "user": "driver"}}],
            "current-context": "check",
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A driver that was killed is part of the check."""


def _handler(api: CheckApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            url = urlsplit(self.path)
            request = ApiRequest(
                method=self.command,
                path=url.path,
                query=dict(parse_qsl(url.query, keep_blank_values=True)),
                body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
                content_type=self.headers.get("Content-Type", ""),
            )
            try:
                if request.method == "GET" and request.query.get("watch") in ("true", "1"):
                    self._stream(request)
                else:
                    self._answer(201 if request.method == "POST" else 200, api.answer(request))
            except ApiError as error:
                self._answer(error.code, error.status())
            except (KeyError, TypeError, ValueError) as error:
                # Of a document that is too strange to be judged.
                refusal = BadRequest(f"{request.method} {request.path}: {error!r}")
                api.refusals.append(refusal.message)
                self._answer(refusal.code, refusal.status())

        def _answer(self, code: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, request: ApiRequest) -> None:
            events = api.watch(request)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            for event in events:
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self.handle_any
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            """The terminal is for the report."""

    return Handler
