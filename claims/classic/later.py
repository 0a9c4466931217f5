"""ResourceClaim and ResourceClaimTemplate in v1alpha3, the form in which KEP-3063 was left. PURE.

They ask for devices as today, and may name a controller that allocates (`controllerName`, which Kubernetes 1.31 spelled
`controller`: both are read, and both are given back, so that clients of either find theirs). Requests are read flat, as
1.31 has them, and with `exactly`, as v1 has them; they are given back flat.
Source: KEP-3063 (API); k8s.io/api/resource/v1alpha3 of Kubernetes 1.31.
"""

from __future__ import annotations

from typing import Annotated, Any

from claims.kinds import conversion
from claims.kinds.resource_claims import (
    AllocatedDeviceStatus,
    DeviceAllocationResult,
    ExactDeviceRequest,
    ResourceClaimConsumerReference,
)
from inventory.kinds.conversion import map_field, map_items, renamed
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, TimeText, Value, always, pb
from manciple.wire.errors import BadRequest

PACKAGE = "io.k8s.api.resource.v1alpha3"


class DeviceRequest(conversion.DeviceRequest):
    """Devices of one class, or the first of several alternatives that fits.

    exactly: the same as the fields beside it, as later versions write it.
    """

    exactly: Annotated[ExactDeviceRequest | None, pb(10)] = None


class DeviceClaim(conversion.DeviceClaim):
    """All that a claim asks for."""

    requests: Annotated[tuple[DeviceRequest, ...], pb(1)] = ()


class ResourceClaimSpec(conversion.ResourceClaimSpec):
    """What is asked for, and of whom. Immutable.

    controller_name: the driver whose controller allocates the claim; the scheduler does where it is empty.
    controller: the same, as Kubernetes 1.31 spells it.
    """

    devices: Annotated[DeviceClaim, pb(1)] = DeviceClaim()
    controller_name: Annotated[str, pb(2)] = ""
    controller: str = ""


class AllocationResult(Value):
    """What was given, where it is available, and by whom.

    node_selector: the nodes on which the devices are available; every node without one.
    controller_name: the driver that allocated, and has to deallocate; empty where the scheduler did.
    controller: the same, as Kubernetes 1.31 spells it. allocation_timestamp: when the devices were given.
    """

    devices: Annotated[DeviceAllocationResult, pb(1)] = DeviceAllocationResult()
    node_selector: Annotated[NodeSelector | None, pb(3)] = None
    controller_name: Annotated[str, pb(4)] = ""
    controller: str = ""
    allocation_timestamp: Annotated[TimeText | None, pb(5, encoding="time")] = None


def controller_of(part: ResourceClaimSpec | AllocationResult) -> str:
    """The driver whose controller allocates, or did, in whichever spelling; "" where the scheduler does."""
    return part.controller_name or part.controller


class ResourceClaimStatus(Value):
    """What was given, who may use it, and what the drivers report about it.

    reserved_for: who may use the devices; at most 256. deallocation_requested: the driver that allocated is to
    deallocate; until then nobody else may use the claim.
    """

    allocation: Annotated[AllocationResult | None, pb(1)] = None
    reserved_for: Annotated[tuple[ResourceClaimConsumerReference, ...], pb(2, merge_key="uid")] = ()
    deallocation_requested: Annotated[bool, pb(3)] = False
    devices: Annotated[tuple[AllocatedDeviceStatus, ...], pb(4, list_keys="driver,device,pool,shareID")] = ()


class ResourceClaim(ApiObject):
    """A request for devices, and once it is allocated, the devices. Namespaced."""

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())
    status: Annotated[ResourceClaimStatus, pb(3)] = ResourceClaimStatus()


class ResourceClaimTemplateSpec(conversion.ResourceClaimTemplateSpec):
    """The claim to be made.

    metadata: labels and annotations of the claims; nothing else of it is taken over.
    """

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())


class ResourceClaimTemplate(conversion.ResourceClaimTemplate):
    """The template from which each pod that names it gets a claim of its own. Namespaced."""

    spec: Annotated[ResourceClaimTemplateSpec, pb(2)] = always(ResourceClaimTemplateSpec())


# Conversion -----------------------------------------------------------------------------------------------------------


Document = dict[str, Any]

#: What of a stored claim v1alpha3 has no place for, by attributes; of a template it stands in the spec's spec.
KEPT_OF_SPEC = (("resource_class_name",), ("parameters_ref",), ("allocation_mode",))
KEPT = (
    *(("spec", *place) for place in KEPT_OF_SPEC),
    ("status", "driver_name"),
    ("status", "allocation", "resource_handles"),
    ("status", "allocation", "shareable"),
    ("status", "allocation", "drawn_counters"),
)
KEPT_OF_TEMPLATE = tuple(("spec", "spec", *place) for place in KEPT_OF_SPEC)

_CONTROLLER, _OF_1_31, _STORED = "controllerName", "controller", "~controllerName"
_REQUESTED = "deallocationRequested"


def claim_to_storage(document: Document) -> Document:
    """Raises: BadRequest where the two spellings of the controller name different ones."""
    stored = map_field(document, ("spec",), _spec_to_storage)
    stored = map_field(stored, ("status", "allocation"), lambda one: _controller_to_storage(one, "status.allocation"))
    return map_field(stored, ("status",), lambda status: renamed(status, {_REQUESTED: f"~{_REQUESTED}"}))


def claim_from_storage(document: Document) -> Document:
    shown = map_field(document, ("spec",), _spec_from_storage)
    shown = map_field(shown, ("status", "allocation"), _controller_from_storage)
    shown = map_field(shown, ("status",), lambda status: renamed(status, {f"~{_REQUESTED}": _REQUESTED}))
    return map_field(shown, ("status",), _without_asides)


def template_to_storage(document: Document) -> Document:
    """Raises: BadRequest where the two spellings of the controller name different ones."""
    return map_field(document, ("spec", "spec"), _spec_to_storage)


def template_from_storage(document: Document) -> Document:
    return map_field(document, ("spec", "spec"), _spec_from_storage)


def _spec_to_storage(spec: Any) -> Any:
    nested = map_field(spec, ("devices", "requests"), map_items(conversion.nest)) if isinstance(spec, dict) else spec
    return _controller_to_storage(nested, "spec")


def _spec_from_storage(spec: Any) -> Any:
    if not isinstance(spec, dict):
        return spec
    return _controller_from_storage(map_field(spec, ("devices", "requests"), map_items(conversion.flatten)))


def _controller_to_storage(part: Any, path: str) -> Any:
    if not isinstance(part, dict):
        return part
    names = {name: part[name] for name in (_CONTROLLER, _OF_1_31) if part.get(name)}
    if len(set(map(str, names.values()))) > 1:
        told = " and ".join(f"{path}.{name} is {value!r}" for name, value in names.items())
        raise BadRequest(f"{told}: they are one field in two spellings, set one of them")
    rest = {name: value for name, value in part.items() if name not in (_CONTROLLER, _OF_1_31)}
    return rest | ({_STORED: next(iter(names.values()))} if names else {})


def _controller_from_storage(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    name = part.get(_STORED)
    return _without_asides(part) | ({_CONTROLLER: name, _OF_1_31: name} if name else {})


def _without_asides(part: Any) -> Any:
    return {name: value for name, value in part.items() if not name.startswith("~")} if isinstance(part, dict) else part
