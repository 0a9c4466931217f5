"""cdi.k8s.io/v1alpha1 as the first draft of KEP-3063 describes it: plugins, classes and claims.

How pods list such claims is in `claims.kinds.listed_claims`. The draft gives no protobuf numbers: fields are numbered
in the order in which it lists them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from claims.kinds.listed_claims import PodResourceTemplate, ResourceClaimSpec
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, Int32, OwnerReference, Raw, Value, always, pb

PACKAGE = "io.k8s.api.cdi.v1alpha1"

IMMEDIATE, DELAYED = "Immediate", "Delayed"
PENDING, ALLOCATED, REALLOCATE = "Pending", "Allocated", "Reallocate"
#: userLimit: any number of pods may use the claim at once.
UNLIMITED = -1


class ResourcePluginFeature(Value):
    """What a plugin can do, by a known name. parameters: how; unknown features are ignored.

    name: the name of the feature.
    """

    name: Annotated[str, pb(1)] = ""
    parameters: Annotated[Raw, pb(2, encoding="raw")] = None


class ResourcePlugin(ApiObject):
    """A resource plugin; its name is the object's, a domain. Cluster-wide."""

    features: Annotated[tuple[ResourcePluginFeature, ...], pb(2)] = ()


class ResourceClass(ApiObject):
    """A kind of resources that one plugin provides, with what only administrators may choose. Cluster-wide.

    plugin_name: who allocates the claims of the class. parameters: for that plugin alone.
    """

    plugin_name: Annotated[str, pb(2)] = ""
    parameters: Annotated[Raw, pb(3, encoding="raw")] = None


class ResourceClaimStatus(Value):
    """How far the allocation is, and who uses it.

    phase: Pending, Allocated or Reallocate. plugin_name: of the class, when allocation started. selected_node: where
    the plugin is to allocate; the scheduler sets it for a delayed claim, the plugin for an immediate one.
    potential_nodes: where a pod could run, by the scheduler. suitable_nodes: where the plugin could allocate.
    available_on_nodes: where the allocated resource can be used; everywhere without one. attributes: what the plugin
    remembers of the allocation. user_limit: how many pods may use it at once; 1 by default, -1 for any number.
    used_by: the pods that do.
    """

    phase: Annotated[str, pb(1)] = ""
    plugin_name: Annotated[str, pb(2)] = ""
    selected_node: Annotated[str, pb(3)] = ""
    potential_nodes: Annotated[tuple[str, ...], pb(4)] = ()
    suitable_nodes: Annotated[tuple[str, ...], pb(5)] = ()
    available_on_nodes: Annotated[NodeSelector | None, pb(6)] = None
    attributes: Annotated[dict[str, str], pb(7)] = {}
    user_limit: Annotated[Int32, pb(8)] = 0
    used_by: Annotated[tuple[OwnerReference, ...], pb(9, merge_key="uid")] = ()


class ResourceClaim(ApiObject):
    """A resource that is wanted, and what became of it. Namespaced."""

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())
    status: Annotated[ResourceClaimStatus, pb(3)] = ResourceClaimStatus()


def spec_of(template: PodResourceTemplate) -> ResourceClaimSpec:
    """What the claim asks for, in whichever form it is written."""
    if template.spec is not None:
        return template.spec
    return ResourceClaimSpec(**{name: getattr(template, name) for name in ResourceClaimSpec.__struct_fields__})


def written_directly(template: PodResourceTemplate) -> bool:
    """Whether fields of a spec stand in the template itself."""
    return any(getattr(template, name) for name in ResourceClaimSpec.__struct_fields__)


def with_status(claim: ResourceClaim, **changed: object) -> ResourceClaim:
    """`claim` with these fields of its status."""
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, **changed))
