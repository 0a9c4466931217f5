"""A served driver that knows the use of its devices: what it tells stands in the claims that it has prepared."""

from __future__ import annotations

import httpx
import pytest

from nodeagent.drivers.simulated import DeviceFaults, Faults
from nodeagent.serving.uses import FOLDER
from nodeagent.storage import Disk
from tests.nodeagent.fake_api import Refused
from tests.nodeagent.machine import RecordingDriver
from tests.nodeagent.serving.conftest import Node


def idle(**devices: bool) -> Faults:
    return Faults(devices={name.replace("_", "-"): DeviceFaults(idle=one) for name, one in devices.items()})


def said(node: Node, claim: str = "c") -> dict[str, str]:
    """device -> the status of its condition"""
    found = node.api.find("resourceclaims", claim)
    assert found
    return {one["device"]: one["conditions"][-1]["status"] for one in found["status"].get("devices", [])}


def remembered(node: Node) -> list[str]:
    return sorted(path.name for path in (node.plugin_dir / FOLDER).glob("*"))


def test_the_use_of_what_it_has_prepared_is_told_and_of_nothing_else(node: Node) -> None:
    node.claim("c", "gpu-0", "gpu-1")
    node.claim("other", "gpu-2")
    kubelet = node.serve()
    node.driver.set_faults(idle(gpu_0=True, gpu_1=False, gpu_2=True))
    kubelet.prepare("c")
    node.eventually(lambda: said(node) == {"gpu-0": "True", "gpu-1": "False"})
    node.driver.set_faults(idle(gpu_0=False, gpu_1=False))
    node.eventually(lambda: said(node) == {"gpu-0": "False", "gpu-1": "False"})
    assert said(node, "other") == {}


def test_after_a_restart_it_is_told_of_what_was_prepared_before(node: Node) -> None:
    node.claim("c", "gpu-0")
    node.serve().prepare("c")
    assert remembered(node) == ["claim-c.json"]
    node.stop()
    node.driver.set_faults(idle(gpu_0=True))
    node.serve()
    node.eventually(lambda: said(node) == {"gpu-0": "True"})


def test_of_what_was_given_back_nothing_is_told(node: Node) -> None:
    node.claim("c", "gpu-0")
    node.claim("next", "gpu-0")
    kubelet = node.serve()
    kubelet.prepare("c")
    kubelet.unprepare("c")
    assert remembered(node) == []
    node.driver.set_faults(idle(gpu_0=True))
    kubelet.prepare("next")
    node.eventually(lambda: said(node, "next") == {"gpu-0": "True"})
    assert said(node) == {}


def test_an_api_that_is_away_is_told_later(node: Node) -> None:
    node.claim("c", "gpu-0")
    kubelet = node.serve(use_seconds=0.05)
    node.driver.set_faults(idle(gpu_0=True))
    failures = iter(range(3))

    def fail_thrice(request: httpx.Request) -> None:
        if request.method == "PUT" and next(failures, None) is not None:
            raise httpx.ConnectError("refused", request=request)

    node.api.before = fail_thrice
    kubelet.prepare("c")
    node.eventually(lambda: said(node) == {"gpu-0": "True"})


def test_without_the_right_to_say_so_pods_start_and_the_log_says_what_is_missing(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.claim("c", "gpu-0")
    node.driver.set_faults(idle(gpu_0=True))
    kubelet = node.serve()

    def refuse(request: httpx.Request) -> None:
        if request.method == "PUT":
            raise Refused(403, "Forbidden", "resourceclaims/driver")

    node.api.before = refuse
    assert kubelet.prepare("c")["claim-c"].error == ""
    node.stop()
    assert "ResourceClaim default/c: the use of its devices is not told" in caplog.text
    assert "docs/drivers.md" in caplog.text


class FullDisk(Disk):
    """Has no room for what is remembered of claims."""

    def overwrite(self, path: object, content: bytes) -> None:
        raise OSError(28, "No space left on device")


def test_a_disk_without_room_keeps_no_pod_from_starting(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.claim("c", "gpu-0")
    node.driver.set_faults(idle(gpu_0=True))
    kubelet = node.serve(disk=FullDisk())
    assert kubelet.prepare("c")["claim-c"].error == ""
    assert "ResourceClaim default/c: after a restart the use of its devices will not be told" in caplog.text


def test_a_driver_that_knows_no_use_is_served_as_before(node: Node) -> None:
    class Ignorant(RecordingDriver):
        idle = None  # type: ignore[assignment]

    node.claim("c", "gpu-0")
    kubelet = node.serve(Ignorant())
    assert kubelet.prepare("c")["claim-c"].error == ""
    assert not (node.plugin_dir / FOLDER).exists()
