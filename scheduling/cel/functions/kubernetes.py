"""Kubernetes' own functions: quantities, semantic versions, addresses, URLs, regular expressions, formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import re2

from manciple.wire.quantity import NANO
from scheduling.cel.addresses import Address, Network, parse_address, parse_network
from scheduling.cel.errors import EvaluationError
from scheduling.cel.formats import FORMATS, NamedFormat
from scheduling.cel.quantities import Amount, of_units, parse_amount
from scheduling.cel.semver import Semver, normalize, parse_semver
from scheduling.cel.urls import Url, parse_url
from scheduling.cel.values import NONE, CelMap, Optional, optional

_Function = Callable[..., Any]


def _or_error(parse: _Function, prefix: str = "") -> _Function:
    """The function with its ValueError as the language's error."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise EvaluationError(f"{prefix}{error}") from None

    return parsed


def _is_valid(parse: _Function) -> _Function:
    def valid(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return valid


def _three_way(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def as_integer(amount: Amount) -> int:
    units = amount.as_integer()
    if units is None:
        raise EvaluationError("cannot convert value to integer")
    return units


def read_semver(text: str, normalized: bool = False) -> Semver:
    return parse_semver(normalize(text) if normalized else text)


def _semver(text: str, normalized: bool = False) -> Semver:
    try:
        return read_semver(text, normalized)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _is_semver(text: str, normalized: bool = False) -> bool:
    try:
        read_semver(text, normalized)
    except ValueError:
        return False
    return True


def contains_ip(network: Network, text: str) -> bool:
    address: Address = _address(text)
    return network.holds_address(address.address)


def contains_cidr(network: Network, text: str) -> bool:
    other: Network = _network(text)
    return network.holds(other)


def is_canonical(text: str) -> bool:
    address: Address = _address(text)
    return address.text() == text


_address = _or_error(parse_address)
_network = _or_error(parse_network)


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """An RE2 pattern. Raises: EvaluationError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise EvaluationError(f"error parsing regexp: {reason}") from None


def matches(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


def find(text: str, pattern: str) -> str:
    match = compiled(pattern).search(text)
    return match.group() if match else ""


def find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    found: list[str] = []
    for match in compiled(pattern).finditer(text):
        if 0 <= count <= len(found):
            break
        found.append(match.group())
    return found


def validate(format_: NamedFormat, text: str) -> Optional:
    messages = format_.check(text)
    return optional(list(messages)) if messages else NONE


def named_format(name: str) -> Optional:
    return optional(FORMATS[name]) if name in FORMATS else NONE


def _constant(format_: NamedFormat) -> _Function:
    return lambda: format_


_QUANTITIES: Mapping[str, _Function] = {
    "string_to_quantity": _or_error(parse_amount),
    "is_quantity_string": _is_valid(parse_amount),
    "quantity_sign": lambda amount: _three_way(amount.nanos, 0),
    "quantity_get_int": as_integer,
    "quantity_is_integer": lambda amount: amount.as_integer() is not None,
    "quantity_get_float": lambda amount: amount.nanos / NANO,
    "quantity_is_greater_than": lambda left, right: left.nanos > right.nanos,
    "quantity_is_less_than": lambda left, right: left.nanos < right.nanos,
    "quantity_compare_to": lambda left, right: _three_way(left.nanos, right.nanos),
    "quantity_add": Amount.plus,
    "quantity_add_int": lambda left, right: left.plus(of_units(right)),
    "quantity_sub": Amount.minus,
    "quantity_sub_int": lambda left, right: left.minus(of_units(right)),
}
_SEMVERS: Mapping[str, _Function] = {
    "string_to_semver": _semver,
    "string_bool_to_semver": _semver,
    "is_semver_string": _is_semver,
    "is_semver_string_bool": _is_semver,
    "semver_major": lambda version: version.major,
    "semver_minor": lambda version: version.minor,
    "semver_patch": lambda version: version.patch,
    "semver_is_greater_than": lambda left, right: left.compare(right) > 0,
    "semver_is_less_than": lambda left, right: left.compare(right) < 0,
    "semver_compare_to": Semver.compare,
}
_ADDRESSES: Mapping[str, _Function] = {
    "string_to_ip": _address,
    "is_ip": _is_valid(parse_address),
    "ip_is_canonical": is_canonical,
    "ip_to_string": Address.text,
    "ip_family": lambda address: address.family,
    "ip_is_unspecified": lambda address: address.address.is_unspecified,
    "ip_is_loopback": lambda address: address.address.is_loopback,
    "ip_is_link_local_multicast": Address.is_link_local_multicast,
    "ip_is_link_local_unicast": Address.is_link_local_unicast,
    "ip_is_global_unicast": Address.is_global_unicast,
    "string_to_cidr": _network,
    "is_cidr": _is_valid(parse_network),
    "cidr_to_string": Network.text,
    "cidr_ip": lambda network: Address(network.address),
    "cidr_masked": Network.masked,
    "cidr_prefix_length": lambda network: network.prefix,
    "cidr_contains_ip_ip": lambda network, address: network.holds_address(address.address),
    "cidr_contains_ip_string": contains_ip,
    "cidr_contains_cidr": Network.holds,
    "cidr_contains_cidr_string": contains_cidr,
}
_URLS: Mapping[str, _Function] = {
    "string_to_url": _or_error(parse_url),
    "is_url_string": _is_valid(parse_url),
    "url_get_scheme": lambda url: url.scheme,
    "url_get_host": lambda url: url.host,
    "url_get_hostname": lambda url: url.hostname,
    "url_get_port": lambda url: url.port,
    "url_get_escaped_path": lambda url: url.escaped_path,
    "url_get_query": lambda url: CelMap(Url.parameters(url)),
}
_TEXTS: Mapping[str, _Function] = {
    "matches": matches,
    "matches_string": matches,
    "string_find_string": find,
    "string_find_all_string": find_all,
    "string_find_all_string_int": find_all,
    **{f"format.{name}": _constant(format_) for name, format_ in FORMATS.items()},
    "format-named": named_format,
    "format-validate": validate,
}
IMPLEMENTATIONS: Mapping[str, _Function] = {**_QUANTITIES, **_SEMVERS, **_ADDRESSES, **_URLS, **_TEXTS}
