"""Fixtures of the tests in production mode: one installation for all of them, a scene for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.api_client import Hands
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT
from tests.e2e.production.installation import NODES, Installation, installed
from tests.e2e.production.scene import Scene
from tests.services import Server

DEMO = ROOT / "manciple" / "processes" / "demo.yaml"


@pytest.fixture(scope="package")
def installation(
    tmp_path_factory: pytest.TempPathFactory, postgresql: Server, redis_server: Server
) -> Iterator[Installation]:
    """Its nodes are ready, and the demo's classes are there."""
    with installed(tmp_path_factory.mktemp("production"), postgresql, redis_server) as made:
        api = Hands(made.home / "kubeconfig")
        api.apply_file(DEMO)
        for node in NODES:
            api.wait_ready("Node", node)
        yield made


@pytest.fixture(scope="package")
def api(installation: Installation) -> Hands:
    return Hands(installation.home / "kubeconfig")


@pytest.fixture
def kubectl(installation: Installation, kubectl_program: str) -> Iterator[Kubectl]:
    yield Kubectl(installation.home / "kubeconfig", kubectl_program)
    installation.check_invariants()


@pytest.fixture
def scene(installation: Installation, api: Hands) -> Iterator[Scene]:
    """What one test plays with; nothing of it is left afterwards, and the invariants hold."""
    scene = Scene(api)
    yield scene
    scene.end()
    installation.check_invariants()
