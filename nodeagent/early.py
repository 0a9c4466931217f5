"""The agent's parts for classic DRA (KEP-3063) and the drafts, imported when a claim, a driver or a slice needs them.

The agent does not ask for their gates: a claim of these forms exists only if the API server serves them, or did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.named_resources import ResourceHandle
from manciple.wire.deferred import deferred, deferred_function
from nodeagent.api.client import ApiResource, Client

#: The claims that a pod lists in spec.resources: (entry, name of the claim on this node, whether the pod must own it).
names_used: Callable[[Pod], Iterable[tuple[str, str, bool]]] = deferred_function(
    "nodeagent.claims.draft_claims:names_used"
)
#: (client, namespace, name of the claim on this node) -> the claim as the agent reads claims. Raises: ApiFailure.
fetch_draft_claim: Callable[[Client, str, str], ResourceClaim] = deferred_function(
    "nodeagent.claims.draft_claims:fetch_draft_claim"
)
#: A claim with the resource handles of its allocation. Raises: ApiFailure, PrepareRefused, PrepareFailed.
read_handles: Callable[[Client, ResourceClaim], ResourceClaim] = deferred_function(
    "nodeagent.claims.handles:read_handles"
)
with_handles: Callable[[ResourceClaim, tuple[ResourceHandle, ...]], ResourceClaim] = deferred_function(
    "nodeagent.claims.handles:with_handles"
)
#: Writes the slices of a driver of Kubernetes 1.30. Raises: ApiFailure.
publish_named: Callable[..., None] = deferred_function("nodeagent.plugins.named_resources:publish_named")
NODE_SLICES: Final[ApiResource[Any]] = deferred(
    ApiResource,
    "nodeagent.plugins.named_resources:NODE_SLICES",
    api_version="resource.k8s.io/v1alpha2",
    plural="noderesourceslices",
    namespaced=False,
)
