"""What the scheduler has no part in between pods and drivers' controllers (KEP-3063, gate DRAControlPlaneController).

    a pod that somebody else bound, a claim of it not allocated  -> a context with `selectedNode`, and nothing else
    the same, its claims allocated                               -> reserved for it
    the same, nothing left to ask                                -> its context goes
    a context whose pod is over, or another by that name         -> it goes
    a claim that its driver is to deallocate                     -> nothing: only the driver does

Everything is worked out from what is stored, in one pass over the contexts and over the pods that start.
Upstream: pkg/controller/resourceclaim/controller.go of Kubernetes 1.30 (ensurePodSchedulingContext, reserveForPod).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import cast

from msgspec import structs

from claims import models
from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextSpec
from claims.classic.ownership import IMMEDIATE, controller_of, is_on
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, names_controller
from inventory.classic.values import ResourceClass
from manciple.store import objects, sql
from manciple.store.objects import Writer, decoded
from manciple.wire.identity import controller
from scheduling.classic.negotiation import is_of, new_context
from scheduling.controllers.declaration import MODIFIED, Controller
from scheduling.plans import Placement
from scheduling.pod_claims import can_be_reserved, is_done, is_for_pod, references
from scheduling.resources import CLAIMS, CONTEXTS, PODS, RESOURCE_CLASSES, Key, kind

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("resource-claim-controller")
#: Pods in one transaction.
BATCH = 100


def reconcile(_now: datetime) -> int:
    """Returns how many pods or contexts something was done about."""
    if not is_on():
        return 0
    chunks = sql.chunks(dict.fromkeys((*_starting(), *_negotiated())), BATCH)
    return sum(_reconcile_batch(chunk) for chunk in chunks)


def _starting() -> Iterator[Key]:
    """The pods that are bound and do not run yet, with claims in a form that controllers may allocate."""
    starting = models.Pod.objects.filter(phase__in=("", "Pending"), deleting=False).exclude(node_name="")
    keys = list(starting.exclude(claim_names=[]).values_list("namespace", "name", "claim_names"))
    for chunk in sql.chunks(keys, BATCH):
        wanted = [(namespace, claim) for namespace, _, claims in chunk for claim in claims]
        claims = (decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), wanted))
        found = {claim.key for claim in claims if names_controller(claim)}
        yield from (
            (namespace, name) for namespace, name, claims in chunk if any((namespace, one) in found for one in claims)
        )


def _negotiated() -> Iterator[Key]:
    for stored in objects.list(kind(CONTEXTS)).items:
        yield stored.namespace, stored.name


def _reconcile_batch(keys: Sequence[Key]) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(PODS), keys)
        writer.load(kind(CONTEXTS), keys)
        return sum(_reconcile_one(writer, key) for key in keys)


def _reconcile_one(writer: Writer, key: Key) -> bool:
    pod = cast("Pod | None", writer.get(kind(PODS), *key))
    known = cast("PodSchedulingContext | None", writer.get(kind(CONTEXTS), *key))
    if known is not None and known.metadata.deletion_timestamp is not None:
        return False
    if pod is None or is_done(pod) or (known is not None and not is_of(known, pod)):
        return _close(writer, known)
    if not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False  # the scheduler's, or nobody's any more
    lacks, reserved = _serve(writer, pod)
    if not lacks:
        return _close(writer, known) or reserved
    spec = PodSchedulingContextSpec() if known is None else known.spec
    if spec.selected_node == pod.spec.node_name:
        return reserved
    selecting = structs.replace(spec, selected_node=pod.spec.node_name)
    if known is None:
        writer.create(kind(CONTEXTS), new_context(pod, selecting))
    else:
        writer.update(kind(CONTEXTS), structs.replace(known, spec=selecting))
    return True


def _close(writer: Writer, known: PodSchedulingContext | None) -> bool:
    if known is not None:
        writer.delete(kind(CONTEXTS), *known.key, uid=known.metadata.uid)
    return known is not None


def _serve(writer: Writer, pod: Pod) -> tuple[bool, bool]:
    """(whether a claim is yet to be allocated for the pod, whether one was reserved for it)."""
    lacks = reserved = False
    placement = Placement(pod=pod, node=pod.spec.node_name)
    for reference in references(pod):
        claim = cast("ResourceClaim | None", reference.claim and _claim(writer, pod, reference.claim))
        if claim is None or not names_controller(claim) or (reference.generated and not is_for_pod(claim, pod)):
            continue
        if claim.metadata.deletion_timestamp is not None:
            continue
        if claim.status.allocation is None:
            lacks |= claim.spec.allocation_mode != IMMEDIATE and bool(controller_of(claim, _class_of(writer, claim)))
        elif (following := placement.reserved(claim)) is not claim and can_be_reserved(claim):
            writer.update(kind(CLAIMS), following)
            reserved = True
    return lacks, reserved


def _claim(writer: Writer, pod: Pod, name: str) -> object:
    return writer.get(kind(CLAIMS), pod.metadata.namespace, name)


def _class_of(writer: Writer, claim: ResourceClaim) -> ResourceClass | None:
    name = claim.spec.resource_class_name
    return cast("ResourceClass | None", writer.get(kind(RESOURCE_CLASSES), "", name)) if name else None


CONTROLLER = Controller(
    name="scheduling_contexts",
    does="asks drivers' controllers to allocate for pods that others bound, and removes contexts that nobody needs",
    reconcile=reconcile,
    every=5 if is_on() else 3600,
    wakes_on=frozenset({(CONTEXTS, MODIFIED)}),
)
