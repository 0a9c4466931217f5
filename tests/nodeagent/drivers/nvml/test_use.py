"""Whether GPUs are in use: what NVML's utilization says, and after how long without any a GPU is told idle."""

from __future__ import annotations

import threading
from typing import Any

from nodeagent.claims.use_reports import UseTellingDriver
from nodeagent.drivers.nvml import NvmlDriver, read_settings
from nodeagent.drivers.nvml.binding import Nvml, Player
from nodeagent.drivers.nvml.gpus import read_system
from nodeagent.drivers.nvml.health import SAMPLE_SECONDS, UTILIZATION, UseWatch
from tests.nodeagent.drivers.nvml.machines import GPU0, changed, driver_of, recorded
from tests.nodeagent.objects import NODE

IDLE_AFTER = 300.0
PATIENCE = 60.0


class Machine:
    """A recorded machine whose first GPU is as busy as the test says; time passes when the test says so."""

    def __init__(self, recording: str) -> None:
        self._recorded = Player(recorded(recording))
        nvml = Nvml(self)
        self.now, self.busy, self.asked = 1000.0, 0, 0
        self.gpus = read_system(nvml).gpus
        self.watch = UseWatch(nvml, idle_after=IDLE_AFTER, clock=lambda: self.now)

    def call(self, function: str, *arguments: int | str) -> Any:
        if (function, arguments) != (UTILIZATION, (GPU0,)):
            return self._recorded.call(function, *arguments)
        self.asked += 1
        return {"gpu": self.busy, "memory": 0}

    def look(self) -> bool | None:
        """Whether the first GPU is idle; None where it is not told."""
        self.watch.sample(self.gpus)
        return self.watch.idle().get(self.gpus[0].uuid)

    def look_for(self, seconds: float) -> bool | None:
        """The same at the end of so many seconds, looked at in each of them."""
        for _ in range(round(seconds)):
            self.now += 1
            self.look()
        return self.look()


def test_a_gpu_is_idle_when_it_was_seen_doing_nothing_for_long_enough() -> None:
    machine = Machine("t4")
    assert machine.look() is None, "it may have worked a second ago"
    assert machine.look_for(IDLE_AFTER - 1) is None
    assert machine.look_for(1) is True


def test_a_gpu_that_works_is_in_use_until_it_did_nothing_for_long_enough() -> None:
    machine = Machine("t4")
    machine.busy = 35
    assert machine.look() is False
    machine.busy = 0
    assert machine.look_for(IDLE_AFTER - 1) is False
    assert machine.look_for(1) is True


def test_a_gpu_that_was_not_looked_at_for_a_while_is_not_told_idle_by_what_was_seen_before() -> None:
    machine = Machine("t4")
    machine.look()
    machine.now += IDLE_AFTER
    assert machine.look() is None, "NVML was away, and a job may have come and gone"
    assert machine.look_for(IDLE_AFTER) is True


def test_nvml_is_asked_once_a_second_at_most() -> None:
    machine = Machine("t4")
    machine.look()
    machine.now += SAMPLE_SECONDS / 2
    machine.look()
    assert machine.asked == 1
    machine.now += SAMPLE_SECONDS / 2
    machine.look()
    assert machine.asked == 2


def test_each_gpu_is_told_of_by_itself() -> None:
    machine = Machine("h100")
    machine.look()
    machine.look_for(IDLE_AFTER)
    machine.busy = 100
    machine.look_for(1)
    busy, idle = machine.gpus
    assert machine.watch.idle() == {busy.uuid: False, idle.uuid: True}


def test_of_a_gpu_in_mig_mode_nothing_is_told() -> None:
    nvml = Nvml(Player(recorded("a100-mig")))
    gpus = read_system(nvml).gpus
    watch = UseWatch(nvml, idle_after=0.0)
    watch.sample(gpus)
    assert [gpu.mig_enabled for gpu in gpus] == [True, True, False]
    assert watch.idle() == {gpus[2].uuid: True}


def test_of_a_gpu_whose_nvml_cannot_say_it_nothing_is_told() -> None:
    watch = UseWatch(nvml := Nvml(Player(changed(recorded("t4"), UTILIZATION, GPU0, error=3))), idle_after=0.0)
    watch.sample(read_system(nvml).gpus)
    assert watch.idle() == {}


def test_a_recording_of_an_older_version_plays_as_before() -> None:
    calls = [one for one in recorded("t4") if one.call != UTILIZATION]
    watch = UseWatch(nvml := Nvml(Player(calls)), idle_after=0.0)
    watch.sample(read_system(nvml).gpus)
    assert watch.idle() == {}


def test_the_driver_tells_of_its_devices_by_pool_and_name_while_it_watches() -> None:
    asked = threading.Event()

    class Asked(Player):
        def call(self, function: str, *arguments: int | str) -> object:
            try:
                return super().call(function, *arguments)
            finally:
                if (function, *arguments[:1]) == ("nvmlEventSetWait_v2", "nvmlEventSetCreate()"):
                    asked.set()  # the use was looked at before

    driver = NvmlDriver(NODE, Asked(recorded("h100")), read_settings({"idleSeconds": 0}))
    assert isinstance(driver, UseTellingDriver)
    assert driver.idle() == {}
    driver.subscribe(lambda: None)
    try:
        assert asked.wait(PATIENCE)
        assert driver.idle() == {(NODE, "gpu-0"): True, (NODE, "gpu-1"): True}
    finally:
        driver.close()


def test_nothing_is_told_of_partitions() -> None:
    driver = driver_of(recorded("a100-mig"), publishMigParents=True)
    assert driver.idle() == {}
