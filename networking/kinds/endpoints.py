"""core/v1 Endpoints: the earlier form of EndpointSlices, one object for a Service. PURE.

Sources: k8s.io/api/core/v1, pkg/apis/core/validation (ValidateEndpoints), pkg/registry/core/endpoint and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec.structs import replace

from claims.kinds.container_rules import PROTOCOLS, validate_port_number
from manciple.wire.base import ApiObject, Int32, ObjectReference, Value, always, pb
from manciple.wire.errors import FieldError, not_supported, required
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE
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
from networking.kinds.endpoint_slices import first_few
from networking.kinds.services import validate_endpoint_address

PACKAGE = "io.k8s.api.core.v1"

Errors = list[FieldError]


class EndpointAddress(Value):
    """ip: of a pod. hostname: its name. node_name: where it runs. target_ref: the pod."""

    ATOMIC: ClassVar = True

    ip: Annotated[str, pb(1)] = always("")
    hostname: Annotated[str, pb(3)] = ""
    node_name: Annotated[str | None, pb(4)] = None
    target_ref: Annotated[ObjectReference | None, pb(2)] = None


class EndpointPort(Value):
    """A port of all addresses of a subset.

    name: as in the Service. port: its number. protocol: TCP, UDP or SCTP. app_protocol: what is spoken there, such as
    http.
    """

    ATOMIC: ClassVar = True

    name: Annotated[str, pb(1)] = ""
    port: Annotated[Int32, pb(2)] = always(0)
    protocol: Annotated[str, pb(3)] = ""
    app_protocol: Annotated[str | None, pb(4)] = None


class EndpointSubset(Value):
    """Pods with the same ports. not_ready_addresses: of pods that are not ready.

    addresses: those that are ready.
    """

    addresses: Annotated[tuple[EndpointAddress, ...], pb(1)] = ()
    not_ready_addresses: Annotated[tuple[EndpointAddress, ...], pb(2)] = ()
    ports: Annotated[tuple[EndpointPort, ...], pb(3)] = ()


class Endpoints(ApiObject):
    """Where the pods of the Service of the same name are reached; EndpointSlices say more. Namespaced.

    subsets: pods with the same ports.
    """

    subsets: Annotated[tuple[EndpointSubset, ...], pb(2)] = ()


def prepare_endpoints(new: Endpoints) -> Endpoints:
    return replace(new, subsets=tuple(map(_prepared, new.subsets)))


def _prepared(subset: EndpointSubset) -> EndpointSubset:
    return replace(subset, ports=tuple(replace(port, protocol=port.protocol or "TCP") for port in subset.ports))


def validate_endpoints(new: Endpoints) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True)
    return found + validate_list(new.subsets, Path("subsets"), _validate_subset)


def validate_endpoints_update(new: Endpoints, old: Endpoints) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + validate_endpoints(new)


def _validate_subset(subset: EndpointSubset, path: Path) -> Errors:
    if not subset.addresses and not subset.not_ready_addresses:
        return [required(path, "must specify `addresses` or `notReadyAddresses`")]
    found = validate_list(subset.addresses, path.child("addresses"), _validate_address)
    found += validate_list(subset.not_ready_addresses, path.child("notReadyAddresses"), _validate_address)

    def port(one: EndpointPort, at: Path) -> Errors:
        return _validate_port(one, at, is_named=len(subset.ports) > 1)

    return found + validate_list(subset.ports, path.child("ports"), port)


def _validate_address(one: EndpointAddress, path: Path) -> Errors:
    found = validate_endpoint_address(one.ip, path.child("ip"))
    if one.hostname:
        found += each(check_dns_label(one.hostname), path.child("hostname"), one.hostname)
    if one.node_name is not None:
        found += each(check_dns_subdomain(one.node_name), path.child("nodeName"), one.node_name)
    return found


def _validate_port(port: EndpointPort, path: Path, *, is_named: bool) -> Errors:
    found: Errors = []
    if port.name:
        found += each(check_dns_label(port.name), path.child("name"), port.name)
    elif is_named:
        found.append(required(path.child("name")))
    found += validate_port_number(port.port, path.child("port"))
    if port.protocol not in PROTOCOLS:
        found.append(not_supported(path.child("protocol"), port.protocol, PROTOCOLS))
    if port.app_protocol is not None:
        found += each(check_label_key(port.app_protocol), path.child("appProtocol"), port.app_protocol)
    return found


def _addresses_cell(endpoints: Endpoints, _now: float) -> str:
    texts = (
        f"{address.ip}:{port.port}" if port is not None else address.ip
        for subset in endpoints.subsets
        for port in subset.ports or (None,)
        for address in subset.addresses
    )
    return first_few(texts, nothing=NONE)


ENDPOINTS = Kind(
    group="",
    version="v1",
    kind="Endpoints",
    plural="endpoints",
    short_names=("ep",),
    type=Endpoints,
    list_kind="EndpointsList",
    prepare_create=prepare_endpoints,
    prepare_update=lambda new, _old: prepare_endpoints(new),
    validate_create=validate_endpoints,
    validate_update=validate_endpoints_update,
    columns=(NAME_COLUMN, Column(name="Endpoints", cell=_addresses_cell), AGE_COLUMN),
    deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    description="Where the pods of a Service are reached, in an earlier form.",
)
