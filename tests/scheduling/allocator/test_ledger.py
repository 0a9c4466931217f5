"""What allocations by others would give twice: devices, capacities, counters, by the allocator's arithmetic."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from claims.kinds.resource_claims import (
    AllocationResult,
    CapacityRequirements,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from inventory.kinds.devices import (
    Counter as SharedCounter,
)
from inventory.kinds.devices import (
    CounterSet,
    Device,
    DeviceCounterConsumption,
    ResourceSlice,
)
from manciple.wire.quantity import Quantity
from scheduling.allocator import Allocated, Inventory, NodeView, allocate
from scheduling.allocator.ledger import AllocationLedger, DeviceName
from tests.builders import (
    CLASS,
    make_allocation,
    make_claim,
    make_class,
    make_device,
    make_node_selector,
    make_request,
    make_result,
    make_slice,
)

#: how an overlap is told here: (kind, device, limit, holders)
Told = tuple[str, str, str, tuple[str, ...]]


def draws(amount: int, *, counter_set: str = "card", counter: str = "memory") -> tuple[DeviceCounterConsumption, ...]:
    counters = {counter: SharedCounter(value=str(amount))}
    return (DeviceCounterConsumption(counter_set=counter_set, counters=counters),)


def cards(
    *devices: Device, total: int = 8, pool: str = "node-1", node: str | None = "node-1", **more: Any
) -> list[ResourceSlice]:
    counters = CounterSet(name="card", counters={"memory": SharedCounter(value=str(total))})
    where: dict[str, Any] = {"pool": pool, "node": node, "slices": 2, **more}
    return [
        make_slice(f"{pool}-{node}-sets", devices=(), shared_counters=(counters,), **where),
        make_slice(f"{pool}-{node}-devices", devices=devices, **where),
    ]


def part(name: str, amount: int, **fields: Any) -> Device:
    return make_device(name, consumes_counters=draws(amount), **fields)


def nic(name: str = "nic", **capacity: str) -> Device:
    return make_device(name, capacity=capacity, allow_multiple_allocations=True)


def share(
    device: str = "nic", number: int = 1, *, pool: str = "node-1", **consumed: str
) -> DeviceRequestAllocationResult:
    share_id = f"00000000-0000-4000-8000-{number:012}"
    return make_result(device, pool=pool, share_id=share_id, consumed_capacity=consumed)


def of(*devices: str, node: str | None = "node-1", pool: str = "node-1", **fields: Any) -> AllocationResult:
    return make_allocation(*(make_result(one, pool=pool, **fields) for one in devices), node=node)


ONE_NODE = [make_slice(devices=(make_device("gpu-0"), make_device("gpu-1")))]
TWO_NODES = [make_slice(f"gpus-{node}", node=node, pool="gpus") for node in ("node-1", "node-2")]
NETWORK = [make_slice("net", node=None, pool="net", all_nodes=True)]
PARTS = cards(part("half-a", 4), part("half-b", 4), part("whole", 8), part("small", 1))
SHARED_PART = cards(part("shared", 4, allow_multiple_allocations=True), part("whole", 8), part("half", 4))
NICS = [make_slice(devices=(nic(bandwidth="10"), nic("free"), make_device("plain", capacity={"bandwidth": "10"})))]
SPREAD = [
    make_slice("spread-sets", node="node-1", pool="p", slices=3, devices=(),
               shared_counters=(CounterSet(name="card", counters={"memory": SharedCounter(value="8")}),)),
    make_slice("spread-1", node="node-1", pool="p", slices=3, devices=(part("a", 5),)),
    make_slice("spread-2", node="node-2", pool="p", slices=3, devices=(part("b", 5), part("c", 3))),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    slices: Sequence[ResourceSlice]
    held: Mapping[str, AllocationResult]
    wanted: AllocationResult
    overlaps: Sequence[Told] = ()
    instead: Mapping[str, AllocationResult | None] = field(default_factory=dict)


CASES = {
    "a free device": Case(ONE_NODE, {"a": of("gpu-0")}, of("gpu-1")),
    "a device that another claim holds": Case(
        ONE_NODE, {"a": of("gpu-0")}, of("gpu-1", "gpu-0"), [("device", "gpu-0", "", ("a",))]
    ),
    "a device that the claim itself held": Case(ONE_NODE, {"me": of("gpu-0")}, of("gpu-0")),
    "a device that another driver has under the same name": Case(
        ONE_NODE, {"a": of("gpu-0", driver="other.example.com")}, of("gpu-0")
    ),
    "a device with admin access, which others hold": Case(ONE_NODE, {"a": of("gpu-0")}, of("gpu-0", admin_access=True)),
    "a device that others look at with admin access": Case(
        ONE_NODE, {"a": of("gpu-0", admin_access=True)}, of("gpu-0")
    ),
    "a device twice in one allocation": Case(ONE_NODE, {}, of("gpu-0", "gpu-0"), [("device", "gpu-0", "", ())]),
    "a device that nobody publishes": Case(ONE_NODE, {}, of("gone")),
    "a device that nobody publishes, which another holds": Case(
        ONE_NODE, {"a": of("gone")}, of("gone"), [("device", "gone", "", ("a",))]
    ),
    "a device of a pool without slices": Case([], {"a": of("gpu-0")}, of("gpu-0"), [("device", "gpu-0", "", ("a",))]),
    "the same name in the equally named pool of another node": Case(
        TWO_NODES, {"a": of("gpu-0", pool="gpus")}, of("gpu-0", pool="gpus", node="node-2")
    ),
    "a device of an equally named pool, held by an allocation that names no node": Case(
        TWO_NODES,
        {"a": of("gpu-0", pool="gpus", node=None)},
        of("gpu-0", pool="gpus", node="node-2"),
        [("device", "gpu-0", "", ("a",))],
    ),
    "a device of the network, from another node": Case(
        NETWORK,
        {"a": of("gpu-0", pool="net", node="node-1")},
        of("gpu-0", pool="net", node="node-2"),
        [("device", "gpu-0", "", ("a",))],
    ),
    "what the cluster says is free by now": Case(ONE_NODE, {"a": of("gpu-0")}, of("gpu-0"), (), {"a": None}),
    "what is promised": Case(
        ONE_NODE, {}, of("gpu-0"), [("device", "gpu-0", "", ("promise",))], {"promise": of("gpu-0")}
    ),
    "a controller's own, which knows who shares it": Case(
        ONE_NODE, {"a": of("gpu-0")}, structs.replace(of("gpu-0"), controller_name="gpu.example.com")
    ),
    # Counters
    "a part beside another": Case(PARTS, {"a": of("half-a")}, of("half-b")),
    "a whole card of which a part is held": Case(
        PARTS, {"a": of("half-a")}, of("whole"), [("counter", "whole", "card/memory", ("a",))]
    ),
    "a part of a card that is held as a whole": Case(
        PARTS, {"a": of("whole")}, of("small"), [("counter", "small", "card/memory", ("a",))]
    ),
    "parts that are too much together": Case(
        PARTS, {"a": of("half-a")}, of("half-b", "small"), [("counter", "half-b", "card/memory", ("a",))]
    ),
    "parts that are too much by themselves": Case(
        PARTS, {}, of("whole", "small"), [("counter", "whole", "card/memory", ())]
    ),
    "a part with admin access draws nothing": Case(PARTS, {"a": of("whole")}, of("small", admin_access=True)),
    "counters of another pool": Case(
        [*PARTS, *cards(part("whole", 8), pool="other", node="node-1")], {"a": of("whole")}, of("whole", pool="other")
    ),
    "counters of an equally named pool of another node": Case(
        [*cards(part("whole", 8), pool="p"), *cards(part("whole", 8), pool="p", node="node-2")],
        {"a": of("whole", pool="p")},
        of("whole", pool="p", node="node-2"),
    ),
    "counters that are overdrawn already, by a device that draws none": Case(
        [*cards(part("a", 8), part("b", 8), make_device("plain"))], {"a": of("a"), "b": of("b")}, of("plain")
    ),
    "counters of a pool that is spread over nodes": Case(
        SPREAD, {"a": of("a", pool="p")}, of("b", pool="p", node="node-2"), [("counter", "b", "card/memory", ("a",))]
    ),
    "room in a pool that is spread over nodes": Case(
        SPREAD, {"a": of("a", pool="p")}, of("c", pool="p", node="node-2")
    ),
    "a second share of a device that draws counters once": Case(
        SHARED_PART,
        {"a": make_allocation(share("shared")), "b": of("half")},
        make_allocation(share("shared", 2)),
    ),
    "a share that would draw too much": Case(
        SHARED_PART,
        {"a": of("whole")},
        make_allocation(share("shared")),
        [("counter", "shared", "card/memory", ("a",))],
    ),
    # Shares
    "shares that fit": Case(
        NICS, {"a": make_allocation(share(bandwidth="4"))}, make_allocation(share(number=2, bandwidth="6"))
    ),
    "shares that are too much": Case(
        NICS,
        {"a": make_allocation(share(bandwidth="4")), "b": make_allocation(share(number=2, bandwidth="1"))},
        make_allocation(share(number=3, bandwidth="6")),
        [("capacity", "nic", "bandwidth", ("a", "b"))],
    ),
    "a share that is too much by itself": Case(
        NICS, {}, make_allocation(share(bandwidth="11")), [("capacity", "nic", "bandwidth", ())]
    ),
    "two shares in one allocation that are too much": Case(
        NICS,
        {},
        make_allocation(share(bandwidth="6"), share(number=2, bandwidth="6")),
        [("capacity", "nic", "bandwidth", ())],
    ),
    "shares without a capacity are without limit": Case(
        NICS, {"a": make_allocation(share("free"))}, make_allocation(share("free", 2), share("free", 3))
    ),
    "a capacity that the device has no longer": Case(
        NICS, {"a": make_allocation(share(vram="99"))}, make_allocation(share(number=2, vram="99"))
    ),
    "a shared device as a whole": Case(
        NICS, {"a": make_allocation(share(bandwidth="1"))}, of("nic"), [("device", "nic", "", ("a",))]
    ),
    "a share of a device that is held as a whole": Case(
        NICS, {"a": of("nic")}, make_allocation(share(bandwidth="1")), [("device", "nic", "", ("a",))]
    ),
    "a second share of a device that may no longer be shared": Case(
        NICS,
        {"a": make_allocation(share("plain", bandwidth="1"))},
        make_allocation(share("plain", 2, bandwidth="1")),
        [("device", "plain", "", ("a",))],
    ),
    "the only share of a device that may no longer be shared": Case(
        NICS, {}, make_allocation(share("plain", bandwidth="1"))
    ),
}


def ledger_of(slices: Sequence[ResourceSlice], held: Mapping[str, AllocationResult]) -> AllocationLedger:
    ledger = AllocationLedger()
    for one in slices:
        ledger.apply_slice(one)
    for uid, allocation in held.items():
        ledger.put(uid, allocation)
    return ledger


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_an_allocation_would_give_twice(case: Case) -> None:
    ledger = ledger_of(case.slices, case.held)
    for _ in range(2):  # asking changes nothing
        found = ledger.overlaps("me", case.wanted, instead=case.instead)
        assert [(one.kind, one.device, one.limit, one.holders) for one in found] == list(case.overlaps)
    again = ledger_of(case.slices, {})
    for uid in (*case.held, *case.held):  # as if it came, went and came again
        again.put(uid, case.held[uid])
        again.put(uid, None)
    assert [one for one in again.overlaps("me", case.wanted) if one.holders] == []


def test_a_pool_that_was_renamed_while_its_device_was_held_has_it_still() -> None:
    allocation = structs.replace(of("gpu-0", pool="old"), allocation_timestamp="2026-01-02T00:00:00Z")
    ledger = ledger_of([make_slice("s", pool="old")], {"a": allocation})
    ledger.remove_slice("s")
    ledger.apply_slice(make_slice("s", pool="new", meta={"creation_timestamp": "2026-01-03T00:00:00Z"}))
    (found,) = ledger.overlaps("me", of("gpu-0", pool="new"))
    assert (found.device, found.holders) == ("gpu-0", ("a",))


# Against the allocator -----------------------------------------------------------------------------------------------


@st.composite
def published(draw: st.DrawFn) -> list[ResourceSlice]:
    """GPUs, a card in parts of which some may be shared, a network interface for everybody."""
    parts = [
        part(
            f"part-{number}",
            draw(st.integers(1, 8)),
            **({"allow_multiple_allocations": True, "capacity": {"lanes": "3"}} if draw(st.booleans()) else {}),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    gpus = [make_device(f"gpu-{number}") for number in range(draw(st.integers(0, 2)))]
    shared = make_slice(
        "net", node=None, pool="net", devices=(nic(bandwidth=str(draw(st.integers(1, 6)))),), all_nodes=True
    )
    zone = make_slice(
        "zone", node=None, pool="zone", devices=(make_device("z"),), node_selector=make_node_selector({"zone": "a"})
    )
    found = [shared, zone]
    for node in NODES:
        found += [
            make_slice(f"gpus-{node}", node=node, pool="gpus", devices=gpus),
            *cards(*parts, pool="cards", node=node),
        ]
    return found


NODES = ("node-1", "node-2")


def world(slices: Sequence[ResourceSlice]) -> Inventory:
    inventory = Inventory()
    inventory.apply_class(make_class(CLASS, expressions=()))
    for one in slices:
        inventory.apply_slice(one)
    return inventory


def is_kept(slices: Sequence[ResourceSlice], held: Mapping[str, AllocationResult]) -> bool:
    """Counted anew, by devices and sums alone."""
    wholes: dict[DeviceName, int] = {}
    shares: dict[DeviceName, int] = {}
    drawing: set[DeviceName] = set()
    for allocation in held.values():
        node = allocation.node_selector.node_selector_terms[0].match_fields if allocation.node_selector else ()
        for one in allocation.devices.results:
            own = one.pool in ("gpus", "cards")
            place = (one.pool, node[0].values[0] if own and node else "", one.device)
            drawing.add(place)
            if one.share_id is None:
                wholes[place] = wholes.get(place, 0) + 1
            else:
                for amount in one.consumed_capacity.values():
                    shares[place] = shares.get(place, 0) + Quantity.parse(amount).as_int64_ceil()
    devices = {(s.spec.pool.name, s.spec.node_name or "", d.name): d for s in slices for d in s.spec.devices}
    drawn: dict[str, int] = {}
    for place in drawing:
        for use in devices[place].consumes_counters:
            drawn[place[1]] = drawn.get(place[1], 0) + int(use.counters["memory"].value)
    return (
        all(count == 1 and place not in shares for place, count in wholes.items())
        and all(total <= int(next(iter(devices[place].capacity.values())).value) for place, total in shares.items())
        and all(total <= 8 for total in drawn.values())
    )


def asking(number: int, chance: random.Random) -> ResourceClaim:
    amount = CapacityRequirements(requests={"bandwidth": str(chance.randint(1, 3))})
    capacity: dict[str, Any] = {"capacity": amount} if chance.random() < 0.2 else {}  # nothing but the interface has it
    request = make_request(count=chance.randint(1, 2), **capacity)
    return make_claim(f"c{number}", requests=[request], uid=f"uid-{number}")


@given(slices=published(), seed=st.integers(0, 2**32))
def test_two_naive_writers_never_give_twice_and_what_the_allocator_would_give_is_admitted(
    slices: list[ResourceSlice], seed: int
) -> None:
    """Each writer knows of the other's allocations late, or of its own release too early for the other."""
    chance = random.Random(seed)
    writers, truth, ledger = (world(slices), world(slices)), world(slices), ledger_of(slices, {})
    held: dict[str, AllocationResult] = {}
    for number in range(40):
        writer = chance.choice(writers)
        if held and chance.random() < 0.25:
            uid = chance.choice(list(held))
            del held[uid]
            for inventory in (truth, *writers):
                inventory.forget([uid])
            ledger.put(uid, None)
            continue
        if chance.random() < 0.3:  # it hears of everything
            writer.assume(held.items())
        node = NodeView(chance.choice(NODES), {"zone": "a"})
        claim = asking(number, chance)
        outcome = allocate(writer.snapshot(), [claim], node)
        if not isinstance(outcome, Allocated):
            continue
        uid, allocation = claim.metadata.uid, outcome.results[0]
        found = ledger.overlaps(uid, allocation)
        after = {**held, uid: allocation}
        assert bool(found) == (not is_kept(slices, after))
        best = allocate(truth.snapshot(), [claim], node)
        if isinstance(best, Allocated):
            assert ledger.overlaps(uid, best.results[0]) == (), "the allocator would give it"
        if not found:
            held = after
            ledger.put(uid, allocation)
            truth.assume([(uid, allocation)])
            writer.assume([(uid, allocation)])
        assert is_kept(slices, held)
