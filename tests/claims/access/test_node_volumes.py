"""An agent reads the volumes of its pods' claims, and of its own folders writes one finalizer, nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.controllers import volume_claims as binder
from claims.kinds.persistent_volumes import FOLDER_FINALIZER, NODE_LABEL, PersistentVolume
from claims.kinds.storage_classes import LOCAL
from claims.kinds.volume_claims import PersistentVolumeClaim
from manciple.access.authentication import tokens
from manciple.wire.identity import AUTHENTICATED, NODES
from tests.builders import make_node
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster
from tests.scheduling.test_volume_claims import make_user, make_volume_claim

__all__ = ["api"]

MERGE = "application/merge-patch+json"


@pytest.fixture
def cluster(db: None) -> Cluster:
    return Cluster()


@pytest.fixture
def path(api: Api, cluster: Cluster) -> str:
    """Of the volume of a claim whose pod is on n1."""
    for name in ("n1", "n2"):
        node = make_node(name)
        cluster.create(replace(node, spec=replace(node.spec, unschedulable=name == "n2")))
    cluster.create(LOCAL)
    cluster.create(make_volume_claim())
    cluster.create(make_user("web", "data"))
    cluster.settle()
    while binder.reconcile(cluster.now):
        pass
    return f"/api/v1/persistentvolumes/{cluster.get(PersistentVolumeClaim, 'data').spec.volume_name}"


def agent(node: str) -> Api:
    return Api(tokens.issue(f"system:node:{node}", [NODES, AUTHENTICATED]))


def finalizers(cluster: Cluster) -> tuple[str, ...]:
    (volume,) = cluster.all(PersistentVolume)
    return volume.metadata.finalizers


def patched(node: str, path: str, body: dict[str, Any]) -> int:
    return agent(node).send("PATCH", path, body=body, content_type=MERGE).code


def test_an_agent_marks_and_unmarks_its_own_folder(cluster: Cluster, path: str) -> None:
    assert agent("n1").get(path).code == 200
    marked = [*finalizers(cluster), FOLDER_FINALIZER]
    assert patched("n1", path, {"metadata": {"finalizers": marked}}) == 200
    assert finalizers(cluster) == tuple(marked)
    assert patched("n1", path, {"metadata": {"finalizers": marked[:-1]}}) == 200
    assert finalizers(cluster) == tuple(marked[:-1])


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"finalizers": None}},
        {"metadata": {"finalizers": ["example.com/own"]}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}]}},
        {"spec": {"persistentVolumeReclaimPolicy": "Retain"}},
        {"spec": {"claimRef": None}},
    ],
)
def test_an_agent_changes_nothing_else_of_it(cluster: Cluster, path: str, body: dict[str, Any]) -> None:
    (before,) = cluster.all(PersistentVolume)
    assert patched("n1", path, body) == 403
    assert cluster.all(PersistentVolume) == [before]


def test_another_agent_has_no_access(path: str) -> None:
    assert agent("n2").get(path).code == 403
    assert patched("n2", path, {"metadata": {"finalizers": [FOLDER_FINALIZER]}}) == 403


def test_an_agent_lists_the_folders_of_its_node_alone(path: str) -> None:
    def listed(node: str, selector: str) -> tuple[int, int]:
        answer = agent(node).get(f"/api/v1/persistentvolumes?labelSelector={selector}")
        return answer.code, len(answer.json.get("items", ()))

    assert listed("n1", f"{NODE_LABEL}%3Dn1") == (200, 1)
    assert listed("n2", f"{NODE_LABEL}%3Dn2") == (200, 0)
    for selector in (f"{NODE_LABEL}%3Dn1", f"{NODE_LABEL}", f"{NODE_LABEL}!%3Dn2", f"{NODE_LABEL}+in+(n1,n2)"):
        assert listed("n2", selector)[0] == 403


@pytest.mark.parametrize(("node", "code"), [("n1", 201), ("n2", 403)])
def test_an_agent_tells_of_its_own_folders(cluster: Cluster, path: str, node: str, code: int) -> None:
    (volume,) = cluster.all(PersistentVolume)
    about = {"kind": "PersistentVolume", "apiVersion": "v1", "name": volume.metadata.name, "uid": volume.metadata.uid}
    event = {
        "metadata": {"generateName": "e-", "namespace": "default"},
        "involvedObject": about,
        "reason": "VolumeFailedDelete",
        "message": "no",
        "source": {"component": "manciple-nodeagent", "host": node},
    }
    assert agent(node).send("POST", "/api/v1/namespaces/default/events", body=event).code == code


@pytest.mark.parametrize("verb", ["list", "delete", "replace", "status"])
def test_an_agent_may_neither_list_nor_delete_nor_replace_volumes(api: Api, path: str, verb: str) -> None:
    document = api.get(path).json
    answers = {
        "list": lambda: agent("n1").get("/api/v1/persistentvolumes"),
        "delete": lambda: agent("n1").send("DELETE", path),
        "replace": lambda: agent("n1").send("PUT", path, body=document),
        "status": lambda: agent("n1").send("PATCH", f"{path}/status", body={"status": {}}, content_type=MERGE),
    }
    assert answers[verb]().code == 403


def test_the_node_keeps_access_to_its_folder_when_the_claim_is_gone(cluster: Cluster, path: str) -> None:
    marked = [*finalizers(cluster), FOLDER_FINALIZER]
    assert patched("n1", path, {"metadata": {"finalizers": marked}}) == 200
    cluster.delete(cluster.pod("web"))
    cluster.delete(cluster.get(PersistentVolumeClaim, "data"))
    while binder.reconcile(cluster.now):
        pass
    assert finalizers(cluster) == (FOLDER_FINALIZER,)
    assert agent("n1").get(path).code == 200
    assert patched("n1", path, {"metadata": {"finalizers": []}}) == 200
    assert cluster.all(PersistentVolume) == []
