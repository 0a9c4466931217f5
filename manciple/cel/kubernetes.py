"""Kubernetes' own types and their functions: quantities, semantic versions, IP addresses and networks, URLs.

An expression sees a quantity as an exact amount, and whether upstream holds it as a plain 64-bit integer: asInteger()
and isInteger() answer from how resource.Quantity stores the amount, not from the amount: "1.5Gi", "1000m" and "1Pi" are
no integers although they are whole. `scale` follows that storage: the power of ten of the last digit, or None where
upstream has fallen back to a big decimal. Source: apimachinery/pkg/api/resource/quantity.go.

Versions are parsed and ordered as github.com/blang/semver/v4 does: build metadata does not count. Addresses have no
zones, and no IPv4 is mapped into IPv6. URLs are taken apart as Go's url.ParseRequestURI does: absolute, or a path that
starts with a slash.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, unquote_plus

from manciple.cel.errors import EvaluationError
from manciple.cel.values import MAX_INT, MIN_INT, CelMap, Strict, is_valid, or_error, three_way
from manciple.wire.limits import short_text_cache
from manciple.wire.quantity import NANO, Quantity

_PARTS = re.compile(r"[+-]?0*([0-9]*)(?:\.([0-9]*))?(.*)")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_INT64_DIGITS = 18
_NANO_SCALE = -9


@dataclass(frozen=True, slots=True, eq=False)
class Amount(Strict):
    nanos: int
    #: None: a big decimal
    scale: int | None

    def same(self, other: Amount) -> bool:
        return self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def as_integer(self) -> int | None:
        """The amount where upstream can give it as an int64."""
        if self.scale is None or self.scale < 0:
            return None
        units = self.nanos // NANO
        return units if MIN_INT <= units <= MAX_INT else None

    def plus(self, other: Amount) -> Amount:
        nanos = self.nanos + other.nanos
        if self.nanos == 0:
            return Amount(nanos, other.scale)
        if other.nanos == 0 and other.scale is not None:
            return self
        return Amount(nanos, _common_scale(nanos, self.scale, other.scale))

    def minus(self, other: Amount) -> Amount:
        return self.plus(Amount(-other.nanos, other.scale))


def _common_scale(nanos: int, first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return None
    scale = min(first, second)
    mantissa = nanos * 10 ** max(-scale, 0) // (NANO * 10 ** max(scale, 0))
    return scale if MIN_INT <= mantissa <= MAX_INT else None


def of_units(units: int) -> Amount:
    return Amount(units * NANO, 0)


@short_text_cache(65536, longest=64)
def parse_amount(text: str) -> Amount:
    """Raises: ValueError with upstream's message when `text` is not a quantity."""
    return Amount(Quantity.parse(text).nanos, _stored_scale(text))


def _stored_scale(text: str) -> int | None:
    match = _PARTS.fullmatch(text)
    if match is None:
        return None
    whole, fraction, suffix = match.group(1) or "0", match.group(2) or "", match.group(3)
    if suffix in _BINARY:
        exponent = _BINARY[suffix]
        room = 15 - len(whole) - int(exponent * 3 / 10) - 1
        return 0 if not fraction and room >= 0 else None
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    scale = exponent - len(fraction)
    return scale if len(whole) + len(fraction) <= _INT64_DIGITS and scale >= _NANO_SCALE else None


_MAX_PART = 2**64 - 1
_NORMALIZABLE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, eq=False)
class Semver(Strict):
    major: int
    minor: int
    patch: int
    #: numbers as (0, n, ""), words as (1, 0, word): numbers order before words
    prerelease: tuple[tuple[int, int, str], ...] = ()
    build: tuple[str, ...] = ()

    def same(self, other: Semver) -> bool:
        return self._order() == other._order()

    def __hash__(self) -> int:
        return hash(self._order())

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1."""
        mine, theirs = self._order(), other._order()
        return (mine > theirs) - (mine < theirs)

    def _order(self) -> tuple[object, ...]:
        # A release orders after its prereleases.
        return (self.major, self.minor, self.patch, not self.prerelease, self.prerelease)


@short_text_cache(65536, longest=64)
def parse_semver(text: str) -> Semver:
    """Strict: three parts, no v, no leading zero. Raises: ValueError with the library's message."""
    if not text:
        raise ValueError("Version string empty")
    first, _, remainder = text.partition(".")
    second, dot, remainder = remainder.partition(".")
    if not dot:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor = _number(first, "major"), _number(second, "minor")
    rest, plus, build = remainder.partition("+")
    patch, dash, prerelease = rest.partition("-")
    return Semver(
        major,
        minor,
        _number(patch, "patch"),
        tuple(_prerelease_part(part) for part in prerelease.split(".")) if dash else (),
        tuple(_build_part(part) for part in build.split(".")) if plus else (),
    )


def normalize(text: str) -> str:
    """What Kubernetes' semver(x, true) reads: a leading v, missing parts and leading zeros are repaired."""
    match = _NORMALIZABLE.fullmatch(text)
    if match is None:
        return text
    numbers = [str(int(part or "0")) for part in match.groups()[:3]]
    return ".".join(numbers) + (match.group(4) or "")


def _number(text: str, part: str) -> int:
    if not text or not text.isascii() or not text.isdigit():
        raise ValueError(f'Invalid character(s) found in {part} number "{text}"')
    if len(text) > 1 and text.startswith("0"):
        raise ValueError(f'{part.capitalize()} number must not contain leading zeroes "{text}"')
    if int(text) > _MAX_PART:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _prerelease_part(text: str) -> tuple[int, int, str]:
    if not text:
        raise ValueError("Prerelease is empty")
    if text.isascii() and text.isdigit():
        if len(text) > 1 and text.startswith("0"):
            raise ValueError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return (0, int(text), "")
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f'Invalid character(s) found in prerelease "{text}"')
    return (1, 0, text)


def _build_part(text: str) -> str:
    if not text:
        raise ValueError("Build meta data is empty")
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f'Invalid character(s) found in build meta data "{text}"')
    return text


def _as_integer(amount: Amount) -> int:
    units = amount.as_integer()
    if units is None:
        raise EvaluationError("cannot convert value to integer")
    return units


_IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_IPNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


_LINK_LOCAL_SCOPE = 0x02
_FOUR_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_FEWER_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){1,2}")
_LEADING_ZERO = re.compile(r"(?:^|\.)0[0-9]")
_PREFIX = re.compile(r"0|[1-9][0-9]{0,2}")


@dataclass(frozen=True, slots=True, eq=False)
class IpAddress(Strict):
    address: _IP

    def same(self, other: IpAddress) -> bool:
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

    address: _IP
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

    def holds_address(self, address: _IP) -> bool:
        return address.version == self.address.version and address in self._network()

    def _network(self) -> _IPNetwork:
        return ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False)


def parse_address(text: str) -> IpAddress:
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
    return IpAddress(address)


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


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^\[\]\s<>\"^`{|}\\]*?)(?::[0-9]*)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, eq=False)
class Url(Strict):
    text: str
    scheme: str
    host: str
    path: str
    query: str

    def same(self, other: Url) -> bool:
        return self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def hostname(self) -> str:
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        rest = self.host.rpartition("]")[2] if self.host.startswith("[") else self.host
        return rest.partition(":")[2]

    @property
    def escaped_path(self) -> str:
        """The path as it was written, where that is a valid escaping of it."""
        return quote(self.path, safe="/%:@!$&'()*+,;=~-._[]")

    def parameters(self) -> dict[str, list[str]]:
        """Every value of every parameter of the query, in order; a pair with a bad escape is left out."""
        found: dict[str, list[str]] = {}
        for pair in filter(None, self.query.split("&")):
            if ";" not in pair and not _BAD_ESCAPE.search(pair):
                name, _, value = pair.partition("=")
                found.setdefault(unquote_plus(name), []).append(unquote_plus(value))
        return found


def parse_url(text: str) -> Url:
    """Raises: ValueError with Kubernetes' message."""
    reason = _refusal(text)
    if reason:
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": {reason}')
    scheme, rest = _split_scheme(text)
    rest, _, query = rest.partition("?")
    host = ""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = unquote(host.rpartition("@")[2])
    return Url(text, scheme, host, rest, query)


def _split_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(text)
    return (match.group(1).lower(), match.group(2)) if match else ("", text)


def _refusal(text: str) -> str:
    """Why the text is no URL, or ""."""
    scheme, rest = _split_scheme(text)
    before_query = rest.partition("?")[0]
    authority = before_query[2:].partition("/")[0].rpartition("@")[2] if before_query.startswith("//") else ""
    faults = (
        (not text, "empty url"),
        (_CONTROL.search(text), "net/url: invalid control character in URL"),
        (text.startswith(":"), "missing protocol scheme"),
        (not scheme and not text.startswith("/"), "invalid URI for request"),
        (not before_query.startswith("/"), "invalid URI for request"),
        (_BAD_ESCAPE.search(before_query), "invalid URL escape"),
        (not _HOST.fullmatch(authority), "invalid character in host name"),
    )
    return next((reason for is_wrong, reason in faults if is_wrong), "")


_semver, _is_semver = or_error(parse_semver), is_valid(parse_semver)
_address = or_error(parse_address)
_network = or_error(parse_network)

IMPLEMENTATIONS: Mapping[str, Callable[..., Any]] = {
    "string_to_quantity": or_error(parse_amount),
    "is_quantity_string": is_valid(parse_amount),
    "quantity_sign": lambda amount: three_way(amount.nanos, 0),
    "quantity_get_int": _as_integer,
    "quantity_is_integer": lambda amount: amount.as_integer() is not None,
    "quantity_get_float": lambda amount: amount.nanos / NANO,
    "quantity_is_greater_than": lambda left, right: left.nanos > right.nanos,
    "quantity_is_less_than": lambda left, right: left.nanos < right.nanos,
    "quantity_compare_to": lambda left, right: three_way(left.nanos, right.nanos),
    "quantity_add": Amount.plus,
    "quantity_add_int": lambda left, right: left.plus(of_units(right)),
    "quantity_sub": Amount.minus,
    "quantity_sub_int": lambda left, right: left.minus(of_units(right)),
    "string_to_semver": _semver,
    "string_bool_to_semver": lambda text, normalized: _semver(normalize(text) if normalized else text),
    "is_semver_string": _is_semver,
    "is_semver_string_bool": lambda text, normalized: _is_semver(normalize(text) if normalized else text),
    "semver_major": lambda version: version.major,
    "semver_minor": lambda version: version.minor,
    "semver_patch": lambda version: version.patch,
    "semver_is_greater_than": lambda left, right: left.compare(right) > 0,
    "semver_is_less_than": lambda left, right: left.compare(right) < 0,
    "semver_compare_to": Semver.compare,
    "string_to_ip": _address,
    "is_ip": is_valid(parse_address),
    "ip_is_canonical": lambda text: _address(text).text() == text,
    "ip_to_string": IpAddress.text,
    "ip_family": lambda address: address.family,
    "ip_is_unspecified": lambda address: address.address.is_unspecified,
    "ip_is_loopback": lambda address: address.address.is_loopback,
    "ip_is_link_local_multicast": IpAddress.is_link_local_multicast,
    "ip_is_link_local_unicast": IpAddress.is_link_local_unicast,
    "ip_is_global_unicast": IpAddress.is_global_unicast,
    "string_to_cidr": _network,
    "is_cidr": is_valid(parse_network),
    "cidr_to_string": Network.text,
    "cidr_ip": lambda network: IpAddress(network.address),
    "cidr_masked": Network.masked,
    "cidr_prefix_length": lambda network: network.prefix,
    "cidr_contains_ip_ip": lambda network, address: network.holds_address(address.address),
    "cidr_contains_ip_string": lambda network, text: network.holds_address(_address(text).address),
    "cidr_contains_cidr": Network.holds,
    "cidr_contains_cidr_string": lambda network, text: network.holds(_network(text)),
    "string_to_url": or_error(parse_url),
    "is_url_string": is_valid(parse_url),
    "url_get_scheme": lambda url: url.scheme,
    "url_get_host": lambda url: url.host,
    "url_get_hostname": lambda url: url.hostname,
    "url_get_port": lambda url: url.port,
    "url_get_escaped_path": lambda url: url.escaped_path,
    "url_get_query": lambda url: CelMap(Url.parameters(url)),
}
