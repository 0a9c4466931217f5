"""What the first draft of KEP-4381 says of devices: NodeResourceSlice, and the parts of parameters and results that
only it has. PURE.

Where the draft's Go types and its YAML differ, the YAML counts, and both are taken where both can be: resources are a
list, an attribute's lists are plain lists, and a request is either one selector or a list `required` of them.
Source: KEP-4381, first draft ("Design Details").
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from manciple.wire.base import ApiObject, Int64, QuantityText, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1alpha2"

# What a node has ------------------------------------------------------------------------------------------------------


class NamedResourceAttribute(Value):
    """One attribute of a resource. Exactly one value is set.

    name: unique in the resource. quantity: an amount. bool_value: a boolean. int_value: a number. int_slice: several
    numbers. string_value: a string. string_slice: several strings. version_value: a version, read tolerantly ("v12.0")
    and kept as semantic versioning writes it.
    """

    name: Annotated[str, pb(1)] = always("")
    quantity: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    bool_value: Annotated[bool | None, pb(3)] = msgspec.field(default=None, name="bool")
    int_value: Annotated[Int64 | None, pb(4)] = msgspec.field(default=None, name="int")
    int_slice: Annotated[tuple[Int64, ...] | None, pb(5)] = None
    string_value: Annotated[str | None, pb(6)] = msgspec.field(default=None, name="string")
    string_slice: Annotated[tuple[str, ...] | None, pb(7)] = None
    version_value: Annotated[str | None, pb(8)] = msgspec.field(default=None, name="version")


class NamedResourceWithAttributes(Value):
    """One resource that can be allocated by its name.

    name: a DNS subdomain, unique among the driver's resources on the node. attributes: what selectors look at.
    """

    name: Annotated[str, pb(1)] = always("")
    attributes: Annotated[tuple[NamedResourceAttribute, ...], pb(2)] = ()


class NodeResourceSliceSpec(Value):
    """What one driver has on one node, or a part of it. Exactly one model is set.

    node_name: the node. driver_name: the driver. named_resources_with_attributes: resources that can be allocated each
    by itself.
    """

    node_name: Annotated[str, pb(1)] = always("")
    driver_name: Annotated[str, pb(2)] = always("")
    named_resources_with_attributes: Annotated[tuple[NamedResourceWithAttributes, ...] | None, pb(3)] = None


class NodeResourceSlice(ApiObject):
    """What a driver has on one node. Cluster scoped."""

    spec: Annotated[NodeResourceSliceSpec, pb(2)] = always(NodeResourceSliceSpec())


# What is asked for ----------------------------------------------------------------------------------------------------


class SelectedResource(Value):
    """One resource.

    selector: a CEL expression over `attributes` that must be true for it.
    """

    selector: Annotated[str, pb(1)] = always("")


class NamedResourcesWithAttributesRequest(Value):
    """Resources that are wanted: one for each of `required`, or one for `selector`. Exactly one of them is set.

    selector: an expression in CEL that instances must satisfy.
    """

    required: Annotated[tuple[SelectedResource, ...], pb(1)] = ()
    selector: Annotated[str, pb(2)] = ""


class DraftResourceRequest(Value):
    """What is asked of one driver. Exactly one model is set.

    driver_name: of the driver. named_resources_with_attributes: resources that are wanted.
    """

    driver_name: Annotated[str, pb(1)] = always("")
    named_resources_with_attributes: Annotated[NamedResourcesWithAttributesRequest | None, pb(2)] = None


# What was given -------------------------------------------------------------------------------------------------------
