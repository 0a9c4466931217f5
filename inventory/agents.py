"""Calling the agent of a node, as an API server calls a kubelet.

Address and port stand in the Node's status. The certificate is the agent's own; its SHA-256 stands in an annotation of
the Node, which only the node and administrators write, and is compared before the token is shown.
Source: kubernetes pkg/kubelet/client/kubelet_client.go.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from inventory.kinds.nodes import Node
from manciple.api import tokens
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.errors import ApiError, BadRequest, NotFound
from manciple.wire.registry import registry

CERTIFICATE_ANNOTATION = "manciple.dev/agent-certificate-sha256"
#: Which of a node's addresses is taken: names of simulated nodes resolve nowhere, so they come last.
PREFERRED = ("InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname")
#: Seconds for a connection, and for an answer that does not go on for ever.
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 60.0
#: Bytes of an error's text that are read.
ERROR_LIMIT = 50_000


class _WrongCertificate(Exception):
    """Somebody else answers where the agent should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAddress:
    """Where the agent of `node` listens. fingerprint: the SHA-256 of its certificate, "" where the Node tells none."""

    node: str
    host: str
    port: int
    fingerprint: str

    def url(self, path: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}{path}"


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
            f'the agent of node "{name}" serves no logs: the Node tells no port in status.daemonEndpoints; '
            f"start the agent with --listen ADDRESS:PORT"
        )
    if not host:
        told = " ".join(f"{{{address.type} {address.address}}}" for address in status.addresses)
        raise ApiError(f'node "{name}": no preferred addresses found; known addresses: [{told}]')
    fingerprint = node.metadata.annotations.get(CERTIFICATE_ANNOTATION, "")
    return AgentAddress(node=name, host=host, port=port, fingerprint=fingerprint)


@asynccontextmanager
async def ask(
    agent: AgentAddress, path: str, query: Mapping[str, str], *, endless: bool = False, trusting: bool = False
) -> AsyncIterator[AsyncIterator[bytes]]:
    """GET `path` of an agent: the pieces of its answer.

    endless: the answer may go on for ever, with long pauses. trusting: the certificate is not verified.
    Raises: ApiError in words for the person who asked.
    """
    if not trusting and not agent.fingerprint:
        raise ApiError(
            f'node "{agent.node}" does not tell by which certificate its agent is known (annotation '
            f"{CERTIFICATE_ANNOTATION}); start a current agent, or ask with insecureSkipTLSVerifyBackend=true"
        )
    url = agent.url(path)
    timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT, read=None if endless else READ_TIMEOUT)
    async with httpx.AsyncClient(verify=_unverified(), timeout=timeout, trust_env=False) as client:
        request = client.build_request(
            "GET",
            url,
            params=query,
            headers={"Authorization": f"Bearer {tokens.issue_for_node(agent.node)}"},
            extensions={} if trusting else {"trace": _Pin(agent.fingerprint)},
        )
        response = await _sent(client, request, agent, url)
        try:
            if response.status_code != httpx.codes.OK:
                raise _refusal(agent, response.status_code, await _text(response))
            yield response.aiter_raw()
        finally:
            await response.aclose()


async def _sent(client: httpx.AsyncClient, request: httpx.Request, agent: AgentAddress, url: str) -> httpx.Response:
    try:
        return await client.send(request, stream=True)
    except httpx.HTTPError as error:
        raise ApiError(
            f'Get "{url}": {error or type(error).__name__}; the agent of node "{agent.node}" does not answer: '
            f"see that it runs, and that this server can reach {agent.host} port {agent.port}"
        ) from error
    except _WrongCertificate as error:
        raise ApiError(
            f'Get "{url}": tls: another certificate than that of the agent of node "{agent.node}" was shown; restart '
            f"the agent if its certificate was replaced, otherwise find out who listens there"
        ) from error


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
    if code == httpx.codes.BAD_REQUEST:
        return BadRequest(text)
    if code == httpx.codes.NOT_FOUND:
        return NotFound(text)
    if code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return ApiError(
            f'the agent of node "{agent.node}" does not let this API server in ({code} {text}): see that the agent '
            f"belongs to this cluster, and that all API servers have the same MANCIPLE_SECRET_KEY"
        )
    return ApiError(f'Internal error occurred: the agent of node "{agent.node}" answered {code}: {text}')
