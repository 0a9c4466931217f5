"""The parts of an agent that are made from its configuration alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import httpx

from nodeagent.client import Client
from nodeagent.config import AgentConfig
from nodeagent.crew import Crew
from nodeagent.disk import Disk
from nodeagent.drivers.metadata import telling
from nodeagent.drivers.protocol import Driver
from nodeagent.drivers.registry import DriverRegistry
from nodeagent.metrics import AgentMetrics
from nodeagent.work import AgentQueue, Key

if TYPE_CHECKING:
    from nodeagent.plugins.host import PluginHost


class Surroundings(NamedTuple):
    """Where an agent lives. clock: POSIX seconds. monotonic: seconds that nobody sets, for what lasts a while."""

    config: AgentConfig
    disk: Disk
    clock: Callable[[], float]
    monotonic: Callable[[], float]


def make_crew(config: AgentConfig, queue: AgentQueue, work: Callable[[Key], None]) -> Crew[Key]:
    return Crew(queue, work, size=config.workers, most=config.workers + config.pods, name=config.node_name)


def make_client(config: AgentConfig, *, transport: httpx.BaseTransport | None, metrics: AgentMetrics) -> Client:
    return Client(
        config.server,
        token=config.token,
        ca_file=config.ca_file,
        transport=transport,
        requested=metrics.requested,
    )


def make_registry(drivers: Sequence[Driver], around: Surroundings) -> DriverRegistry:
    config = around.config
    plugin_dir = config.state_dir / "plugins"
    return DriverRegistry(telling(drivers, plugin_dir=plugin_dir, cdi_dir=config.cdi_dir, disk=around.disk))


def make_plugins(
    around: Surroundings, registry: DriverRegistry, *, queue: AgentQueue, called: Callable[..., None]
) -> PluginHost | None:
    """None where no drivers behind sockets are sought."""
    config = around.config
    if config.plugin_dir is None:
        return None
    # Imported here: grpc is large, and agents without such drivers do without it.
    from nodeagent.plugins.host import PluginHost  # noqa: PLC0415
    from nodeagent.plugins.known import KnownDrivers  # noqa: PLC0415

    return PluginHost(
        config.plugin_dir,
        registry=registry,
        known=KnownDrivers(config.state_dir / "drivers.json", around.disk),
        call_seconds=config.plugin_call_seconds,
        grace_seconds=config.plugin_grace_seconds,
        away=lambda name: queue.add(Key("away", name)),
        called=called,
    )
