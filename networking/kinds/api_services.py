"""apiregistration.k8s.io/v1 APIService: an API group that somebody else's server answers for. PURE.

They are kept so that charts which bring one (metrics servers, Kueue) apply, and not served: requests for such a group
are answered 404, and the condition Available says so. Groups that are served here have none.

Sources: k8s.io/kube-aggregator/pkg/apis/apiregistration/{v1,validation}, pkg/registry/apiservice/strategy.go and
pkg/registry/apiservice/etcd/etcd.go (columns) of Kubernetes 1.36.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec.structs import replace

from claims.kinds.container_rules import validate_port_number
from manciple.wire.base import ApiObject, Int32, TimeText, Value, always, condition_of, pb, status_metadata, timestamp
from manciple.wire.errors import FieldError, invalid, required
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    Path,
    check_dns_1035_label,
    check_dns_subdomain,
    check_path_segment,
    each,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"

Errors = list[FieldError]

HTTPS_PORT = 443
AVAILABLE = "Available"
#: The highest priorities of a group and of a version.
MOST_GROUP, MOST_VERSION = 20_000, 1_000


class ServiceReference(Value):
    """A Service. port: 443 where it says none.

    namespace: the namespace of the Service. name: the name of the Service.
    """

    namespace: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(2)] = ""
    port: Annotated[Int32 | None, pb(3)] = None


class APIServiceSpec(Value):
    """service: whose server answers; None for the API server itself. ca_bundle: who vouches for it, PEM in base64.

    group_priority_minimum, version_priority: by which clients choose between groups, and versions, of one kind.

    group: the group of the API. version: the version of the API. insecure_skip_tls_verify: whether the server's
    certificate is not checked.
    """

    service: Annotated[ServiceReference | None, pb(1)] = None
    group: Annotated[str, pb(2)] = ""
    version: Annotated[str, pb(3)] = ""
    insecure_skip_tls_verify: Annotated[bool, pb(4)] = msgspec.field(default=False, name="insecureSkipTLSVerify")
    ca_bundle: Annotated[str, pb(5, encoding="bytes")] = ""
    group_priority_minimum: Annotated[Int32, pb(7)] = always(0)
    version_priority: Annotated[Int32, pb(8)] = always(0)


class APIServiceCondition(Value):
    """type: Available. status: True, False or Unknown; reason: a CamelCase word."""

    type: Annotated[str, pb(1)] = always("")
    status: Annotated[str, pb(2)] = always("")
    last_transition_time: Annotated[TimeText | None, pb(3, encoding="time")] = None
    reason: Annotated[str, pb(4)] = ""
    message: Annotated[str, pb(5)] = ""


class APIServiceStatus(Value):
    """conditions: Available says whether requests for the group are answered."""

    conditions: Annotated[tuple[APIServiceCondition, ...], pb(1, list_keys="type", merge_key="type")] = ()


class APIService(ApiObject):
    """An API group and version that another server answers for. Cluster scoped. Kept, and not served here."""

    spec: Annotated[APIServiceSpec, pb(2)] = APIServiceSpec()
    status: Annotated[APIServiceStatus, pb(3)] = always(APIServiceStatus())


def prepare_create(new: APIService) -> APIService:
    found = prepare(new)
    if found.spec.service is None:
        status, reason, message = "True", "Local", "Local APIServices are always available"
    else:
        status, reason = "False", "NotServed"
        message = "other servers' APIs are not served here: requests for this group are answered 404"
    now = timestamp(datetime.now(UTC))
    condition = APIServiceCondition(
        type=AVAILABLE, status=status, last_transition_time=now, reason=reason, message=message
    )
    return replace(found, status=APIServiceStatus(conditions=(condition,)))


def prepare(new: APIService) -> APIService:
    service = new.spec.service
    if service is None or service.port is not None:
        return new
    return replace(new, spec=replace(new.spec, service=replace(service, port=HTTPS_PORT)))


def validate(new: APIService) -> Errors:
    spec, wanted = new.spec, f"{new.spec.version}.{new.spec.group}"
    found = validate_object_meta(new.metadata, namespaced=False, name_rule=check_path_segment)
    if new.metadata.name != wanted:
        message = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        found.append(invalid(Path("metadata").child("name"), new.metadata.name, message))
    if spec.group:
        found += each(check_dns_subdomain(spec.group), SPEC.child("group"), spec.group)
    elif spec.version != "v1":
        found.append(required(SPEC.child("group"), "only v1 may have an empty group and it better be legacy kube"))
    found += each(check_dns_1035_label(spec.version), SPEC.child("version"), spec.version)
    for name, value, most in (
        ("groupPriorityMinimum", spec.group_priority_minimum, MOST_GROUP),
        ("versionPriority", spec.version_priority, MOST_VERSION),
    ):
        if not 0 < value <= most:
            found.append(invalid(SPEC.child(name), value, f"must be positive and less than {most}"))
    return found + (_validate_local(spec) if spec.service is None else _validate_remote(spec, spec.service))


def _validate_local(spec: APIServiceSpec) -> Errors:
    found: Errors = []
    if spec.ca_bundle:
        message = "local APIServices may not have a caBundle"
        found.append(invalid(SPEC.child("caBundle"), f"{len(spec.ca_bundle)} bytes", message))
    if spec.insecure_skip_tls_verify:
        message = "local APIServices may not have insecureSkipTLSVerify"
        found.append(invalid(SPEC.child("insecureSkipTLSVerify"), True, message))
    return found


def _validate_remote(spec: APIServiceSpec, service: ServiceReference) -> Errors:
    path = SPEC.child("service")
    found = [required(path.child(name)) for name in ("namespace", "name") if not getattr(service, name)]
    found += validate_port_number(service.port or 0, path.child("port"))
    if spec.insecure_skip_tls_verify and spec.ca_bundle:
        message = "may not be true if caBundle is present"
        found.append(invalid(SPEC.child("insecureSkipTLSVerify"), True, message))
    return found


def _service(one: APIService) -> str:
    service = one.spec.service
    return "Local" if service is None else f"{service.namespace}/{service.name}"


def _available(one: APIService) -> str:
    condition = condition_of(one.status.conditions, AVAILABLE)
    if condition is None:
        return "Unknown"
    return condition.status if condition.status == "True" else f"{condition.status} ({condition.reason})"


API_SERVICE = Kind(
    group="apiregistration.k8s.io",
    version="v1",
    plural="apiservices",
    namespaced=False,
    type=APIService,
    prepare_create=prepare_create,
    prepare_update=lambda new, old: replace(prepare(new), status=old.status),
    validate_create=validate,
    validate_update=lambda new, old: validate_object_meta_update(new.metadata, old.metadata) + validate(new),
    subresources={
        "status": Subresource(
            prepare_update=lambda new, old: replace(
                old, metadata=status_metadata(new.metadata, old.metadata), status=new.status
            ),
            validate_update=lambda new, old: validate_object_meta_update(new.metadata, old.metadata),
        )
    },
    columns=(
        NAME_COLUMN,
        Column(name="Service", description="Who answers", cell=lambda one, _now: _service(one)),
        Column(name="Available", description="Whether it is answered for", cell=lambda one, _now: _available(one)),
        AGE_COLUMN,
    ),
    description="An API group that another server answers for.",
)
