"""The names of the resources that controllers and scheduler read and write, their kinds, the types of the log's events,
and the phases of pods.
"""

from __future__ import annotations

from manciple.wire.registry import registry

PODS = "pods"
NODES = "nodes"
NAMESPACES = "namespaces"
LEASES = "leases.coordination.k8s.io"
EVENTS = "events"
CLAIMS = "resourceclaims.resource.k8s.io"
#: of KEP-3063's first draft
DRAFT_CLAIMS = "resourceclaims.cdi.k8s.io"
DRAFT_CLASSES = "resourceclasses.cdi.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"
QUOTAS = "resourcequotas"
BUDGETS = "poddisruptionbudgets.policy"
TAINT_RULES = "devicetaintrules.resource.k8s.io"
#: of the drafts, and of Kubernetes 1.30
RESOURCE_CLASSES = "resourceclasses.resource.k8s.io"
CLASS_PARAMETERS = "resourceclassparameters.resource.k8s.io"
CLAIM_PARAMETERS = "resourceclaimparameters.resource.k8s.io"
NODE_SLICES = "noderesourceslices.resource.k8s.io"
POD_GROUPS = "podgroups.scheduling.k8s.io"
CONTEXTS = "podschedulingcontexts.resource.k8s.io"
POOL_STATUS_REQUESTS = "resourcepoolstatusrequests.resource.k8s.io"

#: The types of the log's events: what happened to an object.
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

#: Phases of pods whose containers have all ended, and of pods of which none has started. Nothing else lists them.
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
NEW_PHASES = frozenset({"", "Pending"})

#: (namespace, name)
Key = tuple[str, str]

#: The registered kind of a resource; looked up when needed, because the apps register theirs when Django is ready.
kind = registry.by_resource
