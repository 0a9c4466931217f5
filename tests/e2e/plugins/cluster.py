"""A system for the plugin scenarios: `manage.py up` without nodes, and one agent as a process of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.api_client import Api, Document
from tests.e2e.processes import Process, Up, wait_for

NODE = "worker"
#: Seconds that a call to a driver may take, and that one may be away: short where a test waits for it.
CALL_SECONDS, GRACE_SECONDS = 8.0, 20.0
PODS, CLAIMS = "/api/v1/namespaces/{}/pods", "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
CLASSES, SLICES = "/apis/resource.k8s.io/v1/deviceclasses", "/apis/resource.k8s.io/v1/resourceslices"


@dataclass
class AgentProcess:
    """The node's agent: without drivers of its own, and impatient."""

    folder: Path
    kubeconfig: Path
    process: Process = field(init=False)

    @property
    def cdi(self) -> Path:
        return self.folder / "cdi"

    @property
    def plugins(self) -> Path:
        return self.folder / "p"

    def start(self, *, grace: float = GRACE_SECONDS) -> None:
        self.process = Process(
            [
                *(sys.executable, "-m", "nodeagent", "--node-name", NODE, "--kubeconfig", str(self.kubeconfig)),
                *("--state-dir", str(self.folder / "state"), "--cdi-dir", str(self.cdi)),
                *("--driver", "none", "--plugin-dir", str(self.plugins)),
                *("--plugin-call-seconds", str(CALL_SECONDS), "--plugin-grace-seconds", str(grace)),
            ]
        ).start()
        self.process.line("starting with drivers none")

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        assert self.process.stop() == 0, "\n".join(self.process.output)

    def prepared(self) -> list[str]:
        """The claims that the agent remembers, by file."""
        folder = self.folder / "state" / "claims"
        return sorted(path.name for path in folder.glob("*.json"))

    def containers(self, pod_uid: str) -> Document:
        """What the containers of a pod were started with, by name."""
        return dict(json.loads((self.folder / "state" / "containers" / f"{pod_uid}.json").read_text())["containers"])


@dataclass
class System:
    """The API with its scheduler, and the node."""

    up: Up
    api: Api
    agent: AgentProcess

    @property
    def drivers_kubeconfig(self) -> Path:
        """Not the node's: its agent may write no claim, and drivers report on their devices in `status.devices`."""
        return self.up.kubeconfig


def start_system(folder: Path) -> System:
    """Returns once the node is ready."""
    up = Up(home=folder / "home", nodes=0).start()
    api = Api(up.kubeconfig)
    agent = AgentProcess(folder / "node", up.bootstrap(NODE, api.server))
    for made in (agent.cdi, agent.plugins / "plugins_registry"):
        made.mkdir(parents=True)
    agent.start()
    system = System(up, api, agent)
    wait_for("the node to be ready", lambda: node_ready(api))
    return system


def node_ready(api: Api) -> bool:
    node = api.find(f"/api/v1/nodes/{NODE}")
    conditions = (node or {}).get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
