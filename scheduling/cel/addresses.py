"""IP addresses and networks, under the rules of Kubernetes' CEL library: no zones, no IPv4 mapped into IPv6."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TypeAlias

from scheduling.cel.values import Strict

_Any: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_AnyNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


_LINK_LOCAL_SCOPE = 0x02
_FOUR_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_FEWER_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){1,2}")
_LEADING_ZERO = re.compile(r"(?:^|\.)0[0-9]")
_PREFIX = re.compile(r"0|[1-9][0-9]{0,2}")


@dataclass(frozen=True, slots=True, eq=False)
class Address(Strict):
    address: _Any

    def same(self, other: Address) -> bool:
        return self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    @property
    def family(self) -> int:
        return self.address.version

    def text(self) -> str:
        return str(self.address)

    # As Go's net/netip decides them; Python's is_global means something else.

    def is_link_local_multicast(self) -> bool:
        packed = self.address.packed
        if isinstance(self.address, ipaddress.IPv4Address):
            return packed.startswith(b"\xe0\x00\x00")
        # ff02::/16, whatever the flags in the second byte's upper half.
        return packed.startswith(b"\xff") and packed[1] & 0x0F == _LINK_LOCAL_SCOPE

    def is_link_local_unicast(self) -> bool:
        return self.address.is_link_local

    def is_global_unicast(self) -> bool:
        broadcast = self.address.packed == b"\xff\xff\xff\xff"
        address = self.address
        local = address.is_unspecified or address.is_loopback or address.is_link_local
        return not (broadcast or local or address.is_multicast)


@dataclass(frozen=True, slots=True, eq=False)
class Network(Strict):
    """An address with a prefix length. The bits behind the prefix stay until `masked`."""

    address: _Any
    prefix: int

    def same(self, other: Network) -> bool:
        return self.prefix == other.prefix and self.address == other.address

    def __hash__(self) -> int:
        return hash((self.address, self.prefix))

    def text(self) -> str:
        return f"{self.address}/{self.prefix}"

    def masked(self) -> Network:
        return Network(self._network().network_address, self.prefix)

    def holds(self, other: Network) -> bool:
        """True when every address of `other` is in this network."""
        return other.prefix >= self.prefix and self.holds_address(other.address)

    def holds_address(self, address: _Any) -> bool:
        return address.version == self.address.version and address in self._network()

    def _network(self) -> _AnyNetwork:
        return ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False)


def parse_address(text: str) -> Address:
    """Raises: ValueError with the library's message."""
    if "%" in text:
        raise ValueError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        reason = _why_not(text)
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {reason}') from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Address(address)


def _why_not(text: str) -> str:
    where = f'ParseAddr("{text}"): '
    if _FOUR_NUMBERS.fullmatch(text):
        if _LEADING_ZERO.search(text):
            return where + "IPv4 field has octet with leading zero"
        return where + "IPv4 field has value >255"
    if _FEWER_NUMBERS.fullmatch(text):
        return where + "IPv4 address too short"
    return where + "unable to parse IP"


def parse_network(text: str) -> Network:
    """Raises: ValueError with the library's message."""
    host, _, prefix = text.partition("/")
    refusal = f'network address parse error during conversion from string: netip.ParsePrefix("{text}"): '
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"{refusal}bad bits after slash: {prefix!r}" if "/" in text else f"{refusal}no '/'")
    address = parse_address(host).address
    if int(prefix) > address.max_prefixlen:
        raise ValueError(f"{refusal}prefix length out of range")
    return Network(address, int(prefix))
