"""How Workloads and PodGroups are stored and checked, what is told of them in columns, and their kinds.

Sources: pkg/apis/scheduling/{validation,v1alpha2/zz_generated.validations.go},
pkg/registry/scheduling/{podgroup,workload}/strategy.go and pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from claims.kinds.disruption_budgets import DISRUPTION_TARGET
from claims.kinds.gangs import validate_topology, validate_topology_update
from claims.kinds.pod_groups import (
    CLAIMS_GATE,
    GROUP,
    KINDS_GATE,
    PROTECTION,
    SCHEDULED,
    VERSION,
    PodGroup,
    PodGroupResourceClaim,
    PodGroupResourceClaimStatus,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupStatus,
    PodGroupTemplate,
    PodGroupTemplateReference,
    PodWorkload,
    WorkloadController,
    is_scheduled,
)
from inventory.kinds import gates
from manciple.wire.base import Value, condition_of, status_metadata
from manciple.wire.errors import FieldError, invalid, required, too_many
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, DEFAULT_COLUMNS, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    check_dns_subdomain,
    required_or,
    validate_conditions,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

MOST_TEMPLATES, MOST_CLAIMS = 8, 4

Errors = list[FieldError]

# How they are stored --------------------------------------------------------------------------------------------------


Part = TypeVar("Part", PodGroupSpec, PodGroupTemplate)
_UNUSED = {"scheduling_constraints": None, "disruption_mode": None, "priority_class_name": "", "priority": None}


def _without_disabled(new: Part, old: Part | None) -> Part:
    """Without what features that are off would add to `old`."""
    dropped: dict[str, Any] = {
        name: none for name, none in _UNUSED.items() if old is None or getattr(old, name) == none
    }
    if not gates.enabled(CLAIMS_GATE) and not (old is not None and old.resource_claims):
        dropped["resource_claims"] = ()
    return replace(new, **dropped)


def create_group(new: PodGroup) -> PodGroup:
    kept = tuple(dict.fromkeys((*new.metadata.finalizers, PROTECTION)))
    metadata = replace(new.metadata, finalizers=kept)
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


# Validation -----------------------------------------------------------------------------------------------------------


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
    path, known = STATUS.child("resourceClaimStatuses"), {one.name for one in new.spec.resource_claims}
    statuses = new.status.resource_claim_statuses
    for at, status in enumerate(statuses):
        if status.name not in known:
            message = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(path.at(at).child("name"), status.name, message))
    if statuses == old.status.resource_claim_statuses:
        return found
    if len(statuses) > MOST_CLAIMS:
        return [*found, too_many(path, len(statuses), MOST_CLAIMS)]
    return found + validate_set(statuses, path, _validate_claim_status, key=lambda one: one.name, shown=_whole)


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
    """What declarative validation says of it upstream: the value is not told."""
    return [] if new == old else [invalid(path, None, "field is immutable")]


def _whole(item: Value) -> Value:
    """What is said to be there twice."""
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


def _validate_claim_status(status: PodGroupResourceClaimStatus, path: Path) -> Errors:
    return _validate_long_name(status.resource_claim_name, path.child("resourceClaimName"))


def _validate_long_name(name: str | None, path: Path) -> Errors:
    return [] if name is None else [invalid(path, name, message) for message in check_dns_subdomain(name)]


def _one_of(path: Path, members: Mapping[str, object]) -> Errors:
    """Upstream: apimachinery/pkg/api/validate/union.go."""
    given, known = [name for name, value in members.items() if value is not None], ", ".join(f"`{m}`" for m in members)
    if not given:
        return [invalid(path, "", f"must specify one of: {known}")]
    if len(given) > 1:
        return [invalid(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {known}")]
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
