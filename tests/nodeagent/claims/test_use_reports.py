"""The agent says in claims what their drivers know of the use of devices: once for each change, and no more."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx
import pytest

from nodeagent.api.client import Client
from nodeagent.claims.checkpoint import ClaimRecord, DriverRecord
from nodeagent.claims.use_reports import UseReports
from nodeagent.drivers.protocol import PreparedDevice
from nodeagent.drivers.simulated import DeviceFaults, Faults, SimulatedDriver
from tests.nodeagent import objects
from tests.nodeagent.fake_api import FakeApi, Refused
from tests.nodeagent.objects import DRIVER, NODE

DEVICES = tuple(PreparedDevice(requests=(), pool=NODE, device=f"gpu-{n}", cdi_device_ids=()) for n in range(2))
RECORD = ClaimRecord(
    uid="claim-gpus",
    namespace="default",
    name="gpus",
    state="Prepared",
    pods=("uid-pod",),
    drivers=(DriverRecord(driver=DRIVER, devices=DEVICES),),
)


class Node:
    """A claim with two devices on it, and a driver that tells what the test says."""

    def __init__(self) -> None:
        self.api, self.driver = FakeApi(), SimulatedDriver(NODE, gpus=4)
        self.api.put("resourceclaims", objects.claim("gpus", "gpu-0", "gpu-1"))
        self.reports = self.started()

    def started(self) -> UseReports:
        """As an agent has them that has just started."""
        clock = count(1_700_000_000)
        return UseReports(Client("http://api", token="secret", transport=self.api), clock=lambda: next(clock))

    def tell(self, **idle: bool) -> None:
        faults = {name.replace("_", "-"): DeviceFaults(idle=one) for name, one in idle.items()}
        self.driver.set_faults(Faults(devices=faults))
        self.reports.sync([RECORD], [self.driver])

    def said(self) -> dict[str, str]:
        """device -> the status of its condition"""
        return {one["device"]: one["conditions"][-1]["status"] for one in self.devices()}

    def devices(self) -> list[dict[str, Any]]:
        claim = self.api.find("resourceclaims", "gpus")
        assert claim
        found: list[dict[str, Any]] = claim["status"].get("devices", [])
        return found

    def writes(self) -> int:
        return sum(one.startswith("PUT") for one in self.api.requests)


def test_what_a_driver_tells_of_the_devices_of_a_claim_stands_in_its_status() -> None:
    node = Node()
    node.tell()
    assert node.devices() == []
    node.tell(gpu_0=True, gpu_3=True)
    assert node.said() == {"gpu-0": "True"}
    (report,) = node.devices()
    (condition,) = report["conditions"]
    assert (report["driver"], report["pool"]) == (DRIVER, NODE)
    assert (condition["type"], condition["lastTransitionTime"]) == ("manciple.dev/Idle", "2023-11-14T22:13:20Z")
    node.tell(gpu_0=False, gpu_1=True)
    assert node.said() == {"gpu-0": "False", "gpu-1": "True"}


def test_nothing_is_written_while_nothing_changes_or_after_a_restart() -> None:
    node = Node()
    node.tell(gpu_0=True)
    assert node.writes() == 1
    node.tell(gpu_0=True)
    node.reports = node.started()
    node.tell(gpu_0=True)
    assert node.writes() == 1


def test_what_the_driver_itself_reports_stays() -> None:
    node = Node()
    claim = objects.claim("gpus", "gpu-0")
    ready = {"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": None}
    claim["status"]["devices"] = [
        {"driver": DRIVER, "pool": NODE, "device": "gpu-0", "conditions": [ready], "data": {"a": 1}}
    ]
    node.api.put("resourceclaims", claim)
    node.tell(gpu_0=False)
    (report,) = node.devices()
    assert [one["type"] for one in report["conditions"]] == ["Ready", "manciple.dev/Idle"]
    assert report["data"] == {"a": 1}


def test_a_node_without_the_right_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()

    def refuse(request: httpx.Request) -> None:
        if request.method == "PUT":
            raise Refused(403, "Forbidden", "nodes may not")

    node.api.before = refuse
    for _ in range(3):
        node.tell(gpu_0=True)
    assert sum("the use of its devices is not told" in record.message for record in caplog.records) == 1
    assert sum(one.startswith("PUT") for one in node.api.requests) <= 1
