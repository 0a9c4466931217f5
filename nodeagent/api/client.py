"""The agent's way to the API server: typed objects in and out, every failure an `ApiFailure`.

One client serves all threads of an agent. A watch is a stream that a thread blocks on; `Watch.interrupt` ends it from
another thread by shutting its socket down, so that stopping an agent waits for nobody.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec.structs import replace

from claims.kinds.persistent_volumes import PersistentVolume
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.kinds.volume_claims import PersistentVolumeClaim
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from manciple.access.kinds.secrets import ConfigMap, Secret
from manciple.wire import codec
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.machinery import Event, Lease
from manciple.wire.reviews import TokenReview
from manciple.wire.validation import check_path_segment
from nodeagent.config import ClientFiles, Token
from nodeagent.failures import ApiFailure

Object = TypeVar("Object", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class ApiResource(Generic[Object]):
    """One resource of the API."""

    type: type[Object]
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def kind(self) -> str:
        return self.type.__name__

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path; without a namespace, all namespaces of a namespaced resource.

        Raises: ApiFailure for a name that would lead to another object. Pods name Secrets and ConfigMaps as they like.
        """
        for text in (namespace, name):
            if wrong := check_path_segment(text):
                raise ApiFailure(f'invalid resource name "{text}": [{" ".join(wrong)}]', code=400, reason="BadRequest")
        root = "/apis/" if "/" in self.api_version else "/api/"
        scope = ("namespaces", namespace) if self.namespaced and namespace else ()
        parts = (*scope, self.plural, quote(name, safe=":"), subresource)
        return root + "/".join(part for part in (self.api_version, *parts) if part)


PODS = ApiResource(Pod, "v1", "pods")
NODES = ApiResource(Node, "v1", "nodes", namespaced=False)
EVENTS = ApiResource(Event, "v1", "events")
LEASES = ApiResource(Lease, "coordination.k8s.io/v1", "leases")
CLAIMS = ApiResource(ResourceClaim, "resource.k8s.io/v1", "resourceclaims")
SECRETS = ApiResource(Secret, "v1", "secrets")
CONFIG_MAPS = ApiResource(ConfigMap, "v1", "configmaps")
TOKEN_REVIEWS = ApiResource(TokenReview, "authentication.k8s.io/v1", "tokenreviews", namespaced=False)
VOLUMES = ApiResource(PersistentVolume, "v1", "persistentvolumes", namespaced=False)
VOLUME_CLAIMS = ApiResource(PersistentVolumeClaim, "v1", "persistentvolumeclaims")
SLICES = ApiResource(ResourceSlice, "resource.k8s.io/v1", "resourceslices", namespaced=False)


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
class WatchEvent(Generic[Object]):
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


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    kind: str = ""
    causes: tuple[_Cause, ...] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_lists = msgspec.json.Decoder(_List)
_events = msgspec.json.Decoder(_Event)
_statuses = msgspec.json.Decoder(_Status)


class OpenWatch(Generic[Object]):
    """An open watch. Iterate it in one thread; `interrupt` it from any."""

    def __init__(self, response: httpx.Response, resource: ApiResource[Object]) -> None:
        self._response = response
        self._resource = resource

    def __iter__(self) -> Iterator[WatchEvent[Object]]:
        """Ends when the server ends the watch. Raises: ApiFailure (410 Expired among them)."""
        with _failures(f"watch {self._resource.plural}"):
            for line in self._response.iter_lines():
                event = _events.decode(line)
                if event.type == "ERROR":
                    raise _failure_of(bytes(event.object), 500)
                yield WatchEvent(event.type, codec.decode_text(self._resource.type, bytes(event.object)))

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

    token, certificate: by which it comes. requested: told of every request, by method and status code; "<error>" where
    no answer came.
    """

    def __init__(
        self,
        server: str,
        *,
        token: Token | None,
        certificate: ClientFiles | None = None,
        ca_file: Path | None = None,
        user_agent: str = "manciple-nodeagent",
        transport: httpx.BaseTransport | None = None,
        requested: Callable[[str, str], None] = lambda _method, _code: None,
    ) -> None:
        self.server = server
        self._requested = requested
        self._token = token
        self._open: Callable[[], httpx.Client] = lambda: httpx.Client(
            base_url=server,
            headers={"Accept": JSON, "User-Agent": user_agent},
            auth=self._authorized,
            timeout=httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
            transport=transport or _network(server, ca_file, certificate),
        )
        self._http = self._open()
        self._before: httpx.Client | None = None

    def renew(self) -> None:
        """Come by the certificate that is in the files now, on new connections. Raises: OSError.

        Those before are left to who still reads from them, until the next time.
        """
        opened, over = self._open(), self._before
        self._http, self._before = opened, self._http
        if over is not None:
            over.close()

    def close(self) -> None:
        for http in (self._http, self._before):
            if http is not None:
                http.close()

    def _authorized(self, request: httpx.Request) -> httpx.Request:
        if token := self._token() if callable(self._token) else self._token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    def get(self, resource: ApiResource[Object], name: str, *, namespace: str = "") -> Object:
        return self._object(resource, "GET", resource.path(namespace=namespace, name=name))

    def list(
        self,
        resource: ApiResource[Object],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> Listing[Object]:
        """Everything that matches, page by page."""
        items: list[Object] = []
        page = _ListMeta()
        while True:
            params = _params(
                limit=str(PAGE),
                fieldSelector=field_selector,
                labelSelector=label_selector,
                **{"continue": page.continue_},
            )
            body = self._call("GET", resource.path(namespace=namespace), params=params)
            with _failures("reading a list"):
                answer = _lists.decode(body)
            items += (codec.decode_text(resource.type, bytes(item)) for item in answer.items)
            page = answer.metadata
            if not page.continue_:
                return Listing(tuple(items), page.resource_version)

    def create(self, resource: ApiResource[Object], obj: Object) -> Object:
        return self._object(
            resource, "POST", resource.path(namespace=obj.metadata.namespace), body=_body(resource, obj)
        )

    def connect(self, resource: ApiResource[Any], subresource: str, asked: ApiResource[Object], obj: Object) -> Object:
        """Post `obj`, which is of `asked` and named after an object of `resource`, to that object's subresource."""
        meta = obj.metadata
        path = resource.path(namespace=meta.namespace, name=meta.name, subresource=subresource)
        return self._object(asked, "POST", path, body=_body(asked, obj))

    def post(self, resource: ApiResource[Any], subresource: str, asked: ApiResource[Object], obj: Object) -> None:
        """The same where the answer only says that all went well."""
        meta = obj.metadata
        path = resource.path(namespace=meta.namespace, name=meta.name, subresource=subresource)
        self._call("POST", path, body=_body(asked, obj))

    def update(self, resource: ApiResource[Object], obj: Object, *, subresource: str = "") -> Object:
        """Replace the object; its resourceVersion, where set, must be the current one, else Conflict."""
        meta = obj.metadata
        path = resource.path(namespace=meta.namespace, name=meta.name, subresource=subresource)
        return self._object(resource, "PUT", path, body=_body(resource, obj))

    def patch(
        self, resource: ApiResource[Object], name: str, patch: Mapping[str, Any], *, namespace: str = ""
    ) -> Object:
        """Merge `patch` into the object (RFC 7386)."""
        body = msgspec.json.encode(patch)
        path = resource.path(namespace=namespace, name=name)
        return self._object(resource, "PATCH", path, body=body, content_type=MERGE_PATCH)

    def delete(self, resource: ApiResource[Any], name: str, *, namespace: str, uid: str, grace_seconds: int) -> None:
        """Delete the object, if it is still the one with `uid`, else Conflict."""
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": grace_seconds,
            "preconditions": {"uid": uid},
        }
        self._call("DELETE", resource.path(namespace=namespace, name=name), body=msgspec.json.encode(options))

    def delete_by_name(self, resource: ApiResource[Any], name: str) -> None:
        """Delete a cluster-scoped object, whichever it is."""
        self._call("DELETE", resource.path(name=name))

    def delete_collection(self, resource: ApiResource[Any], *, field_selector: str) -> None:
        self._call("DELETE", resource.path(), params=_params(fieldSelector=field_selector))

    @contextmanager
    def watch(
        self,
        resource: ApiResource[Object],
        *,
        field_selector: str = "",
        label_selector: str = "",
        resource_version: str,
        seconds: int,
    ) -> Iterator[OpenWatch[Object]]:
        """Follow changes after `resource_version` until the server ends the watch, at most `seconds` later."""
        params = _params(
            watch="true",
            allowWatchBookmarks="true",
            fieldSelector=field_selector,
            labelSelector=label_selector,
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
                yield OpenWatch(response, resource)

    def _object(
        self,
        resource: ApiResource[Object],
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
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


def _network(server: str, ca_file: Path | None, certificate: ClientFiles | None) -> httpx.HTTPTransport:
    """Raises: OSError. Reading the system's authorities takes long enough not to do it for plain http."""
    verify: ssl.SSLContext | bool = False
    if server.startswith("https:"):
        verify = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        if certificate is not None:
            verify.load_cert_chain(certificate.certificate, certificate.key)
    return httpx.HTTPTransport(verify=verify, limits=LIMITS, socket_options=SOCKET_OPTIONS)


def _params(**given: str) -> dict[str, str]:
    return {name: value for name, value in given.items() if value}


def _body(resource: ApiResource[Object], obj: Object) -> bytes:
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
    details = status.details or _Details()
    ends = any(cause.reason == "NamespaceTerminating" for cause in details.causes or ())
    return ApiFailure(
        message,
        code=status.code or code,
        reason=status.reason or "Unknown",
        namespace_ends=ends or (status.reason == "NotFound" and details.kind == "namespaces"),
    )


# A list gives a revision, from which the watch continues. After a broken connection the watch is opened again at the
# last revision seen; only if that has been pruned (410) is everything listed again. Retries back off.

log = logging.getLogger(__name__)

#: Seconds after which a watch is opened anew; spread, so that a fleet does not come back at once.
WATCH_SECONDS = (300, 600)
#: Short enough for an agent to be at work again half a minute after a server that was away.
LONGEST_DELAY = 10.0


class WatchFollower(Generic[Object]):
    """Calls `replace` with every full list and `change` with every event in between, in one thread, in order.

    returned: called when the server answers again after it did not.
    """

    def __init__(
        self,
        client: Client,
        resource: ApiResource[Object],
        *,
        field_selector: str = "",
        label_selector: str = "",
        replace: Callable[[Sequence[Object]], None],
        change: Callable[[WatchEvent[Object]], None],
        returned: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._replace = replace
        self._change = change
        self._returned = returned
        self._away = False
        self._version = ""
        self._watch: OpenWatch[Object] | None = None
        self._stop = threading.Event()

    def run(self) -> None:
        """Follow until `stop`."""
        failures = 0
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self._round()
            except ApiFailure as failure:
                self._note(failure)
            # A round that ends at once did no good, whatever it says.
            failures = failures + 1 if time.monotonic() - started < 1.0 else 0
            delay = min(0.1 * 2.0 ** min(failures, 10), LONGEST_DELAY) if failures else 0.0
            self._stop.wait(delay * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing

    def stop(self) -> None:
        """Make `run` return, also out of a watch on which nothing happens."""
        self._stop.set()
        if (watch := self._watch) is not None:
            watch.interrupt()

    def relist(self) -> None:
        """Take everything anew; the next watch continues from there. Raises: ApiFailure."""
        listing = self._client.list(
            self._resource, field_selector=self._field_selector, label_selector=self._label_selector
        )
        self._replace(listing.items)
        self._version = listing.resource_version

    def _round(self) -> None:
        """One watch, after a list where none continues."""
        if not self._version:
            self.relist()
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - spreads load, guards nothing
        with self._client.watch(
            self._resource,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
            resource_version=self._version,
            seconds=seconds,
        ) as watch:
            self._watch = watch
            try:
                self._note_answer()
                # `stop` may have come before it could see the watch.
                if not self._stop.is_set():
                    self._consume(watch)
            finally:
                self._watch = None

    def _consume(self, watch: OpenWatch[Object]) -> None:
        for change in watch:
            if change.type != "BOOKMARK":
                self._change(change)
            self._version = change.object.metadata.resource_version
            if self._stop.is_set():
                return

    def _note_answer(self) -> None:
        if self._away:
            self._away = False
            self._returned()

    def _note(self, failure: ApiFailure) -> None:
        if failure.expired:
            self._version = ""
        elif not failure.code:
            self._away = True
        if not self._stop.is_set():
            level = logging.DEBUG if failure.expired else logging.WARNING
            log.log(level, "following %s: %s; trying again", self._resource.plural, failure)


def seconds_text(now: float) -> str:
    """POSIX seconds as metav1.Time."""
    return timestamp(datetime.fromtimestamp(int(now), UTC))


def posix_seconds(text: str | None) -> float:
    """A metav1.Time as POSIX seconds; 0 where there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
