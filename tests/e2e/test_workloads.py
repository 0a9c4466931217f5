"""Workloads with kubectl against `manage.py up`, which is killed in the middle of what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Up, wait_for

pytestmark = pytest.mark.e2e

KEP_5004 = ROOT / "tests" / "e2e" / "manifests" / "deployment.yaml"


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(home=tmp_path_factory.mktemp("home"), nodes=2).start()
    yield up
    assert up.process.stop() == 0, "\n".join(up.process.output)


@pytest.fixture
def up(lasting: Up) -> Up:
    return lasting if lasting.process.running else lasting.start()


@pytest.fixture
def kubectl(up: Up, kubectl_program: str) -> Kubectl:
    return Kubectl(up.kubeconfig, kubectl_program)


def running(kubectl: Kubectl, labels: str) -> list[dict[str, Any]]:
    """The pods with these labels that are not being deleted."""
    pods = kubectl.json("get", "pods", "-l", labels)["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def images(kubectl: Kubectl, labels: str) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in running(kubectl, labels)]


def nothing_is_left(kubectl: Kubectl) -> bool:
    return not kubectl(
        "get", "deployments,daemonsets,statefulsets,replicasets,jobs,pods,resourceclaims", "-o", "name"
    ).strip()


def daemon_set(image: str) -> str:
    container = {"name": "main", "image": image}
    template = {"metadata": {"labels": {"app": "daemon"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": "daemon"}}, "template": template}
    return json.dumps({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "daemon"}, "spec": spec})


def test_the_deployment_of_kep_5004_is_installed_without_a_change(kubectl: Kubectl, up: Up) -> None:
    kubectl("apply", "-f", str(KEP_5004))
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/demo", "--timeout=60s")
    (pod,) = running(kubectl, "app=demo")
    assert pod["status"]["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"] == "example.com/gpu"
    assert "1/1" in kubectl("get", "deployment", "demo")

    kubectl("set", "image", "deployment/demo", "demo=nvidia/cuda:9.0-runtime")
    kubectl("rollout", "status", "deployment/demo", "--timeout=60s")
    assert images(kubectl, "app=demo") == ["nvidia/cuda:9.0-runtime"]
    assert "2 " in kubectl("rollout", "history", "deployment/demo")
    kubectl("rollout", "undo", "deployment/demo")
    kubectl("rollout", "status", "deployment/demo", "--timeout=60s")
    assert images(kubectl, "app=demo") == ["nvidia/cuda:8.0-runtime"]

    kubectl("scale", "deployment/demo", "--replicas=3")
    kubectl("rollout", "status", "deployment/demo", "--timeout=60s")
    assert len(running(kubectl, "app=demo")) == 3
    assert "demo-" in kubectl("describe", "deployment", "demo")
    up.check_invariants()
    kubectl("delete", "deployment", "demo")
    wait_for("nothing to be left", lambda: nothing_is_left(kubectl))
    up.check_invariants()


def test_a_job_of_kubectl_create_gets_devices_as_documented(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(KEP_5004))  # with a class that serves the resource
    kubectl("delete", "deployment", "demo")
    wait_for("no pod to have a device", lambda: nothing_is_left(kubectl))
    plain = kubectl("create", "job", "train", "--image=example.com/train", "--dry-run=client", "-o", "yaml")
    limits = ("--limits=example.com/gpu=1", "-o", "yaml")
    kubectl("create", "-f", "-", stdin=kubectl("set", "resources", "--local", "-f", "-", *limits, stdin=plain))

    def devices() -> int:
        claims = kubectl.json("get", "resourceclaims")["items"]
        return sum(len(one["status"]["allocation"]["devices"]["results"]) for one in claims if "status" in one)

    wait_for("its device", lambda: devices() == 1)
    kubectl("delete", "job", "train")
    wait_for("nothing to be left", lambda: nothing_is_left(kubectl))


def test_killed_in_the_middle_of_an_update_it_ends_with_the_pods_it_wants(kubectl: Kubectl, up: Up) -> None:
    kubectl("apply", "-f", str(KEP_5004))
    kubectl("scale", "deployment/demo", "--replicas=6")
    wait_for("the first pods", lambda: len(running(kubectl, "app=demo")) >= 1)
    up.process.kill()
    kubectl = Kubectl(up.start().kubeconfig, kubectl.program)
    kubectl("rollout", "status", "deployment/demo", "--timeout=90s")
    assert len(running(kubectl, "app=demo")) == 6
    kubectl("set", "image", "deployment/demo", "demo=other:1")
    wait_for("the update to begin", lambda: "other:1" in images(kubectl, "app=demo"))
    up.process.kill()
    kubectl = Kubectl(up.start().kubeconfig, kubectl.program)
    kubectl("rollout", "status", "deployment/demo", "--timeout=90s")
    wait_for("the old pods to go", lambda: images(kubectl, "app=demo") == ["other:1"] * 6)
    up.check_invariants()
    kubectl("delete", "deployment", "demo")
    wait_for("nothing to be left", lambda: nothing_is_left(kubectl))


def test_a_daemon_set_runs_on_every_node_and_is_updated(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=daemon_set("driver:1"))
    kubectl("rollout", "status", "daemonset/daemon", "--timeout=60s")
    nodes = {one["metadata"]["name"] for one in kubectl.json("get", "nodes")["items"]}
    assert {pod["spec"]["nodeName"] for pod in running(kubectl, "app=daemon")} == nodes
    kubectl("apply", "-f", "-", stdin=daemon_set("driver:2"))
    kubectl("rollout", "status", "daemonset/daemon", "--timeout=60s")
    wait_for("the old pods to go", lambda: images(kubectl, "app=daemon") == ["driver:2"] * len(nodes))
    kubectl("rollout", "undo", "daemonset/daemon")
    kubectl("rollout", "status", "daemonset/daemon", "--timeout=60s")
    wait_for("the first template", lambda: images(kubectl, "app=daemon") == ["driver:1"] * len(nodes))
    kubectl("delete", "daemonset", "daemon")
    wait_for("nothing to be left", lambda: nothing_is_left(kubectl))


def stateful_set(image: str) -> str:
    container = {"name": "main", "image": image}
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template}
    return json.dumps({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec})


def versions(kubectl: Kubectl) -> dict[str, str]:
    """Name -> image of the StatefulSet's pods."""
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in running(kubectl, "app=db")}


def test_a_stateful_set_keeps_its_names_through_an_update_that_is_killed_in_the_middle(
    kubectl: Kubectl, up: Up
) -> None:
    kubectl("apply", "-f", "-", stdin=stateful_set("db:1"))
    wait_for("the second pod", lambda: "db-1" in versions(kubectl))
    up.process.kill()
    kubectl = Kubectl(up.start().kubeconfig, kubectl.program)
    kubectl("rollout", "status", "statefulset/db", "--timeout=90s")
    assert versions(kubectl) == dict.fromkeys(("db-0", "db-1", "db-2"), "db:1")
    assert "3/3" in kubectl("get", "statefulset", "db")

    kubectl("apply", "-f", "-", stdin=stateful_set("db:2"))
    wait_for("the update to begin", lambda: versions(kubectl).get("db-2") == "db:2")
    up.process.kill()
    kubectl = Kubectl(up.start().kubeconfig, kubectl.program)
    kubectl("rollout", "status", "statefulset/db", "--timeout=90s")
    assert versions(kubectl) == dict.fromkeys(("db-0", "db-1", "db-2"), "db:2")
    kubectl("rollout", "undo", "statefulset/db")
    kubectl("rollout", "status", "statefulset/db", "--timeout=90s")
    assert versions(kubectl) == dict.fromkeys(("db-0", "db-1", "db-2"), "db:1")

    kubectl("scale", "statefulset/db", "--replicas=1")
    wait_for("the others to go", lambda: set(versions(kubectl)) == {"db-0"})
    up.check_invariants()
    kubectl("delete", "statefulset", "db")
    wait_for("nothing to be left", lambda: nothing_is_left(kubectl))
