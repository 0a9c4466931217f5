"""What is recorded of requests: every one gets an id and an origin, its outcome in the audit trail, and is counted.

    asgi: every HTTP request    `begin` notes where it comes from; the answer carries its Audit-Id
    Django, API and pages       `Audited`, the outermost middleware: writes of the request are noted as its own, and at
                                its end the trail gets a refusal, a failure, or a success without a write
    each write of a page        `page_write`, because the page's own request names no object
    everything else             watches, logs, refusals before a thread is taken: recorded when the answer begins

A write that was made is in the log already, with the origin's note. Of reads only those of confidential kinds are
recorded, and refusals. Messages that could quote a confidential document are left out; bodies never go anywhere.
Sources: apiserver/pkg/endpoints/filters/audit_init.go, .../audit.go.

**Metrics** are kube-apiserver's, for what exists here. Every HTTP request is counted once, when it ends; watches, and
logs that are followed, have no duration, as theirs is their client's. Paths that name nothing served have no resource,
so clients make no new series.
Sources: apiserver/pkg/endpoints/metrics/metrics.go, apiserver/pkg/storage/cacher/metrics/metrics.go,
apiserver/pkg/util/flowcontrol/metrics/metrics.go.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import orjson
from django.http import HttpRequest, HttpResponse
from prometheus_client.core import Metric

from manciple.api import subresources
from manciple.api.door import ORIGIN, PEER
from manciple.api.flow_control import FlowCounts, Level
from manciple.api.requests import ResourcePath, parse_path
from manciple.audit import trail
from manciple.audit.happenings import REFUSED, Happened
from manciple.store import records
from manciple.store.records import Origin
from manciple.telemetry import metrics
from manciple.wire.base import new_uid
from manciple.wire.errors import ApiError
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import Kind, Served, registry

HEADER = "Audit-Id"

#: A client may name its request, to find it again; what looks otherwise is not taken over.
_CLIENTS_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
#: version, trace, span, flags; neither id may be zero (https://www.w3.org/TR/trace-context).
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_WRITING = frozenset({"create", "update", "patch", "delete", "deletecollection"})
UNAUTHORIZED, FORBIDDEN, SWITCHING_PROTOCOLS = 401, 403, 101
#: Of requests that only read, these answers are told.
_DENIALS = frozenset({UNAUTHORIZED, FORBIDDEN, 429})
#: Messages of these answers quote the document.
_QUOTING = frozenset({400, 422})
#: Bytes of an answer that are looked into for what it says of the object.
_READ = 64 * 1024
#: What a page's address may carry that nobody else should see.
_HIDDEN = ("token", "key", "secret", "password")
#: Pages whose query is a credential: an identity provider sends its code there.
_SECRET_QUERIES = frozenset({"oidc-return"})

GetResponse = Callable[[HttpRequest], HttpResponse]

# The beginning --------------------------------------------------------------------------------------------------------


def begin(
    *,
    method: str,
    path: str,
    query: str,
    addresses: Iterable[str],
    agent: str,
    wanted_id: str = "",
    traceparent: str = "",
) -> Origin:
    """The origin of a request that has just come. wanted_id, traceparent: its own headers of these names.

    addresses: of the client, and of the proxy that told of it; "" for what is not known.
    """
    where = parse_path(path)
    return Origin(
        audit_id=wanted_id if _CLIENTS_ID.fullmatch(wanted_id) else new_uid(),
        received=datetime.now(UTC),
        method=method,
        uri=f"{path}?{query}" if query else path,
        addresses=tuple(dict.fromkeys(filter(None, addresses))),
        agent=agent,
        traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else "",
        verb=_verb(method, where, query) if where else method.lower(),
        resource=_resource(where),
        subresource=where.subresource if where else "",
    )


def _resource(where: ResourcePath | None) -> str:
    """As the log calls it. Custom resources are called as in the path, so the database is not asked for them."""
    if where is None:
        return ""
    if registry.is_own(where.group, where.version, where.plural) and (served := where.served()):
        return served.kind.resource
    return ".".join(filter(None, (where.plural, where.group)))


def begin_in(scope: Any) -> Origin:
    """The same, of an ASGI scope, which carries it from then on."""
    headers = dict(scope["headers"])
    client = scope.get("client")
    origin = begin(
        method=scope.get("method", "GET"),  # a WebSocket begins with one
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        addresses=(client[0] if client else "", scope.get(PEER, "")),
        agent=headers.get(b"user-agent", b"").decode("latin-1"),
        wanted_id=headers.get(b"audit-id", b"").decode("latin-1"),
        traceparent=headers.get(b"traceparent", b"").decode("latin-1"),
    )
    scope[ORIGIN] = origin
    return origin


def _verb(method: str, where: ResourcePath, query: str) -> str:
    """As apiserver/pkg/endpoints/request/requestinfo.go."""
    verb = _VERBS.get(method, method.lower())
    if verb == "get" and not where.subresource and (where.watch or "watch=" in query):
        return "watch"
    if where.name:
        return verb
    return {"get": "list", "delete": "deletecollection"}.get(verb, verb)


# The end --------------------------------------------------------------------------------------------------------------


class Audited:
    """A middleware: gives the request its origin, and records the outcome in the trail at its end."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        origin = request.META.setdefault(ORIGIN, None) or _begun(request)
        with records.collecting(origin):
            response = self._get_response(request)
        if not origin.closed:
            if origin.identity is None:
                origin.identity = _signed_in(request)
            body = b"" if response.streaming else response.content
            conclude(origin, request.path, code=response.status_code, body=body)
        return response

    def process_view(self, request: HttpRequest, _view: object, _arguments: object, _parameters: object) -> None:
        """Before anything is noted of the request: what is a secret in the page's address is taken out of it."""
        hide(request, request.META[ORIGIN])


def conclude(origin: Origin, path: str, *, code: int, body: bytes) -> None:
    """Tell the trail what became of a request, where that is worth telling."""
    origin.closed = True
    if origin.wrote and code < REFUSED:
        return  # the log has it
    where = parse_path(path)
    if _notable(origin, where, code):
        trail.tell(_happened(origin, where, code, _read(body)))


def _notable(origin: Origin, where: ResourcePath | None, code: int) -> bool:
    if code in _DENIALS:
        return True
    if where is None:
        return False
    if origin.verb in _WRITING:
        return code >= REFUSED or not (where.plural.endswith("reviews") or _is_sign_of_life(where))
    return code < REFUSED and (_is_confidential(where) or code == SWITCHING_PROTOCOLS)


def _is_sign_of_life(where: ResourcePath) -> bool:
    served = where.served() if where.subresource else None
    below = subresources.find(served.kind, where.subresource) if served is not None else None
    return isinstance(below, subresources.Connected) and not below.audited


def _is_confidential(where: ResourcePath) -> bool:
    served = where.served()
    return served is not None and served.kind.confidential


def _happened(origin: Origin, where: ResourcePath | None, code: int, told: dict[str, Any]) -> Happened:
    about = told.get("details" if code >= REFUSED else "metadata")
    about = about if isinstance(about, dict) else {}
    silent = where is not None and code in _QUOTING and (_is_confidential(where) or where.subresource == "token")
    return Happened(
        origin=origin,
        code=code,
        reason=str(told.get("reason", "")) if code >= REFUSED else "",
        message=str(told.get("message", "")) if code >= REFUSED and not silent else "",
        resource=_resource(where),
        namespace=where.namespace if where else "",
        name=(where.name or str(about.get("name", ""))) if where else "",
        uid=str(about.get("uid", "")),
    )


def _read(body: bytes) -> dict[str, Any]:
    """The answer's document; nothing for one that is long or none."""
    if len(body) > _READ or not body.startswith(b"{"):
        return {}
    try:
        told: dict[str, Any] = orjson.loads(body)
    except ValueError:
        return {}
    return told


# Through Django -------------------------------------------------------------------------------------------------------


def _begun(request: HttpRequest) -> Origin:
    """Of a request that came past `asgi`: Django's own server, and tests."""
    origin = begin(
        method=request.method or "",
        path=request.path,
        query=request.META.get("QUERY_STRING", ""),
        addresses=(request.META.get("REMOTE_ADDR", ""),),
        agent=request.headers.get("User-Agent", ""),
        wanted_id=request.headers.get(HEADER, ""),
        traceparent=request.headers.get("traceparent", ""),
    )
    request.META[ORIGIN] = origin
    return origin


def _signed_in(request: HttpRequest) -> Identity | None:
    """Whose session it is, if the page has asked: `request.user` would ask the database."""
    user: Any = getattr(request, "_cached_user", None)
    if user is None or not user.is_authenticated:
        return None
    return Identity(user.get_username(), (MASTERS,) if user.is_staff else ())


def hide(request: HttpRequest, origin: Origin) -> None:
    """Take out of a page's address what is a secret in it."""
    found = request.resolver_match
    if found and found.url_name in _SECRET_QUERIES:
        origin.uri = f"{request.path}?…"
    for name, value in (found.kwargs if found else {}).items():
        if any(word in name for word in _HIDDEN):
            origin.uri = origin.uri.replace(str(value), "…")


# Writes of pages ------------------------------------------------------------------------------------------------------


@contextmanager
def page_write(
    verb: str,
    kind: Kind,
    *,
    identity: Identity,
    namespace: str = "",
    name: str = "",
    subresource: str = "",
    dry_run: bool = False,
    of_several: bool = False,
) -> Iterator[None]:
    """Around a write that a page may make: it is audited like a request of its own, under the page's Audit-Id.

    A page's own request names no object, and makes no write, one, or hundreds. Outside of pages this does nothing: a
    request to the API is audited as a whole, and controllers have no request.
    of_several: other objects are written too, so each entry of the log has its own verb; this object is named only if
    the whole write fails. A dry run that succeeds is not audited: pages check forms by it before they write. Of a
    request that only checks (`only_checks`) nothing is audited but what is forbidden.
    """
    request = records.origin()
    if request is None or request.resource:
        yield
        return
    request.identity = request.identity or identity
    part = replace(
        request,
        verb=verb,
        resource="" if of_several else kind.resource,
        subresource=subresource,
        identity=identity,
        wrote=False,
        annotations={},
    )
    where = {"resource": kind.resource, "namespace": namespace, "name": name}
    try:
        with records.noting(part):
            yield
    except Exception as error:
        refusal = error if isinstance(error, ApiError) else ApiError("")
        if dry_run and request.dry_run and refusal.code != FORBIDDEN:
            raise
        part.dry_run = dry_run
        quotes = refusal.code in _QUOTING and (kind.confidential or subresource == "token")
        message = "" if quotes else refusal.message
        trail.tell(Happened(origin=part, code=refusal.code, reason=refusal.reason, message=message, **where))
        request.closed = True
        raise
    request.wrote |= part.wrote
    if not part.wrote and not dry_run:
        part.dry_run = False
        trail.tell(Happened(origin=part, code=201 if verb == "create" else 200, **where))
        request.closed = True


def only_checks() -> None:
    """The page's request writes nothing, whatever comes of it: it checks a text that is still being written."""
    if (request := records.origin()) is not None:
        request.dry_run = True


def note_denial(verb: str, resource: str, *, identity: Identity, namespace: str, name: str, message: str) -> None:
    """A page has refused what its request asks for: this verb on this resource (`pods`, `pods/log`)."""
    request = records.origin()
    if request is not None:
        whole, _, subresource = resource.partition("/")
        origin = replace(request, verb=verb, subresource=subresource, identity=identity)
        where = {"resource": whole, "namespace": namespace, "name": name}
        trail.tell(Happened(origin=origin, code=FORBIDDEN, reason="Forbidden", message=message, **where))
        request.closed = True


# Past Django ----------------------------------------------------------------------------------------------------------


class Noting:
    """The `send` of an ASGI request: its answer gets the Audit-Id, and is told where Django did not do so."""

    def __init__(self, scope: Any, send: Any) -> None:
        self.origin = begin_in(scope)
        self._path: str = scope["path"]
        self._send = send
        #: of the answer; 0 until it begins
        self.code = 0

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
            name = (HEADER.lower().encode(), self.origin.audit_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), name]}
            if self.code < REFUSED and not self.origin.closed:
                conclude(self.origin, self._path, code=self.code, body=b"")
        elif not self.origin.closed:
            conclude(self.origin, self._path, code=self.code, body=message.get("body", b""))
        await self._send(message)


#: Of a message that accepts a page's session only to refuse it: code and body of the refusal.
REFUSAL = "manciple.refusal"


class NotingSocket:
    """The `send` of a WebSocket: it records in the trail a refusal, and the start of a session on an object.

    unknown: the code that closes those of nobody.

    A page's socket is accepted before it is closed, or the browser would not tell its script the reason; one that is
    closed later, because its session has ended, was not refused.
    """

    def __init__(self, scope: Any, send: Any, *, unknown: int) -> None:
        self._origin = begin_in(scope)
        self._path: str = scope["path"]
        self._send = send
        self._unknown = unknown
        self._accepted = self._heard = False
        self._code = 0

    async def __call__(self, message: Any) -> None:
        if message["type"] == "websocket.close" and not self._heard:
            self._note(message.get("code"))
        elif message["type"] == "websocket.accept" and self._origin.resource:
            conclude(self._origin, self._path, **message.get(REFUSAL, {"code": SWITCHING_PROTOCOLS, "body": b""}))
        elif message["type"] == "websocket.http.response.start":
            self._code = message["status"]
        elif message["type"] == "websocket.http.response.body" and not self._origin.closed:
            conclude(self._origin, self._path, code=self._code, body=message.get("body", b""))
        self._accepted |= message["type"] == "websocket.accept"
        self._heard |= message["type"] == "websocket.send"
        await self._send(message)

    def _note(self, code: int | None) -> None:
        """A code of its own says that the server could not serve it now."""
        if code == self._unknown:
            conclude(self._origin, self._path, code=UNAUTHORIZED, body=b"")
        elif code is None and not self._accepted:
            conclude(self._origin, self._path, code=FORBIDDEN, body=b"")


# Metrics --------------------------------------------------------------------------------------------------------------


COMPONENT = "apiserver"
#: What is no path of the API: the dashboard.
PAGES = "dashboard"

#: As upstream's, in seconds.
_SECONDS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3),
    *(4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)

_OF_REQUEST = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
REQUESTS = metrics.counter(
    "apiserver_request_total",
    "Finished requests, by what they asked for and by code.",
    *_OF_REQUEST,
    "system_client",
    "code",
)
DURATIONS = metrics.histogram(
    "apiserver_request_duration_seconds",
    "Time from a request's headers to the end of its answer.",
    *_OF_REQUEST,
    buckets=_SECONDS,
)
WATCH_EVENTS = metrics.counter(
    "apiserver_watch_events_total", "Events sent to watches.", "group", "version", "resource"
)
WATCH_SIZES = metrics.histogram(
    "apiserver_watch_events_sizes",
    "Size in bytes of an event sent to a watch.",
    *("group", "version", "resource"),
    buckets=metrics.exponential(1024, 2.0, 8),
)
WATCH_LISTS = metrics.histogram(
    "apiserver_watch_list_duration_seconds",
    "Time from the start of a watch with sendInitialEvents to the end of its initial events.",
    *("group", "version", "resource", "scope"),
    buckets=(0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60),
)

# Requests -------------------------------------------------------------------------------------------------------------


READING, MUTATING = "readOnly", "mutating"
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_METRIC_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
_APPLY = b"application/apply-patch"
#: Paths that are told by themselves, where upstream has their path as the subresource.
_PATHS = frozenset(
    {
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/metrics/resources",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/api",
        "/apis",
    }
)
_API_ROOTS = frozenset({"api", "apis", "openapi", "healthz", "livez", "readyz", "metrics", "version", ".well-known"})
_SYSTEM_CLIENTS = {
    "system:kube-scheduler": "kube-scheduler",
    "system:kube-controller-manager": "kube-controller-manager",
    "system:apiserver": "kube-apiserver",
}


class _What(NamedTuple):
    """The labels of a request, as `_OF_REQUEST` has them."""

    verb: str
    dry_run: str
    group: str
    version: str
    resource: str
    subresource: str
    scope: str
    component: str


class Inflight:
    """Requests of one process that are being served, and of these, those that wait for a thread. Of one event loop."""

    def __init__(self) -> None:
        self.served = {READING: 0, MUTATING: 0}
        self.waiting = {READING: 0, MUTATING: 0}


INFLIGHT = Inflight()


def kind_of_request(method: str) -> str:
    return READING if method in _READING_METHODS else MUTATING


@contextmanager
def counted(scope: Any, noting: Noting) -> Iterator[None]:
    """Around the whole of a request; one that was never answered, because its client went away, is not counted."""
    kind, began = kind_of_request(scope["method"]), time.perf_counter()
    INFLIGHT.served[kind] += 1
    try:
        yield
    finally:
        INFLIGHT.served[kind] -= 1
        if noting.code:
            _count(scope, noting.origin, noting.code, time.perf_counter() - began)


@contextmanager
def in_line(scope: Any) -> Iterator[None]:
    """While a request waits for a thread."""
    kind = kind_of_request(scope["method"])
    INFLIGHT.waiting[kind] += 1
    try:
        yield
    finally:
        INFLIGHT.waiting[kind] -= 1


def _count(scope: Any, origin: Origin, code: int, seconds: float) -> None:
    where = parse_path(scope["path"])
    served = where.served() if where is not None else None
    what = _elsewhere(scope) if where is None or served is None else _of_resource(scope, origin, where, served)
    client = _SYSTEM_CLIENTS.get(origin.identity.name, "") if origin.identity else ""
    REQUESTS[(*what, client, str(code))].inc()
    if what.verb != "WATCH" and what.subresource != "log":
        DURATIONS[what].observe(seconds)


def _of_resource(scope: Any, origin: Origin, where: ResourcePath, served: Served) -> _What:
    verb = _METRIC_VERBS.get(origin.verb, "")
    if verb == "PATCH" and any(
        name == b"content-type" and value.startswith(_APPLY) for name, value in scope["headers"]
    ):
        verb = "APPLY"
    return _What(
        verb,
        "All" if origin.dry_run else "",
        where.group,
        where.version,
        where.plural,
        _subresource(where, served),
        scope_of(where, verb),
        COMPONENT,
    )


def _subresource(where: ResourcePath, served: Served) -> str:
    name = where.subresource
    known = not name or name in served.kind.subresources or subresources.find(served.kind, name) is not None
    return name if known else metrics.OTHER


def scope_of(where: ResourcePath, verb: str) -> str:
    """As upstream's CleanScope: what a creation makes is one object."""
    if where.name or verb == "POST":
        return "resource"
    return "namespace" if where.namespace else "cluster"


def _elsewhere(scope: Any) -> _What:
    path: str = scope["path"]
    of_api = path.split("/", 2)[1] in _API_ROOTS
    verb = scope["method"] if scope["method"] in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} else metrics.OTHER
    return _What(verb, "", "", "", "", path if path in _PATHS else "", "", COMPONENT if of_api else PAGES)


# Watches --------------------------------------------------------------------------------------------------------------


class WatchTold:
    """What is told of one watch. where: its path."""

    def __init__(self, where: ResourcePath) -> None:
        self._what = (where.group, where.version, where.plural)
        self._scope = scope_of(where, "WATCH")
        self._events, self._sizes = WATCH_EVENTS[self._what], WATCH_SIZES[self._what]

    def sent(self, frames: Sequence[bytes]) -> None:
        """These events are on their way."""
        if frames:
            self._events.inc(len(frames))
            for frame in frames:
                self._sizes.observe(len(frame))

    def listed(self, seconds: float) -> None:
        """All of the state was sent, after so many seconds."""
        WATCH_LISTS[(*self._what, self._scope)].observe(seconds)


# Queues ---------------------------------------------------------------------------------------------------------------


class Queued(Protocol):
    """The queues of one lane (`manciple.api.flow_control.FairQueues`)."""

    counts: dict[Level, FlowCounts]


_lanes: weakref.WeakKeyDictionary[Queued, str] = weakref.WeakKeyDictionary()


def watch_queues(lane: str, queues: Queued) -> None:
    """Tell of `queues` as well."""
    _lanes[queues] = lane


def _of_queues() -> Iterable[Metric]:
    yield metrics.gauges(
        "apiserver_current_inflight_requests",
        "Requests that are being served.",
        ("request_kind",),
        metrics.by_one(dict(INFLIGHT.served)),
    )
    yield metrics.gauges(
        "apiserver_current_inqueue_requests",
        "Requests that wait for a thread.",
        ("request_kind",),
        metrics.by_one(dict(INFLIGHT.waiting)),
    )
    # A name has one row: of several lanes of that name, the first.
    lanes = {lane: queues for queues, lane in reversed(list(_lanes.items()))}
    flows = [((level, lane), counts) for lane, one in lanes.items() for level, counts in one.counts.items()]
    labels, prefix = ("priority_level", "flow_schema"), "apiserver_flowcontrol_"
    said = "of each level of priority, in each lane of threads"
    yield metrics.counters(
        f"{prefix}dispatched_requests",
        f"Requests that got a thread, {said}.",
        labels,
        ((of, one.dispatched) for of, one in flows),
    )
    yield metrics.gauges(
        f"{prefix}current_inqueue_requests",
        f"Requests that wait, {said}.",
        labels,
        ((of, one.waiting) for of, one in flows),
    )
    yield metrics.gauges(
        f"{prefix}current_executing_requests",
        f"Requests that have a thread, {said}.",
        labels,
        ((of, one.executing) for of, one in flows),
    )
    yield metrics.counters(
        f"{prefix}rejected_requests",
        f"Requests refused because a queue was full, {said}.",
        (*labels, "reason"),
        (((*of, why), count) for of, one in flows for why, count in dict(one.refused).items()),
    )


metrics.OnDemand(_of_queues)
