"""How claims and templates are stored: defaults, and what an update may take from the client.

Source: pkg/apis/resource/v1/defaults.go and pkg/registry/resource/resourceclaim/strategy.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from claims.kinds.requests import DeviceRequest, DeviceSubRequest, ExactDeviceRequest
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimSpec, ResourceClaimStatus, ResourceClaimTemplate
from inventory.kinds.taints import DeviceToleration
from manciple.wire.preparation import status_metadata

Request = TypeVar("Request", ExactDeviceRequest, DeviceSubRequest)


def with_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """One device of the class where a request says nothing else; tolerations compare by Equal."""
    requests = tuple(map(_request_with_defaults, spec.devices.requests))
    return replace(spec, devices=replace(spec.devices, requests=requests))


def _request_with_defaults(request: DeviceRequest) -> DeviceRequest:
    return replace(
        request,
        exactly=None if request.exactly is None else _counted(request.exactly),
        first_available=tuple(map(_counted, request.first_available)),
    )


def _counted(request: Request) -> Request:
    mode = request.allocation_mode or "ExactCount"
    count = request.count or (1 if mode == "ExactCount" else 0)
    tolerations = tuple(map(_toleration_with_defaults, request.tolerations))
    return replace(request, allocation_mode=mode, count=count, tolerations=tolerations)


def _toleration_with_defaults(toleration: DeviceToleration) -> DeviceToleration:
    return toleration if toleration.operator else replace(toleration, operator="Equal")


def create_claim(new: ResourceClaim) -> ResourceClaim:
    """A new claim has nothing yet."""
    return replace(new, spec=with_defaults(new.spec), status=ResourceClaimStatus())


def update_claim(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    return replace(new, spec=with_defaults(new.spec), status=old.status)


def update_claim_status(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    """A status write keeps spec and metadata, and drops reports on devices that the claim no longer has."""
    deallocated = old.status.allocation is not None and new.status.allocation is None
    status = replace(new.status, devices=()) if deallocated else new.status
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=status)


def create_template(new: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(new, spec=replace(new.spec, spec=with_defaults(new.spec.spec)))


def update_template(new: ResourceClaimTemplate, _old: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return create_template(new)
