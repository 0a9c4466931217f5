"""The release before this version: really run by tests, out of the history of this repository."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT

#: v0.2.0-rc.1, the first that has extended resources whole; by its commit, as a clone need not have the tag.
EARLIER = "3560222f91a17f476ad6e4da143114ee84c07cab"


def earlier_tree() -> Path:
    """Always at the same place, so that what Python compiled of it serves the next run too.

    Skips the test, and says so, where this copy of the repository has no history.
    """
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
        with suppress(OSError):  # another process of the test run was first
            tree.rename(place)  # in one step: what is there is whole
    return place
