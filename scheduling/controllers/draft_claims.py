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

from collections.abc import Iterable, Iterator
from datetime import datetime

from django.db.models import Q

from claims import models
from claims.drafts.cdi.negotiation import next_step, used_by
from claims.drafts.cdi.rules import GATE, claim_of, listed_resources, with_defaults
from claims.drafts.cdi.values import (
    IMMEDIATE,
    NODE_LABEL,
    NODE_LABEL_VALUE,
    PENDING,
    PodResource,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClass,
    spec_of,
    with_status,
)
from claims.kinds.pods import Pod
from inventory.kinds import gates
from inventory.kinds.nodes import Node
from manciple.store import objects, sql
from manciple.store.objects import Writer, decoded
from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.errors import ApiError
from manciple.wire.identity import controller
from manciple.wire.registry import registry
from scheduling import event_recorder
from scheduling.controllers.declaration import ADDED, BOUND, DELETED, FINISHED, MODIFIED, Controller
from scheduling.event_recorder import EventNote
from scheduling.hints import FINISHED_PHASES
from scheduling.pod_claims import is_done
from scheduling.resources import DRAFT_CLAIMS, DRAFT_CLASSES, NODES, PODS, Key, kind

IDENTITY = controller("resource-claim-controller")
COMPONENT = "resource_claim"
#: Objects in one transaction.
BATCH = 100
KEPT = (
    "The feature gate DRAClaimsDraft is off. The pod keeps the claims that it uses; "
    "no new ones are allocated, and its own are given back when it ends"
)


def reconcile(now: datetime) -> int:
    """Returns how many objects were changed."""
    changed = _release()
    if not gates.enabled(GATE):
        return changed + _tell_of_kept(now)
    return _make(now) + _start() + changed


# Pods ---------------------------------------------------------------------------------------------------------------


def _make(now: datetime) -> int:
    """The claims that pods lack, and the users of claims of pods that somebody else has bound."""
    return sum(_make_for(chunk, now) for chunk in sql.chunks([*_wanting()], BATCH))


def _wanting() -> Iterator[Key]:
    """The pods that list resources, of those without a node and of those that are starting."""
    starting = models.Pod.objects.filter(Q(node_name="") | Q(phase__in=("", "Pending")), deleting=False)
    keys = list(starting.exclude(phase__in=FINISHED_PHASES).values_list("namespace", "name"))
    for chunk in sql.chunks(keys, BATCH):
        for stored in objects.get_many(kind(PODS), chunk):
            if '"resources":[' in stored.text and listed_resources(pod := decoded(stored, Pod)):
                yield pod.key


def _make_for(keys: Iterable[Key], now: datetime) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        changed = 0
        for key in keys:
            pod = writer.get(kind(PODS), *key)
            if isinstance(pod, Pod) and not is_done(pod) and pod.metadata.deletion_timestamp is None:
                changed += sum(_make_one(writer, pod, entry, now) for entry in listed_resources(pod))
                changed += _enter(writer, pod) if pod.spec.node_name else 0
        return changed


def _make_one(writer: Writer, pod: Pod, entry: PodResource, now: datetime) -> int:
    """One claim for one entry; a claim of another owner in its place is left alone, and the scheduler tells the pod."""
    if entry.template is None or writer.get(kind(DRAFT_CLAIMS), pod.metadata.namespace, claim_of(pod, entry)):
        return 0
    try:
        with writer.savepoint():
            writer.create(kind(DRAFT_CLAIMS), claim_for(pod, entry))
    except ApiError as error:
        told = f"PodResource {entry.name}: the claim cannot be made: {error.message}"
        reason = "FailedResourceClaimCreation"
        note = EventNote(regarding=pod, type="Warning", reason=reason, message=told, component=COMPONENT)
        event_recorder.record(writer, note, now=now)
        return 0
    return 1


def claim_for(pod: Pod, entry: PodResource) -> ResourceClaim:
    """The claim of an entry with a template: labels, annotations and spec are the template's, the pod is its owner."""
    template = entry.template
    if template is None:
        raise ValueError(f"entry {entry.name} of pod {pod.metadata.name} has no template")
    return ResourceClaim(
        api_version="cdi.k8s.io/v1alpha1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            namespace=pod.metadata.namespace,
            name=claim_of(pod, entry),
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(
                OwnerReference(
                    api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
                ),
            ),
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


def _claims() -> Iterator[ResourceClaim]:
    for stored in objects.list(kind(DRAFT_CLAIMS)).items:
        yield decoded(stored, ResourceClaim)


def _start() -> int:
    """Immediate claims whose class exists are their plugin's business from now on."""
    waiting = [claim.key for claim in _claims() if _is_to_start(claim)]
    return sum(_start_some(chunk) for chunk in sql.chunks(waiting, BATCH))


def _is_to_start(claim: ResourceClaim) -> bool:
    status = claim.status
    return claim.spec.allocation_mode == IMMEDIATE and status.phase == PENDING and not status.plugin_name


def _start_some(keys: Iterable[Key]) -> int:
    changed = 0
    with objects.writing(identity=IDENTITY) as writer:
        for key in keys:
            claim = writer.get(kind(DRAFT_CLAIMS), *key)
            if isinstance(claim, ResourceClaim) and _is_to_start(claim):
                plugin = _plugin_of(writer, claim.spec.resource_class_name)
                if plugin:
                    writer.update(kind(DRAFT_CLAIMS), with_status(claim, plugin_name=plugin), subresource="status")
                    changed += 1
    return changed


def _release() -> int:
    """Pods that are over use nothing any more."""
    used = [claim.key for claim in _claims() if claim.status.used_by]
    return sum(_release_some(chunk) for chunk in sql.chunks(used, BATCH))


def _release_some(keys: Iterable[Key]) -> int:
    changed = 0
    with objects.writing(identity=IDENTITY) as writer:
        for key in keys:
            claim = writer.get(kind(DRAFT_CLAIMS), *key)
            if not isinstance(claim, ResourceClaim):
                continue
            users = tuple(user for user in claim.status.used_by if _uses(writer, claim, user))
            if users != claim.status.used_by:
                writer.update(kind(DRAFT_CLAIMS), with_status(claim, used_by=users), subresource="status")
                changed += 1
    return changed


def _uses(writer: Writer, claim: ResourceClaim, user: OwnerReference) -> bool:
    """Users that are no pods are their own controllers' business."""
    if (user.api_version, user.kind) != ("v1", "Pod"):
        return True
    pod = writer.get(kind(PODS), claim.metadata.namespace, user.name)
    return isinstance(pod, Pod) and pod.metadata.uid == user.uid and not is_done(pod)


# The gate is off ------------------------------------------------------------------------------------------------------


def _tell_of_kept(now: datetime) -> int:
    """Each pod that uses a claim is told once that it keeps it."""
    users = {(claim.metadata.namespace, user.name) for claim in _claims() for user in claim.status.used_by}
    told = 0
    for chunk in sql.chunks(sorted(users), BATCH):
        with objects.writing(identity=IDENTITY) as writer:
            for key in chunk:
                pod = writer.get(kind(PODS), *key)
                if isinstance(pod, Pod):
                    told += _tell(writer, pod, now)
    return told


def _tell(writer: Writer, pod: Pod, now: datetime) -> int:
    note = EventNote(regarding=pod, type="Warning", reason="FeatureGateOff", message=KEPT, component=COMPONENT)
    if writer.get(registry.by_resource("events"), *event_recorder.key_of(note)) is not None:
        return 0
    event_recorder.record(writer, note, now=now)
    return 1


_ON = gates.enabled(GATE)

CONTROLLER = Controller(
    name="draft_claims",
    does="makes the claims of cdi.k8s.io that pods list, and takes them back from pods that are over",
    reconcile=reconcile,
    every=5 if _ON else 60,
    wakes_on=frozenset(
        {
            *((PODS, what) for what in (ADDED, BOUND, FINISHED, DELETED)),
            *((DRAFT_CLAIMS, what) for what in (ADDED, MODIFIED, DELETED)),
            (DRAFT_CLASSES, ADDED),
        }
        if _ON
        else ()
    ),
)
