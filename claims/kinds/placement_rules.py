"""Rules of where a pod may run: affinity, tolerations, spreading.

Source: pkg/apis/core/validation/validation.go (validateAffinity, ValidateTolerations,
validateTopologySpreadConstraints) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from claims.kinds.affinity import (
    Affinity,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    Toleration,
    TopologySpreadConstraint,
)
from inventory.kinds.node_rules import TAINT_EFFECTS
from inventory.kinds.node_selector_rules import validate_node_selector, validate_node_selector_term
from manciple.wire import names
from manciple.wire.conditions import LabelSelector
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.validation import Path, each, required_or, validate_labels, validate_list

TOLERATION_OPERATORS = ("Equal", "Exists")
UNSATISFIABLE_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
WEIGHT_MAX = 100

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Errors = list[FieldError]


def validate_affinity(affinity: Affinity | None, path: Path) -> Errors:
    if affinity is None:
        return []
    found: Errors = []
    if affinity.node_affinity is not None:
        found += _validate_node_affinity(affinity.node_affinity, path.child("nodeAffinity"))
    if affinity.pod_affinity is not None:
        found += _validate_pod_affinity(affinity.pod_affinity, path.child("podAffinity"))
    if affinity.pod_anti_affinity is not None:
        found += _validate_pod_affinity(affinity.pod_anti_affinity, path.child("podAntiAffinity"))
    return found


def _validate_node_affinity(affinity: NodeAffinity, path: Path) -> Errors:
    found: Errors = []
    if affinity.required_during_scheduling_ignored_during_execution is not None:
        selector = affinity.required_during_scheduling_ignored_during_execution
        found += validate_node_selector(selector, path.child(_REQUIRED))
    for position, term in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = path.child(_PREFERRED).at(position)
        found += _validate_weight(term.weight, at.child("weight"))
        found += validate_node_selector_term(term.preference, at.child("preference"))
    return found


def _validate_pod_affinity(affinity: PodAffinity | PodAntiAffinity, path: Path) -> Errors:
    terms = affinity.required_during_scheduling_ignored_during_execution
    found = validate_list(terms, path.child(_REQUIRED), _validate_pod_affinity_term)
    for position, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = path.child(_PREFERRED).at(position)
        found += _validate_weight(weighted.weight, at.child("weight"))
        found += _validate_pod_affinity_term(weighted.pod_affinity_term, at.child("podAffinityTerm"))
    return found


def _validate_weight(weight: int, path: Path) -> Errors:
    return [] if 1 <= weight <= WEIGHT_MAX else [invalid(path, weight, f"must be in the range 1-{WEIGHT_MAX}")]


def _validate_pod_affinity_term(term: PodAffinityTerm, path: Path) -> Errors:
    found = validate_label_selector(term.label_selector, path.child("labelSelector"))
    found += validate_label_selector(term.namespace_selector, path.child("namespaceSelector"))
    for position, namespace in enumerate(term.namespaces):
        found += each(names.check_dns_label(namespace), path.child("namespaces").at(position), namespace)
    if not term.topology_key:
        found.append(required(path.child("topologyKey"), "can not be empty"))
    return found + each(names.check_label_key(term.topology_key), path.child("topologyKey"), term.topology_key)


def validate_label_selector(selector: LabelSelector | None, path: Path) -> Errors:
    """metav1.LabelSelector (upstream: ValidateLabelSelector)."""
    if selector is None:
        return []
    found = validate_labels(selector.match_labels, path.child("matchLabels"))
    for position, requirement in enumerate(selector.match_expressions):
        at = path.child("matchExpressions").at(position)
        values = at.child("values")
        found += each(names.check_label_key(requirement.key), at.child("key"), requirement.key)
        if requirement.operator in ("In", "NotIn"):
            missing = required(values, "must be specified when `operator` is 'In' or 'NotIn'")
            found += [] if requirement.values else [missing]
        elif requirement.operator in ("Exists", "DoesNotExist"):
            extra = forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            found += [extra] if requirement.values else []
        else:
            found.append(invalid(at.child("operator"), requirement.operator, "not a valid selector operator"))
        for index, value in enumerate(requirement.values):
            found += each(names.check_label_value(value), values.at(index), value)
    return found


def validate_tolerations(tolerations: Sequence[Toleration], path: Path) -> Errors:
    return validate_list(tolerations, path, _validate_toleration)


def _validate_toleration(toleration: Toleration, path: Path) -> Errors:
    key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
    at = path.child("operator")
    found = each(names.check_label_key(key), path.child("key"), key) if key else []
    if not key and operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(invalid(at, operator, message))
    if toleration.toleration_seconds is not None and effect != "NoExecute":
        found.append(
            invalid(path.child("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        )
    if operator in ("", "Equal"):
        found += each(names.check_label_value(value), at, value)
    elif operator == "Exists":
        found += [invalid(at, toleration, "value must be empty when `operator` is 'Exists'")] if value else []
    else:
        found.append(not_supported(at, operator, TOLERATION_OPERATORS))
    if effect and effect not in TAINT_EFFECTS:
        found.append(not_supported(path.child("effect"), effect, TAINT_EFFECTS))
    return found


def validate_spreading(constraints: Sequence[TopologySpreadConstraint], path: Path) -> Errors:
    return validate_list(constraints, path, _validate_spread)


def _validate_spread(constraint: TopologySpreadConstraint, path: Path) -> Errors:
    found: Errors = []
    if constraint.max_skew <= 0:
        found.append(invalid(path.child("maxSkew"), constraint.max_skew, "must be greater than zero"))
    found += required_or(names.check_label_key, constraint.topology_key, path.child("topologyKey"))
    if constraint.when_unsatisfiable not in UNSATISFIABLE_ACTIONS:
        action = constraint.when_unsatisfiable
        found.append(not_supported(path.child("whenUnsatisfiable"), action, UNSATISFIABLE_ACTIONS))
    if constraint.min_domains is not None and constraint.min_domains <= 0:
        found.append(invalid(path.child("minDomains"), constraint.min_domains, "must be greater than zero"))
    return found + validate_label_selector(constraint.label_selector, path.child("labelSelector"))
