"""Rules of Pod: a new one, an update, a status.

Containers are in `container_rules`, where it may run in `placement_rules`. Source: pkg/apis/core/validation
(ValidatePodSpec, ValidatePodUpdate, ValidatePodStatusUpdate) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from claims.drafts.cdi.rules import validate_pod_resources
from claims.kinds.container_rules import Surroundings, validate_containers
from claims.kinds.containers import Container
from claims.kinds.gangs import ANNOTATIONS, validate_gang, validate_gang_update
from claims.kinds.node_charges import validate_node_charges
from claims.kinds.placement_rules import (
    validate_affinity,
    validate_narrowed,
    validate_spreading,
    with_node_affinity_of,
)
from claims.kinds.pod_limits import validate_size
from claims.kinds.pod_preparation import uses_draft
from claims.kinds.pods import ContainerStatus, Pod, PodResourceClaim, PodSpec, PodStatus, Toleration
from claims.kinds.source_rules import validate_source
from claims.kinds.volumes import Volume, VolumeSource
from inventory.kinds import gates
from inventory.kinds.node_rules import TAINT_EFFECTS
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import FieldError, duplicate, forbidden, immutable, invalid, not_supported, required
from manciple.wire.quantity import read_amounts
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_label_key,
    check_label_value,
    each,
    required_or,
    validate_labels,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

Errors = list[FieldError]

# New pods -------------------------------------------------------------------------------------------------------------


RESTART_POLICIES = ("Always", "Never", "OnFailure")
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")
SYSTEMS = ("linux", "windows")
TOLERATION_OPERATORS = ("Equal", "Exists")
PHASES = ("Failed", "Pending", "Running", "Succeeded", "Unknown")
SECONDS_MAX = 2**31 - 1

_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Pod) -> Errors:
    if too_large := validate_size(pod.spec):
        return too_large
    found = validate_object_meta(pod.metadata, namespaced=True) + _validate_spec(pod.spec, pod.metadata)
    if not ANNOTATIONS.isdisjoint(pod.metadata.annotations):
        found += validate_gang(pod.metadata)
    return found + validate_pod_resources(pod) if uses_draft(pod.spec) else found


def _validate_spec(spec: PodSpec, metadata: ObjectMeta) -> Errors:
    around = Surroundings(
        claim_names=frozenset(claim.name for claim in spec.resource_claims),
        volume_names=frozenset(volume.name for volume in spec.volumes),
    )
    taken: set[str] = set()
    found = _validate_volumes(spec)
    found += _validate_claims(spec.resource_claims, metadata)
    if not spec.containers:
        found.append(required(SPEC.child("containers")))
    found += validate_containers(spec.containers, SPEC.child("containers"), around, taken=taken)
    found += validate_containers(spec.init_containers, SPEC.child("initContainers"), around, taken=taken)
    found += _validate_choices(spec)
    found += _validate_os(spec)
    found += _validate_names(spec)
    found += _validate_gates(spec)
    if spec.affinity is not None:
        found += validate_affinity(spec.affinity, SPEC.child("affinity"))
    found += validate_tolerations(spec.tolerations, SPEC.child("tolerations"))
    if spec.topology_spread_constraints:
        found += validate_spreading(spec.topology_spread_constraints, SPEC.child("topologySpreadConstraints"))
    found += read_amounts(spec.overhead, SPEC.child("overhead"))[1]
    found += _validate_group(spec)
    return found + _validate_seconds(spec)


def validate_tolerations(tolerations: Sequence[Toleration], path: Path) -> Errors:
    return validate_list(tolerations, path, _validate_toleration)


def _validate_toleration(toleration: Toleration, path: Path) -> Errors:
    key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
    at = path.child("operator")
    found = each(check_label_key(key), path.child("key"), key) if key else []
    if not key and operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(invalid(at, operator, message))
    if toleration.toleration_seconds is not None and effect != "NoExecute":
        found.append(
            invalid(path.child("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        )
    if operator in ("", "Equal"):
        found += each(check_label_value(value), at, value)
    elif operator == "Exists":
        found += [invalid(at, toleration, "value must be empty when `operator` is 'Exists'")] if value else []
    else:
        found.append(not_supported(at, operator, TOLERATION_OPERATORS))
    if effect and effect not in TAINT_EFFECTS:
        found.append(not_supported(path.child("effect"), effect, TAINT_EFFECTS))
    return found


def _validate_group(spec: PodSpec) -> Errors:
    """With its gate off it is dropped, or was checked when it was on."""
    if spec.scheduling_group is None or not gates.enabled("GenericWorkload"):
        return []
    path, name = SPEC.child("schedulingGroup", "podGroupName"), spec.scheduling_group.pod_group_name
    if name is None:
        return [invalid(path, None, "must specify one of: `podGroupName`")]
    return each(check_dns_subdomain(name), path, name)


def _validate_volumes(spec: PodSpec) -> Errors:
    has_account = bool(spec.service_account_name)
    return validate_set(
        spec.volumes,
        SPEC.child("volumes"),
        lambda volume, path: _validate_volume(volume, path) + validate_source(volume, path, has_account=has_account),
        key=lambda volume: volume.name,
    )


def _validate_volume(volume: Volume, path: Path) -> Errors:
    found = required_or(check_dns_label, volume.name, path.child("name"))
    pairs = zip(VolumeSource.__struct_fields__, VolumeSource.__struct_encode_fields__, strict=True)
    sources = [shown for name, shown in pairs if getattr(volume, name) is not None]
    if not sources:
        found.append(required(path, "must specify a volume type"))
    elif len(sources) > 1:
        found.append(forbidden(path.child(sources[-1]), "may not specify more than 1 volume type"))
    if volume.host_path is not None and not volume.host_path.path:
        found.append(required(path.child("hostPath", "path")))
    return found


def _validate_claims(claims: Sequence[PodResourceClaim], metadata: ObjectMeta) -> Errors:
    seen: set[str] = set()

    def validate_claim(claim: PodResourceClaim, path: Path) -> Errors:
        at = path.child("name")
        if claim.name in seen:
            return [duplicate(at, claim.name), *_validate_claim_source(claim, path)]
        seen.add(claim.name)
        found = required_or(check_dns_label, claim.name, at)
        if not found and metadata.name and claim.resource_claim_template_name is not None:
            final = f"{metadata.name}-{claim.name}"
            found += [invalid(at, final, f"final ResourceClaim name: {m}") for m in check_dns_subdomain(final)]
        return found + _validate_claim_source(claim, path)

    return validate_list(claims, SPEC.child("resourceClaims"), validate_claim)


def _validate_claim_source(claim: PodResourceClaim, path: Path) -> Errors:
    claim_name, template_name = claim.resource_claim_name, claim.resource_claim_template_name
    found: Errors = []
    if claim_name is not None and template_name is not None:
        message = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        found.append(invalid(path, claim, message))
    if claim_name is None and template_name is None:
        found.append(invalid(path, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
    for field, name in (("resourceClaimName", claim_name), ("resourceClaimTemplateName", template_name)):
        found += [] if name is None else each(check_dns_subdomain(name), path.child(field), name)
    return found


def _validate_os(spec: PodSpec) -> Errors:
    """Which system the pod's images are for; its node looks at that."""
    path = SPEC.child("os")
    if spec.os is None or spec.os.name in SYSTEMS:
        return []
    if not spec.os.name:
        return [required(path.child("name"), "cannot be empty")]
    return [not_supported(path, spec.os.name, SYSTEMS)]


def _validate_choices(spec: PodSpec) -> Errors:
    choices: tuple[tuple[str, str | None, Sequence[str]], ...] = (
        ("restartPolicy", spec.restart_policy, RESTART_POLICIES),
        ("dnsPolicy", spec.dns_policy, DNS_POLICIES),
        ("preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES),
    )
    return [
        not_supported(SPEC.child(field), value, supported)
        for field, value, supported in choices
        if value is not None and value not in supported
    ]


def _validate_names(spec: PodSpec) -> Errors:
    subdomains = (
        ("serviceAccountName", spec.service_account_name),
        ("nodeName", spec.node_name),
        ("schedulerName", spec.scheduler_name),
        ("priorityClassName", spec.priority_class_name),
        ("runtimeClassName", spec.runtime_class_name or ""),
    )
    found: Errors = []
    for field, name in subdomains:
        found += each(check_dns_subdomain(name), SPEC.child(field), name) if name else []
    for field, name in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        found += each(check_dns_label(name), SPEC.child(field), name) if name else []
    for position, secret in enumerate(spec.image_pull_secrets):
        found += [] if secret.name else [required(SPEC.child("imagePullSecrets").at(position).child("name"))]
    return found + validate_labels(spec.node_selector, SPEC.child("nodeSelector"))


def _validate_gates(spec: PodSpec) -> Errors:
    def validate_gate(name: str, path: Path) -> Errors:
        return each(check_label_key(name), path, name)

    gates = tuple(gate.name for gate in spec.scheduling_gates)
    conditions = tuple(gate.condition_type for gate in spec.readiness_gates)
    found = validate_set(gates, SPEC.child("schedulingGates"), validate_gate, key=str)
    if gates and spec.node_name:
        found.append(forbidden(SPEC.child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
    return found + validate_list(conditions, SPEC.child("readinessGates"), validate_gate)


def _validate_seconds(spec: PodSpec) -> Errors:
    deadline = spec.active_deadline_seconds
    if deadline is None or 1 <= deadline <= SECONDS_MAX:
        return []
    message = f"must be between 1 and {SECONDS_MAX}, inclusive"
    return [invalid(SPEC.child("activeDeadlineSeconds"), deadline, message)]


# Updates -------------------------------------------------------------------------------------------------------------


def validate_pod_update(new: Pod, old: Pod) -> Errors:
    """Little of a pod may change: images, more tolerations, a shorter deadline, fewer scheduling gates."""
    if new.spec != old.spec and (too_large := validate_size(new.spec)):
        return too_large
    found = validate_object_meta_update(new.metadata, old.metadata)
    if not ANNOTATIONS.isdisjoint({*new.metadata.annotations, *old.metadata.annotations}):
        found += validate_gang_update(new.metadata, old.metadata)
    found += _validate_spec(new.spec, new.metadata)
    if containers := _validate_same_containers(new.spec, old.spec):
        return found + containers
    found += _validate_deadline_update(new.spec, old.spec)
    found += _validate_gates_update(new.spec, old.spec)
    found += _validate_tolerations_update(new.spec, old.spec)
    if old.spec.scheduling_gates:
        before, after = (one.affinity.node_affinity if one.affinity else None for one in (old.spec, new.spec))
        found += validate_narrowed(after, before, SPEC.child("affinity").child("nodeAffinity"))
    changed = _changed_fields(_with_liberties(new.spec, old.spec), old.spec)
    if changed:
        found.append(forbidden(SPEC, f"{_UPDATE_RULE}; changed: {', '.join(changed)}"))
    return found


def _changed_fields(new: PodSpec, old: PodSpec) -> list[str]:
    """Field names as they stand in JSON."""
    pairs = zip(PodSpec.__struct_fields__, PodSpec.__struct_encode_fields__, strict=True)
    return [shown for name, shown in pairs if getattr(new, name) != getattr(old, name)]


def _with_liberties(new: PodSpec, old: PodSpec) -> PodSpec:
    """`new` with everything that may change as it was in `old`; what then differs is forbidden."""
    same = replace(
        new,
        containers=_with_images(new.containers, old.containers),
        init_containers=_with_images(new.init_containers, old.init_containers),
        active_deadline_seconds=old.active_deadline_seconds,
        scheduling_gates=old.scheduling_gates,
        tolerations=old.tolerations,
    )
    grace = old.termination_grace_period_seconds
    if grace is not None and grace < 0 and new.termination_grace_period_seconds == 1:
        same = replace(same, termination_grace_period_seconds=grace)
    if old.scheduling_gates:  # a gated pod may still be directed to fewer nodes
        narrowed = old.node_selector.items() <= new.node_selector.items()
        same = replace(same, node_selector=old.node_selector if narrowed else new.node_selector)
        same = replace(same, affinity=with_node_affinity_of(old.affinity, new.affinity))
    return same


def _with_images(new: Sequence[Container], old: Sequence[Container]) -> tuple[Container, ...]:
    return tuple(replace(after, image=before.image) for after, before in zip(new, old, strict=True))


def _validate_same_containers(new: PodSpec, old: PodSpec) -> Errors:
    """As many as before; where not, nothing else that changed is worth telling."""
    counts = (
        ("containers", len(new.containers), len(old.containers)),
        ("initContainers", len(new.init_containers), len(old.init_containers)),
    )
    for field, after, before in counts:
        if after != before:
            return [forbidden(SPEC.child(field), "pod updates may not add or remove containers")]
    return []


def _validate_tolerations_update(new: PodSpec, old: PodSpec) -> Errors:
    """More may come, and those that are there may last for another time."""

    def untimed(spec: PodSpec) -> set[Toleration]:
        return {replace(toleration, toleration_seconds=None) for toleration in spec.tolerations}

    if untimed(old) <= untimed(new):
        return []
    message = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden(SPEC.child("tolerations"), message)]


def _validate_deadline_update(new: PodSpec, old: PodSpec) -> Errors:
    path, before, after = SPEC.child("activeDeadlineSeconds"), old.active_deadline_seconds, new.active_deadline_seconds
    if before is None or before == after:
        return []
    if after is None:
        return [invalid(path, after, "must not update from a positive integer to nil value")]
    if after > before:
        return [invalid(path, after, "must be less than or equal to previous value")]
    return []


def _validate_gates_update(new: PodSpec, old: PodSpec) -> Errors:
    known = {gate.name for gate in old.scheduling_gates}
    extra = [gate.name for gate in new.scheduling_gates if gate.name not in known]
    if not extra:
        return []
    message = f"only deletion is allowed, but found new scheduling gates {', '.join(extra)}"
    return [forbidden(SPEC.child("schedulingGates"), message)]


# Status --------------------------------------------------------------------------------------------------------------


def validate_pod_status_update(new: Pod, old: Pod) -> Errors:
    """What a node agent may report: a known phase, claims that the pod has, and no container risen from the dead."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    status = new.status
    if status.phase and status.phase not in PHASES:
        found.append(not_supported(STATUS.child("phase"), status.phase, PHASES))
    if status.nominated_node_name:
        path = STATUS.child("nominatedNodeName")
        found += each(check_dns_subdomain(status.nominated_node_name), path, status.nominated_node_name)
    if old.status.qos_class and status.qos_class != old.status.qos_class:
        found.append(immutable(STATUS.child("qosClass"), status.qos_class))
    found += _validate_claim_statuses(new)
    if status.node_allocatable_resource_claim_statuses:
        found += validate_node_charges(new)
    never_again = old.spec.restart_policy
    for field, after, before in (
        ("containerStatuses", status.container_statuses, old.status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses, old.status.init_container_statuses),
    ):
        found += _validate_endings(after, before, STATUS.child(field), restart_policy=never_again)
    return found


def _validate_claim_statuses(pod: Pod) -> Errors:
    known = {claim.name for claim in pod.spec.resource_claims}
    path = STATUS.child("resourceClaimStatuses")
    found: Errors = []
    for position, one in enumerate(pod.status.resource_claim_statuses):
        at = path.at(position)
        if one.name not in known:
            message = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(at.child("name"), one.name, message))
        if one.resource_claim_name is not None:
            messages = check_dns_subdomain(one.resource_claim_name)
            found += each(messages, at.child("resourceClaimName"), one.resource_claim_name)
    return found + _validate_unique_claim_statuses(pod.status, path)


def _validate_unique_claim_statuses(status: PodStatus, path: Path) -> Errors:
    seen: set[str] = set()
    found: Errors = []
    for position, one in enumerate(status.resource_claim_statuses):
        if one.name in seen:
            found.append(duplicate(path.at(position).child("name"), one.name))
        seen.add(one.name)
    return found


def _validate_endings(
    new: Sequence[ContainerStatus], old: Sequence[ContainerStatus], path: Path, *, restart_policy: str
) -> Errors:
    """Where containers are not restarted, a terminated one stays so (upstream: ValidateContainerStateTransition)."""
    if restart_policy == "Always":
        return []
    ended = {
        status.name
        for status in old
        if status.state.terminated is not None and (restart_policy == "Never" or status.state.terminated.exit_code == 0)
    }
    message = "may not be transitioned to non-terminated state"
    return [
        forbidden(path.at(position).child("state"), message)
        for position, status in enumerate(new)
        if status.name in ended and status.state.terminated is None
    ]
