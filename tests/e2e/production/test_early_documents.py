"""Drivers with controllers of their own (KEP-3063), the drafts of KEP-4381 and of KEP-3063, on real workers and agents:
while processes are killed between any two steps, and over the gates' being turned off and on.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from claims.drafts.cdi.values import ResourceClaim
from manciple.wire import codec
from tests.claims.drafts.acme import AcmePlugin
from tests.e2e.api_client import Document, Hands
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Process, wait_for
from tests.e2e.production.installation import Installation
from tests.nodeagent.plugins.test_draft import DraftPlugin

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

ON = {"MANCIPLE_FEATURE_GATES": "DRAControlPlaneController=true,DRAStructuredParametersDraft=true,DRAClaimsDraft=true"}
NODE = "node-1"
MANIFESTS = Path(__file__).parents[1] / "manifests"
CONTROLLED, DRAFT = MANIFESTS / "driver-controllers.yaml", MANIFESTS / "cdi-draft.yaml"
STRUCTURED = ROOT / "docs" / "examples" / "structured-parameters-draft.yaml"
#: What the driver's administrator applies: a class, and what the controller may do.
DRIVER = ROOT / "manciple" / "processes" / "demo_accelerators.yaml"
EXAMPLE = "manciple.controller_kit.examples.network_accelerators"
V1ALPHA2 = "/apis/resource.k8s.io/v1alpha2"
ACCELERATORS = ("-n", "accelerators")
CLAIMS = f"{V1ALPHA2}/namespaces/accelerators/resourceclaims"
CONTEXTS = f"{V1ALPHA2}/namespaces/accelerators/podschedulingcontexts"
PODS = "/api/v1/namespaces/accelerators/pods"
#: Of all namespaces, those of the structured draft among them.
EVERY_CLAIM = "/apis/resource.k8s.io/v1/resourceclaims"
ACME_CLAIMS = "/apis/cdi.k8s.io/v1alpha1/namespaces/default/resourceclaims"


class Drivers:
    """What administrators run besides: the accelerators' controller and plugin as processes, and ACME's two parts."""

    def __init__(self, installation: Installation, kubectl: Kubectl, api: Hands, folder: Path) -> None:
        self.installation, self.kubectl, self.api, self.folder = installation, kubectl, api, folder
        self.cdi_dir = installation.home / "cdi" / NODE
        self._running: dict[str, Process] = {}
        self._acme = AcmePlugin(memory={NODE: 4})
        self._acme_node = DraftPlugin(folder, self.cdi_dir)

    @property
    def agent(self) -> list[str]:
        """The node's, with a folder where plugins meet it, and the driver of the cards in it."""
        drivers = ("--driver", "sim", "--driver", "tests.e2e.production.cards:Cards")
        return [*self.installation.agent(NODE), *drivers, "--plugin-dir", str(self.folder)]

    def register(self) -> None:
        """The accelerators' class, and an identity for their controller, as an administrator makes both."""
        self.kubectl("apply", "-f", str(DRIVER))
        self.kubectl("create", "serviceaccount", "controller", *ACCELERATORS)
        role, who = "--clusterrole=accelerators.example.com", "--serviceaccount=accelerators:controller"
        self.kubectl("create", "clusterrolebinding", "controller", role, who)
        document = yaml.safe_load((self.installation.home / "kubeconfig").read_text())
        document["users"][0]["user"] = {"token": self.kubectl("create", "token", "controller", *ACCELERATORS).strip()}
        (self.folder / "controller").write_text(yaml.safe_dump(document))

    def start_controller(self) -> None:
        command = ["-m", "manciple.controller_kit", f"{EXAMPLE}:Enclosure", "--kubeconfig", self.folder / "controller"]
        self._start("controller", *command)

    def start_plugins(self) -> None:
        sockets = ("--registrar-dir", self.folder / "plugins_registry", "--plugin-dir", self.folder / "plugins" / "a")
        who = ("--node-name", NODE, "--kubeconfig", self.installation.home / "nodes" / NODE / "kubeconfig")
        self._start("plugin", "-m", "nodeagent.serve", f"{EXAMPLE}:Fabric", *who, *sockets, "--cdi-dir", self.cdi_dir)
        self._acme_node.start()

    def _start(self, name: str, *words: Any) -> None:
        self._running[name] = Process([sys.executable, *map(str, words)]).start()

    def kill_controller(self) -> None:
        self._running.pop("controller").kill()

    def end(self) -> None:
        self._acme_node.stop()
        for process in self._running.values():
            process.kill()

    def acme_acts(self) -> None:
        """ACME's controller does what there is to do; who was faster is no error."""
        known = [codec.decode_value(ResourceClaim, one) for one in self.api.listed(ACME_CLAIMS)]
        for one in known:
            if (new := self._acme.answer(one, known)) is not None:
                below = "/status" if new.status != one.status else ""
                self._put(f"{ACME_CLAIMS}/{one.metadata.name}{below}", msgspec.json.decode(codec.encode(new)))

    def _put(self, path: str, body: Document) -> None:
        try:
            self.api.put(path, body)
        except AssertionError as error:
            if "the object has been modified" not in str(error):
                raise

    def until(self, what: str, condition: Callable[[], Any]) -> None:
        """Wait for it, while ACME's controller works. A failure tells how everything stands."""

        def met() -> Any:
            if self.api.find("/apis/cdi.k8s.io"):
                self.acme_acts()
            return condition()

        try:
            wait_for(what, met)
        except AssertionError as error:
            told = [self.kubectl("get", "pods,resourceclaims,events", "-A", check=False)]
            parts = {**self.installation.processes, **self._running}
            told += [f"{name}: {line}" for name in (NODE, *self._running) for line in parts[name].output[-20:]]
            raise AssertionError("\n".join([str(error), *told])) from None

    def files(self) -> list[str]:
        """Those of CDI on the node that belong to claims of these drivers."""
        return [path.name for path in self.cdi_dir.glob("*") if "gpu.example.com" not in path.name]


@pytest.fixture
def drivers(installation: Installation, kubectl: Kubectl, api: Hands) -> Iterator[Drivers]:
    """The gates are on, and off again at the end."""
    with tempfile.TemporaryDirectory() as folder:
        made = Drivers(installation, kubectl, api, Path(folder))
        plain = installation.processes[NODE].command
        installation.processes[NODE].command = made.agent
        try:
            installation.restart(**ON)
            made.register()
            yield made
        finally:
            made.end()
            installation.processes[NODE].command = plain
            installation.restart()


class Looks:
    """What there is, through the API."""

    def __init__(self, api: Hands) -> None:
        self.api = api

    def claims(self) -> dict[str, Document]:
        """By the pod that each is for; those of no pod by their own name."""
        found = {}
        for one in self.api.listed(CLAIMS):
            owners = one["metadata"].get("ownerReferences", [{"name": one["metadata"]["name"]}])
            found[owners[0]["name"]] = one
        return found

    def allocated(self) -> bool:
        return all(one.get("status", {}).get("allocation") for one in self.claims().values())

    def selected(self) -> bool:
        """Whether both contexts say a node. (The pod of the claim that is allocated at once has none.)"""
        return [one["spec"].get("selectedNode") for one in self.api.listed(CONTEXTS)] == [NODE, NODE]

    def node_of(self, pod: str) -> str:
        return str((self.api.find(f"{PODS}/{pod}") or {}).get("spec", {}).get("nodeName", ""))

    def phase(self, pod: str, namespace: str = "accelerators") -> str:
        found = self.api.find(f"/api/v1/namespaces/{namespace}/pods/{pod}") or {}
        return str(found.get("status", {}).get("phase", "gone"))

    def versions(self) -> set[str]:
        found = self.api.find("/apis/resource.k8s.io") or {}
        return {one["version"] for one in found["versions"]}


CONTROLLED_PODS = ("direct", "templated", "late")
RUNNING = {**dict.fromkeys(CONTROLLED_PODS, "accelerators"), "with-card": "default", "device-consumer": "default"}


def everything_runs(looks: Looks) -> bool:
    return {looks.phase(pod, namespace) for pod, namespace in RUNNING.items()} == {"Running"}


def run_with_kills(drivers: Drivers, looks: Looks) -> None:
    """Each step of the negotiation finds somebody dead that it needs."""
    installation, kubectl = drivers.installation, drivers.kubectl
    kubectl("apply", "-f", str(CONTROLLED))
    drivers.until("nodes to be selected, with no controller there", looks.selected)
    for name in ("worker-1", "worker-2"):
        installation.processes[name].kill()
    drivers.start_controller()
    drivers.until("the claims to be allocated, with no scheduler there", looks.allocated)
    drivers.kill_controller()
    installation.processes[NODE].kill()
    for name in ("worker-1", "worker-2"):
        installation.processes[name].start()
    drivers.until(
        "the pods to be bound, with no agent there",
        lambda: {looks.node_of(pod) for pod in CONTROLLED_PODS} == {NODE},
    )
    installation.processes[NODE].start()
    drivers.start_plugins()
    drivers.start_controller()


def run_the_drafts(drivers: Drivers, looks: Looks) -> None:
    text = STRUCTURED.read_text().replace("worker-1", NODE)
    drivers.kubectl("apply", "-f", "-", stdin=text, check=False)  # as documented: the CRD comes first
    drivers.kubectl("apply", "-f", "-", stdin=text)
    drivers.kubectl("apply", "-f", str(DRAFT))
    drivers.until("every pod to run", lambda: everything_runs(looks))


def assert_kept_and_said(drivers: Drivers, looks: Looks, held: dict[str, Document]) -> None:
    """The gates are off: nobody sees the documents' versions, everybody keeps what he has, and is told of it."""
    api, installation = drivers.api, drivers.installation
    assert "v1alpha2" not in looks.versions()
    assert api.find("/apis/cdi.k8s.io") is None
    assert api.find(CLAIMS) is None
    today = {one["metadata"]["uid"]: one for one in api.listed(CLAIMS.replace("v1alpha2", "v1"))}
    assert set(today) == {one["metadata"]["uid"] for one in held.values()}
    assert all("allocation" in one["status"] and one["status"]["reservedFor"] for one in today.values())

    def said(gate: str, claims: int) -> bool:
        lines = [line for name in ("worker-1", "worker-2") for line in installation.processes[name].output]
        return any(gate in line and f": {claims}. " in line for line in lines)

    drivers.until("a worker to say so", lambda: said("DRAControlPlaneController", 3))
    drivers.until("a worker to say so", lambda: said("DRAStructuredParametersDraft", 1))

    def events() -> list[Document]:
        found = api.listed("/api/v1/namespaces/default/events")
        return [
            one
            for one in found
            if (one["reason"], one["involvedObject"]["name"]) == ("FeatureGateOff", "device-consumer")
        ]

    drivers.until("the draft's pod to be told", events)
    assert everything_runs(looks)


@pytest.mark.long
def test_drivers_with_controllers_and_the_drafts_outlive_kills_and_gates_and_leak_nothing(
    drivers: Drivers, installation: Installation, kubectl: Kubectl, api: Hands
) -> None:
    looks = Looks(api)
    run_with_kills(drivers, looks)
    run_the_drafts(drivers, looks)
    held = looks.claims()
    assert set(held) == {"shared", "standing", "templated"}
    assert api.listed(CONTEXTS) == []
    installation.check_invariants()

    installation.restart()
    assert_kept_and_said(drivers, looks, held)
    kubectl("delete", "pod", "templated", *ACCELERATORS)
    waiting = CLAIMS.replace("v1alpha2", "v1") + f"/{held['templated']['metadata']['name']}"
    drivers.until("its claim to be deleted", lambda: (api.find(waiting) or {})["metadata"].get("deletionTimestamp"))
    installation.check_invariants()

    installation.restart(**ON)
    drivers.until("the controller to take back what it gave", lambda: set(looks.claims()) == {"shared", "standing"})
    for name, claim in looks.claims().items():
        assert claim["metadata"]["uid"] == held[name]["metadata"]["uid"]
    assert [looks.phase("direct"), looks.phase("device-consumer", "default")] == ["Running", "Running"]
    for manifest in (CONTROLLED, DRAFT):
        kubectl("delete", "-f", str(manifest), "--ignore-not-found", "--wait=false")
    text = STRUCTURED.read_text().replace("worker-1", NODE)
    kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=text)
    drivers.until(
        "everything to be given back",
        lambda: not (api.listed(EVERY_CLAIM) or api.listed(ACME_CLAIMS) or drivers.files()),
    )
    assert json.loads(kubectl("get", "resourceclaims", "-A", "-o", "json"))["items"] == []
    kubectl("delete", "-f", str(DRIVER))
    kubectl("delete", "clusterrolebinding", "controller")
