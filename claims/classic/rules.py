"""The rules of claims, templates and PodSchedulingContexts in v1alpha2, in the words of Kubernetes 1.30. PURE.

Objects are given as they are stored; `_claim` and `_template` give them the shape in which clients of v1alpha2 know
them, and the paths of what is wrong are those of that shape.
Source: pkg/apis/resource/validation/validation.go of Kubernetes 1.30.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from claims.classic import conversion, kinds
from claims.kinds.resource_claims import (
    CLASSIC_RESERVATIONS_MAX,
    IMMEDIATE,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimTemplate,
    validate_deallocation,
    validate_template_meta,
)
from inventory.classic.rules import longer_than, validate_claim_reference, validate_driver_name, validate_name
from inventory.kinds.named_resources import DriverAllocationResult, ResourceHandle, StructuredResourceHandle
from inventory.kinds.node_rules import validate_node_selector
from manciple.wire import codec
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from manciple.wire.registry import VersionRules
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    validate_immutable,
    validate_object_meta,
    validate_object_meta_update,
)

HANDLES_MAX = 32
#: In bytes.
HANDLE_DATA_MAX = 16 * 1024
#: Nodes in one list of a PodSchedulingContext. The seed names 128 and, in one place, 256; Kubernetes 1.30 has 128.
NODES_MAX = 128
ALLOCATION_MODES = (IMMEDIATE, "WaitForFirstConsumer")

Errors = list[FieldError]

# Claims ---------------------------------------------------------------------------------------------------------------


def _claim(stored: ResourceClaim) -> kinds.ResourceClaim:
    return codec.decode_value(kinds.ResourceClaim, conversion.claim_from_storage(codec.to_builtins(stored)))


def _template(stored: ResourceClaimTemplate) -> kinds.ResourceClaimTemplate:
    return codec.decode_value(kinds.ResourceClaimTemplate, conversion.template_from_storage(codec.to_builtins(stored)))


def validate_claim(stored: ResourceClaim) -> Errors:
    claim = _claim(stored)
    return validate_object_meta(claim.metadata, namespaced=True) + _validate_spec(claim.spec, SPEC)


def validate_claim_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    claim, before = _claim(new), _claim(old)
    return [
        *validate_object_meta_update(claim.metadata, before.metadata),
        *validate_immutable(claim.spec, before.spec, SPEC),
        *validate_claim(new),
    ]


def validate_template(stored: ResourceClaimTemplate) -> Errors:
    template = _template(stored)
    found = validate_object_meta(template.metadata, namespaced=True)
    found += validate_template_meta(template.spec.metadata, SPEC.child("metadata"))
    return found + _validate_spec(template.spec.spec, SPEC.child("spec"))


def validate_template_update(new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> Errors:
    template, before = _template(new), _template(old)
    return [
        *validate_object_meta_update(template.metadata, before.metadata),
        *validate_immutable(template.spec, before.spec, SPEC),
        *validate_template(new),
    ]


def _validate_spec(spec: kinds.ResourceClaimSpec, path: Path) -> Errors:
    found = validate_name(spec.resource_class_name, path.child("resourceClassName"))
    found += validate_claim_reference(spec.parameters_ref, path.child("parametersRef"))
    if spec.resource_class_name and spec.allocation_mode not in ALLOCATION_MODES:
        found.append(not_supported(path.child("allocationMode"), spec.allocation_mode, ALLOCATION_MODES))
    return found


# Their status ---------------------------------------------------------------------------------------------------------


def validate_claim_status_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    claim, before = _claim(new), _claim(old)
    status = claim.status
    found = validate_object_meta_update(claim.metadata, before.metadata)
    if status.driver_name:
        found += validate_driver_name(status.driver_name, STATUS.child("driverName"))
    elif status.allocation is not None:
        found.append(required(STATUS.child("driverName"), "must be specified when `allocation` is set"))
    if status.allocation is not None:
        found += _validate_allocation(status.allocation, STATUS.child("allocation"))
    found += _validate_consumers(status.reserved_for, STATUS.child("reservedFor"))
    found += _validate_reservations(claim, before, STATUS.child("reservedFor"))
    if status.allocation is not None and before.status.allocation is not None:
        found += validate_immutable(status.allocation, before.status.allocation, STATUS.child("allocation"))
    return found + validate_deallocation(status, before.status)


def _validate_reservations(claim: kinds.ResourceClaim, before: kinds.ResourceClaim, path: Path) -> Errors:
    status = claim.status
    if not status.reserved_for:
        return []
    if status.allocation is None:
        return [forbidden(path, "may not be specified when `allocated` is not set")]
    found = []
    if not status.allocation.shareable and len(status.reserved_for) > 1:
        found.append(forbidden(path, "may not be reserved more than once"))
    ends = claim.metadata.deletion_timestamp is not None or status.deallocation_requested
    if ends and any(one not in before.status.reserved_for for one in status.reserved_for):
        message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        found.append(forbidden(path, message))
    return found


def _validate_consumers(consumers: Sequence[ResourceClaimConsumerReference], path: Path) -> Errors:
    def shown_by_uid(consumer: ResourceClaimConsumerReference, at: Path) -> Errors:
        return [duplicate(at.child("uid"), consumer.uid)]

    return _validate_set(
        consumers,
        path,
        _validate_consumer,
        maximum=CLASSIC_RESERVATIONS_MAX,
        key=lambda one: one.uid,
        twice=shown_by_uid,
    )


def _validate_consumer(consumer: ResourceClaimConsumerReference, path: Path) -> Errors:
    parts = {"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid}
    return [required(path.child(name)) for name, value in parts.items() if not value]


def _validate_allocation(allocation: kinds.AllocationResult, path: Path) -> Errors:
    handles, here = allocation.resource_handles, path.child("resourceHandles")
    found = [error for number, one in enumerate(handles) for error in _validate_handle(one, here.at(number))]
    if len(handles) > HANDLES_MAX:
        found.append(longer_than(here, HANDLES_MAX))
    if allocation.available_on_nodes is not None:
        found += validate_node_selector(allocation.available_on_nodes, path.child("availableOnNodes"))
    return found


def _validate_handle(handle: ResourceHandle, path: Path) -> Errors:
    found = validate_driver_name(handle.driver_name, path.child("driverName"))
    if len(handle.data.encode()) > HANDLE_DATA_MAX:
        found.append(longer_than(path.child("data"), HANDLE_DATA_MAX))
    if handle.structured_data is not None:
        found += _validate_structured(handle.structured_data, path.child("structuredData"))
        if handle.data:
            found.append(invalid(path, None, "data and structuredData are mutually exclusive"))
    return found


def _validate_structured(handle: StructuredResourceHandle, path: Path) -> Errors:
    found = validate_name(handle.node_name, path.child("nodeName")) if handle.node_name else []
    for number, result in enumerate(handle.results):
        found += _validate_result(result, path.child("results").at(number))
    return found


def _validate_result(result: DriverAllocationResult, path: Path) -> Errors:
    if result.named_resources is None:
        return [required(path, "exactly one structured model field must be set")]
    return validate_name(result.named_resources.name, path.child("namedResources", "name"))


# Contexts -------------------------------------------------------------------------------------------------------------


def validate_context(new: kinds.PodSchedulingContext) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True)
    return found + _validate_nodes(new.spec.potential_nodes, SPEC.child("potentialNodes"))


def validate_context_status_update(new: kinds.PodSchedulingContext, old: kinds.PodSchedulingContext) -> Errors:
    """The list is called `claims` in paths, as upstream has it."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    seen: set[str] = set()
    for number, one in enumerate(new.status.resource_claims):
        path = STATUS.child("claims").at(number)
        found += _validate_nodes(one.unsuitable_nodes, path.child("unsuitableNodes"))
        if one.name in seen:
            found.append(duplicate(path, one.name))
        seen.add(one.name)
    return found


def _validate_nodes(names: Sequence[str], path: Path) -> Errors:
    def twice(name: str, at: Path) -> Errors:
        return [duplicate(at, name)]

    return _validate_set(names, path, validate_name, maximum=NODES_MAX, key=str, twice=twice)


ItemT = TypeVar("ItemT")


def _validate_set(
    items: Sequence[ItemT],
    path: Path,
    validate_item: Callable[[ItemT, Path], Errors],
    *,
    maximum: int,
    key: Callable[[ItemT], Hashable],
    twice: Callable[[ItemT, Path], Errors],
) -> Errors:
    """Each item that is not there already; at last, whether they are too many."""
    found: Errors = []
    seen: set[Hashable] = set()
    for number, item in enumerate(items):
        found += (twice if key(item) in seen else validate_item)(item, path.at(number))
        seen.add(key(item))
    if len(items) > maximum:
        found.append(longer_than(path, maximum))
    return found


CLAIM_RULES = VersionRules(
    validate_create=validate_claim,
    validate_update=validate_claim_update,
    subresources={"status": validate_claim_status_update},
)
TEMPLATE_RULES = VersionRules(validate_create=validate_template, validate_update=validate_template_update)
