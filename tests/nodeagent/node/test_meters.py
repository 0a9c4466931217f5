"""The agent reports what its drivers' meters read, at its pace and in one request; nothing where there are none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from inventory.kinds.device_readings import MOST_DEVICES, Meters
from nodeagent.api.client import Client
from nodeagent.drivers.simulated import DeviceFaults, Faults, SimulatedDriver
from nodeagent.failures import ApiFailure
from nodeagent.node.meters import MeterReports
from tests.nodeagent.fake_api import Address, Document, FakeApi, Refused
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import DRIVER, NODE

READ = Meters(utilization=35, memory_used=1 << 30, memory_total=80 << 30, temperature=61, power=310)
PACE = 120.0


def metered(**meters: Meters) -> Faults:
    return Faults(devices={name.replace("_", "-"): DeviceFaults(meters=one) for name, one in meters.items()})


class Server(FakeApi):
    """Keeps the reports that it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[Address, Document]] = []
        self.connects["devicereadings"] = self._keep

    def _keep(self, address: Address, body: Document) -> Document:
        self.reports.append((address, body))
        return {"kind": "Status", "status": "Success"}

    def read(self) -> list[dict[str, Any]]:
        """device -> meters, of each report"""
        return [{one["device"]: one["meters"] for one in body["devices"]} for _, body in self.reports]


class Reporting:
    """The reports of a node, whose clock goes when the test says."""

    def __init__(self) -> None:
        self.now, self.server, self.driver = 0.0, Server(), SimulatedDriver(NODE, gpus=4)
        client = Client("http://api", token="secret", transport=self.server)
        self.reports = MeterReports(client, node=NODE, seconds=PACE, clock=lambda: self.now)

    def sync(self) -> float:
        return self.reports.sync([self.driver])


def test_what_the_meters_read_is_reported_in_one_request() -> None:
    node = Reporting()
    node.driver.set_faults(metered(gpu_0=READ, gpu_2=Meters(utilization=0)))
    assert node.sync() == PACE
    ((address, body),) = node.server.reports
    assert address == ("nodes", "", NODE)
    assert (body["apiVersion"], body["kind"]) == ("manciple.dev/v1alpha1", "DeviceReadings")
    assert [(one["driver"], one["pool"], one["device"]) for one in body["devices"]] == [
        (DRIVER, NODE, "gpu-0"), (DRIVER, NODE, "gpu-2")
    ]  # fmt: skip
    (read,) = node.server.read()
    assert read["gpu-0"] == {
        "utilization": 35, "memoryUsed": 1 << 30, "memoryTotal": 80 << 30, "temperature": 61, "power": 310
    }  # fmt: skip
    assert read["gpu-2"] == {"utilization": 0}, "nothing is said of meters that it does not have"


def test_reports_keep_their_pace_however_often_the_agent_looks() -> None:
    node = Reporting()
    node.driver.set_faults(metered(gpu_0=READ))
    assert [node.sync() for _ in range(3)] == [PACE] * 3
    node.now = PACE - 1
    assert node.sync() == 1
    assert len(node.server.reports) == 1
    node.now = PACE
    node.sync()
    assert len(node.server.reports) == 2


def test_without_meters_nothing_is_sent() -> None:
    node = Reporting()
    node.sync()
    assert node.server.requests == []


def test_a_report_has_no_more_devices_than_the_server_takes() -> None:
    node = Reporting()

    class Many(SimulatedDriver):
        def meters(self) -> Mapping[tuple[str, str], Meters]:
            return {(NODE, f"gpu-{number}"): READ for number in range(2 * MOST_DEVICES)}

    node.driver = Many(NODE)
    node.sync()
    assert [len(read) for read in node.server.read()] == [MOST_DEVICES]


def test_a_driver_whose_meters_fail_does_not_keep_the_others_from_being_reported() -> None:
    node = Reporting()
    node.driver.set_faults(metered(gpu_0=READ))

    class Broken(SimulatedDriver):
        def meters(self) -> Mapping[tuple[str, str], Meters]:
            raise OSError("the bus is gone")

    node.reports.sync([Broken(NODE, name="broken.example.com"), node.driver])
    assert [set(read) for read in node.server.read()] == [{"gpu-0"}]


@pytest.mark.parametrize("reason", ["NotFound", "Forbidden", "Invalid"])
def test_a_server_that_takes_no_readings_is_named_once_in_the_log(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = Reporting()
    node.driver.set_faults(metered(gpu_0=READ))

    def refuse(_request: httpx.Request) -> None:
        raise Refused(404, reason, "the server could not find the requested resource")

    node.server.before = refuse
    with caplog.at_level(logging.WARNING, "nodeagent.node.meters"):
        for number in range(4):
            node.now = number * PACE
            assert node.sync() == PACE
    assert len(caplog.records) == 1
    assert len(node.server.requests) == 4, "a server of a newer version takes them"


def test_a_server_that_is_away_is_tried_again_by_the_queue() -> None:
    node = Reporting()
    node.driver.set_faults(metered(gpu_0=READ))
    node.server.before = lambda request: (_ for _ in ()).throw(httpx.ConnectError("refused", request=request))
    with pytest.raises(ApiFailure):
        node.sync()


def test_the_agent_serves_what_the_meters_read_as_metrics(machine: Machine) -> None:
    machine.start()
    text = machine.agent.metrics.text().decode()
    assert "manciple_device_" not in text, "nothing is metered"
    machine.recording_drivers[0].set_faults(metered(gpu_0=READ, gpu_1=Meters(utilization=0)))
    text = machine.agent.metrics.text().decode()
    where = f'device="gpu-0",driver_name="{DRIVER}",pool="{NODE}"'
    for name, value in {
        "utilization_ratio": "0.35", "memory_used_bytes": "1.073741824e+09", "temperature_celsius": "61.0",
        "power_watts": "310.0",
    }.items():  # fmt: skip
        assert f"manciple_device_{name}{{{where}}} {value}\n" in text
    assert text.count("manciple_device_power_watts{") == 1, "gpu-1 does not say how much it draws"
