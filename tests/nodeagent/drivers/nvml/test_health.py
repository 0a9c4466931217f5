"""The health of GPUs: which reports of NVML make one unhealthy, and what becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from nodeagent.drivers.nvml import NvmlDriver, read_settings
from nodeagent.drivers.nvml import health as health_module
from nodeagent.drivers.nvml.binding import TIMEOUT, WAIT, NvmlCall, NvmlError, Player
from nodeagent.drivers.nvml.health import DOUBLE_BIT, XID
from tests.nodeagent.drivers.nvml.machines import GPU0, changed, driver_of, event, published, recorded, with_events
from tests.nodeagent.objects import NODE

GPU1 = "nvmlDeviceGetHandleByIndex(1)"
#: Seconds; an event arrives at once.
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs half a second to see that a recorded machine reports nothing."""
    monkeypatch.setattr(health_module, "WAIT_MILLISECONDS", 20)


class Quiet(Player):
    """Says when its recorded machine has told all: it was asked for an event and had none left."""

    def __init__(self, calls: Iterable[NvmlCall]) -> None:
        super().__init__(calls)
        self.reached = threading.Event()

    def call(self, function: str, *arguments: int | str) -> Any:
        try:
            return super().call(function, *arguments)
        except NvmlError as error:
            if function == WAIT and error.code == TIMEOUT:
                self.reached.set()
            raise


@contextmanager
def watching(calls: Sequence[NvmlCall], **settings: Any) -> Iterator[NvmlDriver]:
    """A driver that has heard all events of its recorded machine."""
    machine = Quiet(calls)
    driver = NvmlDriver(NODE, machine, read_settings(settings))
    driver.subscribe(lambda: None)
    try:
        assert machine.reached.wait(PATIENCE)
        yield driver
    finally:
        driver.close()


def health(driver: NvmlDriver) -> dict[str, str]:
    return {one.device: f"{one.health}: {one.message}".removesuffix(": ") for one in driver.health()}


def unhealthy(driver: NvmlDriver) -> set[str]:
    return {one.device for one in driver.health() if one.health == "Unhealthy"}


def test_gpus_that_report_nothing_are_healthy() -> None:
    with watching(recorded("h100")) as driver:
        assert health(driver) == {"gpu-0": "Healthy", "gpu-1": "Healthy"}


def test_a_critical_xid_makes_its_gpu_unhealthy_and_keeps_new_claims_off_it() -> None:
    with watching(with_events(recorded("h100"), event(XID, 79, gpu=GPU1))) as driver:
        wrong = "Unhealthy: XID 79: the GPU has fallen off the bus; drain the node and reset the GPU"
        assert health(driver) == {"gpu-0": "Healthy", "gpu-1": wrong}
        (taint,) = published(driver)["gpu-1"].taints
        assert (taint.key, taint.value, taint.effect) == ("gpu.nvidia.com/xid", "79", "NoSchedule")
        assert published(driver)["gpu-0"].taints == ()


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_the_xid_of_a_faulty_program_leaves_the_gpu_healthy(xid: int) -> None:
    with watching(with_events(recorded("t4"), event(XID, xid))) as driver:
        assert health(driver) == {"gpu-0": "Healthy"}


def test_an_operator_says_which_xids_count() -> None:
    calls = with_events(recorded("h100"), event(XID, 94), event(XID, 31, gpu=GPU1))
    with watching(calls, ignoredXids=[94], fatalXids=[31]) as driver:
        assert unhealthy(driver) == {"gpu-1"}


def test_a_double_bit_error_makes_its_gpu_unhealthy() -> None:
    with watching(with_events(recorded("t4"), event(DOUBLE_BIT))) as driver:
        wrong = "a memory error that ECC could not correct; drain the node and reset the GPU"
        assert health(driver) == {"gpu-0": f"Unhealthy: {wrong}"}


def test_errors_of_memory_from_before_the_start_count_until_the_driver_is_loaded_anew() -> None:
    calls = changed(recorded("t4"), "nvmlDeviceGetTotalEccErrors", GPU0, 1, 0, answer=3)
    driver = driver_of(calls)
    assert health(driver)["gpu-0"].startswith("Unhealthy: 3 memory errors")
    assert [taint.key for taint in published(driver)["gpu-0"].taints] == ["gpu.nvidia.com/ecc"]


def test_an_event_of_one_instance_concerns_its_partitions_only() -> None:
    with watching(with_events(recorded("a100-mig"), event(XID, 95, gi=3, ci=0))) as driver:
        assert unhealthy(driver) == {"gpu-0-mig-2g10gb-14-0"}


def test_an_event_of_a_compute_instance_leaves_its_neighbour_in_the_same_gpu_instance_alone() -> None:
    with watching(with_events(recorded("a100-mig"), event(XID, 95, gpu=GPU1, gi=2, ci=1))) as driver:
        assert unhealthy(driver) == {"gpu-1-mig-1c3g20gb-9-0-1"}


def test_an_event_of_the_whole_gpu_concerns_all_its_partitions() -> None:
    with watching(with_events(recorded("a100-mig"), event(XID, 48))) as driver:
        assert unhealthy(driver) == {name for name in published(driver) if name.startswith("gpu-0-")}


def test_a_gpu_that_is_lost_is_withdrawn_and_unhealthy_for_those_who_have_it() -> None:
    calls = recorded("h100")
    first = next(call for call in calls if (call.call, call.args) == ("nvmlDeviceGetUUID", (GPU0,)))
    lost = NvmlCall(call="nvmlDeviceGetUUID", args=(GPU0,), error=15)
    calls = tuple(one for call in calls for one in ((call, lost) if call is first else (call,)))
    driver = driver_of(calls)
    assert list(published(driver)) == ["gpu-0", "gpu-1"]
    driver.rescan()
    assert list(published(driver)) == ["gpu-1"]
    assert health(driver)["gpu-0"].startswith("Unhealthy: the GPU does not answer: nvmlDeviceGetUUID: ")


def test_an_error_instead_of_an_event_makes_it_look_at_the_gpus_again() -> None:
    lost = [
        NvmlCall(call="nvmlDeviceGetUUID", args=(GPU0,), answer="GPU-0"),
        NvmlCall(call="nvmlDeviceGetUUID", args=(GPU0,), error=15),
    ]
    calls = [call for call in recorded("h100") if (call.call, call.args) != ("nvmlDeviceGetUUID", (GPU0,))]
    calls = [*lost, *with_events(calls, 15)]
    only = [call for call in calls if call.args[:1] != (GPU1,) and call.args != (1,)]
    gone = threading.Event()
    driver = driver_of([*(NvmlCall(call=c.call, answer=1) if c.call == "nvmlDeviceGetCount" else c for c in only)])
    driver.subscribe(lambda: gone.set() if not published(driver) else None)
    try:
        assert gone.wait(PATIENCE)
        assert unhealthy(driver) == {"gpu-0"}
    finally:
        driver.close()


def test_the_health_of_a_gpu_that_reports_no_events_is_unknown() -> None:
    calls = changed(recorded("h100"), "nvmlDeviceRegisterEvents", GPU0, 10, "nvmlEventSetCreate()", error=3)
    with watching(calls) as driver:
        assert health(driver)["gpu-0"].startswith("Unknown: the GPU reports no events: nvmlDeviceRegisterEvents")
        assert health(driver)["gpu-1"] == "Healthy"


def test_nothing_is_known_of_the_gpus_while_nvml_does_not_answer() -> None:
    calls = [*recorded("t4"), NvmlCall(call="nvmlDeviceGetCount", error=1)]
    driver = driver_of(calls)
    driver.rescan()
    assert published(driver) == {}
    assert health(driver)["gpu-0"].startswith("Unknown: NVML does not answer: nvmlDeviceGetCount")


def test_subscribers_are_told_of_trouble() -> None:
    told = threading.Event()
    driver = driver_of(with_events(recorded("t4"), event(XID, 79)))
    driver.subscribe(lambda: told.set() if unhealthy(driver) else None)
    try:
        assert told.wait(PATIENCE)
    finally:
        driver.close()


def test_the_listening_thread_ends_when_the_driver_is_closed() -> None:
    with watching(recorded("t4")):
        assert "nvml" in [thread.name for thread in threading.enumerate()]
    assert "nvml" not in [thread.name for thread in threading.enumerate()]
