"""The roles and bindings that every installation has. PURE.

Names and rules are upstream's, also where they speak of resources that are not served here (charts that bind them
work), but for three things: the roles named `manciple:...`, which speak of what only this API has; the roles of our
controllers, which say what ours write; and nothing is here for parts of a control plane that do not exist. admin, edit
and view are gathered from the roles that carry their labels.
Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy of Kubernetes 1.36 (policy.go, controller_policy.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec.structs import replace

from manciple.access.kinds.policy_rules import gathered as gathered_rules
from manciple.access.kinds.roles import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    GROUP,
    GROUP_KIND,
    SERVICE_ACCOUNT,
    USER,
    AggregationRule,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    RoleRef,
    Subject,
)
from manciple.wire.base import LabelSelector, ObjectMeta
from manciple.wire.identity import (
    AUTHENTICATED,
    BOOTSTRAPPERS,
    MASTERS,
    NODES,
    PEOPLE,
    SCHEDULER,
    SERVICE_ACCOUNTS,
    SYSTEM_NAMESPACE,
    UNAUTHENTICATED,
    VIEWERS,
)

#: The label of what is made at the first start, and looked after at every later one.
BOOTSTRAPPING, RBAC_DEFAULTS = "kubernetes.io/bootstrapping", "rbac-defaults"
#: "false" in this annotation keeps a default role or binding as its administrator left it.
AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
#: Labels of roles whose rules admin, edit and view gather.
AGGREGATE_TO = "rbac.authorization.k8s.io/aggregate-to-"

#: What belongs to no namespace, and everybody who asks for devices wants to see.
INVENTORY_VIEWER = "manciple:inventory-viewer"

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


def _rule(verbs: Sequence[str], group: str | Sequence[str], resources: str, names: str = "") -> PolicyRule:
    """resources, names: with spaces between them."""
    groups = (group,) if isinstance(group, str) else tuple(group)
    return PolicyRule(
        verbs=tuple(verbs),
        api_groups=groups,
        resources=tuple(resources.split()),
        resource_names=tuple(names.split()),
    )


def _paths(paths: str) -> PolicyRule:
    return PolicyRule(verbs=("get",), non_resource_urls=tuple(paths.split()))


def _meta(name: str, **labels: str) -> ObjectMeta:
    return ObjectMeta(name=name, labels={BOOTSTRAPPING: RBAC_DEFAULTS, **labels}, annotations={AUTO_UPDATE: "true"})


def _role(name: str, *rules: PolicyRule, into: str = "") -> ClusterRole:
    """into: which of admin, edit and view gathers it."""
    labels = {f"{AGGREGATE_TO}{into}": "true"} if into else {}
    kind = CLUSTER_ROLE
    return ClusterRole(api_version=kind.api_version, kind=kind.kind, metadata=_meta(name, **labels), rules=rules)


def _gathering(name: str, *, into: str = "") -> ClusterRole:
    selector = LabelSelector(match_labels={f"{AGGREGATE_TO}{name}": "true"})
    return replace(_role(name, into=into), aggregation_rule=AggregationRule(cluster_role_selectors=(selector,)))


def _binding(name: str, *subjects: Subject, role: str = "") -> ClusterRoleBinding:
    """role: the role of the same name, unless given."""
    kind = CLUSTER_ROLE_BINDING
    reference = RoleRef(api_group=GROUP, kind=CLUSTER_ROLE.kind, name=role or name)
    return ClusterRoleBinding(
        api_version=kind.api_version, kind=kind.kind, metadata=_meta(name), subjects=subjects, role_ref=reference
    )


def _group(name: str) -> Subject:
    return Subject(kind=GROUP_KIND, api_group=GROUP, name=name)


_EVENTS_RULE = _rule(("create", "patch", "update"), (CORE, EVENTS), "events")

# For people -----------------------------------------------------------------------------------------------------------


_PEOPLE = (
    _gathering("admin"),
    _role("cluster-admin", _rule("*", "*", "*"), PolicyRule(verbs=("*",), non_resource_urls=("*",))),
    _gathering("edit", into="admin"),
    _gathering("view", into="edit"),
    _role(
        "system:aggregate-to-admin",
        _rule(("create",), AUTHORIZATION, "localsubjectaccessreviews"),
        _rule(ALL_VERBS, GROUP, "rolebindings roles"),
        into="admin",
    ),
    _role(
        "system:aggregate-to-edit",
        _rule(READ, CORE, "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        _rule(("impersonate",), CORE, "serviceaccounts"),
        _rule(WRITE, CORE, "pods pods/attach pods/exec pods/portforward pods/proxy"),
        _rule(("create",), CORE, "pods/eviction"),
        _rule(
            WRITE,
            CORE,
            "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "
            "secrets serviceaccounts services services/proxy",
        ),
        _rule(("create",), CORE, "serviceaccounts/token"),
        _rule(WRITE, (CORE, EVENTS), "events"),
        _rule(
            WRITE,
            APPS,
            "daemonsets deployments deployments/rollback deployments/scale replicasets "
            "replicasets/scale statefulsets statefulsets/scale",
        ),
        _rule(WRITE, AUTOSCALING, "horizontalpodautoscalers"),
        _rule(WRITE, BATCH, "cronjobs jobs"),
        _rule(
            WRITE,
            EXTENSIONS,
            "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies "
            "replicasets replicasets/scale replicationcontrollers/scale",
        ),
        _rule(WRITE, POLICY, "poddisruptionbudgets"),
        _rule(WRITE, NETWORKING, "ingresses networkpolicies"),
        _rule(ALL_VERBS, COORDINATION, "leases"),
        _rule(WRITE, RESOURCE, "resourceclaims resourceclaimtemplates"),
        into="edit",
    ),
    _role(
        "system:aggregate-to-view",
        _rule(
            READ,
            CORE,
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
            "replicationcontrollers replicationcontrollers/scale serviceaccounts services "
            "services/status",
        ),
        _rule(
            READ,
            CORE,
            "bindings limitranges namespaces/status pods/log pods/status "
            "replicationcontrollers/status resourcequotas resourcequotas/status",
        ),
        _rule(READ, CORE, "namespaces"),
        _rule(READ, (CORE, EVENTS), "events"),
        _rule(READ, DISCOVERY, "endpointslices"),
        _rule(
            READ,
            APPS,
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "
            "deployments/status replicasets replicasets/scale replicasets/status statefulsets "
            "statefulsets/scale statefulsets/status",
        ),
        _rule(READ, AUTOSCALING, "horizontalpodautoscalers horizontalpodautoscalers/status"),
        _rule(READ, BATCH, "cronjobs cronjobs/status jobs jobs/status"),
        _rule(
            READ,
            EXTENSIONS,
            "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
            "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
            "replicationcontrollers/scale",
        ),
        _rule(READ, POLICY, "poddisruptionbudgets poddisruptionbudgets/status"),
        _rule(READ, NETWORKING, "ingresses ingresses/status networkpolicies"),
        _rule(READ, RESOURCE, "resourceclaims resourceclaims/status resourceclaimtemplates"),
        into="view",
    ),
    _role(
        "manciple:aggregate-to-view",
        _rule(("get",), CORE, "pods/explain"),
        _rule(("get",), RESOURCE, "resourceclaims/explain"),
        _rule(READ, SCHEDULING, "podgroups podgroups/status workloads"),
        _rule(READ, RESOURCE, "podschedulingcontexts podschedulingcontexts/status resourceclaimparameters"),
        _rule(READ, CDI, "resourceclaims resourceclaims/status"),
        into="view",
    ),
    _role(
        "manciple:aggregate-to-edit",
        _rule(("create",), CORE, "pods/simulate"),
        _rule(("create",), RESOURCE, "resourceclaims/simulate"),
        _rule(WRITE, SCHEDULING, "podgroups workloads"),
        _rule(WRITE, RESOURCE, "resourceclaimparameters"),
        _rule(WRITE, CDI, "resourceclaims"),
        into="edit",
    ),
    _role(
        "manciple:autoscaler",
        _rule(("create",), MANCIPLE, "simulations"),
        _rule(READ, CORE, "nodes pods"),
        _rule(READ, RESOURCE, "deviceclasses resourceclaims resourceslices"),
    ),
    _role(
        INVENTORY_VIEWER,
        _rule(READ, CORE, "namespaces nodes"),
        _rule(READ, RESOURCE, "deviceclasses devicetaintrules noderesourceslices resourceclasses resourceslices"),
    ),
)

# For whoever asks, and for servers ------------------------------------------------------------------------------------


_EVERYBODY = (
    _role(
        "system:auth-delegator",
        _rule(("create",), AUTHENTICATION, "tokenreviews"),
        _rule(("create",), AUTHORIZATION, "subjectaccessreviews"),
    ),
    _role(
        "system:basic-user",
        _rule(("create",), AUTHORIZATION, "selfsubjectaccessreviews selfsubjectrulesreviews"),
        _rule(("create",), AUTHENTICATION, "selfsubjectreviews"),
    ),
    _role(
        "system:discovery",
        _paths("/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"),
    ),
    _role(
        "system:monitoring",
        _paths("/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"),
        _rule(("get",), CORE, "nodes/metrics"),
    ),
    _role(
        "system:service-account-issuer-discovery",
        _paths("/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"),
    ),
    _role("system:public-info-viewer", _paths("/healthz /livez /readyz /version /version/")),
)

# For nodes ------------------------------------------------------------------------------------------------------------


_REQUESTS = "certificatesigningrequests"
_NODE_CLIENT = f"system:certificates.k8s.io:{_REQUESTS}:nodeclient"
_SELF_NODE_CLIENT = f"system:certificates.k8s.io:{_REQUESTS}:selfnodeclient"

_NODES = (
    _role(
        "system:node",
        _rule(("create",), AUTHENTICATION, "tokenreviews"),
        _rule(("create",), AUTHORIZATION, "localsubjectaccessreviews subjectaccessreviews"),
        _rule(READ, CORE, "services"),
        _rule(("create", *READ), CORE, "nodes"),
        _rule(CHANGE, CORE, "nodes/status"),
        _rule(CHANGE, CORE, "nodes"),
        _EVENTS_RULE,
        _rule(READ, CORE, "pods"),
        _rule(("create", "delete"), CORE, "pods"),
        _rule(CHANGE, CORE, "pods/status"),
        _rule(("create",), CORE, "pods/eviction"),
        _rule(READ, CORE, "configmaps secrets"),
        _rule(("get",), CORE, "persistentvolumeclaims persistentvolumes"),
        _rule(("get",), CORE, "endpoints"),
        _rule(("create", *READ), CERTIFICATES, "certificatesigningrequests"),
        _rule(("create", "delete", "get", "patch", "update"), COORDINATION, "leases"),
        _rule(("get",), STORAGE, "volumeattachments"),
        _rule(("create",), CORE, "serviceaccounts/token"),
        _rule(("get", *CHANGE), CORE, "persistentvolumeclaims/status"),
        _rule(READ, STORAGE, "csidrivers"),
        _rule(("create", "delete", "get", "patch", "update"), STORAGE, "csinodes"),
        _rule(READ, "node.k8s.io", "runtimeclasses"),
        _rule(("get",), RESOURCE, "resourceclaims"),
        _rule(("deletecollection",), RESOURCE, "resourceslices"),
        _rule(READ, CERTIFICATES, "clustertrustbundles"),
        _rule(("get",), CORE, "serviceaccounts"),
        _rule(("create", *READ), CERTIFICATES, "podcertificaterequests"),
    ),
    _role("system:node-bootstrapper", _rule(("create", *READ), CERTIFICATES, _REQUESTS)),
    _role(_NODE_CLIENT, _rule(("create",), CERTIFICATES, f"{_REQUESTS}/nodeclient")),
    _role(_SELF_NODE_CLIENT, _rule(("create",), CERTIFICATES, f"{_REQUESTS}/selfnodeclient")),
    _role(
        "system:node-problem-detector",
        _rule(("get",), CORE, "nodes"),
        _rule(("patch",), CORE, "nodes/status"),
        _EVENTS_RULE,
    ),
)

# For the scheduler and the controllers --------------------------------------------------------------------------------

CONTROLLER = "system:controller:"
DRAFT_CLAIMS, SCHEDULING_CONTEXTS = "manciple:cdi-claims", "manciple:scheduling-contexts"
POD_GROUP_STATUS, POD_GROUP_PROTECTION = "manciple:pod-group-status", "manciple:pod-group-protection"

_CONTROL_PLANE = (
    _role(
        SCHEDULER.name,
        _EVENTS_RULE,
        _rule(("create",), COORDINATION, "leases"),
        _rule(("get", "list", "update", "watch"), COORDINATION, "leases", names="kube-scheduler"),
        _rule(ALL_VERBS, COORDINATION, "leasecandidates"),
        _rule(READ, CORE, "nodes"),
        _rule(("delete", *READ), CORE, "pods"),
        _rule(("create",), CORE, "bindings pods/binding"),
        _rule(CHANGE, CORE, "pods/status"),
        _rule(READ, CORE, "replicationcontrollers services"),
        _rule(READ, (APPS, EXTENSIONS), "replicasets"),
        _rule(READ, APPS, "statefulsets"),
        _rule(READ, POLICY, "poddisruptionbudgets"),
        _rule(READ, CORE, "persistentvolumeclaims persistentvolumes"),
        _rule(("create",), AUTHENTICATION, "tokenreviews"),
        _rule(("create",), AUTHORIZATION, "subjectaccessreviews"),
        _rule(READ, STORAGE, "csinodes"),
        _rule(READ, STORAGE, "volumeattachments"),
        _rule(READ, CORE, "namespaces"),
        _rule(READ, STORAGE, "csidrivers"),
        _rule(READ, STORAGE, "csistoragecapacities"),
        _rule(READ, RESOURCE, "deviceclasses"),
        _rule(("get", "list", "patch", "update", "watch"), RESOURCE, "resourceclaims"),
        _rule(("get", "list", "patch", "update", "watch"), RESOURCE, "resourceclaims/status"),
        _rule(("update",), CORE, "pods/finalizers"),
        _rule(READ, RESOURCE, "resourceslices"),
        _rule(("create", "delete"), RESOURCE, "resourceclaims"),
        _rule(READ, RESOURCE, "devicetaintrules"),
        _rule(CHANGE, RESOURCE, "resourceclaims/binding"),
    ),
    _role(
        f"{CONTROLLER}certificate-controller",
        _rule(("delete", *READ), CERTIFICATES, _REQUESTS),
        _rule(("update",), CERTIFICATES, f"{_REQUESTS}/approval {_REQUESTS}/status"),
        _rule(("approve",), CERTIFICATES, "signers", names="kubernetes.io/kube-apiserver-client-kubelet"),
        _rule(
            ("sign",),
            CERTIFICATES,
            "signers",
            names="kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet "
            "kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown",
        ),
        _rule(("create",), AUTHORIZATION, "subjectaccessreviews"),
        _EVENTS_RULE,
    ),
    _role(
        f"{CONTROLLER}clusterrole-aggregation-controller",
        _rule(("escalate", "get", "list", "patch", "update", "watch"), GROUP, "clusterroles"),
    ),
    _role(
        f"{CONTROLLER}device-taint-eviction-controller",
        _rule(("delete", *READ), CORE, "pods"),
        _rule(CHANGE, CORE, "pods/status"),
        _rule(READ, RESOURCE, "resourceclaims"),
        _rule(READ, RESOURCE, "resourceslices"),
        _rule(READ, RESOURCE, "deviceclasses"),
        _EVENTS_RULE,
        _rule(CHANGE, RESOURCE, "devicetaintrules/status"),
        _rule(READ, RESOURCE, "devicetaintrules"),
    ),
    _role(
        f"{CONTROLLER}generic-garbage-collector",
        _rule(("delete", "get", "list", "patch", "update", "watch"), "*", "*"),
        _EVENTS_RULE,
    ),
    _role(
        f"{CONTROLLER}namespace-controller",
        _rule(("delete", *READ), CORE, "namespaces"),
        _rule(("update",), CORE, "namespaces/finalize namespaces/status"),
        _rule(("delete", "deletecollection", *READ), "*", "*"),
    ),
    _role(
        f"{CONTROLLER}node-controller",
        _rule(("delete", "get", "list", "patch", "update", "watch"), CORE, "nodes"),
        _rule(CHANGE, CORE, "nodes/status"),
        _rule(CHANGE, CORE, "pods/status"),
        _rule(("delete", *READ), CORE, "pods"),
        _EVENTS_RULE,
    ),
    _role(
        f"{CONTROLLER}pod-garbage-collector",
        _rule(("delete", "list", "watch"), CORE, "pods"),
        _rule(READ, CORE, "nodes"),
        _rule(("patch",), CORE, "pods/status"),
        _EVENTS_RULE,
    ),
    _role(
        f"{CONTROLLER}resource-claim-controller",
        _rule(READ, CORE, "pods"),
        _rule(("update",), CORE, "pods/finalizers"),
        _rule(("create", "delete", *READ), RESOURCE, "resourceclaims"),
        _rule(CHANGE, RESOURCE, "resourceclaims resourceclaims/status"),
        _rule(CHANGE, CORE, "pods/status"),
        _EVENTS_RULE,
        _rule(CHANGE, RESOURCE, "resourceclaims/binding"),
    ),
    _role(
        f"{CONTROLLER}resourcepoolstatusrequest-controller",
        _rule(("delete", *READ), RESOURCE, "resourcepoolstatusrequests"),
        _rule(CHANGE, RESOURCE, "resourcepoolstatusrequests/status"),
        _rule(READ, RESOURCE, "resourceslices"),
        _rule(READ, RESOURCE, "resourceclaims"),
        _EVENTS_RULE,
    ),
    _role(
        f"{CONTROLLER}resourcequota-controller",
        _rule(("list", "watch"), "*", "*"),
        _rule(("update",), CORE, "resourcequotas/status"),
        _EVENTS_RULE,
    ),
    _role(f"{CONTROLLER}root-ca-cert-publisher", _rule(("create", "update"), CORE, "configmaps"), _EVENTS_RULE),
    _role(f"{CONTROLLER}service-account-controller", _rule(("create",), CORE, "serviceaccounts"), _EVENTS_RULE),
    _role(
        f"{CONTROLLER}validatingadmissionpolicy-status-controller",
        _rule(READ, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
        _rule(("get", *CHANGE), "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
        _EVENTS_RULE,
    ),
    # What upstream adds to the roles of others where pods are scheduled in groups.
    _role(POD_GROUP_STATUS, _rule(READ, SCHEDULING, "podgroups"), _rule(CHANGE, SCHEDULING, "podgroups/status")),
    _role(POD_GROUP_PROTECTION, _rule(("update", *READ), SCHEDULING, "podgroups")),
    _role(SCHEDULING_CONTEXTS, _rule(("create", "delete", *READ, *CHANGE), RESOURCE, "podschedulingcontexts")),
    _role(DRAFT_CLAIMS, _rule(("create", *READ, *CHANGE), CDI, "resourceclaims resourceclaims/status resourceclasses")),
)

# All of them ----------------------------------------------------------------------------------------------------------


#: admin, edit and view without rules: see `gathered`.
ROLES: tuple[ClusterRole, ...] = (*_PEOPLE, *_EVERYBODY, *_NODES, *_CONTROL_PLANE)

#: Who gives pods their claims and their nodes.
_FOR_PODS = (
    Subject(kind=USER, api_group=GROUP, name=SCHEDULER.name),
    Subject(kind=SERVICE_ACCOUNT, name="resource-claim-controller", namespace=SYSTEM_NAMESPACE),
)

BINDINGS: tuple[ClusterRoleBinding, ...] = (
    _binding("cluster-admin", _group(MASTERS)),
    _binding("system:basic-user", _group(AUTHENTICATED)),
    _binding("system:discovery", _group(AUTHENTICATED)),
    _binding("system:monitoring", _group("system:monitoring")),
    _binding("manciple:people", _group(PEOPLE), role=INVENTORY_VIEWER),
    _binding("manciple:viewers", _group(VIEWERS), role="view"),
    _binding("system:public-info-viewer", _group(AUTHENTICATED), _group(UNAUTHENTICATED)),
    _binding("system:service-account-issuer-discovery", _group(SERVICE_ACCOUNTS)),
    #: nobody has the role: the node authorizer knows what each node may do
    _binding("system:node"),
    #: nodes join with bootstrap tokens, and renew their certificates themselves (upstream: kubeadm's bindings)
    _binding("manciple:node-bootstrap", _group(BOOTSTRAPPERS), role="system:node-bootstrapper"),
    _binding("manciple:node-join", _group(BOOTSTRAPPERS), role=_NODE_CLIENT),
    _binding("manciple:node-renewal", _group(NODES), role=_SELF_NODE_CLIENT),
    _binding(SCHEDULER.name, Subject(kind=USER, api_group=GROUP, name=SCHEDULER.name)),
    *(_binding(role, *_FOR_PODS) for role in (POD_GROUP_STATUS, DRAFT_CLAIMS, SCHEDULING_CONTEXTS)),
    _binding(
        POD_GROUP_PROTECTION,
        Subject(kind=SERVICE_ACCOUNT, name="podgroup-protection-controller", namespace=SYSTEM_NAMESPACE),
    ),
    *(
        _binding(
            role.metadata.name,
            Subject(kind=SERVICE_ACCOUNT, name=role.metadata.name.removeprefix(CONTROLLER), namespace=SYSTEM_NAMESPACE),
        )
        for role in _CONTROL_PLANE
        if role.metadata.name.startswith(CONTROLLER)
    ),
)


def is_default(role: ClusterRole) -> bool:
    """Whether an installation's start made it."""
    return role.metadata.labels.get(BOOTSTRAPPING) == RBAC_DEFAULTS


@cache
def gathered() -> tuple[ClusterRole, ...]:
    """`ROLES`, with the rules of those that gather them from others."""
    found = {role.metadata.name: role for role in ROLES}
    for name in ("view", "edit", "admin"):  # each gathers from the ones before
        found[name] = replace(found[name], rules=gathered_rules(found[name], found.values()))
    return tuple(found.values())
