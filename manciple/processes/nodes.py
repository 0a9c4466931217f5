"""The simulated nodes of `manage.py up`: an agent each, in a thread, over TLS like any other client."""

from __future__ import annotations

import threading

from manciple.processes.accounts import Server
from manciple.processes.home import Home
from nodeagent.agent import Agent
from nodeagent.config import AgentConfig, ListenAddress
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.kubeconfig import read_kubeconfig

#: What a simulated node offers besides its GPUs: a server's worth, whatever this machine has.
CPU, MEMORY = "32", "256Gi"
#: Seconds that stopping waits for the agents.
STOP_SECONDS = 10.0


class Nodes:
    """`names` with their agents. `start()` once the API listens; they end when `stopping` is set."""

    def __init__(self, home: Home, *, server: Server, names: list[str], stopping: threading.Event) -> None:
        self.names = names
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
        return Agent(config, [SimulatedDriver(name)])
