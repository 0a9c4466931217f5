"""GPU machines for tests: recorded answers of NVML, and the files that NVIDIA's driver has on such a machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from inventory.kinds.devices import Device
from nodeagent.drivers.attributes import plain
from nodeagent.drivers.nvml import NvmlDriver, NvmlRoots, read_settings
from nodeagent.drivers.nvml.binding import NvmlCall, Player, read_recording
from tests.nodeagent.objects import NODE

RECORDINGS = Path(__file__).parent / "recordings"
GPU0 = "nvmlDeviceGetHandleByIndex(0)"
MIB = 1 << 20

#: The files of a driver installation that matter here; libraries without a version are links.
VERSION = "535.104.05"
TOOLS = ("nvidia-smi", "nvidia-cuda-mps-control")


def recorded(name: str) -> tuple[NvmlCall, ...]:
    return read_recording(RECORDINGS / f"{name}.json").calls


def changed(calls: Sequence[NvmlCall], call: str, *args: int | str, **fields: Any) -> tuple[NvmlCall, ...]:
    """`calls` with another answer to one of them."""
    new = NvmlCall(call=call, args=args, **fields)
    assert any((old.call, old.args) == (call, args) for old in calls), f"{call}{args} is not in the recording"
    return tuple(new if (old.call, old.args) == (call, args) else old for old in calls)


def driver_of(calls: Sequence[NvmlCall], *, roots: NvmlRoots | None = None, **settings: Any) -> NvmlDriver:
    return NvmlDriver(NODE, Player(calls), read_settings(settings), roots=roots)


def published(driver: NvmlDriver) -> dict[str, Device]:
    return {device.name: device for device in driver.pools()[0].devices}


def facts(device: Device) -> dict[str, str]:
    return {name: plain(value) for name, value in device.attributes.items()}


def event(type_: int, data: int = 0, *, gpu: str = GPU0, gi: int = 0xFFFFFFFF, ci: int = 0xFFFFFFFF) -> dict[str, Any]:
    """What NVML reports."""
    return {"device": gpu, "eventType": type_, "eventData": data, "gpuInstanceId": gi, "computeInstanceId": ci}


def with_events(calls: Sequence[NvmlCall], *events: dict[str, Any] | int) -> tuple[NvmlCall, ...]:
    """`calls` with these events one after the other, then none. A number is an error."""
    waits = [call for call in calls if call.call == "nvmlEventSetWait_v2"]
    (quiet,) = waits
    new = [
        msgspec.structs.replace(quiet, error=one, answer=None)
        if isinstance(one, int)
        else msgspec.structs.replace(quiet, error=0, answer=one)
        for one in events
    ]
    return (*(call for call in calls if call is not quiet), *new, quiet)


class GpuFiles:
    """What the driver of NVIDIA has on a machine: /dev, /proc and the root under which it is installed."""

    def __init__(self, folder: Path, *, version: str = VERSION) -> None:
        self.roots = NvmlRoots(
            sys=folder / "sys", dev=folder / "dev", proc=folder / "proc", driver=folder / "run/nvidia/driver"
        )
        for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
            self._file(self.roots.dev / name)
        self.libraries = self.roots.driver / "usr/lib/x86_64-linux-gnu"
        for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
            self._file(self.libraries / f"{name}.so.{version}")
            (self.libraries / f"{name}.so.1").symlink_to(f"{name}.so.{version}")
        (self.libraries / "libcuda.so").symlink_to("libcuda.so.1")
        self._file(self.libraries / "libc.so.6")
        for tool in TOOLS:
            self._file(self.roots.driver / "usr/bin" / tool)

    def mig(self, gpu: int, instance: int, *compute: int, minor: int) -> None:
        """A GPU instance with compute instances; their capabilities have the numbers from `minor` on."""
        folder = self.roots.proc / f"driver/nvidia/capabilities/gpu{gpu}/mig/gi{instance}"
        for number, place in enumerate((folder, *(folder / f"ci{one}" for one in compute)), start=minor):
            self._file(place / "access", f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
            self._file(self.roots.dev / f"nvidia-caps/nvidia-cap{number}")

    def pci(self, address: str, root: str, numa_node: int) -> None:
        folder = self.roots.sys / "devices" / root / address
        self._file(folder / "numa_node", f"{numa_node}\n")
        link = self.roots.sys / "bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder, link.parent))

    @staticmethod
    def _file(path: Path, content: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
