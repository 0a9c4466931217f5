"""What the meters of GPUs read: NVML's utilization over the last minute, its memory, temperature and power."""

from __future__ import annotations

from typing import Any

import pytest

from inventory.kinds.device_readings import Meters
from nodeagent.drivers.nvml.binding import Nvml, NvmlCall, NvmlError, Player
from nodeagent.drivers.nvml.gpus import read_system
from nodeagent.drivers.nvml.health import AVERAGED, GAP_SECONDS, METER_SECONDS, UTILIZATION, UseWatch
from nodeagent.drivers.protocol import MeteredDriver
from tests.nodeagent.drivers.nvml.machines import GPU0, driver_of, recorded

GIB = 1 << 30
NOT_SUPPORTED = 3


class Machine:
    """A recorded machine whose first GPU has the meters that the test says; an error where it says a number's name."""

    def __init__(self, recording: str) -> None:
        self._recorded = Player(recorded(recording))
        self.now = 1000.0
        self.answers: dict[str, Any] = {
            UTILIZATION: {"gpu": 0, "memory": 0},
            "nvmlDeviceGetMemoryInfo": {"total": 80 * GIB, "free": 60 * GIB, "used": 20 * GIB},
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetPowerUsage": 312_600,
        }
        self.asked: list[str] = []
        nvml = Nvml(self)
        self.gpus = read_system(nvml).gpus
        self.watch = UseWatch(nvml, idle_after=300.0, clock=lambda: self.now)

    def call(self, function: str, *arguments: int | str) -> Any:
        if arguments[:1] != (GPU0,) or function not in self.answers:
            return self._recorded.call(function, *arguments)
        self.asked.append(function)
        answer = self.answers[function]
        if isinstance(answer, NvmlError):
            raise answer
        return answer

    def work(self, seconds: int, percent: int = 0) -> Meters | None:
        """What the meters of the first GPU read after so many seconds of so much work."""
        self.answers[UTILIZATION] = {"gpu": percent, "memory": 0}
        for _ in range(seconds):
            self.watch.sample(self.gpus)
            self.now += 1
        return self.watch.meters().get(self.gpus[0].uuid)


def test_a_gpu_tells_its_work_its_memory_its_temperature_and_its_power() -> None:
    assert Machine("t4").work(1, percent=35) == Meters(
        utilization=35, memory_used=20 * GIB, memory_total=80 * GIB, temperature=61, power=313
    )


def test_the_utilization_is_that_of_the_last_minute_not_of_one_moment() -> None:
    machine = Machine("t4")
    machine.work(AVERAGED, percent=100)
    half = machine.work(AVERAGED // 2, percent=0)
    none = machine.work(AVERAGED // 2, percent=0)
    assert [one.utilization for one in (half, none) if one is not None] == [50, 0]


@pytest.mark.parametrize(
    ("missing", "field"),
    {
        UTILIZATION: "utilization",
        "nvmlDeviceGetMemoryInfo": "memory_used",
        "nvmlDeviceGetTemperature": "temperature",
        "nvmlDeviceGetPowerUsage": "power",
    }.items(),
)
def test_a_meter_that_a_gpu_does_not_have_is_unknown_and_the_others_are_told(missing: str, field: str) -> None:
    machine = Machine("t4")
    machine.answers[missing] = NvmlError(missing, NOT_SUPPORTED, "not supported")
    machine.watch.sample(machine.gpus)
    read = machine.watch.meters()[machine.gpus[0].uuid]
    known = {name for name in Meters.__struct_fields__ if getattr(read, name) is not None}
    gone = {"memory_used", "memory_total"} if field == "memory_used" else {field}
    assert known == set(Meters.__struct_fields__) - gone


def test_what_was_read_long_ago_is_not_told() -> None:
    machine = Machine("t4")
    assert machine.work(1) is not None
    machine.now += GAP_SECONDS + 2
    assert machine.watch.meters() == {}, "NVML has not answered since"


def test_meters_are_read_less_often_than_the_utilization() -> None:
    machine = Machine("t4")
    machine.asked.clear()
    machine.work(int(METER_SECONDS))
    assert machine.asked.count(UTILIZATION) == METER_SECONDS
    assert machine.asked.count("nvmlDeviceGetPowerUsage") == 1


def test_a_partition_tells_its_memory_and_nothing_of_its_gpu() -> None:
    calls = recorded("a100-mig")
    migs = [one.answer for one in calls if one.call == "nvmlDeviceGetMigDeviceHandleByIndex" and not one.error]
    memory = {"total": 10 * GIB, "free": 9 * GIB, "used": GIB}
    driver = driver_of(
        [*calls, *(NvmlCall(call="nvmlDeviceGetMemoryInfo", args=(mig,), answer=memory) for mig in migs)]
    )
    assert isinstance(driver, MeteredDriver)
    assert driver.meters() == {}, "the GPUs are not watched yet"
    driver._use.sample(driver._monitor.rescan().gpus)  # type: ignore[union-attr]
    parts = {name: read for (_, name), read in driver.meters().items() if "-mig-" in name}
    assert parts
    assert set(parts.values()) == {Meters(memory_used=GIB, memory_total=10 * GIB)}


def test_a_recording_of_an_older_version_plays_as_before() -> None:
    machine = Machine("h100")
    machine.watch.sample(machine.gpus)
    assert machine.watch.meters()[machine.gpus[1].uuid].power is None
