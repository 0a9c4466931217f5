"""Rules of a new Pod. Updates are in `pod_update_rules`, statuses in `pod_status_rules`.

Containers are in `container_rules`, where it may run in `placement_rules`. Source: pkg/apis/core/validation
(ValidatePodSpec, ValidatePodUpdate, ValidatePodStatusUpdate) of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from claims.drafts.cdi.rules import validate_pod_resources as validate_draft_resources
from claims.kinds.container_rules import Surroundings, validate_containers
from claims.kinds.containers import ResourceRequirements
from claims.kinds.gangs import ANNOTATIONS, validate_gang
from claims.kinds.network_rules import validate_network
from claims.kinds.placement_rules import (
    validate_affinity,
    validate_spreading,
)
from claims.kinds.pod_limits import validate_size
from claims.kinds.pod_resources import resources_of, validate_pod_resources, validate_resources
from claims.kinds.pod_strategy import uses_draft
from claims.kinds.pods import Pod, PodResourceClaim, PodSpec, Toleration
from claims.kinds.references import MIRROR
from claims.kinds.security_context_rules import (
    has_profile_annotations,
    is_app_armor,
    is_for_windows,
    validate_pod_security,
    validate_profile_annotations,
    validate_profiles_match,
    validate_system,
)
from claims.kinds.volume_rules import validate_volumes
from inventory.kinds import gates
from inventory.kinds.node_rules import TAINT_EFFECTS
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.validation import (
    METADATA,
    SPEC,
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


RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")
TOLERATION_OPERATORS = ("Equal", "Exists")
SECONDS_MAX = 2**31 - 1
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def validate_pod(pod: Pod) -> Errors:
    if too_large := validate_size(pod.spec):
        return too_large
    found = validate_object_meta(pod.metadata, namespaced=True) + validate_spec(pod.spec, pod.metadata)
    if pod.spec.ephemeral_containers:
        found.append(forbidden(SPEC.child("ephemeralContainers"), "cannot be set on create"))
    if pod.spec.scheduling_gates and pod.spec.node_name:
        found.append(forbidden(SPEC.child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
    if pod.metadata.annotations:
        found += _validate_annotations(pod)
        if has_profile_annotations(pod.metadata.annotations):
            found += validate_profiles_match(pod.metadata.annotations, pod.spec)
    if not ANNOTATIONS.isdisjoint(pod.metadata.annotations):
        found += validate_gang(pod.metadata)
    return found + validate_draft_resources(pod) if uses_draft(pod.spec) else found


def _validate_annotations(pod: Pod) -> Errors:
    path, annotations = METADATA.child("annotations"), pod.metadata.annotations
    found: Errors = []
    if MIRROR in annotations and not pod.spec.node_name:
        message = "must set spec.nodeName if mirror pod annotation is set"
        found.append(invalid(path.key(MIRROR), annotations[MIRROR], message))
    if not _is_cost(annotations.get(DELETION_COST, "0")):
        found.append(invalid(path.key(DELETION_COST), annotations[DELETION_COST], "must be a 32bit integer"))
    if has_profile_annotations(annotations):
        found += validate_profile_annotations(annotations, pod.spec)
    return found


def _is_cost(text: str) -> bool:
    return re.fullmatch(r"0|-?[1-9][0-9]{0,9}", text) is not None and -(2**31) <= int(text) < 2**31


def validate_spec(spec: PodSpec, metadata: ObjectMeta) -> Errors:
    volumes, found = validate_volumes(spec, metadata)
    claim_names = frozenset(claim.name for claim in spec.resource_claims if claim.name)
    found += _validate_claims(spec.resource_claims)
    named = {volume.name: volume for volume in spec.volumes}
    found += validate_containers(Surroundings(spec=spec, claim_names=claim_names, volumes=volumes, any_volumes=named))
    if (resources := resources_of(spec)) is not None and not is_for_windows(spec):
        found += validate_pod_resources(spec, resources, claim_names)
    found += _validate_choices(spec)
    found += validate_network(spec)
    found += validate_pod_security(spec)
    found += validate_system(spec)
    found += _validate_names(spec)
    found += _validate_gates(spec)
    if spec.affinity is not None:
        found += validate_affinity(spec.affinity, SPEC.child("affinity"))
    found += validate_tolerations(spec.tolerations, SPEC.child("tolerations"))
    if spec.topology_spread_constraints:
        found += validate_spreading(spec.topology_spread_constraints, SPEC.child("topologySpreadConstraints"))
    if spec.overhead:
        found += validate_resources(ResourceRequirements(limits=spec.overhead), SPEC.child("overhead"), claim_names)
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


def _validate_claims(claims: Sequence[PodResourceClaim]) -> Errors:
    seen: set[str] = set()

    def validate_claim(claim: PodResourceClaim, path: Path) -> Errors:
        at = path.child("name")
        if claim.name in seen:
            return [duplicate(at, claim.name), *_validate_claim_source(claim, path)]
        seen.add(claim.name)
        found = required_or(check_dns_label, claim.name, at)
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


def _validate_choices(spec: PodSpec) -> Errors:
    choices: tuple[tuple[str, str | None, Sequence[str]], ...] = (
        ("restartPolicy", spec.restart_policy, RESTART_POLICIES),
        ("dnsPolicy", spec.dns_policy, DNS_POLICIES),
        ("preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES),
    )
    return [
        not_supported(SPEC.child(field), value, supported) if value else required(SPEC.child(field))
        for field, value, supported in choices
        if value is not None and value not in supported
    ]


def _validate_names(spec: PodSpec) -> Errors:
    subdomains = (
        ("serviceAccountName", spec.service_account_name),
        ("nodeName", spec.node_name),
        ("priorityClassName", spec.priority_class_name),
        ("runtimeClassName", spec.runtime_class_name or ""),
    )
    found: Errors = []
    for field, name in subdomains:
        found += each(check_dns_subdomain(name), SPEC.child(field), name) if name else []
    return found + validate_labels(spec.node_selector, SPEC.child("nodeSelector"))


def _validate_gates(spec: PodSpec) -> Errors:
    def validate_gate(name: str, path: Path) -> Errors:
        return each(check_label_key(name), path, name)

    gates = tuple(gate.name for gate in spec.scheduling_gates)
    conditions = spec.readiness_gates
    found = validate_set(gates, SPEC.child("schedulingGates"), validate_gate, key=str)
    return found + validate_list(
        conditions,
        SPEC.child("readinessGates"),
        lambda gate, path: validate_gate(gate.condition_type, path.child("conditionType")),
    )


def _validate_seconds(spec: PodSpec) -> Errors:
    deadline = spec.active_deadline_seconds
    if deadline is None or 1 <= deadline <= SECONDS_MAX:
        return []
    message = f"must be between 1 and {SECONDS_MAX}, inclusive"
    return [invalid(SPEC.child("activeDeadlineSeconds"), deadline, message)]


def validate_pod_meta_update(new: Pod, old: Pod) -> Errors:
    """Drains leave mirror pods alone, so no pod becomes one later; a profile of AppArmor stays what it was."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    before, after = old.metadata.annotations, new.metadata.annotations
    if before == after:
        return found
    for key in sorted(before.keys() | after.keys()):
        what = "add" if key not in before else "remove or update"
        kind = "mirror pod annotation" if key == MIRROR else "AppArmor annotations" if is_app_armor(key) else ""
        if kind and before.get(key) != after.get(key):
            found.append(forbidden(METADATA.child("annotations").key(key), f"may not {what} {kind}"))
    if not _is_cost(before.get(DELETION_COST, "0")):  # stored before updates were checked
        kept = {key: value for key, value in after.items() if key != DELETION_COST}
        new = replace(new, metadata=replace(new.metadata, annotations=kept))
    return found + _validate_annotations(new)
