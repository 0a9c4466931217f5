"""Structured claims as the allocator knows claims, and what it gives them as their drivers know it. PURE.

    asked_for(claim, resolved)                  the claim with a request of today's for each resource that it asks for
    with_handles(allocation, resolved, node)    the allocation with a handle for each driver

Two forms of parameters are read, told apart by their members: the draft's (`requests`) and that of Kubernetes 1.30
(`driverRequests`). The handles are of the form of the parameters: for the draft's, the resources that were given and
the vendor's parameters of class and claim; for 1.30's, a result for each request besides.
Source: KEP-4381, first draft ("ResourceHandle extension"); structuredparameters.go of Kubernetes 1.30.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from claims.drafts.structured.parameters import Resolved, Unresolved
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from inventory.classic.values import ResourceClassParameters
from inventory.drafts.structured.dialect import translated
from inventory.kinds.devices import CELDeviceSelector, DeviceClass, DeviceSelector
from inventory.kinds.named_resources import (
    AllocatedResource,
    DriverAllocationResult,
    NamedResourcesAllocationResult,
    NamedResourcesWithAttributesResult,
    ResourceHandle,
    StructuredResourceHandle,
)
from manciple.cel.errors import CompileError
from manciple.wire.base import ObjectMeta

#: The class of all these requests: it selects every device, and no object can have this name.
EVERY_DEVICE = DeviceClass(
    api_version="resource.k8s.io/v1",
    kind="DeviceClass",
    metadata=ObjectMeta(name="resourceclasses/", uid="resourceclasses/"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One resource that is asked for. path: where. parameters: 1.30's, of the request."""

    driver: str
    selector: str
    path: str
    parameters: Any = None


def asked_for(claim: ResourceClaim, resolved: Resolved) -> ResourceClaim | Unresolved:
    """`claim` as the allocator reads it."""
    requests = []
    for number, wanted in enumerate(_wanted(resolved)):
        try:
            texts = [translated(one, wanted.driver) for one in (wanted.selector, *_filters(resolved, wanted.driver))]
        except CompileError as error:
            return Unresolved(f"claim parameters {_name(resolved)}: {wanted.path}: {error.message}")
        selectors = tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in texts)
        exactly = ExactDeviceRequest(
            device_class_name=EVERY_DEVICE.metadata.name, selectors=selectors, allocation_mode="ExactCount", count=1
        )
        requests.append(DeviceRequest(name=request_name(number), exactly=exactly))
    if not requests:
        return Unresolved(f"claim parameters {_name(resolved)} ask for nothing: they have no requests")
    return structs.replace(claim, spec=structs.replace(claim.spec, devices=DeviceClaim(requests=tuple(requests))))


def request_name(number: int) -> str:
    """Of the resource with that number, from 0, in the claim's parameters."""
    return f"resource-{number}"


def _name(resolved: Resolved) -> str:
    return "/".join(resolved.of_claim.key)


def _wanted(resolved: Resolved) -> Iterator[_Wanted]:
    for at, request in enumerate(resolved.of_claim.requests):
        model, path = request.named_resources_with_attributes, f"requests[{at}].namedResourcesWithAttributes"
        if model is not None and model.selector:
            yield _Wanted(driver=request.driver_name, selector=model.selector, path=f"{path}.selector")
        for each, one in enumerate(model.required if model is not None else ()):
            where = f"{path}.required[{each}].selector"
            yield _Wanted(driver=request.driver_name, selector=one.selector, path=where)
    for at, of_driver in enumerate(resolved.of_claim.driver_requests):
        for each, of_resource in enumerate(of_driver.requests):
            if of_resource.named_resources is not None:
                yield _Wanted(
                    driver=of_driver.driver_name,
                    selector=of_resource.named_resources.selector,
                    path=f"driverRequests[{at}].requests[{each}].namedResources.selector",
                    parameters=of_resource.vendor_parameters,
                )


def _filters(resolved: Resolved, driver: str) -> Iterator[str]:
    for one in resolved.of_class.filters:
        if one.driver_name == driver:
            if one.named_resources_with_attributes is not None:
                yield one.named_resources_with_attributes.selector
            if one.named_resources is not None:
                yield one.named_resources.selector


# What was given -------------------------------------------------------------------------------------------------------


def with_handles(allocation: AllocationResult, resolved: Resolved, node: str) -> AllocationResult:
    """node: where the pod runs; devices that are everywhere name none."""
    given: dict[str, list[tuple[_Wanted, str]]] = {}
    devices = {result.request: result.device for result in allocation.devices.results}
    for number, wanted in enumerate(_wanted(resolved)):
        given.setdefault(wanted.driver, []).append((wanted, devices[request_name(number)]))
    where = node if allocation.node_selector is not None else ""
    handles = tuple(
        ResourceHandle(driver_name=driver, structured_data=_handle(driver, found, resolved, where))
        for driver, found in given.items()
    )
    return structs.replace(allocation, resource_handles=handles, shareable=resolved.of_claim.shareable)


def _handle(driver: str, given: list[tuple[_Wanted, str]], resolved: Resolved, node: str) -> StructuredResourceHandle:
    of_class = vendor_parameters(resolved.of_class, driver)
    if resolved.of_claim.requests:
        result = NamedResourcesWithAttributesResult(resources=tuple(AllocatedResource(id=name) for _, name in given))
        return StructuredResourceHandle(
            vendor_class_parameters=of_class,
            vendor_claim_parameters=resolved.of_claim.vendor_parameters,
            node_name=node,
            named_resources_with_attributes=result,
        )
    of_driver = (one for one in resolved.of_claim.driver_requests if one.driver_name == driver)
    results = tuple(
        DriverAllocationResult(
            vendor_request_parameters=wanted.parameters, named_resources=NamedResourcesAllocationResult(name=name)
        )
        for wanted, name in given
    )
    return StructuredResourceHandle(
        vendor_class_parameters=of_class,
        vendor_claim_parameters=next((one.vendor_parameters for one in of_driver), None),
        node_name=node,
        results=results,
    )


def vendor_parameters(parameters: ResourceClassParameters, driver: str) -> Any:
    """Those of a class for a driver: the draft has one object for all, 1.30 one for each."""
    given = parameters.vendor_parameters
    if isinstance(given, dict):
        return given
    return next((one.parameters for one in given if one.driver_name == driver), None)
