"""A pod claims a device that this machine really has, and uses it: API, scheduler, an agent process, podman."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.sysfs.found import DEFAULT_NAME
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Up, wait_for
from tests.e2e.real_node import RealNode
from tests.nodeagent.drivers.nvml.machines import RECORDINGS
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = pytest.mark.e2e

NODE = "with-devices"
NAMESPACE = "real-devices"
EXAMPLES = ROOT / "docs" / "examples" / "real-devices"
DISK_BYTES = 4 << 20


@dataclass
class Disk:
    """A file behind a loop device. device: "/dev/loop4"."""

    file: Path
    device: str

    @property
    def name(self) -> str:
        return self.device.removeprefix("/dev/")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Detached at the end, whatever has happened."""
    needs_podman()
    file = tmp_path / "disk.img"
    file.write_bytes(bytes(DISK_BYTES))
    attached = subprocess.run(["losetup", "--find", "--show", str(file)], capture_output=True, text=True, check=True)
    disk = Disk(file, attached.stdout.strip())
    yield disk
    subprocess.run(["losetup", "--detach", disk.device], check=True)


@pytest.fixture
def node(system: Up, disk: Disk, tmp_path: Path) -> Iterator[RealNode]:
    """Offers the loop device of this test and no other, and the GPUs of a recorded machine."""
    sysfs = {"kinds": ["loop"], "include": [{"name": disk.name}]}
    nvml = {"recording": str(RECORDINGS / "a100-mig.json")}
    drivers = {"driver": "sysfs", "settings": sysfs}, {"driver": "nvml", "settings": nvml}
    node = RealNode(system, NODE, tmp_path, *drivers).start()
    node.process.line(r"pool .* of driver gpu\.nvidia\.com: (generation|already published)")
    yield node
    node.end()


def devices_of(kubectl: Kubectl, driver: str) -> dict[str, dict[str, Any]]:
    slices = kubectl.json("get", "resourceslices", "--field-selector", f"spec.nodeName={NODE}")["items"]
    mine = [one for one in slices if one["spec"]["driver"] == driver]
    return {device["name"]: device for one in mine for device in one["spec"].get("devices", ())}


@pytest.fixture
def example(kubectl: Kubectl, node: RealNode) -> Iterator[str]:
    """The documented example with this machine's root file system; all of it is gone after the test."""
    text = (EXAMPLES / "loop-device.yaml").read_text()
    assert "rootfs:/srv/busybox" in text
    yield text.replace("rootfs:/srv/busybox", f"rootfs:{node.rootfs}")
    kubectl("delete", "-f", str(EXAMPLES / "loop-device.yaml"), "--ignore-not-found")


def test_a_pod_claims_a_loop_device_and_writes_to_it_inside_a_container(
    kubectl: Kubectl, node: RealNode, disk: Disk, example: str
) -> None:
    published = wait_for("the loop device to be published", lambda: devices_of(kubectl, DEFAULT_NAME))
    assert list(published) == [disk.name]
    assert published[disk.name]["capacity"]["size"]["value"] == "4Mi"

    kubectl("apply", "-f", "-", stdin=example)
    succeeded = "--for=jsonpath={.status.phase}=Succeeded"
    kubectl("wait", succeeded, "-n", NAMESPACE, "pod/writer")

    wanted = f"written by the pod to {disk.device}\n".encode()
    content = disk.file.read_bytes()
    assert content[: len(wanted)] == wanted
    assert content[len(wanted) :] == bytes(DISK_BYTES - len(wanted))

    kubectl("delete", "pod", "writer", "-n", NAMESPACE)
    wait_for("the CDI file to be removed", lambda: node.cdi_documents() == [])
    assert devices_of(kubectl, DEFAULT_NAME).keys() == {disk.name}


@pytest.mark.long
def test_the_partitions_of_a_recorded_machine_are_published_through_the_api(kubectl: Kubectl, node: RealNode) -> None:
    published = wait_for("the GPUs to be published", lambda: devices_of(kubectl, "gpu.nvidia.com"))
    assert published["gpu-0-mig-1g5gb-19-2"]["attributes"]["profile"] == {"string": "1g.5gb"}
    assert published["gpu-2"]["attributes"]["cudaDriverVersion"] == {"version": "12.2.0"}
    assert published["gpu-2"]["capacity"]["memory"]["value"] == "40Gi"
