"""The simulated nodes of `manage.py up`: an agent each, in a thread, over TLS like any other client."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from manciple.processes.accounts import Server
from manciple.processes.home import Home
from nodeagent.agent import Agent
from nodeagent.catalog import DriverEntry, create_drivers
from nodeagent.config import AgentConfig, ListenAddress, read_kubeconfig

#: What a simulated node offers besides its GPUs: a server's worth, whatever this machine has.
CPU, MEMORY = "32", "256Gi"
#: The drivers of a node with plain GPUs; of one with a GPU in partitions and with interfaces that claims share.
GPU_DRIVERS = (DriverEntry(driver="sim"),)
MIXED_DRIVERS = (
    DriverEntry(driver="sim-partitionable", settings={"gpus": 1}),
    DriverEntry(driver="sim-nic", settings={"nics": 2}),
)
#: Seconds that stopping waits for the agents.
STOP_SECONDS = 10.0


def plan(*, nodes: int, mixed_nodes: int) -> dict[str, Sequence[DriverEntry]]:
    """The simulated nodes: their names, in order, and drivers."""
    plain: dict[str, Sequence[DriverEntry]] = {f"node-{number}": GPU_DRIVERS for number in range(1, nodes + 1)}
    return plain | {f"mixed-{number}": MIXED_DRIVERS for number in range(1, mixed_nodes + 1)}


class Nodes:
    """The nodes of `drivers` with their agents. `start()` once the API listens; they end when `stopping` is set.

    drivers: of each node, by its name.
    """

    def __init__(
        self,
        home: Home,
        *,
        server: Server,
        drivers: Mapping[str, Sequence[DriverEntry]],
        stopping: threading.Event,
    ) -> None:
        self.names = list(drivers)
        self._drivers = drivers
        self._home = home
        self._server = server
        self._stopping = stopping
        self._agents: list[Agent] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._agents = [self._agent(name) for name in self.names]
        self._threads = [
            threading.Thread(target=agent.run, args=(self._stopping,), name=agent.config.node_name, daemon=True)
            for agent in self._agents
        ]
        for thread in self._threads:
            thread.start()

    def started(self) -> int:
        """How many agents take pods by now."""
        return sum(agent.ready.is_set() for agent in self._agents)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _agent(self, name: str) -> Agent:
        state = self._home.node_state(name)
        access = read_kubeconfig(self._home.node_kubeconfig(name), ca_target=state / "ca.crt")
        config = AgentConfig(
            server=access.server,
            token=access.token,
            ca_file=access.ca_file,
            node_name=name,
            state_dir=state,
            cdi_dir=self._home.cdi / name,
            listen=ListenAddress("127.0.0.1", 0),
            cpu=CPU,
            memory=MEMORY,
        )
        return Agent(config, create_drivers(self._drivers[name], node_name=name))
