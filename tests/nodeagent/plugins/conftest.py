"""An agent with drivers behind sockets, all in the test's process."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.agent import Agent
from nodeagent.config import AgentConfig
from nodeagent.drivers.protocol import Driver
from nodeagent.plugins import host, protocol, registration, streams
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.objects import NODE, claim, pod
from tests.nodeagent.plugins.plugin import NAME, TIMEOUT, Plugin


def until(condition: Callable[[], Any]) -> None:
    """Wait for what nothing tells of."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@dataclass
class PluginNode:
    """A node on which agents and plugins come and go."""

    folder: Path
    api: FakeApi = field(default_factory=FakeApi)
    call_seconds: float = 10.0
    grace_seconds: float = 30.0
    taints_unhealthy: bool = False
    boot: str = "boot-1"
    agent: Agent | None = None
    _plugins: list[Plugin] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def plugin_dir(self) -> Path:
        return self.folder / "kubelet"

    @property
    def cdi_dir(self) -> Path:
        return self.folder / "cdi"

    def start(self, *drivers: Driver, ready: bool = True) -> Agent:
        """An agent; what the last one left on the disk is still there. ready: wait until it takes pods."""
        config = AgentConfig(
            server="http://api",
            token="t",
            node_name=NODE,
            state_dir=self.folder / "state",
            cdi_dir=self.cdi_dir,
            plugin_dir=self.plugin_dir,
            plugin_call_seconds=self.call_seconds,
            plugin_grace_seconds=self.grace_seconds,
            taint_unhealthy_plugins=self.taints_unhealthy,
            boot=self.boot,
        )
        self.agent = agent = Agent(config, drivers, transport=self.api)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=agent.run, args=(self._stop,))
        self._thread.start()
        assert not ready or agent.ready.wait(TIMEOUT)
        return agent

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(TIMEOUT)
            assert not self._thread.is_alive()
        self._thread = None

    def reboot(self, *, empties_cdi: bool = True) -> None:
        """No container is left, nor, as a rule, a CDI file. The agent is stopped."""
        self.stop()
        shutil.rmtree(self.folder / "state" / "containers")
        if empties_cdi:
            shutil.rmtree(self.cdi_dir)
        self.boot += "'"

    def plugin(self, name: str = NAME, **options: Any) -> Plugin:
        """Not started yet."""
        plugin = Plugin(self.plugin_dir, name, cdi_dir=self.cdi_dir, **options)
        self._plugins.append(plugin)
        return plugin

    def registered(self, name: str = NAME, **options: Any) -> Plugin:
        plugin = self.plugin(name, **options).start()
        plugin.wait_for(lambda: plugin.registered)
        return plugin

    def come(self, name: str = "p", *, device: str = "dev-0", driver: str = NAME) -> None:
        """A pod with a claim."""
        self.api.put("resourceclaims", claim(f"of-{name}", device, pods=(f"uid-{name}",), driver=driver))
        self.api.put("pods", pod(name, claims={"gpus": f"of-{name}"}))

    def eventually(self, condition: Callable[[], Any]) -> None:
        """Looked at after every change in the API."""
        with self.api.changed:
            assert self.api.changed.wait_for(condition, TIMEOUT)

    def is_ready(self, name: str = "p") -> bool:
        found = self.api.find("pods", name) or {"status": {}}
        return any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"].get("conditions", []))

    def runs(self, name: str = "p") -> None:
        self.eventually(lambda: self.is_ready(name))

    def ends(self, name: str = "p") -> None:
        self.eventually(lambda: self.api.find("pods", name) is None)

    def says(self, *parts: str, reason: str = "FailedPrepareDynamicResources") -> None:
        """An event with all of `parts` is written."""
        self.eventually(
            lambda: any(
                event["reason"] == reason and all(part in event["message"] for part in parts)
                for event in self.api.all("events")
            )
        )

    def close(self) -> None:
        self.stop()
        for plugin in self._plugins:
            if plugin.hold is not None:  # the interpreter ends once every call has
                plugin.hold.set()
            plugin.crash()


@pytest.fixture(autouse=True)
def _nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter polls, retries and disconnects."""
    monkeypatch.setattr(host, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(registration, "FIRST_DELAY", 0.02)
    monkeypatch.setattr(streams, "FIRST_DELAY", 0.02)
    monkeypatch.setattr(protocol, "_SECONDS_TO_UNSUBSCRIBE", 0.3)


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginNode]:
    plugin_node = PluginNode(tmp_path_factory.mktemp("n"))  # the path of a socket has room for 107 characters
    yield plugin_node
    plugin_node.close()
