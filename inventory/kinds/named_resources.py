"""Values of classic DRA that today's objects keep aside: the named instances of a ResourceSlice, and in a ResourceClaim
its parameters and the resource handles of its allocation. PURE.

Source: k8s.io/api/resource/v1alpha2 of Kubernetes 1.30 (types.go, namedresources.go); KEP-4381, first draft.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from manciple.wire.base import Int64, QuantityText, Raw, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1alpha2"

# Published ------------------------------------------------------------------------------------------------------------


class NamedResourcesIntSlice(Value):
    """Several numbers.

    ints: the numbers.
    """

    ints: Annotated[tuple[Int64, ...], pb(1)] = always(())


class NamedResourcesStringSlice(Value):
    """Several texts.

    strings: the texts.
    """

    strings: Annotated[tuple[str, ...], pb(1)] = always(())


class NamedResourcesAttribute(Value):
    """One attribute of an instance. Exactly one value is set.

    name: unique in the instance; a DNS subdomain. quantity: an amount. bool_value: a boolean. int_value: a number.
    int_slice: several numbers. string_value: a string. string_slice: several strings. version_value: a semantic version
    (semver.org 2.0.0).
    """

    name: Annotated[str, pb(1)] = always("")
    quantity: Annotated[QuantityText | None, pb(6, encoding="quantity", within=2)] = None
    bool_value: Annotated[bool | None, pb(2, within=2)] = msgspec.field(default=None, name="bool")
    int_value: Annotated[Int64 | None, pb(7, within=2)] = msgspec.field(default=None, name="int")
    int_slice: Annotated[NamedResourcesIntSlice | None, pb(8, within=2)] = None
    string_value: Annotated[str | None, pb(5, within=2)] = msgspec.field(default=None, name="string")
    string_slice: Annotated[NamedResourcesStringSlice | None, pb(9, within=2)] = None
    version_value: Annotated[str | None, pb(10, within=2)] = msgspec.field(default=None, name="version")


class NamedResourcesInstance(Value):
    """One instance that can be allocated by its name.

    name: unique among the driver's instances on a node; a DNS subdomain. attributes: what selectors look at.
    """

    name: Annotated[str, pb(1)] = always("")
    attributes: Annotated[tuple[NamedResourcesAttribute, ...], pb(2)] = ()


class NamedResourcesResources(Value):
    """Instances that can be allocated each by itself.

    instances: all of the slice.
    """

    instances: Annotated[tuple[NamedResourcesInstance, ...], pb(1)] = always(())


# Claimed --------------------------------------------------------------------------------------------------------------


class ResourceClaimParametersReference(Value):
    """The object with a claim's parameters, in the claim's namespace.

    api_group: of the object's kind; empty for core. kind: of the object. name: of the object.
    """

    api_group: Annotated[str, pb(1)] = ""
    kind: Annotated[str, pb(2)] = always("")
    name: Annotated[str, pb(3)] = always("")


# Allocated ------------------------------------------------------------------------------------------------------------


class NamedResourcesAllocationResult(Value):
    """One instance, given.

    name: of the instance.
    """

    name: Annotated[str, pb(1)] = always("")


class AllocatedResource(Value):
    """One resource, given.

    id: its name.
    """

    id: Annotated[str, pb(1)] = always("")


class NamedResourcesWithAttributesResult(Value):
    """The resources that were given, in the order of the requests.

    resources: their ids.
    """

    resources: Annotated[tuple[AllocatedResource, ...], pb(1)] = always(())


class DriverAllocationResult(Value):
    """One request's result. Exactly one model is set.

    vendor_request_parameters: those of the request. named_resources: the instance that was given.
    """

    vendor_request_parameters: Annotated[Raw, pb(1, encoding="raw")] = None
    named_resources: Annotated[NamedResourcesAllocationResult | None, pb(1, within=2)] = None


class StructuredResourceHandle(Value):
    """What the scheduler allocated for a driver, with the parameters that the driver needs for it.

    vendor_class_parameters: those of the class. vendor_claim_parameters: those of the claim. node_name: where the
    instances are; empty where every node has them. results: one for each request.
    named_resources_with_attributes: in place of them, for claims in the form of the first draft of KEP-4381.
    """

    vendor_class_parameters: Annotated[Raw, pb(1, encoding="raw")] = None
    vendor_claim_parameters: Annotated[Raw, pb(2, encoding="raw")] = None
    node_name: Annotated[str, pb(4)] = ""
    results: Annotated[tuple[DriverAllocationResult, ...], pb(5)] = ()
    named_resources_with_attributes: Annotated[NamedResourcesWithAttributesResult | None, pb(1001)] = None


class ResourceHandle(Value):
    """The part of an allocation that goes to one driver's node plugin.

    driver_name: whose plugin it is for. data: for that plugin alone, at most 16 KiB. structured_data: in its place
    where the scheduler allocated.
    """

    driver_name: Annotated[str, pb(1)] = ""
    data: Annotated[str, pb(2)] = ""
    structured_data: Annotated[StructuredResourceHandle | None, pb(5)] = None
