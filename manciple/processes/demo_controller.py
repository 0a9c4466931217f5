"""The demo of a driver with a controller (docs/reference/classic.md): accelerators that are attached over the network.

Its controller runs in a thread of `manage.py up`, over TLS like any other client and with rights of its own; its plugin
in the agents of the simulated nodes.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from manciple.api.kubeconfig import Server
from manciple.controller_kit.controller import DriverController
from manciple.controller_kit.examples import network_accelerators
from manciple.processes import accounts
from manciple.processes.home import Home
from nodeagent.api.client import Client
from nodeagent.config import read_kubeconfig

#: Its objects, and the namespace by which they are known to be made.
OBJECTS: Final = Path(__file__).with_name("demo_accelerators.yaml")
NAMESPACE: Final = "accelerators"
#: Seconds that stopping waits for it.
STOP_SECONDS: Final = 10.0


class DemoController:
    """Runs from `start` until `stopping` is set."""

    def __init__(self, home: Home, server: Server, *, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._thread: threading.Thread | None = None
        self._kubeconfig = home.path / "controllers" / network_accelerators.NAME / "kubeconfig"
        accounts.write_kubeconfig(
            self._kubeconfig, server=server, name=network_accelerators.NAME, groups=("system:authenticated",)
        )

    def start(self) -> None:
        """Once the API listens."""
        access = read_kubeconfig(self._kubeconfig, ca_target=self._kubeconfig.with_name("ca.crt"))
        client = Client(
            access.server, token=access.token, ca_file=access.ca_file, user_agent="manciple-demo-controller"
        )
        controller = DriverController(network_accelerators.Enclosure(client), client)

        def run() -> None:
            try:
                controller.run(self._stopping)
            finally:
                client.close()

        self._thread = threading.Thread(target=run, name=network_accelerators.NAME, daemon=True)
        self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
