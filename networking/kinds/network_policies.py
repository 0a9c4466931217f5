"""networking.k8s.io/v1 NetworkPolicy: which connections pods accept and make. PURE.

They are kept for whoever reads them, and not enforced: a pod of its own network reaches the API alone anyway
(`networking.warnings`).

Sources: k8s.io/api/networking/v1, pkg/apis/networking/{v1/defaults.go,validation/validation.go} and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Annotated

import msgspec
from msgspec.structs import replace

from claims.kinds.container_rules import PROTOCOLS, validate_port_number
from manciple.wire.base import ApiObject, Int32, LabelSelector, Value, always, pb
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.registry import Column, Kind
from manciple.wire.selectors import label_selector_text, validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    Path,
    check_port_name,
    each,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)
from networking.kinds.services import check_network

PACKAGE = "io.k8s.api.networking.v1"

Errors = list[FieldError]

INGRESS, EGRESS = TYPES = ("Ingress", "Egress")


class NetworkPolicyPort(Value):
    """protocol: TCP (the default), UDP or SCTP. port: by number or by the name of a container's port. end_port: the
    last one of a range.
    """

    protocol: Annotated[str | None, pb(1)] = None
    port: Annotated[int | str | None, pb(2, encoding="intOrString")] = None
    end_port: Annotated[Int32 | None, pb(3)] = None


class IPBlock(Value):
    """Addresses. cidr: such as 192.168.1.0/24. except: parts of it that do not count."""

    cidr: Annotated[str, pb(1)] = always("")
    except_: Annotated[tuple[str, ...], pb(2)] = msgspec.field(default=(), name="except")


class NetworkPolicyPeer(Value):
    """The other side: pods, by their labels and those of their namespace, or addresses."""

    pod_selector: Annotated[LabelSelector | None, pb(1)] = None
    namespace_selector: Annotated[LabelSelector | None, pb(2)] = None
    ip_block: Annotated[IPBlock | None, pb(3)] = msgspec.field(default=None, name="ipBlock")


class NetworkPolicyIngressRule(Value):
    """Connections that are accepted. ports: all without any. from: from everywhere without any."""

    ports: Annotated[tuple[NetworkPolicyPort, ...], pb(1)] = ()
    from_: Annotated[tuple[NetworkPolicyPeer, ...], pb(2)] = msgspec.field(default=(), name="from")


class NetworkPolicyEgressRule(Value):
    """Connections that may be made. ports: all without any. to: to everywhere without any."""

    ports: Annotated[tuple[NetworkPolicyPort, ...], pb(1)] = ()
    to: Annotated[tuple[NetworkPolicyPeer, ...], pb(2)] = ()


class NetworkPolicySpec(Value):
    """pod_selector: whom it is about. ingress, egress: what they may accept and make. policy_types: Ingress, Egress."""

    pod_selector: Annotated[LabelSelector, pb(1)] = always(LabelSelector())
    ingress: Annotated[tuple[NetworkPolicyIngressRule, ...], pb(2)] = ()
    egress: Annotated[tuple[NetworkPolicyEgressRule, ...], pb(3)] = ()
    policy_types: Annotated[tuple[str, ...], pb(4)] = ()


class NetworkPolicy(ApiObject):
    """Which connections pods accept and make. Namespaced. Not enforced here."""

    spec: Annotated[NetworkPolicySpec, pb(2)] = always(NetworkPolicySpec())


def prepare_policy(new: NetworkPolicy) -> NetworkPolicy:
    spec = new.spec
    types = spec.policy_types or ((INGRESS, EGRESS) if spec.egress else (INGRESS,))
    ingress = tuple(replace(rule, ports=_with_protocols(rule.ports)) for rule in spec.ingress)
    egress = tuple(replace(rule, ports=_with_protocols(rule.ports)) for rule in spec.egress)
    return replace(new, spec=replace(spec, ingress=ingress, egress=egress, policy_types=types))


def _with_protocols(ports: Sequence[NetworkPolicyPort]) -> tuple[NetworkPolicyPort, ...]:
    return tuple(replace(port, protocol="TCP") if port.protocol is None else port for port in ports)


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_policy(new: NetworkPolicy) -> Errors:
    return validate_object_meta(new.metadata, namespaced=True) + _validate_spec(new.spec)


def validate_policy_update(new: NetworkPolicy, old: NetworkPolicy) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec)


def _validate_spec(spec: NetworkPolicySpec) -> Errors:
    found = validate_label_selector(spec.pod_selector, SPEC.child("podSelector"))
    for position, accepted in enumerate(spec.ingress):
        at = SPEC.child("ingress").at(position)
        found += validate_list(accepted.ports, at.child("ports"), _validate_port)
        found += validate_list(accepted.from_, at.child("from"), _validate_peer)
    for position, made in enumerate(spec.egress):
        at = SPEC.child("egress").at(position)
        found += validate_list(made.ports, at.child("ports"), _validate_port)
        found += validate_list(made.to, at.child("to"), _validate_peer)
    path = SPEC.child("policyTypes")
    if len(spec.policy_types) > len(TYPES):
        return [*found, invalid(path, spec.policy_types, "may not specify more than two policyTypes")]
    return found + [
        not_supported(path.at(position), type_, TYPES)
        for position, type_ in enumerate(spec.policy_types)
        if type_ not in TYPES
    ]


def _validate_port(one: NetworkPolicyPort, path: Path) -> Errors:
    port, end, at = one.port, one.end_port, path.child("endPort")
    found: Errors = []
    if one.protocol is not None and one.protocol not in PROTOCOLS:
        found.append(not_supported(path.child("protocol"), one.protocol, PROTOCOLS))
    if isinstance(port, int):
        found += validate_port_number(port, path.child("port"))
        if end is not None and end < port:
            found.append(invalid(at, end, "must be greater than or equal to `port`"))
        return found + (validate_port_number(end, at) if end is not None else [])
    if end is not None:
        why = "is not specified" if port is None else "is non-numeric"
        found.append(invalid(at, end, f"may not be specified when `port` {why}"))
    return found + (each(check_port_name(port), path.child("port"), port) if port is not None else [])


def _validate_peer(one: NetworkPolicyPeer, path: Path) -> Errors:
    selectors = {"podSelector": one.pod_selector, "namespaceSelector": one.namespace_selector}
    given = {name: selector for name, selector in selectors.items() if selector is not None}
    found = [error for name, one in given.items() for error in validate_label_selector(one, path.child(name))]
    if one.ip_block is None:
        return found if given else [required(path, "must specify a peer")]
    found += _validate_block(one.ip_block, path.child("ipBlock"))
    return [*found, forbidden(path, "may not specify both ipBlock and another peer")] if given else found


def _validate_block(block: IPBlock, path: Path) -> Errors:
    at = path.child("cidr")
    if not block.cidr:
        return [required(at)]
    if found := check_network(block.cidr, at):
        return found
    whole = ip_network(block.cidr, strict=False)
    for position, text in enumerate(block.except_):
        at = path.child("except").at(position)
        if wrong := check_network(text, at):
            found += wrong
            continue
        part = ip_network(text, strict=False)
        is_within = part.version == whole.version and part.network_address in whole
        if not is_within or part.prefixlen <= whole.prefixlen:
            found.append(invalid(at, text, "must be a strict subset of `cidr`"))
    return found


NETWORK_POLICY = Kind(
    group="networking.k8s.io",
    version="v1",
    plural="networkpolicies",
    short_names=("netpol",),
    type=NetworkPolicy,
    prepare_create=prepare_policy,
    prepare_update=lambda new, _old: prepare_policy(new),
    validate_create=validate_policy,
    validate_update=validate_policy_update,
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(
            name="Pod-Selector",
            description="Whom it is about",
            cell=lambda one, _now: label_selector_text(one.spec.pod_selector),
        ),
        AGE_COLUMN,
    ),
    description="Which connections pods accept and make.",
)
