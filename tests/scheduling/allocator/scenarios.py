"""Random scenarios: small clusters with every feature, in the JSON of the conformance cases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
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


# Strategies made once, and plain functions that draw from them: Hypothesis examines each new strategy before it draws
# from it, which took half the time of a scenario.


@cache
def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@cache
def rarely(times: int) -> st.SearchStrategy[bool]:
    """True about once in `times`."""
    return st.sampled_from([False] * (times - 1) + [True])


BOOLEANS = st.booleans()
ONE_OR_TWO, UP_TO_THREE, UP_TO_FIVE = st.integers(1, 2), st.integers(1, 3), st.integers(1, 5)
LINKS = st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True)
SIZES = st.lists(UP_TO_THREE, min_size=1, max_size=2)
POOLS = st.lists(st.sampled_from(["pool-a", "pool-b", "pool-c"]), min_size=1, max_size=3, unique=True)


def _device(draw: st.DrawFn, *, number: int, counters: bool) -> Json:
    attributes: Json = {"model": {"string": draw(one_of("A", "B"))}}
    if draw(BOOLEANS):
        attributes["numa"] = {"int": draw(one_of(0, 1))}
    if draw(BOOLEANS):
        attributes["links"] = {"strings": draw(LINKS)}
    device: Json = {"name": f"device-{number}", "attributes": attributes}
    if draw(rarely(4)):
        device["taints"] = [{"key": "broken", "effect": draw(one_of("NoSchedule", "None"))}]
    if draw(rarely(3)):
        device["capacity"] = {"memory": {"value": draw(one_of("4Gi", "8Gi"))}}
        if draw(BOOLEANS):
            device["capacity"]["memory"]["requestPolicy"] = {"default": "2Gi"}
        device["allowMultipleAllocations"] = draw(BOOLEANS)
    if counters:
        drawn = {"slots": {"value": str(draw(UP_TO_THREE))}}
        device["consumesCounters"] = [{"counterSet": "set", "counters": drawn}]
    return device


def _pools(draw: st.DrawFn, *, name: str, partitionable: bool) -> list[Json]:
    """One pool of one or two slices, now and then with a slice missing, left over from before, or with names twice."""
    driver = draw(one_of(*DRIVERS))
    counters = partitionable and draw(BOOLEANS)
    target = TARGETS[draw(TARGET)]
    sizes = draw(SIZES)
    count = len(sizes) + counters + draw(rarely(6))
    slices, number = [], 0
    for index, size in enumerate(sizes):
        listed = [_device(draw, number=number + offset, counters=counters) for offset in range(size)]
        number += 0 if draw(rarely(12)) else size  # the next slice repeats names: the pool is invalid
        spec: Json = {"driver": driver, "pool": _pool(name, 2, count), "devices": listed, **target}
        slices.append({"metadata": {"name": f"{driver}-{name}-{index}"}, "spec": spec})
    if counters:
        spec = {"driver": driver, "pool": _pool(name, 2, count), **target}
        spec["sharedCounters"] = [{"name": "set", "counters": {"slots": {"value": str(draw(UP_TO_FIVE))}}}]
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
TARGET = st.integers(0, len(TARGETS) - 1)


def _pool(name: str, generation: int, count: int) -> Json:
    return {"name": name, "generation": generation, "resourceSliceCount": count}


def _exact_request(draw: st.DrawFn, *, features: Json, alternative: bool) -> Json:
    everything = draw(rarely(6))
    request: Json = {"deviceClassName": draw(one_of("any", "gpu"))}
    request |= {"allocationMode": "All"} if everything else {"allocationMode": "ExactCount"}
    if not everything:
        request["count"] = draw(ONE_OR_TWO)
    if draw(rarely(3)):
        request["selectors"] = [{"cel": {"expression": draw(one_of(*MEANINGS))}}]
    if draw(rarely(3)):
        request["tolerations"] = [{"key": "broken", "operator": "Exists"}]
    if features.get("consumableCapacity") and draw(rarely(3)):
        request["capacity"] = {"requests": {"memory": draw(one_of("1Gi", "3Gi", "5Gi"))}}
    if features.get("adminAccess") and not alternative and draw(rarely(4)):
        request["adminAccess"] = True
    return request


def a_claim(draw: st.DrawFn, *, name: str, features: Json) -> Json:
    requests: list[Json] = []
    for number in range(draw(ONE_OR_TWO)):
        if features.get("prioritizedList") and draw(BOOLEANS):
            listed = [_exact_request(draw, features=features, alternative=True) for _ in range(draw(ONE_OR_TWO))]
            subrequests = [{"name": f"sub-{index}", **one} for index, one in enumerate(listed)]
            requests.append({"name": f"req-{number}", "firstAvailable": subrequests})
        else:
            exactly = _exact_request(draw, features=features, alternative=False)
            requests.append({"name": f"req-{number}", "exactly": exactly})
    constraints: list[Json] = []
    if draw(BOOLEANS):
        attributes = ("model", "numa", *(["links"] if features.get("listTypeAttributes") else []))
        attribute = f"{draw(one_of(*DRIVERS))}/{draw(one_of(*attributes))}"
        constraint: Json = {draw(one_of("matchAttribute", "distinctAttribute")): attribute}
        if draw(BOOLEANS):
            constraint["requests"] = ["req-0"]
        constraints.append(constraint)
    devices_: Json = {"requests": requests, "constraints": constraints}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices_}}


@st.composite
def scenarios(draw: st.DrawFn) -> Json:
    """A scenario = {features, nodes, classes, slices, allocatedClaims, claims}; two nodes."""
    features: Json = {name: True for name in FEATURES if draw(BOOLEANS)}
    # Constraints of the distinct kind came with consumable capacity; the reference knows them in any case.
    partitionable = bool(features.get("partitionableDevices"))
    names = draw(POOLS)
    slices = [one for name in names for one in _pools(draw, name=name, partitionable=partitionable)]
    nodes = [
        {"metadata": {"name": "node-0", "labels": {"zone": "a"}}},
        {"metadata": {"name": "node-1", "labels": {"zone": "b"}}},
    ]
    wanted = [a_claim(draw, name=f"claim-{index}", features=features) for index in range(draw(ONE_OR_TWO))]
    return {
        "name": "random",
        "features": features,
        "nodes": nodes,
        "classes": CLASSES,
        "slices": slices,
        "allocatedClaims": _held(draw, slices, features),
        "claims": wanted,
    }


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
    for pool in sorted({one["spec"]["pool"]["name"] for one in slices}):
        held += _gone(draw, pool, slices)
    return held


def _gone(draw: st.DrawFn, pool: str, slices: list[Json]) -> Iterator[Json]:
    """Devices that somebody holds and nobody publishes any more, with what they drew from a counter set, which may be
    gone as well.
    """
    specs = [one["spec"] for one in slices if one["spec"]["pool"]["name"] == pool]
    drivers = {spec["driver"] for spec in specs if spec.get("sharedCounters")}
    for driver in sorted(drivers):
        if draw(rarely(3)):
            counter_set = draw(one_of("set", "set", "old"))
            drawn = {"counterSet": counter_set, "counters": {"slots": {"value": str(draw(ONE_OR_TWO))}}}
            where = {"driver": driver, "pool": pool, "device": "gone"}
            record = {**where, "consumes": [drawn], "counterSets": [counter_set]}
            yield _allocated(f"gone-{driver}-{pool}", {"request": "r", **where}, record)


def _slots(device: Json) -> str:
    value: str = device["consumesCounters"][0]["counters"]["slots"]["value"]
    return value


def _allocated(name: str, result: Json, *drawn: Json) -> Json:
    status: dict[str, Any] = {"allocation": {"devices": {"results": [result]}, "~drawnCounters": list(drawn)}}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}
