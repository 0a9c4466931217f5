"""ResourceClaim and ResourceClaimTemplate as resource.k8s.io/v1alpha2 of Kubernetes 1.30 has them, and the
PodSchedulingContext in which scheduler and drivers agree on a node. PURE.

Claims and templates are stored in their v1 form (`claims.kinds.resource_claims`); these types are what clients of
v1alpha2 read and write. Source: k8s.io/api/resource/v1alpha2 of Kubernetes 1.30.
"""

from __future__ import annotations

from typing import Annotated

from claims.kinds.resource_claims import ResourceClaimConsumerReference
from inventory.kinds.named_resources import ResourceClaimParametersReference, ResourceHandle
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, ObjectMeta, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1alpha2"

# Claims ---------------------------------------------------------------------------------------------------------------


class ResourceClaimSpec(Value):
    """What is asked for. Immutable.

    resource_class_name: the class, which names the driver. parameters_ref: an object with parameters for this claim.
    allocation_mode: WaitForFirstConsumer (the default) or Immediate.
    """

    resource_class_name: Annotated[str, pb(1)] = always("")
    parameters_ref: Annotated[ResourceClaimParametersReference | None, pb(2)] = None
    allocation_mode: Annotated[str, pb(3)] = ""


class AllocationResult(Value):
    """What was given, and where it is available.

    resource_handles: for the node plugins of the drivers; at most 32. available_on_nodes: every node without one.
    shareable: several pods may use the claim at once.
    """

    resource_handles: Annotated[tuple[ResourceHandle, ...], pb(1)] = ()
    available_on_nodes: Annotated[NodeSelector | None, pb(2)] = None
    shareable: Annotated[bool, pb(3)] = False


class ResourceClaimStatus(Value):
    """What was given, by whom, and who may use it.

    driver_name: of the driver that allocated. reserved_for: who may use the claim; at most 32.
    deallocation_requested: the driver is to deallocate; until then nobody else may use the claim.
    """

    driver_name: Annotated[str, pb(1)] = ""
    allocation: Annotated[AllocationResult | None, pb(2)] = None
    reserved_for: Annotated[tuple[ResourceClaimConsumerReference, ...], pb(3, merge_key="uid")] = ()
    deallocation_requested: Annotated[bool, pb(4)] = False


class ResourceClaim(ApiObject):
    """What a pod needs of a driver, and once it is allocated, what was given. Namespaced."""

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())
    status: Annotated[ResourceClaimStatus, pb(3)] = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value):
    """The claim to be made.

    metadata: labels and annotations of the claims; nothing else of it is taken over.
    """

    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()
    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())


class ResourceClaimTemplate(ApiObject):
    """The template from which each pod that names it gets a claim of its own. Immutable; namespaced."""

    spec: Annotated[ResourceClaimTemplateSpec, pb(2)] = always(ResourceClaimTemplateSpec())


# Negotiation ----------------------------------------------------------------------------------------------------------


class PodSchedulingContextSpec(Value):
    """Where the scheduler would have the pod.

    selected_node: for which the drivers are to allocate. potential_nodes: of which the drivers are to say whether they
    suit; at most 128.
    """

    selected_node: Annotated[str, pb(1)] = ""
    potential_nodes: Annotated[tuple[str, ...], pb(2)] = ()


class ResourceClaimSchedulingStatus(Value):
    """What a driver says of one claim of the pod.

    name: as in the pod's spec.resourceClaims. unsuitable_nodes: for which the claim cannot be allocated; at most 128.
    """

    name: Annotated[str, pb(1)] = ""
    unsuitable_nodes: Annotated[tuple[str, ...], pb(2)] = ()


class PodSchedulingContextStatus(Value):
    """Where the drivers could allocate.

    resource_claims: one entry for each claim that is not allocated yet and waits for its pod.
    """

    resource_claims: Annotated[tuple[ResourceClaimSchedulingStatus, ...], pb(1, list_keys="name")] = ()


class PodSchedulingContext(ApiObject):
    """The exchange between the scheduler and the drivers of a pod's claims. Named as the pod, and owned
    by it; namespaced.
    """

    spec: Annotated[PodSchedulingContextSpec, pb(2)] = always(PodSchedulingContextSpec())
    status: Annotated[PodSchedulingContextStatus, pb(3)] = PodSchedulingContextStatus()
