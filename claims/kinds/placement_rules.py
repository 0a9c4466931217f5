"""What a pod asks of its place beside others: rules of affinity and of spreading, and the label keys of a new pod.

A term of affinity, and a constraint of spreading, may say of some labels that the pods it means have the value that the
pod itself has. In a new pod that becomes a part of the term's selector, so it is about the labels that the pod was made
with.
Source: pkg/apis/core/validation (validateAffinity, validateTopologySpreadConstraints),
pkg/registry/core/pod/strategy.go (applyMatchLabelKeysAndMismatchLabelKeys) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from claims.kinds.pods import (
    Affinity,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodSpec,
    TopologySpreadConstraint,
)
from inventory.kinds.node_rules import validate_node_selector, validate_node_selector_term
from inventory.kinds.nodes import NodeSelectorTerm
from manciple.wire.base import LabelSelector, LabelSelectorRequirement
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.selectors import validate_label_selector
from manciple.wire.validation import (
    Path,
    check_dns_label,
    check_label_key,
    each,
    validate_list,
)

DO_NOT_SCHEDULE = "DoNotSchedule"
UNSATISFIABLE_ACTIONS = (DO_NOT_SCHEDULE, "ScheduleAnyway")
INCLUSION_POLICIES = ("Honor", "Ignore")
WEIGHT_MAX = 100

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Errors = list[FieldError]

# Rules ----------------------------------------------------------------------------------------------------------------


def validate_affinity(affinity: Affinity, path: Path) -> Errors:
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
        found += validate_node_selector(selector, path.child(_REQUIRED), in_full=False)
    for position, term in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = path.child(_PREFERRED).at(position)
        found += _validate_weight(term.weight, at.child("weight"))
        found += validate_node_selector_term(term.preference, at.child("preference"), in_full=False, any_value=True)
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
    for namespace in term.namespaces:
        found += each(check_dns_label(namespace), path.child("namespace"), namespace)
    same, other = path.child("matchLabelKeys"), path.child("mismatchLabelKeys")
    found += _validate_label_keys(term.match_label_keys, term.label_selector, same)
    found += _validate_label_keys(term.mismatch_label_keys, term.label_selector, other)
    found += _validate_chosen_once(term.match_label_keys, term.label_selector, path)
    others = set(term.mismatch_label_keys)
    found += [
        invalid(same.at(position), key, "exists in both matchLabelKeys and mismatchLabelKeys")
        for position, key in enumerate(term.match_label_keys)
        if key in others
    ]
    if not term.topology_key:
        found.append(required(path.child("topologyKey"), "can not be empty"))
    return found + each(check_label_key(term.topology_key), path.child("topologyKey"), term.topology_key)


def _validate_label_keys(keys: Sequence[str], selector: LabelSelector | None, path: Path) -> Errors:
    if keys and selector is None:
        return [forbidden(path, "must not be specified when labelSelector is not set")]
    return [error for position, key in enumerate(keys) for error in each(check_label_key(key), path.at(position), key)]


def _validate_chosen_once(keys: Sequence[str], selector: LabelSelector | None, path: Path) -> Errors:
    """The selector has each of `keys` once, from `with_label_keys`; the pod's own selector must not name it as well.

    path: of the term; the reference leaves the field of the keys out of it.
    """
    if selector is None:
        return []
    chosen = Counter((*selector.match_labels, *(one.key for one in selector.match_expressions)))
    return [
        invalid(path.at(position), key, "exists in both matchLabelKeys and labelSelector")
        for position, key in enumerate(keys)
        if chosen[key] > 1
    ]


def validate_spreading(constraints: Sequence[TopologySpreadConstraint], path: Path) -> Errors:
    found = validate_list(constraints, path, _validate_spread)
    kinds = [(one.topology_key, one.when_unsatisfiable) for one in constraints]
    left = Counter(kinds)
    for position, one in enumerate(kinds):
        left[one] -= 1
        if left[one]:
            at = path.at(position).child("{topologyKey, whenUnsatisfiable}")
            found.append(duplicate(at, f"{{{one[0]}, {one[1]}}}"))
    return found


def _validate_spread(constraint: TopologySpreadConstraint, path: Path) -> Errors:
    found: Errors = []
    if constraint.max_skew <= 0:
        found.append(invalid(path.child("maxSkew"), constraint.max_skew, "must be greater than zero"))
    if not constraint.topology_key:
        found.append(required(path.child("topologyKey"), "can not be empty"))
    action, fewest = constraint.when_unsatisfiable, constraint.min_domains
    if action not in UNSATISFIABLE_ACTIONS:
        found.append(not_supported(path.child("whenUnsatisfiable"), action, UNSATISFIABLE_ACTIONS))
    if fewest is not None and fewest <= 0:
        found.append(invalid(path.child("minDomains"), fewest, "must be greater than zero"))
    if fewest is not None and action != DO_NOT_SCHEDULE:
        message = f"can only use minDomains if whenUnsatisfiable={DO_NOT_SCHEDULE}, not {action}"
        found.append(invalid(path.child("minDomains"), fewest, message))
    policies = {
        "nodeAffinityPolicy": constraint.node_affinity_policy,
        "nodeTaintsPolicy": constraint.node_taints_policy,
    }
    for field, policy in policies.items():
        if policy is not None and policy not in INCLUSION_POLICIES:
            found.append(not_supported(path.child(field), policy, INCLUSION_POLICIES))
    keys, selector = constraint.match_label_keys, constraint.label_selector
    found += _validate_label_keys(keys, selector, path.child("matchLabelKeys"))
    found += _validate_chosen_once(keys, selector, path)
    return found + validate_label_selector(selector, path.child("labelSelector"))


# A gated pod ----------------------------------------------------------------------------------------------------------


def validate_narrowed(new: NodeAffinity | None, old: NodeAffinity | None, path: Path) -> Errors:
    """As long as it is gated, a pod may be directed to fewer of the nodes that it may have, and never to others."""
    before, after = _terms(old), _terms(new)
    at = path.child(_REQUIRED).child("nodeSelectorTerms")
    if not before:
        return []
    if len(before) != len(after):
        return [invalid(at, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")]
    return [
        invalid(at.at(position), after[position], "only additions are allowed (no mutations or deletions)")
        for position, term in enumerate(before)
        if not _only_adds(after[position], term)
    ]


def _terms(affinity: NodeAffinity | None) -> tuple[NodeSelectorTerm, ...]:
    wanted = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return () if wanted is None else wanted.node_selector_terms


def _only_adds(new: NodeSelectorTerm, old: NodeSelectorTerm) -> bool:
    """An empty term chooses no node."""
    if not (old.match_expressions or old.match_fields):
        return new == old
    expressions, fields = len(old.match_expressions), len(old.match_fields)
    kept = new.match_expressions[:expressions], new.match_fields[:fields]
    return kept == (old.match_expressions, old.match_fields)


def with_node_affinity_of(old: Affinity | None, new: Affinity | None) -> Affinity | None:
    """`new` with the node affinity of `old`: everything else of the two is to be the same."""
    before = None if old is None else old.node_affinity
    same = replace(new or Affinity(), node_affinity=before)
    return None if old is None and same == Affinity() else same


# The label keys of a new pod ------------------------------------------------------------------------------------------


def with_label_keys(spec: PodSpec, labels: Mapping[str, str]) -> PodSpec:
    """The spec of a new pod that has these labels; the same value where none of its terms says anything of them."""
    spreading = tuple(_constraint(one, labels) for one in spec.topology_spread_constraints)
    affinity = spec.affinity
    if affinity is not None:
        near, away = affinity.pod_affinity, affinity.pod_anti_affinity
        affinity = replace(
            affinity,
            pod_affinity=None if near is None else _affinity(near, labels),
            pod_anti_affinity=None if away is None else _affinity(away, labels),
        )
    if (affinity, spreading) == (spec.affinity, spec.topology_spread_constraints):
        return spec
    return replace(spec, affinity=affinity, topology_spread_constraints=spreading)


Rules = TypeVar("Rules", PodAffinity, PodAntiAffinity)


def _affinity(rules: Rules, labels: Mapping[str, str]) -> Rules:
    wanted = rules.required_during_scheduling_ignored_during_execution
    preferred = rules.preferred_during_scheduling_ignored_during_execution
    return replace(
        rules,
        required_during_scheduling_ignored_during_execution=tuple(_term(one, labels) for one in wanted),
        preferred_during_scheduling_ignored_during_execution=tuple(
            replace(one, pod_affinity_term=_term(one.pod_affinity_term, labels)) for one in preferred
        ),
    )


def _term(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    chosen = _chosen_by(term.label_selector, labels, same=term.match_label_keys, other=term.mismatch_label_keys)
    return replace(term, label_selector=chosen)


def _constraint(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> TopologySpreadConstraint:
    chosen = _chosen_by(constraint.label_selector, labels, same=constraint.match_label_keys)
    return replace(constraint, label_selector=chosen)


def _chosen_by(
    selector: LabelSelector | None, labels: Mapping[str, str], *, same: Sequence[str], other: Sequence[str] = ()
) -> LabelSelector | None:
    """`selector` of the pods that have the same value as `labels` of some, and another of others. One that says so
    already stays as it is: the pod may be made of another one's spec.
    """
    if selector is None:
        return None
    operators = [*((key, "In") for key in same), *((key, "NotIn") for key in other)]
    wanted = (
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for key, operator in operators
        if key in labels
    )
    known = set(selector.match_expressions)
    more = (one for one in wanted if one not in known)
    return replace(selector, match_expressions=(*selector.match_expressions, *more))
