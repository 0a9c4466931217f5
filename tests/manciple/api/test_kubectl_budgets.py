"""kubectl with disruption budgets: made, shown, and heeded by `kubectl drain`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from claims.controllers import disruption
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from inventory.kinds.registration import NODE
from manciple.store import objects
from tests.builders import make_node, make_pod, make_running
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.api.server import ApiServer

DRAIN = ("drain", "node-1", "--force", "--ignore-daemonsets", "--delete-emptydir-data")


@pytest.fixture
def kubectl(api_server: ApiServer) -> Kubectl:
    with objects.writing() as writer:
        writer.create(NODE, NODE.prepare_create(make_node("node-1")))
    return Kubectl(api_server.kubeconfig, find_kubectl())


def run(*names: str, node: str) -> None:
    for name in names:
        with objects.writing() as writer:
            made = writer.create(POD, POD.prepare_create(make_pod(name, node=node, meta={"labels": {"app": "web"}})))
            assert isinstance(made, Pod)
            writer.update(POD, make_running(made), subresource="status")


def count() -> None:
    disruption.sweep(datetime.now(UTC))


def test_budgets_are_made_shown_described_and_changed(kubectl: Kubectl) -> None:
    run("a", "b", "c", node="node-1")
    made = kubectl("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=50%")
    assert made == "poddisruptionbudget.policy/web created\n"
    assert kubectl("create", "pdb", "few", "--selector=app=few", "--max-unavailable=1") == (
        "poddisruptionbudget.policy/few created\n"
    )
    kubectl("patch", "pdb", "web", "-p", '{"spec": {"minAvailable": 2}}')
    count()
    head, few, web = kubectl("get", "pdb").splitlines()
    assert head.split("  ")[0] == "NAME"
    assert "MIN AVAILABLE   MAX UNAVAILABLE   ALLOWED DISRUPTIONS   AGE" in head
    assert (few.split()[:4], web.split()[:4]) == (["few", "N/A", "1", "0"], ["web", "2", "N/A", "1"])
    told = kubectl("describe", "pdb", "web")
    assert "Allowed disruptions: 1" in " ".join(told.split())
    assert "Desired: 2" in " ".join(told.split())
    refused = kubectl("patch", "pdb", "web", "--type=merge", "-p", '{"spec": {"maxUnavailable": 1}}', check=False)
    assert "minAvailable and maxUnavailable cannot be both set" in refused
    assert "minAvailable" in kubectl("explain", "pdb.spec")


def test_applying_another_selector_replaces_it(kubectl: Kubectl) -> None:
    text = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: web}}
"""
    assert kubectl("apply", "-f", "-", stdin=text) == "poddisruptionbudget.policy/web created\n"
    before = kubectl.json("get", "pdb", "web")["metadata"]["resourceVersion"]
    kubectl(
        "apply", "-f", "-", stdin=text
    )  # it always sends the selector, which it is to replace, and says "configured"
    assert kubectl.json("get", "pdb", "web")["metadata"]["resourceVersion"] == before
    kubectl("apply", "-f", "-", stdin=text.replace("app: web", "tier: front"))
    assert kubectl.json("get", "pdb", "web")["spec"]["selector"] == {"matchLabels": {"tier": "front"}}


def test_a_drain_is_refused_until_another_pod_is_ready_elsewhere(kubectl: Kubectl) -> None:
    run("a", node="node-1")
    kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=1")
    count()
    refused = kubectl(*DRAIN, "--timeout=1s", check=False)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused
    assert "node/node-1 drained" not in refused
    assert kubectl("get", "pod", "a", "-o", "name") == "pod/a\n"
    run("b", node="node-2")
    count()
    assert "evicting pod default/a" in kubectl(*DRAIN, "--grace-period=0", "--timeout=20s", check=False)
    gone = objects.get(POD, "default", "a")
    assert gone is None or gone.deleting
    assert kubectl("get", "pod", "b", "-o", "name") == "pod/b\n"
