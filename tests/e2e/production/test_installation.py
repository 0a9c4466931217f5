"""The flow of a user, and the death of workers and agents, with every part a process of its own."""

from __future__ import annotations

import pytest

from tests.e2e.flow import (
    Manifest,
    assert_all_is_given_back,
    assert_cdi_files_are_valid,
    assert_claims_are_held,
    assert_containers_got_their_devices,
    run_manifest,
)
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT
from tests.e2e.production.installation import NODES, Installation

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

MANIFESTS = [Manifest(path) for path in sorted((ROOT / "docs" / "examples").glob("*.yaml"))]


def test_the_flow_passes_with_every_part_a_process_of_its_own(installation: Installation, kubectl: Kubectl) -> None:
    for manifest in MANIFESTS:
        run_manifest(kubectl, manifest)
        assert_cdi_files_are_valid(installation.home, assert_claims_are_held(kubectl, manifest))
        assert_containers_got_their_devices(kubectl, installation.home, manifest)
    installation.check_invariants()
    for manifest in MANIFESTS:
        kubectl("delete", "-f", str(manifest.path))
    for manifest in MANIFESTS:
        assert_all_is_given_back(kubectl, installation.home, manifest)


def test_a_killed_worker_costs_a_delay_and_no_pod(installation: Installation, kubectl: Kubectl) -> None:
    manifest = next(manifest for manifest in MANIFESTS if manifest.name == "two-pods")
    kubectl("apply", "-f", str(manifest.path))
    for name in ("worker-1", "worker-2"):
        installation.processes[name].kill()
    installation.start("worker-1", installation.worker(1))
    run_manifest(kubectl, manifest)
    kubectl("delete", "-f", str(manifest.path))
    assert_all_is_given_back(kubectl, installation.home, manifest)
    installation.start("worker-2", installation.worker(2))


def test_a_killed_agent_forgets_no_claim(installation: Installation, kubectl: Kubectl) -> None:
    manifest = next(manifest for manifest in MANIFESTS if manifest.name == "shared-claim")
    run_manifest(kubectl, manifest)
    for node in NODES:
        installation.processes[node].kill()
    kubectl("delete", "-f", str(manifest.path), "--wait=false")
    for node in NODES:
        installation.start(node, installation.agent(node))
    assert_all_is_given_back(kubectl, installation.home, manifest)
