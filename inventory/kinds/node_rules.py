"""Rules of Node and NodeSelector. Source: pkg/apis/core/validation/go of Kubernetes 1.36."""

from __future__ import annotations

import re

from inventory.kinds.nodes import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.quantity import read_amounts
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_dns_subdomain,
    check_label_key,
    check_label_value,
    each,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_SET_OPERATORS = ("In", "NotIn")
_ABSENCE_OPERATORS = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")

Errors = list[FieldError]


def validate_node_selector(selector: NodeSelector, path: Path, *, in_full: bool = True) -> Errors:
    """At least one term; every requirement of each is checked.

    in_full: that each can be met as well; the reference takes pods whose affinity no node can meet.
    """
    terms = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        return [required(terms, "must have at least one node selector term")]
    found: Errors = []
    for position, term in enumerate(selector.node_selector_terms):
        found += validate_node_selector_term(term, terms.at(position), in_full=in_full)
    return found


def validate_node_selector_term(
    term: NodeSelectorTerm, path: Path, *, in_full: bool = True, any_value: bool = False
) -> Errors:
    """any_value: labels may be compared with values that no label has, as in preferences."""
    found: Errors = []
    for position, requirement in enumerate(term.match_expressions):
        at = path.child("matchExpressions").at(position)
        found += _validate_expression(requirement, at, in_full=in_full, any_value=any_value)
    for position, requirement in enumerate(term.match_fields):
        found += _validate_field(requirement, path.child("matchFields").at(position))
    return found


def _validate_expression(requirement: NodeSelectorRequirement, path: Path, *, in_full: bool, any_value: bool) -> Errors:
    found: Errors = []
    values, count = path.child("values"), len(requirement.values)
    if requirement.operator in _SET_OPERATORS:
        if not count:
            found.append(required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
    elif requirement.operator in _ABSENCE_OPERATORS:
        if count:
            found.append(forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    elif requirement.operator in _COMPARISONS:
        if count != 1:
            found.append(required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        found.append(invalid(path.child("operator"), requirement.operator, "not a valid selector operator"))
    found += each(check_label_key(requirement.key), path.child("key"), requirement.key)
    for position, value in enumerate(requirement.values):
        if not any_value:
            found += each(check_label_value(value), values.at(position), value)
        if in_full and requirement.operator in _COMPARISONS and not _INTEGER.fullmatch(value):
            found.append(invalid(values.at(position), value, "for 'Gt', 'Lt' operators, the value must be an integer"))
    return found


def _validate_field(requirement: NodeSelectorRequirement, path: Path) -> Errors:
    found: Errors = []
    if requirement.operator not in _SET_OPERATORS:
        found.append(invalid(path.child("operator"), requirement.operator, "not a valid selector operator"))
    elif len(requirement.values) != 1:
        message = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(path.child("values"), message))
    if requirement.key != "metadata.name":
        return [*found, invalid(path.child("key"), requirement.key, "not a valid field selector key")]
    for position, value in enumerate(requirement.values):
        found += each(check_dns_subdomain(value), path.child("values").at(position), value)
    return found


TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_node(node: Node) -> Errors:
    return validate_object_meta(node.metadata, namespaced=False) + _validate_spec(node) + _validate_amounts(node)


def validate_node_update(new: Node, old: Node) -> Errors:
    """Labels, taints and schedulability may change; the address range and the provider's id only once."""
    found = validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new)
    if old.spec.pod_cidrs and new.spec.pod_cidrs != old.spec.pod_cidrs:
        message = 'node updates may not change podCIDR except from "" to valid'
        found.append(forbidden(SPEC.child("podCIDRs"), message))
    if old.spec.provider_id and new.spec.provider_id != old.spec.provider_id:
        message = 'node updates may not change providerID except from "" to valid'
        found.append(forbidden(SPEC.child("providerID"), message))
    return found


def validate_node_status_update(new: Node, old: Node) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_amounts(new)


def _validate_spec(node: Node) -> Errors:
    return validate_set(
        node.spec.taints,
        Path("metadata").child("taints"),  # upstream names them so in errors, wherever they stand
        validate_taint,
        key=lambda taint: (taint.key, taint.effect),
        shown=lambda taint: taint,
    )


def validate_taint(taint: Taint, path: Path) -> Errors:
    found = each(check_label_key(taint.key), path.child("key"), taint.key)
    found += each(check_label_value(taint.value), path.child("value"), taint.value)
    if not taint.effect:
        found.append(required(path.child("effect")))
    elif taint.effect not in TAINT_EFFECTS:
        found.append(not_supported(path.child("effect"), taint.effect, TAINT_EFFECTS))
    return found


def _validate_amounts(node: Node) -> Errors:
    return [
        *read_amounts(node.status.capacity, STATUS.child("capacity"))[1],
        *read_amounts(node.status.allocatable, STATUS.child("allocatable"))[1],
    ]


# What agents may call their nodes -------------------------------------------------------------------------------------


#: Labels of Kubernetes that the agent of a node may set on it (source: kubelet/pkg/apis/well_known_labels.go).
AGENT_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
AGENT_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
RESTRICTED_PREFIX = "node-restriction.kubernetes.io"


def agent_may_label(key: str) -> bool:
    """Whether the agent of a node may set this label on it: of Kubernetes' own only a few, and none that is meant to
    keep agents from drawing pods to their nodes.
    """
    prefix = key.partition("/")[0] if "/" in key else ""
    if _is_below(prefix, RESTRICTED_PREFIX):
        return False
    if not _is_below(prefix, "kubernetes.io") and not _is_below(prefix, "k8s.io"):
        return True
    return key in AGENT_LABELS or any(_is_below(prefix, one) for one in AGENT_PREFIXES)


def _is_below(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith(f".{domain}")
