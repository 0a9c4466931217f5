"""No cache of the allocator answers for a request with what it worked out for a different one.

The fields are walked by reflection: a field that is new in the API, or in `RequestPlan`, fails a test here until two
values of it are listed, and then until the allocator tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import permutations
from typing import Any

import msgspec
import pytest

from claims.causes.causes import Fault, Misconfigured
from claims.kinds.resource_claims import (
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from inventory.kinds.devices import DeviceToleration
from scheduling.allocator import Inventory, NodeView, Outcome, Snapshot, Unallocatable, allocate, place
from scheduling.allocator.problem import selected
from scheduling.allocator.requests import NOT_IN_SIGNATURE, RequestPlan, SelectorRef, asked_key, plan_claim
from tests.scheduling.allocator.cases import (
    GPU,
    Json,
    device,
    holding,
    make_claim,
    make_class,
    make_inventory,
    make_slice,
    request,
)

NODES = (NodeView("node-1"), NodeView("node-2"))


def selector(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def capacity(amount: str) -> Json:
    return {"requests": {"memory": amount}}


#: Field of ExactDeviceRequest -> values that lead to different allocations.
EXACT: Mapping[str, tuple[Any, ...]] = {
    "deviceClassName": ("gpu", "nic"),
    "selectors": ([], [selector(f'device.attributes["{GPU}"].model == "B"')]),
    "allocationMode": ("ExactCount", "All"),
    "count": (1, 2, 40),
    "adminAccess": (False, True),
    "tolerations": ([], [{"operator": "Exists"}]),
    "capacity": (None, capacity("1Gi"), capacity("6Gi"), capacity("60Gi")),
}
#: Field of DeviceRequest -> the same.
REQUEST: Mapping[str, tuple[Any, ...]] = {
    "name": ("r", "s"),
    "exactly": (request()["exactly"], request(device_class="nic")["exactly"]),
    "firstAvailable": (
        [{"name": "a", "deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1}],
        [{"name": "a", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}],
    ),
}
#: Field of DeviceClaim -> the same.
CLAIM: Mapping[str, tuple[Any, ...]] = {
    "requests": ([request()], [request(count=2)]),
    "constraints": ([], [{"matchAttribute": f"{GPU}/model"}], [{"distinctAttribute": f"{GPU}/model"}]),
    "config": ([], [{"opaque": {"driver": GPU, "parameters": {"mode": "fast"}}}]),
}
#: Fields that do not change which devices accept a request, only how many it gets.
AMOUNTS = {"allocationMode", "count"}


def encoded(kind: type[msgspec.Struct]) -> list[str]:
    """The fields' names in JSON."""
    return [one.encode_name for one in msgspec.structs.fields(kind)]


def documents(field: str, values: tuple[Any, ...]) -> list[Json]:
    """Specs of claims that differ in nothing but this field of a request, of an alternative, or of themselves."""
    if field in CLAIM:
        return [{"requests": [request(count=2)], **({field: value} if value else {})} for value in values]
    if field in REQUEST:
        base: Json = {"name": "r"} if field == "firstAvailable" else request()
        return [{"requests": [{**base, field: value}]} for value in values]
    exact = request(count=2)["exactly"]
    plain = [{key: value for key, value in {**exact, field: value}.items() if value is not None} for value in values]
    if field == "allocationMode":
        plain = [{key: value for key, value in one.items() if key != "count"} for one in plain]
    found: list[Json] = [{"requests": [{"name": "r", "exactly": one}]} for one in plain]
    if field in encoded(DeviceSubRequest):
        found += [{"requests": [{"name": "r", "firstAvailable": [{"name": "a", **one}]}]} for one in plain]
    return found


def warm() -> Inventory:
    """Two nodes with plain, tainted and shared GPUs of two models, and a NIC; two of the GPUs are held."""
    taint = [{"key": "broken", "effect": "NoSchedule"}]
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
    slices = [
        make_slice(
            *({**device(f"a-{at}", type="gpu", model="A"), "taints": taint if at == 0 else []} for at in range(3)),
            *(device(f"b-{at}", type="gpu", model="B") for at in range(2)),
            *({**device(f"s-{at}", type="gpu", model="B"), **shared} for at in range(2)),
            device("nic", type="nic", model="B"),
            pool=node.name,
            nodeName=node.name,
        )
        for node in NODES
    ]
    classes = [make_class(name, f'device.attributes["{GPU}"].type == "{name}"') for name in ("gpu", "nic")]
    inventory = make_inventory(*slices, classes=classes)
    for at, node in enumerate(NODES):
        claim = make_claim(request(), name=f"held-{at}")
        found = place(inventory.snapshot(), [claim], [node]).outcome
        inventory.apply_claim(holding(claim, found.results[0]))  # type: ignore[union-attr]
    return inventory


def answers(snapshot: Snapshot, claim: ResourceClaim) -> tuple[Any, ...]:
    placement = place(snapshot, [claim], NODES)
    refusals = {name: described(refusal) for name, refusal in placement.refusals.items()}
    alone = [described(allocate(snapshot, [claim], node)) for node in NODES]
    return placement.node, described(placement.outcome), refusals, alone


def described(outcome: Outcome) -> Any:
    """Plans are compared by identity, so an outcome is, too, where it holds some."""
    if not isinstance(outcome, Unallocatable):
        return outcome
    return [(one.node, one.claim, one.request, one.wanted, one.funnel, one.cause) for one in outcome.reasons]


@pytest.mark.parametrize(
    ("kind", "listed"), [(ExactDeviceRequest, EXACT), (DeviceRequest, REQUEST), (DeviceClaim, CLAIM)]
)
def test_two_values_of_every_field_are_tried(kind: type[msgspec.Struct], listed: Mapping[str, Any]) -> None:
    assert list(listed) == encoded(kind)
    assert not set(encoded(DeviceSubRequest)) - {*EXACT, "name"}


@pytest.mark.parametrize(("field", "values"), [*EXACT.items(), *REQUEST.items(), *CLAIM.items()])
def test_a_request_gets_from_warm_caches_what_it_gets_from_cold_ones(field: str, values: tuple[Any, ...]) -> None:
    # Same name and uid: what differs is the field alone.
    claims = [claim_of(spec) for spec in documents(field, values)]
    cold = [answers(warm().snapshot(), claim) for claim in claims]
    for form in filter(None, (cold[: len(values)], cold[len(values) :])):  # requests and alternatives differ anyway
        assert any(one != other for one, other in permutations(form, 2)), "these values make no difference"
    for order in permutations(range(len(claims)), 2):
        snapshot = warm().snapshot()
        for at in (*order, *order):
            assert answers(snapshot, claims[at]) == cold[at]


def claim_of(devices: Json) -> ResourceClaim:
    return make_claim(*devices["requests"], **{name: one for name, one in devices.items() if name != "requests"})


@pytest.mark.parametrize(("field", "values"), EXACT.items())
def test_requests_that_differ_in_what_decides_their_devices_share_no_signature(
    field: str, values: tuple[Any, ...]
) -> None:
    snapshot = warm().snapshot()
    claims = [claim_of(spec) for spec in documents(field, values)]
    plans = [plan_claim(claim, snapshot.classes, snapshot.features).requests[0][0] for claim in claims]
    keys = [asked_key([claim]) for claim in claims]
    assert len(set(keys)) == len(keys)
    devices = [snapshot.on_node(node) for node in NODES]
    for one, other in permutations(plans, 2):
        masks = [[selected(seen, plan, snapshot.features) for seen in devices] for plan in (one, other)]
        if one.signature == other.signature:
            assert masks[0] == masks[1]
            assert field in AMOUNTS or one.parent != other.parent
        elif one.acceptance == other.acceptance:
            assert field == "capacity"


#: Field of RequestPlan -> another value than that of `PLAN`.
OTHERWISE: Mapping[str, Any] = {
    "selectors": (SelectorRef("class gpu", 0, "false"),),
    "admin": True,
    "tolerations": (DeviceToleration(operator="Exists"),),
    "capacity": (("memory", "1Gi"),),
    "name": "other",
    "claim": "default/other",
    "parent": "list",
    "class_name": "nic",
    "device_class": make_class("nic"),
    "everything": True,
    "count": 2,
    "error": Misconfigured(Fault.CLAIM, "wrong"),
}
PLAN = RequestPlan(name="r", claim="default/claim", class_name="gpu", count=1)


@pytest.mark.parametrize("field", [one.name for one in fields(RequestPlan) if one.init])
def test_what_is_left_out_of_a_signature_is_named_with_its_reason(field: str) -> None:
    changed = replace(PLAN, **{field: OTHERWISE[field]})
    is_in_it = field == "selectors" or field not in NOT_IN_SIGNATURE
    assert (changed.signature != PLAN.signature) == is_in_it
    assert (changed.acceptance != PLAN.acceptance) == (is_in_it and field != "capacity")
    assert set(NOT_IN_SIGNATURE) < {one.name for one in fields(RequestPlan)}
    assert all(NOT_IN_SIGNATURE.values())
