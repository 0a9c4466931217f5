"""What the simulated drivers can be told to do wrong: in their settings, in code, and in a file while they run."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import Device, DeviceTaint
from manciple.wire import codec
from nodeagent.drivers import simulated
from nodeagent.drivers.preparing import DeviceGone
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared
from nodeagent.drivers.simulated import DeviceFaults, Faults, OperationFaults, SimulatedDevices
from nodeagent.node.catalog import DriverEntry, create_driver, read_drivers_file
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, claim, pod

PATIENCE = 60.0

#: The drivers that ship, by their short names, with the first device of each.
DRIVERS = {"sim": "gpu-0", "sim-partitionable": "gpu-0", "sim-nic": "nic-0"}


def driver_of(short: str, **settings: Any) -> SimulatedDevices:
    made = create_driver(DriverEntry(driver=short, settings=settings), node_name=NODE)
    assert isinstance(made, SimulatedDevices)
    return made


def claim_on(driver: SimulatedDevices, name: str = "c") -> ResourceClaim:
    device = driver.pools()[0].devices[0].name
    return codec.decode_value(ResourceClaim, claim(name, device, driver=driver.name))


def identity(name: str = "c") -> ClaimIdentity:
    return ClaimIdentity(f"claim-{name}", "default", name)


def outcome(driver: SimulatedDevices, operation: str, name: str = "c") -> str:
    """prepared, unprepared, left out, or the reason of the failure."""
    if operation == "prepare":
        answer = driver.prepare([claim_on(driver, name)]).get(f"claim-{name}", "left out")
        done = "prepared"
    else:
        answer = driver.unprepare([identity(name)]).get(f"claim-{name}", "left out") or "unprepared"
        done = "unprepared"
    if isinstance(answer, Failed):
        return answer.reason
    return done if isinstance(answer, Prepared) else answer


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)


@pytest.fixture(params=DRIVERS)
def short(request: pytest.FixtureRequest) -> str:
    return str(request.param)


OPERATIONS = ("prepare", "unprepare")
FAILING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, ["done", "done"]),
    "twice": ({"fail": 2}, ["simulated failure", "simulated failure", "done", "done"]),
    "twice, with a reason": ({"fail": 2, "reason": "no power"}, ["no power", "no power", "done"]),
    "always": ({"fail": "always", "reason": "no power"}, ["no power"] * 5),
    "no answer for this claim by name": ({"unanswered": ["c"]}, ["left out", "left out"]),
    "no answer for this claim by uid": ({"unanswered": ["claim-c"]}, ["left out"]),
    "no answer for another claim": ({"unanswered": ["d"]}, ["done"]),
    "no answer for any": ({"unanswered": ["*"]}, ["left out"]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("case", FAILING)
def test_an_operation_fails_as_the_settings_say(short: str, case: str, operation: str) -> None:
    wrong, expected = FAILING[case]
    driver = driver_of(short, faults={operation: wrong})

    done = "prepared" if operation == "prepare" else "unprepared"
    assert [outcome(driver, operation) for _ in expected] == [done if one == "done" else one for one in expected]
    other = "unprepare" if operation == "prepare" else "prepare"
    assert outcome(driver, other) in ("prepared", "unprepared"), "the other operation is as it should be"


def test_it_answers_for_some_claims_of_a_call(short: str) -> None:
    driver = driver_of(short, faults={"prepare": {"unanswered": ["two"]}})

    answers = driver.prepare([claim_on(driver, name) for name in ("one", "two", "three")])

    assert list(answers) == ["claim-one", "claim-three"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_hangs_until_something_else_is_said(short: str, operation: str) -> None:
    driver = driver_of(short, faults={operation: {"hangSeconds": 3600, "fail": 1}})
    outcomes: list[str] = []
    thread = threading.Thread(target=lambda: outcomes.append(outcome(driver, operation)), daemon=True)

    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert outcomes == []

    driver.set_faults(Faults())
    thread.join(PATIENCE)
    assert outcomes == ["prepared" if operation == "prepare" else "unprepared"]


def test_a_call_that_hangs_goes_on_after_its_time() -> None:
    driver = driver_of("sim", faults={"prepare": {"hangSeconds": 0.3}})
    started = time.monotonic()

    assert outcome(driver, "prepare") == "prepared"

    assert time.monotonic() - started >= 0.3


def test_a_device_is_unhealthy_with_a_message(short: str) -> None:
    device = DRIVERS[short]
    driver = driver_of(short, faults={"devices": {device: {"health": "Unhealthy", "message": "too hot"}}})

    healths = {one.device: (one.health, one.message) for one in driver.health()}

    assert healths.pop(device) == ("Unhealthy", "too hot")
    assert set(healths.values()) == {("Healthy", "")}


def test_a_device_vanishes_and_cannot_be_prepared(short: str) -> None:
    device = DRIVERS[short]
    driver = driver_of(short)
    wanted = claim_on(driver)
    driver.set_faults(Faults(devices={device: DeviceFaults(gone=True)}))

    assert device not in {one.name for one in driver.pools()[0].devices}
    assert device not in {one.device for one in driver.health()}
    answer = driver.prepare([wanted])["claim-c"]
    assert answer == Failed(str(DeviceGone(NODE, device)))

    driver.set_faults(Faults())
    assert isinstance(driver.prepare([wanted])["claim-c"], Prepared)


def test_a_device_is_tainted(short: str) -> None:
    device = DRIVERS[short]
    driver = driver_of(short, faults={"devices": {device: {"taints": [{"key": "hot", "effect": "NoExecute"}]}}})

    tainted = {one.name: one.taints for one in driver.pools()[0].devices if one.taints}

    assert tainted == {device: (DeviceTaint(key="hot", effect="NoExecute"),)}


UNKNOWN: dict[str, dict[str, Any]] = {
    "an unknown operation": {"faults": {"publish": {"fail": 1}}},
    "an unknown field": {"faults": {"prepare": {"fails": 1}}},
    "an unknown word for always": {"faults": {"prepare": {"fail": "ever"}}},
    "an unknown state of health": {"faults": {"devices": {"gpu-0": {"health": "Sick"}}}},
    "an unknown setting": {"gpu": 4},
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_settings_that_are_not_understood_are_refused(short: str, case: str) -> None:
    with pytest.raises(ValueError, match=f"driver {short}: "):
        driver_of(short, **UNKNOWN[case])


class Control:
    """A control file, and a driver that reads it."""

    def __init__(self, folder: Path, short: str) -> None:
        self.path = folder / "faults.yaml"
        self.driver = driver_of(short, control=str(self.path))
        self.told = threading.Event()
        self.driver.subscribe(self.told.set)

    def say(self, faults: Any) -> None:
        """Returns once the driver has told its subscribers."""
        self.told.clear()
        temporary = self.path.with_suffix(".new")
        temporary.write_text(faults if isinstance(faults, str) else yaml.safe_dump(faults))
        temporary.replace(self.path)
        assert self.told.wait(PATIENCE)

    def devices(self) -> tuple[Device, ...]:
        return self.driver.pools()[0].devices


@pytest.fixture
def control(tmp_path: Path, short: str, monkeypatch: pytest.MonkeyPatch) -> Control:
    monkeypatch.setattr(simulated, "LOOK_SECONDS", 0.01)
    return Control(tmp_path, short)


def test_a_running_driver_follows_its_control_file(control: Control) -> None:
    assert outcome(control.driver, "prepare") == "prepared"

    control.say({"prepare": {"fail": "always", "reason": "no power"}})
    assert outcome(control.driver, "prepare") == "no power"

    control.say({"unprepare": {"fail": 1}, "devices": {control.devices()[0].name: {"gone": True}}})
    assert outcome(control.driver, "prepare") == "prepared"
    assert outcome(control.driver, "unprepare") == "simulated failure"
    assert control.devices()[0].name != DRIVERS["sim"]


def test_a_control_file_that_is_gone_means_no_faults(control: Control) -> None:
    control.say({"prepare": {"fail": "always"}})
    control.told.clear()

    control.path.unlink()

    assert control.told.wait(PATIENCE)
    assert outcome(control.driver, "prepare") == "prepared"


def test_a_control_file_takes_the_place_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("{unprepare: {fail: 1}}")

    driver = driver_of("sim", control=str(path), faults={"prepare": {"fail": 1}})

    assert outcome(driver, "prepare") == "prepared"
    assert outcome(driver, "unprepare") == "simulated failure"


def test_a_control_file_with_a_mistake_changes_nothing(control: Control, caplog: pytest.LogCaptureFixture) -> None:
    control.say({"prepare": {"fail": "always", "reason": "no power"}})

    control.path.write_text("prepare: {fial: 1}")

    wait_until(lambda: "fial" in caplog.text)
    assert "what it said before stays" in caplog.text
    assert outcome(control.driver, "prepare") == "no power"


# Through an agent.


def test_a_pod_whose_claim_the_driver_does_not_answer_for_waits_and_says_so(machine: Machine) -> None:
    machine.driver.set_faults(Faults(prepare=OperationFaults(unanswered=("c",))))
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", claims={"g": "c"}))
    machine.look()

    assert machine.pod("p")["status"]["phase"] == "Pending"
    assert any(
        "it did not answer for this claim" in message for message in machine.events("FailedPrepareDynamicResources")
    )

    machine.driver.set_faults(Faults())
    machine.settle()
    assert machine.condition("p", "Ready") == "True"


def test_a_device_that_vanishes_or_is_tainted_is_published_so(machine: Machine) -> None:
    taint = DeviceTaint(key="example.com/hot", effect="NoExecute")
    machine.driver.set_faults(
        Faults(devices={"gpu-0": DeviceFaults(gone=True), "gpu-1": DeviceFaults(taints=(taint,))})
    )

    machine.settle()

    devices = {d["name"]: d.get("taints", []) for s in machine.api.all("resourceslices") for d in s["spec"]["devices"]}
    assert "gpu-0" not in devices
    assert [(t["key"], t["effect"]) for t in devices["gpu-1"]] == [("example.com/hot", "NoExecute")]


def test_the_documented_drivers_file_is_understood(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "explanation" / "nodeagent.md").read_text()
    blocks = [block for block in text.split("\n\n") if "hangSeconds" in block and block.startswith("    ")]
    path = tmp_path / "drivers.yaml"
    path.write_text(textwrap.dedent(blocks[0]).replace("/tmp/faults.yaml", str(tmp_path / "faults.yaml")))

    (entry,) = read_drivers_file(path)

    assert create_driver(entry, node_name=NODE).name == "mig.example.com"
    assert msgspec.convert(entry.settings["faults"], Faults).devices["gpu-1"].gone
