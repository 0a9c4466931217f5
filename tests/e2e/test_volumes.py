"""A StatefulSet's pods keep what they have written: claims, folders of nodes and agents, seen with kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import Up, wait_for
from tests.e2e.real_node import RealNode
from tests.nodeagent.runtimes.containers import needs_podman

pytestmark = pytest.mark.e2e

NODE = "keeper"
NAMESPACE = "volumes"
#: Writes a line, and a way out of the volume that only a careless agent takes.
SCRIPT = "echo $HOSTNAME $VERSION >> /data/log; ln -sfn /outside /data/link; mkdir -p /data/a/b/c; exec sleep 1000"


@pytest.fixture
def tenant(kubectl: Kubectl) -> Iterator[Kubectl]:
    """A namespace, which is gone after the test."""
    kubectl("create", "namespace", NAMESPACE)
    yield kubectl
    kubectl("delete", "namespace", NAMESPACE)


@pytest.fixture
def keeper(system: Up, tmp_path: Path) -> Iterator[RealNode]:
    needs_podman()
    node = RealNode(system, NODE, tmp_path).start()
    node.process.line("starting with drivers")
    yield node
    node.end()


def stateful_set(container: dict[str, Any], *, replicas: int = 2, selector: dict[str, str] | None = None) -> str:
    mounts = [{"name": "data", "mountPath": "/data"}]
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {
            "containers": [{"name": "main", "volumeMounts": mounts, **container}],
            "nodeSelector": selector or {},
            "terminationGracePeriodSeconds": 1,
        },
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = {
        "replicas": replicas,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    }
    return json.dumps({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec})


def apply(tenant: Kubectl, document: str) -> None:
    tenant("apply", "-n", NAMESPACE, "-f", "-", stdin=document)
    tenant("rollout", "status", "-n", NAMESPACE, "statefulset/db", "--timeout=120s")


def claims(tenant: Kubectl) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in tenant.json("get", "pvc", "-n", NAMESPACE)["items"]}


def volumes(tenant: Kubectl) -> dict[str, str]:
    """Claim -> volume, of those of the namespace."""
    found = tenant.json("get", "pv")["items"]
    references = [(one["spec"].get("claimRef", {}), one["metadata"]["name"]) for one in found]
    return {claim["name"]: name for claim, name in references if claim.get("namespace") == NAMESPACE}


def test_simulated_pods_have_their_claims_through_deletion_and_kubectl_shows_them(tenant: Kubectl) -> None:
    apply(tenant, stateful_set({"image": "db:1"}))
    before = volumes(tenant)
    assert set(before) == set(claims(tenant)) == {"data-db-0", "data-db-1"}
    assert {one["status"]["phase"] for one in claims(tenant).values()} == {"Bound"}

    listed = tenant("get", "pvc", "-n", NAMESPACE, "data-db-0").splitlines()
    header = "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE"
    assert listed[0].split() == header.split()
    assert listed[1].split()[:6] == ["data-db-0", "Bound", before["data-db-0"], "1Gi", "RWO", "local"]
    row = tenant("get", "pv", before["data-db-0"]).splitlines()[1].split()
    assert row[1:7] == ["1Gi", "RWO", "Delete", "Bound", f"{NAMESPACE}/data-db-0", "local"]
    assert "local (default)" in tenant("get", "storageclass")
    described = tenant("describe", "pvc", "-n", NAMESPACE, "data-db-0")
    assert "Used By:       db-0" in described
    assert "ProvisioningSucceeded" in described
    node = tenant.json("get", "pod", "-n", NAMESPACE, "db-0")["spec"]["nodeName"]
    assert f"kubernetes.io/hostname in [{node}]" in tenant("describe", "pv", before["data-db-0"])
    assert "is-default-class=true" in tenant("describe", "storageclass", "local")

    tenant("delete", "pod", "-n", NAMESPACE, "db-0")
    tenant("rollout", "status", "-n", NAMESPACE, "statefulset/db", "--timeout=120s")
    assert tenant.json("get", "pod", "-n", NAMESPACE, "db-0")["spec"]["nodeName"] == node
    assert volumes(tenant) == before
    tenant("delete", "statefulset", "-n", NAMESPACE, "db")
    wait_for("claims and volumes to go", lambda: not claims(tenant) and not volumes(tenant))


def test_a_claim_in_use_waits_for_its_pod_and_one_of_an_unknown_class_says_why(tenant: Kubectl) -> None:
    apply(tenant, stateful_set({"image": "db:1"}, replicas=1))
    tenant("delete", "pvc", "-n", NAMESPACE, "data-db-0", "--wait=false")
    assert "Terminating" in tenant("get", "pvc", "-n", NAMESPACE, "data-db-0")
    assert "pvc-protection" in tenant("describe", "pvc", "-n", NAMESPACE, "data-db-0")
    tenant("delete", "statefulset", "-n", NAMESPACE, "db")
    wait_for("claims and volumes to go", lambda: not claims(tenant) and not volumes(tenant))

    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "fast"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    tenant("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(claim))
    wait_for(
        "the claim to say why it waits",
        lambda: '"fast" not found' in tenant("describe", "pvc", "-n", NAMESPACE, "fast"),
    )


def test_an_ephemeral_volume_comes_and_goes_with_its_pod(tenant: Kubectl) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    container = {"name": "main", "image": "x", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1},
    }
    tenant("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(pod))
    tenant("wait", "-n", NAMESPACE, "--for=condition=Ready", "pod/web")
    made = claims(tenant)["web-scratch"]
    assert (made["status"]["phase"], made["metadata"]["ownerReferences"][0]["name"]) == ("Bound", "web")
    assert "Used By:       web" in tenant("describe", "pvc", "-n", NAMESPACE, "web-scratch")
    tenant("delete", "pod", "-n", NAMESPACE, "web")
    wait_for("claim and volume to go", lambda: not claims(tenant) and not volumes(tenant))


@pytest.mark.long
def test_what_pods_have_written_stays_on_the_node_through_all_that_happens_and_goes_with_the_claim(
    tenant: Kubectl, keeper: RealNode, tmp_path: Path
) -> None:
    outside = keeper.rootfs / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    folders = tmp_path / "state" / "volumes"

    def log(claim: str) -> list[str]:
        return (folders / volumes(tenant)[claim] / "log").read_text().splitlines()

    def written(claim: str, *lines: str) -> None:
        """Each container that was ever started has written one line."""
        wait_for(f"{claim} to hold {lines}", lambda: log(claim) == list(lines))

    def database(version: str, *, replicas: int = 2) -> str:
        variable = {"name": "VERSION", "value": version}
        container = {"image": f"rootfs:{keeper.rootfs}", "command": ["sh", "-c"], "args": [SCRIPT], "env": [variable]}
        return stateful_set(container, replicas=replicas, selector={"kubernetes.io/hostname": NODE})

    apply(tenant, database("1"))
    written("data-db-0", "db-0 1")
    written("data-db-1", "db-1 1")

    tenant("delete", "pod", "-n", NAMESPACE, "db-0")
    written("data-db-0", "db-0 1", "db-0 1")
    apply(tenant, database("2"))
    written("data-db-0", "db-0 1", "db-0 1", "db-0 2")
    written("data-db-1", "db-1 1", "db-1 2")

    tenant("delete", "pod", "-n", NAMESPACE, "db-1", "--wait=false")
    keeper.process.kill()
    keeper.start()
    written("data-db-1", "db-1 1", "db-1 2", "db-1 2")

    tenant("scale", "-n", NAMESPACE, "statefulset/db", "--replicas=1")
    wait_for("the last claim to go", lambda: set(volumes(tenant)) == {"data-db-0"})
    assert [path.name for path in folders.iterdir()] == [volumes(tenant)["data-db-0"]]
    assert len(log("data-db-0")) == 3

    tenant("delete", "statefulset", "-n", NAMESPACE, "db", "--wait=false")
    keeper.process.kill()
    keeper.start()
    wait_for("claims and volumes to go", lambda: not claims(tenant) and not volumes(tenant))
    assert list(folders.iterdir()) == []
    assert (outside / "file").read_text() == "kept"
