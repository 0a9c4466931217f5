"""The main job, with kubectl against `manage.py up`: apply, run, share, give back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.flow import (
    EXAMPLES,
    Manifest,
    assert_all_is_given_back,
    assert_cdi_files_are_valid,
    assert_claims_are_held,
    assert_containers_got_their_devices,
    assert_no_device_is_given_twice,
    claims_in,
    run_manifest,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Up

pytestmark = pytest.mark.e2e

#: Manifests as users of real drivers wrote them.
REAL = Path(os.environ.get("MANCIPLE_MANIFESTS", Path(__file__).parent / "manifests"))
REAL_NAMES = ("basic-*.yaml", "cel-selector.yaml", "admin-access.yaml")
MANIFESTS = [*EXAMPLES, *(Manifest(path) for path in sorted(file for name in REAL_NAMES for file in REAL.glob(name)))]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """What `make run` starts: GPU nodes, and one with partitions and shared interfaces."""
    up = Up(home=tmp_path_factory.mktemp("home"), mixed_nodes=1, migrated=False).start()
    yield up
    assert up.process.stop() == 0, "\n".join(up.process.output)


@pytest.mark.sample(3)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_every_pod_of_a_manifest_runs_with_its_devices_and_gives_them_back(
    kubectl: Kubectl, up: Up, manifest: Manifest
) -> None:
    run_manifest(kubectl, manifest)
    claims = assert_claims_are_held(kubectl, manifest)
    assert_no_device_is_given_twice(claims)
    assert_cdi_files_are_valid(up.home, claims)
    assert_containers_got_their_devices(kubectl, up.home, manifest)
    kubectl("delete", "-f", str(manifest.path), "--ignore-not-found")
    if manifest.name == "two-pods":
        assert kubectl("get", "pods", "-n", "demo", "--no-headers", "--ignore-not-found") == ""
    assert_all_is_given_back(kubectl, up.home, manifest)
    if manifest.name == "partial-gpu":
        assert "acme-gpu" not in kubectl("get", "deviceclasses")


@pytest.mark.long
def test_all_manifests_at_once_never_share_what_they_do_not_claim_together(kubectl: Kubectl, up: Up) -> None:
    for manifest in MANIFESTS:
        kubectl("apply", "-f", str(manifest.path))
    for manifest in MANIFESTS:
        wait_ready(kubectl, manifest)
    claims = claims_in(kubectl, {namespace for manifest in MANIFESTS for namespace, _ in manifest.pods})
    assert_no_device_is_given_twice(claims)
    assert_cdi_files_are_valid(up.home, claims)
    for manifest in MANIFESTS:
        kubectl("delete", "-f", str(manifest.path), "--wait=false", "--ignore-not-found")
    for manifest in MANIFESTS:
        assert_all_is_given_back(kubectl, up.home, manifest)


def test_a_user_reads_why_a_pod_waits(kubectl: Kubectl, up: Up) -> None:
    text = (ROOT / "docs" / "examples" / "two-pods.yaml").read_text()
    kubectl("create", "namespace", "waiting")
    template = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: waiting}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: no-such-class}}]}}}
"""
    kubectl("apply", "-f", "-", stdin=template + "---" + text.replace("namespace: demo", "namespace: waiting"))
    kubectl(
        "wait", "-n", "waiting", "pod/trainer",
        "--for=jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable",
    )  # fmt: skip
    assert "no-such-class" in kubectl("describe", "pod", "-n", "waiting", "trainer")
    assert "pending" in kubectl("get", "resourceclaims", "-n", "waiting")
    kubectl("delete", "namespace", "waiting")


def environment(kubectl: Kubectl, home: Path, namespace: str, pod: str) -> dict[str, str]:
    """What the pod's only container was started with."""
    uid = kubectl.json("get", "pod", "-n", namespace, pod)["metadata"]["uid"]
    started = json.loads(next(home.glob(f"nodes/*/containers/{uid}.json")).read_text())
    (container,) = started["containers"].values()
    return dict(container["environment"])


def add_pod(kubectl: Kubectl, namespace: str, name: str, claim: dict[str, Any]) -> None:
    """One more pod; `claim` is its entry of spec.resourceClaims."""
    container = {"name": "main", "image": "example.com/app", "resources": {"claims": [{"name": "device"}]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "resourceClaims": [{"name": "device", **claim}]},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(pod))


def wait_unschedulable(kubectl: Kubectl, namespace: str, pod: str) -> None:
    reason = "{.status.conditions[?(@.type=='PodScheduled')].reason}"
    kubectl("wait", "-n", namespace, f"pod/{pod}", f"--for=jsonpath={reason}=Unschedulable")


def test_a_partition_and_its_sibling_run_and_the_third_waits_for_one_of_them(kubectl: Kubectl, up: Up) -> None:
    manifest = Manifest(ROOT / "docs" / "examples" / "partition.yaml")
    run_manifest(kubectl, manifest)
    found = environment(kubectl, up.home, "partition", "training")
    assert {found[name] for name in found if name.endswith("_PROFILE")} == {"3g.40gb"}
    assert {found[name] for name in found if name.endswith("_MEMORY")} == {"40Gi"}

    kubectl("delete", "pod", "-n", "partition", "notebook")
    add_pod(kubectl, "partition", "sibling", {"resourceClaimTemplateName": "large"})
    kubectl("wait", "--for=condition=Ready", "-n", "partition", "pod/sibling")
    add_pod(kubectl, "partition", "third", {"resourceClaimTemplateName": "small"})
    wait_unschedulable(kubectl, "partition", "third")
    assert "counter" in kubectl("describe", "pod", "-n", "partition", "third")

    kubectl("delete", "pod", "-n", "partition", "sibling")
    kubectl("wait", "--for=condition=Ready", "-n", "partition", "pod/third")
    kubectl("delete", "namespace", "partition")
    assert_all_is_given_back(kubectl, up.home, manifest)


@pytest.mark.long
def test_claims_share_an_interface_until_its_bandwidth_is_used_up(kubectl: Kubectl, up: Up) -> None:
    manifest = Manifest(ROOT / "docs" / "examples" / "shared-nic.yaml")
    run_manifest(kubectl, manifest)
    granted = {pod: environment(kubectl, up.home, "shared-nic", pod) for pod in ("storage", "web")}
    assert [granted[pod]["NIC_DEVICE_0_BANDWIDTH"] for pod in ("storage", "web")] == ["60G", "10G"]
    assert granted["storage"]["NIC_DEVICE_0_SHARE_ID"] != granted["web"]["NIC_DEVICE_0_SHARE_ID"]

    for name in ("other", "third"):  # the first finds the node's second interface, the next none that has 60G left
        claim = kubectl.json("get", "resourceclaim", "-n", "shared-nic", "wide")
        new = {"apiVersion": claim["apiVersion"], "kind": claim["kind"], "spec": claim["spec"]}
        kubectl("apply", "-f", "-", stdin=json.dumps(new | {"metadata": {"name": name, "namespace": "shared-nic"}}))
        add_pod(kubectl, "shared-nic", name, {"resourceClaimName": name})
    kubectl("wait", "--for=condition=Ready", "-n", "shared-nic", "pod/other")
    wait_unschedulable(kubectl, "shared-nic", "third")

    kubectl("delete", "pod", "-n", "shared-nic", "storage")
    kubectl("wait", "--for=condition=Ready", "-n", "shared-nic", "pod/third")
    kubectl("delete", "namespace", "shared-nic")
    assert_all_is_given_back(kubectl, up.home, manifest)
