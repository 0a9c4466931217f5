"""networking.k8s.io/v1 Ingress and IngressClass: how programs outside reach Services by HTTP. PURE.

They are kept for whoever reads them: no ingress controller is served here (`networking.warnings`).

Sources: k8s.io/api/networking/v1, pkg/apis/networking/{v1/defaults.go,validation/validation.go},
pkg/registry/networking/{ingress,ingressclass}/strategy.go and pkg/printers/internalversion/printers.go of Kubernetes
1.36.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from claims.kinds.container_rules import validate_port_number
from claims.kinds.containers import TypedLocalObjectReference
from manciple.wire.base import ApiObject, Int32, Value, always, pb, status_metadata
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required, too_long
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE
from manciple.wire.validation import (
    DNS_SUBDOMAIN_MAX,
    SPEC,
    STATUS,
    Path,
    check_dns_subdomain,
    check_namespace_name,
    check_path_segment,
    check_port_name,
    each,
    regex_message,
    required_or,
    too_long_message,
    validate_immutable,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)
from networking.kinds.services import PortStatus as ServicePortStatus
from networking.kinds.services import check_address, validate_reached

PACKAGE = "io.k8s.api.networking.v1"

Errors = list[FieldError]

EXACT, IMPLEMENTATION, PREFIX = PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
CLUSTER, NAMESPACE = SCOPES = ("Cluster", "Namespace")
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
LONGEST_CONTROLLER = 250
_BAD_PARTS, _BAD_ENDS = ("//", "/./", "/../", "%2f", "%2F"), ("/..", "/.")
_WILDCARD = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_RULE = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
)
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


class ServiceBackendPort(Value):
    """A port of a Service, by name or number.

    name: the name of the Service's port. number: the number of the Service's port.
    """

    ATOMIC: ClassVar = True

    name: Annotated[str, pb(1)] = ""
    number: Annotated[Int32, pb(2)] = 0


class IngressServiceBackend(Value):
    """A port of a Service of the same namespace.

    name: the name of a Service in the namespace.
    """

    name: Annotated[str, pb(1)] = always("")
    port: Annotated[ServiceBackendPort, pb(2)] = ServiceBackendPort()


class IngressBackend(Value):
    """Where requests go: to a Service, or to an object of another kind."""

    service: Annotated[IngressServiceBackend | None, pb(4)] = None
    resource: Annotated[TypedLocalObjectReference | None, pb(3)] = None


class HTTPIngressPath(Value):
    """path: of the requests. path_type: Exact, Prefix or ImplementationSpecific. backend: where they go."""

    path: Annotated[str, pb(1)] = ""
    path_type: Annotated[str | None, pb(3)] = None
    backend: Annotated[IngressBackend, pb(2)] = always(IngressBackend())


class HTTPIngressRuleValue(Value):
    """paths: where requests go, by their path."""

    paths: Annotated[tuple[HTTPIngressPath, ...], pb(1)] = always(())


class IngressRuleValue(Value):
    """What follows from a rule."""

    http: Annotated[HTTPIngressRuleValue | None, pb(1)] = None


class IngressRule(IngressRuleValue):
    """host: of the requests; every host without one.

    http: the paths of the host.
    """

    EMBEDS: ClassVar = (IngressRuleValue, 2)

    host: Annotated[str, pb(1)] = ""


class IngressTLS(Value):
    """hosts: of the certificate. secret_name: the Secret that has it."""

    hosts: Annotated[tuple[str, ...], pb(1)] = ()
    secret_name: Annotated[str, pb(2)] = ""


class IngressSpec(Value):
    """ingress_class_name: who serves it. default_backend: of requests that fit no rule. tls: certificates. rules:
    where requests go.
    """

    ingress_class_name: Annotated[str | None, pb(4)] = None
    default_backend: Annotated[IngressBackend | None, pb(1)] = None
    tls: Annotated[tuple[IngressTLS, ...], pb(2)] = ()
    rules: Annotated[tuple[IngressRule, ...], pb(3)] = ()


class IngressPortStatus(ServicePortStatus):
    """A port of a load balancer."""


class IngressLoadBalancerIngress(Value):
    """Where a load balancer is reached.

    ip: the balancer's address. hostname: the balancer's name.
    """

    ip: Annotated[str, pb(1)] = ""
    hostname: Annotated[str, pb(2)] = ""
    ports: Annotated[tuple[IngressPortStatus, ...], pb(4)] = ()


class IngressLoadBalancerStatus(Value):
    """ingress: where it is reached."""

    ingress: Annotated[tuple[IngressLoadBalancerIngress, ...], pb(1)] = ()


class IngressStatus(Value):
    """load_balancer: what whoever serves it says."""

    load_balancer: Annotated[IngressLoadBalancerStatus, pb(1)] = always(IngressLoadBalancerStatus())


class Ingress(ApiObject):
    """Which requests from outside go to which Services. Namespaced. No ingress controller is served here."""

    spec: Annotated[IngressSpec, pb(2)] = always(IngressSpec())
    status: Annotated[IngressStatus, pb(3)] = always(IngressStatus())


class IngressClassParametersReference(Value):
    """An object with parameters. scope: Cluster or Namespace; then namespace names its namespace.

    api_group: the API group of the object's kind; empty for core. kind: the kind of the object. name: the name of the
    object. namespace: the namespace of the object, for scope Namespace.
    """

    api_group: Annotated[str | None, pb(1)] = msgspec.field(default=None, name="apiGroup")
    kind: Annotated[str, pb(2)] = always("")
    name: Annotated[str, pb(3)] = always("")
    scope: Annotated[str | None, pb(4)] = None
    namespace: Annotated[str | None, pb(5)] = None


class IngressClassSpec(Value):
    """controller: who serves Ingresses of this class, such as example.com/controller. parameters: for it."""

    controller: Annotated[str, pb(1)] = ""
    parameters: Annotated[IngressClassParametersReference | None, pb(2)] = None


class IngressClass(ApiObject):
    """Who serves Ingresses that name it. Cluster scoped."""

    spec: Annotated[IngressClassSpec, pb(2)] = always(IngressClassSpec())


# How they are stored --------------------------------------------------------------------------------------------------


def update_ingress_status(new: Ingress, old: Ingress) -> Ingress:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


def prepare_class(new: IngressClass) -> IngressClass:
    parameters = new.spec.parameters
    if parameters is None or parameters.scope is not None:
        return new
    return replace(new, spec=replace(new.spec, parameters=replace(parameters, scope=CLUSTER)))


# Rules of Ingresses ---------------------------------------------------------------------------------------------------


def validate_ingress(new: Ingress) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True) + _validate_spec(new.spec)
    annotated, named = new.metadata.annotations.get(CLASS_ANNOTATION), new.spec.ingress_class_name
    if annotated is not None and named is not None and annotated != named:
        at = Path("annotations").child(CLASS_ANNOTATION)
        found.append(invalid(at, annotated, "must match `ingressClassName` when both are specified"))
    return found


def validate_ingress_update(new: Ingress, old: Ingress) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec)


def validate_ingress_status(new: Ingress, old: Ingress) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    at = STATUS.child("loadBalancer", "ingress")
    return found + validate_list(
        new.status.load_balancer.ingress, at, lambda one, path: validate_reached(one.ip, one.hostname, path)
    )


def _validate_spec(spec: IngressSpec) -> Errors:
    found: Errors = []
    if not spec.rules and spec.default_backend is None:
        found.append(invalid(SPEC, spec.rules, "either `defaultBackend` or `rules` must be specified"))
    if spec.default_backend is not None:
        found += _validate_backend(spec.default_backend, SPEC.child("defaultBackend"))
    found += validate_list(spec.rules, SPEC.child("rules"), _validate_rule)
    for position, tls in enumerate(spec.tls):
        path = SPEC.child("tls").at(position)
        found += validate_list(tls.hosts, path.child("hosts"), _validate_host)
        if tls.secret_name:
            found += each(check_dns_subdomain(tls.secret_name), path.child("secretName"), tls.secret_name)
    if (name := spec.ingress_class_name) is not None:
        found += each(check_dns_subdomain(name), SPEC.child("ingressClassName"), name)
    return found


def _validate_host(host: str, path: Path) -> Errors:
    if "*" not in host:
        return each(check_dns_subdomain(host), path, host)
    found = [too_long_message(DNS_SUBDOMAIN_MAX)] if len(host.encode()) > DNS_SUBDOMAIN_MAX else []
    if not re.fullmatch(_WILDCARD, host):
        found.append(regex_message(_WILDCARD_RULE, _WILDCARD, "*.example.com"))
    return each(found, path, host)


def _validate_rule(rule: IngressRule, path: Path) -> Errors:
    found, at = Errors(), path.child("host")
    if rule.host:
        if not check_address(rule.host, at):
            found.append(invalid(at, rule.host, "must be a DNS name, not an IP address"))
        found += _validate_host(rule.host, at)
    if rule.http is not None:
        at = path.child("http", "paths")
        found += validate_list(rule.http.paths, at, _validate_path) if rule.http.paths else [required(at)]
    return found


def _validate_path(one: HTTPIngressPath, path: Path) -> Errors:
    at, text = path.child("path"), one.path
    found: Errors = []
    if one.path_type is None:
        return [required(path.child("pathType"), "pathType must be specified")]
    if one.path_type not in PATH_TYPES:
        found.append(not_supported(path.child("pathType"), one.path_type, PATH_TYPES))
    elif not text.startswith("/") and (text or one.path_type != IMPLEMENTATION):
        found.append(invalid(at, text, "must be an absolute path"))
    if one.path_type in (EXACT, PREFIX):
        found += [invalid(at, text, f"must not contain '{part}'") for part in _BAD_PARTS if part in text]
        found += [invalid(at, text, f"cannot end with '{end}'") for end in _BAD_ENDS if text.endswith(end)]
    return found + _validate_backend(one.backend, path.child("backend"))


def _validate_backend(backend: IngressBackend, path: Path) -> Errors:
    service, resource = backend.service, backend.resource
    if service is not None and resource is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return _validate_reference(resource, path.child("resource"))
    if service is None:
        return [invalid(path, "", "resource or service backend is required")]
    found = required_or(check_namespace_name, service.name, path.child("service", "name"))
    name, number, at = service.port.name, service.port.number, path.child("service", "port")
    if name and number:
        found.append(invalid(path, "", "cannot set both port name & port number"))
    elif name:
        found += each(check_port_name(name), at.child("name"), name)
    elif number:
        found += validate_port_number(number, at.child("number"))
    else:
        found.append(required(path, "port name or number is required"))
    return found


def _validate_reference(one: TypedLocalObjectReference | IngressClassParametersReference, path: Path) -> Errors:
    found: Errors = []
    if one.api_group is not None:
        found += each(check_dns_subdomain(one.api_group), path.child("apiGroup"), one.api_group)
    found += required_or(check_path_segment, one.kind, path.child("kind"))
    return found + required_or(check_path_segment, one.name, path.child("name"))


# Rules of classes -----------------------------------------------------------------------------------------------------


def validate_class(new: IngressClass) -> Errors:
    return validate_object_meta(new.metadata, namespaced=False) + _validate_class_spec(new.spec)


def validate_class_update(new: IngressClass, old: IngressClass) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_immutable(new.spec.controller, old.spec.controller, SPEC.child("controller"))
    return found + _validate_class_spec(new.spec)


def _validate_class_spec(spec: IngressClassSpec) -> Errors:
    found = _validate_controller(spec.controller, SPEC.child("controller"))
    parameters, path = spec.parameters, SPEC.child("parameters")
    if parameters is None:
        return found
    found += _validate_reference(parameters, path)
    at, namespace = path.child("namespace"), parameters.namespace
    if parameters.scope not in SCOPES:
        found.append(not_supported(path.child("scope"), parameters.scope, SCOPES))
    elif parameters.scope == CLUSTER and namespace is not None:
        found.append(forbidden(at, "`parameters.scope` is set to 'Cluster'"))
    elif parameters.scope == NAMESPACE and namespace is None:
        found.append(required(at, "`parameters.scope` is set to 'Namespace'"))
    elif namespace is not None:
        found += each(check_namespace_name(namespace), at, namespace)
    return found


def _validate_controller(text: str, path: Path) -> Errors:
    if not text:
        return [required(path)]
    found = [too_long(path, LONGEST_CONTROLLER)] if len(text.encode()) > LONGEST_CONTROLLER else []
    domain, _, rest = text.partition("/")
    if not domain or not rest:
        return [*found, invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    found += each(check_dns_subdomain(domain), path, domain)
    if not re.fullmatch(_HTTP_PATH, rest):
        found.append(invalid(path, rest, f"Invalid path (regex used for validation is '{_HTTP_PATH}')"))
    return found


# Columns and kinds ----------------------------------------------------------------------------------------------------

#: So many hosts are shown.
_MOST_HOSTS = 3


def _hosts(ingress: Ingress) -> str:
    hosts = [rule.host for rule in ingress.spec.rules if rule.host]
    if not hosts:
        return "*"
    shown = ",".join(hosts[:_MOST_HOSTS])
    return shown if len(hosts) <= _MOST_HOSTS else f"{shown} + {len(hosts) - _MOST_HOSTS} more..."


def _addresses(ingress: Ingress) -> str:
    return ",".join(one.ip or one.hostname for one in ingress.status.load_balancer.ingress)


def _parameters(one: IngressClass) -> str:
    parameters = one.spec.parameters
    if parameters is None:
        return NONE
    kind = f"{parameters.kind}.{parameters.api_group}" if parameters.api_group else parameters.kind
    return f"{kind}/{parameters.name}"


INGRESS = Kind(
    group="networking.k8s.io",
    version="v1",
    plural="ingresses",
    short_names=("ing",),
    type=Ingress,
    prepare_create=lambda new: replace(new, status=IngressStatus()),
    prepare_update=lambda new, old: replace(new, status=old.status),
    validate_create=validate_ingress,
    validate_update=validate_ingress_update,
    subresources={"status": Subresource(prepare_update=update_ingress_status, validate_update=validate_ingress_status)},
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(
            name="Class",
            description="Who serves it",
            cell=lambda one, _now: (
                one.spec.ingress_class_name or one.metadata.annotations.get(CLASS_ANNOTATION) or NONE
            ),
        ),
        Column(name="Hosts", description="Hosts of its rules", cell=lambda one, _now: _hosts(one)),
        Column(name="Address", description="Where it is reached", cell=lambda one, _now: _addresses(one)),
        Column(name="Ports", cell=lambda one, _now: "80, 443" if one.spec.tls else "80"),
        AGE_COLUMN,
    ),
    description="Which requests from outside go to which Services.",
)

INGRESS_CLASS = Kind(
    group="networking.k8s.io",
    version="v1",
    plural="ingressclasses",
    namespaced=False,
    type=IngressClass,
    prepare_create=prepare_class,
    prepare_update=lambda new, _old: prepare_class(new),
    validate_create=validate_class,
    validate_update=validate_class_update,
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(name="Controller", description="Who serves it", cell=lambda one, _now: one.spec.controller),
        Column(name="Parameters", description="For its controller", cell=lambda one, _now: _parameters(one)),
        AGE_COLUMN,
    ),
    description="Who serves Ingresses that name it.",
)
