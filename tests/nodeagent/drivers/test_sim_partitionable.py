"""The partitionable GPUs: what is published obeys the hardware's own rule, and a container sees its partition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.kinds.devices import Device
from inventory.kinds.slice_rules import validate_slice
from manciple.wire.base import OwnerReference
from manciple.wire.quantity import Quantity
from nodeagent.drivers.partitionable import PROFILES, PartitionableDriver, Profile, counter_set, devices_of
from nodeagent.node.catalog import DriverEntry, create_driver
from nodeagent.node.slices import slices_of
from tests.examples import some
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, claim, container, pod

DRIVER = "mig.example.com"
DEVICES = list(devices_of(NODE, 0))
SIZES = {profile.name: profile for profile in PROFILES}


def fit_by_counters(devices: Sequence[Device]) -> bool:
    """What a scheduler decides: the sums of what they consume against the counter set."""
    for name, counter in counter_set(0).counters.items():
        taken = sum(
            Quantity.parse(c.counters[name].value).nanos
            for device in devices
            for c in device.consumes_counters
            if name in c.counters
        )
        if taken > Quantity.parse(counter.value).nanos:
            return False
    return True


def fit_by_hardware(devices: Sequence[Device]) -> bool:
    """The rule of the hardware: the whole alone; partitions on different memory slices, seven compute slices in all."""
    if any(device.name == "gpu-0" for device in devices):
        return len(devices) == 1
    slices = [
        start + offset
        for device in devices
        if (start := device.attributes["placement"].int_value) is not None
        for offset in range(_profile(device).memory_slices)
    ]
    return len(slices) == len(set(slices)) and sum(_profile(device).compute_slices for device in devices) <= 7


def _profile(device: Device) -> Profile:
    return SIZES[device.attributes["profile"].string_value or ""]


@settings(max_examples=some(100))
@given(st.lists(st.sampled_from(DEVICES), min_size=1, max_size=8, unique_by=lambda device: device.name))
def test_the_counters_say_what_the_hardware_does(devices: list[Device]) -> None:
    assert fit_by_counters(devices) == fit_by_hardware(devices)


def test_every_pair_of_devices_is_judged_as_by_the_hardware() -> None:
    for one in DEVICES:
        for other in DEVICES:
            if one.name < other.name:
                assert fit_by_counters([one, other]) == fit_by_hardware([one, other]), (one.name, other.name)


def test_small_partitions_given_in_order_leave_room_for_large_ones() -> None:
    """First fit takes devices in the published order."""
    small = [device for device in DEVICES if device.name.startswith("gpu-0-mig-1g10gb")]
    large = [device for device in DEVICES if device.name.startswith("gpu-0-mig-3g40gb")]

    assert fit_by_counters([*small[:3], large[1]])
    assert fit_by_counters(small), "seven of them fill the GPU"


@pytest.mark.parametrize("gpus", [0, 1, 4, 9])
def test_what_is_published_is_valid_and_complete(gpus: int) -> None:
    driver = PartitionableDriver(NODE, gpus=gpus)
    (pool,) = driver.pools()
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u")

    slices = slices_of(pool, driver=driver.name, owner=owner, generation=1)

    assert [error for one in slices for error in validate_slice(one)] == []
    assert {one.spec.pool.resource_slice_count for one in slices} == {len(slices)}
    published = [device.name for one in slices for device in one.spec.devices]
    assert len(published) == len(set(published)) == gpus * 19
    assert sum(len(one.spec.shared_counters) for one in slices) == gpus


def test_a_partition_tells_its_profile_its_gpu_and_its_size() -> None:
    whole, partition = DEVICES[0], next(d for d in DEVICES if d.name == "gpu-0-mig-3g40gb-4")

    assert whole.attributes["type"].string_value == "gpu"
    assert partition.attributes["type"].string_value == "mig"
    assert partition.attributes["profile"].string_value == "3g.40gb"
    assert partition.attributes["parentUUID"] == whole.attributes["uuid"]
    assert {name: capacity.value for name, capacity in partition.capacity.items()} == {
        "memory": "40Gi",
        "computeSlices": "3",
        "copyEngines": "3",
    }
    (consumed,) = partition.consumes_counters
    assert consumed.counter_set == "gpu-0"
    assert sorted(name for name in consumed.counters if name.startswith("memory-slice")) == [
        f"memory-slice-{index}" for index in (4, 5, 6, 7)
    ]


def test_uuids_are_the_same_for_ever_and_differ_everywhere() -> None:
    uuids = [d.attributes["uuid"].string_value for node in ("a", "b") for gpu in (0, 1) for d in devices_of(node, gpu)]

    assert len(set(uuids)) == len(uuids) == 4 * 19
    assert uuids[:19] == [d.attributes["uuid"].string_value for d in devices_of("a", 0)]


def test_the_settings_choose_profiles() -> None:
    driver = create_driver(
        DriverEntry(driver="sim-partitionable", settings={"gpus": 1, "name": "m.example.com", "profiles": ["3g.40gb"]}),
        node_name=NODE,
    )

    (pool,) = driver.pools()
    assert driver.name == "m.example.com"
    assert [d.name for d in pool.devices] == ["gpu-0", "gpu-0-mig-3g40gb-4", "gpu-0-mig-3g40gb-0"]


def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"there is no profile 9g\.90gb; there are 1g\.10gb, 1g\.20gb"):
        create_driver(DriverEntry(driver="sim-partitionable", settings={"profiles": ["9g.90gb"]}), node_name=NODE)


def test_a_container_sees_its_partition_and_its_sibling_another(machine: Machine) -> None:
    node = Machine(machine.folder / "mig", drivers=[PartitionableDriver(NODE, gpus=1)])
    node.start()
    node.api.put(
        "resourceclaims",
        claim("c", "gpu-0-mig-3g40gb-4", "gpu-0-mig-1g10gb-0", pods=("uid-p",), driver=DRIVER),
    )
    node.api.put("pods", pod("p", container("large", "g/gpu0"), container("small", "g/gpu1"), claims={"g": "c"}))

    node.settle()

    large, small = node.environment("p", "large"), node.environment("p", "small")
    parent = DEVICES[0].attributes["uuid"].string_value
    prefix = "GPU_DEVICE_0_MIG_3G40GB_4"
    assert large[prefix] == "gpu-0-mig-3g40gb-4"
    assert large[f"{prefix}_UUID"].startswith("MIG-")
    assert (large[f"{prefix}_PROFILE"], large[f"{prefix}_MEMORY"]) == ("3g.40gb", "40Gi")
    assert large[f"{prefix}_PARENT_UUID"] == small["GPU_DEVICE_0_MIG_1G10GB_0_PARENT_UUID"] == parent
    assert small["GPU_DEVICE_0_MIG_1G10GB_0_PROFILE"] == "1g.10gb"
    assert not set(large) & set(small)
