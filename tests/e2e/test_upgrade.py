"""KEP-5004, test 3: pods with extended resources outlive an upgrade from an earlier version, and the way back to it.

The earlier version is really run: its tree is taken from the history of this repository. A copy without its history
cannot play this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import ROOT

pytestmark = pytest.mark.e2e

#: v0.2.0-rc.1, the first that has extended resources whole; by its commit, as a clone need not have the tag.
EARLIER = "3560222f91a17f476ad6e4da143114ee84c07cab"
PLAY = Path(__file__).parent / "upgrade_play.py"


@pytest.fixture(scope="module")
def earlier() -> Path:
    """Its tree: always at the same place, so that what Python compiled of it serves the next run too."""
    place = ROOT / ".pytest_cache" / "versions" / EARLIER
    if place.exists():
        return place
    packed = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"this copy of the repository does not have {EARLIER[:9]}: the upgrade is NOT tested")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as beside:
        tree = Path(beside) / "tree"
        tree.mkdir()
        subprocess.run(["tar", "-x", "-C", str(tree)], input=packed.stdout, check=True)
        tree.rename(place)  # in one step: what is there is whole
    return place


def run(version: Path, home: Path, *arguments: str) -> str:
    elsewhere = {"MANCIPLE_DATABASE_URL", "MANCIPLE_REDIS_URL", "PYTHONPATH"}
    env = {name: value for name, value in os.environ.items() if name not in elsewhere}
    env |= {"MANCIPLE_HOME": str(home), "DJANGO_SETTINGS_MODULE": "manciple.settings"}
    env |= {"MANCIPLE_SECRET_KEY": "for the test run only, forty characters long"}
    command = [sys.executable, str(PLAY), *arguments]
    done = subprocess.run(command, cwd=version, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def play(version: Path, home: Path, part: str, *ended: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(version, home, "", part, *ended).splitlines()[-1])
    assert not any(found["violations"].values()), found["violations"]
    assert found["own"] == "example.com/gpu"
    return dict(found["pods"])


def migrations(version: Path) -> dict[str, str]:
    """app -> its last migration."""
    files = [
        path for path in version.glob("*/**/migrations/0*.py") if not path.relative_to(version).parts[0].startswith(".")
    ]
    found: dict[str, str] = {}
    for path in sorted(files, key=lambda one: one.name):
        found["_".join(path.parent.parent.parts[-1:])] = path.stem
    return found


def changed(earlier: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """What to go back to."""
    return {app: earlier.get(app, "zero") for app in now if now[app] != earlier.get(app)}


def test_pods_with_extended_resources_outlive_an_upgrade_and_the_way_back(earlier: Path, tmp_path: Path) -> None:
    before = play(earlier, tmp_path, "one")
    assert {name: len(pod["devices"]) for name, pod in before.items()} == {"one-own": 1, "one-every": 1}

    upgraded = play(ROOT, tmp_path, "two", "one-own")
    assert upgraded["one-every"] == before["one-every"]
    assert upgraded["one-own"]["claim"] == ""  # the claim of the earlier version is cleaned up by this one
    assert [len(upgraded[name]["devices"]) for name in ("two-own", "two-every")] == [1, 1]

    if back := changed(migrations(earlier), migrations(ROOT)):
        run(ROOT, tmp_path, json.dumps(back), "")
    downgraded = play(earlier, tmp_path, "three", "two-own")
    assert {name: downgraded[name] for name in ("one-every", "two-every")} == {
        "one-every": before["one-every"],
        "two-every": upgraded["two-every"],
    }
    assert downgraded["two-own"]["claim"] == ""
    assert [len(downgraded[name]["devices"]) for name in ("three-own", "three-every")] == [1, 1]

    again = play(ROOT, tmp_path, "four")
    held = [device for pod in again.values() for device in pod["devices"]]
    assert len(held) == len(set(held)) == 6
