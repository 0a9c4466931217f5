"""Rules of Node. Source: pkg/apis/core/validation/validation.go (ValidateNode and below) of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Mapping

from inventory.kinds.capacity_rules import read_quantity
from inventory.kinds.nodes import Node, Taint
from manciple.wire import names
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    each,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

Errors = list[FieldError]


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
        SPEC.child("taints"),
        validate_taint,
        key=lambda taint: (taint.key, taint.effect),
        shown=lambda taint: taint,
    )


def validate_taint(taint: Taint, path: Path) -> Errors:
    found = each(names.check_label_key(taint.key), path.child("key"), taint.key)
    found += each(names.check_label_value(taint.value), path.child("value"), taint.value)
    if not taint.effect:
        found.append(required(path.child("effect")))
    elif taint.effect not in TAINT_EFFECTS:
        found.append(not_supported(path.child("effect"), taint.effect, TAINT_EFFECTS))
    return found


def _validate_amounts(node: Node) -> Errors:
    return [
        *validate_resource_list(node.status.capacity, STATUS.child("capacity")),
        *validate_resource_list(node.status.allocatable, STATUS.child("allocatable")),
    ]


def validate_resource_list(amounts: Mapping[str, str], path: Path) -> Errors:
    """Amounts by resource name: readable, none negative."""
    found: Errors = []
    for name, text in amounts.items():
        at = path.key(name)
        found += each(names.check_label_key(name), at, name)
        amount, wrong = read_quantity(text, at)
        found += wrong
        if amount is not None and amount.sign < 0:
            found.append(invalid(at, text, "must be greater than or equal to 0"))
    return found
