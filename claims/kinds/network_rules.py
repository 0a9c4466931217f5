"""Rules of a pod's names and addresses: its hostname, its resolver, its hosts file and the ports of its host.

Source: pkg/apis/core/validation/validation.go (validatePodDNSConfig, ValidateHostAliases, validatePodHostNetworkDeps)
of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address

from claims.kinds.pods import PodDNSConfig, PodSpec
from manciple.wire.errors import FieldError, forbidden, invalid, required, too_long
from manciple.wire.validation import (
    SPEC,
    Messages,
    Path,
    check_dns_label,
    check_dns_subdomain,
    each,
    regex_message,
    too_long_message,
)

Errors = list[FieldError]

NAMESERVERS_MAX, SEARCHES_MAX, SEARCH_LIST_MAX = 3, 32, 2048
OVERRIDE_MAX = 64

_SEARCH_MAX = 253
_SEARCH = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_SEARCH_MESSAGE = regex_message(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character",
    _SEARCH,
    "example.com",
)


def check_address(text: str) -> Messages:
    """An IPv4 or IPv6 address in a form that every reader understands alike."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text) and any(len(one) > 1 and one[0] == "0" for one in text.split(".")):
        return ("must not have leading 0s",)
    try:
        address = ip_address(text if "%" not in text else "")
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None):
        return ("must not be an IPv4-mapped IPv6 address",)
    return ()


def validate_network(spec: PodSpec) -> Errors:
    found = _validate_hostnames(spec) if spec.hostname_override is not None else []
    for field, name in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        found += each(check_dns_label(name), SPEC.child(field), name) if name else []
    for position, alias in enumerate(spec.host_aliases):
        at = SPEC.child("hostAliases").at(position)
        found += each(check_address(alias.ip), at.child("ip"), alias.ip)
        for place, name in enumerate(alias.hostnames):
            found += each(check_dns_subdomain(name), at.child("hostnames").at(place), name)
    if spec.host_network:
        found += _validate_host_ports(spec)
    return found + _validate_resolver(spec.dns_config, SPEC.child("dnsConfig"), policy=spec.dns_policy)


def _validate_hostnames(spec: PodSpec) -> Errors:
    path, name = SPEC.child("hostnameOverride"), spec.hostname_override or ""
    found = each(check_dns_subdomain(name), path, name)
    if len(name) > OVERRIDE_MAX:
        found.append(too_long(path, OVERRIDE_MAX))
    if spec.host_network:
        found.append(forbidden(path, "may not be specified when hostNetwork is true"))
    if spec.set_hostname_as_fqdn:
        found.append(forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
    return found


def _validate_host_ports(spec: PodSpec) -> Errors:
    path, message = SPEC.child("containers"), "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(path.at(place).child("ports").at(position).child("hostPort"), port.host_port, message)
        for place, container in enumerate(spec.containers)
        for position, port in enumerate(container.ports)
        if port.host_port != port.container_port
    ]


def _validate_resolver(config: PodDNSConfig | None, path: Path, *, policy: str) -> Errors:
    if policy == "None" and config is None:
        return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
    if config is None:
        return []
    if policy == "None" and not config.nameservers:
        message = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        return [required(path.child("nameservers"), message)]
    found: Errors = []
    at, servers, searches = path.child("nameservers"), config.nameservers, config.searches
    if len(servers) > NAMESERVERS_MAX:
        found.append(invalid(at, servers, f"must not have more than {NAMESERVERS_MAX} nameservers"))
    for position, server in enumerate(servers):
        found += each(check_address(server), at.at(position), server)
    at = path.child("searches")
    if len(searches) > SEARCHES_MAX:
        found.append(invalid(at, searches, f"must not have more than {SEARCHES_MAX} search paths"))
    if len(" ".join(searches)) > SEARCH_LIST_MAX:
        message = f"must not have more than {SEARCH_LIST_MAX} characters (including spaces) in the search list"
        found.append(invalid(at, searches, message))
    for position, search in enumerate(searches):
        found += each(_check_search(search), at.at(position), search)
    at = path.child("options")
    return found + [
        required(at.at(position), "must not be empty")
        for position, option in enumerate(config.options)
        if not option.name
    ]


def _check_search(text: str) -> Messages:
    if text == ".":
        return ()
    text = text.removesuffix(".")
    found = [] if len(text) <= _SEARCH_MAX else [too_long_message(_SEARCH_MAX)]
    return (*found, *(() if re.fullmatch(_SEARCH, text) else (_SEARCH_MESSAGE,)))
