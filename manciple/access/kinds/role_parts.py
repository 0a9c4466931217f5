"""What roles and bindings are written with: verbs, groups, rules. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from manciple.access.kinds.roles import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    GROUP,
    GROUP_KIND,
    AggregationRule,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    RoleRef,
    Subject,
)
from manciple.wire.base import LabelSelector, ObjectMeta

#: The label of what is made at the first start, and looked after at every later one.
BOOTSTRAPPING, RBAC_DEFAULTS = "kubernetes.io/bootstrapping", "rbac-defaults"
#: "false" in this annotation keeps a default role or binding as its administrator left it.
AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
#: Labels of roles whose rules admin, edit and view gather.
AGGREGATE_TO = "rbac.authorization.k8s.io/aggregate-to-"

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
ALL_VERBS = tuple(sorted((*READ, *WRITE)))
CHANGE = ("patch", "update")

CORE, APPS, BATCH, EXTENSIONS = "", "apps", "batch", "extensions"
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
AUTOSCALING, CERTIFICATES, COORDINATION = "autoscaling", "certificates.k8s.io", "coordination.k8s.io"
DISCOVERY, EVENTS, NETWORKING, POLICY = "discovery.k8s.io", "events.k8s.io", "networking.k8s.io", "policy"
RESOURCE, SCHEDULING, STORAGE = "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"
CDI, MANCIPLE = "cdi.k8s.io", "manciple.dev"  # CDI: of KEP-3063's first draft
METRICS = "metrics.k8s.io"


def rule(verbs: Sequence[str], group: str | Sequence[str], resources: str, names: str = "") -> PolicyRule:
    """resources, names: with spaces between them."""
    groups = (group,) if isinstance(group, str) else tuple(group)
    return PolicyRule(
        verbs=tuple(verbs),
        api_groups=groups,
        resources=tuple(resources.split()),
        resource_names=tuple(names.split()),
    )


def paths(paths: str) -> PolicyRule:
    return PolicyRule(verbs=("get",), non_resource_urls=tuple(paths.split()))


def _meta(name: str, **labels: str) -> ObjectMeta:
    return ObjectMeta(name=name, labels={BOOTSTRAPPING: RBAC_DEFAULTS, **labels}, annotations={AUTO_UPDATE: "true"})


def cluster_role(name: str, *rules: PolicyRule, into: str = "") -> ClusterRole:
    """into: which of admin, edit and view gathers it."""
    labels = {f"{AGGREGATE_TO}{into}": "true"} if into else {}
    kind = CLUSTER_ROLE
    return ClusterRole(api_version=kind.api_version, kind=kind.kind, metadata=_meta(name, **labels), rules=rules)


def gathering(name: str, *, into: str = "") -> ClusterRole:
    selector = LabelSelector(match_labels={f"{AGGREGATE_TO}{name}": "true"})
    return replace(cluster_role(name, into=into), aggregation_rule=AggregationRule(cluster_role_selectors=(selector,)))


def binding(name: str, *subjects: Subject, role: str = "") -> ClusterRoleBinding:
    """role: the role of the same name, unless given."""
    kind = CLUSTER_ROLE_BINDING
    reference = RoleRef(api_group=GROUP, kind=CLUSTER_ROLE.kind, name=role or name)
    return ClusterRoleBinding(
        api_version=kind.api_version, kind=kind.kind, metadata=_meta(name), subjects=subjects, role_ref=reference
    )


def group(name: str) -> Subject:
    return Subject(kind=GROUP_KIND, api_group=GROUP, name=name)


EVENTS_RULE = rule(("create", "patch", "update"), (CORE, EVENTS), "events")
