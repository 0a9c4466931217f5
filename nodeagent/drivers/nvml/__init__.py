"""Publishes NVIDIA GPUs and their MIG devices, and gives containers what a CUDA program needs of them.

`binding` is the way to NVML, or to a recording of it; `gpus` reads and publishes them, `health` watches them, `edits`
makes what a container gets; `record` is a command that records a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeagent.drivers.nvml.binding import Library, NvmlBinding, Player, read_recording
from nodeagent.drivers.nvml.driver import NvmlDriver, NvmlSettings, read_settings
from nodeagent.drivers.nvml.edits import NvmlRoots

__all__ = ["NvmlDriver", "NvmlRoots", "NvmlSettings", "create", "read_settings"]


def create(node_name: str, settings: Mapping[str, Any]) -> NvmlDriver:
    """Raises: ValueError for settings that it does not understand, or where NVML is required and does not answer."""
    asked = read_settings(settings)
    driver = NvmlDriver(node_name, _binding(asked), asked, roots=NvmlRoots(driver=Path(asked.driver_root)))
    if asked.required and driver.unavailable:
        raise ValueError(
            f"NVML does not answer: {driver.unavailable}; load NVIDIA's driver first, or leave out `required` to wait "
            "for it with an empty pool"
        )
    return driver


def _binding(settings: NvmlSettings) -> NvmlBinding:
    """Raises: ValueError for a recording that cannot be read."""
    if not settings.recording:
        return Library()
    try:
        return Player(read_recording(Path(settings.recording)).calls)
    except OSError as error:
        raise ValueError(f"{error} - at `$.recording`") from error
