"""Calls of webhooks: JSON is posted over HTTPS, and what comes back is read within bounds.

A configuration is somebody else's word, and the API server stands where its author does not: the address must pass
`manciple.access.addresses`, the certificate must be vouched for by the configuration's caBundle (or the system), no
redirect is followed and no proxy asked, and what is read is bounded in size and time.

    answer = webhook_client.call([Call(config, body, seconds=10)])[0]     # bytes, or CallFailed

A Service is resolved to the ready endpoints of its EndpointSlices, because nothing here routes cluster IPs; the
certificate has to be that of NAME.NAMESPACE.svc.
Sources: apiserver/pkg/util/webhook/{client,serviceresolver}.go; kube-aggregator/pkg/apiserver/resolvers.go.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from manciple.access import addresses
from manciple.access.addresses import AddressPolicy, AddressRefused
from manciple.access.kinds.webhook_clients import HTTPS_PORT, ClientConfig, ServiceAddress
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.base import RANDOM
from manciple.wire.registry import registry
from manciple.wire.selectors import parse_label_selector

if TYPE_CHECKING:
    import httpx

#: Bytes of an answer that are read.
ANSWER_MAX = 1024 * 1024
#: Endpoints of a Service that are tried.
ENDPOINTS_TRIED = 3
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


@dataclass(frozen=True, slots=True)
class _Target:
    """url: as errors show it. endpoints: (address, port) of a Service; None where the host is to be resolved."""

    url: str
    endpoints: Sequence[tuple[str, int]] | None = None


def call(calls: Sequence[Call]) -> list[bytes | CallFailed]:
    """The answers, in order; all are asked at once. Each call ends by its own timeout."""
    prepared = [(one, _target(one)) for one in calls]
    return asyncio.run_coroutine_threadsafe(_call_all(prepared), _loop.value).result()


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
        return _Target(url, _endpoints(service, port))
    except CallFailed as error:
        return CallFailed(f'failed to call webhook: Post "{url}": {error.why}')


def _endpoints(service: ServiceAddress, port: int) -> Sequence[tuple[str, int]]:
    """Raises: CallFailed."""
    services, slices = registry.find("", "v1", "services"), registry.find("discovery.k8s.io", "v1", "endpointslices")
    if services is None or slices is None:
        raise CallFailed("Services are not served here")
    stored = objects.get(services, service.namespace, service.name)
    if stored is None:
        raise CallFailed(f'service "{service.name}" not found')
    document = codec.to_builtins(objects.decode(services, stored.text))
    ports = [one for one in document.get("spec", {}).get("ports", ()) if one.get("port") == port]
    if not ports:
        raise CallFailed(f'no service port {port} found for service "{service.name}"')
    page = objects.list(
        slices,
        namespace=service.namespace,
        labels=parse_label_selector(f"kubernetes.io/service-name={service.name}"),
    )
    name = ports[0].get("name") or ""
    found = [
        endpoint
        for item in page.items
        for endpoint in _ready(codec.to_builtins(objects.decode(slices, item.text)), name)
    ]
    if not found:
        raise CallFailed(f'no endpoints available for service "{service.name}"')
    return RANDOM.value.sample(found, min(len(found), ENDPOINTS_TRIED))


def _ready(piece: dict[str, Any], port_name: str) -> Iterator[tuple[str, int]]:
    """The ready endpoints of an EndpointSlice at the port of that name."""
    ports = [one.get("port") for one in piece.get("ports") or () if (one.get("name") or "") == port_name]
    for endpoint in piece.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready") is False:
            continue
        for address in filter(_is_address, endpoint.get("addresses") or ()):
            yield from ((address, port) for port in ports if port)


def _is_address(text: str) -> bool:
    """Not a name, which slices of the type FQDN have."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


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
            return await _posted(one, target)
    except TimeoutError:
        return CallFailed(f'failed to call webhook: Post "{target.url}": context deadline exceeded')
    except (httpx.HTTPError, ssl.SSLError, OSError, AddressRefused, CallFailed) as error:
        return CallFailed(f'failed to call webhook: Post "{target.url}": {error or type(error).__name__}')


async def _posted(one: Call, target: _Target) -> bytes:
    """The body of the answer. Raises: CallFailed and what the network raises."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    parts = urlsplit(target.url)
    host, port = parts.hostname or "", parts.port or HTTPS_PORT
    trusted = _trusted(one.config.ca_bundle)
    headers = {"Host": parts.netloc, "Content-Type": "application/json", "Accept-Encoding": "identity"}
    if target.endpoints is not None:
        endpoints = [(AddressPolicy.current().permitted(host, [address])[0], at) for address, at in target.endpoints]
    else:
        endpoints = [(address, port) for address in await addresses.resolve_async(host, port)]
    failure: httpx.ConnectError | None = None
    query = f"?{parts.query}" if parts.query else ""
    # The clock of the whole call runs outside.
    async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=one.seconds) as client:
        for address, at in endpoints:
            there = f"https://{addresses.in_url(address)}:{at}{parts.path or '/'}{query}"
            try:
                async with client.stream(
                    "POST", there, content=one.body, headers=headers, extensions={"sni_hostname": host}
                ) as answer:
                    return await _read(answer, one.answer_max or ANSWER_MAX)
            except httpx.ConnectError as error:
                failure = error
    raise failure or CallFailed("no address")


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
