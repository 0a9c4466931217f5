"""An HTTP client of the API server: typed objects in and out, every failure an `ApiFailure`.

One client serves all threads of an agent. A watch is a stream that a thread blocks on; `Watch.interrupt` ends it from
another thread by shutting its socket down, so that stopping an agent waits for nobody.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import httpx
import msgspec
from msgspec.structs import replace

from manciple.wire import codec
from nodeagent.failures import ApiFailure
from nodeagent.resources import Object, Resource
from nodeagent.tokens import Token

#: Seconds to wait for a connection, and for an answer that is not a watch.
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 30.0
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=8)
#: A server that vanished without a word, as one that lost its power, is noticed 25 s later, even by a silent watch.
SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
#: Objects a page when listing.
PAGE = 500

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

# httpx reports every request at INFO, which would drown an embedding process's log.
logging.getLogger("httpx").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Listing(Generic[Object]):
    """A list at one revision; a watch from `resource_version` continues it without a gap."""

    items: tuple[Object, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Change(Generic[Object]):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK (of which only the revision counts)."""

    type: str
    object: Object


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_lists = msgspec.json.Decoder(_List)
_events = msgspec.json.Decoder(_Event)
_statuses = msgspec.json.Decoder(_Status)


class Watch(Generic[Object]):
    """An open watch. Iterate it in one thread; `interrupt` it from any."""

    def __init__(self, response: httpx.Response, resource: Resource[Object]) -> None:
        self._response = response
        self._resource = resource

    def __iter__(self) -> Iterator[Change[Object]]:
        """Ends when the server ends the watch. Raises: ApiFailure (410 Expired among them)."""
        with _failures(f"watch {self._resource.plural}"):
            for line in self._response.iter_lines():
                event = _events.decode(line)
                if event.type == "ERROR":
                    raise _failure_of(bytes(event.object), 500)
                yield Change(event.type, codec.decode_text(self._resource.type, bytes(event.object)))

    def interrupt(self) -> None:
        """End the iteration. Shutting the socket down wakes the reader; closing it would not."""
        stream = self._response.extensions.get("network_stream")
        sock = stream.get_extra_info("socket") if stream is not None else None
        if sock is None:
            self._response.stream.close()  # type: ignore[union-attr]  # a sync client's streams are sync
            return
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Client:
    """Talks to one API server with one identity. `server`: https://host:port; `ca_file`: the CA that signed it.

    requested: told of every request, by method and status code; "<error>" where no answer came.
    """

    def __init__(
        self,
        server: str,
        *,
        token: Token,
        ca_file: Path | None = None,
        user_agent: str = "manciple-nodeagent",
        transport: httpx.BaseTransport | None = None,
        requested: Callable[[str, str], None] = lambda _method, _code: None,
    ) -> None:
        self.server = server
        self._requested = requested
        self._token = token
        self._http = httpx.Client(
            base_url=server,
            headers={"Accept": JSON, "User-Agent": user_agent},
            auth=self._authorized,
            timeout=httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
            transport=transport
            or httpx.HTTPTransport(verify=_trust(server, ca_file), limits=LIMITS, socket_options=SOCKET_OPTIONS),
        )

    def close(self) -> None:
        self._http.close()

    def _authorized(self, request: httpx.Request) -> httpx.Request:
        token = self._token if isinstance(self._token, str) else self._token()
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    def get(self, resource: Resource[Object], name: str, *, namespace: str = "") -> Object:
        return self._object(resource, "GET", resource.path(namespace=namespace, name=name))

    def list(self, resource: Resource[Object], *, namespace: str = "", field_selector: str = "") -> Listing[Object]:
        """Everything that matches, page by page."""
        items: list[Object] = []
        page = _ListMeta()
        while True:
            params = _params(limit=str(PAGE), fieldSelector=field_selector, **{"continue": page.continue_})
            body = self._call("GET", resource.path(namespace=namespace), params=params)
            with _failures("reading a list"):
                answer = _lists.decode(body)
            items += (codec.decode_text(resource.type, bytes(item)) for item in answer.items)
            page = answer.metadata
            if not page.continue_:
                return Listing(tuple(items), page.resource_version)

    def create(self, resource: Resource[Object], obj: Object) -> Object:
        return self._object(
            resource, "POST", resource.path(namespace=obj.metadata.namespace), body=_body(resource, obj)
        )

    def update(self, resource: Resource[Object], obj: Object, *, subresource: str = "") -> Object:
        """Replace the object; its resourceVersion, where set, must be the current one, else Conflict."""
        meta = obj.metadata
        path = resource.path(namespace=meta.namespace, name=meta.name, subresource=subresource)
        return self._object(resource, "PUT", path, body=_body(resource, obj))

    def patch(self, resource: Resource[Object], name: str, patch: Mapping[str, Any], *, namespace: str = "") -> Object:
        """Merge `patch` into the object (RFC 7386)."""
        body = msgspec.json.encode(patch)
        path = resource.path(namespace=namespace, name=name)
        return self._object(resource, "PATCH", path, body=body, content_type=MERGE_PATCH)

    def delete(self, resource: Resource[Any], name: str, *, namespace: str, uid: str, grace_seconds: int) -> None:
        """Delete the object, if it is still the one with `uid`, else Conflict."""
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": grace_seconds,
            "preconditions": {"uid": uid},
        }
        self._call("DELETE", resource.path(namespace=namespace, name=name), body=msgspec.json.encode(options))

    def delete_by_name(self, resource: Resource[Any], name: str) -> None:
        """Delete a cluster-scoped object, whichever it is."""
        self._call("DELETE", resource.path(name=name))

    def delete_collection(self, resource: Resource[Any], *, field_selector: str) -> None:
        self._call("DELETE", resource.path(), params=_params(fieldSelector=field_selector))

    @contextmanager
    def watch(
        self, resource: Resource[Object], *, field_selector: str, resource_version: str, seconds: int
    ) -> Iterator[Watch[Object]]:
        """Follow changes after `resource_version` until the server ends the watch, at most `seconds` later."""
        params = _params(
            watch="true",
            allowWatchBookmarks="true",
            fieldSelector=field_selector,
            resourceVersion=resource_version,
            timeoutSeconds=str(seconds),
        )
        timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT, read=seconds + READ_TIMEOUT)
        with _failures(f"watch {resource.plural}"):
            stream = self._http.stream("GET", resource.path(), params=params, timeout=timeout)
            with self._counted("WATCH"), stream as response:
                self._requested("WATCH", str(response.status_code))
                if response.status_code >= httpx.codes.BAD_REQUEST:
                    raise _failure_of(response.read(), response.status_code)
                yield Watch(response, resource)

    def _object(
        self, resource: Resource[Object], method: str, path: str, *, body: bytes | None = None, content_type: str = JSON
    ) -> Object:
        answer = self._call(method, path, body=body, content_type=content_type)
        with _failures(f"{method} {path}"):
            return codec.decode_text(resource.type, answer)

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> bytes:
        headers = {"Content-Type": content_type} if body is not None else None
        with _failures(f"{method} {path}"), self._counted(method):
            response = self._http.request(method, path, params=params, content=body, headers=headers)
        self._requested(method, str(response.status_code))
        if response.status_code >= httpx.codes.BAD_REQUEST:
            raise _failure_of(response.content, response.status_code)
        return response.content

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        """Tell of requests that are not answered."""
        try:
            yield
        except httpx.HTTPError:
            self._requested(method, "<error>")
            raise


def _trust(server: str, ca_file: Path | None) -> ssl.SSLContext | bool:
    """Whose certificates to believe; reading the system's takes long enough not to do it for plain http."""
    if not server.startswith("https:"):
        return False
    return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)


def _params(**given: str) -> dict[str, str]:
    return {name: value for name, value in given.items() if value}


def _body(resource: Resource[Object], obj: Object) -> bytes:
    return codec.encode(replace(obj, api_version=resource.api_version, kind=resource.kind))


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Make what httpx and the decoder raise an ApiFailure."""
    try:
        yield
    except httpx.HTTPError as error:
        raise ApiFailure(
            f"{what}: no answer from the API server: {error}", code=0, reason="ConnectionFailed"
        ) from error
    except (httpx.StreamError, msgspec.MsgspecError) as error:
        raise ApiFailure(f"{what}: the answer cannot be read: {error}", code=0, reason="BadAnswer") from error


def _failure_of(body: bytes, code: int) -> ApiFailure:
    try:
        status = _statuses.decode(body)
    except msgspec.MsgspecError:
        status = _Status()
    message = status.message or f"the API server answered {code}"
    return ApiFailure(message, code=status.code or code, reason=status.reason or "Unknown")
