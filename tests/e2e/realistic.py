"""A laboratory's set of workloads, installed by kubectl from kustomizations (manifests/laboratory), in whatever mode.

A Deployment with a claim template, a DaemonSet of a driver, an Indexed Job of 50 pods with a GPU each on the 8 GPUs of
one node, ConfigMaps and Secrets that these use, and a custom resource. What is killed, and when, is the test's.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import pod_history
from tests.e2e.api_client import Document
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, wait_for

SOURCE = ROOT / "tests" / "e2e" / "manifests" / "laboratory"
NAMESPACE = "laboratory"
#: The pods of its Job.
TRIALS = 50
#: What must be gone once all is deleted; of Events nobody waits for the end.
KINDS = (
    "deployments,replicasets,daemonsets,jobs,controllerrevisions,pods,resourceclaims,resourceclaimtemplates,"
    "configmaps,secrets,services,endpointslices"
)


@dataclass
class Laboratory:
    """kubectl: of whoever serves at the moment. place: of the kustomizations. since: the newest revision before
    anything was made.
    """

    kubectl: Kubectl
    place: Path = SOURCE
    trials: int = TRIALS
    since: str = ""

    @classmethod
    def shorter(cls, kubectl: Kubectl, trials: int, folder: Path) -> Laboratory:
        """With so many trials; a copy of its manifests is in `folder`."""
        place = Path(shutil.copytree(SOURCE, folder / "laboratory"))
        job = place / "base" / "trials.yaml"
        job.write_text(job.read_text().replace(f": {TRIALS}\n", f": {trials}\n"))
        return cls(kubectl, place, trials)

    def install(self, gpu_node: str) -> None:
        self.kubectl("label", "node", gpu_node, "laboratory=gpu")
        self.kubectl("apply", "-k", str(self.place / "crds"))
        self.kubectl("wait", "--for=condition=Established", "crd/experiments.lab.example.com")
        self.since = pod_history.revision_of(self.kubectl.api)
        self.kubectl("apply", "-k", str(self.place / "base"))

    def update(self) -> None:
        """New images and settings, and one server more."""
        self.kubectl("apply", "-k", str(self.place / "next"))

    def remove(self) -> None:
        self.kubectl("delete", "-k", str(self.place / "next"), "--wait=false")
        self.kubectl("delete", "-k", str(self.place / "crds"), "--wait=false")

    # What there is ----------------------------------------------------------------------------------------------------

    def pods(self, app: str) -> list[Document]:
        """Those that are not being deleted."""
        path = pod_history.PLACES["Pod"].format(NAMESPACE)
        found = self.kubectl.api.listed(path, labelSelector=f"app={app}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def images(self, app: str) -> Counter[str]:
        return Counter(str(pod["spec"]["containers"][0]["image"]).rpartition("/")[2] for pod in self.pods(app))

    def succeeded(self) -> int:
        job = self.kubectl.api.find(pod_history.PLACES["Job"].format(NAMESPACE) + "/trials")
        return int((job or {}).get("status", {}).get("succeeded", 0))

    def wait_for_trials(self, number: int) -> None:
        wait_for(f"{number} trials", lambda: self.succeeded() >= number)

    # What must be so --------------------------------------------------------------------------------------------------

    def check_rolled_out(self, version: int, *, servers: int, nodes: int) -> None:
        for workload in ("deployment/server", "daemonset/driver"):
            told = self.kubectl("rollout", "status", workload, "-n", NAMESPACE, "--timeout=120s")
            assert "successfully rolled out" in told
        wait_for("the other servers to go", lambda: self.images("server") == {f"server:{version}": servers})
        wait_for("the other drivers to go", lambda: self.images("driver") == {f"driver:{version}": nodes})
        mounted = {pod["spec"]["volumes"][0]["configMap"]["name"] for pod in self.pods("server")}
        assert len(mounted) == 1
        assert self.kubectl("get", "configmap", "-n", NAMESPACE, *mounted, "-o", "jsonpath={.data.MODE}")
        assert "first" in self.kubectl("get", "experiments.lab.example.com", "-n", NAMESPACE)

    def check_trials(self) -> None:
        """Each index has succeeded once, in the one pod that was made for it."""
        self.kubectl("wait", "-n", NAMESPACE, "job/trials", "--for=condition=Complete")
        status = self.kubectl.json("get", "job", "trials", "-n", NAMESPACE)["status"]
        assert (status["succeeded"], status["completedIndexes"]) == (self.trials, f"0-{self.trials - 1}")
        assert (status.get("failed", 0), status.get("active", 0)) == (0, 0)
        indexes = Counter(pod["metadata"]["annotations"][pod_history.INDEX] for pod in self.pods("trials"))
        assert indexes == dict.fromkeys(map(str, range(self.trials)), 1)

    def check_history(self) -> None:
        """No pod was ever created that was one too many."""
        events = pod_history.events_since(self.kubectl.api, self.since, NAMESPACE)
        assert sum(1 for _ in pod_history.creations(events)) > self.trials
        assert pod_history.wrongly_created(events) == []

    def check_nothing_is_left(self) -> None:
        wait_for("the namespace to go", lambda: self.kubectl.api.find(f"/api/v1/namespaces/{NAMESPACE}") is None)
        assert not self.kubectl("get", KINDS, "-n", NAMESPACE, "-o", "name").strip()
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/experiments.lab.example.com"
        wait_for("the kind to go", lambda: self.kubectl.api.find(crds) is None)
