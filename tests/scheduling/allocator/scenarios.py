"""Random scenarios: small clusters with every feature, in the JSON of the conformance cases."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.scheduling.allocator.checker import MEANINGS, Json

DRIVERS = ("gpu.example.com", "nic.example.com")
FEATURES = (
    "adminAccess",
    "prioritizedList",
    "partitionableDevices",
    "consumableCapacity",
    "deviceTaints",
    "listTypeAttributes",
)
CLASSES: list[Json] = [
    {"metadata": {"name": "any"}, "spec": {}},
    {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": next(iter(MEANINGS))}}]}},
]


def rarely(times: int) -> st.SearchStrategy[bool]:
    """True about once in `times`."""
    return st.sampled_from([False] * (times - 1) + [True])


@st.composite
def devices(draw: st.DrawFn, *, number: int, counters: bool) -> Json:
    attributes: Json = {"model": {"string": draw(st.sampled_from("AB"))}}
    if draw(st.booleans()):
        attributes["numa"] = {"int": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        attributes["links"] = {"strings": draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True))}
    device: Json = {"name": f"device-{number}", "attributes": attributes}
    if draw(rarely(4)):
        device["taints"] = [{"key": "broken", "effect": draw(st.sampled_from(["NoSchedule", "None"]))}]
    if draw(rarely(3)):
        device["capacity"] = {"memory": {"value": draw(st.sampled_from(["4Gi", "8Gi"]))}}
        if draw(st.booleans()):
            device["capacity"]["memory"]["requestPolicy"] = {"default": "2Gi"}
        device["allowMultipleAllocations"] = draw(st.booleans())
    if counters:
        drawn = {"slots": {"value": str(draw(st.integers(1, 3)))}}
        device["consumesCounters"] = [{"counterSet": "set", "counters": drawn}]
    return device


@st.composite
def pools(draw: st.DrawFn, *, name: str, partitionable: bool) -> list[Json]:
    """One pool of one or two slices, now and then with a slice missing or left over from before."""
    driver = draw(st.sampled_from(DRIVERS))
    counters = partitionable and draw(st.booleans())
    target: Json = draw(st.sampled_from(TARGETS))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    count = len(sizes) + counters + draw(rarely(10))
    slices, number = [], 0
    for index, size in enumerate(sizes):
        listed = [draw(devices(number=number + offset, counters=counters)) for offset in range(size)]
        number += size
        spec: Json = {"driver": driver, "pool": _pool(name, 2, count), "devices": listed, **target}
        slices.append({"metadata": {"name": f"{driver}-{name}-{index}"}, "spec": spec})
    if counters:
        spec = {"driver": driver, "pool": _pool(name, 2, count), **target}
        spec["sharedCounters"] = [{"name": "set", "counters": {"slots": {"value": str(draw(st.integers(1, 5)))}}}]
        slices.append({"metadata": {"name": f"{driver}-{name}-counters"}, "spec": spec})
    if draw(rarely(6)):
        stale: Json = {"driver": driver, "pool": _pool(name, 1, 1), "devices": [{"name": "device-0"}], **target}
        slices.append({"metadata": {"name": f"{driver}-{name}-stale"}, "spec": stale})
    return slices


SOME_ZONE: Json = {
    "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
}

#: Most pools are for everybody, so that few nodes see nothing at all.
TARGETS: list[Json] = [
    {"allNodes": True},
    {"nodeName": "node-0"},
    SOME_ZONE,
    {"allNodes": True},
    {"nodeName": "node-1"},
]


def _pool(name: str, generation: int, count: int) -> Json:
    return {"name": name, "generation": generation, "resourceSliceCount": count}


@st.composite
def exact_requests(draw: st.DrawFn, *, features: Json, alternative: bool) -> Json:
    everything = draw(rarely(6))
    request: Json = {"deviceClassName": draw(st.sampled_from(["any", "gpu"]))}
    request |= {"allocationMode": "All"} if everything else {"allocationMode": "ExactCount"}
    if not everything:
        request["count"] = draw(st.integers(1, 2))
    if draw(rarely(3)):
        request["selectors"] = [{"cel": {"expression": draw(st.sampled_from(list(MEANINGS)))}}]
    if draw(rarely(3)):
        request["tolerations"] = [{"key": "broken", "operator": "Exists"}]
    if features.get("consumableCapacity") and draw(rarely(3)):
        request["capacity"] = {"requests": {"memory": draw(st.sampled_from(["1Gi", "3Gi", "5Gi"]))}}
    if features.get("adminAccess") and not alternative and draw(rarely(4)):
        request["adminAccess"] = True
    return request


@st.composite
def claims(draw: st.DrawFn, *, name: str, features: Json) -> Json:
    requests: list[Json] = []
    for number in range(draw(st.integers(1, 2))):
        if features.get("prioritizedList") and draw(st.booleans()):
            listed = draw(st.lists(exact_requests(features=features, alternative=True), min_size=1, max_size=2))
            subrequests = [{"name": f"sub-{index}", **one} for index, one in enumerate(listed)]
            requests.append({"name": f"req-{number}", "firstAvailable": subrequests})
        else:
            exactly = draw(exact_requests(features=features, alternative=False))
            requests.append({"name": f"req-{number}", "exactly": exactly})
    constraints: list[Json] = []
    if draw(st.booleans()):
        attributes = ["model", "numa"] + (["links"] if features.get("listTypeAttributes") else [])
        attribute = f"{draw(st.sampled_from(DRIVERS))}/{draw(st.sampled_from(attributes))}"
        constraint: Json = {draw(st.sampled_from(["matchAttribute", "distinctAttribute"])): attribute}
        if draw(st.booleans()):
            constraint["requests"] = ["req-0"]
        constraints.append(constraint)
    devices_: Json = {"requests": requests, "constraints": constraints}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices_}}


@st.composite
def scenarios(draw: st.DrawFn) -> Json:
    """A scenario = {features, nodes, classes, slices, allocatedClaims, claims}; two nodes."""
    features: Json = {name: True for name in FEATURES if draw(st.booleans())}
    # Constraints of the distinct kind came with consumable capacity; the reference knows them in any case.
    partitionable = bool(features.get("partitionableDevices"))
    names = draw(st.lists(st.sampled_from(["pool-a", "pool-b", "pool-c"]), min_size=1, max_size=3, unique=True))
    slices = [one for name in names for one in draw(pools(name=name, partitionable=partitionable))]
    nodes = [
        {"metadata": {"name": "node-0", "labels": {"zone": "a"}}},
        {"metadata": {"name": "node-1", "labels": {"zone": "b"}}},
    ]
    wanted = [draw(claims(name=f"claim-{index}", features=features)) for index in range(draw(st.integers(1, 2)))]
    return {
        "name": "random",
        "features": features,
        "nodes": nodes,
        "classes": CLASSES,
        "slices": slices,
        "allocatedClaims": draw(_held(slices, features)),
        "claims": wanted,
    }


@st.composite
def _held(draw: st.DrawFn, slices: list[Json], features: Json) -> list[Json]:
    """Allocations that may stand: exclusive devices held once, shares within what is there, counters kept."""
    held: list[Json] = []
    counted: set[str] = set()
    for one in slices:
        spec: Json = one["spec"]
        for device in spec.get("devices", ()):
            if spec["pool"]["generation"] != 2 or not draw(rarely(4)):
                continue
            result: Json = {"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"]}
            result["device"] = device["name"]
            if device.get("consumesCounters"):
                if spec["pool"]["name"] in counted or int(_slots(device)) > 1:
                    continue
                counted.add(spec["pool"]["name"])
            if features.get("consumableCapacity") and device.get("allowMultipleAllocations"):
                result |= {"shareID": "held", "consumedCapacity": {"memory": "2Gi"}}
            held.append(_allocated(f"held-{len(held)}", result))
    return held


def _slots(device: Json) -> str:
    value: str = device["consumesCounters"][0]["counters"]["slots"]["value"]
    return value


def _allocated(name: str, result: Json) -> Json:
    status: dict[str, Any] = {"allocation": {"devices": {"results": [result]}}}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}
