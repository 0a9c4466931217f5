"""How pods are stored: what admission adds, first status, what each kind of update may take over, grace of deletion.

Source: pkg/registry/core/pod/strategy.go and plugin/pkg/admission/{defaulttolerationseconds,serviceaccount} of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from claims.drafts.cdi.rules import prepare_new_pod, with_hidden_fields
from claims.kinds.containers import Container, ResourceRequirements, SecurityContext
from claims.kinds.placement_rules import with_label_keys
from claims.kinds.pod_defaults import canonical_amounts, with_defaults
from claims.kinds.pod_resources import qos_class, resources_of
from claims.kinds.pods import ClaimSource, Pod, PodCondition, PodIP, PodResourceClaim, PodSpec, PodStatus, Toleration
from claims.kinds.references import MIRROR
from claims.kinds.security_context_rules import app_armor_of, has_profile_annotations, is_for_windows
from inventory.kinds import gates
from inventory.kinds.gated_fields import GatedFields, without_disabled
from manciple.wire.base import status_metadata, timestamp

# Admission ------------------------------------------------------------------------------------------------------------


DEFAULT_SERVICE_ACCOUNT = "default"
#: How long a pod stays on a node that is not ready or cannot be reached.
EVICTION_TOLERATION_SECONDS = 300
NODE_TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def uses_draft(spec: PodSpec) -> bool:
    """Whether anything of it is of KEP-3063's first draft (`claims.drafts.cdi`)."""
    if isinstance(spec.resources, tuple):
        return True
    return any(one.pod_resources for one in spec.containers) or any(one.pod_resources for one in spec.init_containers)


def with_admission_defaults(spec: PodSpec, *, mirror: bool) -> PodSpec:
    """What admission adds to a new pod: tolerations for troubled nodes, a service account. (Its priority is read from
    its class inside the transaction: `claims.admission`.)

    mirror: the pod shows one that its node runs by itself, which refers to nothing here.
    """
    account = spec.service_account_name or ("" if mirror else DEFAULT_SERVICE_ACCOUNT)
    return replace(
        spec,
        tolerations=spec.tolerations + missing_tolerations(spec.tolerations),
        service_account_name=account,
        service_account=account,
    )


def without_admission(prepared: Pod, sent: Pod) -> Pod:
    """A new pod without what admission has added to what the client sent: what above, and the volume of a token."""
    given, spec = sent.spec, prepared.spec
    spec = replace(
        spec,
        tolerations=given.tolerations,
        service_account_name=given.service_account_name,
        service_account=given.service_account,
        image_pull_secrets=given.image_pull_secrets,
        volumes=spec.volumes[: len(given.volumes)],
        containers=_with_mounts_of(spec.containers, given.containers),
        init_containers=_with_mounts_of(spec.init_containers, given.init_containers),
    )
    return replace(prepared, spec=spec)


def _with_mounts_of(containers: tuple[Container, ...], sent: tuple[Container, ...]) -> tuple[Container, ...]:
    """What admission mounts stands behind the container's own."""
    return tuple(
        replace(one, volume_mounts=one.volume_mounts[: len(own.volume_mounts)])
        for one, own in zip(containers, sent, strict=True)
    )


def missing_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Tolerations of NoExecute for `EVICTION_TOLERATION_SECONDS`, for each trouble that none tolerates yet."""
    return tuple(
        Toleration(
            key=trouble,
            operator="Exists",
            effect="NoExecute",
            toleration_seconds=EVICTION_TOLERATION_SECONDS,
        )
        for trouble in NODE_TROUBLES
        if not any(one.key in (trouble, "") and one.effect in ("NoExecute", "") for one in tolerations)
    )


# Pods -----------------------------------------------------------------------------------------------------------------


TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

#: Fields of pods that are dropped while their feature is off, unless the pod has them already.
OF_PODS: GatedFields = {
    gates.DYNAMIC_RESOURCE_ALLOCATION: {PodSpec: ("resource_claims",), ResourceRequirements: ("claims",)}
}
OF_POD_STATUSES: GatedFields = {"DRAExtendedResource": {PodStatus: ("extended_resource_claim_status",)}}


def create_pod(new: Pod) -> Pod:
    """Pending, of a known quality of service, and visibly gated where it has scheduling gates."""
    given = prepare_new_pod(new.spec) if uses_draft(new.spec) else new.spec
    given = without_disabled(given, None, OF_PODS)
    if given.affinity is not None or given.topology_spread_constraints:
        given = with_label_keys(given, new.metadata.labels)
    spec = with_admission_defaults(with_defaults(given), mirror=MIRROR in new.metadata.annotations)
    if spec.resource_claims:
        spec = replace(spec, resource_claims=tuple(map(_sourced, spec.resource_claims)))
    if has_profile_annotations(new.metadata.annotations):
        spec = _with_annotated_profiles(spec, new.metadata.annotations)
    status = PodStatus(phase="Pending", qos_class=qos_class(spec), conditions=gate_conditions(spec))
    return replace(new, spec=spec, status=status)


def _with_annotated_profiles(spec: PodSpec, annotations: Mapping[str, str]) -> PodSpec:
    """Containers that have their AppArmor profile from an annotation, as pods had it before 1.30."""
    if is_for_windows(spec):
        return spec
    of_pod = spec.security_context.app_armor_profile if spec.security_context is not None else None

    def completed(container: Container) -> Container:
        context, profile = container.security_context or SecurityContext(), app_armor_of(annotations, container.name)
        if profile in (None, of_pod) or context.app_armor_profile is not None:
            return container
        return replace(container, security_context=replace(context, app_armor_profile=profile))

    return replace(
        spec,
        containers=tuple(map(completed, spec.containers)),
        init_containers=tuple(map(completed, spec.init_containers)),
    )


def _sourced(claim: PodResourceClaim) -> PodResourceClaim:
    """Told in both ways, as Kubernetes writes it now and up to 1.30, while drivers of that time may read it."""
    if not gates.enabled(gates.CONTROL_PLANE_CONTROLLER):
        return claim if claim.source is None else replace(claim, source=None)
    named = _named(claim)
    source = ClaimSource(
        resource_claim_name=named.resource_claim_name,
        resource_claim_template_name=named.resource_claim_template_name,
    )
    return replace(named, source=source if source != ClaimSource() else None)


def _named(claim: PodResourceClaim) -> PodResourceClaim:
    """With the names that its source says, where it does not say them itself."""
    source, names = claim.source, (claim.resource_claim_name, claim.resource_claim_template_name)
    if source is None or names != (None, None):
        return claim
    return replace(
        claim,
        resource_claim_name=source.resource_claim_name,
        resource_claim_template_name=source.resource_claim_template_name,
    )


def _with_sources_of(
    claims: tuple[PodResourceClaim, ...], old: tuple[PodResourceClaim, ...]
) -> tuple[PodResourceClaim, ...]:
    """Clients know one of the two ways, and leave the other out of what they write back."""
    known = {one.name: one.source for one in old}
    return tuple(replace(_named(one), source=known.get(one.name)) for one in claims)


def gate_conditions(spec: PodSpec) -> tuple[PodCondition, ...]:
    if not spec.scheduling_gates:
        return ()
    message = "Scheduling is blocked due to non-empty scheduling gates"
    gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated", message=message)
    return (replace(gated, last_transition_time=timestamp(datetime.now(UTC))),)


def update_pod(new: Pod, old: Pod) -> Pod:
    """The status and the priority stay; a pod whose last gate was removed is no longer shown as gated."""
    spec = with_hidden_fields(with_defaults(without_disabled(new.spec, old.spec, OF_PODS)), old.spec)
    if spec.resource_claims:
        spec = replace(spec, resource_claims=_with_sources_of(spec.resource_claims, old.spec.resource_claims))
    if old.spec.scheduling_group is None and spec.scheduling_group and not gates.enabled("GenericWorkload"):
        spec = replace(spec, scheduling_group=None)
    spec = replace(
        spec,
        tolerations=spec.tolerations + missing_tolerations(spec.tolerations),
        priority=old.spec.priority if spec.priority is None else spec.priority,
        preemption_policy=old.spec.preemption_policy if spec.preemption_policy is None else spec.preemption_policy,
    )
    status = old.status
    if old.spec.scheduling_gates and not spec.scheduling_gates:
        kept = tuple(one for one in status.conditions if one.reason != "SchedulingGated")
        status = replace(status, conditions=kept)
    return replace(new, spec=spec, status=status)


def resize_pod(new: Pod, old: Pod) -> Pod:
    """`old` with the resources and resize policies of `new`; whatever else the client sent is left out, but for other
    containers than those of `old`, which validation refuses.
    """
    lists = ((new.spec.containers, old.spec.containers), (new.spec.init_containers, old.spec.init_containers))
    if any(len(after) != len(before) for after, before in lists):
        return replace(new, spec=with_defaults(new.spec), status=old.status)

    def resized(after: Sequence[Container], before: Sequence[Container]) -> tuple[Container, ...]:
        pairs = list(zip(after, before, strict=True))
        if any(container.name != known.name for container, known in pairs):
            return tuple(after)
        return tuple(
            replace(known, resources=container.resources, resize_policy=container.resize_policy)
            for container, known in pairs
        )

    spec = replace(
        old.spec,
        containers=resized(new.spec.containers, old.spec.containers),
        init_containers=resized(new.spec.init_containers, old.spec.init_containers),
        resources=old.spec.resources if isinstance(old.spec.resources, tuple) else resources_of(new.spec),
    )
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), spec=with_defaults(spec))


def add_ephemeral_containers(new: Pod, old: Pod) -> Pod:
    """`old` with the containers for debugging of `new`; whatever else the client sent is left out."""
    spec = with_defaults(replace(old.spec, ephemeral_containers=new.spec.ephemeral_containers))
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), spec=spec)


def update_pod_status(new: Pod, old: Pod) -> Pod:
    """Spec stays, and of the metadata all but labels and annotations; so does the quality of service, which nobody
    needs to repeat. The first of several addresses is the one that is told alone.
    """
    status = _with_known_generations(new.status, old.status)
    status = replace(status, qos_class=status.qos_class or old.status.qos_class)
    status = without_disabled(status, old.status, OF_POD_STATUSES)
    if not (gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) or old.spec.resource_claims):
        status = replace(status, resource_claim_statuses=())
    if status.node_allocatable_resource_claim_statuses and not (
        gates.enabled("DRANodeAllocatableResources") or old.status.node_allocatable_resource_claim_statuses
    ):
        status = replace(status, node_allocatable_resource_claim_statuses=())
    if status.pod_ip and (not status.pod_ips or status.pod_ips[0].ip != status.pod_ip):
        status = replace(status, pod_ips=(PodIP(ip=status.pod_ip),))
    if status.pod_ips:
        status = replace(status, pod_ip=status.pod_ips[0].ip)
    status = canonical_amounts(status)
    metadata = replace(
        status_metadata(new.metadata, old.metadata),
        labels=new.metadata.labels,
        annotations=new.metadata.annotations,
    )
    return replace(old, metadata=metadata, status=status)


def _with_known_generations(new: PodStatus, old: PodStatus) -> PodStatus:
    """A client that says nothing of the generation it observed keeps the one that is known, also of conditions."""
    known: dict[str, deque[int]] = {}
    for condition in old.conditions:
        known.setdefault(condition.type, deque()).append(condition.observed_generation)

    def completed(condition: PodCondition) -> PodCondition:
        before = known.get(condition.type)
        generation = before.popleft() if before else 0
        if condition.observed_generation or not generation:
            return condition
        return replace(condition, observed_generation=generation)

    return replace(
        new,
        observed_generation=new.observed_generation or old.observed_generation,
        conditions=tuple(map(completed, new.conditions)),
    )


def grace_seconds(pod: Pod) -> int | None:
    """Seconds that a deleted pod gets unless the client chooses; None when it never ran anywhere, or has ended."""
    if not pod.spec.node_name or pod.status.phase in TERMINAL_PHASES:
        return None
    granted = pod.spec.termination_grace_period_seconds or 0
    return granted if granted >= 0 else 1
