"""The main job, with kubectl against `manage.py up`: apply, run, share, give back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.flow import (
    Manifest,
    assert_all_is_given_back,
    assert_cdi_files_are_valid,
    assert_claims_are_held,
    assert_containers_got_their_devices,
    assert_no_device_is_given_twice,
    claims_in,
    run_manifest,
)
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Up

pytestmark = pytest.mark.e2e

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
#: Manifests of real users, where the folder is at hand.
REAL = Path(os.environ.get("MANCIPLE_MANIFESTS", ROOT.parent / "shared" / "manifests"))
REAL_NAMES = ("basic-*.yaml", "cel-selector.yaml", "admin-access.yaml")
MANIFESTS = [Manifest(path) for path in [*EXAMPLES, *sorted(file for name in REAL_NAMES for file in REAL.glob(name))]]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_every_pod_of_a_manifest_runs_with_its_devices_and_gives_them_back(
    kubectl: Kubectl, up: Up, manifest: Manifest
) -> None:
    run_manifest(kubectl, manifest)
    claims = assert_claims_are_held(kubectl, manifest)
    assert_no_device_is_given_twice(claims)
    assert_cdi_files_are_valid(up.home, claims)
    assert_containers_got_their_devices(kubectl, up.home, manifest)
    kubectl("delete", "-f", str(manifest.path), "--ignore-not-found", "--timeout=90s")
    if manifest.name == "two-pods":
        assert kubectl("get", "pods", "-n", "demo", "--no-headers", "--ignore-not-found") == ""
    assert_all_is_given_back(kubectl, up.home, manifest)
    if manifest.name == "partial-gpu":
        assert "acme-gpu" not in kubectl("get", "deviceclasses")


def test_all_manifests_at_once_never_share_what_they_do_not_claim_together(kubectl: Kubectl, up: Up) -> None:
    for manifest in MANIFESTS:
        kubectl("apply", "-f", str(manifest.path))
    for manifest in MANIFESTS:
        run_manifest(kubectl, manifest)
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
        "wait", "-n", "waiting", "pod/trainer", "--timeout=60s",
        "--for=jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable",
    )  # fmt: skip
    assert "no-such-class" in kubectl("describe", "pod", "-n", "waiting", "trainer")
    assert "pending" in kubectl("get", "resourceclaims", "-n", "waiting")
    kubectl("delete", "namespace", "waiting", "--timeout=60s")
