"""Opaque configuration: which parameters of a claim's allocation apply to one of its devices.

The allocator copies the configurations of the classes and of the claim into `status.allocation.devices.config`. For a
device, those count whose driver is its driver and that name its request, or none. Class comes before claim, and a
later one takes precedence over an earlier one. Source: KEP-4381 "OpaqueDeviceConfiguration".
"""

from __future__ import annotations

from typing import Any

from claims.kinds.resource_claims import DeviceAllocationConfiguration, DeviceAllocationResult

#: Lower comes first, and so has less weight.
_WEIGHT = {"FromClass": 0, "FromClaim": 1}


def request_matches(named: str, request: str) -> bool:
    """Whether `named` ("request" or "request/subrequest") covers the `request` of an allocation result."""
    return named in (request, request.partition("/")[0])


def parameters_for(allocation: DeviceAllocationResult, *, driver: str, request: str) -> tuple[Any, ...]:
    """The parameters that apply to the device given for `request`, the one with the last word last."""
    applying = [config for config in allocation.config if _applies(config, driver, request)]
    applying.sort(key=lambda config: _WEIGHT.get(config.source, 0))
    return tuple(config.opaque.parameters for config in applying if config.opaque is not None)


def _applies(config: DeviceAllocationConfiguration, driver: str, request: str) -> bool:
    if config.opaque is None or config.opaque.driver != driver:
        return False
    return not config.requests or any(request_matches(named, request) for named in config.requests)
