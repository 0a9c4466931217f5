"""Devices that are cut from one GPU: what is drawn, to what scale, and what blocks what."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from claims.devices.cache import PoolState, Unit
from claims.devices.holdings import Holder
from claims.devices.published import DevicePool, gather, read_slice
from dashboard.inventory.devices.grid import label
from inventory.kinds.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from inventory.kinds.pools import PoolKey
from manciple.wire.base import ObjectMeta
from nodeagent.drivers.partitionable import counter_set, devices_of


def pool(devices: Sequence[Device], counters: Sequence[CounterSet]) -> DevicePool:
    bodies = [{"devices": tuple(devices)}, {"shared_counters": tuple(counters)}]
    slices = [
        ResourceSlice(
            metadata=ObjectMeta(name=f"s{index}"),
            spec=ResourceSliceSpec(
                driver="mig.example.com",
                pool=ResourcePool(name="n1", generation=1, resource_slice_count=2),
                node_name="n1",
                **body,  # type: ignore[arg-type]
            ),
        )
        for index, body in enumerate(bodies)
    ]
    return gather(PoolKey("mig.example.com", "n1", "n1"), map(read_slice, slices))


def gpus(count: int = 1) -> DevicePool:
    """As the simulated partitionable GPUs publish them: 18 ways to cut each."""
    return pool(
        [device for gpu in range(count) for device in devices_of("n1", gpu)], [counter_set(gpu) for gpu in range(count)]
    )


def holder(claim: str = "c1") -> Holder:
    return Holder(claim_uid=claim, namespace="lab", claim=claim, pods=("p",), shared=False)


def draw(content: DevicePool, *held: str) -> list[Unit]:
    keys = {("mig.example.com", "n1", name, "n1"): (holder(name),) for name in held}
    return list(PoolState(content, keys).units)


def parts(tile: Unit) -> list[tuple[str, str, int]]:
    return [(part.candidate.name if part.candidate else "", part.state, part.weight) for part in tile.parts]


def test_a_gpu_that_nobody_has_cut_is_one_free_tile() -> None:
    tiles = draw(gpus(2))
    assert [(tile.name, tile.state, tile.parts, tile.cut) for tile in tiles] == [
        ("gpu-0", "free", (), True),
        ("gpu-1", "free", (), True),
    ]
    assert tiles[0].model.endswith(", partitioned")


def test_a_whole_gpu_that_is_held_is_held_as_a_whole() -> None:
    (tile,) = draw(gpus(), "gpu-0")
    assert (tile.state, tile.parts, tile.claim_uid) == ("reserved", (), "gpu-0")


def test_a_partition_stands_in_its_place_to_scale_beside_what_can_still_be_had() -> None:
    (tile,) = draw(gpus(), "gpu-0-mig-3g40gb-4")
    assert tile.state == "part"
    assert parts(tile) == [("gpu-0-mig-4g40gb-0", "free", 500), ("gpu-0-mig-3g40gb-4", "reserved", 500)]
    assert label(tile) == "gpu-0, cut into 2 partitions, 1 free, 1 reserved, lab/p"


def test_what_nobody_can_have_for_lack_of_another_counter_is_blocked() -> None:
    held = [f"gpu-0-mig-1g10gb-{start}" for start in range(7)]  # seven compute slices, and one of memory is left
    (tile,) = draw(gpus(), *held)
    assert tile.state == "reserved"
    assert parts(tile)[-1] == ("", "blocked", 125)
    assert sum(weight for _, _, weight in parts(tile)) == 1000


def test_cards_do_not_touch_each_other() -> None:
    first, second = draw(gpus(2), "gpu-1-mig-1g10gb-6")
    assert (first.state, second.state) == ("free", "part")


def whole_and_two_halves(*, half: int = 1, tainted: Sequence[str] = ()) -> DevicePool:
    """As NVIDIA's driver publishes a GPU that is cut up and offered as a whole too."""

    def device(name: str, units: int) -> Device:
        use = DeviceCounterConsumption(counter_set="gpu-0", counters={"partitions": Counter(value=str(units))})
        taints = (DeviceTaint(key="example.com/broken", effect="NoSchedule"),) if name in tainted else ()
        return Device(name=name, consumes_counters=(use,), taints=taints)

    counters = CounterSet(name="gpu-0", counters={"partitions": Counter(value="2")})
    return pool([device("gpu-0", 2), device("half-0", half), device("half-1", half)], [counters])


def test_a_gpu_whose_partitions_fit_beside_each_other_is_drawn_as_it_is_cut() -> None:
    (free,) = draw(whole_and_two_halves())
    assert (free.state, parts(free)) == ("free", [("half-0", "free", 500), ("half-1", "free", 500)])
    (one_held,) = draw(whole_and_two_halves(), "half-1")
    assert (one_held.state, parts(one_held)[1][1]) == ("part", "reserved")
    (whole_held,) = draw(whole_and_two_halves(), "gpu-0")
    assert (whole_held.state, whole_held.parts) == ("reserved", ())


HALVES = ("half-0", "half-1")


@pytest.mark.parametrize("half", [1, 2], ids=["beside each other", "one or the other"])
@pytest.mark.parametrize(
    ("tainted", "state"),
    [
        (("gpu-0",), "free"),
        (HALVES, "free"),
        (("half-0",), "free"),
        (("gpu-0", "half-0"), "free"),
        (("gpu-0", *HALVES), "taint"),
    ],
)
def test_a_gpu_is_free_while_any_of_it_can_be_had(half: int, tainted: Sequence[str], state: str) -> None:
    (tile,) = draw(whole_and_two_halves(half=half, tainted=tainted))
    assert tile.state == state


def test_a_pool_that_is_a_slice_short_offers_nothing() -> None:
    content = gpus()
    short = gather(content.key, content.slices[:1])
    assert [tile.state for tile in PoolState(short, {}).units] == ["gone"] * 19


def test_a_device_alone_that_draws_more_than_is_left_is_blocked() -> None:
    use = DeviceCounterConsumption(counter_set="bus", counters={"lanes": Counter(value="3")})
    both = DeviceCounterConsumption(counter_set="other", counters={"lanes": Counter(value="1")})
    sets = [CounterSet(name=name, counters={"lanes": Counter(value="4")}) for name in ("bus", "other")]
    devices = [Device(name=name, consumes_counters=(use, both)) for name in ("a", "b")]
    assert [tile.state for tile in draw(pool(devices, sets), "a")] == ["reserved", "blocked"]
