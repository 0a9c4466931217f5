"""Groups of pods that are scheduled together: Workload and PodGroup (KEP-4671), and gangs by annotation. PURE.

A Workload describes groups of pods; a PodGroup is one such group as it is scheduled. Alpha, and served with the gate
GenericWorkload only. Fields of features that are not built here (topology constraints, the priority and the disruption
of a group as a whole) are accepted and dropped, as upstream with their gates off.

A gang by annotation needs no PodGroup:

    metadata:
      annotations:
        manciple.dev/gang: train                  # its name; pods of a Job (label batch.kubernetes.io/job-name) that
                                                  # have no name belong to the gang of their Job
        manciple.dev/gang-size: "8"               # as many pods are placed at once, or none
        manciple.dev/gang-required-topology: example.com/rack     # all of them on nodes with one value of this label
        manciple.dev/gang-preferred-topology: kubernetes.io/hostname    # likewise, if that is possible

The scheduler works on PodGroups; a gang by annotation becomes one that exists in memory only (`as_group`), with a name
that no object can have. The topology annotations on a PodGroup mean the same for its pods. Similar names elsewhere:
kueue.x-k8s.io/podset-required-topology, pod-group.scheduling.sigs.k8s.io/min-available.

Sources: k8s.io/api/scheduling/v1alpha2, pkg/apis/scheduling/{validation,v1alpha2/zz_generated.validations.go},
pkg/registry/scheduling/{podgroup,workload}/strategy.go, dynamic-resource-allocation/resourceclaim and
pkg/printers/internalversion/printers.go of Kubernetes 1.36; KEP-4671, KEP-5729.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from msgspec.structs import replace

from claims.kinds.disruption_budgets import DISRUPTION_TARGET
from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimConsumerReference
from inventory.kinds import gates
from manciple.wire.base import ApiObject, Condition, Int32, ObjectMeta, Value, always, condition_of, pb, status_metadata
from manciple.wire.errors import FieldError, invalid, required, too_many
from manciple.wire.quantity import whole
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, DEFAULT_COLUMNS, NAME_COLUMN
from manciple.wire.validation import (
    METADATA,
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    each,
    required_or,
    validate_conditions,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

PACKAGE = "io.k8s.api.scheduling.v1alpha2"
GROUP, VERSION = "scheduling.k8s.io", "v1alpha2"
API_VERSION = f"{GROUP}/{VERSION}"
#: Keeps a PodGroup for as long as pods that have not ended name it.
PROTECTION = f"{GROUP}/podgroup-protection"
#: The condition of a group, and a reason.
SCHEDULED, UNSCHEDULABLE = "PodGroupScheduled", "Unschedulable"

#: The gates of the kinds, of gangs, and of claims that belong to a group.
KINDS_GATE, GANG_GATE, CLAIMS_GATE = "GenericWorkload", "GangScheduling", "DRAWorkloadResourceClaims"


class WorkloadController(Value):
    """An object of the same namespace. api_group: of its kind; empty for core.

    kind: the kind of the object, such as Job. name: the name of the object.
    """

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

    resource_claim_name: the name of a claim that is there. resource_claim_template_name: the name of the template to
    make one claim from, for all pods of the group.
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
    """A template in a Workload of the same namespace.

    workload_name: the name of the Workload. pod_group_template_name: the name of the template in it.
    """

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
    """The claim that was made for an entry of spec.resourceClaims.

    name: the name of the entry in the spec. resource_claim_name: the name of the claim that was made for it.
    """

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


# How pods, groups and claims refer to each other ----------------------------------------------------------------------


def group_name(pod: Pod) -> str:
    """The PodGroup that the pod names; "" for none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def min_count(group: PodGroup) -> int:
    """How many of its pods must be placed together; 0 if each is scheduled by itself."""
    gang = group.spec.scheduling_policy.gang
    return gang.min_count if gang is not None else 0


def shares(group: PodGroup, entry: PodResourceClaim) -> bool:
    """Whether a pod's entry stands for a claim of its group: their name, claim and template are equal."""
    return any(
        own.name == entry.name
        and own.resource_claim_name == entry.resource_claim_name
        and own.resource_claim_template_name == entry.resource_claim_template_name
        for own in group.spec.resource_claims
    )


def made_claim(group: PodGroup, entry: str) -> str:
    """The name of the claim that was generated for an entry of the group; "" if there is none yet."""
    names = (status.resource_claim_name for status in group.status.resource_claim_statuses if status.name == entry)
    return next(names, None) or ""


def consumer_of(group: PodGroup) -> ResourceClaimConsumerReference:
    """The entry of status.reservedFor that stands for the group."""
    meta = group.metadata
    return ResourceClaimConsumerReference(api_group=GROUP, resource="podgroups", name=meta.name, uid=meta.uid)


def is_group(consumer: ResourceClaimConsumerReference) -> bool:
    return (consumer.api_group, consumer.resource) == (GROUP, "podgroups")


def is_reserved_for_group_of(claim: ResourceClaim, pod: Pod) -> bool:
    """Compares the group's name: pods do not have its uid (upstream: IsReservedForPod)."""
    name = group_name(pod)
    return bool(name) and any(is_group(user) and user.name == name for user in claim.status.reserved_for)


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


# Gangs by annotation --------------------------------------------------------------------------------------------------


GANG, GANG_SIZE = "manciple.dev/gang", "manciple.dev/gang-size"
REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY = "manciple.dev/gang-required-topology", "manciple.dev/gang-preferred-topology"
#: The annotations of a gang besides its name.
GANG_DETAILS = (GANG_SIZE, REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY)
GANG_ANNOTATIONS = frozenset({GANG, *GANG_DETAILS})
#: Labels of the pods of a Job; since 1.27 they have these besides the older names.
JOB_NAME, JOB_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
#: The maximum size of a gang: several times the pods that are bound in one transaction.
LARGEST_GANG = 512
#: The prefix of a group without an object: the names of objects have no colon.
_PREFIX = "gang:"

Errors = list[FieldError]


class Topology(NamedTuple):
    """Keys of node labels; "" for none."""

    required: str = ""
    preferred: str = ""


def topology_of(group: PodGroup) -> Topology:
    annotations = group.metadata.annotations
    return Topology(annotations.get(REQUIRED_TOPOLOGY, ""), annotations.get(PREFERRED_TOPOLOGY, ""))


def annotated_name(annotations: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """The name of the group for a gang by annotation; "" if there is none."""
    if GANG_SIZE not in annotations:
        return ""
    if name := annotations.get(GANG, ""):
        return f"{_PREFIX}{name}"
    job = labels.get(JOB_NAME, "")
    return f"{_PREFIX}{job}@{labels.get(JOB_UID, '')}" if job else ""


def gang_name(pod: Pod) -> str:
    """The PodGroup that the pod names, or the group that stands for its gang; "" for none."""
    return group_name(pod) or annotated_name(pod.metadata.annotations, pod.metadata.labels)


def is_annotated(group: PodGroup) -> bool:
    """Whether the group stands for a gang by annotation, without an object."""
    return group.metadata.name.startswith(_PREFIX)


def shown_name(name: str) -> str:
    """The name of a group or gang, for messages."""
    return name.removeprefix(_PREFIX).partition("@")[0]


def counts_when_done(pod: Pod) -> bool:
    """Whether a succeeded pod still counts as placed with its gang.

    Pods of a Job succeed at different times, and failed ones are replaced. A gang by name may be started again while
    pods of its last run still exist.
    """
    return GANG not in pod.metadata.annotations


def as_group(namespace: str, name: str, pods: Iterable[Pod]) -> PodGroup:
    """The group for a gang by annotation. pods: those of the gang, at least one.

    Their annotations may differ: the largest size counts, and the topology of the oldest pod.
    """
    by_age = sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "~", pod.metadata.uid))
    size = max(whole(pod.metadata.annotations.get(GANG_SIZE, "")) or 0 for pod in by_age)
    annotations = by_age[0].metadata.annotations
    topology = {key: annotations[key] for key in (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY) if key in annotations}
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=size))
    return PodGroup(
        metadata=ObjectMeta(namespace=namespace, name=name, annotations=topology),
        spec=PodGroupSpec(scheduling_policy=policy),
    )


# Rules of gangs by annotation -----------------------------------------------------------------------------------------

_PATH = METADATA.child("annotations")


def validate_gang(metadata: ObjectMeta) -> Errors:
    """Check the annotations of a pod."""
    annotations = metadata.annotations
    if GANG_SIZE not in annotations:
        for other in (GANG, REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY):
            if other in annotations:
                message = f"says how many pods are placed together, with `{other}`"
                return [required(_PATH.key(GANG_SIZE), message)]
        return []
    text, found = annotations[GANG_SIZE], validate_topology(metadata)
    size = whole(text)
    if size is None or not 1 <= size <= LARGEST_GANG:
        found.append(invalid(_PATH.key(GANG_SIZE), text, f"must be a number between 1 and {LARGEST_GANG}"))
    if GANG in annotations:
        found += each(check_dns_subdomain(annotations[GANG]), _PATH.key(GANG), annotations[GANG])
    elif not metadata.labels.get(JOB_NAME):
        message = f"must name the gang: the pod belongs to no Job (label `{JOB_NAME}`)"
        found.append(required(_PATH.key(GANG), message))
    return found


def validate_topology(metadata: ObjectMeta) -> Errors:
    """Check the topology annotations of a pod or a PodGroup."""
    return [
        error
        for key in (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY)
        if (label := metadata.annotations.get(key)) is not None
        for error in each(check_label_key(label), _PATH.key(key), label)
    ]


def validate_gang_update(new: ObjectMeta, old: ObjectMeta) -> Errors:
    """A pod cannot change its gang, nor its group."""
    if annotated_name(new.annotations, new.labels) != annotated_name(old.annotations, old.labels):
        return [invalid(_PATH.key(GANG), new.annotations.get(GANG), "field is immutable")]
    return _unchanged(GANG_DETAILS, new, old)


def validate_topology_update(new: ObjectMeta, old: ObjectMeta) -> Errors:
    """A PodGroup cannot change its topology, because some of its pods may be placed already (upstream: the
    schedulingConstraints, which mean the same, are immutable)."""
    return _unchanged((REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY), new, old)


def _unchanged(keys: Iterable[str], new: ObjectMeta, old: ObjectMeta) -> Errors:
    return [
        invalid(_PATH.key(key), new.annotations.get(key), "field is immutable")
        for key in keys
        if new.annotations.get(key) != old.annotations.get(key)
    ]


# How Workloads and PodGroups are stored -------------------------------------------------------------------------------


MOST_TEMPLATES, MOST_CLAIMS = 8, 4

Part = TypeVar("Part", PodGroupSpec, PodGroupTemplate)
_UNUSED = {"scheduling_constraints": None, "disruption_mode": None, "priority_class_name": "", "priority": None}


def _without_disabled(new: Part, old: Part | None) -> Part:
    """Drop fields of features that are off, unless `old` has them."""
    dropped: dict[str, Any] = {
        name: unset for name, unset in _UNUSED.items() if old is None or getattr(old, name) == unset
    }
    if not gates.enabled(CLAIMS_GATE) and not (old is not None and old.resource_claims):
        dropped["resource_claims"] = ()
    return replace(new, **dropped)


def create_group(new: PodGroup) -> PodGroup:
    finalizers = tuple(dict.fromkeys((*new.metadata.finalizers, PROTECTION)))
    metadata = replace(new.metadata, finalizers=finalizers)
    return replace(new, metadata=metadata, spec=_without_disabled(new.spec, None), status=PodGroupStatus())


def update_group(new: PodGroup, old: PodGroup) -> PodGroup:
    return replace(new, spec=_without_disabled(new.spec, old.spec), status=old.status)


def update_group_status(new: PodGroup, old: PodGroup) -> PodGroup:
    status = new.status
    if not gates.enabled(CLAIMS_GATE) and not old.spec.resource_claims:
        status = replace(status, resource_claim_statuses=())
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=status)


def create_workload(new: PodWorkload) -> PodWorkload:
    return _workload(new, ())


def update_workload(new: PodWorkload, old: PodWorkload) -> PodWorkload:
    return _workload(new, old.spec.pod_group_templates)


def _workload(new: PodWorkload, old: Sequence[PodGroupTemplate]) -> PodWorkload:
    templates = tuple(
        _without_disabled(template, old[at] if at < len(old) else None)
        for at, template in enumerate(new.spec.pod_group_templates)
    )
    return replace(new, spec=replace(new.spec, pod_group_templates=templates))


# Rules of Workloads and PodGroups -------------------------------------------------------------------------------------


def validate_group(new: PodGroup) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True) + validate_topology(new.metadata)
    reference = new.spec.pod_group_template_ref
    if reference is not None:
        found += _validate_reference(reference, SPEC.child("podGroupTemplateRef"))
    found += _validate_policy(new.spec.scheduling_policy, SPEC.child("schedulingPolicy"))
    return found + _validate_claims(new.spec.resource_claims, SPEC.child("resourceClaims"))


def validate_group_update(new: PodGroup, old: PodGroup) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_topology_update(new.metadata, old.metadata)
    for name, shown in zip(PodGroupSpec.__struct_fields__, PodGroupSpec.__struct_encode_fields__, strict=True):
        found += _immutable(getattr(new.spec, name), getattr(old.spec, name), SPEC.child(shown))
    return found


def validate_group_status_update(new: PodGroup, old: PodGroup) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_conditions(new.status.conditions, STATUS.child("conditions"))
    path, names = STATUS.child("resourceClaimStatuses"), {claim.name for claim in new.spec.resource_claims}
    statuses = new.status.resource_claim_statuses
    for at, status in enumerate(statuses):
        if status.name not in names:
            message = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(path.at(at).child("name"), status.name, message))
    if statuses == old.status.resource_claim_statuses:
        return found
    if len(statuses) > MOST_CLAIMS:
        return [*found, too_many(path, len(statuses), MOST_CLAIMS)]

    def validate_status(status: PodGroupResourceClaimStatus, at: Path) -> Errors:
        return _validate_long_name(status.resource_claim_name, at.child("resourceClaimName"))

    return found + validate_set(statuses, path, validate_status, key=lambda one: one.name, shown=_whole)


def validate_workload(new: PodWorkload) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True)
    controller, templates = new.spec.controller_ref, new.spec.pod_group_templates
    if controller is not None:
        found += _validate_controller(controller, SPEC.child("controllerRef"))
    path = SPEC.child("podGroupTemplates")
    if not templates:
        return [*found, required(path)]
    return found + validate_set(
        templates, path, _validate_template, key=lambda one: one.name, maximum=MOST_TEMPLATES, shown=_whole
    )


def validate_workload_update(new: PodWorkload, old: PodWorkload) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += _immutable(new.spec.controller_ref, old.spec.controller_ref, SPEC.child("controllerRef"))
    path = SPEC.child("podGroupTemplates")
    return found + _immutable(new.spec.pod_group_templates, old.spec.pod_group_templates, path)


def _immutable(new: object, old: object, path: Path) -> Errors:
    """As upstream's declarative validation, which does not quote the value."""
    return [] if new == old else [invalid(path, None, "field is immutable")]


def _whole(item: Value) -> Value:
    """The value that an error about a duplicate quotes."""
    return item


def _validate_template(template: PodGroupTemplate, path: Path) -> Errors:
    found = required_or(check_dns_label, template.name, path.child("name"))
    found += _validate_policy(template.scheduling_policy, path.child("schedulingPolicy"))
    return found + _validate_claims(template.resource_claims, path.child("resourceClaims"))


def _validate_controller(reference: WorkloadController, path: Path) -> Errors:
    found: Errors = []
    if reference.api_group:
        found += required_or(check_dns_subdomain, reference.api_group, path.child("apiGroup"))
    found += required_or(_check_path_segment, reference.kind, path.child("kind"))
    return found + required_or(_check_path_segment, reference.name, path.child("name"))


def _check_path_segment(text: str) -> tuple[str, ...]:
    """Upstream: apimachinery/pkg/api/validation/path."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{wrong}'" for wrong in ("/", "%") if wrong in text)


def _validate_reference(reference: PodGroupTemplateReference, path: Path) -> Errors:
    workload = reference.workload
    if workload is None:
        return [invalid(path, "", "must specify one of: `workload`")]
    at = path.child("workload")
    found = required_or(check_dns_subdomain, workload.workload_name, at.child("workloadName"))
    return found + required_or(check_dns_label, workload.pod_group_template_name, at.child("podGroupTemplateName"))


def _validate_policy(policy: PodGroupSchedulingPolicy, path: Path) -> Errors:
    found = _one_of(path, {"basic": policy.basic, "gang": policy.gang})
    if policy.gang is not None:
        at, count = path.child("gang", "minCount"), policy.gang.min_count
        if not count:
            found.append(required(at))
        elif count < 1:
            found.append(invalid(at, count, "must be greater than or equal to 1"))
    return found


def _validate_claims(claims: Sequence[PodGroupResourceClaim], path: Path) -> Errors:
    return validate_set(claims, path, _validate_claim, key=lambda claim: claim.name, maximum=MOST_CLAIMS, shown=_whole)


def _validate_claim(claim: PodGroupResourceClaim, path: Path) -> Errors:
    named = {
        "resourceClaimName": claim.resource_claim_name,
        "resourceClaimTemplateName": claim.resource_claim_template_name,
    }
    found = _one_of(path, named) + required_or(check_dns_label, claim.name, path.child("name"))
    for field, name in named.items():
        found += _validate_long_name(name, path.child(field))
    return found


def _validate_long_name(name: str | None, path: Path) -> Errors:
    return [] if name is None else [invalid(path, name, message) for message in check_dns_subdomain(name)]


def _one_of(path: Path, members: Mapping[str, object]) -> Errors:
    """Upstream: apimachinery/pkg/api/validate/union.go."""
    given = [name for name, value in members.items() if value is not None]
    choices = ", ".join(f"`{name}`" for name in members)
    if not given:
        return [invalid(path, "", f"must specify one of: {choices}")]
    if len(given) > 1:
        return [invalid(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {choices}")]
    return []


# Columns --------------------------------------------------------------------------------------------------------------


def _state(group: PodGroup, _now: float = 0) -> str:
    disrupted = condition_of(group.status.conditions, DISRUPTION_TARGET)
    if disrupted is not None:
        return disrupted.reason
    if condition_of(group.status.conditions, SCHEDULED) is None:
        return "Pending"
    return "Scheduled" if is_scheduled(group) else "Unschedulable"


def _workload_name(group: PodGroup, _now: float = 0) -> str:
    reference = group.spec.pod_group_template_ref
    return reference.workload.workload_name if reference is not None and reference.workload is not None else "<none>"


_COLUMNS = (
    NAME_COLUMN,
    Column(
        name="Policy",
        description="How the pods of the group are scheduled",
        cell=lambda group, _now: "Gang" if group.spec.scheduling_policy.gang is not None else "Basic",
    ),
    Column(name="Workload", description="Name of the referenced Workload object", cell=_workload_name),
    Column(name="Status", description="Status of the PodGroup", cell=_state),
    AGE_COLUMN,
)


# Kinds ----------------------------------------------------------------------------------------------------------------


WORKLOAD = Kind(
    group=GROUP,
    version=VERSION,
    kind="Workload",
    plural="workloads",
    type=PodWorkload,
    prepare_create=create_workload,
    prepare_update=update_workload,
    validate_create=validate_workload,
    validate_update=validate_workload_update,
    columns=DEFAULT_COLUMNS,
    is_served=partial(gates.enabled, KINDS_GATE),
    description="Templates for the groups in which pods of an application are scheduled.",
)

POD_GROUP = Kind(
    group=GROUP,
    version=VERSION,
    plural="podgroups",
    type=PodGroup,
    prepare_create=create_group,
    prepare_update=update_group,
    validate_create=validate_group,
    validate_update=validate_group_update,
    subresources={
        "status": Subresource(prepare_update=update_group_status, validate_update=validate_group_status_update)
    },
    columns=_COLUMNS,
    is_served=partial(gates.enabled, KINDS_GATE),
    description="Pods that are scheduled with regard to each other.",
)

KINDS: tuple[Kind, ...] = (WORKLOAD, POD_GROUP)
