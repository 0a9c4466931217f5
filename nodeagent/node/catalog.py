"""The drivers and runtimes that the command line and the drivers file know by a short name, and how one is made.

A drivers file is YAML:

    drivers:
    - driver: sim              # a name of `MODULES`, or `module:Class` of your own
      settings: {gpus: 4}      # what that driver understands
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
import yaml

from manciple.wire.base import Value
from nodeagent.config import AgentConfig
from nodeagent.drivers.protocol import Driver
from nodeagent.runtimes.protocol import Runtime
from nodeagent.storage import Disk

#: Short name -> module. Each has `create(node_name, settings) -> Driver`, which raises ValueError for settings that
#: it does not understand. A module is imported when its driver is asked for: some need a library or a device.
MODULES = {
    "sim": "nodeagent.drivers.simulated",
    "sim-partitionable": "nodeagent.drivers.partitionable",
    "sim-nic": "nodeagent.drivers.nic",
    "sysfs": "nodeagent.drivers.sysfs",
    "nvml": "nodeagent.drivers.nvml",
}
#: The same of runtimes: each has `create(config, disk, clock) -> Runtime`, which raises ValueError saying what the
#: machine lacks.
RUNTIMES = {"podman": "nodeagent.runtimes.podman", "simulated": "nodeagent.runtimes.simulated"}


@runtime_checkable
class Closeable(Protocol):
    """A driver that watches its devices."""

    def close(self) -> None:
        """Stop watching; on return its threads have ended."""


class DriverEntry(Value, forbid_unknown_fields=True):
    """One driver to run. settings: as the driver understands them."""

    driver: str
    settings: dict[str, Any] = {}


class DriversFile(Value, forbid_unknown_fields=True):
    """What a drivers file says."""

    drivers: tuple[DriverEntry, ...]


def read_drivers_file(path: Path) -> tuple[DriverEntry, ...]:
    """Raises: ValueError saying what to correct; OSError."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()), DriversFile).drivers
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error


def create_driver(entry: DriverEntry, *, node_name: str) -> Driver:
    """Raises: ValueError naming the driver and what is wrong with it."""
    try:
        if ":" in entry.driver:
            return _of_author(entry.driver, node_name, entry.settings)
        return _shipped(entry.driver, node_name, entry.settings)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"driver {entry.driver}: {error}") from error


def create_drivers(entries: Sequence[DriverEntry], *, node_name: str) -> list[Driver]:
    """Raises: ValueError for one that cannot be made, or for two of the same name."""
    drivers = [create_driver(entry, node_name=node_name) for entry in entries]
    names = [driver.name for driver in drivers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two drivers are called {twice[0]}; give one of them another name in its settings")
    return drivers


def close_drivers(drivers: Iterable[Driver]) -> None:
    """Let those drivers go of what they hold that have something to let go of: threads, a library."""
    for driver in drivers:
        if isinstance(driver, Closeable):
            driver.close()


def _shipped(name: str, node_name: str, settings: Mapping[str, Any]) -> Driver:
    if name not in MODULES:
        raise ValueError(f"is not known; known are {', '.join(sorted(MODULES))}, or module:Class of your own")
    return cast("Driver", importlib.import_module(MODULES[name]).create(node_name, settings))


def _of_author(path: str, node_name: str, settings: dict[str, Any]) -> Driver:
    """`module:Class`, called with the settings as keyword arguments, and with `node_name` where it takes one."""
    module, _, name = path.partition(":")
    made_by = getattr(importlib.import_module(module), name)
    known = {"node_name": node_name} if "node_name" in inspect.signature(made_by).parameters else {}
    return cast("Driver", made_by(**known | settings))


def create_runtime(
    name: str, config: AgentConfig, *, disk: Disk | None = None, clock: Callable[[], float] = time.time
) -> Runtime:
    """Raises: ValueError saying what the machine lacks."""
    return cast("Runtime", importlib.import_module(RUNTIMES[name]).create(config, disk=disk or Disk(), clock=clock))
