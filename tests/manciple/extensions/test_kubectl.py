"""kubectl with a kind that is defined while the server runs, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from manciple.extensions import cleanup
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.api.server import ApiServer

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "custom-resource.yaml"
DEFINITION, PLAN = EXAMPLE.read_text().split("---\n")


@pytest.fixture
def kubectl(api_server: ApiServer) -> Kubectl:
    return Kubectl(api_server.kubeconfig, find_kubectl())


def test_a_kind_is_defined_explained_used_and_taken_away(kubectl: Kubectl) -> None:
    assert "leaseplans.example.com created" in kubectl("apply", "-f", "-", stdin=DEFINITION)
    kubectl("wait", "--for=condition=Established", "crd/leaseplans.example.com")
    assert kubectl("apply", "-f", "-", stdin=PLAN) == "leaseplan.example.com/night created\n"
    assert "How many devices at a time." in kubectl("explain", "leaseplans.spec")
    assert kubectl("apply", "-f", "-", stdin=PLAN) == "leaseplan.example.com/night unchanged\n"
    edited = kubectl("apply", "-f", "-", stdin=PLAN.replace("replicas: 2", "replicas: 4"))
    assert edited == "leaseplan.example.com/night configured\n"
    head, row = kubectl("get", "lp").splitlines()
    assert (head.split(), row.split()[:3]) == (["NAME", "REPLICAS", "WINDOW", "AGE"], ["night", "4", "night"])
    refused = kubectl("apply", "-f", "-", stdin=PLAN.replace("replicas: 2", "replicas: 40"), check=False)
    assert "at night there are at most ten" in refused
    kubectl("scale", "leaseplan", "night", "--replicas=3")
    assert kubectl.json("get", "leaseplan", "night")["spec"] == {"replicas": 3, "window": "night"}
    kubectl("delete", "crd", "leaseplans.example.com", "--wait=false")
    while cleanup.sweep():
        pass
    assert "have a resource type" in kubectl("get", "leaseplans.example.com", check=False)
