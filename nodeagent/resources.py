"""The API resources that the agent reads and writes: where each is served, and the type it decodes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from manciple.wire.authentication import TokenReview
from manciple.wire.base import ApiObject
from manciple.wire.machinery import Event, Lease

Object = TypeVar("Object", bound=ApiObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[Object]):
    """One resource of the API."""

    type: type[Object]
    kind: str
    api_version: str
    plural: str
    namespaced: bool

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path; without a namespace, all namespaces of a namespaced resource."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        scope = ("namespaces", namespace) if self.namespaced and namespace else ()
        return root + "/".join(part for part in (self.api_version, *scope, self.plural, name, subresource) if part)


PODS = Resource(type=Pod, kind="Pod", api_version="v1", plural="pods", namespaced=True)
NODES = Resource(type=Node, kind="Node", api_version="v1", plural="nodes", namespaced=False)
EVENTS = Resource(type=Event, kind="Event", api_version="v1", plural="events", namespaced=True)
LEASES = Resource(type=Lease, kind="Lease", api_version="coordination.k8s.io/v1", plural="leases", namespaced=True)
CLAIMS = Resource(
    type=ResourceClaim, kind="ResourceClaim", api_version="resource.k8s.io/v1", plural="resourceclaims", namespaced=True
)
TOKEN_REVIEWS = Resource(
    type=TokenReview,
    kind="TokenReview",
    api_version="authentication.k8s.io/v1",
    plural="tokenreviews",
    namespaced=False,
)
SLICES = Resource(
    type=ResourceSlice,
    kind="ResourceSlice",
    api_version="resource.k8s.io/v1",
    plural="resourceslices",
    namespaced=False,
)
