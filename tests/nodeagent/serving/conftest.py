"""A driver object served on sockets, and a kubelet that calls it, in the test's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.api.client import Client
from nodeagent.drivers.protocol import Driver
from nodeagent.serving.plugin import PluginConfig, ServedPlugin
from nodeagent.storage import Disk
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.machine import RecordingDriver
from tests.nodeagent.objects import NODE, Document, claim
from tests.nodeagent.serving.kubelet import Kubelet

SECONDS = 60.0


@dataclass
class Node:
    """The directories of one node, its API, and whatever is served there."""

    folder: Path
    api: FakeApi = field(default_factory=FakeApi)
    driver: RecordingDriver = field(default_factory=RecordingDriver)
    plugins: list[ServedPlugin] = field(default_factory=list)
    kubelets: list[Kubelet] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registrar_dir.mkdir()
        self.api.put("nodes", {"metadata": {"name": NODE, "uid": "uid-node"}})

    @property
    def registrar_dir(self) -> Path:
        return self.folder / "r"

    @property
    def plugin_dir(self) -> Path:
        return self.folder / "p"

    @property
    def cdi_dir(self) -> Path:
        return self.folder / "cdi"

    def plugin(self, driver: Driver | None = None, *, disk: Disk | None = None, **config: Any) -> ServedPlugin:
        """Not started."""
        made = PluginConfig(
            node_name=NODE,
            registrar_dir=self.registrar_dir,
            plugin_dir=self.plugin_dir,
            cdi_dir=self.cdi_dir,
            **{"settle_seconds": 0.05, **config},
        )
        client = Client("http://api", token="secret", transport=self.api)
        self.plugins.append(ServedPlugin(driver or self.driver, made, client, disk=disk))
        return self.plugins[-1]

    def serve(self, driver: Driver | None = None, **options: Any) -> Kubelet:
        """Start it, and connect to it."""
        plugin = self.plugin(driver, **options)
        plugin.start()
        return self.kubelet(plugin)

    def kubelet(self, plugin: ServedPlugin) -> Kubelet:
        self.kubelets.append(Kubelet(plugin.endpoints.registration))
        return self.kubelets[-1]

    def stop(self) -> None:
        """What runs; the API and the directories stay."""
        for kubelet in self.kubelets:
            kubelet.close()
        for plugin in self.plugins:
            plugin.stop()
        self.kubelets.clear()
        self.plugins.clear()

    def claim(self, name: str, *devices: str, **fields: Any) -> Document:
        return self.api.put("resourceclaims", claim(name, *devices, **fields))

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cdi_dir.iterdir()) if self.cdi_dir.is_dir() else []

    def eventually(self, condition: Callable[[], Any]) -> None:
        """Looked at after every change in the API."""
        with self.api.changed:
            assert self.api.changed.wait_for(condition, SECONDS)


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("n"))  # the path of a socket has room for 107 characters
    yield made
    made.stop()
