"""Fixtures of the end-to-end tests: a running system, kubectl against it, the invariants at the end of every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api_client import Api
from tests.e2e.earlier import earlier_tree
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.e2e.processes import CHECKER, ROOT, Up, kill_all

# Some hundred Python processes are started here. Where the environment forbids bytecode beside the sources, each would
# compile everything anew, three seconds long: theirs is kept in a folder of its own.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".pytest_cache" / "bytecode"))


@pytest.hookimpl(trylast=True)  # pytest ends what a run that was cut short has left in a hook of its own
def pytest_sessionfinish() -> None:
    CHECKER.end()
    kill_all()


#: The one of the fixture `system`, while it runs.
SHARED: list[Up] = []


@pytest.fixture(scope="package")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`manage.py up` on a home of its own, ready; one for all files here that bring no system of their own."""
    up = Up(home=tmp_path_factory.mktemp("home")).start()
    SHARED.append(up)
    yield up
    SHARED.remove(up)
    assert up.process.stop() == 0, "\n".join(up.process.output)


@pytest.fixture(scope="module", autouse=True)
def no_node_is_left() -> Iterator[None]:
    """A file takes its Nodes with it: a DaemonSet of the next file would wait for a pod on one whose agent is gone."""
    yield
    for up in SHARED:
        nodes = {node["metadata"]["name"] for node in Api(up.kubeconfig).listed("/api/v1/nodes")}
        assert nodes <= {f"node-{number + 1}" for number in range(up.nodes)}


@pytest.fixture
def up(system: Up) -> Iterator[Up]:
    """The running system; the invariants hold when the test is done with it."""
    yield system
    system.check_invariants()


@pytest.fixture(scope="session")
def kubectl_program() -> str:
    return find_kubectl()


@pytest.fixture
def kubectl(up: Up, kubectl_program: str) -> Kubectl:
    return Kubectl(up.kubeconfig, kubectl_program)


@pytest.fixture(scope="session")
def earlier() -> Path:
    """The tree of the release before this version."""
    return earlier_tree()


def node_folders(home: Path) -> list[Path]:
    """HOME/cdi/NODE of every node."""
    return sorted((home / "cdi").iterdir()) if (home / "cdi").exists() else []
