"""Claims of cdi.k8s.io (KEP-3063, first draft): made for pods, told their plugin, and taken from pods that are over.

    a pod's entry has a template, and the claim POD-ENTRY is not there  -> made, with the pod as its owner
    an immediate claim waits, and its class exists                     -> its plugin's name is entered: it may allocate
    a pod that uses a claim has ended or is gone                       -> out of usedBy: there is room for another
    a pod was bound by somebody else                                   -> negotiated for its node alone, then in usedBy

The garbage collector deletes what was made for a pod with it; the plugin's finalizer keeps the claim until the resource
is freed. While the gate DRAClaimsDraft is off nothing is made and nobody is entered; pods that run keep what they have,
which an event of each says, and give it back when they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from claims import event_recorder
from claims.drafts.cdi.negotiation import next_step, used_by
from claims.drafts.cdi.rules import GATE, with_defaults
from claims.drafts.cdi.values import (
    IMMEDIATE,
    PENDING,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClass,
    spec_of,
    with_status,
)
from claims.event_recorder import EventNote
from claims.kinds.listed_claims import NODE_LABEL, NODE_LABEL_VALUE, PodResource, PodResourceTemplate
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.pod_claims import controlled_by, is_done
from inventory.kinds import gates
from inventory.kinds.nodes import Node
from manciple.controllers.declaration import ADDED, BOUND, DELETED, FINISHED, MODIFIED, Controller
from manciple.store import objects, sql
from manciple.store.event_log import Follower, ObjectsView
from manciple.store.objects import Writer, decoded, to_read
from manciple.wire.base import ApiObject, ObjectMeta, OwnerReference
from manciple.wire.errors import ApiError
from manciple.wire.identity import controller
from manciple.wire.resources import DRAFT_CLAIMS, DRAFT_CLASSES, EVENTS, NEW_PHASES, NODES, PODS, Key, kind

IDENTITY = controller("resource-claim-controller")
COMPONENT = "resource_claim"
#: Objects in one transaction.
BATCH = 100
KEPT = (
    "The feature gate DRAClaimsDraft is off. The pod keeps the claims that it uses; "
    "no new ones are allocated, and its own are released when it ends"
)


class DraftClaims(ObjectsView):
    """All claims, and the pods that list resources and are not over."""

    resources: ClassVar[Sequence[str]] = (DRAFT_CLAIMS, PODS)

    def keeps(self, obj: ApiObject) -> bool:
        return not isinstance(obj, Pod) or (bool(listed_resources(obj)) and not is_done(obj))


following = Follower(DraftClaims)


def reconcile(now: datetime) -> int:
    """Returns how many objects were changed."""
    with following.view() as view:
        pods, claims = view.all(Pod), {claim.key: claim for claim in view.all(ResourceClaim)}
    living = {pod.metadata.uid for pod in pods}
    left = [key for key, claim in claims.items() if not living.issuperset(_pods_using(claim))]
    wanting = [pod.key for pod in pods if _wants_attention(pod, claims)]
    starting = [key for key, claim in claims.items() if _is_to_start(claim)]
    released, served = _each(DRAFT_CLAIMS, left, _release), _each(PODS, wanting, partial(_serve, now=now))
    return released + served + _each(DRAFT_CLAIMS, starting, _start)


def _each(resource: str, keys: Iterable[Key], step: Callable[[Writer, Any], int]) -> int:
    """Do `step` with each of these objects that there is, as it is now; many in one transaction."""
    changed = 0
    for batch in sql.chunks(keys, BATCH):
        with objects.writing(identity=IDENTITY, reads=to_read((kind(resource), batch))) as writer:
            found = (writer.get(kind(resource), *key) for key in batch)
            changed += sum(step(writer, one) for one in found if one is not None)
    return changed


# Pods ---------------------------------------------------------------------------------------------------------------


def _wants_attention(pod: Pod, claims: Mapping[Key, ResourceClaim]) -> bool:
    """Whether it may lack a claim; or, bound by somebody else, a place among the users of one."""
    if pod.metadata.deletion_timestamp is not None or pod.status.phase not in NEW_PHASES:
        return False
    entries = {(pod.metadata.namespace, claim_of(pod, entry)): entry for entry in listed_resources(pod)}
    if any(entry.template is not None and key not in claims for key, entry in entries.items()):
        return True
    found = [claims[key] for key in entries.keys() & claims.keys()]
    return bool(pod.spec.node_name) and not _all_used(found, pod)


def _serve(writer: Writer, pod: Pod, *, now: datetime) -> int:
    if is_done(pod) or pod.metadata.deletion_timestamp is not None:
        return 0
    made = sum(_make_one(writer, pod, entry, now) for entry in listed_resources(pod))
    return made + (_enter(writer, pod) if pod.spec.node_name else 0)


def _make_one(writer: Writer, pod: Pod, entry: PodResource, now: datetime) -> int:
    """One claim for one entry; a claim of another owner in its place is left alone, and the scheduler tells the pod."""
    name = claim_of(pod, entry)
    if entry.template is None or writer.get(kind(DRAFT_CLAIMS), pod.metadata.namespace, name):
        return 0
    try:
        with writer.savepoint():
            writer.create(kind(DRAFT_CLAIMS), claim_for(pod, name, entry.template))
    except ApiError as error:
        told = f"PodResource {entry.name}: the claim cannot be made: {error.message}"
        reason = "FailedResourceClaimCreation"
        note = EventNote(regarding=pod, type="Warning", reason=reason, message=told, component=COMPONENT)
        event_recorder.record(writer, note, now=now)
        return 0
    return 1


def claim_for(pod: Pod, name: str, template: PodResourceTemplate) -> ResourceClaim:
    """Labels, annotations and spec are the template's, the pod is its owner."""
    return ResourceClaim(
        api_version=kind(DRAFT_CLAIMS).api_version,
        kind=kind(DRAFT_CLAIMS).kind,
        metadata=ObjectMeta(
            namespace=pod.metadata.namespace,
            name=name,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(controlled_by(pod),),
        ),
        spec=with_defaults(spec_of(template)),
        status=ResourceClaimStatus(phase=PENDING, user_limit=1),
    )


def _enter(writer: Writer, pod: Pod) -> int:
    """What the scheduler does for the pods that it binds, with the one node that this pod has."""
    names = dict.fromkeys(claim_of(pod, entry) for entry in listed_resources(pod))
    claims = [writer.get(kind(DRAFT_CLAIMS), pod.metadata.namespace, name) for name in names]
    found = [claim for claim in claims if isinstance(claim, ResourceClaim)]
    node = writer.get(kind(NODES), "", pod.spec.node_name)
    if len(found) < len(names) or not isinstance(node, Node) or _all_used(found, pod):
        return 0
    if node.metadata.labels.get(NODE_LABEL) != NODE_LABEL_VALUE:
        return 0
    plugins = {one: plugin for claim in found if (plugin := _plugin_of(writer, one := claim.spec.resource_class_name))}
    if any(claim.status.phase == PENDING and claim.spec.resource_class_name not in plugins for claim in found):
        return 0
    nodes = {node.metadata.name: node.metadata.labels}
    step = next_step(pod, found, nodes, exists=lambda name: name in nodes, plugins=plugins)
    writes = step.writes if step.waits else [used_by(claim, pod) for claim in found]
    for claim in writes:
        writer.update(kind(DRAFT_CLAIMS), claim, subresource="status")
    return len(writes)


def _all_used(claims: Iterable[ResourceClaim], pod: Pod) -> bool:
    return all(any(user.uid == pod.metadata.uid for user in claim.status.used_by) for claim in claims)


def _plugin_of(writer: Writer, class_name: str) -> str:
    found = writer.get(kind(DRAFT_CLASSES), "", class_name)
    return found.plugin_name if isinstance(found, ResourceClass) else ""


# Claims -------------------------------------------------------------------------------------------------------------


def _is_to_start(claim: ResourceClaim) -> bool:
    status = claim.status
    return claim.spec.allocation_mode == IMMEDIATE and status.phase == PENDING and not status.plugin_name


def _start(writer: Writer, claim: ResourceClaim) -> int:
    """An immediate claim whose class exists is its plugin's business from now on."""
    plugin = _plugin_of(writer, claim.spec.resource_class_name)
    if not plugin or not _is_to_start(claim):
        return 0
    writer.update(kind(DRAFT_CLAIMS), with_status(claim, plugin_name=plugin), subresource="status")
    return 1


def _pods_using(claim: ResourceClaim) -> Iterator[str]:
    """Their uids. Users that are no pods are their own controllers' business."""
    return (user.uid for user in claim.status.used_by if _is_pod(user))


def _is_pod(user: OwnerReference) -> bool:
    return (user.api_version, user.kind) == ("v1", "Pod")


def _release(writer: Writer, claim: ResourceClaim) -> int:
    """Pods that are over use nothing any more."""
    users = tuple(user for user in claim.status.used_by if _uses(writer, claim, user))
    if users == claim.status.used_by:
        return 0
    writer.update(kind(DRAFT_CLAIMS), with_status(claim, used_by=users), subresource="status")
    return 1


def _uses(writer: Writer, claim: ResourceClaim, user: OwnerReference) -> bool:
    if not _is_pod(user):
        return True
    pod = writer.get(kind(PODS), claim.metadata.namespace, user.name)
    return isinstance(pod, Pod) and pod.metadata.uid == user.uid and not is_done(pod)


# The gate is off ------------------------------------------------------------------------------------------------------


def reconcile_kept(now: datetime) -> int:
    """Returns how many objects were changed; none while the gate is on."""
    if gates.enabled(GATE):
        return 0
    claims = (decoded(stored, ResourceClaim) for stored in objects.list(kind(DRAFT_CLAIMS)).items)
    used = [claim for claim in claims if claim.status.used_by]
    users = {(claim.metadata.namespace, user.name) for claim in used for user in claim.status.used_by if _is_pod(user)}
    released = _each(DRAFT_CLAIMS, [claim.key for claim in used], _release)
    return released + _each(PODS, sorted(users), partial(_tell, now=now))


def _tell(writer: Writer, pod: Pod, *, now: datetime) -> int:
    """Each pod that uses a claim is told once that it keeps it."""
    note = EventNote(regarding=pod, type="Warning", reason="FeatureGateOff", message=KEPT, component=COMPONENT)
    if writer.get(kind(EVENTS), *event_recorder.key_of(note)) is not None:
        return 0
    event_recorder.record(writer, note, now=now)
    return 1


CONTROLLER = Controller(
    name="draft_claims",
    does="creates the claims of cdi.k8s.io that pods list, and releases those of finished pods",
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset(
        {
            *((PODS, what) for what in (ADDED, BOUND, FINISHED, DELETED)),
            *((DRAFT_CLAIMS, what) for what in (ADDED, MODIFIED, DELETED)),
            (DRAFT_CLASSES, ADDED),
        }
    ),
    gate=GATE,
)

KEPT_CLAIMS = Controller(
    name="keep_draft_claims",
    does="warns pods that keep claims of cdi.k8s.io while the feature gate is off, and releases them at the end",
    reconcile=reconcile_kept,
    every=60,
)
