"""Rules of ResourceClaim, its status, and ResourceClaimTemplate: requests, alternatives, constraints, configuration.

Source: pkg/apis/resource/validation/validation.go of Kubernetes 1.36.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from claims.kinds.resource_claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    CapacityRequirements,
    DeviceAllocationConfiguration,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from inventory.kinds.device_rules import (
    CONFIGURATIONS_MAX,
    PARAMETERS_MAX,
    ExpressionBudget,
    expressions_of,
    validate_binding_conditions,
    validate_configuration,
    validate_device_class_name,
    validate_device_name,
    validate_driver_name,
    validate_fully_qualified_name,
    validate_pool_name,
    validate_qualified_name,
    validate_quantity,
    validate_raw,
    validate_selectors,
    validate_skipped_operations,
    validate_tolerations,
    validate_uid,
)
from inventory.kinds.node_rules import validate_node_selector
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import FieldError, forbidden, immutable, invalid, not_supported, required, too_long, too_many
from manciple.wire.quantity import read_quantity
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    each,
    validate_annotations,
    validate_conditions,
    validate_immutable,
    validate_labels,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

REQUESTS_MAX = 32
CONSTRAINTS_MAX = 32
ALTERNATIVES_MAX = 8

ALLOCATION_MODES = ("All", "ExactCount")

_REFERENCE_RULE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ALTERNATIVES_RULE = "exactly one of `exactly` or `firstAvailable` is required"

Errors = list[FieldError]
#: Request name -> the names of its alternatives; empty for a request without any.
RequestNames = Mapping[str, frozenset[str]]


def gather_request_names(claim: DeviceClaim) -> RequestNames:
    return {
        request.name: frozenset(alternative.name for alternative in request.first_available)
        for request in claim.requests
    }


def validate_device_claim(claim: DeviceClaim, path: Path) -> Errors:
    request_names = gather_request_names(claim)

    def validate_constraint(constraint: DeviceConstraint, at: Path) -> Errors:
        return _validate_constraint(constraint, at, request_names)

    def validate_config(config: DeviceClaimConfiguration, at: Path) -> Errors:
        found = validate_request_references(config.requests, at.child("requests"), request_names)
        return found + validate_configuration(config, at)

    budget = ExpressionBudget(_expressions_of(claim), path.child("requests"))

    def validate_request(request: DeviceRequest, at: Path) -> Errors:
        return _validate_request(request, at, budget)

    return [
        *budget.errors,
        *validate_set(
            claim.requests,
            path.child("requests"),
            validate_request,
            key=lambda request: request.name,
            maximum=REQUESTS_MAX,
        ),
        *validate_list(claim.constraints, path.child("constraints"), validate_constraint, maximum=CONSTRAINTS_MAX),
        *validate_list(claim.config, path.child("config"), validate_config, maximum=CONFIGURATIONS_MAX),
    ]


def _expressions_of(claim: DeviceClaim) -> Iterator[str]:
    for request in claim.requests:
        for one in (request.exactly, *request.first_available):
            if one is not None:
                yield from expressions_of(one.selectors)


def validate_request_name(name: str, path: Path) -> Errors:
    return each(check_dns_label(name), path, name)


def _validate_request(request: DeviceRequest, path: Path, budget: ExpressionBudget) -> Errors:
    def validate_alternative(alternative: DeviceSubRequest, at: Path) -> Errors:
        return validate_request_name(alternative.name, at.child("name")) + _validate_request_fields(
            alternative, at, budget
        )

    found = validate_request_name(request.name, path.child("name"))
    if request.exactly is not None and request.first_available:
        found.append(invalid(path, None, f"{_ALTERNATIVES_RULE}, but multiple fields are set"))
    elif request.exactly is not None:
        found += _validate_request_fields(request.exactly, path.child("exactly"), budget)
    elif request.first_available:
        found += validate_set(
            request.first_available,
            path.child("firstAvailable"),
            validate_alternative,
            key=lambda alternative: alternative.name,
            maximum=ALTERNATIVES_MAX,
        )
    else:
        found.append(required(path, _ALTERNATIVES_RULE))
    return found


def _validate_request_fields(
    request: ExactDeviceRequest | DeviceSubRequest, path: Path, budget: ExpressionBudget
) -> Errors:
    return [
        *validate_device_class_name(request.device_class_name, path.child("deviceClassName")),
        *validate_selectors(request.selectors, path.child("selectors"), budget=budget),
        *_validate_count(request, path),
        *validate_tolerations(request.tolerations, path.child("tolerations")),
        *_validate_capacity(request.capacity, path.child("capacity")),
    ]


def _validate_count(request: ExactDeviceRequest | DeviceSubRequest, path: Path) -> Errors:
    mode, count = request.allocation_mode, request.count
    if mode not in ALLOCATION_MODES:
        return [not_supported(path.child("allocationMode"), mode, ALLOCATION_MODES)]
    if mode == "All" and count != 0:
        return [invalid(path.child("count"), count, "must not be specified when allocationMode is 'All'")]
    if mode == "ExactCount" and count <= 0:
        return [invalid(path.child("count"), count, "must be greater than zero")]
    return []


def _validate_capacity(capacity: CapacityRequirements | None, path: Path) -> Errors:
    found: Errors = []
    at = path.child("requests")
    for name, text in capacity.requests.items() if capacity is not None else ():
        amount, wrong = read_quantity(text, at.key(name))
        found += validate_qualified_name(name, at) + wrong
        if amount is not None and amount.sign < 0:
            found.append(invalid(at.key(name), text, "must be greater than or equal to 0"))
    return found


def _validate_constraint(constraint: DeviceConstraint, path: Path, request_names: RequestNames) -> Errors:
    found = validate_request_references(constraint.requests, path.child("requests"), request_names)
    match, distinct = constraint.match_attribute, constraint.distinct_attribute
    if match is not None and distinct is not None:
        return [*found, invalid(path, None, 'exactly one of "matchAttribute" or "distinctAttribute" is required')]
    if match is not None:
        return found + validate_fully_qualified_name(match, path.child("matchAttribute"))
    if distinct is not None:
        return found + validate_fully_qualified_name(distinct, path.child("distinctAttribute"))
    return [*found, required(path, 'exactly one of "matchAttribute" or "distinctAttribute" is required')]


def validate_request_references(references: Sequence[str], path: Path, request_names: RequestNames) -> Errors:
    """Each names a request of the claim, or one of its alternatives as "request/alternative"; none twice."""

    def validate_reference(reference: str, at: Path) -> Errors:
        return validate_request_reference(reference, at, request_names)

    return validate_set(references, path, validate_reference, key=str, maximum=REQUESTS_MAX)


def validate_request_reference(reference: str, path: Path, request_names: RequestNames) -> Errors:
    segments = reference.split("/")
    if len(segments) > 2:  # noqa: PLR2004 - a request and an alternative
        return [invalid(path, reference, _REFERENCE_RULE)]
    found = [error for segment in segments for error in validate_request_name(segment, path)]
    alternatives = request_names.get(segments[0])
    if alternatives is None or not alternatives.issuperset(segments[1:]):
        found.append(invalid(path, reference, _REFERENCE_RULE))
    return found


RESERVATIONS_MAX = 256
RESULTS_MAX = 32
#: Of one device, as its driver reports them.
CONDITIONS_MAX = 8
INTERFACE_NAME_MAX = 256
HARDWARE_ADDRESS_MAX = 128
ADDRESSES_MAX = 16

CONFIGURATION_SOURCES = ("FromClaim", "FromClass")


def validate_claim(claim: ResourceClaim) -> Errors:
    found = validate_object_meta(claim.metadata, namespaced=True) + validate_controller(
        claim.spec.controller_name, SPEC
    )
    return found + validate_device_claim(claim.spec.devices, SPEC.child("devices"))


def validate_claim_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    return found + validate_immutable(new.spec, old.spec, SPEC)


def validate_template(template: ResourceClaimTemplate) -> Errors:
    return validate_object_meta(template.metadata, namespaced=True) + _validate_template_spec(template.spec)


def _validate_template_spec(spec: ResourceClaimTemplateSpec) -> Errors:
    found = validate_template_meta(spec.metadata, SPEC.child("metadata"))
    found += validate_controller(spec.spec.controller_name, SPEC.child("spec"))
    return found + validate_device_claim(spec.spec.devices, SPEC.child("spec", "devices"))


def validate_template_meta(metadata: ObjectMeta, path: Path) -> Errors:
    """The metadata of something that a template will make: labels and annotations only.

    Upstream: ValidateTemplateObjectMeta, with the names that it gives the fields.
    """
    found = validate_annotations(metadata.annotations, path.child("annotations"))
    found += validate_labels(metadata.labels, path.child("labels"))
    unset = ObjectMeta()
    for name, shown in zip(ObjectMeta.__struct_fields__, ObjectMeta.__struct_encode_fields__, strict=True):
        if name not in ("labels", "annotations") and getattr(metadata, name) != getattr(unset, name):
            found.append(forbidden(path.child("uID" if name == "uid" else shown), "cannot be set"))
    return found


def validate_template_update(new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> Errors:
    """The spec is immutable. If it changes, its own errors are reported as well."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    if new.spec != old.spec:
        found += _validate_template_spec(new.spec)
    return found + validate_immutable(new.spec, old.spec, SPEC)


# Status --------------------------------------------------------------------------------------------------------------


def validate_claim_status_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    """An allocation is immutable, and only an allocated claim can be reserved."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_set(
        new.status.reserved_for,
        STATUS.child("reservedFor"),
        _validate_consumer,
        key=lambda consumer: consumer.uid,
        maximum=RESERVATIONS_MAX,
    )
    found += _validate_device_statuses(new.status)
    found += _validate_reservations(new, old) + validate_deallocation(new.status, old.status)
    return found + _validate_allocation_change(new, old)


def _validate_consumer(consumer: ResourceClaimConsumerReference, path: Path) -> Errors:
    parts = {"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid}
    return [required(path.child(name)) for name, value in parts.items() if not value]


def _validate_reservations(new: ResourceClaim, old: ResourceClaim) -> Errors:
    path = STATUS.child("reservedFor")
    if not new.status.reserved_for:
        return []
    if new.status.allocation is None:
        return [forbidden(path, "may not be specified when `allocated` is not set")]
    if new.spec.resource_class_name and not new.status.allocation.shareable and len(new.status.reserved_for) > 1:
        return [forbidden(path, "may not be reserved more than once")]
    ends = old.metadata.deletion_timestamp is not None or new.status.deallocation_requested
    if ends and any(consumer not in old.status.reserved_for for consumer in new.status.reserved_for):
        message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        return [forbidden(path, message)]
    return []


def _validate_allocation_change(new: ResourceClaim, old: ResourceClaim) -> Errors:
    path, allocation = STATUS.child("allocation"), new.status.allocation
    if allocation is None:
        return []
    if old.status.allocation is not None:
        return [] if allocation == old.status.allocation else [immutable(path, allocation)]
    return _validate_allocation(allocation, path, gather_request_names(new.spec.devices))


def _validate_allocation(allocation: AllocationResult, path: Path, request_names: RequestNames) -> Errors:
    def validate_result(result: DeviceRequestAllocationResult, at: Path) -> Errors:
        return _validate_result(result, at, request_names)

    def validate_config(config: DeviceAllocationConfiguration, at: Path) -> Errors:
        return _validate_allocated_configuration(config, at, request_names)

    devices = path.child("devices")
    both_sources = 2 * CONFIGURATIONS_MAX
    found = validate_list(allocation.devices.results, devices.child("results"), validate_result, maximum=RESULTS_MAX)
    found += validate_list(allocation.devices.config, devices.child("config"), validate_config, maximum=both_sources)
    if allocation.node_selector is not None:
        found += validate_node_selector(allocation.node_selector, path.child("nodeSelector"))
    return found + validate_controller(allocation.controller_name, path)


def _validate_result(result: DeviceRequestAllocationResult, path: Path, request_names: RequestNames) -> Errors:
    found = validate_request_reference(result.request, path.child("request"), request_names)
    found += _validate_device_identity(result, path)
    found += validate_binding_conditions(result.binding_conditions, result.binding_failure_conditions, path)
    found += validate_tolerations(result.tolerations, path.child("tolerations"))
    for name, text in result.consumed_capacity.items():
        found += validate_quantity(text, path.child("consumedCapacity").key(name))
    return found + validate_skipped_operations(result.skip_node_operations, path.child("skipNodeOperations"))


def _validate_device_identity(device: DeviceRequestAllocationResult | AllocatedDeviceStatus, path: Path) -> Errors:
    return [
        *validate_driver_name(device.driver, path.child("driver")),
        *validate_pool_name(device.pool, path.child("pool")),
        *validate_device_name(device.device, path.child("device")),
        *([] if device.share_id is None else validate_uid(device.share_id, path.child("shareID"))),
    ]


def _validate_allocated_configuration(
    config: DeviceAllocationConfiguration, path: Path, request_names: RequestNames
) -> Errors:
    found: Errors = []
    if not config.source:
        found.append(required(path.child("source")))
    elif config.source not in CONFIGURATION_SOURCES:
        found.append(not_supported(path.child("source"), config.source, CONFIGURATION_SOURCES))
    found += validate_request_references(config.requests, path.child("requests"), request_names)
    return found + validate_configuration(config, path)


# What drivers report -------------------------------------------------------------------------------------------------

_DeviceKey = tuple[str, str, str, str | None]


def _device_key(device: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> _DeviceKey:
    return device.driver, device.pool, device.device, device.share_id


def _shown_device(device: AllocatedDeviceStatus) -> str:
    return "/".join(part for part in _device_key(device) if part)


def _validate_device_statuses(status: ResourceClaimStatus) -> Errors:
    results = status.allocation.devices.results if status.allocation is not None else ()
    allocated = {_device_key(result) for result in results}

    def validate_device(device: AllocatedDeviceStatus, path: Path) -> Errors:
        found = _validate_device_identity(device, path)
        if _device_key(device) not in allocated:
            found.append(invalid(path, _shown_device(device), "must be an allocated device in the claim"))
        return found + _validate_report(device, path)

    return validate_set(status.devices, STATUS.child("devices"), validate_device, key=_device_key, shown=_shown_device)


def _validate_report(device: AllocatedDeviceStatus, path: Path) -> Errors:
    found = validate_conditions(device.conditions, path.child("conditions"))
    if len(device.conditions) > CONDITIONS_MAX:
        found.append(too_many(path.child("conditions"), len(device.conditions), CONDITIONS_MAX))
    if device.data is not None:
        found += validate_raw(device.data, path.child("data"), maximum=PARAMETERS_MAX)
    return found + _validate_network(device.network_data, path.child("networkData"))


def _validate_network(network: NetworkDeviceData | None, path: Path) -> Errors:
    if network is None:
        return []
    limits: tuple[tuple[str, str, int], ...] = (
        ("interfaceName", network.interface_name, INTERFACE_NAME_MAX),
        ("hardwareAddress", network.hardware_address, HARDWARE_ADDRESS_MAX),
    )
    found = [too_long(path.child(name), limit) for name, text, limit in limits if len(text.encode()) > limit]
    check: Callable[[str, Path], Errors] = _validate_interface_address
    return found + validate_set(network.ips, path.child("ips"), check, key=str, maximum=ADDRESSES_MAX)


def _validate_interface_address(address: str, path: Path) -> Errors:
    """An address with the length of its network, in canonical form: "192.0.2.1/24"."""
    try:
        parsed = ipaddress.ip_interface(address)
    except ValueError:
        parsed = None
    if parsed is None or "/" not in address:
        message = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid(path, address, message)]
    if str(parsed) != address:
        return [invalid(path, address, f'must be in canonical form ("{parsed}")')]
    return []


# Claims that drivers' controllers allocate ----------------------------------------------------------------------------


class Deallocated(Protocol):
    """The status of a claim, as it is stored or as v1alpha2 has it."""

    @property
    def deallocation_requested(self) -> bool: ...
    @property
    def reserved_for(self) -> tuple[object, ...]: ...
    @property
    def allocation(self) -> object | None: ...


def validate_controller(name: str, path: Path) -> Errors:
    return validate_driver_name(name, path.child("controllerName")) if name else []


def validate_deallocation(status: Deallocated, before: Deallocated) -> Errors:
    """Who asked for deallocation cannot take that back: the driver may have begun."""
    path, found = STATUS.child("deallocationRequested"), []
    wanted, was_wanted = status.deallocation_requested, before.deallocation_requested
    if wanted and not was_wanted and status.reserved_for:
        found.append(forbidden(path, "deallocation cannot be requested while `reservedFor` is set"))
    if wanted and status.allocation is None:
        found.append(forbidden(STATUS, "`allocation` must be set when `deallocationRequested` is set"))
    if was_wanted and not wanted and status.allocation is not None:
        found.append(forbidden(path, "may not be cleared when `allocation` is set"))
    return found
