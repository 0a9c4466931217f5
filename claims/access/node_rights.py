"""What node agents and drivers on nodes may do: the node authorizer, NodeRestriction, and the rules for drivers.

The node authorizer (`authorize`) runs before RBAC for every request of an identity `system:node:NAME` in the group
`system:nodes`. It allows, or has no opinion and gives the reason, which a refusal then quotes. An agent may access what
the pods bound to its node need, and nothing else:

    secrets, configmaps           get, list, watch: a single one by its name, if a pod of the node names it
    resourceclaims                get: likewise. An agent never writes a claim
    persistentvolumes             get, patch: of claims of the node's pods, and folders of the node; list and watch
                                  the latter by their label
    serviceaccounts               get, and create of token: accounts of the node's pods
    pods                          get by name, list and watch by spec.nodeName or name: those of the node
    nodes, leases                 its own
    resourceslices                get, update, patch, delete: its own; list, watch, deletecollection by spec.nodeName;
                                  likewise noderesourceslices (KEP-4381, first draft)
    everything else               as in `RULES`, the same for all nodes

NodeRestriction (`restrict`) checks the content of what an agent writes:

    nodes             its own, without labels that steer pods; it must not change its taints or its owner
    pods              mirror pods bound to itself, which refer to nothing; deletion, eviction and status of its own
                      pods, but neither their labels nor which claims are theirs
    leases            its own
    persistentvolumes nothing but the finalizer of a folder of its own
    resourceslices    created and deleted: its own (the authorizer checks updates: it knows the slice's node);
                      not in a pool that has the name of another node, or of a pool of no single node
    devicetaintrules  where a role lets nodes write them (Kubernetes has none): its own, for one device of its own pool
    events            about itself, its own pods, their claims and its own slices, under its own name and that of its
                      agent; pods and claims that are gone: by uid, if the record of their end (`claims.endings`) names
                      the node; changed and deleted: those that are under its name (Kubernetes lets a node write any)
    tokens            of service accounts: bound to one of its pods, for an audience that this pod names
    certificate       requests to the signers of nodes: for its own name
    requests

Each write is checked twice: first as the agent sent it, so that a refusal reveals nothing about the object and comes
before validation (`hooks.register_check`), and again inside the writer's transaction, with the current object.

A driver is a service account that a role lets create ResourceSlices. RBAC cannot tie it to a node or to a driver name.
`check_slice` and `authorize_driver` do, by two things that the account cannot choose: the node that its token is bound
to, and the names in its roles' rules for `resourceclaims/driver` (as in `claims.access.status_rights`).

    slices            create, update, delete: those of the token's node, with "associated-node:update" or "…:patch" on
                      `resourceclaims/driver` for `spec.driver`, or of any driver that no role names, by an account
                      that is named none, as in charts made for Kubernetes, which has no such rule; with
                      "arbitrary-node:…" all of that driver
    resourceclaims    one by its name, that a pod of the token's node names; with "arbitrary-node:…" as RBAC says

Slices are checked for every service account. Reading claims is checked by an authorizer, because admission never sees a
list or a watch. `MANCIPLE_DRIVER_RESTRICTION=0` turns the rules for drivers off, as in Kubernetes, where charts bring a
policy for slices.

Sources: plugin/pkg/auth/authorizer/node/{graph,node_authorizer}.go, rbac/bootstrappolicy/policy.go (NodeRules),
plugin/pkg/admission/noderestriction/admission.go and kubelet/pkg/apis/well_known_labels.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any, ClassVar, NamedTuple

from cryptography.x509.oid import NameOID
from django.conf import settings
from msgspec import structs

from claims.access.status_rights import NODE_NAME
from claims.kinds.containers import Container
from claims.kinds.persistent_volumes import FOLDER_FINALIZER, NODE_LABEL, VOLUMES, PersistentVolume
from claims.kinds.pods import MIRROR, Pod, PodResourceClaimStatus
from claims.kinds.volumes import VOLUME_CLAIMS
from claims.models import Ending
from claims.pod_claims import claim_names
from inventory.kinds import gates
from inventory.kinds.devices import DeviceTaintSelector, ResourceSlice
from inventory.kinds.node_rules import agent_may_label
from inventory.kinds.nodes import Node
from inventory.models import Node as NodeRow
from inventory.models import PublishedSlice
from manciple.access import authorization, rbac
from manciple.access.authorization import Attributes, Decision, HeldRules
from manciple.access.kinds import certificate_requests
from manciple.access.kinds.certificate_rules import parsed_request
from manciple.access.kinds.policy_rules import CompiledRules, places_of
from manciple.store import hooks, objects
from manciple.store.event_log import POLL_INTERVAL, Follower, View
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.store.records import Written
from manciple.wire import identity as identities
from manciple.wire.base import ApiObject, ObjectReference
from manciple.wire.errors import Forbidden, NotFound
from manciple.wire.identity import NODE_PREFIX, NODES, Identity, account_of
from manciple.wire.machinery import Event
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, DRAFT_CLAIMS, EVENTS, LEASES, NODE_SLICES, PODS, SLICES, TAINT_RULES

LEASE_NAMESPACE = "kube-node-lease"

_ALLOWED, _NO_OPINION = Decision(True), Decision(False)
_READ = ("get", "list", "watch")
_OWN = ("get", "create", "update", "patch", "delete")


def register() -> None:
    authorization.register_authorizer("node", authorize, resolve=known_rules)
    hooks.register_check(check, resources=RESOURCES, first=True)
    hooks.register_rule(restrict_in_transaction, operations={"CREATE", "UPDATE", "DELETE"}, resources=RESOURCES)
    authorization.register_authorizer("driver", authorize_driver)
    # Neither the driver nor the node of a slice ever changes, so the transaction has nothing left to check.
    hooks.register_check(check_slice, resources=(SLICES, NODE_SLICES), first=True)


# What agents access: the node authorizer ------------------------------------------------------------------------------


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


def authorize(identity: Identity, attributes: Attributes) -> Decision:
    """The authorizer of node agents; register it before RBAC's."""
    node = node_of(identity)
    if node is None:
        return _NO_OPINION
    if not node:
        return Decision(False, f'unknown node for user "{identity.name}"')
    if attributes.path:
        return _NO_OPINION
    authorize_resource = _AUTHORIZE.get((attributes.group, attributes.resource))
    if authorize_resource is not None:
        return authorize_resource(node, attributes)
    return _ALLOWED if (attributes.verb, attributes.group, attributes.combined) in RULES else _NO_OPINION


def known_rules(identity: Identity, _namespace: str) -> HeldRules:
    """A node's permissions depend on objects, so they cannot be listed. Other identities get none here."""
    if node_of(identity) is None:
        return HeldRules()
    return HeldRules(incomplete=True, error="node authorizer does not support user rule resolution")


# Access to each resource ----------------------------------------------------------------------------------------------


def _related(node: str, attributes: Attributes) -> Decision:
    """Allowed if the graph relates the object to the node."""
    if not attributes.name:
        return Decision(False, "No Object name found")
    resource = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    if is_related(node, (resource, attributes.namespace, attributes.name)):
        return _ALLOWED
    return Decision(False, f"no relationship found between node '{node}' and this object")


def _get_only(node: str, attributes: Attributes) -> Decision:
    """Resources of which a node may get single objects."""
    if attributes.verb != "get":
        return Decision(False, "can only get individual resources of this type")
    if attributes.subresource:
        return Decision(False, "cannot get subresource")
    return _related(node, attributes)


def _read_single(node: str, attributes: Attributes) -> Decision:
    """Resources of which a node may get, list and watch single objects."""
    if attributes.verb not in _READ:
        return Decision(False, "can only read resources of this type")
    if attributes.subresource:
        return Decision(False, "cannot read subresource")
    if not attributes.namespace:
        return Decision(False, "can only read namespaced object of this type")
    return _related(node, attributes)


def _authorize_volume_claim(node: str, attributes: Attributes) -> Decision:
    if attributes.subresource != "status":
        return _get_only(node, attributes)
    if attributes.verb not in ("update", "patch"):
        return Decision(False, "can only get/update/patch this type")
    return _related(node, attributes)


def _authorize_volume(node: str, attributes: Attributes) -> Decision:
    """Upstream's agents get volumes only; ours watch the folders of their nodes, and mark them (`_restrict_volume`)."""
    own, required = (NODE_LABEL, (node,)), attributes.labels.requirements
    match (attributes.subresource, attributes.verb):
        case ("", "list" | "watch") if any(
            (one.key, one.values) == own and one.operator in ("=", "In") for one in required
        ):
            return _ALLOWED
        case ("", "patch") if _related(node, attributes).allowed:
            return _ALLOWED
    return _get_only(node, attributes)


def _authorize_service_account(node: str, attributes: Attributes) -> Decision:
    if attributes.verb == "get" and not attributes.subresource:
        return _read_single(node, attributes)
    if attributes.verb != "create" or not attributes.name:
        return Decision(False, "can only create tokens for individual service accounts")
    if attributes.subresource != "token":
        return Decision(False, "can only create token subresource of serviceaccount")
    return _related(node, attributes)


def _authorize_lease(node: str, attributes: Attributes) -> Decision:
    if attributes.verb not in _OWN:
        return Decision(False, "can only get, create, update, patch, or delete a node lease")
    if attributes.namespace != LEASE_NAMESPACE:
        return Decision(False, f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
    # The name of a new lease is in the body, which NodeRestriction checks.
    if attributes.verb != "create" and attributes.name != node:
        return Decision(False, "can only access node lease with the same name as the requesting node")
    return _ALLOWED


def _authorize_csi_node(node: str, attributes: Attributes) -> Decision:
    if attributes.verb not in _OWN:
        return Decision(False, "can only get, create, update, patch, or delete a CSINode")
    if attributes.subresource:
        return Decision(False, "cannot authorize CSINode subresources")
    if attributes.verb != "create" and attributes.name != node:
        return Decision(False, "can only access CSINode with the same name as the requesting node")
    return _ALLOWED


def _authorize_slice(node: str, attributes: Attributes) -> Decision:
    if attributes.subresource:
        return Decision(False, "cannot authorize ResourceSlice subresources")
    match attributes.verb:
        case "create":
            return _ALLOWED
        case "get" | "update" | "patch" | "delete":
            return _related(node, attributes)
        case "watch" | "list" | "deletecollection":
            # In v1alpha2, whose ResourceSlices have no spec, the field has another name.
            is_bare = (attributes.version, attributes.resource) == ("v1alpha2", "resourceslices")
            if _selects(attributes, node, field="nodeName" if is_bare else "spec.nodeName"):
                return _ALLOWED
            return Decision(False, "can only list/watch/deletecollection resourceslices with nodeName field selector")
    return Decision(
        False,
        "only the following verbs are allowed for a ResourceSlice: "
        "get, watch, list, create, update, patch, delete, deletecollection",
    )


def _authorize_node(node: str, attributes: Attributes) -> Decision:
    match (attributes.subresource, attributes.verb):
        case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
            return _ALLOWED
        case ("", "get" | "list" | "watch"):
            if attributes.name == node:
                return _ALLOWED
            what = f"'{attributes.name}'" if attributes.name else "all nodes"
            return Decision(False, f"node '{node}' cannot read {what}, only its own Node object")
        case ("devicereadings", "create"):
            if attributes.name == node:
                return _ALLOWED
            return Decision(False, f"node '{node}' can only report the readings of its own devices")
    return _NO_OPINION


def _authorize_pod(node: str, attributes: Attributes) -> Decision:
    match (attributes.subresource, attributes.verb):
        case ("", "get"):
            return _related(node, attributes)
        case ("", "list" | "watch"):
            if _selects(attributes, node):
                return _ALLOWED
            if attributes.name:
                return _related(node, attributes)
            return Decision(False, "can only list/watch pods with spec.nodeName field selector")
        case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
            return _ALLOWED
    return _NO_OPINION


def _authorize_certificate_request(node: str, attributes: Attributes) -> Decision:
    """PodCertificateRequests: not served here, but access reviews may ask about them."""
    if attributes.subresource:
        return Decision(False, "nodes may not access the status subresource of PodCertificateRequests")
    match attributes.verb:
        case "create":
            return _ALLOWED
        case "get":
            return _related(node, attributes)
        case "list" | "watch":
            if _selects(attributes, node):
                return _ALLOWED
            return Decision(False, "can only list/watch podcertificaterequests with nodeName field selector")
    return Decision(False, f"nodes may not {attributes.verb} podcertificaterequests")


def _selects(attributes: Attributes, node: str, *, field: str = "spec.nodeName") -> bool:
    """Whether a field selector limits the request to objects on the node."""
    return any(one.field == field and one.equal and one.value == node for one in attributes.fields.requirements)


_AUTHORIZE: Mapping[tuple[str, str], Callable[[str, Attributes], Decision]] = {
    ("", "secrets"): _read_single,
    ("", "configmaps"): _read_single,
    ("", "persistentvolumeclaims"): _authorize_volume_claim,
    ("", "persistentvolumes"): _authorize_volume,
    ("resource.k8s.io", "resourceclaims"): _get_only,
    ("cdi.k8s.io", "resourceclaims"): _get_only,
    ("storage.k8s.io", "volumeattachments"): _get_only,
    ("", "serviceaccounts"): _authorize_service_account,
    ("coordination.k8s.io", "leases"): _authorize_lease,
    ("storage.k8s.io", "csinodes"): _authorize_csi_node,
    ("resource.k8s.io", "resourceslices"): _authorize_slice,
    ("resource.k8s.io", "noderesourceslices"): _authorize_slice,
    ("", "nodes"): _authorize_node,
    ("", "pods"): _authorize_pod,
    ("certificates.k8s.io", "podcertificaterequests"): _authorize_certificate_request,
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

    resources: ClassVar[Sequence[str]] = (VOLUMES, PODS, SLICES)

    def __init__(self) -> None:
        if gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT):
            self.resources = (VOLUMES, PODS, SLICES, NODE_SLICES)  # type: ignore[misc]  # of a view of this process
        #: volume -> the claim that has it, the node whose folder it is
        self._volumes: dict[str, tuple[ObjectKey | None, str]] = {}
        self._bound: dict[ObjectKey, _Bound] = {}
        #: node -> object -> how many pods on the node name it
        self._objects: dict[str, dict[ObjectKey, int]] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._add(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            meta = change.object.metadata
            self._volumes.pop(meta.name if change.resource == VOLUMES else "", None)
            self._remove((change.resource, meta.namespace, meta.name))
            if change.type != "DELETED":
                self._add(change.resource, change.object)

    def related(self, node: str, key: ObjectKey) -> bool:
        """Whether the object is one of the node's pods or slices, or a pod of the node names it, or its claim."""
        if key[0] == VOLUMES:
            claim, place = self._volumes.get(key[2], (None, ""))
            return place == node or (claim is not None and claim in self._objects.get(node, ()))
        return key in self._objects.get(node, ())

    def __len__(self) -> int:
        """How many pods and slices are on nodes."""
        return len(self._bound)

    def _add(self, resource: str, obj: Any) -> None:
        if resource == VOLUMES:
            reference = obj.spec.claim_ref
            claim = None if reference is None else (VOLUME_CLAIMS, intern(reference.namespace), reference.name)
            self._volumes[obj.metadata.name] = claim, obj.node if obj.is_folder else ""
            return
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


# What agents write: NodeRestriction -----------------------------------------------------------------------------------


#: The agents that use their node's identity, as events name them.
AGENTS = frozenset({"", "kubelet", "manciple-nodeagent"})
#: Signers of the client and the serving certificates of nodes.
NODE_SIGNERS = (certificate_requests.NODE_SIGNER, "kubernetes.io/kubelet-serving")

#: (resource, namespace, name) -> the object; None where there is none
Find = Callable[[str, str, str], Any]


def check(write: Write) -> None:
    """Raises: Forbidden, NotFound."""

    def find_committed(resource: str, namespace: str, name: str) -> Any:
        kind = registry.by_resource(resource)
        stored = objects.get(kind, namespace, name)
        return None if stored is None else objects.decode(kind, stored.text)

    restrict(write, find_committed)


def restrict_in_transaction(writer: Writer, write: Write) -> None:
    """Raises: Forbidden, NotFound."""
    restrict(write, lambda resource, namespace, name: writer.get(registry.by_resource(resource), namespace, name))


def restrict(write: Write, find: Find) -> None:
    """Restrict the writes of node agents. Raises: Forbidden; NotFound for an object that the decision needs."""
    node = node_of(write.identity)
    if node is None:
        return
    if not node:
        raise _refusal(write, f'could not determine node from user "{write.identity.name}"')
    why = _RESTRICTIONS[write.kind.resource](node, write, find)
    if why:
        raise _refusal(write, why)


def _refusal(write: Write, why: str) -> Forbidden:
    meta = (write.old if write.new is None else write.new).metadata
    return Forbidden.of(write.kind.resource, meta.name or meta.generate_name, why)


def _required(find: Find, resource: str, namespace: str, name: str) -> Any:
    """Raises: NotFound."""
    obj = find(resource, namespace, name)
    if obj is None:
        raise NotFound.of(resource.removesuffix("s"), name)  # `pod "p" not found`, as informers say it
    return obj


# Writes of volumes ----------------------------------------------------------------------------------------------------


def _restrict_volume(node: str, write: Write, _find: Find) -> str:
    """A finalizer says that a folder is there: its node sets it, and removes it with the folder."""
    if write.subresource or write.operation != "UPDATE":
        return f'node "{node}" can only patch persistentvolumes'
    if not write.old.is_folder or write.old.node != node:
        return f'node "{node}" can only patch persistentvolumes that are folders of its own'
    old, new = (_without_folder_finalizer(one) for one in (write.old, write.new))
    return "" if new == old else f'node "{node}" can only set and remove the finalizer {FOLDER_FINALIZER}'


def _without_folder_finalizer(volume: PersistentVolume) -> PersistentVolume:
    meta = volume.metadata
    left = tuple(one for one in meta.finalizers if one != FOLDER_FINALIZER)
    meta = structs.replace(meta, finalizers=left, managed_fields=(), resource_version="")
    return structs.replace(volume, metadata=meta)


# Writes of pods -------------------------------------------------------------------------------------------------------


def _restrict_pod(node: str, write: Write, find: Find) -> str:
    """The reason of a refusal, or "". Likewise for all functions in `_RESTRICTIONS`."""
    match (write.subresource, write.operation):
        case ("", "CREATE"):
            return _created_pod(node, write.new, find)
        case ("", "DELETE"):
            own = write.old.spec.node_name == node
            return "" if own else f'node "{node}" can only delete pods with spec.nodeName set to itself'
        case ("", operation):
            return f'unexpected operation "{operation}", node "{node}" can only create and delete mirror pods'
        case ("status", "UPDATE"):
            return _pod_status(node, write.new, write.old)
        case ("eviction", "CREATE"):
            meta = write.new.metadata
            own = _required(find, "pods", meta.namespace, meta.name).spec.node_name == node
            return "" if own else f"node {node} can only evict pods with spec.nodeName set to itself"
    return f"unexpected pod subresource \"{write.subresource}\", only 'status' and 'eviction' are allowed"


def _created_pod(node: str, pod: Pod, find: Find) -> str:
    if MIRROR not in pod.metadata.annotations:
        return f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
    if pod.spec.node_name != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    if why := _mirror_owner(node, pod, find):
        return why
    named = next(_named_objects(pod), "")
    return f'node "{node}" can not create pods that reference {named}' if named else ""


def _mirror_owner(node: str, pod: Pod, find: Find) -> str:
    """A mirror pod's only owner is its node."""
    owners = pod.metadata.owner_references
    if len(owners) > 1:
        return f'node "{node}" can only create pods with a single owner reference set to itself'
    if not owners or (owners[0].api_version, owners[0].kind, owners[0].name) != ("v1", "Node", node):
        return f'node "{node}" can only create pods with an owner reference set to itself'
    owner = owners[0]
    if not owner.controller:
        return f'node "{node}" can only create pods with a controller owner reference set to itself'
    if owner.block_owner_deletion:
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    uid = _required(find, "nodes", "", node).metadata.uid
    return "" if owner.uid == uid else f"node {node} UID mismatch: expected {owner.uid} got {uid}"


#: Volume sources that read another API object -> what a refusal calls that object.
_READING_VOLUMES: Mapping[str, str] = {
    "config_map": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_READING_PROJECTIONS: Mapping[str, str] = {
    "config_map": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "service_account_token": "serviceaccounts (via projected volumes)",
    "cluster_trust_bundle": "clustertrustbundles",
    "pod_certificate": "podcertificates",
}


def _named_objects(pod: Pod) -> Iterator[str]:
    """Other objects of the API that a pod refers to (upstream: pkg/api/pod/util.go, HasAPIObjectReference)."""
    spec = pod.spec
    if spec.service_account_name:
        yield "serviceaccounts"
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    named = {one.resource for container in containers for one in references_in_environment(container) if one.name}
    named |= {one.resource for volume in spec.volumes for one in references_in_volume(volume, "") if one.name}
    if SECRETS in named or any(one.name for one in spec.image_pull_secrets):
        yield "secrets"
    if CONFIG_MAPS in named:
        yield "configmaps"
    if spec.resource_claims or isinstance(spec.resources, tuple):
        yield "resourceclaims"
    for volume in spec.volumes:
        yield from _set(volume, _READING_VOLUMES)
        for source in volume.projected.sources if volume.projected is not None else ():
            yield from _set(source, _READING_PROJECTIONS)


def _set(value: Any, names: Mapping[str, str]) -> Iterator[str]:
    return (text for name, text in names.items() if getattr(value, name) is not None)


def _pod_status(node: str, new: Pod, old: Pod) -> str:
    if old.spec.node_name != node:
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'  # noqa: S608
    if new.metadata.labels != old.metadata.labels:
        return f'node "{node}" cannot update labels through pod status'
    if _claims_made(new.status.resource_claim_statuses) != _claims_made(old.status.resource_claim_statuses):
        return f'node "{node}" cannot update resource claim statues'
    if new.status.extended_resource_claim_status != old.status.extended_resource_claim_status:
        return f'node "{node}" cannot update extended resource claim status'
    return ""


def _claims_made(statuses: Iterable[PodResourceClaimStatus]) -> list[tuple[str, str | None]]:
    return [(status.name, status.resource_claim_name) for status in statuses]


# Writes of nodes, leases, slices, rules and events --------------------------------------------------------------------


def _restrict_node(node: str, write: Write, _find: Find) -> str:
    new, old = write.new, write.old
    name = (old if new is None else new).metadata.name
    if name != node:
        return f'node "{node}" is not allowed to modify node "{name}"'
    if write.operation == "CREATE":
        return _created_node(node, new)
    return _changed_node(node, new, old) if write.operation == "UPDATE" else ""  # no authorizer lets it delete its Node


def _created_node(node: str, new: Node) -> str:
    if new.spec.config_source is not None:
        return f'node "{node}" is not allowed to create pods with a non-nil configSource'
    labels = _forbidden_labels(new.metadata.labels, {})
    return f'node "{node}" is not allowed to set the following labels: {", ".join(labels)}' if labels else ""


def _changed_node(node: str, new: Node, old: Node) -> str:
    if new.spec.config_source not in (None, old.spec.config_source):
        return f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
    if new.spec.taints != old.spec.taints:
        return f'node "{node}" is not allowed to modify taints'
    if new.metadata.owner_references != old.metadata.owner_references:
        return f'node "{node}" is not allowed to modify ownerReferences'
    labels = _forbidden_labels(new.metadata.labels, old.metadata.labels)
    return f"is not allowed to modify labels: {', '.join(labels)}" if labels else ""


def _forbidden_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """The labels that differ and are not the agent's to set, sorted."""
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key)}
    return sorted(key for key in changed if not agent_may_label(key))


def _restrict_lease(node: str, write: Write, _find: Find) -> str:
    meta = (write.old if write.new is None else write.new).metadata
    if meta.namespace != LEASE_NAMESPACE:
        return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
    return "" if meta.name == node else "can only access node lease with the same name as the requesting node"


def _restrict_slice(node: str, write: Write, _find: Find) -> str:
    if write.operation == "UPDATE":
        return ""
    slice_, verb = (write.new, "create") if write.operation == "CREATE" else (write.old, "delete")
    kind = "ResourceSlice" if isinstance(slice_, ResourceSlice) else "NodeResourceSlice"
    if slice_.spec.node_name != node:
        return f"can only {verb} {kind} with the same NodeName as the requesting node"
    if verb == "create" and isinstance(slice_, ResourceSlice):
        return why_not_in_pool(node, slice_)
    return ""


def why_not_in_pool(node: str, new: ResourceSlice) -> str:
    """Why a writer on `node` may not use the slice's pool name, or "". Several nodes may use the same name.

    A pool named after another node is refused: taint rules name a pool without its node, and a node may only write them
    for a pool name that it alone uses. So is the name of a pool of no single node: allocations cannot tell its devices
    from those of the node's pool, so they would count as in use.
    """
    driver, pool = new.spec.driver, new.spec.pool.name
    parts = pool.split("/")
    others = () if node in parts else NodeRow.objects.filter(name__in=parts).values_list("name", flat=True)
    if others:
        return f'pool "{pool}" is named after node "{min(others)}": only that node can publish it'
    taken = PublishedSlice.objects.filter(driver=driver, pool=pool, node_name="").exists()
    return f'pool "{pool}" of driver "{driver}" is not on a single node: choose another pool name' if taken else ""


def _restrict_taint_rule(node: str, write: Write, _find: Find) -> str:
    """If a role lets nodes write rules, they may write those about their own devices."""
    if write.subresource or write.operation == "UPDATE":
        return "nodes can only create and delete DeviceTaintRules"
    rule, verb = (write.new, "create") if write.operation == "CREATE" else (write.old, "delete")
    owners = [(one.api_version, one.kind, one.name) for one in rule.metadata.owner_references]
    if owners != [("v1", "Node", node)]:
        return f'node "{node}" can only {verb} DeviceTaintRules with a single owner reference set to itself'
    if verb == "delete":
        return ""
    selector = rule.spec.device_selector or DeviceTaintSelector()
    if not (selector.driver and selector.pool and selector.device):
        return f'node "{node}" can only create DeviceTaintRules that name a driver, a pool and a device'
    published = PublishedSlice.objects.filter(driver=selector.driver, pool=selector.pool)
    own = set(published.values_list("node_name", flat=True)) == {node}
    return "" if own else f'node "{node}" can only create DeviceTaintRules for devices of pools that are its own'


def _restrict_event(node: str, write: Write, find: Find) -> str:
    """Users trust the component and host that an event names, so an agent may only use its own."""
    for event in (write.new, write.old):
        if event is None:
            continue
        hosts = {event.source.host, event.reporting_instance}
        if not hosts <= {"", node} or (event is write.old and hosts == {""}):
            return f'node "{node}" can only write events whose source is itself'
        components = {event.source.component, event.reporting_component}
        if not components <= AGENTS:
            return f'node "{node}" can only write events of its agent, not of "{max(components - AGENTS)}"'
        about = event.involved_object
        gone = write.old is not None and about == write.old.involved_object  # it was there when the event was created
        if not _concerns(node, event, find, gone=gone):
            what = f'{about.kind} "{about.name}"'
            return f'node "{node}" can only write events about itself and its pods, not about {what}'
    return ""


def _concerns(node: str, event: Event, find: Find, *, gone: bool) -> bool:
    """Whether the event is about an object of the node. gone: the answer if nothing is known of the object any more.

    Most events about the end of a pod come after the pod is gone. Its record then says which node it was bound to, and
    so where a pod of the same name has taken its place.
    """
    about = event.involved_object
    of_node: bool | None  # None: the object is gone
    match about.kind:
        case "Node":
            of_node = about.name == node
        case "Pod":
            pod = _exactly(find, PODS, about)
            of_node = None if pod is None else pod.spec.node_name == node
        case "ResourceSlice":
            published = find(SLICES, "", about.name)
            of_node = None if published is None else published.spec.node_name == node
        case "PersistentVolume":
            volume = find(VOLUMES, "", about.name)
            of_node = None if volume is None else volume.is_folder and volume.node == node
        case "ResourceClaim":
            claim = _exactly(find, CLAIMS, about)
            users = () if claim is None else (one.name for one in claim.status.reserved_for if one.resource == "pods")
            pods = (find(PODS, about.namespace, name) for name in users)
            of_node = None if claim is None else any(pod is not None and pod.spec.node_name == node for pod in pods)
        case _:
            of_node = False
    return (gone or _ended_on(node, about)) if of_node is None else of_node


def _exactly(find: Find, resource: str, about: ObjectReference) -> Any:
    """The object that is meant, and none that has its name by now."""
    obj = find(resource, about.namespace, about.name)
    return obj if obj is not None and about.uid in ("", obj.metadata.uid) else None


def _ended_on(node: str, about: ObjectReference) -> bool:
    """Whether exactly this pod or claim was on the node when it was deleted. Its uid says which: names come again."""
    resource = {"Pod": PODS, "ResourceClaim": CLAIMS}.get(about.kind, "")
    if not resource or not about.uid:
        return False
    ended = Ending.objects.filter(resource=resource, uid=about.uid, namespace=about.namespace, name=about.name)
    return ended.filter(node=node).exists()


# Tokens of service accounts -------------------------------------------------------------------------------------------


def _restrict_token(node: str, write: Write, find: Find) -> str:
    """`write.new` is the TokenRequest, named after the service account."""
    if write.operation != "CREATE" or write.subresource != "token":
        return ""
    request, namespace = write.new, write.new.metadata.namespace
    reference = request.spec.bound_object_ref
    if reference is None or (reference.api_version, reference.kind) != ("v1", "Pod") or not reference.name:
        return "node requested token not bound to a pod"
    if not reference.uid:
        return "node requested token with a pod binding without a uid"
    pod = _required(find, "pods", namespace, reference.name)
    if reference.uid != pod.metadata.uid:
        return (
            f"the UID in the bound object reference ({reference.uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
    if pod.spec.node_name != node:
        return "node requested token bound to a pod scheduled on a different node"
    return _audience(write.identity, request, pod)


def _audience(identity: Identity, request: Any, pod: Pod) -> str:
    """The audience must be that of a token that the pod mounts, or one that a role lets the agent request."""
    if len(request.spec.audiences) > 1:
        return "node may only request 0 or 1 audiences"
    audience = request.spec.audiences[0] if request.spec.audiences else ""
    mounted = (
        source.service_account_token.audience
        for volume in pod.spec.volumes
        if volume.projected is not None
        for source in volume.projected.sources
        if source.service_account_token is not None
    )
    if audience in mounted:
        return ""
    meta = request.metadata
    attributes = Attributes(
        verb="request-serviceaccounts-token-audience",
        version="v1",
        resource=audience,
        namespace=meta.namespace,
        name=meta.name,
    )
    if authorization.decide(identity, attributes).allowed:
        return ""
    return (
        f'audience "{audience}" not found in pod spec volume, {identity.name} is not authorized to request tokens for '
        "this audience"
    )


# Certificates ---------------------------------------------------------------------------------------------------------


def _restrict_certificate_request(node: str, write: Write, _find: Find) -> str:
    if write.operation != "CREATE" or write.new.spec.signer_name not in NODE_SIGNERS:
        return ""
    try:
        request = parsed_request(write.new.spec.request)
    except ValueError as error:
        return f"unable to parse csr: {error}"
    names = [attribute.value for attribute in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    own = f"{NODE_PREFIX}{node}"
    return "" if names == [own] else f"can only create a node CSR with CN={own}"


_RESTRICTIONS: Mapping[str, Callable[[str, Write, Find], str]] = {
    "pods": _restrict_pod,
    "nodes": _restrict_node,
    LEASES: _restrict_lease,
    SLICES: _restrict_slice,
    NODE_SLICES: _restrict_slice,
    TAINT_RULES: _restrict_taint_rule,
    EVENTS: _restrict_event,
    VOLUMES: _restrict_volume,
    ACCOUNTS: _restrict_token,
    certificate_requests.RESOURCE: _restrict_certificate_request,
}
RESOURCES = frozenset(_RESTRICTIONS)


# Drivers --------------------------------------------------------------------------------------------------------------


GROUP = "resource.k8s.io"
_OWN_NODE = ("associated-node:update", "associated-node:patch")
_ANY_NODE = ("arbitrary-node:update", "arbitrary-node:patch")
_CREATE_SLICES = Attributes(verb="create", group=GROUP, version="v1", resource="resourceslices")


def node_of_token(identity: Identity) -> str:
    """The node that a service account's token is bound to; "" if it is bound to none."""
    nodes = identity.extras(NODE_NAME)
    return nodes[0] if len(nodes) == 1 else ""


def check_slice(write: Write) -> None:
    """Raises: Forbidden for a slice of another node or driver, in the words of a policy that refuses it as well: charts
    bring one, and the drivers' own tests expect its message.
    """
    if account_of(write.identity.name) is None or not settings.DRIVER_RESTRICTION:
        return
    if why := _slice_refusal(write):
        hooks.ask_checks(write)
        raise _refusal(write, why)


def _slice_refusal(write: Write) -> str:
    published: Any = write.new if write.old is None else write.old
    driver, node = _driver_and_node(published)
    if write.new is not None and _driver_and_node(write.new) != (driver, node):
        return ""  # validation refuses to change either
    if _may_report(write.identity, driver, _ANY_NODE):
        return ""
    own = node_of_token(write.identity)
    if not own or node != own:
        where = f'on node "{node}"' if node else "that are not on a single node"
        bound = f'bound to node "{own}"' if own else "not bound to a node"
        return f"{_requires('arbitrary-node:update', driver)} to write slices {where}: the token is {bound}"
    is_restricted = not _driver_verbs(write.identity, "").isdisjoint(_OWN_NODE) or _is_named(driver)
    if is_restricted and not _may_report(write.identity, driver, _OWN_NODE):
        return f"{_requires('associated-node:update', driver)} to write slices of that driver"
    if write.old is None and isinstance(write.new, ResourceSlice):
        return why_not_in_pool(own, write.new)
    return ""


def _driver_and_node(published: Any) -> tuple[str, str]:
    spec = published.spec
    driver = spec.driver if isinstance(published, ResourceSlice) else spec.driver_name
    return driver, spec.node_name or ""


def _requires(verb: str, driver: str) -> str:
    return f'requires resource="resourceclaims/driver", resourceName="{driver}", verb="{verb}" permission'


def _may_report(identity: Identity, driver: str, verbs: tuple[str, ...]) -> bool:
    return any(
        authorization.decide(
            identity,
            Attributes(
                verb=verb, group=GROUP, version="v1", resource="resourceclaims", subresource="driver", name=driver
            ),
        ).allowed
        for verb in verbs
    )


# Claims that drivers read ---------------------------------------------------------------------------------------------


def authorize_driver(identity: Identity, attributes: Attributes) -> Decision:
    """The authorizer of drivers; register it before RBAC's. It denies or has no opinion."""
    if (attributes.group, attributes.resource) != (GROUP, "resourceclaims") or attributes.verb == "create":
        return _NO_OPINION
    if attributes.subresource not in ("", "status"):
        return _NO_OPINION
    if account_of(identity.name) is None or not settings.DRIVER_RESTRICTION:
        return _NO_OPINION
    if not rbac.authorize(identity, _CREATE_SLICES).allowed or _reports_anywhere(identity, attributes.namespace):
        return _NO_OPINION
    why = _claim_refusal(node_of_token(identity), attributes)
    return Decision(
        False, f"a driver can only access claims of its node's pods: {why}" if why else "", denied=bool(why)
    )


def _claim_refusal(node: str, attributes: Attributes) -> str:
    if not node:
        return "the token is not bound to a node"
    if not attributes.name or not attributes.namespace:
        return "only single claims by their name"
    if is_related(node, (f"resourceclaims.{GROUP}", attributes.namespace, attributes.name)):
        return ""
    return f"no pod on node '{node}' names this one"


def _reports_anywhere(identity: Identity, namespace: str) -> bool:
    """Whether roles let it report on devices of any driver on any node: then it needs claims of other nodes."""
    return not _driver_verbs(identity, namespace).isdisjoint({*_ANY_NODE, "*"})


def _driver_verbs(identity: Identity, namespace: str) -> set[str]:
    """What roles let it do as a driver, whichever."""
    rules = CompiledRules(rbac.known_rules(identity, namespace).rules)
    return {verb for place in places_of(_REPORTS) for verb in rules.resources.get(place, ())}


def _is_named(driver: str) -> bool:
    """Whether a ClusterRole names it: then only who has such a role publishes for it, and who loses it may do less."""
    verbs = [
        rules.resources.get(place, {}).get(verb)
        for (namespace, _), rules in rbac.policy().roles.items()
        if not namespace
        for place in places_of(_REPORTS)
        for verb in (*_OWN_NODE, *_ANY_NODE)
    ]
    return any(driver in names for names in verbs if names)


_REPORTS = Attributes(verb="", group=GROUP, resource="resourceclaims", subresource="driver")
