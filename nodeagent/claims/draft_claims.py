"""Claims of cdi.k8s.io (KEP-3063, first draft) as the agent knows claims: it is their plugin that prepares them.

A pod lists them in spec.resources. What the agent does with claims (its record, its order, its recovery) it does with
these as with today's: a claim is read as one that the plugin's controller allocated, reserved for the pods that use it,
with one empty handle: all that a node plugin of the draft is told is the claim's uid. Its name on the node has the
group behind it, since a claim of resource.k8s.io may have the same one.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from claims.drafts.cdi import values
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.kinds.resource_claims import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from inventory.kinds.named_resources import ResourceHandle
from manciple.wire.base import OwnerReference
from nodeagent.api.client import ApiResource, Client

DRAFT_CLAIMS = ApiResource(values.ResourceClaim, "cdi.k8s.io/v1alpha1", "resourceclaims")
SUFFIX = ".cdi.k8s.io"


def names_used(pod: Pod) -> Iterator[tuple[str, str, bool]]:
    """(entry, name of the claim on this node, whether the pod must own it)."""
    for entry in listed_resources(pod):
        yield entry.name, f"{claim_of(pod, entry)}{SUFFIX}", entry.template is not None


def fetch_draft_claim(client: Client, namespace: str, name: str) -> ResourceClaim:
    """name: of the claim on this node. Raises: ApiFailure."""
    return as_allocated(client.get(DRAFT_CLAIMS, name.removesuffix(SUFFIX), namespace=namespace))


def as_allocated(draft: values.ResourceClaim) -> ResourceClaim:
    """The claim as the agent and its drivers read it."""
    status, meta = draft.status, draft.metadata
    allocation = None
    if status.phase == values.ALLOCATED:
        handle = ResourceHandle(driver_name=status.plugin_name)
        allocation = AllocationResult(node_selector=status.available_on_nodes, resource_handles=(handle,))
    owners = tuple(replace(owner, controller=True) if _is_pod(owner) else owner for owner in meta.owner_references)
    users = tuple(
        ResourceClaimConsumerReference(resource="pods", name=user.name, uid=user.uid)
        for user in status.used_by
        if _is_pod(user)
    )
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=replace(meta, name=f"{meta.name}{SUFFIX}", owner_references=owners),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=users),
    )


def _is_pod(reference: OwnerReference) -> bool:
    return (reference.api_version, reference.kind) == ("v1", "Pod")
