"""A system for the plugin scenarios: `manage.py up` without nodes, and one agent as a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml

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
    #: more of the command line
    options: Sequence[str] = ()
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
                *self.options,
            ]
        ).start()
        self.process.line("drivers none")

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
    drivers_kubeconfig: Path


#: What the service account of drivers may do, as docs/how-to/drivers.md has it.
DRIVER_RULES = (
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["update", "patch"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/driver"],
        "verbs": ["associated-node:update", "associated-node:patch"],
    },
)
DRIVERS = "drivers"


def let_drivers_in(api: Api, admin: Path, folder: Path, *, node: str = NODE) -> Path:
    """The kubeconfig file of a service account whose token is bound to a pod on the node, as agents give it to pods."""
    roles, account = "/apis/rbac.authorization.k8s.io/v1", {"name": DRIVERS, "namespace": DRIVERS}
    api.made("/api/v1/namespaces", {"metadata": {"name": DRIVERS}})
    api.made(f"/api/v1/namespaces/{DRIVERS}/serviceaccounts", {"metadata": account})
    api.made(f"{roles}/clusterroles", {"metadata": {"name": DRIVERS}, "rules": DRIVER_RULES})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": DRIVERS}
    binding = {"metadata": {"name": DRIVERS}, "roleRef": role, "subjects": [{"kind": "ServiceAccount", **account}]}
    api.made(f"{roles}/clusterrolebindings", binding)
    spec = {"nodeName": node, "serviceAccountName": DRIVERS, "containers": [{"name": "driver", "image": "driver"}]}
    pod = api.made(PODS.format(DRIVERS), {"metadata": {"name": DRIVERS}, "spec": spec})
    bound_to = {"apiVersion": "v1", "kind": "Pod", "name": DRIVERS, "uid": pod["metadata"]["uid"]}
    asked = {"spec": {"boundObjectRef": bound_to, "expirationSeconds": 36000}}
    answer = api.made(f"/api/v1/namespaces/{DRIVERS}/serviceaccounts/{DRIVERS}/token", asked)
    document = yaml.safe_load(admin.read_text())
    document["users"][0]["user"] = {"token": answer["status"]["token"]}
    kubeconfig = folder / "drivers.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    return kubeconfig


def start_system(
    folder: Path,
    *,
    env: Mapping[str, str] = MappingProxyType({}),
    options: Sequence[str] = (),
    grace: float = GRACE_SECONDS,
) -> System:
    """env: more of the system's environment; options: of the agent. Returns once the node is ready."""
    gates = {"MANCIPLE_FEATURE_GATES": "DRAControlPlaneController=true"}
    up = Up(home=folder / "home", nodes=0, env={**gates, **env}).start()
    api = Api(up.kubeconfig)
    agent = AgentProcess(folder / "node", up.bootstrap(NODE, api.server), options)
    for made in (agent.cdi, agent.plugins / "plugins_registry"):
        made.mkdir(parents=True)
    agent.start(grace=grace)
    wait_for("the node to be ready", lambda: node_ready(api))
    return System(up, api, agent, let_drivers_in(api, up.kubeconfig, folder))


def node_ready(api: Api) -> bool:
    node = api.find(f"/api/v1/nodes/{NODE}")
    conditions = (node or {}).get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
