"""The roles and bindings that every installation has. PURE.

Names and rules are upstream's, also where they speak of resources that are not served here (charts that bind them
work), but for three things: the roles named `manciple:...`, which speak of what only this API has; the roles of our
controllers, which say what ours write; and nothing is here for parts of a control plane that do not exist. admin, edit
and view are gathered from the roles that carry their labels.
Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy of Kubernetes 1.36 (policy.go, controller_policy.go).
"""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from manciple.access.kinds.policy_rules import gathered as gathered_rules
from manciple.access.kinds.role_parts import (
    ALL_VERBS,
    APPS,
    AUTHENTICATION,
    AUTHORIZATION,
    AUTOSCALING,
    BATCH,
    BOOTSTRAPPING,
    CDI,
    CERTIFICATES,
    CHANGE,
    COORDINATION,
    CORE,
    DISCOVERY,
    EVENTS,
    EVENTS_RULE,
    EXTENSIONS,
    MANCIPLE,
    METRICS,
    NETWORKING,
    POLICY,
    RBAC_DEFAULTS,
    READ,
    RESOURCE,
    SCHEDULING,
    STORAGE,
    WRITE,
    binding,
    cluster_role,
    gathering,
    group,
    paths,
    rule,
)
from manciple.access.kinds.roles import (
    GROUP,
    SERVICE_ACCOUNT,
    USER,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Subject,
)
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

#: What belongs to no namespace, and everybody who asks for devices wants to see.
INVENTORY_VIEWER = "manciple:inventory-viewer"

# For people -----------------------------------------------------------------------------------------------------------


_PEOPLE = (
    gathering("admin"),
    cluster_role("cluster-admin", rule("*", "*", "*"), PolicyRule(verbs=("*",), non_resource_urls=("*",))),
    gathering("edit", into="admin"),
    gathering("view", into="edit"),
    cluster_role(
        "system:aggregate-to-admin",
        rule(("create",), AUTHORIZATION, "localsubjectaccessreviews"),
        rule(ALL_VERBS, GROUP, "rolebindings roles"),
        into="admin",
    ),
    cluster_role(
        "system:aggregate-to-edit",
        rule(READ, CORE, "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
        rule(("impersonate",), CORE, "serviceaccounts"),
        rule(WRITE, CORE, "pods pods/attach pods/exec pods/portforward pods/proxy"),
        rule(("create",), CORE, "pods/eviction"),
        rule(
            WRITE,
            CORE,
            "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "
            "secrets serviceaccounts services services/proxy",
        ),
        rule(("create",), CORE, "serviceaccounts/token"),
        rule(WRITE, (CORE, EVENTS), "events"),
        rule(
            WRITE,
            APPS,
            "daemonsets deployments deployments/rollback deployments/scale replicasets "
            "replicasets/scale statefulsets statefulsets/scale",
        ),
        rule(WRITE, AUTOSCALING, "horizontalpodautoscalers"),
        rule(WRITE, BATCH, "cronjobs jobs"),
        rule(
            WRITE,
            EXTENSIONS,
            "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies "
            "replicasets replicasets/scale replicationcontrollers/scale",
        ),
        rule(WRITE, POLICY, "poddisruptionbudgets"),
        rule(WRITE, NETWORKING, "ingresses networkpolicies"),
        rule(ALL_VERBS, COORDINATION, "leases"),
        rule(WRITE, RESOURCE, "resourceclaims resourceclaimtemplates"),
        into="edit",
    ),
    cluster_role(
        "system:aggregate-to-view",
        rule(
            READ,
            CORE,
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
            "replicationcontrollers replicationcontrollers/scale serviceaccounts services "
            "services/status",
        ),
        rule(
            READ,
            CORE,
            "bindings limitranges namespaces/status pods/log pods/status "
            "replicationcontrollers/status resourcequotas resourcequotas/status",
        ),
        rule(READ, CORE, "namespaces"),
        rule(READ, (CORE, EVENTS), "events"),
        rule(READ, DISCOVERY, "endpointslices"),
        rule(
            READ,
            APPS,
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "
            "deployments/status replicasets replicasets/scale replicasets/status statefulsets "
            "statefulsets/scale statefulsets/status",
        ),
        rule(READ, AUTOSCALING, "horizontalpodautoscalers horizontalpodautoscalers/status"),
        rule(READ, BATCH, "cronjobs cronjobs/status jobs jobs/status"),
        rule(
            READ,
            EXTENSIONS,
            "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
            "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
            "replicationcontrollers/scale",
        ),
        rule(READ, POLICY, "poddisruptionbudgets poddisruptionbudgets/status"),
        rule(READ, NETWORKING, "ingresses ingresses/status networkpolicies"),
        rule(READ, RESOURCE, "resourceclaims resourceclaims/status resourceclaimtemplates"),
        into="view",
    ),
    cluster_role(
        "manciple:aggregate-to-view",
        rule(("get",), CORE, "pods/explain"),
        rule(("get",), RESOURCE, "resourceclaims/explain"),
        rule(READ, SCHEDULING, "podgroups podgroups/status workloads"),
        rule(READ, RESOURCE, "podschedulingcontexts podschedulingcontexts/status resourceclaimparameters"),
        rule(READ, CDI, "resourceclaims resourceclaims/status"),
        rule(("get", "list"), METRICS, "pods"),
        into="view",
    ),
    cluster_role(
        "manciple:aggregate-to-edit",
        rule(("create",), CORE, "pods/simulate"),
        rule(("create",), RESOURCE, "resourceclaims/simulate"),
        rule(WRITE, SCHEDULING, "podgroups workloads"),
        rule(WRITE, RESOURCE, "resourceclaimparameters"),
        rule(WRITE, CDI, "resourceclaims"),
        into="edit",
    ),
    cluster_role(
        "manciple:autoscaler",
        rule(("create",), MANCIPLE, "simulations"),
        rule(READ, CORE, "nodes pods"),
        rule(READ, RESOURCE, "deviceclasses resourceclaims resourceslices"),
    ),
    cluster_role(
        INVENTORY_VIEWER,
        rule(READ, CORE, "namespaces nodes"),
        rule(("get", "list"), METRICS, "nodes"),
        rule(READ, RESOURCE, "deviceclasses devicetaintrules noderesourceslices resourceclasses resourceslices"),
    ),
)

# For whoever asks, and for servers ------------------------------------------------------------------------------------


_EVERYBODY = (
    cluster_role(
        "system:auth-delegator",
        rule(("create",), AUTHENTICATION, "tokenreviews"),
        rule(("create",), AUTHORIZATION, "subjectaccessreviews"),
    ),
    cluster_role(
        "system:basic-user",
        rule(("create",), AUTHORIZATION, "selfsubjectaccessreviews selfsubjectrulesreviews"),
        rule(("create",), AUTHENTICATION, "selfsubjectreviews"),
    ),
    cluster_role(
        "system:discovery",
        paths("/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"),
    ),
    cluster_role(
        "system:monitoring",
        paths("/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"),
        rule(("get",), CORE, "nodes/metrics"),
    ),
    cluster_role("manciple:resource-metrics", paths("/metrics/resources")),
    cluster_role(
        "system:service-account-issuer-discovery",
        paths("/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"),
    ),
    cluster_role("system:public-info-viewer", paths("/healthz /livez /readyz /version /version/")),
)

# For nodes ------------------------------------------------------------------------------------------------------------


_REQUESTS = "certificatesigningrequests"
_NODE_CLIENT = f"system:certificates.k8s.io:{_REQUESTS}:nodeclient"
_SELF_NODE_CLIENT = f"system:certificates.k8s.io:{_REQUESTS}:selfnodeclient"

_NODES = (
    cluster_role(
        "system:node",
        rule(("create",), AUTHENTICATION, "tokenreviews"),
        rule(("create",), AUTHORIZATION, "localsubjectaccessreviews subjectaccessreviews"),
        rule(READ, CORE, "services"),
        rule(("create", *READ), CORE, "nodes"),
        rule(CHANGE, CORE, "nodes/status"),
        rule(CHANGE, CORE, "nodes"),
        EVENTS_RULE,
        rule(READ, CORE, "pods"),
        rule(("create", "delete"), CORE, "pods"),
        rule(CHANGE, CORE, "pods/status"),
        rule(("create",), CORE, "pods/eviction"),
        rule(READ, CORE, "configmaps secrets"),
        rule(("get",), CORE, "persistentvolumeclaims persistentvolumes"),
        rule(("get",), CORE, "endpoints"),
        rule(("create", *READ), CERTIFICATES, "certificatesigningrequests"),
        rule(("create", "delete", "get", "patch", "update"), COORDINATION, "leases"),
        rule(("get",), STORAGE, "volumeattachments"),
        rule(("create",), CORE, "serviceaccounts/token"),
        rule(("get", *CHANGE), CORE, "persistentvolumeclaims/status"),
        rule(READ, STORAGE, "csidrivers"),
        rule(("create", "delete", "get", "patch", "update"), STORAGE, "csinodes"),
        rule(READ, "node.k8s.io", "runtimeclasses"),
        rule(("get",), RESOURCE, "resourceclaims"),
        rule(("deletecollection",), RESOURCE, "resourceslices"),
        rule(READ, CERTIFICATES, "clustertrustbundles"),
        rule(("get",), CORE, "serviceaccounts"),
        rule(("create", *READ), CERTIFICATES, "podcertificaterequests"),
    ),
    cluster_role("system:node-bootstrapper", rule(("create", *READ), CERTIFICATES, _REQUESTS)),
    cluster_role(_NODE_CLIENT, rule(("create",), CERTIFICATES, f"{_REQUESTS}/nodeclient")),
    cluster_role(_SELF_NODE_CLIENT, rule(("create",), CERTIFICATES, f"{_REQUESTS}/selfnodeclient")),
    cluster_role(
        "system:node-problem-detector",
        rule(("get",), CORE, "nodes"),
        rule(("patch",), CORE, "nodes/status"),
        EVENTS_RULE,
    ),
)

# For the scheduler and the controllers --------------------------------------------------------------------------------

CONTROLLER = "system:controller:"
DRAFT_CLAIMS, SCHEDULING_CONTEXTS = "manciple:cdi-claims", "manciple:scheduling-contexts"
POD_GROUP_STATUS, POD_GROUP_PROTECTION = "manciple:pod-group-status", "manciple:pod-group-protection"

_CONTROL_PLANE = (
    cluster_role(
        SCHEDULER.name,
        EVENTS_RULE,
        rule(("create",), COORDINATION, "leases"),
        rule(("get", "list", "update", "watch"), COORDINATION, "leases", names="kube-scheduler"),
        rule(ALL_VERBS, COORDINATION, "leasecandidates"),
        rule(READ, CORE, "nodes"),
        rule(("delete", *READ), CORE, "pods"),
        rule(("create",), CORE, "bindings pods/binding"),
        rule(CHANGE, CORE, "pods/status"),
        rule(READ, CORE, "replicationcontrollers services"),
        rule(READ, (APPS, EXTENSIONS), "replicasets"),
        rule(READ, APPS, "statefulsets"),
        rule(READ, POLICY, "poddisruptionbudgets"),
        rule(READ, CORE, "persistentvolumeclaims persistentvolumes"),
        rule(("create",), AUTHENTICATION, "tokenreviews"),
        rule(("create",), AUTHORIZATION, "subjectaccessreviews"),
        rule(READ, STORAGE, "csinodes"),
        rule(READ, STORAGE, "volumeattachments"),
        rule(READ, CORE, "namespaces"),
        rule(READ, STORAGE, "csidrivers"),
        rule(READ, STORAGE, "csistoragecapacities"),
        rule(READ, RESOURCE, "deviceclasses"),
        rule(("get", "list", "patch", "update", "watch"), RESOURCE, "resourceclaims"),
        rule(("get", "list", "patch", "update", "watch"), RESOURCE, "resourceclaims/status"),
        rule(("update",), CORE, "pods/finalizers"),
        rule(READ, RESOURCE, "resourceslices"),
        rule(("create", "delete"), RESOURCE, "resourceclaims"),
        rule(READ, RESOURCE, "devicetaintrules"),
        rule(CHANGE, RESOURCE, "resourceclaims/binding"),
    ),
    cluster_role(
        f"{CONTROLLER}certificate-controller",
        rule(("delete", *READ), CERTIFICATES, _REQUESTS),
        rule(("update",), CERTIFICATES, f"{_REQUESTS}/approval {_REQUESTS}/status"),
        rule(("approve",), CERTIFICATES, "signers", names="kubernetes.io/kube-apiserver-client-kubelet"),
        rule(
            ("sign",),
            CERTIFICATES,
            "signers",
            names="kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet "
            "kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown",
        ),
        rule(("create",), AUTHORIZATION, "subjectaccessreviews"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}clusterrole-aggregation-controller",
        rule(("escalate", "get", "list", "patch", "update", "watch"), GROUP, "clusterroles"),
    ),
    cluster_role(
        f"{CONTROLLER}cronjob-controller",
        rule(("get", "list", "update", "watch"), BATCH, "cronjobs"),
        rule(("create", "delete", *READ, *CHANGE), BATCH, "jobs"),
        rule(("update",), BATCH, "cronjobs/status"),
        rule(("update",), BATCH, "cronjobs/finalizers"),
        rule(("delete", "list"), CORE, "pods"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}daemon-set-controller",
        rule(READ, (APPS, EXTENSIONS), "daemonsets"),
        rule(("update",), (APPS, EXTENSIONS), "daemonsets/status"),
        rule(("update",), (APPS, EXTENSIONS), "daemonsets/finalizers"),
        rule(("list", "watch"), CORE, "nodes"),
        rule(("create", "delete", "list", "patch", "watch"), CORE, "pods"),
        rule(("create",), CORE, "pods/binding"),
        rule(("create", "delete", *READ, *CHANGE), APPS, "controllerrevisions"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}deployment-controller",
        rule(("get", "list", "update", "watch"), (APPS, EXTENSIONS), "deployments"),
        rule(("update",), (APPS, EXTENSIONS), "deployments/status"),
        rule(("update",), (APPS, EXTENSIONS), "deployments/finalizers"),
        rule(("create", "delete", *READ, *CHANGE), (APPS, EXTENSIONS), "replicasets"),
        rule(("get", "list", "update", "watch"), CORE, "pods"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}device-taint-eviction-controller",
        rule(("delete", *READ), CORE, "pods"),
        rule(CHANGE, CORE, "pods/status"),
        rule(READ, RESOURCE, "resourceclaims"),
        rule(READ, RESOURCE, "resourceslices"),
        rule(READ, RESOURCE, "deviceclasses"),
        EVENTS_RULE,
        rule(CHANGE, RESOURCE, "devicetaintrules/status"),
        rule(READ, RESOURCE, "devicetaintrules"),
    ),
    cluster_role(
        f"{CONTROLLER}disruption-controller",
        rule(READ, (APPS, EXTENSIONS), "deployments"),
        rule(READ, (APPS, EXTENSIONS), "replicasets"),
        rule(READ, CORE, "replicationcontrollers"),
        rule(READ, POLICY, "poddisruptionbudgets"),
        rule(READ, APPS, "statefulsets"),
        rule(("update",), POLICY, "poddisruptionbudgets/status"),
        rule(("get",), "*", "*/scale"),
        EVENTS_RULE,
        rule(READ, CORE, "pods"),
        rule(CHANGE, CORE, "pods/status"),
    ),
    cluster_role(
        f"{CONTROLLER}endpoint-controller",
        rule(READ, CORE, "pods services"),
        rule(("create", "delete", "get", "list", "update"), CORE, "endpoints"),
        rule(("create",), CORE, "endpoints/restricted"),
        rule(("update",), CORE, "services/finalizers"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}endpointslice-controller",
        rule(READ, CORE, "nodes pods services"),
        rule(("update",), CORE, "services/finalizers"),
        rule(("create", "delete", "get", "list", "update"), DISCOVERY, "endpointslices"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}ephemeral-volume-controller",
        rule(READ, CORE, "pods"),
        rule(("update",), CORE, "pods/finalizers"),
        rule(("create", *READ), CORE, "persistentvolumeclaims"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}generic-garbage-collector",
        rule(("delete", "get", "list", "patch", "update", "watch"), "*", "*"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}horizontal-pod-autoscaler",
        rule(READ, AUTOSCALING, "horizontalpodautoscalers"),
        rule(("update",), AUTOSCALING, "horizontalpodautoscalers/status"),
        rule(("get", "update"), "*", "*/scale"),
        rule(("list",), CORE, "pods"),
        rule(("list",), METRICS, "pods"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}job-controller",
        rule((*READ, *CHANGE), BATCH, "jobs"),
        rule(("update",), BATCH, "jobs/status"),
        rule(("update",), BATCH, "jobs/finalizers"),
        rule(("create", "delete", "list", "patch", "watch"), CORE, "pods"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}namespace-controller",
        rule(("delete", *READ), CORE, "namespaces"),
        rule(("update",), CORE, "namespaces/finalize namespaces/status"),
        rule(("delete", "deletecollection", *READ), "*", "*"),
    ),
    cluster_role(
        f"{CONTROLLER}node-controller",
        rule(("delete", "get", "list", "patch", "update", "watch"), CORE, "nodes"),
        rule(CHANGE, CORE, "nodes/status"),
        rule(CHANGE, CORE, "pods/status"),
        rule(("delete", *READ), CORE, "pods"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}persistent-volume-binder",
        rule(("create", "delete", "get", "list", "update", "watch"), CORE, "persistentvolumes"),
        rule(("update",), CORE, "persistentvolumes/status"),
        rule(("get", "list", "update", "watch"), CORE, "persistentvolumeclaims"),
        rule(("update",), CORE, "persistentvolumeclaims/status"),
        rule(READ, STORAGE, "storageclasses"),
        rule(("get", "list"), CORE, "nodes"),
        rule(READ, CORE, "pods"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}pod-garbage-collector",
        rule(("delete", "list", "watch"), CORE, "pods"),
        rule(READ, CORE, "nodes"),
        rule(("patch",), CORE, "pods/status"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}replicaset-controller",
        rule(("get", "list", "update", "watch"), (APPS, EXTENSIONS), "replicasets"),
        rule(("update",), (APPS, EXTENSIONS), "replicasets/status"),
        rule(("update",), (APPS, EXTENSIONS), "replicasets/finalizers"),
        rule(("create", "delete", "list", "patch", "watch"), CORE, "pods"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}resource-claim-controller",
        rule(READ, CORE, "pods"),
        rule(("update",), CORE, "pods/finalizers"),
        rule(("create", "delete", *READ), RESOURCE, "resourceclaims"),
        rule(CHANGE, RESOURCE, "resourceclaims resourceclaims/status"),
        rule(CHANGE, CORE, "pods/status"),
        EVENTS_RULE,
        rule(CHANGE, RESOURCE, "resourceclaims/binding"),
    ),
    cluster_role(
        f"{CONTROLLER}resourcepoolstatusrequest-controller",
        rule(("delete", *READ), RESOURCE, "resourcepoolstatusrequests"),
        rule(CHANGE, RESOURCE, "resourcepoolstatusrequests/status"),
        rule(READ, RESOURCE, "resourceslices"),
        rule(READ, RESOURCE, "resourceclaims"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}resourcequota-controller",
        rule(("list", "watch"), "*", "*"),
        rule(("update",), CORE, "resourcequotas/status"),
        EVENTS_RULE,
    ),
    cluster_role(f"{CONTROLLER}root-ca-cert-publisher", rule(("create", "update"), CORE, "configmaps"), EVENTS_RULE),
    cluster_role(f"{CONTROLLER}service-account-controller", rule(("create",), CORE, "serviceaccounts"), EVENTS_RULE),
    cluster_role(f"{CONTROLLER}ttl-after-finished-controller", rule(("delete", *READ), BATCH, "jobs"), EVENTS_RULE),
    cluster_role(
        f"{CONTROLLER}statefulset-controller",
        rule(READ, CORE, "pods"),
        rule(READ, APPS, "statefulsets"),
        rule(("update",), APPS, "statefulsets/status"),
        rule(("update",), APPS, "statefulsets/finalizers"),
        rule(("create", "delete", *CHANGE), CORE, "pods"),
        rule(("create", "delete", *READ, *CHANGE), APPS, "controllerrevisions"),
        rule(("create", "get"), CORE, "persistentvolumeclaims"),
        rule(("delete", "update"), CORE, "persistentvolumeclaims"),
        EVENTS_RULE,
    ),
    cluster_role(
        f"{CONTROLLER}validatingadmissionpolicy-status-controller",
        rule(READ, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
        rule(("get", *CHANGE), "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
        EVENTS_RULE,
    ),
    # What upstream adds to the roles of others where pods are scheduled in groups.
    cluster_role(POD_GROUP_STATUS, rule(READ, SCHEDULING, "podgroups"), rule(CHANGE, SCHEDULING, "podgroups/status")),
    cluster_role(POD_GROUP_PROTECTION, rule(("update", *READ), SCHEDULING, "podgroups")),
    cluster_role(SCHEDULING_CONTEXTS, rule(("create", "delete", *READ, *CHANGE), RESOURCE, "podschedulingcontexts")),
    cluster_role(
        DRAFT_CLAIMS, rule(("create", *READ, *CHANGE), CDI, "resourceclaims resourceclaims/status resourceclasses")
    ),
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
    binding("cluster-admin", group(MASTERS)),
    binding("system:basic-user", group(AUTHENTICATED)),
    binding("system:discovery", group(AUTHENTICATED)),
    binding("system:monitoring", group("system:monitoring")),
    binding("manciple:resource-metrics", group("system:monitoring")),
    binding("manciple:people", group(PEOPLE), role=INVENTORY_VIEWER),
    binding("manciple:viewers", group(VIEWERS), role="view"),
    binding("system:public-info-viewer", group(AUTHENTICATED), group(UNAUTHENTICATED)),
    binding("system:service-account-issuer-discovery", group(SERVICE_ACCOUNTS)),
    #: nobody has the role: the node authorizer knows what each node may do
    binding("system:node"),
    #: nodes join with bootstrap tokens, and renew their certificates themselves (upstream: kubeadm's bindings)
    binding("manciple:node-bootstrap", group(BOOTSTRAPPERS), role="system:node-bootstrapper"),
    binding("manciple:node-join", group(BOOTSTRAPPERS), role=_NODE_CLIENT),
    binding("manciple:node-renewal", group(NODES), role=_SELF_NODE_CLIENT),
    binding(SCHEDULER.name, Subject(kind=USER, api_group=GROUP, name=SCHEDULER.name)),
    *(binding(role, *_FOR_PODS) for role in (POD_GROUP_STATUS, DRAFT_CLAIMS, SCHEDULING_CONTEXTS)),
    binding(
        POD_GROUP_PROTECTION,
        Subject(kind=SERVICE_ACCOUNT, name="podgroup-protection-controller", namespace=SYSTEM_NAMESPACE),
    ),
    *(
        binding(
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
