"""Which claims a pod uses, and for how long.

An entry of spec.resourceClaims names a claim, or a template. The claim generated from a template is named in
status.resourceClaimStatuses, and must be owned by the pod. Upstream:
dynamic-resource-allocation/resourceclaim/claim.go. PURE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import structs

from claims.kinds.pod_groups import API_VERSION as GROUP_API_VERSION
from claims.kinds.pod_groups import (
    CLAIMS_GATE,
    GANG_SIZE,
    PodGroup,
    PodGroupResourceClaim,
    consumer_of,
    is_made_for_group_of,
    is_reserved_for_group_of,
    shares,
)
from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import (
    CLASSIC_RESERVATIONS_MAX,
    IMMEDIATE,
    POD_CLAIM_ANNOTATION,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimTemplate,
    is_allocated_by_controller,
    names_controller,
)
from inventory.kinds import gates
from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.resources import FINISHED_PHASES
from manciple.wire.validation import claim_generate_name

#: resourceapi.ResourceClaimReservedForMaxSize
MOST_RESERVATIONS = 256

#: A second finalizer of claims with structured parameters (KEP-4381, first draft).
STRUCTURED_FINALIZER = "structured.dra.k8s.io/delete-protection"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReference:
    """One entry of spec.resourceClaims, resolved from the pod alone."""

    entry: str
    claim: str | None  #: the claim's name; None until it is created, and if none is needed
    needed: bool = True  #: False if the status says that the entry needs no claim
    generated: bool = False  #: the claim must be controlled by the pod


def references(pod: Pod) -> tuple[ClaimReference, ...]:
    """Every entry of spec.resourceClaims, in order."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    return tuple(_reference(entry, made) for entry in pod.spec.resource_claims)


def _reference(entry: PodResourceClaim, made: dict[str, str | None]) -> ClaimReference:
    if entry.resource_claim_name:
        return ClaimReference(entry=entry.name, claim=entry.resource_claim_name)
    if entry.name not in made:
        return ClaimReference(entry=entry.name, claim=None, generated=True)
    name = made[entry.name] or None
    return ClaimReference(entry=entry.name, claim=name, needed=name is not None, generated=True)


def claim_names(pod: Pod) -> tuple[str, ...]:
    """The claims that the pod names, those generated for it, and the one for its extended resources; no duplicates."""
    extended = pod.status.extended_resource_claim_status
    if extended is None and not pod.spec.resource_claims:
        return ()
    special = (extended.resource_claim_name,) if extended is not None else ()
    return tuple(dict.fromkeys((*(one.claim for one in references(pod) if one.claim), *special)))


def names_of_claims(pod: Pod) -> str:
    """`namespace/name` of each, for messages."""
    return ", ".join(f"{pod.metadata.namespace}/{name}" for name in claim_names(pod))


def has_group(pod: Pod) -> bool:
    """Whether the pod names a PodGroup, or has the annotation of a gang's size."""
    return pod.spec.scheduling_group is not None or GANG_SIZE in pod.metadata.annotations


def is_done(pod: Pod) -> bool:
    """Whether no container of `pod` runs, or ever will again."""
    if pod.status.phase in FINISHED_PHASES:
        return True
    return pod.metadata.deletion_timestamp is not None and not pod.spec.node_name


def controller_of(meta: ObjectMeta) -> tuple[str, str] | None:
    """(name, uid) of the pod that controls the object, if a pod does."""
    for owner in meta.owner_references:
        if owner.controller and owner.kind == "Pod" and owner.api_version == "v1":
            return owner.name, owner.uid
    return None


def is_controlled_by(meta: ObjectMeta, pod: Pod) -> bool:
    """Whether exactly this pod controls the object, not another one of its name."""
    return controller_of(meta) == (pod.metadata.name, pod.metadata.uid)


def controlled_by(pod: Pod) -> OwnerReference:
    """The owner reference of an object that is generated for the pod."""
    meta = pod.metadata
    return OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)


def is_for_pod(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether `claim` was generated for `pod`, or for its group."""
    owner = controller_of(claim.metadata)
    if claim.metadata.namespace == pod.metadata.namespace and owner is not None and owner[1] == pod.metadata.uid:
        return True
    return shares_claims(pod) and is_made_for_group_of(claim, pod)


def shares_claims(pod: Pod) -> bool:
    return pod.spec.scheduling_group is not None and gates.enabled(CLAIMS_GATE)


def is_reserved_for_pod(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim is reserved for the pod or for its group."""
    by_itself = is_reserved_for(claim, pod.metadata.uid)
    return by_itself or (shares_claims(pod) and is_reserved_for_group_of(claim, pod))


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)


def can_be_reserved(claim: ResourceClaim) -> bool:
    """Whether one more pod may reserve the claim. Not if it is being deleted or deallocated by its driver; a claim of a
    ResourceClass that is not shareable has only one user at a time.
    """
    ends = claim.metadata.deletion_timestamp is not None or claim.status.deallocation_requested
    return not ends and len(claim.status.reserved_for) < most_users(claim)


def most_users(claim: ResourceClaim) -> int:
    """The maximum of reservations."""
    if not claim.spec.resource_class_name:
        return MOST_RESERVATIONS
    allocation = claim.status.allocation
    return CLASSIC_RESERVATIONS_MAX if allocation is not None and allocation.shareable else 1


def stays_allocated(claim: ResourceClaim) -> bool:
    """Whether the claim stays allocated without reservations."""
    return claim.spec.allocation_mode == IMMEDIATE and claim.metadata.deletion_timestamp is None


def keeps_unused(claim: ResourceClaim) -> bool:
    """Whether an unused claim holds its devices by design: it is Immediate, or its driver's controller decides."""
    is_over = claim.status.deallocation_requested or claim.metadata.deletion_timestamp is not None
    return stays_allocated(claim) or (is_allocated_by_controller(claim) and not is_over)


def consumer(pod: Pod) -> ResourceClaimConsumerReference:
    """The entry of `pod` in status.reservedFor."""
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def consumer_for(claim: ResourceClaim, pod: Pod, group: PodGroup | None) -> ResourceClaimConsumerReference:
    """The entry in status.reservedFor for `pod`: its own, or that of its group if the group shares the claim."""
    if group is not None and gates.enabled(CLAIMS_GATE):
        entries = zip(pod.spec.resource_claims, references(pod), strict=True)
        if any(reference.claim == claim.metadata.name and shares(group, entry) for entry, reference in entries):
            return consumer_of(group)
    return consumer(pod)


def reserved(claim: ResourceClaim, pod: Pod, group: PodGroup | None) -> ResourceClaim:
    """`claim` with the reservation of `pod`; the same object if it has it already."""
    user = consumer_for(claim, pod, group)
    if is_reserved_for(claim, user.uid):
        return claim
    status = structs.replace(claim.status, reserved_for=(*claim.status.reserved_for, user))
    return structs.replace(claim, status=status)


def requested_classes(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    """(request or request/subrequest, DeviceClass name) of each request and subrequest."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for alternative in request.first_available:
            yield f"{request.name}/{alternative.name}", alternative.device_class_name


def claim_for(
    user: Pod | PodGroup, entry: PodResourceClaim | PodGroupResourceClaim, template: ResourceClaimTemplate
) -> ResourceClaim:
    """The claim to create for `entry`: with the template's spec, labels and annotations, owned by the pod or group.

    Upstream: pkg/controller/resourceclaim/controller.go (handleClaim, handlePodGroupClaim).
    """
    meta = user.metadata
    of_group = OwnerReference(
        api_version=GROUP_API_VERSION, kind="PodGroup", name=meta.name, uid=meta.uid, controller=True
    )
    given = template.spec.metadata
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            namespace=user.metadata.namespace,
            generate_name=claim_generate_name(user.metadata.name, entry.name),
            labels=given.labels,
            annotations={**given.annotations, POD_CLAIM_ANNOTATION: entry.name},
            owner_references=(controlled_by(user) if isinstance(user, Pod) else of_group,),
        ),
        spec=template.spec.spec,
    )


def may_be_negotiated(pod: Pod, claims: Iterable[ResourceClaim]) -> bool:
    """Whether a driver may decide about a claim of the pod (`scheduling.claims.negotiation`)."""
    return isinstance(pod.spec.resources, tuple) or any(map(names_controller, claims))
