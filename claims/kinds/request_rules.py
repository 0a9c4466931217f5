"""Rules of what a claim asks for: requests, alternatives, constraints, configuration.

Source: pkg/apis/resource/validation/validation.go (validateDeviceClaim and below) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claims.kinds.requests import (
    CapacityRequirements,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from inventory.kinds.capacity_rules import read_quantity
from inventory.kinds.device_rules import (
    CONFIGURATIONS_MAX,
    validate_configuration,
    validate_device_class_name,
    validate_fully_qualified_name,
    validate_qualified_name,
    validate_selectors,
    validate_tolerations,
)
from manciple.wire import names
from manciple.wire.errors import FieldError, invalid, not_supported, required
from manciple.wire.validation import Path, each, validate_list, validate_set

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

    return [
        *validate_set(
            claim.requests,
            path.child("requests"),
            _validate_request,
            key=lambda request: request.name,
            maximum=REQUESTS_MAX,
        ),
        *validate_list(claim.constraints, path.child("constraints"), validate_constraint, maximum=CONSTRAINTS_MAX),
        *validate_list(claim.config, path.child("config"), validate_config, maximum=CONFIGURATIONS_MAX),
    ]


def validate_request_name(name: str, path: Path) -> Errors:
    return each(names.check_dns_label(name), path, name)


def _validate_request(request: DeviceRequest, path: Path) -> Errors:
    found = validate_request_name(request.name, path.child("name"))
    if request.exactly is not None and request.first_available:
        found.append(invalid(path, None, f"{_ALTERNATIVES_RULE}, but multiple fields are set"))
    elif request.exactly is not None:
        found += _validate_wanted(request.exactly, path.child("exactly"))
    elif request.first_available:
        found += validate_set(
            request.first_available,
            path.child("firstAvailable"),
            _validate_alternative,
            key=lambda alternative: alternative.name,
            maximum=ALTERNATIVES_MAX,
        )
    else:
        found.append(required(path, _ALTERNATIVES_RULE))
    return found


def _validate_alternative(alternative: DeviceSubRequest, path: Path) -> Errors:
    return validate_request_name(alternative.name, path.child("name")) + _validate_wanted(alternative, path)


def _validate_wanted(request: ExactDeviceRequest | DeviceSubRequest, path: Path) -> Errors:
    return [
        *validate_device_class_name(request.device_class_name, path.child("deviceClassName")),
        *validate_selectors(request.selectors, path.child("selectors")),
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
