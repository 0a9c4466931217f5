"""A laboratory's workloads in production mode, while one process after the other is killed."""

from __future__ import annotations

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import wait_for
from tests.e2e.production.installation import NODES, Installation
from tests.e2e.realistic import Laboratory

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]


def again(installation: Installation, *names: str) -> None:
    """Kill these processes at once, and start them."""
    processes = [installation.processes[name] for name in names]
    for process in processes:
        process.kill()
    for name, process in zip(names, processes, strict=True):
        installation.start(name, list(process.command))
    installation.wait_for_the_api()


@pytest.mark.long
def test_a_laboratory_survives_the_kill_of_every_process_and_leaves_nothing(
    installation: Installation, kubectl: Kubectl
) -> None:
    laboratory = Laboratory(kubectl)
    laboratory.install(NODES[0])
    for trials, names in ((3, ("worker-1",)), (8, ("api",)), (13, (NODES[0],)), (18, ("worker-1", "worker-2"))):
        laboratory.wait_for_trials(trials)
        again(installation, *names)
    laboratory.update()
    wait_for("the update to begin", lambda: "server:2" in laboratory.images("server"))
    again(installation, "api", "worker-1", "worker-2", *NODES)
    laboratory.check_rolled_out(2, servers=3, nodes=len(NODES))
    laboratory.check_trials()
    laboratory.check_history()
    installation.check_invariants()
    laboratory.remove()
    wait_for("the first to go", lambda: len(laboratory.pods("server")) < 3)
    again(installation, "worker-1", "worker-2", "api")
    laboratory.check_nothing_is_left()
    kubectl("label", "node", NODES[0], "laboratory-")
