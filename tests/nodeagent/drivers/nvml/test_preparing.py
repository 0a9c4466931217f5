"""What a CUDA container gets of a GPU: device nodes, the driver's files, and nothing of other GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.cdi import validate_spec
from nodeagent.drivers.nvml import NvmlDriver
from nodeagent.drivers.preparing import DeviceGone
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared
from tests.nodeagent.drivers.nvml.machines import VERSION, GpuFiles, driver_of, recorded
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, claim, pod

DRIVER = "gpu.nvidia.com"
LIBRARIES = "/usr/local/nvidia/lib64"


@pytest.fixture
def files(tmp_path: Path) -> GpuFiles:
    return GpuFiles(tmp_path / "machine")


def claimed(*devices: str) -> ResourceClaim:
    return msgspec.convert(claim("c", *devices, driver=DRIVER), ResourceClaim)


def spec_of(driver: NvmlDriver, *devices: str) -> dict[str, Any]:
    """The CDI document of a claim on `devices`; it is valid, and podman 4.3 takes it."""
    (answer,) = driver.prepare([claimed(*devices)]).values()
    assert isinstance(answer, Prepared), answer
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer.spec))
    assert validate_spec(document) == []
    assert tuple(map(int, document["cdiVersion"].split("."))) <= (0, 5, 0)
    return document


def failure_of(driver: NvmlDriver, *devices: str) -> str:
    (answer,) = driver.prepare([claimed(*devices)]).values()
    assert isinstance(answer, Failed), answer
    return answer.reason


def nodes(edits: dict[str, Any]) -> list[str]:
    return [node["path"] for node in edits["deviceNodes"]]


def test_each_gpu_comes_with_its_own_node_and_all_with_those_of_the_driver(files: GpuFiles) -> None:
    document = spec_of(
        driver_of(recorded("h100"), roots=GpuFiles(files.roots.dev.parent / "h", version="550.54.15").roots),
        "gpu-1",
        "gpu-0",
    )
    assert [nodes(device["containerEdits"]) for device in document["devices"]] == [["/dev/nvidia1"], ["/dev/nvidia0"]]
    assert nodes(document["containerEdits"]) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


def test_nodes_may_be_read_and_written_but_not_made(files: GpuFiles) -> None:
    document = spec_of(driver_of(recorded("t4"), roots=files.roots), "gpu-0")
    (device,) = document["devices"]
    host = str(files.roots.dev / "nvidia0")
    assert device["containerEdits"] == {
        "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": host, "permissions": "rw"}]
    }


def test_a_partition_comes_with_the_capabilities_of_its_two_instances(files: GpuFiles) -> None:
    files.mig(0, 3, 0, minor=30)
    files.mig(1, 2, 0, 1, minor=147)
    driver = driver_of(recorded("a100-mig"), roots=files.roots)
    document = spec_of(driver, "gpu-0-mig-2g10gb-14-0", "gpu-1-mig-1c3g20gb-9-0-1")
    assert [nodes(device["containerEdits"]) for device in document["devices"]] == [
        ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"],
        ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap147", "/dev/nvidia-caps/nvidia-cap149"],
    ]


def test_libraries_of_the_loaded_version_are_mounted_read_only_under_each_name_they_are_loaded_by(
    files: GpuFiles,
) -> None:
    document = spec_of(driver_of(recorded("t4"), roots=files.roots), "gpu-0")
    mounts = document["containerEdits"]["mounts"]
    assert {mount["containerPath"]: Path(mount["hostPath"]).name for mount in mounts} == {
        f"{LIBRARIES}/libcuda.so.{VERSION}": f"libcuda.so.{VERSION}",
        f"{LIBRARIES}/libcuda.so": f"libcuda.so.{VERSION}",
        f"{LIBRARIES}/libcuda.so.1": f"libcuda.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-ml.so.{VERSION}": f"libnvidia-ml.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-ptxjitcompiler.so.{VERSION}": f"libnvidia-ptxjitcompiler.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-ptxjitcompiler.so.1": f"libnvidia-ptxjitcompiler.so.{VERSION}",
        "/usr/bin/nvidia-smi": "nvidia-smi",
        "/usr/bin/nvidia-cuda-mps-control": "nvidia-cuda-mps-control",
    }
    assert all(Path(mount["hostPath"]).is_file() for mount in mounts)
    assert {tuple(mount["options"]) for mount in mounts} == {("ro", "nosuid", "nodev", "rbind", "rprivate")}


def test_the_environment_names_the_libraries_and_keeps_nvidias_own_runtime_from_adding_any(files: GpuFiles) -> None:
    void = "NVIDIA_VISIBLE_DEVICES=void"
    document = spec_of(driver_of(recorded("t4"), roots=files.roots), "gpu-0")
    assert document["containerEdits"]["env"] == [void, f"LD_LIBRARY_PATH={LIBRARIES}:/usr/local/nvidia/lib"]
    driver = driver_of(recorded("t4"), roots=files.roots, setLibraryPath=False, libraryDir="/opt/nvidia")
    document = spec_of(driver, "gpu-0")
    assert document["containerEdits"]["env"] == [void]
    assert document["containerEdits"]["mounts"][0]["containerPath"].startswith("/opt/nvidia/libcuda.so")


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("dev/nvidia-uvm", "nvidia-uvm does not exist: run `nvidia-modprobe -u -c 0`"),
        ("dev/nvidia0", "dev/nvidia0"),
        ("run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.1 is neither in the linker's cache"),
        (
            f"run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}",
            "the version of the loaded driver: reboot",
        ),
    ],
)
def test_what_is_missing_on_the_node_is_told_with_what_to_do(files: GpuFiles, missing: str, told: str) -> None:
    (files.roots.dev.parent / missing).unlink()
    assert told in failure_of(driver_of(recorded("t4"), roots=files.roots), "gpu-0")


def test_a_partition_that_was_destroyed_since_is_refused(files: GpuFiles) -> None:
    driver = driver_of(recorded("a100-mig"), roots=files.roots)
    assert "the MIG device is gone" in failure_of(driver, "gpu-0-mig-2g10gb-14-0")
    assert failure_of(driver, "gpu-9") == str(DeviceGone(NODE, "gpu-9"))


def test_an_agent_gives_a_pod_its_gpu_and_takes_it_back(files: GpuFiles, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", drivers=[driver_of(recorded("t4"), roots=files.roots)])
    machine.api.put("resourceclaims", claim("training", "gpu-0", driver=DRIVER, pods=("uid-p",)))
    machine.api.put("pods", pod("p", claims={"gpu": "training"}))
    machine.start()
    machine.settle()
    assert machine.environment("p")["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert list(machine.cdi_files()) == ["k8s.gpu.nvidia.com-claim_claim-training.json"]
    machine.api.put("resourceclaims", claim("training", "gpu-0", driver=DRIVER))
    machine.api.delete("pods", "p")
    machine.settle()
    assert machine.cdi_files() == {}


def test_unprepare_succeeds_also_for_a_claim_never_seen(files: GpuFiles) -> None:
    driver = driver_of(recorded("t4"), roots=files.roots)
    assert driver.unprepare([ClaimIdentity("u", "default", "never")]) == {"u": None}
