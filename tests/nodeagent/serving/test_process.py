"""`python -m nodeagent.serve` as a process: killed, stopped, started anew; with a kubelet, and with our own agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from nodeagent import serve
from nodeagent.agent import Agent
from nodeagent.config import AgentConfig
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.objects import NODE, claim, pod
from tests.nodeagent.serving.http_api import listening
from tests.nodeagent.serving.kubelet import Kubelet

ROOT = Path(__file__).parents[3]
NAME = "scratch.example.com"
SECONDS = 60.0


@dataclass
class Machine:
    """A node's directories, with the driver of the documentation served there by a process."""

    folder: Path
    api: FakeApi
    url: str
    process: subprocess.Popen[bytes] | None = None
    kubelets: list[Kubelet] = field(default_factory=list)

    @property
    def registrar_dir(self) -> Path:
        return self.folder / "k" / "plugins_registry"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    @property
    def cdi_dir(self) -> Path:
        return self.folder / "cdi"

    def options(self) -> list[str]:
        (self.folder / "token").write_text("secret")
        (self.folder / "settings.yaml").write_text(f"{{root: {self.scratch}, slots: 2}}")
        return [
            *("scratch_driver:ScratchDriver", "--node-name", NODE, "--settings", str(self.folder / "settings.yaml")),
            *("--server", self.url, "--token-file", str(self.folder / "token")),
            *("--registrar-dir", str(self.registrar_dir), "--plugin-dir", str(self.folder / "k" / "plugins" / NAME)),
            *("--cdi-dir", str(self.cdi_dir)),
        ]

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nodeagent.serve", *self.options()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "docs" / "examples")},
        )

    def kubelet(self) -> Kubelet:
        """Waits until the driver is there."""
        self.kubelets.append(Kubelet(self.registrar_dir / f"{NAME}-reg.sock"))
        return self.kubelets[-1]

    def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(SECONDS)

    def close(self) -> None:
        for kubelet in self.kubelets:
            kubelet.close()
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait(SECONDS)

    def eventually(self, condition: Callable[[], Any]) -> None:
        with self.api.changed:
            assert self.api.changed.wait_for(condition, SECONDS)

    def slots(self) -> list[str]:
        """Every device that is published, as often as it is."""
        return [d["name"] for s in self.api.all("resourceslices") for d in s["spec"]["devices"]]


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    api = FakeApi()
    with listening(api) as url:
        made = Machine(tmp_path_factory.mktemp("n"), api, url)
        made.registrar_dir.mkdir(parents=True)
        made.scratch.mkdir()
        yield made
        made.close()


def test_a_driver_killed_between_prepare_and_unprepare_loses_nothing(machine: Machine) -> None:
    machine.api.put("nodes", {"metadata": {"name": NODE, "uid": "uid-node"}})
    machine.api.put("resourceclaims", claim("c", "slot-1", driver=NAME))
    machine.start()
    assert machine.kubelet().prepare("c")["claim-c"].error == ""
    place = machine.scratch / "slot-1" / "claim-c"
    assert place.is_dir()
    machine.eventually(lambda: machine.slots() == ["slot-0", "slot-1"])

    assert machine.end(signal.SIGKILL) == -signal.SIGKILL
    machine.api.delete("resourceclaims", "c")
    assert (machine.registrar_dir / f"{NAME}-reg.sock").exists()
    machine.start()

    assert machine.kubelet().unprepare("c") == {"claim-c": ""}
    assert not place.exists()
    assert list(machine.cdi_dir.iterdir()) == []
    assert machine.slots() == ["slot-0", "slot-1"]
    assert machine.end(signal.SIGTERM) == 0
    assert list(machine.registrar_dir.iterdir()) == []


def test_a_token_that_is_renewed_while_the_driver_runs_is_used(machine: Machine) -> None:
    """In a pod of Kubernetes the token of the start is refused after an hour."""
    machine.api.put("resourceclaims", claim("c", "slot-1", driver=NAME))
    machine.start()
    kubelet = machine.kubelet()
    asked: list[str] = []

    def hear(request: httpx.Request) -> None:
        if "resourceclaims" in str(request.url):
            asked.append(request.headers["Authorization"])

    machine.api.before = hear
    for token in ("secret", "renewed"):
        (machine.folder / "token").write_text(token)
        assert kubelet.prepare("c")["claim-c"].error == ""
    assert asked == ["Bearer secret", "Bearer renewed"]


def test_it_works_with_our_own_agent(machine: Machine) -> None:
    """They meet over sockets: a container gets directory, variable and metadata; then all is given back."""
    config = AgentConfig(
        server=machine.url,
        token="secret",
        node_name=NODE,
        state_dir=machine.folder / "state",
        cdi_dir=machine.cdi_dir,
        plugin_dir=machine.folder / "k",
    )
    agent, stop = Agent(config, []), threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        machine.start()
        machine.eventually(lambda: machine.slots() == ["slot-0", "slot-1"])
        machine.api.put("resourceclaims", claim("c", "slot-1", driver=NAME, pods=("uid-p",)))
        machine.api.put("pods", pod("p", claims={"gpus": "c"}))
        machine.eventually(lambda: (machine.api.find("pods", "p") or {})["status"]["phase"] == "Running")

        (run,) = agent.runtime.runs("uid-p").values()
        assert run.environment["SCRATCH_DIR"] == "/scratch"
        assert [device.partition("=")[0] for device in run.cdi_devices] == [f"k8s.{NAME}/claim", f"{NAME}/metadata"]

        machine.api.delete("pods", "p")
        machine.eventually(lambda: machine.api.find("pods", "p") is None)
        assert list(machine.cdi_dir.iterdir()) == []
        assert list(machine.scratch.glob("*/*")) == []
    finally:
        stop.set()
        thread.join(SECONDS)


MISTAKES: dict[str, tuple[Sequence[str], str]] = {
    "no way to the API": (("sim", "--node-name", "n"), "give --kubeconfig"),
    "no such driver": (("no.such:Driver", "--node-name", "n"), "driver no.such:Driver: No module named 'no'"),
    "a setting it does not know": (
        ("sim", "--node-name", "n", "--settings", "SETTINGS"),
        "driver sim: Object contains unknown field `colour`",
    ),
    "settings that are no map": (("sim", "--node-name", "n", "--settings", "LIST"), "must be a map of settings"),
    "no kubelet": (
        ("sim", "--node-name", "n", "--server", "http://api", "--token-file", "TOKEN", "--registrar-dir", "NOWHERE"),
        "NOWHERE",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_on_the_command_line_is_said(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, message = MISTAKES[case]
    (tmp_path / "SETTINGS").write_text("{colour: red}")
    (tmp_path / "LIST").write_text("[1]")
    (tmp_path / "TOKEN").write_text("secret")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    assert serve.main([*given, "--plugin-dir", str(tmp_path / "p")]) == 2

    assert message in capsys.readouterr().err
