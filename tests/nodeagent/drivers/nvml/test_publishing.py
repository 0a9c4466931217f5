"""GPUs and MIG devices as they are published, from recorded answers of NVML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inventory.kinds.devices import ResourceSlice
from inventory.kinds.slice_rules import validate_slice
from manciple.wire.base import OwnerReference
from nodeagent.drivers.nvml.binding import NvmlCall
from nodeagent.node.catalog import DriverEntry, create_driver
from nodeagent.node.slices import slices_of
from tests.nodeagent.drivers.nvml.machines import (
    GPU0,
    MIB,
    RECORDINGS,
    GpuFiles,
    changed,
    driver_of,
    facts,
    published,
    recorded,
)
from tests.nodeagent.objects import NODE
from tests.outlines import Outline

A100 = {
    "productName": "NVIDIA A100-SXM4-40GB",
    "brand": "Nvidia",
    "architecture": "Ampere",
    "cudaComputeCapability": "8.0.0",
    "driverVersion": "535.104.5",
    "cudaDriverVersion": "12.2.0",
}


def test_a_t4_is_published_with_the_names_of_nvidias_driver(tmp_path: Path) -> None:
    files = GpuFiles(tmp_path)
    files.pci("0000:00:1e.0", "pci0000:00", -1)
    (device,) = published(driver_of(recorded("t4"), roots=files.roots)).values()
    assert device.name == "gpu-0"
    assert facts(device) == {
        "type": "gpu",
        "uuid": "GPU-5a2c7a05-9f4e-1c52-5a0e-0d6d6c1bb5e1",
        "productName": "Tesla T4",
        "brand": "Nvidia",
        "architecture": "Turing",
        "cudaComputeCapability": "7.5.0",
        "driverVersion": "535.104.5",
        "cudaDriverVersion": "12.2.0",
        "resource.kubernetes.io/pciBusID": "0000:00:1e.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    }
    assert {name: one.value for name, one in device.capacity.items()} == {"memory": "15Gi"}
    versions = {name for name, value in device.attributes.items() if value.version_value}
    assert versions == {"cudaComputeCapability", "driverVersion", "cudaDriverVersion"}


def test_two_h100_tell_where_they_sit(tmp_path: Path) -> None:
    files = GpuFiles(tmp_path)
    files.pci("0000:1b:00.0", "pci0000:15", 0)
    files.pci("0000:43:00.0", "pci0000:3d", 1)
    devices = published(driver_of(recorded("h100"), roots=files.roots))
    assert list(devices) == ["gpu-0", "gpu-1"]
    places = [(f["resource.kubernetes.io/pcieRoot"], f["numaNode"]) for f in map(facts, devices.values())]
    assert places == [("pci0000:15", "0"), ("pci0000:3d", "1")]
    assert facts(devices["gpu-1"])["architecture"] == "Hopper"


def test_a_gpu_in_mig_mode_is_published_as_its_partitions_and_one_whose_mode_is_only_pending_as_a_whole() -> None:
    assert list(published(driver_of(recorded("a100-mig")))) == [
        "gpu-0-mig-3g20gb-9-4",
        "gpu-0-mig-2g10gb-14-0",
        "gpu-0-mig-1g5gb-19-2",
        "gpu-0-mig-1g5gb-me-20-3",
        "gpu-1-mig-1c3g20gb-9-0-0",
        "gpu-1-mig-1c3g20gb-9-0-1",
        "gpu-2",
    ]


def test_a_partition_tells_its_parent_its_profile_its_instances_and_what_it_has() -> None:
    device = published(driver_of(recorded("a100-mig")))["gpu-0-mig-2g10gb-14-0"]
    told = facts(device)
    assert told == {
        **A100,
        "type": "mig",
        "uuid": told["uuid"],
        "parentUUID": "GPU-6d4f1a90-3b0f-d5c9-4e86-0f7a3c2b1d10",
        "profile": "2g.10gb",
        "gpuInstanceID": "3",
        "computeInstanceID": "0",
        "resource.kubernetes.io/pciBusID": "0000:07:00.0",
    }
    assert told["uuid"].startswith("MIG-")
    assert {name: one.value for name, one in device.capacity.items()} == {
        "memory": "9984Mi",
        "multiprocessors": "28",
        "copyEngines": "2",
        "decoders": "1",
        "encoders": "0",
        "jpegEngines": "0",
        "ofaEngines": "0",
    }


@pytest.mark.parametrize(
    ("total", "memory", "slices", "compute", "profile"),
    [
        (40960, 4864, 1, 1, "1g.5gb"),
        (40960, 20096, 3, 3, "3g.20gb"),
        (40960, 20096, 3, 1, "1c.3g.20gb"),
        (40960, 40192, 7, 7, "7g.40gb"),
        (81920, 9728, 1, 1, "1g.10gb"),
        (81559, 40320, 3, 3, "3g.40gb"),
    ],
)
def test_a_profile_is_reckoned_where_the_name_does_not_tell_it(
    total: int, memory: int, slices: int, compute: int, profile: str
) -> None:
    mig = f"nvmlDeviceGetMigDeviceHandleByIndex({GPU0}, 0)"
    calls = changed(recorded("a100-mig"), "nvmlDeviceGetName", mig, answer="NVIDIA A100")
    calls = changed(calls, "nvmlDeviceGetMemoryInfo", GPU0, answer={"total": total * MIB, "free": 0, "used": 0})
    (attributes,) = (call.answer for call in calls if (call.call, call.args) == ("nvmlDeviceGetAttributes", (mig,)))
    sizes = {"memorySizeMB": memory, "gpuInstanceSliceCount": slices, "computeInstanceSliceCount": compute}
    calls = changed(calls, "nvmlDeviceGetAttributes", mig, answer={**attributes, **sizes})
    first = next(iter(published(driver_of(calls)).values()))
    assert facts(first)["profile"] == profile


def test_a_whole_gpu_beside_its_partitions_takes_all_of_a_counter_of_which_each_partition_takes_one() -> None:
    driver = driver_of(recorded("a100-mig"), publishMigParents=True)
    (pool,) = driver.pools()
    counters = {one.name: one.counters["partitions"].value for one in pool.shared_counters}
    assert counters == {"gpu-0-counter-set": "4", "gpu-1-counter-set": "2"}
    taken: dict[str, list[str]] = {name: [] for name in ("gpu-0-counter-set", "gpu-1-counter-set")}
    for device in pool.devices:
        for use in device.consumes_counters:
            taken[use.counter_set].append(f"{device.name}: {use.counters['partitions'].value}")
    assert taken["gpu-0-counter-set"][0] == "gpu-0: 4"
    assert [line.rpartition(" ")[2] for line in taken["gpu-0-counter-set"]] == ["4", "1", "1", "1", "1"]
    assert [line.rpartition(" ")[2] for line in taken["gpu-1-counter-set"]] == ["2", "1", "1"]
    assert published(driver)["gpu-2"].consumes_counters == ()


@pytest.mark.parametrize("name", ["t4", "h100", "a100-mig"])
@pytest.mark.parametrize("parents", [False, True])
def test_what_is_published_is_a_valid_slice(name: str, parents: bool) -> None:
    (pool,) = driver_of(recorded(name), publishMigParents=parents).pools()
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u")
    slices: tuple[ResourceSlice, ...] = slices_of(pool, driver="gpu.nvidia.com", owner=owner, generation=1)
    assert [error for one in slices for error in validate_slice(one)] == []


def test_a_gpu_that_uses_the_machines_memory_has_no_memory_of_its_own() -> None:
    calls = changed(recorded("t4"), "nvmlDeviceGetMemoryInfo", GPU0, error=3)
    assert published(driver_of(calls))["gpu-0"].capacity == {}


def test_a_partition_of_a_gpu_without_memory_of_its_own_is_named_after_what_it_has_itself() -> None:
    calls = changed(recorded("a100-mig"), "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetHandleByIndex(1)", error=3)
    assert "gpu-1-mig-1c3g20gb-9-0-0" in published(driver_of(calls))


def test_a_gpu_that_does_not_answer_does_not_hide_the_others() -> None:
    calls = changed(recorded("h100"), "nvmlDeviceGetUUID", GPU0, error=15)
    assert list(published(driver_of(calls))) == ["gpu-1"]


# A machine without NVML.

NO_LIBRARY = (NvmlCall(call="nvmlInit", error=12),)


def test_without_nvml_the_pool_is_empty_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    driver = driver_of(NO_LIBRARY)
    assert published(driver) == {}
    driver.rescan()
    complaints = [record.message for record in caplog.records]
    assert complaints == [Outline("NVML does not answer, no GPU is published: nvmlInit: … 12…")]


def test_an_agent_that_requires_nvml_does_not_start_without_it(tmp_path: Path) -> None:
    recording = tmp_path / "none.json"
    recording.write_text('{"description": "no driver", "calls": [{"call": "nvmlInit", "error": 12}]}')
    settings = {"recording": str(recording), "required": True}
    with pytest.raises(ValueError, match=r"driver nvml: NVML does not answer: .*load NVIDIA's driver first"):
        create_driver(DriverEntry(driver="nvml", settings=settings), node_name=NODE)


def test_gpus_are_published_once_nvml_answers() -> None:
    driver = driver_of((*NO_LIBRARY, *recorded("t4")))
    assert published(driver) == {}
    driver.rescan()
    assert list(published(driver)) == ["gpu-0"]


# Settings.


def test_a_recording_answers_in_nvmls_place() -> None:
    entry = DriverEntry(driver="nvml", settings={"recording": str(RECORDINGS / "t4.json"), "name": "gpu.example.com"})
    driver = create_driver(entry, node_name=NODE)
    assert driver.name == "gpu.example.com"
    assert [device.name for pool in driver.pools() for device in pool.devices] == ["gpu-0"]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"driverroot": "/"}, "unknown field `driverroot`"),
        ({"ignoredXids": ["48"]}, r"Expected `int`, got `str` - at `\$.ignoredXids\[0\]`"),
        ({"driverRoot": "run/nvidia"}, r"`run/nvidia` is not an absolute path - at `\$.driverRoot`"),
        ({"name": "GPU driver"}, r"is not a name for a driver.*at `\$.name`"),
        ({"recording": "/nowhere.json"}, r"No such file.*at `\$.recording`"),
    ],
)
def test_settings_that_it_does_not_understand_are_refused_with_their_path(
    settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        create_driver(DriverEntry(driver="nvml", settings=settings), node_name=NODE)
