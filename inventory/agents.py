"""Calling the agent of a node, as an API server calls a kubelet.

Address and port stand in the Node's status, where whoever writes it may put any: `manciple.access.addresses` says which
of them are connected to. The certificate is the agent's own; its SHA-256 stands in an annotation of the Node, which
only the node and administrators write, and is compared before the token is shown. The token is good for nobody but who
holds the key of the certificate that was shown: so a client that does not care who answers
(insecureSkipTLSVerifyBackend) may be told lies, and whoever tells them learns nothing that opens the true agent. (A
kubelet knows the API server by its client certificate, which has the same property.) Redirects are not followed, an
answer that neither ends nor is meant to go on is cut off, and no content encoding is undone.
Source: kubernetes pkg/kubelet/client/kubelet_client.go.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from inventory.kinds.nodes import Node
from manciple.access import addresses
from manciple.access.addresses import AddressRefused
from manciple.access.authentication import tokens
from manciple.store import objects
from manciple.wire import channels, codec, half_open
from manciple.wire.errors import ApiError, BadRequest, NotFound, ServiceUnavailable, TooManyRequests
from manciple.wire.registry import registry

if TYPE_CHECKING:
    import httpx

CERTIFICATE_ANNOTATION = "manciple.dev/agent-certificate-sha256"
#: Which of a node's addresses is taken: names of simulated nodes resolve nowhere, so they come last.
PREFERRED = ("InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname")
#: Seconds for a connection, and for an answer that does not go on for ever.
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 60.0
#: Bytes of an error's text that are read.
ERROR_LIMIT = 50_000
#: An answer that does not go on for ever ends within so many seconds and bytes.
ANSWER_SECONDS, ANSWER_BYTES = 900.0, 1 << 30
#: The header that names the person on whose behalf an agent is called.
PERSON = "X-Remote-User"
#: Seconds after which somebody with too many sessions should try again.
RETRY_SECONDS = 5


class _WrongCertificate(Exception):
    """Somebody else answers where the agent should."""


class AnswerTooLong(Exception):
    """The agent sends more, or for longer, than what was asked for can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAddress:
    """Where the agent of `node` listens. fingerprint: the SHA-256 of its certificate, "" where the Node tells none."""

    node: str
    host: str
    port: int
    fingerprint: str

    def url(self, path: str) -> str:
        return f"https://{addresses.in_url(self.host)}:{self.port}{path}"


def locate(name: str) -> AgentAddress:
    """Raises: NotFound without such a Node; ApiError where it does not say how its agent is reached."""
    stored = objects.get(registry.by_resource("nodes"), "", name)
    if stored is None:
        raise NotFound.of("nodes", name)
    return address_of(codec.decode_text(Node, stored.text))


def address_of(node: Node) -> AgentAddress:
    """Raises: ApiError where it does not say how its agent is reached."""
    name, status = node.metadata.name, node.status
    port = status.daemon_endpoints.kubelet_endpoint.port
    known = {address.type: address.address for address in reversed(status.addresses)}
    host = next((known[type_] for type_ in PREFERRED if known.get(type_)), "")
    if not port:
        raise ApiError(
            f'the agent of node "{name}" serves no logs and no sessions: the Node tells no port in '
            f"status.daemonEndpoints; start the agent with --listen ADDRESS:PORT"
        )
    if not host:
        told = " ".join(f"{{{address.type} {address.address}}}" for address in status.addresses)
        raise ApiError(f'node "{name}": no preferred addresses found; known addresses: [{told}]')
    fingerprint = node.metadata.annotations.get(CERTIFICATE_ANNOTATION, "")
    return AgentAddress(node=name, host=host, port=port, fingerprint=fingerprint)


@asynccontextmanager
async def ask(
    agent: AgentAddress,
    path: str,
    query: Mapping[str, str],
    *,
    endless: bool = False,
    trusting: bool = False,
    person: str = tokens.API_SERVER.name,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """GET `path` of an agent: the pieces of its answer.

    endless: the answer may go on for ever, with long pauses. trusting: whoever answers is believed. person: for whom,
    among whose streams the agent counts it.
    Raises: ApiError in words for the person who asked; AnswerTooLong, from the pieces.
    """
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    if not trusting and not agent.fingerprint:
        raise ApiError(
            f'node "{agent.node}" does not tell by which certificate its agent is known (annotation '
            f"{CERTIFICATE_ANNOTATION}); start a current agent, or ask with insecureSkipTLSVerifyBackend=true"
        )
    address = await _permitted(agent)
    fingerprint = await _shown(agent, address) if trusting else agent.fingerprint
    timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT, read=None if endless else READ_TIMEOUT)
    transport = httpx.AsyncHTTPTransport(verify=_unverified(), trust_env=False, socket_options=half_open.OPTIONS)
    async with httpx.AsyncClient(transport=transport, timeout=timeout, follow_redirects=False) as client:
        request = client.build_request(
            "GET",
            f"https://{addresses.in_url(address)}:{agent.port}{path}",
            params=query,
            headers={
                "Host": f"{addresses.in_url(agent.host)}:{agent.port}",
                "Authorization": f"Bearer {tokens.issue_for_node(agent.node, certificate=fingerprint)}",
                "Accept-Encoding": "identity",
                PERSON: quote(person),
            },
            extensions={"trace": _Pin(fingerprint), "sni_hostname": agent.host},
        )
        response = await _sent(client, request, agent, agent.url(path))
        try:
            if response.status_code != HTTPStatus.OK:
                raise _refusal(agent, response.status_code, await _text(response))
            yield response.aiter_raw() if endless else _bounded(response.aiter_raw())
        finally:
            await response.aclose()


# Sessions -------------------------------------------------------------------------------------------------------------


class SessionRefused(ApiError):
    """What the session is to talk to is not there. text: why."""

    def __init__(self, text: str) -> None:
        super().__init__(f"unable to upgrade connection: {text}")
        self.text = text


class AgentStream:
    """A session with an agent (`manciple.wire.channels`)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = channels.FrameReader()
        self._read: deque[tuple[int, bytes]] = deque()

    async def send(self, channel: int, data: bytes) -> None:
        """Returns when the agent takes more. Raises: OSError."""
        for frame in channels.frames(channel, data):
            await self._write(frame)

    async def close_channel(self, channel: int) -> None:
        """Raises: OSError."""
        await self._write(channels.closing(channel))

    async def _write(self, frame: bytes) -> None:
        if self._writer.is_closing():  # asyncio would drop it, and warn
            raise ConnectionResetError("the agent has hung up")
        self._writer.write(frame)
        await self._writer.drain()

    async def receive(self) -> tuple[int, bytes] | None:
        """The next channel with its bytes; None at the end. Raises: OSError, BadMessage."""
        while not self._read:
            data = await self._reader.read(channels.FRAME_BYTES)
            if not data:
                return None
            self._read.extend(self._frames.feed(data))
        return self._read.popleft()


@asynccontextmanager
async def converse(
    agent: AgentAddress, path: str, query: Sequence[tuple[str, str]], *, person: str
) -> AsyncIterator[AgentStream]:
    """A session at `path` of an agent, in the name of `person`. Raises: ApiError in words for the person who asked."""
    if not agent.fingerprint:
        raise ApiError(
            f'node "{agent.node}" does not tell by which certificate its agent is known (annotation '
            f"{CERTIFICATE_ANNOTATION}); start a current agent"
        )
    address = await _permitted(agent)
    url = agent.url(path)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            reader, writer = await asyncio.open_connection(
                address, agent.port, ssl=_unverified(), server_hostname=agent.host, limit=channels.FRAME_BYTES
            )
    except OSError as error:  # also of TLS, and of time
        raise _unreachable(agent, url, error) from error
    half_open.keep_alive(writer.get_extra_info("socket"))
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if hashlib.sha256(shown or b"").hexdigest() != agent.fingerprint:
            raise _other_certificate(agent, url)
        writer.write(_head(agent, path, query, person))
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                await _upgraded(agent, reader)
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise _unreachable(agent, url, error) from error
        yield AgentStream(reader, writer)
    finally:
        writer.close()
        if writer.transport is not None and writer.transport.get_write_buffer_size():
            writer.transport.abort()  # the agent takes nothing: what is left would wait for it


def _head(agent: AgentAddress, path: str, query: Sequence[tuple[str, str]], person: str) -> bytes:
    lines = (
        f"GET {path}?{urlencode(query)} HTTP/1.1",
        f"Host: {addresses.in_url(agent.host)}:{agent.port}",
        f"Authorization: Bearer {tokens.issue_for_node(agent.node, certificate=agent.fingerprint)}",
        f"{PERSON}: {quote(person)}",
        "Connection: Upgrade",
        f"Upgrade: {channels.AGENT_PROTOCOL}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def _upgraded(agent: AgentAddress, reader: asyncio.StreamReader) -> None:
    """Raises: ApiError with what the agent says instead."""
    status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    code = int(status.split(" ")[1])
    if code == HTTPStatus.SWITCHING_PROTOCOLS:
        return
    lengths = (line.partition(":")[2].strip() for line in headers if line.lower().startswith("content-length:"))
    size = min(int(next(lengths, "0")), ERROR_LIMIT)
    text = (await reader.readexactly(size)).decode(errors="replace").strip()
    if code == HTTPStatus.CONFLICT:
        raise SessionRefused(text)
    raise _refusal(agent, code, text)


# ----------------------------------------------------------------------------------------------------------------------


async def _permitted(agent: AgentAddress) -> str:
    """The address to connect to. Raises: ApiError."""
    try:
        return (await addresses.resolve_async(agent.host, agent.port))[0]
    except AddressRefused as error:
        raise BadRequest(
            f'the agent of node "{agent.node}" is not asked: the Node tells the address {agent.host}: {error}'
        ) from error


async def _shown(agent: AgentAddress, address: str) -> str:
    """The SHA-256 of the certificate that whoever answers at `address` presents. Raises: ApiError."""
    opening = asyncio.open_connection(address, agent.port, ssl=_unverified(), server_hostname=agent.host)
    try:
        _, writer = await asyncio.wait_for(opening, CONNECT_TIMEOUT)
    except OSError as error:  # also of TLS, and of time
        raise _unreachable(agent, agent.url("/"), error) from error
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return hashlib.sha256(shown or b"").hexdigest()


async def _bounded(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Raises: AnswerTooLong."""
    deadline, size = time.monotonic() + ANSWER_SECONDS, 0
    async for piece in pieces:
        size += len(piece)
        if size > ANSWER_BYTES or time.monotonic() > deadline:
            raise AnswerTooLong(f"more than {ANSWER_BYTES} bytes or {ANSWER_SECONDS:.0f} s")
        yield piece


async def _sent(client: httpx.AsyncClient, request: httpx.Request, agent: AgentAddress, url: str) -> httpx.Response:
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

    try:
        return await client.send(request, stream=True)
    except httpx.HTTPError as error:
        raise _unreachable(agent, url, error) from error
    except _WrongCertificate as error:
        raise _other_certificate(agent, url) from error


def _other_certificate(agent: AgentAddress, url: str) -> ApiError:
    return ApiError(
        f'Get "{url}": tls: another certificate than that of the agent of node "{agent.node}" was shown; restart '
        f"the agent if its certificate was replaced, otherwise find out who listens there"
    )


def _unreachable(agent: AgentAddress, url: str, error: Exception) -> ApiError:
    return ApiError(
        f'Get "{url}": {error or type(error).__name__}; the agent of node "{agent.node}" does not answer: '
        f"see that it runs, and that this server can reach {agent.host} port {agent.port}"
    )


class _Pin:
    """Looks at the certificate once the handshake is done, before a word of the request is sent."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event != "connection.start_tls.complete":
            return
        stream = info["return_value"]
        shown = stream.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if hashlib.sha256(shown or b"").hexdigest() != self._fingerprint:
            await stream.aclose()
            raise _WrongCertificate


def _unverified() -> ssl.SSLContext:
    """No authority vouches for an agent's certificate: `_Pin` looks at it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _text(response: httpx.Response) -> str:
    content = b""
    async for piece in response.aiter_raw():
        content += piece
        if len(content) >= ERROR_LIMIT:
            break
    return content[:ERROR_LIMIT].decode(errors="replace").strip()


def _refusal(agent: AgentAddress, code: int, text: str) -> ApiError:
    if code == HTTPStatus.BAD_REQUEST:
        return BadRequest(text)
    if code == HTTPStatus.NOT_FOUND:
        return NotFound(text)
    if code == HTTPStatus.TOO_MANY_REQUESTS:
        return TooManyRequests(text, details={"retryAfterSeconds": RETRY_SECONDS})
    if code == HTTPStatus.SERVICE_UNAVAILABLE:
        return ServiceUnavailable(f'the agent of node "{agent.node}" is not ready: {text}')
    if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return ApiError(
            f'the agent of node "{agent.node}" does not let this API server in ({code} {text}): see that the agent '
            f"belongs to this cluster, and that all API servers have the same MANCIPLE_SECRET_KEY"
        )
    return ApiError(f'Internal error occurred: the agent of node "{agent.node}" answered {code}: {text}')
