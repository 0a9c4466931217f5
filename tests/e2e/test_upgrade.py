"""Pods outlive an upgrade from an earlier version, and the way back to it: those with extended resources (KEP-5004,
test 3), and some that run, on PostgreSQL, whose tables are changed while the earlier version is at work, and left so.

    MANCIPLE_UPGRADE_PODS    how many of these: 8 unless said otherwise

The earlier version is really run: its tree is taken from the history of this repository. A copy without its history
cannot play this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from tests.builders import make_pod
from tests.e2e.api_client import PLACES, Hands
from tests.e2e.checker import Checker
from tests.e2e.processes import ROOT, Process, Up, wait_for
from tests.e2e.production.installation import new_database
from tests.examples import ALL
from tests.services import Server

pytestmark = pytest.mark.e2e

PLAY = Path(__file__).parent / "upgrade_play.py"


def play(
    version: Path, home: Path, part: str, *ended: str, back_to: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """back_to: app -> migration to go back to at the end."""
    elsewhere = {"MANCIPLE_DATABASE_URL", "MANCIPLE_REDIS_URL", "PYTHONPATH"}
    env = {name: value for name, value in os.environ.items() if name not in elsewhere}
    env |= {"MANCIPLE_HOME": str(home), "DJANGO_SETTINGS_MODULE": "manciple.settings"}
    env |= {"MANCIPLE_SECRET_KEY": "for the test run only, forty characters long"}
    command = [sys.executable, str(PLAY), json.dumps(dict(back_to)), part, *ended]
    done = subprocess.run(command, cwd=version, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert not any(found["violations"].values()), found["violations"]
    assert found["own"] == "example.com/gpu"
    return dict(found["pods"])


#: Folder of an app whose label is another one.
LABELS = {"dashboard": "pages"}


def migrations(version: Path) -> dict[str, str]:
    """app -> its last migration."""
    files = [
        path for path in version.glob("*/**/migrations/0*.py") if not path.relative_to(version).parts[0].startswith(".")
    ]
    found: dict[str, str] = {}
    for path in sorted(files, key=lambda one: one.name):
        folder = path.parent.parent.name
        found[LABELS.get(folder, folder)] = path.stem
    return found


def changed(earlier: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """What to go back to."""
    return {app: earlier.get(app, "zero") for app in now if now[app] != earlier.get(app)}


# Pods that run ------------------------------------------------------------------------------------------------------

PODS, DEVICES_A_NODE = int(os.environ.get("MANCIPLE_UPGRADE_PODS", "8")), 8
DEMO = "demo"
POD_PLACE = PLACES["Pod"].format(namespace=DEMO)


@pytest.fixture
def env(postgresql: Server) -> dict[str, str]:
    return {
        "MANCIPLE_DATABASE_URL": new_database(postgresql, "upgraded"),
        "MANCIPLE_SECRET_KEY": "for the test run only, forty characters long",
        "MANCIPLE_ENCRYPTION_KEYS": "for the test run only",
        "MANCIPLE_LOCAL_CONNECTIONS": "1",
    }


def create(api: Hands, name: str) -> None:
    pod = make_pod(name, namespace=DEMO, templates={"gpu": "one-gpu"}, termination_grace_period_seconds=0)
    api.made(POD_PLACE, dict(msgspec.to_builtins(pod)))


def running(api: Hands) -> dict[str, Any]:
    """pod -> what must not change while it runs; {} until all pods run."""
    claims = api.listed(PLACES["ResourceClaim"].format(namespace=DEMO))
    held = {one["metadata"]["name"]: one.get("status", {}).get("allocation") for one in claims}
    found = {}
    for pod in api.listed(POD_PLACE):
        status = pod.get("status", {})
        if status.get("phase") != "Running":
            return {}
        (container,), (claim,) = status["containerStatuses"], status["resourceClaimStatuses"]
        found[pod["metadata"]["name"]] = (pod["spec"]["nodeName"], container["state"], held[claim["resourceClaimName"]])
    return found


def all_run(system: Up, *names: str) -> dict[str, Any]:
    api = Hands(system.kubeconfig)
    for name in names:
        create(api, name)
    return wait_for("all pods to run", lambda: running(api))


def end(system: Up) -> None:
    assert system.process.stop() == 0, "\n".join(system.process.output)


@pytest.mark.long
@pytest.mark.postgres
def test_running_pods_outlive_an_upgrade_and_the_way_back(earlier: Path, tmp_path: Path, env: dict[str, str]) -> None:
    nodes = PODS // DEVICES_A_NODE + 1
    before = Up(tmp_path, nodes=nodes, env=env, folder=earlier, migrated=False).start()
    first = all_run(before, *(f"pod-{number}" for number in range(PODS)))
    migrating = Process(
        [sys.executable, "manage.py", "migrate", "-v", "0"], env={**env, "MANCIPLE_HOME": str(tmp_path)}
    )
    migrating.start()
    create(Hands(before.kubeconfig), "meanwhile")
    assert migrating.wait() == 0, "\n".join(migrating.output)
    during = all_run(before, "migrated")
    end(before)

    after = Up(tmp_path, nodes=nodes, env=env).start()
    upgraded = all_run(after, "upgraded")
    end(after)

    back = all_run(before.start(), "back")
    end(before)
    assert first.items() <= during.items() <= upgraded.items() <= back.items()
    held = [str(allocation["devices"]["results"][0]) for _node, _state, allocation in back.values()]
    assert len(set(held)) == len(held) == PODS + 4
    checker = Checker()
    checker.check(tmp_path, env)
    checker.end()


def test_pods_with_extended_resources_outlive_an_upgrade_and_the_way_back(earlier: Path, tmp_path: Path) -> None:
    before = play(earlier, tmp_path, "one")
    assert {name: len(pod["devices"]) for name, pod in before.items()} == {"one-own": 1, "one-every": 1}

    # Going back begins in the process that has this version's code loaded already: a start costs as much as the play.
    upgraded = play(ROOT, tmp_path, "two", "one-own", back_to=changed(migrations(earlier), migrations(ROOT)))
    assert upgraded["one-every"] == before["one-every"]
    assert upgraded["one-own"]["claim"] == ""  # the claim of the earlier version is cleaned up by this one
    assert [len(upgraded[name]["devices"]) for name in ("two-own", "two-every")] == [1, 1]

    downgraded = play(earlier, tmp_path, "three", "two-own")
    assert {name: downgraded[name] for name in ("one-every", "two-every")} == {
        "one-every": before["one-every"],
        "two-every": upgraded["two-every"],
    }
    assert downgraded["two-own"]["claim"] == ""
    assert [len(downgraded[name]["devices"]) for name in ("three-own", "three-every")] == [1, 1]

    last = play(ROOT, tmp_path, "four") if ALL else downgraded
    held = [device for pod in last.values() for device in pod["devices"]]
    assert len(held) == len(set(held)) == (6 if ALL else 4)
