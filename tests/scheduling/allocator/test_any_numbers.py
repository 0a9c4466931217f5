"""`fragmentation` takes any numbers: its work is bounded, and it finds as many places as who takes the first."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceClass, ResourceSlice
from manciple.wire.codec import decode_value
from scheduling.allocator import Allocated, Inventory, NodeView, Score, first_named, place
from scheduling.placement.demands import Demand, DemandMix, NodeNeeds, RoomTable
from scheduling.placement.fragmentation import policy
from scheduling.placement.fragmentation.policy import Fragmentation
from scheduling.placement.fragmentation.units import MOST_DEVICES, UnitOutlooks
from tests.examples import some
from tests.scheduling.allocator.checker import Json

QUICK = settings(max_examples=some(50), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
DRIVER = "gpu.example.com"


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """devices: of each node. counters: of the set `card` of each node. asked: the `devices` of a claim each."""

    devices: Sequence[Json]
    asked: Sequence[Json]
    counters: Json = field(default_factory=dict)
    nodes: int = 2
    steps: int = 4


def asks(count: int = 1, *, memory: str = "", same: str = "") -> Json:
    exactly: Json = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
    exactly |= {"capacity": {"requests": {"memory": memory}}} if memory else {}
    constraints = [{"matchAttribute": f"{DRIVER}/{same}"}] if same else []
    return {"requests": [{"name": "r", "exactly": exactly}], "constraints": constraints}


def partition(number: int, **counters: int | str) -> Json:
    drawn = {name: {"value": str(value)} for name, value in counters.items()}
    return {"name": f"p-{number}", "consumesCounters": [{"counterSet": "card", "counters": drawn}]}


def share(number: int, memory: int | str) -> Json:
    capacity = {"memory": {"value": str(memory)}}
    return {"name": f"s-{number}", "allowMultipleAllocations": True, "capacity": capacity}


def device(number: int, **attributes: int) -> Json:
    return {"name": f"d-{number}", "attributes": {name: {"int": value} for name, value in attributes.items()}}


ODD = random.Random(7)
MANY: dict[str, Numbers] = {
    "250 partitions that are alike": Numbers(
        devices=[partition(at, slots=1) for at in range(250)], counters={"slots": "250"}, asked=[asks(), asks(8)]
    ),
    "250 partitions, of so many bytes each": Numbers(
        devices=[partition(at, memory=10**9 + ODD.randrange(10**6)) for at in range(250)],
        counters={"memory": str(10**11 + 7)},
        asked=[asks(), asks(8)],
    ),
    "500 devices with two attributes": Numbers(
        devices=[device(at, root=at // 4, numa=at % 2) for at in range(500)],
        asked=[asks(), asks(2, same="numa"), asks(3, same="root"), asks(8)],
    ),
    "500 devices that have one attribute in common": Numbers(
        devices=[device(at, numa=0) for at in range(500)], asked=[asks(), asks(2, same="numa")]
    ),
    "shares of odd bytes, hundreds of demands": Numbers(
        devices=[share(at, 85_899_345_920 - ODD.randrange(10**6)) for at in range(8)],
        asked=[asks(memory=str(ODD.randrange(1, 85 * 10**9))) for _ in range(420)],
        nodes=12,
    ),
    "counts of 2^62": Numbers(
        devices=[device(at, numa=0) for at in range(4)], asked=[asks(2**62, same="numa"), asks(10**9), asks()], steps=3
    ),
    "numbers of 30 digits": Numbers(
        devices=[share(at, "9" * 30) for at in range(4)], asked=[asks(memory="9" * 29), asks(memory="1"), asks()]
    ),
    "devices without capacity, counters of nothing": Numbers(
        devices=[*(share(at, 0) for at in range(2)), partition(2, slots=0), partition(3, empty=1)],
        counters={"slots": "0", "empty": "0"},
        asked=[asks(), asks(memory="0"), asks(memory="1"), asks(2)],
    ),
    "no devices": Numbers(devices=[], asked=[asks()]),
    "no nodes": Numbers(devices=[device(0)], asked=[asks()], nodes=0),
    "no demands": Numbers(devices=[device(0)], asked=[]),
}


def claim(number: int, asked: Json) -> ResourceClaim:
    meta = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"}
    made: ResourceClaim = decode_value(ResourceClaim, {"metadata": meta, "spec": {"devices": asked}})
    return made


def placed(numbers: Numbers, score: Callable[[DemandMix], Score]) -> int:
    """Of so many steps, in how many there was a place."""
    inventory = Inventory()
    inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "any"}, "spec": {}}))
    nodes = tuple(NodeView(f"node-{at}") for at in range(numbers.nodes))
    for node in nodes:
        for one in _published(numbers, node.name):
            inventory.apply_slice(decode_value(ResourceSlice, one))
    mix = DemandMix.of(
        Demand(claims=(claim(at, one),), needs=NodeNeeds(1000 * at, 512)) for at, one in enumerate(numbers.asked)
    )
    found = 0
    for step in range(numbers.steps):
        wanted = claim(step, numbers.asked[step % len(numbers.asked)] if numbers.asked else asks())
        answer = place(inventory.snapshot(), (wanted,), nodes, score=score(mix))
        if answer.node is not None and isinstance(answer.outcome, Allocated):
            inventory.assume(((wanted.metadata.uid, answer.outcome.results[0]),))
            found += 1
    return found


def _published(numbers: Numbers, node: str) -> list[Json]:
    parts: list[Json] = [
        {"devices": numbers.devices[at : at + 128]} for at in range(0, max(1, len(numbers.devices)), 128)
    ]
    if numbers.counters:
        totals = {name: {"value": value} for name, value in numbers.counters.items()}
        parts.append({"sharedCounters": [{"name": "card", "counters": totals}]})
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
    specs = ({"driver": DRIVER, "nodeName": node, "pool": pool, **part} for part in parts)
    return [{"metadata": {"name": f"{node}-{at}"}, "spec": spec} for at, spec in enumerate(specs)]


@pytest.mark.parametrize("numbers", MANY.values(), ids=MANY)
def test_large_and_odd_numbers_are_judged_with_bounded_work(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    following = UnitOutlooks._following

    def counted(*arguments: object) -> object:
        nonlocal looked_at
        looked_at += 1
        return following(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(UnitOutlooks, "_following", counted)
    assert placed(numbers, lambda mix: Fragmentation(mix=mix)) == placed(numbers, lambda _mix: first_named)
    assert looked_at < 10_000


def test_devices_of_a_node_that_sees_too_many_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_through: list[object] = []

    def consumed(*arguments: object) -> dict[int, object]:
        looked_through.append(arguments)
        return {}

    monkeypatch.setattr(policy, "_consumed", consumed)
    for count, looks in ((MOST_DEVICES, True), (MOST_DEVICES + 1, False)):
        shared = Numbers(devices=[share(at, 8) for at in range(count)], asked=[asks(memory="1")])
        assert placed(shared, lambda mix: Fragmentation(mix=mix)) == shared.steps
        assert bool(looked_through) == looks
        looked_through.clear()


_AMOUNTS = st.one_of(st.integers(0, 5), st.integers(0, 10**12), st.sampled_from([2**62, 2**63 - 1, 10**27]))
_DEVICES = st.one_of(
    st.builds(share, st.just(0), _AMOUNTS),
    st.builds(partition, st.just(0), memory=_AMOUNTS),
    st.builds(device, st.just(0), numa=st.integers(0, 1)),
)
_ASKED = st.builds(
    asks,
    st.one_of(st.integers(1, 3), st.sampled_from([10**6, 2**62])),
    memory=st.one_of(st.just(""), _AMOUNTS.map(str)),
    same=st.sampled_from(["", "numa"]),
)


@QUICK
@given(
    st.lists(_DEVICES, max_size=12),
    st.lists(st.tuples(_ASKED, st.sampled_from([0.0, 1e-300, 1.0, 1e300])), max_size=4),
    _AMOUNTS,
    st.tuples(st.integers(-(10**6), 10**15), st.integers(-(10**6), 10**15)),
)
def test_numbers_of_any_size_find_a_place_where_there_is_one(
    devices: list[Json], asked: list[tuple[Json, float]], total: int, left: tuple[int, int]
) -> None:
    named = [one | {"name": f"{one['name']}-{at}"} for at, one in enumerate(devices)]
    numbers = Numbers(devices=named, counters={"memory": str(total)}, asked=[one for one, _ in asked], steps=6, nodes=1)
    room = RoomTable({"node-0": NodeNeeds(*left)})
    mix = DemandMix.of(
        Demand(claims=(claim(at, one),), needs=NodeNeeds(*map(abs, left)), weight=weight)
        for at, (one, weight) in enumerate(asked)
    )
    first = placed(numbers, lambda _mix: first_named)
    assert bool(placed(numbers, lambda _mix: Fragmentation(mix=mix, room=room))) == bool(first)
