"""What the agent of a node may do: exactly what it needs for the pods that are bound to its node.

Asked before RBAC, of every request of an identity `system:node:NAME` in the group `system:nodes`. It allows, or has no
opinion and says why; that becomes the reason of the refusal.

    secrets, configmaps           get, list, watch: one by its name, that a pod of the node names
    resourceclaims                get: likewise. An agent never writes a claim
    serviceaccounts               get, and create of token: of the pods' accounts
    pods                          get by name, list and watch by spec.nodeName or name: those of the node
    nodes, leases                 its own
    resourceslices                get, update, patch, delete: its own; list, watch, deletecollection by spec.nodeName;
                                  likewise noderesourceslices (KEP-4381, first draft)
    everything else               as `RULES` says, all nodes alike

What only the content of a write decides (whose pod, which labels) is `claims.access.node_restriction`'s.
Source: plugin/pkg/auth/authorizer/node/node_authorizer.go and rbac/bootstrappolicy/policy.go (NodeRules), 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from claims.access.graph import is_related
from manciple.access.attributes import Attributes, Decision
from manciple.access.authorization import HeldRules
from manciple.wire import identity as identities
from manciple.wire.identity import NODES, Identity

LEASE_NAMESPACE = "kube-node-lease"

_ALLOWED, _NO_OPINION = Decision(True), Decision(False)
_READ = ("get", "list", "watch")
_OWN = ("get", "create", "update", "patch", "delete")


def _each(verbs: str, groups: str, resources: str) -> frozenset[tuple[str, str, str]]:
    """(verb, group, resource) for all of these; "core" is the group without a name."""
    return frozenset(
        (verb, "" if group == "core" else group, resource)
        for verb in verbs.split()
        for group in groups.split()
        for resource in resources.split()
    )


#: What all nodes may do alike: the part of the role `system:node` that is not told apart by object.
RULES = (
    _each("create", "authentication.k8s.io", "tokenreviews")
    | _each("create", "authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews")
    | _each("get list watch", "core", "services")
    | _each("create update patch", "core events.k8s.io", "events")
    | _each("get", "core", "endpoints")
    | _each("create get list watch", "certificates.k8s.io", "certificatesigningrequests")
    | _each("get list watch", "certificates.k8s.io", "clustertrustbundles")
    | _each("get list watch", "storage.k8s.io", "csidrivers")
    | _each("get list watch", "node.k8s.io", "runtimeclasses")
)


def node_of(identity: Identity) -> str | None:
    """The node whose agent this is: None where it is none, "" where it names no node, or an invalid one."""
    if NODES not in identity.groups:
        return None
    try:
        return identities.node_of(identity.name)
    except ValueError:
        return ""


def authorize(identity: Identity, wanted: Attributes) -> Decision:
    """The authorizer; register it before RBAC's."""
    node = node_of(identity)
    if node is None:
        return _NO_OPINION
    if not node:
        return Decision(False, f'unknown node for user "{identity.name}"')
    if wanted.path:
        return _NO_OPINION
    judge = _JUDGES.get((wanted.group, wanted.resource))
    if judge is not None:
        return judge(node, wanted)
    return _ALLOWED if (wanted.verb, wanted.group, wanted.combined) in RULES else _NO_OPINION


def known_rules(identity: Identity, _namespace: str) -> HeldRules:
    """What a node may do depends on the objects: it cannot be listed. Nobody else is told of anything here."""
    if node_of(identity) is None:
        return HeldRules()
    return HeldRules(incomplete=True, error="node authorizer does not support user rule resolution")


# One resource each: (node, what is wanted) -> the decision ------------------------------------------------------------


def _related(node: str, wanted: Attributes) -> Decision:
    """Whether a pod of the node names the object, or it is the node's own."""
    if not wanted.name:
        return Decision(False, "No Object name found")
    resource = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    if is_related(node, (resource, wanted.namespace, wanted.name)):
        return _ALLOWED
    return Decision(False, f"no relationship found between node '{node}' and this object")


def _got(node: str, wanted: Attributes) -> Decision:
    """Objects that are read one by one."""
    if wanted.verb != "get":
        return Decision(False, "can only get individual resources of this type")
    if wanted.subresource:
        return Decision(False, "cannot get subresource")
    return _related(node, wanted)


def _read(node: str, wanted: Attributes) -> Decision:
    """Objects that are read and watched one by one."""
    if wanted.verb not in _READ:
        return Decision(False, "can only read resources of this type")
    if wanted.subresource:
        return Decision(False, "cannot read subresource")
    if not wanted.namespace:
        return Decision(False, "can only read namespaced object of this type")
    return _related(node, wanted)


def _volume_claim(node: str, wanted: Attributes) -> Decision:
    if wanted.subresource != "status":
        return _got(node, wanted)
    if wanted.verb not in ("update", "patch"):
        return Decision(False, "can only get/update/patch this type")
    return _related(node, wanted)


def _service_account(node: str, wanted: Attributes) -> Decision:
    if wanted.verb == "get" and not wanted.subresource:
        return _read(node, wanted)
    if wanted.verb != "create" or not wanted.name:
        return Decision(False, "can only create tokens for individual service accounts")
    if wanted.subresource != "token":
        return Decision(False, "can only create token subresource of serviceaccount")
    return _related(node, wanted)


def _lease(node: str, wanted: Attributes) -> Decision:
    if wanted.verb not in _OWN:
        return Decision(False, "can only get, create, update, patch, or delete a node lease")
    if wanted.namespace != LEASE_NAMESPACE:
        return Decision(False, f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
    # The name of what is created is in its body, which the restriction looks at.
    if wanted.verb != "create" and wanted.name != node:
        return Decision(False, "can only access node lease with the same name as the requesting node")
    return _ALLOWED


def _csi_node(node: str, wanted: Attributes) -> Decision:
    if wanted.verb not in _OWN:
        return Decision(False, "can only get, create, update, patch, or delete a CSINode")
    if wanted.subresource:
        return Decision(False, "cannot authorize CSINode subresources")
    if wanted.verb != "create" and wanted.name != node:
        return Decision(False, "can only access CSINode with the same name as the requesting node")
    return _ALLOWED


def _slice(node: str, wanted: Attributes) -> Decision:
    if wanted.subresource:
        return Decision(False, "cannot authorize ResourceSlice subresources")
    match wanted.verb:
        case "create":
            return _ALLOWED
        case "get" | "update" | "patch" | "delete":
            return _related(node, wanted)
        case "watch" | "list" | "deletecollection":
            # In v1alpha2, whose ResourceSlices have no spec, the field has another name.
            is_bare = (wanted.version, wanted.resource) == ("v1alpha2", "resourceslices")
            if _selects(wanted, node, field="nodeName" if is_bare else "spec.nodeName"):
                return _ALLOWED
            return Decision(False, "can only list/watch/deletecollection resourceslices with nodeName field selector")
    return Decision(
        False,
        "only the following verbs are allowed for a ResourceSlice: "
        "get, watch, list, create, update, patch, delete, deletecollection",
    )


def _node(node: str, wanted: Attributes) -> Decision:
    match (wanted.subresource, wanted.verb):
        case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
            return _ALLOWED
        case ("", "get" | "list" | "watch"):
            if wanted.name == node:
                return _ALLOWED
            what = f"'{wanted.name}'" if wanted.name else "all nodes"
            return Decision(False, f"node '{node}' cannot read {what}, only its own Node object")
    return _NO_OPINION


def _pod(node: str, wanted: Attributes) -> Decision:
    match (wanted.subresource, wanted.verb):
        case ("", "get"):
            return _related(node, wanted)
        case ("", "list" | "watch"):
            if _selects(wanted, node):
                return _ALLOWED
            if wanted.name:
                return _related(node, wanted)
            return Decision(False, "can only list/watch pods with spec.nodeName field selector")
        case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
            return _ALLOWED
    return _NO_OPINION


def _certificate_request(node: str, wanted: Attributes) -> Decision:
    """PodCertificateRequests; none are served, and reviews ask about them all the same."""
    if wanted.subresource:
        return Decision(False, "nodes may not access the status subresource of PodCertificateRequests")
    match wanted.verb:
        case "create":
            return _ALLOWED
        case "get":
            return _related(node, wanted)
        case "list" | "watch":
            if _selects(wanted, node):
                return _ALLOWED
            return Decision(False, "can only list/watch podcertificaterequests with nodeName field selector")
    return Decision(False, f"nodes may not {wanted.verb} podcertificaterequests")


def _selects(wanted: Attributes, node: str, *, field: str = "spec.nodeName") -> bool:
    """Whether no more than what is on the node is asked for."""
    return any(one.field == field and one.equal and one.value == node for one in wanted.fields.requirements)


_JUDGES: Mapping[tuple[str, str], Callable[[str, Attributes], Decision]] = {
    ("", "secrets"): _read,
    ("", "configmaps"): _read,
    ("", "persistentvolumeclaims"): _volume_claim,
    ("", "persistentvolumes"): _got,
    ("resource.k8s.io", "resourceclaims"): _got,
    ("cdi.k8s.io", "resourceclaims"): _got,
    ("storage.k8s.io", "volumeattachments"): _got,
    ("", "serviceaccounts"): _service_account,
    ("coordination.k8s.io", "leases"): _lease,
    ("storage.k8s.io", "csinodes"): _csi_node,
    ("resource.k8s.io", "resourceslices"): _slice,
    ("resource.k8s.io", "noderesourceslices"): _slice,
    ("", "nodes"): _node,
    ("", "pods"): _pod,
    ("certificates.k8s.io", "podcertificaterequests"): _certificate_request,
}
