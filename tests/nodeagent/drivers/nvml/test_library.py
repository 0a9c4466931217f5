"""The way to the real library, with nvidia-ml-py's own types, and the recorder on top of it."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.nvml import NvmlDriver
from nodeagent.drivers.nvml.binding import GPU_IS_LOST, Library, Nvml, NvmlError, Player, read_recording
from nodeagent.drivers.nvml.gpus import read_system
from nodeagent.drivers.nvml.health import XID, EventSet
from nodeagent.drivers.nvml.record import record, write
from tests.nodeagent.objects import NODE

#: It has no types.
pynvml: Any = importlib.import_module("pynvml")

#: What a handle points at is NVML's own; here it is only an address.
GPU = ctypes.create_string_buffer(8)
EVENTS = ctypes.create_string_buffer(8)


def pointer(type_: Any, to: Any) -> Any:
    return ctypes.cast(to, type_)


def structure(type_: Any, **fields: Any) -> Any:
    value = type_()
    for name, content in fields.items():
        setattr(value, name, content)
    return value


def raising(code: int) -> Any:
    def call(*_: Any) -> None:
        raise pynvml.NVMLError(code)

    return call


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An NVML with one GPU, as nvidia-ml-py hands out its answers: pointers, structures, tuples, enumerations."""
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "550.54.15",
        "nvmlSystemGetCudaDriverVersion": lambda: 12040,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: pointer(pynvml.c_nvmlDevice_t, GPU),
        "nvmlDeviceGetMemoryInfo": lambda handle: structure(pynvml.c_nvmlMemory_t, total=85520809984, free=1, used=2),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMigMode": raising(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "nvmlDeviceGetMinorNumber": lambda handle: 0,
        "nvmlDeviceGetUUID": lambda handle: "GPU-0" if ctypes.addressof(handle.contents) else "",
        "nvmlDeviceGetName": lambda handle: "NVIDIA H100 PCIe",
        "nvmlDeviceGetBrand": lambda handle: pynvml.NVML_BRAND_NVIDIA,
        "nvmlDeviceGetArchitecture": lambda handle: pynvml.NVML_DEVICE_ARCH_HOPPER,
        "nvmlDeviceGetPciInfo": lambda handle: structure(pynvml.nvmlPciInfo_t, busId=b"00000000:1B:00.0"),
        "nvmlDeviceGetTotalEccErrors": lambda handle, type_, counter: 0,
        "nvmlEventSetCreate": lambda: pointer(pynvml.c_nvmlEventSet_t, EVENTS),
        "nvmlEventSetFree": lambda events: None,
        "nvmlDeviceGetSupportedEventTypes": lambda handle: 0x9F,
        "nvmlDeviceRegisterEvents": lambda handle, types, events: None,
        "nvmlEventSetWait_v2": lambda events, milliseconds: structure(
            pynvml.c_nvmlEventData_t,
            device=pointer(pynvml.c_nvmlDevice_t, GPU),
            eventType=XID,
            eventData=79,
            gpuInstanceId=0xFFFFFFFF,
            computeInstanceId=0xFFFFFFFF,
        ),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)


@pytest.mark.usefixtures("installed")
def test_the_library_is_read_through_nvidia_ml_py() -> None:
    (gpu,) = read_system(Nvml(Library())).gpus
    assert (gpu.uuid, gpu.product_name, gpu.architecture) == ("GPU-0", "NVIDIA H100 PCIe", "Hopper")
    assert (gpu.memory, gpu.compute_capability, gpu.bus_id) == (85520809984, "9.0", "0000:1b:00.0")
    assert gpu.mig_enabled is False


@pytest.mark.usefixtures("installed")
def test_an_event_names_the_gpu_that_it_is_about() -> None:
    nvml = Nvml(Library())
    events = EventSet(nvml, read_system(nvml).gpus, ignored=())
    event = events.wait(1)
    assert event is not None
    assert (event.uuid, event.trouble.value) == ("GPU-0", "79")


@pytest.mark.usefixtures("installed")
def test_what_is_recorded_on_a_machine_plays_as_that_machine(tmp_path: Path) -> None:
    file = tmp_path / "recording.json"
    file.write_bytes(write(record(Library(), seconds=1)))
    recording = read_recording(file)
    assert recording.description == "1 GPUs (NVIDIA H100 PCIe), driver 550.54.15, CUDA 12.4"
    played, real = NvmlDriver(NODE, Player(recording.calls)), NvmlDriver(NODE, Library())
    assert played.pools() == real.pools()
    assert [device.name for device in played.pools()[0].devices] == ["gpu-0"]


@pytest.mark.usefixtures("installed")
def test_an_error_of_nvml_keeps_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", raising(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(NvmlError, match="nvmlDeviceGetCount: GPU is lost") as caught:
        Library().call("nvmlDeviceGetCount")
    assert caught.value.code == GPU_IS_LOST


def test_an_answer_of_another_form_is_an_error_and_no_crash() -> None:
    class Odd:
        def call(self, function: str, *arguments: int | str) -> Any:
            return 7

    with pytest.raises(NvmlError, match="the answer 7 is of another form than documented"):
        Nvml(Odd()).text("nvmlDeviceGetName", "gpu")


def test_the_recorder_says_what_is_missing_on_a_machine_without_nvml() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        done = subprocess.run(
            [sys.executable, "-m", "nodeagent.drivers.nvml.record"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.startswith("NVML does not answer: nvmlInit: ")
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has NVML")
