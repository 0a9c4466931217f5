"""ResourceClaim, and the ResourceClaimTemplate from which claims are made for pods.

Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

from typing import Annotated

from claims.kinds.allocations import AllocatedDeviceStatus, AllocationResult
from claims.kinds.requests import DeviceClaim
from manciple.wire.base import ApiObject, ObjectMeta, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1"


class ResourceClaimConsumerReference(Value):
    """Who may use the claim: an object of the claim's namespace.

    api_group: the group of the object's kind; empty for core. resource: the plural of its kind, such as "pods".
    name: of the object. uid: of the object; one of the same name made later is another.
    """

    api_group: Annotated[str, pb(1)] = ""
    resource: Annotated[str, pb(3)] = ""
    name: Annotated[str, pb(4)] = ""
    uid: Annotated[str, pb(5)] = ""

    @property
    def full_resource(self) -> str:
        """As kubectl names it: "pods", "jobs.batch"."""
        return f"{self.resource}.{self.api_group}" if self.api_group else self.resource

    @property
    def is_pod(self) -> bool:
        return self.full_resource == "pods"

    @property
    def title(self) -> str:
        """A pod by its name, anything else with what it is: "jobs.batch train"."""
        return self.name if self.is_pod else f"{self.full_resource} {self.name}"


class ResourceClaimSpec(Value):
    """What is asked for. Immutable."""

    devices: Annotated[DeviceClaim, pb(1)] = DeviceClaim()


class ResourceClaimStatus(Value):
    """What was given, who may use it, and what the drivers report about it.

    reserved_for: who may use the devices; at most 256. An allocated claim that is reserved for nobody is given up.
    """

    allocation: Annotated[AllocationResult | None, pb(1)] = None
    reserved_for: Annotated[tuple[ResourceClaimConsumerReference, ...], pb(2, merge_key="uid")] = ()
    devices: Annotated[tuple[AllocatedDeviceStatus, ...], pb(4, list_keys="driver,device,pool,shareID")] = ()


class ResourceClaim(ApiObject):
    """A request for devices, and once it is met, the devices. Namespaced."""

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())
    status: Annotated[ResourceClaimStatus, pb(3)] = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value):
    """The claim to be made.

    metadata: labels and annotations of the claims; nothing else of it is taken over.
    """

    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()
    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())


class ResourceClaimTemplate(ApiObject):
    """The mould from which each pod that names it gets a claim of its own. Immutable; namespaced."""

    spec: Annotated[ResourceClaimTemplateSpec, pb(2)] = always(ResourceClaimTemplateSpec())
