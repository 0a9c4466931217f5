"""The node authorizer: an agent may do what it needs for the pods that are bound to its node, and nothing else.

Called before RBAC for every request of an identity `system:node:NAME` in the group `system:nodes`. It allows, or has no
opinion and gives the reason, which a refusal then quotes.

    secrets, configmaps           get, list, watch: a single one by its name, if a pod of the node names it
    resourceclaims                get: likewise. An agent never writes a claim
    serviceaccounts               get, and create of token: accounts of the node's pods
    pods                          get by name, list and watch by spec.nodeName or name: those of the node
    nodes, leases                 its own
    resourceslices                get, update, patch, delete: its own; list, watch, deletecollection by spec.nodeName;
                                  likewise noderesourceslices (KEP-4381, first draft)
    everything else               as in `RULES`, the same for all nodes

Rules about the content of a write (whose pod, which labels) are in `claims.access.node_restriction`.
Sources: plugin/pkg/auth/authorizer/node/{graph,node_authorizer}.go and rbac/bootstrappolicy/policy.go (NodeRules) of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any, ClassVar, NamedTuple

from claims.kinds.containers import Container
from claims.kinds.pods import MIRROR, Pod
from claims.pod_claims import claim_names
from inventory.kinds import gates
from manciple.access.authorization import Attributes, Decision, HeldRules
from manciple.store.event_log import POLL_INTERVAL, Follower, View
from manciple.store.records import Written
from manciple.wire import identity as identities
from manciple.wire.base import ApiObject
from manciple.wire.identity import NODES, Identity
from manciple.wire.resources import CLAIMS, DRAFT_CLAIMS, NODE_SLICES, PODS, SLICES

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


#: What every node may do: the part of the role `system:node` that does not depend on the object.
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
    """The node of this agent: None if it is not a node agent, "" if the user names no valid node."""
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
    """A node's permissions depend on objects, so they cannot be listed. Other identities get none here."""
    if node_of(identity) is None:
        return HeldRules()
    return HeldRules(incomplete=True, error="node authorizer does not support user rule resolution")


# The rules of each resource -------------------------------------------------------------------------------------------


def _related(node: str, wanted: Attributes) -> Decision:
    """Allowed if the graph relates the object to the node."""
    if not wanted.name:
        return Decision(False, "No Object name found")
    resource = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    if is_related(node, (resource, wanted.namespace, wanted.name)):
        return _ALLOWED
    return Decision(False, f"no relationship found between node '{node}' and this object")


def _got(node: str, wanted: Attributes) -> Decision:
    """Resources of which a node may get single objects."""
    if wanted.verb != "get":
        return Decision(False, "can only get individual resources of this type")
    if wanted.subresource:
        return Decision(False, "cannot get subresource")
    return _related(node, wanted)


def _read(node: str, wanted: Attributes) -> Decision:
    """Resources of which a node may get, list and watch single objects."""
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
    # The name of a new lease is in the body, which NodeRestriction checks.
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
    """PodCertificateRequests: not served here, but access reviews may ask about them."""
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
    """Whether a field selector limits the request to objects on the node."""
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


# The graph: which objects the pods and slices of a node name ----------------------------------------------------------


#: The maximum age of a positive answer, in seconds.
TRUSTED = POLL_INTERVAL

#: (resource, namespace, name)
ObjectKey = tuple[str, str, str]


class _Bound(NamedTuple):
    """A pod or slice on a node. `objects`: itself, then the objects that it names."""

    node: str
    objects: tuple[ObjectKey, ...]


class NodeGraph(View):
    """Node -> its pods and slices, and the objects that its pods name.

    It keeps only the names: some 30 MiB for 50,000 pods, in the processes that serve node agents
    (`tests/claims/access/test_node_graph.py` measures it).
    """

    resources: ClassVar[Sequence[str]] = (PODS, SLICES)

    def __init__(self) -> None:
        if gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT):
            self.resources = (PODS, SLICES, NODE_SLICES)  # type: ignore[misc]  # of a view of this process
        self._bound: dict[ObjectKey, _Bound] = {}
        #: node -> object -> how many pods on the node name it
        self._objects: dict[str, dict[ObjectKey, int]] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._add(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            meta = change.object.metadata
            self._remove((change.resource, meta.namespace, meta.name))
            if change.type != "DELETED":
                self._add(change.resource, change.object)

    def related(self, node: str, key: ObjectKey) -> bool:
        """Whether the object is one of the node's pods or slices, or a pod of the node names it."""
        return key in self._objects.get(node, ())

    def __len__(self) -> int:
        """How many pods and slices are on nodes."""
        return len(self._bound)

    def _add(self, resource: str, obj: Any) -> None:
        node = obj.spec.node_name
        if not node:
            return
        namespace = intern(obj.metadata.namespace)
        named: set[Reference] = set()
        if resource == PODS and MIRROR not in obj.metadata.annotations:
            named = {reference for reference in references(obj) if reference.name}
        key = (resource, namespace, obj.metadata.name)
        bound = _Bound(intern(node), (key, *((one.resource, namespace, one.name) for one in named)))
        self._bound[key] = bound
        counts = self._objects.setdefault(bound.node, {})
        for one in bound.objects:
            counts[one] = counts.get(one, 0) + 1

    def _remove(self, key: ObjectKey) -> None:
        bound = self._bound.pop(key, None)
        if bound is None:
            return
        counts = self._objects[bound.node]
        for one in bound.objects:
            counts[one] -= 1
            if not counts[one]:
                del counts[one]
        if not counts:
            del self._objects[bound.node]


_following = Follower(NodeGraph)


def is_related(node: str, key: ObjectKey) -> bool:
    """Whether `node` may read the object: one of its pods names it, or it is one of its pods or slices.

    A positive answer may be `TRUSTED` seconds old if an announcement was lost. A negative answer reads the log first:
    an agent asks for a claim as soon as it sees its pod bound. (Upstream waits for informers, and the agent retries.)
    """
    with _following.view(within=TRUSTED) as graph:
        if graph.related(node, key):
            return True
    with _following.view() as graph:
        return graph.related(node, key)


# The objects that a pod names -----------------------------------------------------------------------------------------


SECRETS, CONFIG_MAPS, ACCOUNTS = "secrets", "configmaps", "serviceaccounts"
VOLUME_CLAIMS = "persistentvolumeclaims"


class Reference(NamedTuple):
    """An object, by resource ("secrets", "resourceclaims.resource.k8s.io") and name."""

    resource: str
    name: str


def references(pod: Pod) -> Iterator[Reference]:
    """Every object that the pod names; the name may be empty."""
    spec = pod.spec
    yield Reference(ACCOUNTS, spec.service_account_name)
    for secret in spec.image_pull_secrets:
        yield Reference(SECRETS, secret.name)
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        yield from references_in_environment(container)
    for volume in spec.volumes:
        yield from references_in_volume(volume, pod.metadata.name)
    for name in claim_names(pod):
        yield Reference(CLAIMS, name)
    for entry in spec.resources if isinstance(spec.resources, tuple) else ():
        yield Reference(DRAFT_CLAIMS, entry.resource_claim_name or f"{pod.metadata.name}-{entry.name}")


def references_in_environment(container: Container) -> Iterator[Reference]:
    """The Secrets and ConfigMaps that a container's environment reads."""
    for whole in container.env_from:
        if whole.secret_ref is not None:
            yield Reference(SECRETS, whole.secret_ref.name)
        if whole.config_map_ref is not None:
            yield Reference(CONFIG_MAPS, whole.config_map_ref.name)
    for variable in container.env:
        source = variable.value_from
        if source is not None and source.secret_key_ref is not None:
            yield Reference(SECRETS, source.secret_key_ref.name)
        if source is not None and source.config_map_key_ref is not None:
            yield Reference(CONFIG_MAPS, source.config_map_key_ref.name)


#: Volume sources of other types, which nothing here mounts, that name a Secret of the pod's namespace.
_SOURCES_WITH_SECRETS = ("cephfs", "cinder", "csi", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")


def references_in_volume(volume: Any, pod_name: str) -> Iterator[Reference]:
    """The objects that `volume` mounts, and the Secrets that are needed to mount it."""
    if volume.secret is not None:
        yield Reference(SECRETS, volume.secret.secret_name)
    if volume.config_map is not None:
        yield Reference(CONFIG_MAPS, volume.config_map.name)
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.secret is not None:
            yield Reference(SECRETS, source.secret.name)
        if source.config_map is not None:
            yield Reference(CONFIG_MAPS, source.config_map.name)
    if volume.persistentVolumeClaim is not None:
        yield Reference(VOLUME_CLAIMS, volume.persistentVolumeClaim.claimName)
    if volume.ephemeral is not None:
        yield Reference(VOLUME_CLAIMS, f"{pod_name}-{volume.name}")
    if volume.azureFile is not None:
        yield Reference(SECRETS, volume.azureFile.secretName)
    for source in (getattr(volume, name) for name in _SOURCES_WITH_SECRETS):
        secret = getattr(source, "nodePublishSecretRef" if source is volume.csi else "secretRef", None)
        if secret is not None:
            yield Reference(SECRETS, secret.name)
