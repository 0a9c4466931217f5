"""`manage.py up` stopped, killed and started again on the same home."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.flow import Manifest, assert_all_is_given_back, assert_cdi_files_are_valid, assert_claims_are_held
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Process, Up

pytestmark = pytest.mark.e2e

EXAMPLE = Manifest(ROOT / "docs" / "examples" / "two-pods.yaml")


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One home for all of these tests: whatever happened to it before, it must go on."""
    up = Up(home=tmp_path_factory.mktemp("home"), nodes=2).start()
    yield up
    assert up.process.stop() == 0, "\n".join(up.process.output)


@pytest.fixture
def up(lasting: Up) -> Up:
    """It runs, also where the test before stopped it."""
    return lasting if lasting.process.running else lasting.start()


@pytest.fixture
def kubectl(up: Up, kubectl_program: str) -> Kubectl:
    return Kubectl(up.kubeconfig, kubectl_program)


def again(up: Up, kubectl: Kubectl) -> tuple[Up, Kubectl]:
    """The system started anew on the same home."""
    up.start()
    return up, Kubectl(up.kubeconfig, kubectl.program)


def run_to_the_end(up: Up, kubectl: Kubectl) -> None:
    """The pods become ready, hold devices, and give them back."""
    for namespace, pod in EXAMPLE.pods:
        kubectl("wait", "--for=condition=Ready", "-n", namespace, f"pod/{pod}")
    assert_cdi_files_are_valid(up.home, assert_claims_are_held(kubectl, EXAMPLE))
    up.check_invariants()
    kubectl("delete", "-f", str(EXAMPLE.path))
    assert_all_is_given_back(kubectl, up.home, EXAMPLE)
    up.check_invariants()


@pytest.mark.sample(1)
@pytest.mark.parametrize("moment", ["applied", "scheduled", "running", "deleting"])
def test_killed_at_any_moment_it_completes_after_the_next_start(up: Up, kubectl: Kubectl, moment: str) -> None:
    kubectl("apply", "-f", str(EXAMPLE.path))
    if moment == "scheduled":
        kubectl("wait", "--for=condition=PodScheduled", "-n", "demo", "pod/trainer")
    if moment in {"running", "deleting"}:
        kubectl("wait", "--for=condition=Ready", "-n", "demo", "pod/trainer", "pod/notebook")
    if moment == "deleting":
        kubectl("delete", "-f", str(EXAMPLE.path), "--wait=false")
    up.process.kill()
    up, kubectl = again(up, kubectl)
    if moment == "deleting":
        assert_all_is_given_back(kubectl, up.home, EXAMPLE)
        up.check_invariants()
    else:
        run_to_the_end(up, kubectl)


def test_ctrl_c_stops_cleanly_and_the_next_start_continues(up: Up, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLE.path))
    kubectl("wait", "--for=condition=Ready", "-n", "demo", "pod/trainer")
    uid = kubectl("get", "pod", "-n", "demo", "trainer", "-o", "jsonpath={.metadata.uid}")
    token = kubectl("config", "view", "--raw", "-o", "jsonpath={.users[0].user.token}")
    assert up.process.stop() == 0
    assert not any("Traceback" in line for line in up.process.output), "\n".join(up.process.output)
    up, kubectl = again(up, kubectl)
    assert kubectl("get", "pod", "-n", "demo", "trainer", "-o", "jsonpath={.metadata.uid}") == uid
    assert kubectl("config", "view", "--raw", "-o", "jsonpath={.users[0].user.token}") == token
    run_to_the_end(up, kubectl)


def test_a_taken_port_is_told_at_once_with_what_to_do(up: Up, tmp_path: Path) -> None:
    web = up.web.removeprefix("http://")
    command = ["manage.py", "up", "--home", str(tmp_path / "other"), "--web", web, "--api", "127.0.0.1:0"]
    done = Process([sys.executable, *command]).start()
    assert done.wait() == 1
    told = "\n".join(done.output)
    assert "cannot listen on" in told
    assert "--web HOST:PORT" in told


def test_readyz_is_answered_only_once_a_pod_could_run(up: Up) -> None:
    assert up.ready()
    assert "[+]devices-published ok" in httpx.get(f"{up.web}/readyz?verbose").text
