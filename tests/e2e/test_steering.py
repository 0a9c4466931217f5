"""`manciple mirror --steer` beside a second Manciple, whose scheduler tries a nominated node first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.api_client import Api, Document
from tests.e2e.processes import Process, Up, wait_for
from tests.e2e.test_mirror import Mirror

NAMESPACE = "steered"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates"
LABEL, GATE = "manciple.dev/steer", "manciple.dev/steering"


@dataclass
class SteeringMirror(Mirror):
    def process(self) -> Process:
        command = ["-m", "manciple", "mirror", "--kubeconfig", str(self.kubeconfig), "--home", str(self.home)]
        return Process([sys.executable, *command, "--steer"], forked=False)


@pytest.fixture(scope="module")
def cluster(system: Up) -> Iterator[Api]:
    api = Api(system.kubeconfig)
    api.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    api.made(TEMPLATES, {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}})
    yield api
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    wait_for("the namespace to be gone", lambda: api.find(f"/api/v1/namespaces/{NAMESPACE}") is None)


@pytest.fixture(scope="module")
def mirror(system: Up, cluster: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteeringMirror]:
    mirror = SteeringMirror(tmp_path_factory.mktemp("steering") / "home", system.kubeconfig)
    mirror.start()
    yield mirror
    assert mirror.running.stop() == 0, "\n".join(mirror.running.output)


def gated(name: str, *more: str, annotations: dict[str, str] | None = None, **spec: Any) -> Document:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}, "claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    gates = [{"name": one} for one in (GATE, *more)]
    return {
        "metadata": {"name": name, "labels": {LABEL: "true"}, "annotations": annotations or {}},
        "spec": {"containers": [container], "resourceClaims": claims, "schedulingGates": gates, **spec},
    }


def is_placed(cluster: Api, name: str) -> bool:
    found = cluster.find(f"{PODS}/{name}")
    return found is not None and bool(found["spec"].get("nodeName"))


def test_a_pod_is_placed_where_it_was_nominated(mirror: SteeringMirror, cluster: Api) -> None:
    cluster.made(PODS, gated("single"))
    wait_for("the pod to be placed", lambda: is_placed(cluster, "single"))
    mirror.shows(f"/pods/{NAMESPACE}/single", "Manciple nominated node-\\d at .*placed it there")
    assert cluster.find(f"{PODS}/single")["spec"].get("schedulingGates", []) == []  # type: ignore[index]


def test_a_gang_is_released_as_a_whole(mirror: SteeringMirror, cluster: Api) -> None:
    members = [f"member-{number}" for number in range(6)]
    gang = {"manciple.dev/gang": "train", "manciple.dev/gang-size": str(len(members))}
    for name in members[:-1]:
        cluster.made(PODS, gated(name, annotations=gang))
    mirror.shows(f"/pods/{NAMESPACE}/member-0", "Why it waits")
    assert not any(is_placed(cluster, name) for name in members[:-1])
    cluster.made(PODS, gated(members[-1], annotations=gang))
    wait_for("the gang to be placed", lambda: all(is_placed(cluster, name) for name in members))
    for name in members:
        mirror.shows(f"/pods/{NAMESPACE}/{name}", "Manciple nominated .*placed it there")


def test_what_came_while_it_was_killed_is_steered_and_other_gates_are_left(
    mirror: SteeringMirror, cluster: Api
) -> None:
    mirror.running.kill()
    cluster.made(PODS, gated("late"))
    cluster.made(PODS, gated("held", "example.com/quota"))
    mirror.start()
    wait_for("the pod to be placed", lambda: is_placed(cluster, "late"))
    mirror.shows(f"/pods/{NAMESPACE}/late", "Manciple nominated .*placed it there")
    held = cluster.find(f"{PODS}/held")
    assert held is not None
    assert [gate["name"] for gate in held["spec"]["schedulingGates"]] == [GATE, "example.com/quota"]
    assert "nominatedNodeName" not in held.get("status", {})
