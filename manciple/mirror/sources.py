"""The resources of a cluster that are read, in the versions that we know, and what the cluster lets us read of them.

Secrets and ConfigMaps are in no table here, so they are never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_DRA = ("v1", "v1beta2", "v1beta1", "v1alpha3")


@dataclass(frozen=True, slots=True)
class Source:
    """One resource. versions: those that we can read, the best first."""

    group: str
    plural: str
    versions: tuple[str, ...] = ("v1",)
    namespaced: bool = True

    @property
    def resource(self) -> str:
        """As the store names it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, version: str, *, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.group}" if self.group else "/api"
        scope = ("namespaces", namespace) if self.namespaced and namespace else ()
        return "/".join(filter(None, (root, version, *scope, self.plural, name)))


POD = Source("", "pods")
CLAIM = Source("resource.k8s.io", "resourceclaims", _DRA)
NODE = Source("", "nodes", namespaced=False)
SLICE = Source("resource.k8s.io", "resourceslices", _DRA, namespaced=False)
CLASS = Source("resource.k8s.io", "deviceclasses", _DRA, namespaced=False)
TEMPLATE = Source("resource.k8s.io", "resourceclaimtemplates", _DRA)
TAINT_RULE = Source("resource.k8s.io", "devicetaintrules", ("v1", "v1beta2", "v1alpha3"), namespaced=False)
NAMESPACE = Source("", "namespaces", namespaced=False)
QUOTA = Source("", "resourcequotas")
VOLUME_CLAIM = Source("", "persistentvolumeclaims")
VOLUME = Source("", "persistentvolumes", namespaced=False)
STORAGE_CLASS = Source("storage.k8s.io", "storageclasses", namespaced=False)
BUDGET = Source("policy", "poddisruptionbudgets")
PRIORITY_CLASS = Source("scheduling.k8s.io", "priorityclasses", namespaced=False)
POD_GROUP = Source("scheduling.k8s.io", "podgroups", ("v1alpha2",))

#: For devices and their holders, and for why a pod waits.
DEVICES: Final = (NODE, SLICE, CLASS, TAINT_RULE, CLAIM, POD)
WHY: Final = (
    *DEVICES, TEMPLATE, NAMESPACE, QUOTA, VOLUME_CLAIM, VOLUME, STORAGE_CLASS, BUDGET, PRIORITY_CLASS, POD_GROUP,
)  # fmt: skip
#: What a mirror copies: also what pods belong to, and what is said of them.
COPIED: Final = (
    *WHY,
    Source("apps", "deployments"),
    Source("apps", "replicasets"),
    Source("apps", "statefulsets"),
    Source("apps", "daemonsets"),
    Source("batch", "jobs"),
    Source("batch", "cronjobs"),
    Source("", "events"),
)
#: Followed in memory alone (`manciple.mirror.leases`).
LEASE: Final = Source("coordination.k8s.io", "leases")
BY_RESOURCE: Final = {source.resource: source for source in COPIED}


# What may be read -----------------------------------------------------------------------------------------------------


class Reach(StrEnum):
    EVERYWHERE = "everywhere"
    #: of the namespace alone: in others there may be more
    NAMESPACE = "namespace"
    FORBIDDEN = "forbidden"
    FAILED = "failed"
    #: the server has no such kind
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class KindState:
    """detail: why it is not listed. unread: objects that are not as their version has them, and were left out."""

    source: Source
    reach: Reach
    version: str = ""
    detail: str = ""
    unread: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all objects of the kind are known, in all namespaces."""
        return self.reach in (Reach.EVERYWHERE, Reach.ABSENT) and not self.unread

    @property
    def is_whole_in_namespace(self) -> bool:
        return self.is_whole or (self.reach is Reach.NAMESPACE and not self.unread)
