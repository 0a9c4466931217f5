"""Builders of what the allocator reads, short enough that a test shows only what it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from inventory.kinds.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from manciple.wire.codec import decode_value
from scheduling.allocator import Allocated, Features, Inventory, NodeView, Outcome, allocate

Json = dict[str, Any]
GPU = "gpu.example.com"
NODE = NodeView("node-1", {"zone": "a"})


def device(name: str, **attributes: Any) -> Json:
    """A device with attributes by Python type: str, int, bool, or a list of strings."""
    return {"name": name, "attributes": {key: _attribute(value) for key, value in attributes.items()}}


def _attribute(value: Any) -> Json:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"strings": value} if isinstance(value, list) else {"string": value}


def make_slice(
    *devices: Json | str, pool: str = "pool-1", name: str = "", generation: int = 1, count: int = 1, **spec: Any
) -> ResourceSlice:
    """A slice for node-1 unless `spec` says where else."""
    where = {"nodeName": "node-1"} if not spec.keys() & {"nodeName", "nodeSelector", "allNodes"} else {}
    listed = [device(one) if isinstance(one, str) else one for one in devices]
    body = {
        "driver": GPU,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": listed,
        **where,
        **spec,
    }
    published: ResourceSlice = decode_value(ResourceSlice, {"metadata": {"name": name or pool}, "spec": body})
    return published


def make_class(name: str = "gpu", *expressions: str, config: Sequence[Json] = ()) -> DeviceClass:
    spec = {"selectors": [{"cel": {"expression": one}} for one in expressions], "config": list(config)}
    made: DeviceClass = decode_value(DeviceClass, {"metadata": {"name": name}, "spec": spec})
    return made


def request(name: str = "r", *, count: int = 1, device_class: str = "gpu", where: str = "", **fields: Any) -> Json:
    """An exact request; `where` is a selector."""
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **fields}
    if where:
        exactly["selectors"] = [{"cel": {"expression": where}}]
    return {"name": name, "exactly": exactly}


def make_claim(*requests: Json, name: str = "claim", match: str = "", **devices: Any) -> ResourceClaim:
    """A claim of namespace default; `match` is a matchAttribute over all requests."""
    if match:
        devices["constraints"] = [{"matchAttribute": match}]
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    spec = {"devices": {"requests": list(requests) or [request()], **devices}}
    made: ResourceClaim = decode_value(ResourceClaim, {"metadata": meta, "spec": spec})
    return made


def holding(claim: ResourceClaim, result: AllocationResult) -> ResourceClaim:
    """The claim with `result` in its status, as an event would bring it."""
    return replace(claim, status=replace(claim.status, allocation=result))


def make_rule(name: str, *, effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    spec = {"deviceSelector": selector, "taint": {"key": "broken", "effect": effect}}
    made: DeviceTaintRule = decode_value(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})
    return made


def make_inventory(
    *slices: ResourceSlice, classes: Sequence[DeviceClass] = (), features: Features | None = None
) -> Inventory:
    """With a class "gpu" that takes every device, unless classes are given."""
    inventory = Inventory(features or Features())
    for one in slices:
        inventory.apply_slice(one)
    for device_class in classes or (make_class(),):
        inventory.apply_class(device_class)
    return inventory


def answer(inventory: Inventory, *claims: ResourceClaim, node: NodeView = NODE) -> Outcome:
    return allocate(inventory.snapshot(), claims, node)


def names(outcome: Outcome) -> list[list[str]]:
    """The devices given, per claim. Fails where nothing was given."""
    assert isinstance(outcome, Allocated), outcome
    return [[one.device for one in result.devices.results] for result in outcome.results]


def node(name: str, **labels: str) -> NodeView:
    found: Mapping[str, str] = labels
    return NodeView(name, found)
