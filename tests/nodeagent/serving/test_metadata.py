"""Device metadata (KEP-5304): the files, where containers see them, and what is left of them afterwards.

The layout and the fields are those of Kubernetes' kubeletplugin library.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.resource_claims import NetworkDeviceData, ResourceClaim
from inventory.kinds.devices import DeviceAttribute
from nodeagent.cdi import validate_spec
from nodeagent.drivers.preparing import MetadataFiles
from nodeagent.drivers.protocol import ClaimIdentity, DeviceMetadata, Prepared, PreparedDevice
from nodeagent.storage import Disk
from tests.nodeagent.objects import NODE, claim

DRIVER = "example.com"
MODEL = {
    "model": DeviceAttribute(string_value="LATEST"),
    "resource.kubernetes.io/pciBusID": DeviceAttribute(string_value="0000:03:00.0"),
}
IN_CONTAINER = "/var/run/kubernetes.io/dra-device-attributes"
TEMPLATE = {"resource.kubernetes.io/pod-claim-name": "my-gpu"}
ETH0 = NetworkDeviceData(interface_name="eth0", ips=("10.0.0.5/24",), hardware_address="02:00:00:00:00:01")


class Files:
    """The two directories of one node."""

    def __init__(self, folder: Path) -> None:
        self.plugin_dir, self.cdi_dir = folder / "plugin", folder / "cdi"
        self.writer = MetadataFiles(DRIVER, plugin_dir=self.plugin_dir, cdi_dir=self.cdi_dir, disk=Disk())

    def metadata(self, claim: str, request: str) -> list[dict[str, Any]]:
        """The objects of the file, in order."""
        path = self.plugin_dir / "dra-device-metadata" / f"default_{claim}" / request / "metadata.json"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def specs(self) -> dict[str, dict[str, Any]]:
        found = {path.name: json.loads(path.read_text()) for path in sorted(self.cdi_dir.glob("*.json"))}
        assert [validate_spec(spec) for spec in found.values()] == [[]] * len(found)
        return found

    def all(self) -> list[str]:
        root = self.plugin_dir / "dra-device-metadata"
        return sorted(path.name for folder in (root, self.cdi_dir) for path in folder.rglob("*"))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def claim_of(name: str = "c", *, uid: str = "", annotations: dict[str, str] | None = None) -> ResourceClaim:
    document = claim(name, "gpu-0", driver=DRIVER, uid=uid)
    document["metadata"]["annotations"] = annotations or {}
    return msgspec.convert(document, ResourceClaim)


def prepared(*devices: tuple[str, str], **metadata: DeviceMetadata) -> Prepared:
    """devices: (request, device), of the device's own CDI device."""
    made = tuple(
        PreparedDevice(requests=(request,), pool=NODE, device=device, cdi_device_ids=(f"k8s.{DRIVER}/claim={device}",))
        for request, device in devices
    )
    told = {(NODE, name.replace("_", "-")): one for name, one in metadata.items()}
    return Prepared(made, None, told)


def test_a_container_reads_what_its_device_is(files: Files) -> None:
    told = files.writer.write(claim_of(), prepared(("gpu", "gpu-0"), gpu_0=DeviceMetadata(attributes=MODEL)))

    newest, oldest = files.metadata("c", "gpu")
    assert [newest["apiVersion"], oldest["apiVersion"]] == [
        "metadata.resource.k8s.io/v1beta1",
        "metadata.resource.k8s.io/v1alpha1",
    ]
    assert newest == {
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "metadata": {"name": "c", "namespace": "default", "uid": "claim-c", "generation": 1},
        "requests": [
            {
                "name": "gpu",
                "devices": [
                    {
                        "driver": DRIVER,
                        "pool": NODE,
                        "name": "gpu-0",
                        "attributes": {
                            "model": {"string": "LATEST"},
                            "resource.kubernetes.io/pciBusID": {"string": "0000:03:00.0"},
                        },
                    }
                ],
            }
        ],
    }
    assert {**oldest, "apiVersion": ""} == {**newest, "apiVersion": ""}
    assert told.devices[0].cdi_device_ids == (f"k8s.{DRIVER}/claim=gpu-0", f"{DRIVER}/metadata=claim-c_gpu")
    (name,) = files.specs()
    assert name == f"{DRIVER}_metadata_claim-c_gpu.json"
    (device,) = files.specs()[name]["devices"]
    assert files.specs()[name]["kind"] == f"{DRIVER}/metadata"
    assert device["name"] == "claim-c_gpu"
    assert device["containerEdits"]["mounts"] == [
        {
            "hostPath": str(files.plugin_dir / "dra-device-metadata/default_c/gpu/metadata.json"),
            "containerPath": f"{IN_CONTAINER}/resourceclaims/c/gpu/example.com-metadata.json",
            "options": ["ro", "bind"],
        }
    ]


def test_anybody_may_read_the_files(files: Files) -> None:
    files.writer.write(claim_of(), prepared(("gpu", "gpu-0")))

    modes = {path.stat().st_mode & 0o777 for path in files.plugin_dir.parent.rglob("*.json")}
    assert modes == {0o644}


def test_a_claim_from_a_template_is_found_by_its_name_in_the_pod(files: Files) -> None:
    made = claim_of("c-x7f", annotations=TEMPLATE)

    files.writer.write(made, prepared(("gpu", "gpu-0")))

    assert files.metadata("c-x7f", "gpu")[0]["podClaimName"] == "my-gpu"
    ((mount,),) = (device["containerEdits"]["mounts"] for s in files.specs().values() for device in s["devices"])
    assert mount["containerPath"].endswith("/resourceclaimtemplates/my-gpu/gpu/example.com-metadata.json")


def test_a_network_device_tells_its_addresses(files: Files) -> None:
    files.writer.write(claim_of(), prepared(("nic", "nic-0"), nic_0=DeviceMetadata(network=ETH0)))

    (device,) = files.metadata("c", "nic")[0]["requests"][0]["devices"]
    assert device["networkData"] == {
        "interfaceName": "eth0",
        "ips": ["10.0.0.5/24"],
        "hardwareAddress": "02:00:00:00:00:01",
    }


def test_each_request_has_a_file_and_its_first_device_stands_for_it(files: Files) -> None:
    told = files.writer.write(claim_of(), prepared(("gpu", "gpu-0"), ("gpu", "gpu-1"), ("nic/fast", "nic-0")))

    assert [d["name"] for d in files.metadata("c", "gpu")[0]["requests"][0]["devices"]] == ["gpu-0", "gpu-1"]
    assert files.metadata("c", "nic")[0]["requests"][0]["name"] == "nic/fast"
    assert sorted(files.specs()) == [f"{DRIVER}_metadata_claim-c_gpu.json", f"{DRIVER}_metadata_claim-c_nic.json"]
    assert [d.cdi_device_ids[1:] for d in told.devices] == [
        (f"{DRIVER}/metadata=claim-c_gpu",),
        (),
        (f"{DRIVER}/metadata=claim-c_nic",),
    ]


def test_preparing_again_writes_only_what_is_different_and_counts_it(files: Files) -> None:
    files.writer.write(claim_of(), prepared(("gpu", "gpu-0")))
    files.writer.write(claim_of(), prepared(("gpu", "gpu-0")))
    assert files.metadata("c", "gpu")[0]["metadata"]["generation"] == 1

    files.writer.write(claim_of(), prepared(("gpu", "gpu-0"), gpu_0=DeviceMetadata(attributes=MODEL)))
    assert {one["metadata"]["generation"] for one in files.metadata("c", "gpu")} == {2}


def test_giving_back_removes_everything_and_again_nothing(files: Files) -> None:
    files.writer.write(claim_of(), prepared(("gpu", "gpu-0"), ("nic", "nic-0")))

    for _ in range(2):
        files.writer.remove(ClaimIdentity("claim-c", "default", "c"))
        assert files.all() == []


def test_a_claim_of_which_only_the_uid_is_known_is_found(files: Files) -> None:
    files.writer.write(claim_of("c"), prepared(("gpu", "gpu-0")))
    files.writer.write(claim_of("d"), prepared(("gpu", "gpu-1")))

    files.writer.remove(ClaimIdentity("claim-c", "", ""))

    assert list(files.specs()) == [f"{DRIVER}_metadata_claim-d_gpu.json"]
    assert files.metadata("d", "gpu")


def test_a_later_claim_of_the_same_name_keeps_its_files(files: Files) -> None:
    files.writer.write(claim_of(uid="older"), prepared(("gpu", "gpu-0")))
    files.writer.write(claim_of(uid="later"), prepared(("gpu", "gpu-0")))

    files.writer.remove(ClaimIdentity("older", "default", "c"))

    assert list(files.specs()) == [f"{DRIVER}_metadata_later_gpu.json"]
    assert files.metadata("c", "gpu")[0]["metadata"]["uid"] == "later"


class Killed(BaseException):
    """The process is gone."""


class MortalDisk(Disk):
    """Dies at the n-th step that changes anything."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        self._step()
        super().fill(path, content, flushed=flushed, mode=mode)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


@pytest.mark.parametrize("step", range(8))
def test_a_kill_at_any_step_leaves_nothing_that_is_not_made_good(tmp_path: Path, step: int) -> None:
    """Killed while writing or removing; then prepared again and given back, or given back at once."""
    wanted = prepared(("gpu", "gpu-0"), ("nic", "nic-0"))
    identity = ClaimIdentity("claim-c", "default", "c")
    for again in (True, False):
        files = Files(tmp_path / str(again))
        mortal = MetadataFiles(DRIVER, plugin_dir=files.plugin_dir, cdi_dir=files.cdi_dir, disk=MortalDisk(step))
        with suppress(Killed):
            mortal.write(claim_of(), wanted)
            mortal.remove(identity)
            mortal.write(claim_of(), wanted)
            pytest.fail("nobody was killed")
        if again:
            files.writer.write(claim_of(), wanted)
            assert len(files.specs()) == 2
            assert files.metadata("c", "gpu")
        files.writer.remove(identity)
        assert [name for name in files.all() if not name.endswith(".tmp")] == []
