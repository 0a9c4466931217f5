"""Writes PodSchedulingContexts, each function as part of the writer's transaction."""

from __future__ import annotations

from typing import cast

from msgspec import structs

from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextSpec
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller
from manciple.store.objects import Writer
from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.errors import Conflict
from scheduling.classic.negotiation import is_of
from scheduling.plans import Proposal
from scheduling.resources import CONTEXTS, kind


def context_of(writer: Writer, pod: Pod) -> PodSchedulingContext | None:
    """What has the pod's name, whoever owns it."""
    return cast("PodSchedulingContext | None", writer.get(kind(CONTEXTS), *pod.key))


def propose(writer: Writer, pod: Pod, proposal: Proposal) -> None:
    """Raises: Conflict when a driver has answered meanwhile, or somebody else has written or removed the context."""
    known = context_of(writer, pod)
    if _version(known) != _version(proposal.known):
        raise Conflict.of(CONTEXTS, pod.metadata.name, "the context has changed in the meantime")
    write(writer, pod, known, proposal.spec)


def write(writer: Writer, pod: Pod, known: PodSchedulingContext | None, spec: PodSchedulingContextSpec) -> None:
    """Make the pod's context say this."""
    if known is None:
        writer.create(kind(CONTEXTS), new_context(pod, spec))
    else:
        writer.update(kind(CONTEXTS), structs.replace(known, spec=spec))


def new_context(pod: Pod, spec: PodSchedulingContextSpec) -> PodSchedulingContext:
    """Named as the pod, and owned by it."""
    meta = pod.metadata
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True, block_owner_deletion=True
    )
    metadata = ObjectMeta(namespace=meta.namespace, name=meta.name, owner_references=(owner,))
    context_kind = kind(CONTEXTS)
    return PodSchedulingContext(
        api_version=context_kind.api_version, kind=context_kind.kind, metadata=metadata, spec=spec
    )


def withdraw_selection(writer: Writer, pod: Pod, claim: ResourceClaim) -> None:
    """Before a driver is asked to deallocate `claim`: it must not allocate for the same node at once."""
    known = context_of(writer, pod) if is_allocated_by_controller(claim) else None
    if known is not None and known.spec.selected_node and is_of(known, pod):
        write(writer, pod, known, structs.replace(known.spec, selected_node=""))


def close(writer: Writer, known: PodSchedulingContext) -> None:
    """The pod has its node; nothing where somebody else has removed it."""
    found = writer.get(kind(CONTEXTS), *known.key)
    if found is not None and found.metadata.uid == known.metadata.uid:
        writer.delete(kind(CONTEXTS), *known.key, uid=known.metadata.uid)


def _version(context: PodSchedulingContext | None) -> tuple[str, str] | None:
    return None if context is None else (context.metadata.uid, context.metadata.resource_version)
