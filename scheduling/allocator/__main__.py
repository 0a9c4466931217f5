"""`python -m scheduling.allocator`: what would be allocated, for driver authors.

Reads one scenario a line from standard input and writes one line of answers for each. A line that is no scenario gets
{name, error}; the exit status is then 1.

A scenario = {name, features, classes, slices, nodes, allocatedClaims, claims} in plain resource.k8s.io/v1 and core/v1
JSON; allocatedDevices, allocatedSharedDevices and aggregatedCapacity state allocations without their claims.
`features` has the flags of upstream's `structured.Features` (`{"adminAccess": true}`); the others are off. Nothing is
defaulted, so requests need `allocationMode` and `count`.

Every node is answered on its own: {node, allocated, results, error, failedOnNode} without empty fields. An error
without `failedOnNode` blocks the pod on every node.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from claims.causes.messages import message
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from inventory.kinds.devices import DeviceClass, ResourceSlice
from manciple.wire.codec import decode_value, to_builtins
from manciple.wire.errors import ApiError
from scheduling.allocator.allocation import allocate
from scheduling.allocator.outcome import Allocated, AllocationFailed, Outcome, Undecided
from scheduling.allocator.published import Features, NodeView
from scheduling.allocator.snapshot import Inventory


def run_scenario(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """{name, answers: [{node, allocated, results, error, failedOnNode}]}: one answer per node."""
    snapshot = read_inventory(scenario).snapshot()
    claims = [decode_value(ResourceClaim, one) for one in scenario.get("claims") or ()]
    answers = []
    for node in scenario.get("nodes") or ():
        meta = node["metadata"]
        outcome = allocate(snapshot, claims, NodeView(meta["name"], meta.get("labels") or {}))
        answers.append({"node": meta["name"], **as_answer(outcome)})
    return {"name": scenario.get("name", ""), "answers": answers}


def read_inventory(scenario: Mapping[str, Any]) -> Inventory:
    """Raises: the codec's error, with its path, for what is not a slice, class or claim."""
    inventory = Inventory(Features.from_upstream(scenario.get("features") or {}))
    for published in _named_apart(scenario.get("slices") or ()):
        inventory.apply_slice(published)
    for device_class in scenario.get("classes") or ():
        inventory.apply_class(decode_value(DeviceClass, device_class))
    held = [decode_value(ResourceClaim, one) for one in scenario.get("allocatedClaims") or ()]
    inventory.assume(
        (_identity(claim), claim.status.allocation) for claim in held if claim.status.allocation is not None
    )
    for number, result in enumerate(_loose_allocations(scenario)):
        allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
        inventory.assume([(f"loose allocation {number}", allocation)])
    return inventory


def _named_apart(slices: Sequence[Any]) -> Iterator[ResourceSlice]:
    """Hand-written scenarios repeat slice names. A repeated one sorts right behind its namesake."""
    seen: set[str] = set()
    for number, raw in enumerate(slices):
        published = decode_value(ResourceSlice, raw)
        if published.metadata.name in seen:
            meta = replace(published.metadata, name=f"{published.metadata.name}\0{number:06}")
            published = replace(published, metadata=meta)
        seen.add(published.metadata.name)
        yield published


def as_answer(outcome: Outcome) -> dict[str, Any]:
    """The fields of one answer; those that say nothing are left out."""
    if isinstance(outcome, Allocated):
        return {"allocated": True, "results": [to_builtins(replace(one, drawn_counters=())) for one in outcome.results]}
    if isinstance(outcome, AllocationFailed):
        return {"allocated": False, "error": outcome.error}
    if isinstance(outcome, Undecided):
        return {"allocated": False, "error": message(outcome.cause), "failedOnNode": True}
    if outcome.pool_fault is not None:
        return {"allocated": False, "error": outcome.pool_fault.error, "failedOnNode": True}
    return {"allocated": False}


def _identity(claim: ResourceClaim) -> str:
    return claim.metadata.uid or f"{claim.metadata.namespace}/{claim.metadata.name}"


def _loose_allocations(scenario: Mapping[str, Any]) -> list[DeviceRequestAllocationResult]:
    """Allocations that are stated by device alone. A share is stated by its id, its capacity, or both."""
    loose = [_result(one) for one in scenario.get("allocatedDevices") or ()]
    consumed = {_place(one): one["capacity"] for one in scenario.get("aggregatedCapacity") or ()}
    for one in scenario.get("allocatedSharedDevices") or ():
        loose.append(_result(one, share_id=one["shareID"], consumed_capacity=consumed.pop(_place(one), {})))
    for (driver, pool, device), capacity in consumed.items():
        place = {"driver": driver, "pool": pool, "device": device}
        loose.append(_result(place, share_id="aggregated", consumed_capacity=capacity))
    return loose


def _place(stated: Mapping[str, Any]) -> tuple[str, str, str]:
    return stated["driver"], stated["pool"], stated["device"]


def _result(stated: Mapping[str, Any], **fields: Any) -> DeviceRequestAllocationResult:
    driver, pool, device = _place(stated)
    return DeviceRequestAllocationResult(driver=driver, pool=pool, device=device, **fields)


def main(lines: Iterable[bytes]) -> int:
    """The exit status: 0 when every line could be read."""
    status = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = run_scenario(msgspec.json.decode(line))
        except (msgspec.MsgspecError, ApiError, KeyError, TypeError, ValueError) as error:
            answer, status = {"name": f"line {number}", "error": f"{type(error).__name__}: {error}"}, 1
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer))
