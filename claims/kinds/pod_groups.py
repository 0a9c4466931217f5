"""scheduling.k8s.io/v1alpha2: Workload, a description of groups of pods; PodGroup, one such group as it is scheduled.

Alpha, and served with the gate GenericWorkload only. Fields of features that are not built here (topology constraints,
the priority and the disruption of a group as a whole) are known and dropped, as upstream with their gates off.
Sources: k8s.io/api/scheduling/v1alpha2, dynamic-resource-allocation/resourceclaim of Kubernetes 1.36;
KEP-4671, KEP-5729.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimConsumerReference
from manciple.wire.base import ApiObject, Condition, Int32, Value, always, condition_of, pb

PACKAGE = "io.k8s.api.scheduling.v1alpha2"
GROUP, VERSION = "scheduling.k8s.io", "v1alpha2"
API_VERSION = f"{GROUP}/{VERSION}"
#: Keeps a PodGroup for as long as pods that have not ended name it.
PROTECTION = f"{GROUP}/podgroup-protection"
#: The condition of a group, and the reasons that it names.
SCHEDULED, UNSCHEDULABLE = "PodGroupScheduled", "Unschedulable"

#: The gates: of the kinds, of all or nothing, of claims that belong to a group.
KINDS_GATE, GANG_GATE, CLAIMS_GATE = "GenericWorkload", "GangScheduling", "DRAWorkloadResourceClaims"


class WorkloadController(Value):
    """An object of the same namespace. api_group: of its kind; empty for core."""

    SCHEMA: ClassVar = "io.k8s.api.scheduling.v1alpha2.TypedLocalObjectReference"

    api_group: Annotated[str, pb(1)] = ""
    kind: Annotated[str, pb(2)] = always("")
    name: Annotated[str, pb(3)] = always("")


class BasicSchedulingPolicy(Value):
    """Each pod is scheduled for itself."""


class GangSchedulingPolicy(Value):
    """All or nothing. min_count: so many pods are placed together, or none."""

    min_count: Annotated[Int32, pb(1)] = always(0)


class PodGroupSchedulingPolicy(Value):
    """How the pods of a group are scheduled: exactly one of the two is set."""

    basic: Annotated[BasicSchedulingPolicy | None, pb(1)] = None
    gang: Annotated[GangSchedulingPolicy | None, pb(2)] = None


class TopologyConstraint(Value):
    """All pods of the group on nodes with one value of a label. key: the label."""

    key: Annotated[str, pb(1)] = always("")


class PodGroupSchedulingConstraints(Value):
    """Where the pods of a group may be, taken together."""

    topology: Annotated[tuple[TopologyConstraint, ...], pb(1)] = ()


class PodGroupResourceClaim(Value):
    """A claim that the pods of a group share: an existing one, or one that is made for the group from a template.

    name: pods that name the same claim, or template, under the same name share it. Exactly one of the others is set.
    """

    name: Annotated[str, pb(1)] = always("")
    resource_claim_name: Annotated[str | None, pb(2)] = None
    resource_claim_template_name: Annotated[str | None, pb(3)] = None


class PodGroupTemplate(Value):
    """One of the groups of a workload.

    name: unique in the workload. priority_class_name, priority, disruption_mode: not used yet.
    """

    name: Annotated[str, pb(1)] = always("")
    scheduling_policy: Annotated[PodGroupSchedulingPolicy, pb(2)] = always(PodGroupSchedulingPolicy())
    scheduling_constraints: Annotated[PodGroupSchedulingConstraints | None, pb(3)] = None
    resource_claims: Annotated[
        tuple[PodGroupResourceClaim, ...], pb(4, merge_key="name", retain_keys=True, list_keys="name")
    ] = ()
    disruption_mode: Annotated[str | None, pb(5)] = None
    priority_class_name: Annotated[str, pb(6)] = ""
    priority: Annotated[Int32 | None, pb(7)] = None


class WorkloadSpec(Value):
    """The groups of a workload. Immutable. controller_ref: the object that the workload describes, for people."""

    controller_ref: Annotated[WorkloadController | None, pb(1)] = None
    pod_group_templates: Annotated[tuple[PodGroupTemplate, ...], pb(2, list_keys="name")] = ()


class PodWorkload(ApiObject):
    """Templates for the groups in which pods of an application are scheduled. Namespaced."""

    SCHEMA: ClassVar = "io.k8s.api.scheduling.v1alpha2.Workload"

    spec: Annotated[WorkloadSpec, pb(2)] = always(WorkloadSpec())


class WorkloadPodGroupTemplateReference(Value):
    """A template in a Workload of the same namespace."""

    workload_name: Annotated[str, pb(1)] = always("")
    pod_group_template_name: Annotated[str, pb(2)] = always("")


class PodGroupTemplateReference(Value):
    """The template that a group was made from."""

    workload: Annotated[WorkloadPodGroupTemplateReference | None, pb(1)] = None


class PodGroupSpec(Value):
    """How the pods of the group are scheduled, and which claims they share. Immutable.

    priority_class_name, priority, disruption_mode: not used yet.
    """

    pod_group_template_ref: Annotated[PodGroupTemplateReference | None, pb(1)] = None
    scheduling_policy: Annotated[PodGroupSchedulingPolicy, pb(2)] = always(PodGroupSchedulingPolicy())
    scheduling_constraints: Annotated[PodGroupSchedulingConstraints | None, pb(3)] = None
    resource_claims: Annotated[
        tuple[PodGroupResourceClaim, ...], pb(4, merge_key="name", retain_keys=True, list_keys="name")
    ] = ()
    disruption_mode: Annotated[str | None, pb(5)] = None
    priority_class_name: Annotated[str, pb(6)] = ""
    priority: Annotated[Int32 | None, pb(7)] = None


class PodGroupResourceClaimStatus(Value):
    """The claim that was made for an entry of spec.resourceClaims."""

    name: Annotated[str, pb(1)] = always("")
    resource_claim_name: Annotated[str | None, pb(2)] = None


class PodGroupStatus(Value):
    """Whether the group is scheduled, and the names of its claims."""

    conditions: Annotated[tuple[Condition, ...], pb(1, merge_key="type")] = ()
    resource_claim_statuses: Annotated[
        tuple[PodGroupResourceClaimStatus, ...], pb(2, merge_key="name", retain_keys=True, list_keys="name")
    ] = ()


class PodGroup(ApiObject):
    """Pods that are scheduled with regard to each other; they name it in spec.schedulingGroup. Namespaced."""

    spec: Annotated[PodGroupSpec, pb(2)] = always(PodGroupSpec())
    status: Annotated[PodGroupStatus, pb(3)] = PodGroupStatus()


# What pods, groups and claims have to do with each other --------------------------------------------------------------


def group_name(pod: Pod) -> str:
    """The PodGroup that the pod names; "" for none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def min_count(group: PodGroup) -> int:
    """How many of its pods have a place together, or none has; 0 where each is scheduled for itself."""
    gang = group.spec.scheduling_policy.gang
    return gang.min_count if gang is not None else 0


def shares(group: PodGroup, entry: PodResourceClaim) -> bool:
    """Whether a pod's entry stands for a claim of its group: everything about them is equal."""
    wanted = (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
    return any(
        (one.name, one.resource_claim_name, one.resource_claim_template_name) == wanted
        for one in group.spec.resource_claims
    )


def made_claim(group: PodGroup, entry: str) -> str:
    """The name of the claim that was made for an entry of the group; "" where there is none yet."""
    made = (one.resource_claim_name for one in group.status.resource_claim_statuses if one.name == entry)
    return next(made, None) or ""


def consumer_of(group: PodGroup) -> ResourceClaimConsumerReference:
    """The entry of status.reservedFor that stands for the group."""
    meta = group.metadata
    return ResourceClaimConsumerReference(api_group=GROUP, resource="podgroups", name=meta.name, uid=meta.uid)


def is_group(consumer: ResourceClaimConsumerReference) -> bool:
    return (consumer.api_group, consumer.resource) == (GROUP, "podgroups")


def is_reserved_for_group_of(claim: ResourceClaim, pod: Pod) -> bool:
    """Pods do not know the uid of their group, so its name tells (upstream: IsReservedForPod)."""
    name = group_name(pod)
    return bool(name) and any(is_group(one) and one.name == name for one in claim.status.reserved_for)


def is_made_for_group_of(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the pod's group is the claim's owner (upstream: isForPodGroupByPod)."""
    name = group_name(pod)
    return bool(name) and claim.metadata.namespace == pod.metadata.namespace and owning_group(claim) == name


def owning_group(claim: ResourceClaim) -> str:
    """The name of the PodGroup that controls the claim; "" for none."""
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.kind == "PodGroup" and owner.api_version.startswith(f"{GROUP}/"):
            return owner.name
    return ""


def is_scheduled(group: PodGroup) -> bool:
    scheduled = condition_of(group.status.conditions, SCHEDULED)
    return scheduled is not None and scheduled.status == "True"
