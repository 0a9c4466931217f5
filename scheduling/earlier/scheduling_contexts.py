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
from claims.classic.ownership import controller_of
from claims.controllers import generated_claims
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import IMMEDIATE, ResourceClaim, names_controller
from claims.pod_claims import controller_of as owning_pod
from claims.pod_claims import is_done, is_for_pod, is_reserved_for, references
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from manciple.controllers.declaration import MODIFIED, Controller
from manciple.store import objects, sql
from manciple.store.objects import Writer, decoded, listed
from manciple.wire.resources import CLAIMS, CONTEXTS, NEW_PHASES, PODS, RESOURCE_CLASSES, Key, kind
from scheduling.earlier.classic_negotiation import is_of, new_context


def reconcile(_now: datetime) -> int:
    """Returns how many pods or contexts something was done about."""
    chunks = sql.chunks(dict.fromkeys((*_starting(), *_left_over())), generated_claims.BATCH)
    return sum(_reconcile_batch(chunk) for chunk in chunks)


def _starting() -> Iterator[Key]:
    """The pods that are bound and do not run yet, and lack one of the claims that controllers may allocate."""
    starting = models.Pod.objects.filter(phase__in=NEW_PHASES, deleting=False).exclude(node_name="")
    pods = list(starting.exclude(claim_names=[]).values_list("namespace", "name", "uid", "claim_names"))
    for chunk in sql.chunks(pods, generated_claims.BATCH):
        wanted = [(namespace, name) for namespace, _, _, names in chunk for name in names]
        stored = (decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), wanted))
        found = {claim.key: claim for claim in stored if names_controller(claim)}
        for namespace, pod, uid, names in chunk:
            named = [found[namespace, name] for name in names if (namespace, name) in found]
            if any(claim.status.allocation is None or not is_reserved_for(claim, uid) for claim in named):
                yield namespace, pod


def _left_over() -> Iterator[Key]:
    """The contexts that are not those of pods which wait for their nodes: these are the scheduler's."""
    contexts = {one.key: one for one in listed(CONTEXTS, PodSchedulingContext)[1]}
    columns = ("namespace", "name", "uid", "node_name", "deleting")
    rows = sql.select(models.Pod, columns, ("namespace", "name"), contexts)
    waiting = {(namespace, name): uid for namespace, name, uid, node, deleting in rows if not (node or deleting)}
    return (key for key, one in contexts.items() if owning_pod(one.metadata) != (key[1], waiting.get(key)))


def _reconcile_batch(keys: Sequence[Key]) -> int:
    with objects.writing(identity=generated_claims.IDENTITY) as writer:
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
    reserved = generated_claims.reserve(writer, pod)
    if not _lacks(writer, pod):
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


def _lacks(writer: Writer, pod: Pod) -> bool:
    """Whether a claim is yet to be allocated for the pod by its driver."""
    for reference in references(pod):
        claim = reference.claim and writer.get(kind(CLAIMS), pod.metadata.namespace, reference.claim)
        if not isinstance(claim, ResourceClaim) or claim.metadata.deletion_timestamp is not None:
            continue
        if claim.status.allocation is not None or claim.spec.allocation_mode == IMMEDIATE:
            continue
        if reference.generated and not is_for_pod(claim, pod):
            continue
        if names_controller(claim) and controller_of(claim, _class_of(writer, claim)):
            return True
    return False


def _class_of(writer: Writer, claim: ResourceClaim) -> ResourceClass | None:
    name = claim.spec.resource_class_name
    return cast("ResourceClass | None", writer.get(kind(RESOURCE_CLASSES), "", name)) if name else None


CONTROLLER = Controller(
    name="scheduling_contexts",
    does="asks drivers' controllers to allocate for pods that others bound, and removes unneeded contexts",
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset({(CONTEXTS, MODIFIED)}),
    gate=gates.CONTROL_PLANE_CONTROLLER,
)
