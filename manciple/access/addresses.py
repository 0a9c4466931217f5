"""Where the API server may connect to when somebody else names the address: agents of nodes, webhooks.

A Node's status and a webhook's configuration are written by others, and the API server stands where they do not: beside
the database, on the cloud's metadata service, inside a firewall. So a name is resolved once, each address that it
stands for is judged, and the connection goes to an address that passed (not to the name, which may mean another machine
a moment later). Never allowed: unspecified, link-local, multicast and reserved addresses, metadata services of clouds,
and the networks of MANCIPLE_FORBIDDEN_NETWORKS. Allowed by MANCIPLE_LOCAL_CONNECTIONS alone: loopback and the addresses
of this very machine, where agents and webhooks run on a laptop and in tests. IPv6 addresses that carry an IPv4 address
are judged by both.

    address = addresses.resolve("hooks.example.com", 443)[0]       # blocks; raises AddressRefused
    client.post(f"https://{addresses.in_url(address)}/path",       # TLS still verifies the name:
                headers={"Host": "hooks.example.com"}, extensions={"sni_hostname": "hooks.example.com"})

Whoever connects follows no redirect, and takes no proxy from the environment.
Source: kubernetes pkg/util/proxy (IsProxyableIP).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from django.conf import settings

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Seconds that resolving a name may take.
RESOLVE_TIMEOUT = 10.0
#: Services that hand out credentials to whoever asks from the right machine, and are not link-local.
METADATA_SERVICES = tuple(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")))
#: IPv4 addresses behind a translator (RFC 6052).
_TRANSLATED = IPv6Network("64:ff9b::/96")
_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_DISCARD = 9  # any port will do


class AddressRefused(Exception):
    """No address of the host may be connected to; says why, and what an operator can do."""


class Unresolvable(AddressRefused):
    """The name stands for no address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    """local: loopback and this machine's own addresses are allowed. forbidden: networks that never are."""

    local: bool
    forbidden: tuple[Network, ...] = ()

    @classmethod
    def current(cls) -> AddressPolicy:
        """As the settings say."""
        return cls(local=settings.LOCAL_CONNECTIONS, forbidden=settings.FORBIDDEN_NETWORKS)

    def refusal(self, address: Address) -> str:
        """Why `address` must not be connected to, as the end of a sentence; "" where it may be."""
        return next(filter(None, (self._why_not(meant) for meant in _meanings(address))), "")

    def _why_not(self, address: Address) -> str:
        if kind := _never(address):
            return f"is {kind}"
        if any(address in network for network in self.forbidden):
            return "is in a network of MANCIPLE_FORBIDDEN_NETWORKS"
        if self.local:
            return ""
        if address.is_loopback:
            return "is a loopback address; set MANCIPLE_LOCAL_CONNECTIONS=1 if that is intended"
        if is_own(address):
            return "is an address of the API server's own machine; set MANCIPLE_LOCAL_CONNECTIONS=1 if that is intended"
        return ""

    def permitted(self, host: str, found: Iterable[str]) -> tuple[str, ...]:
        """Those of the addresses `found` for `host` that may be connected to. Raises: AddressRefused where none may."""
        refused: dict[str, str] = {}
        allowed: list[str] = []
        for text in dict.fromkeys(found):
            if why := self.refusal(ip_address(text)):
                refused[text] = why
            else:
                allowed.append(text)
        if allowed:
            return tuple(allowed)
        if not refused:
            raise Unresolvable(f"no such host: {host}")
        whys = "; ".join(f"{text} {why}" for text, why in refused.items())
        raise AddressRefused(f"address not allowed: {whys}")


def resolve(host: str, port: int, *, policy: AddressPolicy | None = None) -> tuple[str, ...]:
    """The addresses of `host` that may be connected to, in the resolver's order. Blocks. Raises: AddressRefused."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unresolvable(f"no such host: {host}: {error}") from error
    return (policy or AddressPolicy.current()).permitted(host, _texts(found))


async def resolve_async(host: str, port: int, *, policy: AddressPolicy | None = None) -> tuple[str, ...]:
    """`resolve` on an event loop."""
    looking = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.wait_for(looking, RESOLVE_TIMEOUT)
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
        raise Unresolvable(f"no such host: {host}: {error or 'the name server does not answer'}") from error
    return (policy or AddressPolicy.current()).permitted(host, _texts(found))


def in_url(address: str) -> str:
    """An address or a name as a URL has it."""
    return f"[{address}]" if ":" in address else address


def is_own(address: Address) -> bool:
    """Whether this machine has `address`: only to itself would the kernel talk from it. Nothing is sent."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _DISCARD))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:  # there is no way to it at all
        return False


def _texts(found: Sequence[Any]) -> Iterator[str]:
    """The addresses in an answer of getaddrinfo."""
    return (str(entry[4][0]) for entry in found)


def _meanings(address: Address) -> Iterator[Address]:
    """The IPv4 addresses that `address` carries, and itself."""
    if isinstance(address, IPv6Address) and not address.is_loopback:
        carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _TRANSLATED or int(address) >> 32 == 0:  # the latter: ::a.b.c.d
            carried.append(IPv4Address(int(address) & 0xFFFFFFFF))
        yield from (one for one in carried if one is not None)
    yield address


def _never(address: Address) -> str:
    """What `address` is, where nobody may be found at it that we want to talk to."""
    if address.is_unspecified or address in _THIS_NETWORK:
        return "an unspecified address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address in METADATA_SERVICES:
        return "the metadata service of a cloud"
    if isinstance(address, IPv4Address) and address.is_reserved:
        return "a reserved address"
    return ""
