"""ResourceClaim and ResourceClaimTemplate between resource.k8s.io/v1 and the older versions that clients still write.

v1beta2 has the shape of v1. In v1beta1, whose types stand here, the fields of an exact request stand in the request
itself, beside `firstAvailable`; in v1 they move under `exactly`.
Source: pkg/apis/resource/v1beta1/conversion.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from claims.kinds.resource_claims import (
    CapacityRequirements,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaimStatus,
)
from inventory.kinds.conversion import map_field, map_items, reshaped, same_shape
from inventory.kinds.devices import DeviceSelector, DeviceToleration
from manciple.wire.base import ApiObject, Int64, ObjectMeta, Value, always, pb
from manciple.wire.registry import Conversion

PACKAGE = "io.k8s.api.resource.v1beta1"


class DeviceRequest(Value):
    """Devices of one class, or the first of several alternatives that fits.

    name: a DNS label, unique in the claim.
    """

    DESCRIBED_AS: ClassVar = ExactDeviceRequest

    name: Annotated[str, pb(1)] = ""
    device_class_name: Annotated[str, pb(2)] = ""
    selectors: Annotated[tuple[DeviceSelector, ...], pb(3)] = ()
    allocation_mode: Annotated[str, pb(4)] = ""
    count: Annotated[Int64, pb(5)] = 0
    admin_access: Annotated[bool | None, pb(6)] = None
    first_available: Annotated[tuple[DeviceSubRequest, ...], pb(7)] = ()
    tolerations: Annotated[tuple[DeviceToleration, ...], pb(8)] = ()
    capacity: Annotated[CapacityRequirements | None, pb(9)] = None


class DeviceClaim(Value):
    """All that a claim asks for."""

    requests: Annotated[tuple[DeviceRequest, ...], pb(1)] = ()
    constraints: Annotated[tuple[DeviceConstraint, ...], pb(2)] = ()
    config: Annotated[tuple[DeviceClaimConfiguration, ...], pb(3)] = ()


class ResourceClaimSpec(Value):
    """What is asked for. Immutable."""

    devices: Annotated[DeviceClaim, pb(1)] = DeviceClaim()


class ResourceClaim(ApiObject):
    """A request for devices, and once it is allocated, the devices. Namespaced."""

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())
    status: Annotated[ResourceClaimStatus, pb(3)] = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value):
    """The claim to be made.

    metadata: labels and annotations of the claims; nothing else of it is taken over.
    """

    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()
    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())


class ResourceClaimTemplate(ApiObject):
    """The template from which each pod that names it gets a claim of its own. Namespaced."""

    spec: Annotated[ResourceClaimTemplateSpec, pb(2)] = always(ResourceClaimTemplateSpec())


Document = dict[str, Any]

#: What v1beta1 has in the request and v1 under `exactly`.
EXACT_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)

_CLAIM_REQUESTS = ("spec", "devices", "requests")
_TEMPLATE_REQUESTS = ("spec", "spec", "devices", "requests")


def nest(request: Document) -> Document:
    """v1beta1 -> v1: a request that names no alternatives is an exact one (upstream: hasAnyMainRequestFieldsSet)."""
    exact = {key: request[key] for key in EXACT_FIELDS if key in request}
    rest = {key: value for key, value in request.items() if key not in exact}
    if any(value not in (None, "", 0, False, []) for value in exact.values()):
        return {**rest, "exactly": exact}
    return rest


def flatten(request: Document) -> Document:
    """v1 -> v1beta1."""
    exact = request.get("exactly")
    rest = {key: value for key, value in request.items() if key != "exactly"}
    return {**rest, **exact} if isinstance(exact, dict) else rest


def _requests_at(path: tuple[str, ...], type_: type[ApiObject]) -> Conversion:
    return reshaped(
        "v1beta1",
        to_storage=lambda document: map_field(document, path, map_items(nest)),
        from_storage=lambda document: map_field(document, path, map_items(flatten)),
        message=type_,
    )


CLAIM_VERSIONS: Mapping[str, Conversion] = {
    "v1beta2": same_shape("v1beta2"),
    "v1beta1": _requests_at(_CLAIM_REQUESTS, ResourceClaim),
}
TEMPLATE_VERSIONS: Mapping[str, Conversion] = {
    "v1beta2": same_shape("v1beta2"),
    "v1beta1": _requests_at(_TEMPLATE_REQUESTS, ResourceClaimTemplate),
}
