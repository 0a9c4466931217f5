"""core/v1 Service: a name and an address for the pods that it selects. PURE.

How the fields of a Service follow from each other is `completed` (as it is stored) and `validate_service`. The address
and the ports that the cluster hands out are `networking.addresses`' business.

Sources: k8s.io/api/core/v1, pkg/apis/core/v1/defaults.go, pkg/apis/core/validation (ValidateService,
ValidateServiceUpdate, ValidateServiceClusterIPsRelatedFields), pkg/registry/core/service (strategy, storage/alloc.go)
and pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from claims.kinds.container_rules import PROTOCOLS, validate_port_number
from manciple.wire.base import ApiObject, Condition, Int32, LabelSelector, Value, always, pb, status_metadata
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.selectors import label_selector_text
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE
from manciple.wire.validation import (
    METADATA,
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_namespace_name,
    check_port_name,
    each,
    validate_conditions,
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.core.v1"

Errors = list[FieldError]

CLUSTER_IP, NODE_PORT, LOAD_BALANCER, EXTERNAL_NAME = "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"
TYPES = (CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT)
#: As its address: it is headless, and has none.
NO_ADDRESS = "None"
CLIENT_IP, NO_AFFINITY = "ClientIP", "None"
CLUSTER, LOCAL = "Cluster", "Local"
IPV4, IPV6 = "IPv4", "IPv6"
FAMILIES = (IPV4, IPV6)
SINGLE_STACK, PREFER_DUAL, REQUIRE_DUAL = "SingleStack", "PreferDualStack", "RequireDualStack"
FAMILY_POLICIES = (PREFER_DUAL, REQUIRE_DUAL, SINGLE_STACK)
VIP = "VIP"
IP_MODES = ("Proxy", VIP)
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
#: The kubelet's port, which no load balancer may show.
KUBELET_PORT = 10250
#: seconds for which a client keeps its pod, unless it says otherwise; and at most
DEFAULT_AFFINITY, LONGEST_AFFINITY = 10800, 86400
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
TOPOLOGY_HINTS, TOPOLOGY_MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"


class ServicePort(Value):
    """A port of a Service.

    name: required where there are several. protocol: TCP, UDP or SCTP. app_protocol: what is spoken over it.
    port: of the Service. target_port: of the pods, as a number or by the name of a container's port; that of the
    Service where nothing is said. node_port: of every node, for the types NodePort and LoadBalancer.
    """

    name: Annotated[str, pb(1)] = ""
    protocol: Annotated[str, pb(2)] = ""
    app_protocol: Annotated[str | None, pb(6)] = None
    port: Annotated[Int32, pb(3)] = always(0)
    target_port: Annotated[int | str, pb(4, encoding="intOrString")] = always(0)
    node_port: Annotated[Int32, pb(5)] = 0


class ClientIPConfig(Value):
    """timeout_seconds: so long a client keeps its pod."""

    timeout_seconds: Annotated[Int32 | None, pb(1)] = None


class SessionAffinityConfig(Value):
    """client_ip: where sessionAffinity is ClientIP."""

    client_ip: Annotated[ClientIPConfig | None, pb(1)] = msgspec.field(default=None, name="clientIP")


class ServiceSpec(Value):
    """What a Service is for.

    ports: at least one, unless it is headless or an ExternalName. selector: the labels of its pods; without one its
    EndpointSlices are somebody else's. cluster_ip: its address; "None": it is headless; empty: the cluster chooses.
    cluster_ips: the same as a list. type: ClusterIP, NodePort, LoadBalancer or ExternalName. external_ips: further
    addresses. session_affinity: ClientIP or None. load_balancer_ip: an address that is asked for.
    load_balancer_source_ranges: networks that may connect to it. external_name: the DNS name that it stands for.
    external_traffic_policy, internal_traffic_policy: Cluster or Local. health_check_node_port: for a load balancer with
    local traffic. publish_not_ready_addresses: its pods count before they are ready. session_affinity_config: of
    ClientIP. ip_family_policy: SingleStack, PreferDualStack or RequireDualStack. ip_families: IPv4, IPv6.
    allocate_load_balancer_node_ports: whether a LoadBalancer gets node ports. load_balancer_class: who makes the load
    balancer. traffic_distribution: which pods are preferred.
    """

    ports: Annotated[tuple[ServicePort, ...], pb(1, merge_key="port", list_keys="port,protocol")] = ()
    selector: Annotated[dict[str, str], pb(2)] = {}
    cluster_ip: Annotated[str, pb(3)] = msgspec.field(default="", name="clusterIP")
    cluster_ips: Annotated[tuple[str, ...], pb(18)] = msgspec.field(default=(), name="clusterIPs")
    type: Annotated[str, pb(4)] = ""
    external_ips: Annotated[tuple[str, ...], pb(5)] = msgspec.field(default=(), name="externalIPs")
    session_affinity: Annotated[str, pb(7)] = ""
    load_balancer_ip: Annotated[str, pb(8)] = msgspec.field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: Annotated[tuple[str, ...], pb(9)] = ()
    external_name: Annotated[str, pb(10)] = ""
    external_traffic_policy: Annotated[str, pb(11)] = ""
    health_check_node_port: Annotated[Int32, pb(12)] = 0
    publish_not_ready_addresses: Annotated[bool, pb(13)] = False
    session_affinity_config: Annotated[SessionAffinityConfig | None, pb(14)] = None
    ip_families: Annotated[tuple[str, ...], pb(19)] = ()
    ip_family_policy: Annotated[str | None, pb(17)] = None
    allocate_load_balancer_node_ports: Annotated[bool | None, pb(20)] = None
    load_balancer_class: Annotated[str | None, pb(21)] = None
    internal_traffic_policy: Annotated[str | None, pb(22)] = None
    traffic_distribution: Annotated[str | None, pb(23)] = None


class PortStatus(Value):
    """A port of a load balancer.

    port: its number. protocol: TCP, UDP or SCTP. error: why the balancer does not serve it.
    """

    port: Annotated[Int32, pb(1)] = always(0)
    protocol: Annotated[str, pb(2)] = always("")
    error: Annotated[str | None, pb(3)] = None


class LoadBalancerIngress(Value):
    """Where a load balancer is reached.

    ip: the balancer's address. hostname: the balancer's name. ip_mode: VIP or Proxy.
    """

    ip: Annotated[str, pb(1)] = ""
    hostname: Annotated[str, pb(2)] = ""
    ip_mode: Annotated[str | None, pb(3)] = None
    ports: Annotated[tuple[PortStatus, ...], pb(4)] = ()


class LoadBalancerStatus(Value):
    """ingress: where it is reached."""

    ingress: Annotated[tuple[LoadBalancerIngress, ...], pb(1)] = ()


class ServiceStatus(Value):
    """load_balancer: what whoever made it says of it."""

    load_balancer: Annotated[LoadBalancerStatus, pb(1)] = always(LoadBalancerStatus())
    conditions: Annotated[tuple[Condition, ...], pb(2, merge_key="type")] = ()


class Service(ApiObject):
    """A name and an address for pods. Namespaced. Nothing is forwarded to its pods here: programs read its
    EndpointSlices.
    """

    spec: Annotated[ServiceSpec, pb(2)] = always(ServiceSpec())
    status: Annotated[ServiceStatus, pb(3)] = always(ServiceStatus())


# What follows from its type -------------------------------------------------------------------------------------------


def is_headless(spec: ServiceSpec) -> bool:
    return spec.cluster_ips == (NO_ADDRESS,)


def has_address(spec: ServiceSpec) -> bool:
    """Whether a Service of its type has one, be it "None"."""
    return spec.type in (CLUSTER_IP, NODE_PORT, LOAD_BALANCER)


def has_node_ports(spec: ServiceSpec) -> bool:
    return spec.type in (NODE_PORT, LOAD_BALANCER)


def has_health_check(spec: ServiceSpec) -> bool:
    return spec.type == LOAD_BALANCER and spec.external_traffic_policy == LOCAL


def is_reached_from_outside(spec: ServiceSpec) -> bool:
    return has_node_ports(spec) or (spec.type == CLUSTER_IP and bool(spec.external_ips))


# How it is stored -----------------------------------------------------------------------------------------------------


def create_service(new: Service) -> Service:
    spec = _with_defaults(new.spec)
    if spec.cluster_ip and not spec.cluster_ips:
        spec = replace(spec, cluster_ips=(spec.cluster_ip,))
    return replace(new, spec=_with_families(spec), status=ServiceStatus())


def update_service(new: Service, old: Service) -> Service:
    spec = _without_what_ended(_with_known(_with_defaults(new.spec), old.spec), old.spec)
    return replace(new, spec=_with_families(spec, old.spec), status=_status_for(spec, old.status))


def update_service_status(new: Service, old: Service) -> Service:
    metadata = status_metadata(new.metadata, old.metadata)
    return replace(old, metadata=metadata, status=_status_for(old.spec, new.status))


def _status_for(spec: ServiceSpec, status: ServiceStatus) -> ServiceStatus:
    """Only a load balancer is reached anywhere."""
    if spec.type != LOAD_BALANCER:
        return replace(status, load_balancer=LoadBalancerStatus())
    ingress = tuple(
        replace(one, ip_mode=VIP) if one.ip and one.ip_mode is None else one for one in status.load_balancer.ingress
    )
    return replace(status, load_balancer=LoadBalancerStatus(ingress=ingress))


def _with_defaults(spec: ServiceSpec) -> ServiceSpec:
    affinity, type_ = spec.session_affinity or NO_AFFINITY, spec.type or CLUSTER_IP
    config = None if affinity == NO_AFFINITY else spec.session_affinity_config
    if affinity == CLIENT_IP and _timeout_of(spec) is None:
        config = SessionAffinityConfig(client_ip=ClientIPConfig(timeout_seconds=DEFAULT_AFFINITY))
    spec = replace(
        spec, session_affinity=affinity, session_affinity_config=config, type=type_, ports=tuple(_ports_of(spec))
    )
    if is_reached_from_outside(spec) and not spec.external_traffic_policy:
        spec = replace(spec, external_traffic_policy=CLUSTER)
    if has_address(spec) and spec.internal_traffic_policy is None:
        spec = replace(spec, internal_traffic_policy=CLUSTER)
    if type_ == LOAD_BALANCER and spec.allocate_load_balancer_node_ports is None:
        spec = replace(spec, allocate_load_balancer_node_ports=True)
    return spec


def _timeout_of(spec: ServiceSpec) -> int | None:
    config = spec.session_affinity_config
    return config.client_ip.timeout_seconds if config is not None and config.client_ip is not None else None


def _ports_of(spec: ServiceSpec) -> Iterator[ServicePort]:
    for port in spec.ports:
        target = port.port if port.target_port in (0, "") else port.target_port
        yield replace(port, protocol=port.protocol or "TCP", target_port=target)


def _with_known(spec: ServiceSpec, old: ServiceSpec) -> ServiceSpec:
    """With what the cluster has handed out and the client leaves out."""
    if spec.cluster_ip != old.cluster_ip and spec.cluster_ips == old.cluster_ips:
        spec = replace(spec, cluster_ips=(spec.cluster_ip,) if spec.cluster_ip else ())
    if has_address(spec) and has_address(old):
        if not spec.cluster_ip:
            spec = replace(spec, cluster_ip=old.cluster_ip)
        if not spec.cluster_ips and spec.cluster_ip == old.cluster_ip:
            spec = replace(spec, cluster_ips=old.cluster_ips)
    if spec.cluster_ip and not spec.cluster_ips:
        spec = replace(spec, cluster_ips=(spec.cluster_ip,))
    if has_node_ports(spec) and has_node_ports(old):
        spec = replace(spec, ports=tuple(_with_node_ports(spec, old)))
    if has_health_check(spec) and has_health_check(old) and not spec.health_check_node_port:
        spec = replace(spec, health_check_node_port=old.health_check_node_port)
    return spec


def _with_node_ports(spec: ServiceSpec, old: ServiceSpec) -> Iterator[ServicePort]:
    """A port of the same name keeps its node port, unless another one has it now."""
    known = {port.name: port.node_port for port in old.ports}
    taken = {port.node_port for port in spec.ports}
    for port in spec.ports:
        number = 0 if port.node_port else known.get(port.name, 0)
        if number and number not in taken:
            taken.add(number)
            yield replace(port, node_port=number)
        else:
            yield port


def _without_what_ended(spec: ServiceSpec, old: ServiceSpec) -> ServiceSpec:
    """Without what its old type needed and its new one does not, where the client left it as it was."""
    ended: dict[str, Any] = {}
    if has_address(old) and not has_address(spec):
        if (spec.cluster_ip, spec.cluster_ips) == (old.cluster_ip, old.cluster_ips):
            ended |= {"cluster_ip": "", "cluster_ips": ()}
        if spec.ip_families == old.ip_families:
            ended["ip_families"] = ()
        if spec.ip_family_policy == old.ip_family_policy:
            ended["ip_family_policy"] = None
    if has_node_ports(old) and not has_node_ports(spec):
        numbers = [port.node_port for port in spec.ports]
        if numbers == [port.node_port for port in old.ports]:
            ended["ports"] = tuple(replace(port, node_port=0) for port in spec.ports)
    for applies, name, nothing in (
        (has_health_check, "health_check_node_port", 0),
        (is_reached_from_outside, "external_traffic_policy", ""),
        (lambda one: one.type == LOAD_BALANCER, "allocate_load_balancer_node_ports", None),
        (lambda one: one.type == LOAD_BALANCER, "load_balancer_class", None),
        (lambda one: one.type == EXTERNAL_NAME, "external_name", ""),
    ):
        if applies(old) and not applies(spec) and getattr(spec, name) == getattr(old, name):
            ended[name] = nothing
    return replace(spec, **ended) if ended else spec


def _with_families(spec: ServiceSpec, old: ServiceSpec | None = None) -> ServiceSpec:
    """With the families of its addresses. The cluster has IPv4 alone; what it lacks is refused later."""
    if spec.type == EXTERNAL_NAME or _validate_addresses(spec):
        return spec
    if old is not None and old.type != EXTERNAL_NAME:
        spec = replace(
            spec,
            ip_families=spec.ip_families or old.ip_families,
            ip_family_policy=spec.ip_family_policy or old.ip_family_policy,
        )
    without_pods = is_headless(spec) and not spec.selector
    policy = spec.ip_family_policy
    if policy is None:
        is_dual = without_pods or len(spec.ip_families) > 1 or len(spec.cluster_ips) > 1
        policy = REQUIRE_DUAL if is_dual else SINGLE_STACK
    families = list(spec.ip_families)
    if not is_headless(spec):
        families += [family_of(address) for address in spec.cluster_ips[len(families) :]]
    families = families or [IPV4]
    if without_pods and policy != SINGLE_STACK and len(families) == 1:
        families.append(IPV6 if families == [IPV4] else IPV4)
    return replace(spec, ip_families=tuple(families), ip_family_policy=policy)


def family_of(address: str) -> str:
    """Raises: ValueError."""
    return IPV6 if ip_address(address).version == 6 else IPV4  # noqa: PLR2004 - the version of the protocol


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_service(new: Service) -> Errors:
    spec = new.spec
    if spec.type != EXTERNAL_NAME and (found := _validate_addresses(spec) or _validate_served_families(spec)):
        return found  # upstream finds these before it validates
    found = validate_object_meta(new.metadata, namespaced=True, name_rule=check_namespace_name)
    return found + _validate_spec(new)


def _validate_spec(new: Service) -> Errors:
    spec = new.spec
    found = _validate_annotations(new) + _validate_by_type(spec)
    ports, names = SPEC.child("ports"), set[str]()
    for position, port in enumerate(spec.ports):
        found += _validate_port(port, ports.at(position), names, is_named=len(spec.ports) > 1)
    found += validate_labels(spec.selector, SPEC.child("selector"))
    found += _validate_affinity(spec)
    for position, address in enumerate(spec.external_ips):
        found += validate_endpoint_address(address, SPEC.child("externalIPs").at(position))
    if spec.type not in TYPES:
        found.append(not_supported(SPEC.child("type"), spec.type, TYPES))
    found += _validate_repeats(spec)
    found += _validate_load_balancer(new)
    return found + _validate_policies(spec)


def validate_service_update(new: Service, old: Service) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    return found + _validate_kept(new.spec, old.spec) + validate_service(new)


def validate_service_status(new: Service, old: Service) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_conditions(new.status.conditions, STATUS.child("conditions"))
    at = STATUS.child("loadBalancer", "ingress")
    for position, ingress in enumerate(new.status.load_balancer.ingress):
        path, mode = at.at(position), ingress.ip_mode
        found += validate_reached(ingress.ip, ingress.hostname, path)
        if mode is not None and not ingress.ip:
            found.append(forbidden(path.child("ipMode"), "may not be specified when `ip` is not set"))
        elif mode is not None and mode not in IP_MODES:
            found.append(not_supported(path.child("ipMode"), mode, IP_MODES))
    return found


def validate_reached(address: str, host: str, path: Path) -> Errors:
    """Where a load balancer is reached."""
    found = check_address(address, path.child("ip")) if address else []
    if host:
        at = path.child("hostname")
        found += each(check_dns_subdomain(host), at, host)
        if not check_address(host, at):
            found.append(invalid(at, host, "must be a DNS name, not an IP address"))
    return found


def _validate_annotations(new: Service) -> Errors:
    hints, mode = (new.metadata.annotations.get(name) for name in (TOPOLOGY_HINTS, TOPOLOGY_MODE))
    if hints is None or mode is None or hints == mode:
        return []
    message = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
    return [invalid(METADATA.child("annotations").key(TOPOLOGY_MODE), mode, message)]


def _validate_by_type(spec: ServiceSpec) -> Errors:
    found: Errors = []
    if not spec.ports and not is_headless(spec) and spec.type != EXTERNAL_NAME:
        found.append(required(SPEC.child("ports")))
    if spec.type == LOAD_BALANCER:
        message = f"may not expose port {KUBELET_PORT} externally since it is used by kubelet"
        found += [
            invalid(SPEC.child("ports").at(position), port.port, message)
            for position, port in enumerate(spec.ports)
            if port.port == KUBELET_PORT
        ]
    if has_node_ports(spec) and is_headless(spec):
        message = f"may not be set to 'None' for {spec.type} services"
        found.append(invalid(SPEC.child("clusterIPs").at(0), NO_ADDRESS, message))
    if spec.type == EXTERNAL_NAME:
        given = {
            "clusterIPs": spec.cluster_ips,
            "ipFamilies": spec.ip_families,
            "ipFamilyPolicy": spec.ip_family_policy is not None,
        }
        message = "may not be set for ExternalName services"
        found += [forbidden(SPEC.child(name), message) for name, is_given in given.items() if is_given]
        at, name = SPEC.child("externalName"), spec.external_name.removesuffix(".")
        found += each(check_dns_subdomain(name), at, name) if name else [required(at)]
    return found


def _validate_port(port: ServicePort, path: Path, names: set[str], *, is_named: bool) -> Errors:
    """names: those of the ports before it; its own is added."""
    found: Errors = []
    if port.name:
        found += each(check_dns_label(port.name), path.child("name"), port.name)
        if port.name in names:
            found.append(duplicate(path.child("name"), port.name))
        names.add(port.name)
    elif is_named:
        found.append(required(path.child("name")))
    found += validate_port_number(port.port, path.child("port"))
    if port.protocol not in PROTOCOLS:
        found.append(not_supported(path.child("protocol"), port.protocol, PROTOCOLS))
    if isinstance(port.target_port, int):
        found += validate_port_number(port.target_port, path.child("targetPort"))
    else:
        found += each(check_port_name(port.target_port), path.child("targetPort"), port.target_port)
    if port.app_protocol is not None:
        found += each(check_label_key(port.app_protocol), path.child("appProtocol"), port.app_protocol)
    return found


def _validate_affinity(spec: ServiceSpec) -> Errors:
    config, at = spec.session_affinity_config, SPEC.child("sessionAffinityConfig")
    if spec.session_affinity not in (CLIENT_IP, NO_AFFINITY):
        return [not_supported(SPEC.child("sessionAffinity"), spec.session_affinity, (CLIENT_IP, NO_AFFINITY))]
    if spec.session_affinity == NO_AFFINITY:
        return [] if config is None else [forbidden(at, "must not be set when session affinity is None")]
    seconds = _timeout_of(spec)
    if seconds is None or not 0 < seconds <= LONGEST_AFFINITY:
        message = f"must be greater than 0 and less than {LONGEST_AFFINITY}"
        return [invalid(at.child("clientIP", "timeoutSeconds"), seconds, message)]
    return []


def _validate_repeats(spec: ServiceSpec) -> Errors:
    """Ports that are there twice, or are not for its type."""
    found: Errors = []
    ports, node_ports = set[tuple[str, int]](), set[tuple[str, int]]()
    for position, port in enumerate(spec.ports):
        path = SPEC.child("ports").at(position)
        if spec.type == CLUSTER_IP and port.node_port:
            found.append(forbidden(path.child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
        if port.node_port and (port.protocol, port.node_port) in node_ports:
            found.append(duplicate(path.child("nodePort"), port.node_port))
        if (port.protocol, port.port) in ports:
            shown = {"Name": "", "Protocol": port.protocol, "AppProtocol": None, "Port": port.port}
            found.append(duplicate(path, {**shown, "TargetPort": 0, "NodePort": 0}))
        node_ports.add((port.protocol, port.node_port))
        ports.add((port.protocol, port.port))
    return found


def _validate_load_balancer(new: Service) -> Errors:
    spec, found = new.spec, Errors()
    is_balanced, only = spec.type == LOAD_BALANCER, "may only be used when `type` is 'LoadBalancer'"
    at, ranges = SPEC.child("LoadBalancerSourceRanges"), spec.load_balancer_source_ranges
    if not ranges and (text := new.metadata.annotations.get(SOURCE_RANGES)) is not None:
        at, ranges = (
            METADATA.child("annotations").key(SOURCE_RANGES),
            tuple(text.strip().split(",")) if text.strip() else (),
        )
        if not is_balanced:
            found.append(forbidden(at, only))
    elif ranges and not is_balanced:
        found.append(forbidden(at, only))
    for position, text in enumerate(ranges):
        found += check_network(text.strip(), at if at.startswith(METADATA) else at.at(position))
    if spec.allocate_load_balancer_node_ports is not None and not is_balanced:
        found.append(forbidden(SPEC.child("allocateLoadBalancerNodePorts"), only))
    if spec.load_balancer_class is not None:
        path = SPEC.child("loadBalancerClass")
        found += [] if is_balanced else [forbidden(path, only)]
        found += each(check_label_key(spec.load_balancer_class), path, spec.load_balancer_class)
    return found


def _validate_policies(spec: ServiceSpec) -> Errors:
    found: Errors = []
    outside, at = spec.external_traffic_policy, SPEC.child("externalTrafficPolicy")
    if not is_reached_from_outside(spec):
        if outside:
            found.append(invalid(at, outside, "may only be set for externally-accessible services"))
    elif outside not in (CLUSTER, LOCAL):
        found.append(not_supported(at, outside, (CLUSTER, LOCAL)))
    number, at = spec.health_check_node_port, SPEC.child("healthCheckNodePort")
    if number and not has_health_check(spec):
        message = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        found.append(invalid(at, number, message))
    elif number:
        found += validate_port_number(number, at)
    inside = spec.internal_traffic_policy
    if inside is not None and inside not in (CLUSTER, LOCAL):
        found.append(not_supported(SPEC.child("internalTrafficPolicy"), inside, (CLUSTER, LOCAL)))
    wanted = spec.traffic_distribution
    if wanted is not None and wanted not in DISTRIBUTIONS:
        found.append(not_supported(SPEC.child("trafficDistribution"), wanted, DISTRIBUTIONS))
    return found


# Addresses and their families -----------------------------------------------------------------------------------------


def check_address(text: str, path: Path) -> Errors:
    try:
        address = ip_address(text if "%" not in text else "")
    except ValueError:
        return [invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    if address.version == 6 and address.ipv4_mapped is not None:  # noqa: PLR2004 - the version of the protocol
        return [invalid(path, text, "must not be an IPv4-mapped IPv6 address")]
    return []


def validate_endpoint_address(text: str, path: Path) -> Errors:
    """An address that something else than this machine can be reached at (upstream: ValidateEndpointIP)."""
    if found := check_address(text, path):
        return found
    address = ip_address(text)
    if address.is_unspecified:
        return [invalid(path, text, f"may not be unspecified ({text})")]
    if address.is_loopback:
        return [invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")]
    if address.is_link_local:
        return [invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")]
    if any(address in network for network in _LINK_LOCAL_MULTICAST if network.version == address.version):
        return [invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")]
    return []


_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))


def check_network(text: str, path: Path) -> Errors:
    try:
        ip_network(text, strict=False) if "/" in text else ip_address("")
    except ValueError:
        return [invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")]
    return []


def _validate_addresses(spec: ServiceSpec) -> Errors:
    """Addresses, families and the policy by themselves and among each other."""
    at, addresses = SPEC.child("clusterIPs"), spec.cluster_ips
    found: Errors = []
    if not spec.cluster_ip and addresses:
        found.append(invalid(at, addresses, "must be empty when `clusterIP` is not specified"))
    elif addresses and addresses[0] != spec.cluster_ip:
        found.append(invalid(at, addresses, "first value must match `clusterIP`"))
    found += _validate_families(spec)
    wrong: Errors = []
    for position, address in enumerate(addresses):
        if position == 0 and address == NO_ADDRESS:
            if len(addresses) > 1:
                wrong.append(invalid(at, addresses, "'None' must be the first and only value"))
        else:
            wrong += check_address(address, at.at(position))
    found += wrong
    if len(addresses) > len(FAMILIES):
        found.append(invalid(at, addresses, "may only hold up to 2 values"))
    if wrong:
        return found
    families = [family_of(address) for address in addresses if address != NO_ADDRESS]
    if len(set(families)) < len(families):
        found.append(invalid(at, addresses, "may specify no more than one IP for each IP family"))
    for position, (is_family, said) in enumerate(zip(families, spec.ip_families, strict=False)):
        if not found and is_family != said:
            message = f"expected an {said} value as indicated by `ipFamilies[{position}]`"
            found.append(invalid(at.at(position), addresses[position], message))
    return found


def _validate_families(spec: ServiceSpec) -> Errors:
    at, policy_at, policy = SPEC.child("ipFamilies"), SPEC.child("ipFamilyPolicy"), spec.ip_family_policy
    found: Errors = []
    for position, family in enumerate(spec.ip_families):
        if family not in FAMILIES:
            found.append(not_supported(at.at(position), family, FAMILIES))
        if family in spec.ip_families[:position]:
            found.append(duplicate(at.at(position), family))
    if policy is not None and policy not in FAMILY_POLICIES:
        found.append(not_supported(policy_at, policy, FAMILY_POLICIES))
    if policy == SINGLE_STACK and not found:
        for several, what in ((spec.ip_families, "IP families"), (spec.cluster_ips, "cluster IPs")):
            if len(several) > 1:
                message = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                return [invalid(policy_at, policy, message)]
    return found


def _validate_served_families(spec: ServiceSpec) -> Errors:
    """The cluster has IPv4 alone; only a headless Service without pods, whose addresses are not ours, may have both."""
    if spec.type not in TYPES or (is_headless(spec) and not spec.selector):
        return []
    at = SPEC.child("clusterIPs")
    found = [
        invalid(at.at(position), spec.cluster_ips, f"{IPV6} is not configured on this cluster")
        for position, address in enumerate(spec.cluster_ips)
        if address != NO_ADDRESS and family_of(address) == IPV6
    ]
    if found:
        return found
    if spec.ip_family_policy == REQUIRE_DUAL:
        message = "this cluster is not configured for dual-stack services"
        found.append(invalid(SPEC.child("ipFamilyPolicy"), spec.ip_family_policy, message))
    return found + [
        invalid(SPEC.child("ipFamilies").at(position), family, "not configured on this cluster")
        for position, family in enumerate(spec.ip_families)
        if family != IPV4
    ]


def _validate_kept(new: ServiceSpec, old: ServiceSpec) -> Errors:
    """Addresses and families stay, except from and to an ExternalName; so does what a load balancer was made with."""
    found: Errors = []
    if new.type == old.type == LOAD_BALANCER and new.load_balancer_class != old.load_balancer_class:
        found.append(invalid(SPEC.child("loadBalancerClass"), new.load_balancer_class, "may not change once set"))
    if has_health_check(new) and has_health_check(old) and new.health_check_node_port != old.health_check_node_port:
        found.append(forbidden(SPEC.child("healthCheckNodePort"), "field is immutable"))
    if EXTERNAL_NAME in (new.type, old.type):
        return found
    at, now, before = SPEC.child("clusterIPs"), new.cluster_ips, old.cluster_ips
    if before and not now:
        found.append(invalid(at.at(0), now, "primary clusterIP can not be unset"))
    found += [
        invalid(at.at(position), now, "may not change once set")
        for position, (one, other) in enumerate(zip(now, before, strict=False))
        if one != other
    ]
    if is_headless(new) or is_headless(old):
        return found
    at = SPEC.child("ipFamilies")
    if old.ip_families and not new.ip_families:
        found.append(invalid(at.at(0), new.ip_families, "primary ipFamily can not be unset"))
    found += [
        invalid(at.at(position), new.ip_families, "may not change once set")
        for position, (one, other) in enumerate(zip(new.ip_families, old.ip_families, strict=False))
        if one != other
    ]
    return found


# Columns and kind -----------------------------------------------------------------------------------------------------


def labels_text(labels: Mapping[str, str]) -> str:
    """As kubectl shows a selector of plain labels."""
    return label_selector_text(LabelSelector(match_labels=dict(labels))) or NONE


def _external(service: Service, _now: float) -> str:
    spec = service.spec
    if spec.type == EXTERNAL_NAME:
        return spec.external_name
    addresses = list(spec.external_ips)
    if spec.type == LOAD_BALANCER:
        ingress = service.status.load_balancer.ingress
        addresses = [one.ip or one.hostname for one in ingress] + addresses
        return ",".join(addresses) or "<pending>"
    return ",".join(addresses) or NONE


def ports_text(ports: Iterable[ServicePort]) -> str:
    texts = (f"{one.port}:{one.node_port}" if one.node_port else str(one.port) for one in ports)
    return ",".join(f"{text}/{port.protocol}" for text, port in zip(texts, ports, strict=True)) or NONE


SERVICE = Kind(
    group="",
    version="v1",
    plural="services",
    short_names=("svc",),
    categories=("all",),
    type=Service,
    prepare_create=create_service,
    prepare_update=update_service,
    validate_create=validate_service,
    validate_update=validate_service_update,
    subresources={"status": Subresource(prepare_update=update_service_status, validate_update=validate_service_status)},
    selectable=lambda one: {"spec.clusterIP": one.spec.cluster_ip, "spec.type": one.spec.type},
    columns=(
        NAME_COLUMN,
        Column(name="Type", cell=lambda one, _now: one.spec.type),
        Column(name="Cluster-IP", cell=lambda one, _now: next(iter(one.spec.cluster_ips), NONE)),
        Column(name="External-IP", cell=_external),
        Column(name="Port(s)", cell=lambda one, _now: ports_text(one.spec.ports)),
        AGE_COLUMN,
        Column(name="Selector", priority=1, cell=lambda one, _now: labels_text(one.spec.selector)),
    ),
    description="A name and an address for pods.",
)
