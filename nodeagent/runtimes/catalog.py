"""The runtimes that `--runtime` knows, and how one is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from nodeagent.cdi.files import CdiRegistry
from nodeagent.config import AgentConfig
from nodeagent.disk import Disk
from nodeagent.runtimes import podman as podman_runtime
from nodeagent.runtimes.protocol import Runtime
from nodeagent.runtimes.simulated import SimulatedRuntime


class Surroundings(NamedTuple):
    """What a runtime is made of. `clock`: POSIX seconds."""

    config: AgentConfig
    disk: Disk
    clock: Callable[[], float]


def simulated(around: Surroundings) -> Runtime:
    config = around.config
    others = [folder for folder in config.more_cdi_dirs if folder.resolve() != config.cdi_dir.resolve()]
    registry = CdiRegistry([*others, config.cdi_dir])
    return SimulatedRuntime(config.state_dir / "containers", registry, disk=around.disk, clock=around.clock)


def podman(around: Surroundings) -> Runtime:
    return podman_runtime.create(around.config, disk=around.disk, clock=around.clock)


#: Name -> how it is made; raises ValueError saying what the machine lacks.
RUNTIMES: dict[str, Callable[[Surroundings], Runtime]] = {"podman": podman, "simulated": simulated}


def create_runtime(
    name: str, config: AgentConfig, *, disk: Disk | None = None, clock: Callable[[], float] = time.time
) -> Runtime:
    """Raises: ValueError saying what the machine lacks."""
    return RUNTIMES[name](Surroundings(config, disk or Disk(), clock))
