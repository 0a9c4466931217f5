"""A device that is held goes on drawing what it drew when it was allocated, whatever its driver publishes meanwhile."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.kinds.resource_claims import AllocationResult
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.pools import PoolKey
from scheduling.allocator import Allocated, Inventory, NodeView, place
from scheduling.allocator.snapshot import PublishedPools
from tests.examples import some
from tests.scheduling.allocator.cases import (
    NODE,
    Json,
    answer,
    make_claim,
    make_inventory,
    make_slice,
    names,
    node,
    request,
)

BEFORE, ALLOCATED, AFTER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"


def _part(name: str, amount: int, *, counter_set: str = "gpu0", counter: str = "memory", **fields: Any) -> Json:
    drawn = [{"counterSet": counter_set, "counters": {counter: {"value": f"{amount}Gi"}}}]
    return {"name": name, "consumesCounters": drawn, **fields}


def _created(published: ResourceSlice, at: str) -> ResourceSlice:
    return replace(published, metadata=replace(published.metadata, creation_timestamp=at))


def _pool(
    *parts: Json,
    pool: str = "pool-1",
    generation: int = 1,
    total: int = 40,
    counter_sets: Sequence[str] = ("gpu0",),
    counters: Sequence[str] = ("memory",),
    at: str = BEFORE,
    on: str = "node-1",
) -> list[ResourceSlice]:
    amounts = {counter: {"value": f"{total}Gi"} for counter in counters}
    sets = [{"name": name, "counters": amounts} for name in counter_sets]
    where: Json = {"pool": pool, "generation": generation, "count": 2, "nodeName": on}
    return [
        _created(make_slice(*parts, name=f"{pool}-devices", **where), at),
        _created(make_slice(name=f"{pool}-counters", sharedCounters=sets, **where), at),
    ]


HALVES = (_part("half-a", 20), _part("half-b", 20))
WHOLE = _part("whole", 40)


def _publish(inventory: Inventory, slices: Sequence[ResourceSlice]) -> None:
    for one in slices:
        inventory.apply_slice(one)


def _withdraw(inventory: Inventory, pool: str = "pool-1") -> None:
    for name in (f"{pool}-devices", f"{pool}-counters"):
        inventory.remove_slice(name)


def _hold(inventory: Inventory, *, holder: str = "holder", count: int = 1) -> AllocationResult:
    """Let somebody hold the first devices, as a commit would bring it."""
    outcome = answer(inventory, make_claim(request(count=count), name=holder))
    assert isinstance(outcome, Allocated)
    allocation = replace(outcome.results[0], allocation_timestamp=ALLOCATED)
    inventory.assume([(holder, allocation)])
    return allocation


def _given(inventory: Inventory, name: str) -> list[list[str]] | None:
    where = f'device.driver == "gpu.example.com" && "{name}" != ""'
    outcome = answer(inventory, make_claim(request(where=where)))
    return names(outcome) if isinstance(outcome, Allocated) else None


#: what the driver does while half-a (20Gi of 40Gi) is held -> what another claim gets then
REPUBLISHED: dict[str, tuple[list[ResourceSlice], list[list[str]] | None]] = {
    "without the device": (_pool(WHOLE, generation=2), None),
    "with the other half": (_pool(WHOLE, _part("half-b", 20), generation=2), [["half-b"]]),
    "with a device of another name": (_pool(WHOLE, _part("half-x", 20), generation=2), [["half-x"]]),
    "in the same generation": (_pool(WHOLE), None),
    "drawing nothing": (_pool({"name": "half-a"}, WHOLE, generation=2), None),
    "drawing less": (_pool(_part("half-a", 5), _part("most", 35), generation=2), None),
    "drawing more": (_pool(_part("half-a", 30), _part("half-b", 20), generation=2), None),
    "with less in all": (_pool(_part("half-b", 20), generation=2, total=30), None),
    "with more in all": (_pool(WHOLE, generation=2, total=60), [["whole"]]),
    "with its counter set renamed": (
        _pool(_part("whole", 40, counter_set="card"), generation=2, counter_sets=["card"]),
        None,
    ),
    "with its counter set renamed, still published": (
        _pool(
            _part("half-a", 20, counter_set="x"),
            _part("other", 40, counter_set="y"),
            generation=2,
            counter_sets=["x", "y"],
        ),
        [["other"]],
    ),
    "with its counter renamed": (_pool(_part("whole", 40, counter="vram"), generation=2, counters=["vram"]), None),
    "with its counter renamed, and room beside it": (
        _pool(_part("half-x", 20, counter="vram"), generation=2, counters=["vram"]),
        [["half-x"]],
    ),
    "with its counter set and its counter renamed": (
        _pool(
            _part("whole", 40, counter_set="card", counter="vram"),
            generation=2,
            counter_sets=["card"],
            counters=["vram"],
        ),
        None,
    ),
    "with a counter more": (
        _pool(_part("cores", 40, counter="cores"), WHOLE, generation=2, counters=["memory", "cores"]),
        [["cores"]],
    ),
    "with another card": (
        _pool(_part("other", 40, counter_set="gpu1"), generation=2, counter_sets=["gpu0", "gpu1"]),
        [["other"]],
    ),
}


@pytest.mark.parametrize("how", REPUBLISHED)
@pytest.mark.parametrize("restarted", [False, True], ids=["told", "restarted"])
def test_counters_that_a_held_device_drew_are_not_given_again(how: str, restarted: bool) -> None:
    """restarted: a new worker reads everything, claims first."""
    inventory = make_inventory(*_pool(*HALVES))
    allocation = _hold(inventory)
    slices, expected = REPUBLISHED[how]
    if restarted:
        inventory = make_inventory()
        inventory.assume([("holder", allocation)])
    _publish(inventory, slices)
    assert _given(inventory, how) == expected

    inventory.remove_claim("holder")
    assert _given(inventory, how) is not None


def test_a_driver_that_withdraws_all_its_slices_and_comes_back_finds_its_device_held() -> None:
    inventory = make_inventory(*_pool(*HALVES))
    _hold(inventory)
    _withdraw(inventory)
    _publish(inventory, _pool(WHOLE, at=AFTER))
    assert _given(inventory, "whole") is None
    _publish(inventory, _pool(*HALVES, WHOLE, at=AFTER, generation=2))
    assert _given(inventory, "half") == [["half-b"]]


RENAMED: dict[str, tuple[str, list[list[str]] | None]] = {
    "it was there before the allocation": (BEFORE, [["whole"]]),
    "it came since": (AFTER, None),
}


@pytest.mark.parametrize("since", RENAMED)
@pytest.mark.parametrize("order", ["withdrawn first", "published first"])
def test_a_pool_that_came_since_may_be_the_one_that_is_gone(since: str, order: str) -> None:
    at, expected = RENAMED[since]
    inventory = make_inventory(*_pool(*HALVES))
    _hold(inventory)
    renamed = _pool(WHOLE, pool="renamed", at=at)
    if order == "published first":
        _publish(inventory, renamed)
        assert _given(inventory, "both are there") is not None
    _withdraw(inventory)
    _publish(inventory, renamed)
    assert _given(inventory, "renamed") == expected
    _publish(inventory, _pool(*HALVES))  # it is back: the other one has nothing to do with it
    assert place(inventory.snapshot(), [make_claim(request(count=2))], [NODE]).node == NODE


def test_devices_keep_their_holders_when_their_pool_is_renamed() -> None:
    inventory = make_inventory(_created(make_slice("d-0", "d-1"), BEFORE))
    _hold(inventory)
    inventory.remove_slice("pool-1")
    inventory.apply_slice(_created(make_slice("d-0", "d-1", pool="renamed"), AFTER))
    assert _given(inventory, "renamed") == [["d-1"]]
    inventory.remove_claim("holder")
    assert _given(inventory, "renamed") == [["d-0"]]


def test_the_pools_of_other_nodes_and_drivers_are_not_the_one_that_is_gone() -> None:
    inventory = make_inventory(*_pool(*HALVES))
    _hold(inventory)
    _withdraw(inventory)
    _publish(inventory, _pool(WHOLE, pool="pool-2", at=AFTER, on="node-2"))
    assert names(answer(inventory, make_claim(), node=node("node-2"))) == [["whole"]]


SHARED: Json = {"name": "card", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}


def _shared(name: str = "card", *, capacity: str = "memory", total: int = 40) -> Json:
    return {**SHARED, "name": name, "capacity": {capacity: {"value": f"{total}Gi"}}}


#: what the driver does while 20Gi of a shared card are held -> whether 40Gi, 20Gi are there then
SHARES: dict[str, tuple[list[ResourceSlice], tuple[bool, bool]]] = {
    "nothing": ([make_slice(SHARED)], (False, True)),
    "a new generation": ([make_slice(SHARED, generation=2)], (False, True)),
    "less capacity": ([make_slice(_shared(total=30), generation=2)], (False, False)),
    "more capacity": ([make_slice(_shared(total=60), generation=2)], (True, True)),
    "another name for its capacity": ([make_slice(_shared(capacity="vram"), generation=2)], (False, False)),
    "one capacity more": (
        [make_slice({**SHARED, "capacity": {**SHARED["capacity"], "cores": {"value": "8"}}}, generation=2)],
        (False, True),
    ),
    "exclusive now": ([make_slice({**SHARED, "allowMultipleAllocations": False}, generation=2)], (False, False)),
    "another pool name": ([_created(make_slice(SHARED, pool="renamed"), AFTER)], (False, True)),
}


@pytest.mark.parametrize("how", SHARES)
def test_shared_capacity_that_is_held_is_not_given_again(how: str) -> None:
    def claim(amount: int) -> Any:
        (name,) = slices[0].spec.devices[0].capacity.keys() - {"cores"}
        return make_claim(request(capacity={"requests": {name: f"{amount}Gi"}}))

    slices, expected = SHARES[how]
    inventory = make_inventory(_created(make_slice(SHARED), BEFORE))
    outcome = answer(inventory, make_claim(request(capacity={"requests": {"memory": "20Gi"}})))
    assert isinstance(outcome, Allocated)
    inventory.assume([("holder", replace(outcome.results[0], allocation_timestamp=ALLOCATED))])
    inventory.remove_slice("pool-1")
    _publish(inventory, slices)
    assert tuple(isinstance(answer(inventory, claim(amount)), Allocated) for amount in (40, 20)) == expected


def test_shares_of_one_device_draw_its_counters_once_when_it_is_gone() -> None:
    card = _part("card", 20, allowMultipleAllocations=True)
    inventory = make_inventory(*_pool(card))
    for holder in ("a", "b"):
        _hold(inventory, holder=holder)
    _publish(inventory, _pool(_part("half-b", 20), generation=2))
    assert _given(inventory, "half-b") == [["half-b"]]
    inventory.remove_claim("a")
    _publish(inventory, _pool(WHOLE, generation=3))
    assert _given(inventory, "whole") is None
    inventory.remove_claim("b")
    assert _given(inventory, "whole") == [["whole"]]


def test_an_index_learns_that_counters_of_an_unpublished_device_came_back() -> None:
    inventory = make_inventory(*_pool(*HALVES))
    _hold(inventory)
    _publish(inventory, _pool(WHOLE, generation=2))
    nodes = (NODE,)
    assert place(inventory.snapshot(), [make_claim()], nodes).node is None
    inventory.remove_claim("holder")
    assert place(inventory.snapshot(), [make_claim()], nodes).node == NODE


# However the worker came to know it -----------------------------------------------------------------------------------


def _random_slices(draw: Any) -> list[ResourceSlice]:
    """What a driver may publish of one card on a node, under one of two pool names."""
    parts = [_part(name, draw.choice([10, 20, 40])) for name in draw.sample(["a", "b", "c"], draw.randint(1, 3))]
    sets = draw.choice([["gpu0"], ["gpu0", "gpu1"]])
    at = draw.choice([BEFORE, AFTER])
    return _pool(*parts, pool=draw.choice(["p", "q"]), generation=draw.randint(1, 3), counter_sets=sets, at=at)


@settings(max_examples=some(60), deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_what_is_in_use_follows_from_slices_and_claims_alone(seed: int) -> None:
    """A worker that saw everything happen, and one that reads the objects as they are, give the same answers."""
    draw, slices, held = random.Random(seed), dict[str, ResourceSlice](), dict[str, AllocationResult]()
    inventory = make_inventory()
    nodes = (NodeView("node-1", {}),)
    for step in range(12):
        action = draw.choice(["publish", "publish", "withdraw", "hold", "hold", "release"])
        if action == "publish":
            for one in _random_slices(draw):
                slices[one.metadata.name] = one
                inventory.apply_slice(one)
        elif action == "withdraw" and slices:
            pool = draw.choice(["p", "q"])
            _withdraw(inventory, pool)
            slices.pop(f"{pool}-devices", None)
            slices.pop(f"{pool}-counters", None)
        elif action == "hold":
            found = place(inventory.snapshot(), [make_claim(name=f"c-{step}")], nodes).outcome
            if isinstance(found, Allocated):
                uid = f"uid-c-{step}"
                inventory.assume([(uid, found.results[0])])
                held[uid] = replace(found.results[0], allocation_timestamp=ALLOCATED)
                inventory.assume([(uid, held[uid])])
        elif action == "release" and held:
            inventory.remove_claim(uid := draw.choice(sorted(held)))
            del held[uid]
        fresh = make_inventory()
        for objects in draw.sample([0, 1], 2):
            if objects:
                _publish(fresh, list(slices.values()))
            else:
                fresh.assume(held.items())
        claim = make_claim(request(count=draw.randint(1, 2)))
        theirs = place(fresh.snapshot(), [claim], nodes).outcome
        ours = place(inventory.snapshot(), [claim], nodes).outcome
        assert _devices(ours) == _devices(theirs)
        assert _devices(ours) == _devices(answer(fresh, claim, node=nodes[0]))


def _devices(outcome: Any) -> list[list[str]] | None:
    return names(outcome) if isinstance(outcome, Allocated) else None


def test_admin_access_draws_nothing_and_is_not_kept_as_if_it_did() -> None:
    inventory = make_inventory(*_pool(*HALVES))
    outcome = answer(inventory, make_claim(request(adminAccess=True)))
    assert isinstance(outcome, Allocated)
    assert outcome.results[0].drawn_counters == ()
    inventory.assume([("monitor", outcome.results[0])])
    _publish(inventory, _pool(WHOLE, generation=2))
    assert _given(inventory, "whole") == [["whole"]]


#: since when the pool is published, when the device was allocated -> whether it may be that pool under another name
TIMES = {
    "a second later": ("2026-01-02T00:00:01Z", "2026-01-02T00:00:00Z", True),
    "in the same second": ("2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z", True),
    "in the same second, told in fractions": ("2026-01-02T00:00:00Z", "2026-01-02T00:00:00.5Z", True),
    "a second earlier": ("2026-01-02T00:00:00Z", "2026-01-02T00:00:01Z", False),
    "a second earlier, told in fractions": ("2026-01-02T00:00:00Z", "2026-01-02T00:00:01.5Z", False),
    "an hour earlier, in another zone": ("2026-01-02T01:00:00Z", "2026-01-02T01:00:00-01:00", False),
    "an hour later, in another zone": ("2026-01-02T00:00:00Z", "2026-01-02T00:00:00+01:00", True),
    "at a time that is not known": ("", "2026-01-02T00:00:00Z", False),
}


@pytest.mark.parametrize("case", TIMES)
def test_a_pool_that_is_published_after_an_allocation_may_be_its_pool(case: str) -> None:
    since, allocated, may_be = TIMES[case]
    published = PublishedPools()
    published.put(PoolKey("d", "new", "node-1"), since)
    found = published.in_use("d", "old", AllocationResult(allocation_timestamp=allocated), "node-1")
    assert (PoolKey("d", "new", "node-1") in found) is may_be
