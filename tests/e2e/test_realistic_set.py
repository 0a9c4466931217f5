"""A laboratory's workloads on `manage.py up`, which is killed in the middle of each thing that happens to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import Up, wait_for
from tests.e2e.realistic import Laboratory

pytestmark = pytest.mark.e2e


def again(laboratory: Laboratory, up: Up) -> None:
    """Kill it, and start it on the same home."""
    up.process.kill()
    up.start()
    laboratory.kubectl = Kubectl(up.kubeconfig, laboratory.kubectl.program)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(home=tmp_path / "home", nodes=2, extra=("--no-demo",)).start()
    yield up
    assert up.process.stop() == 0, "\n".join(up.process.output)


def install(up: Up, laboratory: Laboratory) -> int:
    """Returns how many nodes there are."""
    laboratory.kubectl("create", "-f", "-", stdin=GPUS)
    nodes = laboratory.kubectl("get", "nodes", "-o", "name").split()
    laboratory.install(nodes[0].removeprefix("node/"))
    return len(nodes)


def test_a_laboratory_rolls_and_scales_through_a_kill_and_leaves_nothing(
    up: Up, tmp_path: Path, kubectl_program: str
) -> None:
    laboratory = Laboratory.shorter(Kubectl(up.kubeconfig, kubectl_program), 10, tmp_path)
    nodes = install(up, laboratory)
    laboratory.wait_for_trials(2)
    laboratory.update()
    again(laboratory, up)
    laboratory.check_rolled_out(2, servers=3, nodes=nodes)
    laboratory.check_trials()
    laboratory.check_history()
    up.check_invariants()
    laboratory.remove()
    laboratory.check_nothing_is_left()
    up.check_invariants()


@pytest.mark.long
def test_a_laboratory_survives_a_kill_at_any_moment_and_leaves_nothing(up: Up, kubectl_program: str) -> None:
    laboratory = Laboratory(Kubectl(up.kubeconfig, kubectl_program))
    nodes = install(up, laboratory)
    laboratory.wait_for_trials(5)
    again(laboratory, up)
    laboratory.wait_for_trials(10)
    laboratory.update()
    wait_for("the update to begin", lambda: "server:2" in laboratory.images("server"))
    again(laboratory, up)
    laboratory.check_rolled_out(2, servers=3, nodes=nodes)
    laboratory.check_trials()
    laboratory.check_history()
    up.check_invariants()
    laboratory.remove()
    wait_for("the first to go", lambda: len(laboratory.pods("server")) < 3)
    again(laboratory, up)
    laboratory.check_nothing_is_left()
    up.check_invariants()


GPUS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]}
"""
