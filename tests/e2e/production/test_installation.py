"""The flow of a user, and the death of workers and agents, with every part a process of its own."""

from __future__ import annotations

import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from manciple.telemetry.processes import KEY
from tests.e2e.flow import (
    EXAMPLES,
    assert_all_is_given_back,
    assert_cdi_files_are_valid,
    assert_claims_are_held,
    assert_containers_got_their_devices,
    run_manifest,
)
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import wait_for
from tests.e2e.production.installation import NODES, Installation
from tests.services import Server

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]


def test_the_flow_passes_with_every_part_a_process_of_its_own(installation: Installation, kubectl: Kubectl) -> None:
    for manifest in EXAMPLES:
        run_manifest(kubectl, manifest)
        assert_cdi_files_are_valid(installation.home, assert_claims_are_held(kubectl, manifest))
        assert_containers_got_their_devices(kubectl, installation.home, manifest)
    installation.check_invariants()
    for manifest in EXAMPLES:
        kubectl("delete", "-f", str(manifest.path))
    for manifest in EXAMPLES:
        assert_all_is_given_back(kubectl, installation.home, manifest)


def told(kubectl: Kubectl, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one metric, of all processes; to read those of all metrics costs more than to write them."""
    lines = kubectl("get", "--raw", "/metrics?processes=all").splitlines(keepends=True)
    text = "".join(line for line in lines if line.startswith(f"{name}{{"))
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {tuple(sample.labels.values()): sample.value for sample in samples}


@pytest.mark.long
def test_controller_metrics_of_every_process_are_told_at_one_address(
    installation: Installation, kubectl: Kubectl
) -> None:
    """Each of the other processes puts its own into Redis every ten seconds; of one that was killed it lasts longer."""
    parts = {"api": 1, "worker": 2}
    with Redis.from_url(installation.env["MANCIPLE_REDIS_URL"]) as redis:
        wait_for("every process to tell of itself alone", lambda: len(redis.keys(f"{KEY}.*")) == sum(parts.values()))
    present = {role: number for (role,), number in told(kubectl, "manciple_processes").items()}
    assert present == {**parts, "embedded": 0}

    def scheduled() -> bool:
        attempts = told(kubectl, "scheduler_schedule_attempts_total")
        return any("scheduled" in labels and number > 0 for labels, number in attempts.items())

    wait_for("the workers to tell of the pods above", scheduled)
    assert any("resource_claim" in labels for labels in told(kubectl, "workqueue_work_duration_seconds_count"))
    assert told(kubectl, "manciple_live_workers")["worker",] >= 1


def test_a_killed_worker_costs_a_delay_and_no_pod(installation: Installation, kubectl: Kubectl) -> None:
    manifest = next(manifest for manifest in EXAMPLES if manifest.name == "two-pods")
    kubectl("apply", "-f", str(manifest.path))
    for name in ("worker-1", "worker-2"):
        installation.processes[name].kill()
    installation.start("worker-1", installation.worker(1))
    run_manifest(kubectl, manifest)
    kubectl("delete", "-f", str(manifest.path))
    assert_all_is_given_back(kubectl, installation.home, manifest)
    installation.start("worker-2", installation.worker(2))


def test_while_redis_is_away_pods_run_and_give_their_devices_back(
    installation: Installation, kubectl: Kubectl, redis_server: Server
) -> None:
    manifest = next(manifest for manifest in EXAMPLES if manifest.name == "two-pods")
    redis_server.stop()
    try:
        wait_for("the API to say so", lambda: "[!]redis warning" in kubectl("get", "--raw", "/readyz?verbose"))
        run_manifest(kubectl, manifest)
        kubectl("delete", "-f", str(manifest.path))
        assert_all_is_given_back(kubectl, installation.home, manifest)
        # A worker that finds no Redis when it starts does its work, too.
        for name in ("worker-1", "worker-2"):
            installation.processes[name].kill()
        installation.start("worker-1", installation.worker(1))
        run_manifest(kubectl, manifest)
    finally:
        redis_server.start()
    wait_for("the API to hear Redis again", lambda: "[+]redis ok" in kubectl("get", "--raw", "/readyz?verbose"))
    installation.start("worker-2", installation.worker(2))
    kubectl("delete", "-f", str(manifest.path))
    assert_all_is_given_back(kubectl, installation.home, manifest)


@pytest.mark.long
def test_what_units_of_earlier_versions_start_still_starts(installation: Installation) -> None:
    installation.processes["worker-2"].stop()
    installation.start("worker-2", [*installation.worker(2), "--with-beat"], forked=False)
    installation.processes["worker-2"].line(r"ready\.")
    installation.start("beat", [sys.executable, "-m", "manciple", "beat"], forked=False)
    beat = installation.processes.pop("beat")
    beat.line(r"beat has nothing to do")
    assert beat.stop() == 0


def test_a_killed_agent_forgets_no_claim(installation: Installation, kubectl: Kubectl) -> None:
    manifest = next(manifest for manifest in EXAMPLES if manifest.name == "shared-claim")
    run_manifest(kubectl, manifest)
    for node in NODES:
        installation.processes[node].kill()
    kubectl("delete", "-f", str(manifest.path), "--wait=false")
    for node in NODES:
        installation.start(node, installation.agent(node))
    assert_all_is_given_back(kubectl, installation.home, manifest)
