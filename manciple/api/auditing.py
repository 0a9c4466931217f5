"""What the audit trail is told of requests: every one gets an id and an origin, and what it came to is told at its end.

    asgi: every HTTP request    `begin` notes where it comes from; the answer carries its Audit-Id
    Django, API and pages       `Audited`, the outermost middleware: writes of the request are noted as its own, and at
                                its end the trail is told of a refusal, a failure, or a success without a write
    each write of a page        `page_write`, because the page's own request names no object
    everything else             watches, logs, what is refused before a thread is taken: told when the answer begins

A write that was made is in the log already, with the origin's note. Of reads only those of confidential kinds are told,
and those that were refused. Messages that could quote a confidential document are left out; bodies never go anywhere.
Sources: apiserver/pkg/endpoints/filters/audit_init.go, .../audit.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse

from manciple.api.door import ORIGIN, PEER
from manciple.api.requests import ResourcePath, parse_path
from manciple.audit import trail
from manciple.audit.happenings import REFUSED, Happened
from manciple.store import hooks
from manciple.store.origins import Origin
from manciple.wire.base import new_uid
from manciple.wire.errors import ApiError
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import Kind, registry

HEADER = "Audit-Id"

#: A client may name its request, to find it again; what looks otherwise is not taken over.
_CLIENTS_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
#: version, trace, span, flags; neither id may be zero (https://www.w3.org/TR/trace-context).
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_WRITING = frozenset({"create", "update", "patch", "delete", "deletecollection"})
UNAUTHORIZED, FORBIDDEN = 401, 403
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
        with hooks.collecting(origin):
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
        return code >= REFUSED or not where.plural.endswith("reviews")
    return code < REFUSED and _is_confidential(where)


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
    request = hooks.origin()
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
        with hooks.noting(part):
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
    if (request := hooks.origin()) is not None:
        request.dry_run = True


def note_denial(verb: str, resource: str, *, identity: Identity, namespace: str, name: str, message: str) -> None:
    """A page has refused what its request asks for: this verb on this resource (`pods`, `pods/log`)."""
    request = hooks.origin()
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


class NotingSocket:
    """The `send` of a WebSocket: the trail is told where it is refused. unknown: closes those of nobody.

    A page's socket is accepted before it is closed, or the browser would not tell its script the reason; one that is
    closed later, because its session has ended, was not refused.
    """

    def __init__(self, scope: Any, send: Any, *, unknown: int) -> None:
        self._origin = begin_in(scope)
        self._path: str = scope["path"]
        self._send = send
        self._unknown = unknown
        self._accepted = self._heard = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "websocket.close" and not self._heard:
            self._note(message.get("code"))
        self._accepted |= message["type"] == "websocket.accept"
        self._heard |= message["type"] == "websocket.send"
        await self._send(message)

    def _note(self, code: int | None) -> None:
        """A code of its own says that the server could not serve it now."""
        if code == self._unknown:
            conclude(self._origin, self._path, code=UNAUTHORIZED, body=b"")
        elif code is None and not self._accepted:
            conclude(self._origin, self._path, code=FORBIDDEN, body=b"")
