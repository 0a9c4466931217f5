"""discovery.k8s.io/v1 EndpointSlice: where the pods of a Service are reached. PURE.

Sources: k8s.io/api/discovery/v1, pkg/apis/discovery/validation, pkg/registry/discovery/endpointslice and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec.structs import replace

from claims.kinds.container_rules import PROTOCOLS
from manciple.wire.base import ApiObject, Int32, ObjectReference, Value, always, pb
from manciple.wire.errors import FieldError, duplicate, forbidden, immutable, invalid, not_supported, required, too_many
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    each,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)
from networking.kinds.services import IPV4, IPV6, check_address, family_of, validate_endpoint_address

PACKAGE = "io.k8s.api.discovery.v1"

Errors = list[FieldError]

FQDN = "FQDN"
ADDRESS_TYPES = (FQDN, IPV4, IPV6)
MOST_ENDPOINTS, MOST_PORTS, MOST_ADDRESSES, MOST_HINTS = 1000, 20000, 100, 8


class EndpointConditions(Value):
    """ready: it takes new connections. serving: the same, also while it ends. terminating: it is being deleted."""

    ready: Annotated[bool | None, pb(1)] = None
    serving: Annotated[bool | None, pb(2)] = None
    terminating: Annotated[bool | None, pb(3)] = None


class ForZone(Value):
    """name: of the zone."""

    name: Annotated[str, pb(1)] = always("")


class ForNode(Value):
    """name: of the node."""

    name: Annotated[str, pb(1)] = always("")


class EndpointHints(Value):
    """Whose clients had best use an endpoint.

    for_zones: whose clients should use it. for_nodes: whose clients should use it.
    """

    for_zones: Annotated[tuple[ForZone, ...], pb(1)] = ()
    for_nodes: Annotated[tuple[ForNode, ...], pb(2)] = ()


class Endpoint(Value):
    """One pod of a Service.

    addresses: the first counts. target_ref: the pod. node_name, zone: where it runs.

    conditions: whether the endpoint is ready, serving or terminating. hostname: its part of a DNS name.
    deprecated_topology: of no use any more.
    """

    addresses: Annotated[tuple[str, ...], pb(1)] = always(())
    conditions: Annotated[EndpointConditions, pb(2)] = always(EndpointConditions())
    hostname: Annotated[str | None, pb(3)] = None
    target_ref: Annotated[ObjectReference | None, pb(4)] = None
    deprecated_topology: Annotated[dict[str, str], pb(5)] = {}
    node_name: Annotated[str | None, pb(6)] = None
    zone: Annotated[str | None, pb(7)] = None
    hints: Annotated[EndpointHints | None, pb(8)] = None


class EndpointPort(Value):
    """A port of all endpoints of the slice. port: none means every port.

    name: as in the Service. protocol: TCP, UDP or SCTP. app_protocol: what is spoken there, such as http.
    """

    SCHEMA: ClassVar = "io.k8s.api.discovery.v1.EndpointPort"
    ATOMIC: ClassVar = True

    name: Annotated[str | None, pb(1)] = None
    protocol: Annotated[str | None, pb(2)] = None
    port: Annotated[Int32 | None, pb(3)] = None
    app_protocol: Annotated[str | None, pb(4)] = None


class EndpointSlice(ApiObject):
    """Some of the endpoints of a Service. Namespaced. Of which Service, its label kubernetes.io/service-name says.

    address_type: IPv4, IPv6 or FQDN. endpoints: at most 1000. ports: of all of them.
    """

    address_type: Annotated[str, pb(4)] = always("")
    endpoints: Annotated[tuple[Endpoint, ...], pb(2)] = always(())
    ports: Annotated[tuple[EndpointPort, ...], pb(3)] = always(())


# How it is stored -----------------------------------------------------------------------------------------------------


def prepare_slice(new: EndpointSlice) -> EndpointSlice:
    ports = tuple(replace(port, name=port.name or "", protocol=port.protocol or "TCP") for port in new.ports)
    return replace(new, ports=ports)


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_slice(new: EndpointSlice) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + _validate_content(new)


def validate_slice_update(new: EndpointSlice, old: EndpointSlice) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate_content(new)
    if new.address_type != old.address_type:
        found.append(immutable("addressType", new.address_type))
    return found


def _validate_content(new: EndpointSlice) -> Errors:
    type_, found = new.address_type, Errors()
    if not type_:
        found.append(required("addressType"))
    elif type_ not in ADDRESS_TYPES:
        found.append(not_supported("addressType", type_, ADDRESS_TYPES))

    def endpoint(one: Endpoint, path: Path) -> Errors:
        return _validate_endpoint(one, path, type_)

    found += validate_list(new.endpoints, Path("endpoints"), endpoint, maximum=MOST_ENDPOINTS)
    return found + _validate_ports(new.ports)


def _validate_endpoint(one: Endpoint, path: Path, type_: str) -> Errors:
    at, found = path.child("addresses"), Errors()
    if not one.addresses:
        found.append(required(at, "must contain at least 1 address"))
    elif len(one.addresses) > MOST_ADDRESSES:
        found.append(too_many(at, len(one.addresses), MOST_ADDRESSES))
    else:
        for position, address in enumerate(one.addresses):
            found += _validate_address(address, at.at(position), type_)
    if one.node_name is not None:
        found += each(check_dns_subdomain(one.node_name), path.child("nodeName"), one.node_name)
    if one.deprecated_topology:
        found.append(forbidden(path.child("deprecatedTopology"), "cannot set deprecatedTopology"))
    if one.hostname is not None:
        found += each(check_dns_label(one.hostname), path.child("hostname"), one.hostname)
    hints = one.hints or EndpointHints()
    for name, zones in (("forZones", hints.for_zones), ("forNodes", hints.for_nodes)):
        found += _validate_hints([zone.name for zone in zones], path.child("hints", name))
    return found


def _validate_hints(names: list[str], path: Path) -> Errors:
    if len(names) > MOST_HINTS:
        return [too_many(path, len(names), MOST_HINTS)]
    found: Errors = []
    for position, name in enumerate(names):
        at = path.at(position).child("name")
        found += [duplicate(at, name)] if name in names[:position] else []
        found += each(check_dns_subdomain(name), at, name) if name else [required(at)]
    return found


def _validate_address(address: str, path: Path, type_: str) -> Errors:
    if type_ == FQDN:
        found = each(check_dns_subdomain(address), path, address)
        message = "should be a domain with at least two segments separated by dots"
        return found or ([] if "." in address else [invalid(path, address, message)])
    if type_ not in (IPV4, IPV6):
        return []
    if found := check_address(address, path):
        return found
    if family_of(address) != type_:
        return [invalid(path, address, f"must be an {type_} address")]
    return validate_endpoint_address(address, path)


def _validate_ports(ports: tuple[EndpointPort, ...]) -> Errors:
    path, names = Path("ports"), set[str]()
    if len(ports) > MOST_PORTS:
        return [too_many(path, len(ports), MOST_PORTS)]
    found: Errors = []
    for position, port in enumerate(ports):
        at, name = path.at(position), port.name or ""
        if name:
            found += each(check_dns_label(name), at.child("name"), name)
        if name in names:
            found.append(duplicate(at.child("name"), name))
        names.add(name)
        if port.protocol not in PROTOCOLS:
            found.append(not_supported(at.child("protocol"), port.protocol, PROTOCOLS))
        if port.app_protocol is not None:
            found += each(check_label_key(port.app_protocol), at.child("appProtocol"), port.app_protocol)
    return found


# Columns and kind -----------------------------------------------------------------------------------------------------


def first_few(texts: Iterable[str], *, nothing: str, most: int = 3) -> str:
    """The first of them, and how many more there are."""
    every = list(texts)
    shown, rest = ",".join(every[:most]), len(every) - most
    return f"{shown} + {rest} more..." if rest > 0 else shown or nothing


def _port_text(port: EndpointPort) -> str:
    return str(port.port) if port.port is not None else port.name or "*"


ENDPOINT_SLICE = Kind(
    group="discovery.k8s.io",
    version="v1",
    plural="endpointslices",
    type=EndpointSlice,
    prepare_create=prepare_slice,
    prepare_update=lambda new, _old: prepare_slice(new),
    validate_create=validate_slice,
    validate_update=validate_slice_update,
    generation_of=lambda one: (one.address_type, one.endpoints, one.ports),
    columns=(
        NAME_COLUMN,
        Column(name="AddressType", cell=lambda one, _now: one.address_type),
        Column(name="Ports", cell=lambda one, _now: first_few(map(_port_text, one.ports), nothing="<unset>")),
        Column(
            name="Endpoints",
            cell=lambda one, _now: first_few(
                (address for endpoint in one.endpoints for address in endpoint.addresses), nothing="<unset>"
            ),
        ),
        AGE_COLUMN,
    ),
    description="Where pods of a Service are reached.",
)
