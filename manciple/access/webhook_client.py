"""Calls of webhooks: JSON is posted over HTTPS, and what comes back is read within bounds.

A configuration is somebody else's word, and the API server stands where its author does not: the address must pass
`manciple.access.addresses`, the certificate must be vouched for by the configuration's caBundle (or the system), no
redirect is followed and no proxy asked, and what is read is bounded in size and time.

    answer = webhook_client.call([Call(config, body, seconds=10)])[0]     # bytes, or CallFailed

Whoever calls waits, a thread of the API as a rule. So that slow webhooks leave threads to requests that need none, only
some may wait at a time.

A Service is resolved to the ready endpoints of its EndpointSlices. Only pods of its namespace are called, through the
agents of their nodes, because nothing routes the addresses of Services and pods: no address that a slice names is
connected to. The certificate has to be that of NAME.NAMESPACE.svc.
Sources: apiserver/pkg/util/webhook/{client,serviceresolver}.go; kube-aggregator/pkg/apiserver/resolvers.go.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from django.conf import settings

from manciple.access import addresses
from manciple.access.addresses import AddressRefused
from manciple.access.kinds.webhook_clients import HTTPS_PORT, ClientConfig, ServiceAddress
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.base import RANDOM
from manciple.wire.errors import ApiError, TooManyRequests
from manciple.wire.registry import registry
from manciple.wire.selectors import parse_label_selector

if TYPE_CHECKING:
    import httpx

#: Bytes of an answer that are read.
ANSWER_MAX = 1024 * 1024
#: EndpointSlices of a Service that are read for a call.
SLICES_READ = 10
#: Endpoints of a Service that are tried.
ENDPOINTS_TRIED = 3
#: How long a request waits, in seconds, while too many others wait for webhooks. Then it is answered 429.
PLACE_SECONDS = 1.0
#: Bytes that are passed on at once between a webhook in a pod and its caller.
PORTION = 64 * 1024
_OK = range(200, 300)


class CallFailed(Exception):
    """A webhook could not be asked, or gave no answer; `why` is for a person."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Call:
    """seconds: until the answer must be complete; with_timeout: whether the URL tells the webhook of them."""

    config: ClientConfig
    body: bytes
    seconds: float
    with_timeout: bool = True
    answer_max: int | None = None


class PodStream(Protocol):
    """A connection to a port of a pod."""

    async def send(self, data: bytes) -> None:
        """Raises: OSError."""

    async def receive(self) -> bytes:
        """b"" at the end. Raises: OSError."""
        ...


#: (namespace, name, uid, port) -> a connection to that pod, to be entered once. Raises: ApiError, also on entering.
PodConnector = Callable[[str, str, str, int], AbstractAsyncContextManager[PodStream]]
_pod_connectors: list[PodConnector] = []


def reach_pods_by(connector: PodConnector) -> None:
    """Called once, by the app that knows how."""
    _pod_connectors[:] = [connector]


@dataclass(frozen=True, slots=True)
class _Target:
    """url: as errors show it. pods: connections to those behind a Service; None where the URL's host is called."""

    url: str
    pods: Sequence[AbstractAsyncContextManager[PodStream]] | None = None


#: Who waits for webhooks in this process, at most: three in four threads of the API.
_places = PerProcess(lambda: threading.BoundedSemaphore(max(1, settings.API_THREADS * 3 // 4)))


def call(calls: Sequence[Call]) -> list[bytes | CallFailed]:
    """The answers, in order; all are asked at once. Each call ends by its own timeout.

    Raises: TooManyRequests where too many wait already.
    """
    prepared = [(one, _target(one)) for one in calls]
    if not _places.value.acquire(timeout=PLACE_SECONDS):
        raise TooManyRequests("too many requests wait for webhooks; please try again", details={"retryAfterSeconds": 1})
    try:
        return asyncio.run_coroutine_threadsafe(_call_all(prepared), _loop.value).result()
    finally:
        _places.value.release()


# Where to -------------------------------------------------------------------------------------------------------------


def _target(one: Call) -> _Target | CallFailed:
    query = f"?timeout={max(1, round(one.seconds))}s" if one.with_timeout else ""
    service = one.config.service
    if service is None:
        return _Target(f"{one.config.url}{query}")
    port = HTTPS_PORT if service.port is None else service.port
    path = service.path or ""
    url = f"https://{service.name}.{service.namespace}.svc:{port}{path if path.startswith('/') else f'/{path}'}{query}"
    try:
        return _Target(url, _pods(service, port))
    except (CallFailed, ApiError) as error:
        return CallFailed(f'failed to call webhook: Post "{url}": {_why(error)}')


def _pods(service: ServiceAddress, port: int) -> Sequence[AbstractAsyncContextManager[PodStream]]:
    """Connections to some of the Service's pods.

    Raises: CallFailed; ApiError where none of these pods can be connected to.
    """
    kind = registry.by_resource("services")
    stored = objects.get(kind, service.namespace, service.name)
    if stored is None:
        raise CallFailed(f'service "{service.name}" not found')
    document = codec.to_builtins(objects.decode(kind, stored.text))
    ports = [one for one in document.get("spec", {}).get("ports", ()) if one.get("port") == port]
    if not ports:
        raise CallFailed(f'no service port {port} found for service "{service.name}"')
    endpoints = list(_ready(service, ports[0].get("name") or ""))
    if not endpoints:
        raise CallFailed(f'no endpoints available for service "{service.name}" (of pods in its namespace)')
    found, failure = [], None
    for name, uid, at in RANDOM.value.sample(endpoints, min(len(endpoints), ENDPOINTS_TRIED)):
        try:
            found.append(_pod_connectors[0](service.namespace, name, uid, at))
        except ApiError as error:
            failure = error
    if failure is not None and not found:
        raise failure
    return found


def _ready(service: ServiceAddress, port_name: str) -> Iterator[tuple[str, str, int]]:
    """(name, uid, port) of the pods that are ready, at the port of that name."""
    kind = registry.by_resource("endpointslices.discovery.k8s.io")
    labels = parse_label_selector(f"kubernetes.io/service-name={service.name}")
    for stored in objects.list(kind, namespace=service.namespace, labels=labels, limit=SLICES_READ).items:
        piece = codec.to_builtins(objects.decode(kind, stored.text))
        ports = [
            one["port"] for one in piece.get("ports") or () if (one.get("name") or "") == port_name and "port" in one
        ]
        for endpoint in piece.get("endpoints") or ():
            target = endpoint.get("targetRef") or {}
            is_pod = (target.get("kind"), target.get("namespace")) == ("Pod", service.namespace)
            if is_pod and (endpoint.get("conditions") or {}).get("ready") is not False:
                yield from ((target.get("name", ""), target.get("uid", ""), port) for port in ports)


# The call -------------------------------------------------------------------------------------------------------------


def _started_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="webhooks", daemon=True).start()
    return loop


#: Calls webhooks in a thread of its own, so that no request waits for a silent name server.
_loop = PerProcess(_started_loop, stop=lambda loop: loop.call_soon_threadsafe(loop.stop))


async def _call_all(calls: Sequence[tuple[Call, _Target | CallFailed]]) -> list[bytes | CallFailed]:
    return list(await asyncio.gather(*(_called(*one) for one in calls)))


async def _called(one: Call, target: _Target | CallFailed) -> bytes | CallFailed:
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    if isinstance(target, CallFailed):
        return target
    try:
        async with asyncio.timeout(one.seconds):
            return await (_posted(one, target.url) if target.pods is None else _posted_to_pod(one, target))
    except TimeoutError:
        return CallFailed(f'failed to call webhook: Post "{target.url}": context deadline exceeded')
    except (httpx.HTTPError, ssl.SSLError, OSError, AddressRefused, ApiError, CallFailed) as error:
        return CallFailed(f'failed to call webhook: Post "{target.url}": {_why(error)}')


def _why(error: Exception) -> str:
    return error.message if isinstance(error, ApiError) else str(error) or type(error).__name__


async def _posted(one: Call, url: str) -> bytes:
    """The body of the answer. Raises: CallFailed and what the network raises."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or HTTPS_PORT
    query = f"?{parts.query}" if parts.query else ""
    failure: httpx.ConnectError | None = None
    for address in await addresses.resolve_async(host, port):
        there = f"https://{addresses.in_url(address)}:{port}{parts.path or '/'}{query}"
        transport = httpx.AsyncHTTPTransport(verify=_trusted(one.config.ca_bundle))
        try:
            return await _post(one, there, transport, netloc=parts.netloc, host=host)
        except httpx.ConnectError as error:
            failure = error
    raise failure or CallFailed("no address")


async def _posted_to_pod(one: Call, target: _Target) -> bytes:
    """As `_posted`. TLS is with the program in the pod: the agent passes on what it cannot read."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    parts = urlsplit(target.url)
    trusted = _trusted(one.config.ca_bundle)
    failure: ApiError | httpx.ConnectError | None = None
    for pod in target.pods or ():
        try:
            async with pod as stream, _local_socket(stream) as path:
                transport = httpx.AsyncHTTPTransport(verify=trusted, uds=path)
                return await _post(one, target.url, transport, netloc=parts.netloc, host=parts.hostname or "")
        except (ApiError, httpx.ConnectError) as error:
            failure = error
    raise failure or CallFailed("no pod")


@asynccontextmanager
async def _local_socket(stream: PodStream) -> AsyncIterator[str]:
    """The path of a socket, in a folder that is this process's, by which the HTTP client reaches the pod."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inwards = asyncio.ensure_future(_inwards(stream, writer))
        with suppress(OSError):
            while data := await reader.read(PORTION):
                await stream.send(data)
        inwards.cancel()
        writer.close()

    with tempfile.TemporaryDirectory(prefix="webhook-") as folder:
        path = str(Path(folder, "pod"))
        server = await asyncio.start_unix_server(pass_on, path)
        try:
            yield path
        finally:
            server.close()


async def _inwards(stream: PodStream, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await stream.receive():
            writer.write(data)
            await writer.drain()
    writer.close()


async def _post(one: Call, url: str, transport: httpx.AsyncHTTPTransport, *, netloc: str, host: str) -> bytes:
    """netloc, host: of the webhook's own URL, whatever address is called."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    headers = {"Host": netloc, "Content-Type": "application/json", "Accept-Encoding": "identity"}
    named = {"sni_hostname": host}
    # The clock of the whole call runs outside.
    async with (
        httpx.AsyncClient(transport=transport, trust_env=False, timeout=one.seconds) as client,
        client.stream("POST", url, content=one.body, headers=headers, extensions=named) as answer,
    ):
        return await _read(answer, one.answer_max or ANSWER_MAX)


async def _read(answer: httpx.Response, most: int) -> bytes:
    content = bytearray()
    async for piece in answer.aiter_raw():
        content += piece
        if len(content) > most:
            raise CallFailed(f"the answer is longer than {most} bytes")
    if answer.status_code not in _OK:
        # Not its text: who may write configurations may not read what other servers say.
        raise CallFailed(f"the webhook answered with status {answer.status_code}")
    return bytes(content)


@lru_cache(maxsize=64)
def _trusted(ca_bundle: str) -> ssl.SSLContext:
    """Who may vouch for it: the bundle (base64 of PEM), or the system where it is empty. Raises: CallFailed."""
    if not ca_bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode())
    except (binascii.Error, ValueError, ssl.SSLError) as error:
        raise CallFailed(f"clientConfig.caBundle holds no certificates in PEM: {error}") from None
