"""Two versions at once: a rolling upgrade from the last release and back (docs/how-to/upgrading.md).

The earlier version is really run: its tree is taken from the history of this repository. A copy without its history
cannot play this. Clients work at each API process all the time; every step is over when they have got pods since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.builders import make_budget, make_container, make_pod
from tests.chaos.clients import NAMESPACE, Notes, document, place
from tests.e2e.processes import ROOT
from tests.e2e.two_versions import APIS, BEAT, NODE, WORKER, Mixed, mixed
from tests.e2e.two_versions_clients import TOO_LARGE, Guest, Traffic, run, running
from tests.services import Server

pytestmark = [pytest.mark.e2e, pytest.mark.postgres, pytest.mark.timeout(1200)]

#: On the way forth a worker is newer than an API process, on the way back older: neither order must matter.
#: Only the earlier version has a beat: it goes after the workers, and comes back before them.
FORTH = (APIS[0], WORKER, APIS[1], NODE)
BACK = (WORKER, APIS[0], APIS[1], NODE)
STANDING = ("standing-1", "standing-2")
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


@pytest.fixture
def installation(tmp_path: Path, postgresql: Server, redis_server: Server, earlier: Path) -> Iterator[Mixed]:
    """All of it is of the release before."""
    with mixed(tmp_path / "home", postgresql, redis_server, earlier) as made:
        yield made


@pytest.mark.long
def test_both_versions_serve_side_by_side_on_the_way_forth_and_back(installation: Mixed, earlier: Path) -> None:
    administrator = Guest(installation.kubeconfig, Notes(), installation.balancer)
    before = {pod: run(administrator, pod) for pod in STANDING}
    too_large = make_pod(TOO_LARGE, namespace=NAMESPACE, containers=[make_container(requests={"cpu": "1000"})])
    administrator.surely("POST", place("Pod"), document(too_large))
    traffic = Traffic(installation)
    traffic.begin()
    traffic.goes_on("all is of the earlier version")
    _prepare(installation)
    traffic.goes_on("the tables and roles are this version's")
    for name in FORTH:
        _replaced(installation, name, ROOT, traffic)
        if name == APIS[0]:
            newer = Guest(installation.kubeconfig, Notes(), installation.doors[name])
            newer.surely("POST", BUDGETS, document(make_budget(namespace=NAMESPACE)))
            assert str(installation.installation.processes[name].pid) in _told_by_doctor(installation)
    installation.end_beat()
    traffic.goes_on("there is no beat")
    installation.begin(BEAT, earlier)
    for name in BACK:
        _replaced(installation, name, earlier, traffic)
    traffic.end()
    assert {pod: running(administrator, pod) for pod in STANDING} == before
    assert running(administrator, TOO_LARGE) == {}
    installation.installation.check_invariants()


def _told_by_doctor(installation: Mixed) -> str:
    """Of different versions side by side."""
    (found,) = json.loads(installation.installation.manage("doctor", "--json", "--only", "versions"))["found"]
    return str(found["what"])


def _prepare(installation: Mixed) -> None:
    """What the upgrade begins with, while everything runs."""
    installation.installation.manage("migrate", "-v", "0")
    installation.installation.manage("bootstrap", "--server", installation.balancer.server)


def _replaced(installation: Mixed, name: str, version: Path, traffic: Traffic) -> None:
    told = f"{name} becomes that of {version}"
    installation.replace(name, version, side_by_side=partial(traffic.goes_on, f"{told}, beside the one before"))
    traffic.goes_on(told)
