"""Rules of core/v1 NodeSelector, which slices, allocations and pod affinity carry.

Source: pkg/apis/core/validation/validation.go (ValidateNodeSelector and below) of Kubernetes 1.36.
"""

from __future__ import annotations

import re

from inventory.kinds.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.wire import names
from manciple.wire.errors import FieldError, forbidden, invalid, required
from manciple.wire.validation import Path, each

_INTEGER = re.compile(r"[+-]?[0-9]+")
_SET_OPERATORS = ("In", "NotIn")
_ABSENCE_OPERATORS = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")

Errors = list[FieldError]


def validate_node_selector(selector: NodeSelector, path: Path) -> Errors:
    """At least one term; every requirement of each is checked."""
    terms = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        return [required(terms, "must have at least one node selector term")]
    found: Errors = []
    for position, term in enumerate(selector.node_selector_terms):
        found += validate_node_selector_term(term, terms.at(position))
    return found


def validate_node_selector_term(term: NodeSelectorTerm, path: Path) -> Errors:
    found: Errors = []
    for position, requirement in enumerate(term.match_expressions):
        found += _validate_expression(requirement, path.child("matchExpressions").at(position))
    for position, requirement in enumerate(term.match_fields):
        found += _validate_field(requirement, path.child("matchFields").at(position))
    return found


def _validate_expression(requirement: NodeSelectorRequirement, path: Path) -> Errors:
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
    found += each(names.check_label_key(requirement.key), path.child("key"), requirement.key)
    for position, value in enumerate(requirement.values):
        found += each(names.check_label_value(value), values.at(position), value)
        if requirement.operator in _COMPARISONS and not _INTEGER.fullmatch(value):
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
        found += each(names.check_dns_subdomain(value), path.child("values").at(position), value)
    return found
