"""What resource.k8s.io/v1alpha2 of Kubernetes 1.30 says of classes, parameters and named resources. PURE.

A ResourceClass names the driver that allocates what claims ask for through it, and where to find its parameters: an
object of the vendor's, or, with structured parameters, the ResourceClassParameters and ResourceClaimParameters that
the vendor's controller made of such an object. A ResourceSlice lists a driver's instances by name.
Source: k8s.io/api/resource/v1alpha2 of Kubernetes 1.30 (types.go, namedresources.go).
"""

from __future__ import annotations

from typing import Annotated, Any

from inventory.drafts.structured.values import DraftResourceRequest
from inventory.kinds.named_resources import NamedResourcesResources, ResourceClaimParametersReference
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, Raw, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1alpha2"

# Named resources ------------------------------------------------------------------------------------------------------


class NamedResourcesRequest(Value):
    """One instance is wanted.

    selector: a CEL expression over `attributes`; true selects the instance.
    """

    selector: Annotated[str, pb(1)] = always("")


class NamedResourcesFilter(Value):
    """Only these instances may be given.

    selector: a CEL expression over `attributes`; true lets the instance pass.
    """

    selector: Annotated[str, pb(1)] = always("")


# Classes and parameters -----------------------------------------------------------------------------------------------


class ResourceClassParametersReference(Value):
    """The object with a class's parameters.

    api_group: of the object's kind; empty for core. kind: of the object. name: of the object. namespace: of the object;
    empty for one that lives in none.
    """

    api_group: Annotated[str, pb(1)] = ""
    kind: Annotated[str, pb(2)] = always("")
    name: Annotated[str, pb(3)] = always("")
    namespace: Annotated[str, pb(4)] = ""


class GeneratedFromClaimParameters(ResourceClaimParametersReference):
    """The vendor's object that parameters of claims were made of.

    uid: of the object (KEP-4381, first draft).
    """

    uid: Annotated[str, pb(1001)] = ""


class GeneratedFromClassParameters(ResourceClassParametersReference):
    """The vendor's object that parameters of a class were made of.

    uid: of the object (KEP-4381, first draft).
    """

    uid: Annotated[str, pb(1001)] = ""


class ResourceClass(ApiObject):
    """The driver that allocates the claims of this class, and its parameters. Cluster scoped.

    driver_name: of the driver; a DNS subdomain. parameters_ref: an object with parameters for every claim of the class.
    suitable_nodes: the only nodes that are considered for pods whose claims are not allocated yet.
    structured_parameters: the scheduler allocates, not the driver's controller.
    """

    driver_name: Annotated[str, pb(2)] = always("")
    parameters_ref: Annotated[ResourceClassParametersReference | None, pb(3)] = None
    suitable_nodes: Annotated[NodeSelector | None, pb(4)] = None
    structured_parameters: Annotated[bool | None, pb(5)] = None


class ResourceRequest(Value):
    """One request of a driver. Exactly one model is set.

    vendor_parameters: any JSON object, for the driver. named_resources: one instance is wanted.
    """

    vendor_parameters: Annotated[Raw, pb(1, encoding="raw")] = None
    named_resources: Annotated[NamedResourcesRequest | None, pb(1, within=2)] = None


class DriverRequests(Value):
    """What is asked of one driver.

    driver_name: of the driver; a DNS subdomain. vendor_parameters: any JSON object, for all requests of the driver.
    requests: at least one.
    """

    driver_name: Annotated[str, pb(1)] = ""
    vendor_parameters: Annotated[Raw, pb(2, encoding="raw")] = None
    requests: Annotated[tuple[ResourceRequest, ...], pb(3)] = ()


class ResourceClaimParameters(ApiObject):
    """What a claim with structured parameters asks for. Namespaced.

    generated_from: the vendor's object that it was made of. shareable: several pods may use the claim at once.
    driver_requests: one entry for each driver.

    requests: what is asked of drivers, in place of driver_requests, in the first draft of KEP-4381.
    vendor_parameters: any JSON object, for all of these drivers.
    """

    generated_from: Annotated[GeneratedFromClaimParameters | None, pb(2)] = None
    shareable: Annotated[bool, pb(3)] = False
    driver_requests: Annotated[tuple[DriverRequests, ...], pb(4)] = ()
    vendor_parameters: Annotated[Raw, pb(1001, encoding="raw")] = None
    requests: Annotated[tuple[DraftResourceRequest, ...], pb(1002)] = ()


class VendorParameters(Value):
    """Parameters for one driver.

    driver_name: of the driver. parameters: for that driver alone.
    """

    driver_name: Annotated[str, pb(1)] = ""
    parameters: Annotated[Raw, pb(2, encoding="raw")] = None


class ResourceFilter(Value):
    """What a class lets pass of one driver. Exactly one model is set.

    driver_name: of the driver. named_resources: only these instances may be given.
    named_resources_with_attributes: the same in the first draft of KEP-4381.
    """

    driver_name: Annotated[str, pb(1)] = ""
    named_resources: Annotated[NamedResourcesFilter | None, pb(1, within=2)] = None
    named_resources_with_attributes: Annotated[NamedResourcesFilter | None, pb(1001)] = None


class ResourceClassParameters(ApiObject):
    """What a class with structured parameters adds to each of its claims. Namespaced.

    generated_from: the vendor's object that it was made of. vendor_parameters: one entry for each driver; in the first
    draft of KEP-4381 any JSON object, for all drivers. filters: which instances may be given; one for each driver.
    """

    generated_from: Annotated[GeneratedFromClassParameters | None, pb(2)] = None
    vendor_parameters: Annotated[tuple[VendorParameters, ...] | dict[str, Any], pb(3)] = ()
    filters: Annotated[tuple[ResourceFilter, ...], pb(4)] = ()


# Slices ---------------------------------------------------------------------------------------------------------------


class ResourceSlice(ApiObject):
    """A driver's instances on one node, or everywhere. Cluster scoped. Exactly one model is set.

    node_name: the one node that has the instances; every node where it is empty. driver_name: of the driver.
    named_resources: instances that can be allocated each by itself.
    """

    node_name: Annotated[str, pb(2)] = ""
    driver_name: Annotated[str, pb(3)] = always("")
    named_resources: Annotated[NamedResourcesResources | None, pb(1, within=4)] = None


# What was given -------------------------------------------------------------------------------------------------------
