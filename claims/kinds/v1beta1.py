"""ResourceClaim and ResourceClaimTemplate as resource.k8s.io/v1beta1 shapes them.

There an exact request's fields stand in the request itself, beside `firstAvailable`. v1beta2 has the shape of v1.
"""

from __future__ import annotations

from typing import Annotated

from claims.kinds.requests import CapacityRequirements, DeviceClaimConfiguration, DeviceConstraint, DeviceSubRequest
from claims.kinds.resource_claims import ResourceClaimStatus
from inventory.kinds.classes import DeviceSelector
from inventory.kinds.taints import DeviceToleration
from manciple.wire.base import ApiObject, Int64, ObjectMeta, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1beta1"


class DeviceRequest(Value):
    """Devices of one class, or the first of several alternatives that fits."""

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
    """A request for devices, and once it is met, the devices. Namespaced."""

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())
    status: Annotated[ResourceClaimStatus, pb(3)] = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value):
    """The claim to be made; only labels and annotations of `metadata` are taken over."""

    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()
    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())


class ResourceClaimTemplate(ApiObject):
    """The mould from which each pod that names it gets a claim of its own. Namespaced."""

    spec: Annotated[ResourceClaimTemplateSpec, pb(2)] = always(ResourceClaimTemplateSpec())
