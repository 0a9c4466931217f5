"""How many modules a pod runs through, from its POST to Running: a person who follows it opens each of them.

All count: also those that check rights, admit, limit, audit or measure on the way.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.examples import MIGRATED

ROOT = Path(__file__).resolve().parents[2]
#: The modules that run today. Merging modules on the path lowers it; it never goes up.
MOST_MODULES = 93
#: The calls from one module to another, with room for the periodic tasks that run meanwhile. It never goes up either.
MOST_CHANGES = 1_600
#: What runs for the documents of gates that are off by default (KEP-3063, the drafts).
EARLY_DOCUMENTS = (
    *("inventory/classic/", "inventory/drafts/", "claims/classic/", "claims/drafts/", "manciple/controller_kit/"),
    *("scheduling/earlier/", "scheduling/claims/negotiation", "nodeagent/claims/draft_claims"),
    "nodeagent/claims/handles",
    *("nodeagent/plugins/named_resources", "dashboard/workloads/pods/negotiation"),
)
#: The packages of these documents, and those that follow them with others.
EARLY_PACKAGES = ("claims.classic", "claims.drafts", "inventory.classic", "inventory.drafts", "manciple.controller_kit")


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """While the gates are as by default, `modules` that a pod goes through, and the number of `changes` of module.

    `imported` are the modules that the system has imported by then: API server, worker, pages and a node's agent.
    """
    elsewhere = {"MANCIPLE_DATABASE_URL", "MANCIPLE_REDIS_URL"}  # the embedded system keeps to itself
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    home = tmp_path_factory.mktemp("way")
    if MIGRATED in os.environ:  # to migrate takes a second, and three under a tracer
        shutil.copy(os.environ[MIGRATED], home / "manciple.sqlite3")
    command = [sys.executable, "-m", "tests.architecture.pods_way", str(home)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    traced: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return traced


def test_a_pods_way_goes_through_no_more_modules_than_before(way: dict[str, Any]) -> None:
    modules: list[str] = way["modules"]
    print(f"{len(modules)} modules, {way['changes']} changes of module\n{by_room(modules)}")
    assert {room(one) for one in modules} >= {
        "claims",
        "inventory/kinds",
        "manciple/api",
        "manciple/store",
        "nodeagent",
    }
    assert len(modules) <= MOST_MODULES, by_room(modules)
    assert way["changes"] <= MOST_CHANGES


def test_while_their_gates_are_off_a_pod_runs_no_line_of_the_early_documents(way: dict[str, Any]) -> None:
    assert all(list(ROOT.glob(f"{path}*")) for path in EARLY_DOCUMENTS)
    assert [module for module in way["modules"] if module.startswith(EARLY_DOCUMENTS)] == []


def test_while_their_gates_are_off_the_early_documents_are_not_even_imported(way: dict[str, Any]) -> None:
    """The embedded system has the API, the pages, the scheduler, all controllers and the node agents in one process."""
    assert "scheduling/cycle/scheduler.py" in way["modules"]
    assert {"claims.kinds.early", "inventory.kinds.early", "nodeagent.early"} <= set(way["imported"])
    assert [name for name in way["imported"] if name.startswith(EARLY_PACKAGES)] == []


def test_while_traces_are_off_their_packages_are_not_even_imported(way: dict[str, Any]) -> None:
    packages = {name.partition(".")[0] for name in way["imported"]}
    assert "django" in packages
    assert "opentelemetry" not in packages


def by_room(modules: list[str]) -> str:
    """One line for each room: how many, and which."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        rooms[room(module)].append(module.removeprefix(f"{room(module)}/").removesuffix(".py"))
    return "\n".join(f"{name}: {len(rooms[name])}: {', '.join(rooms[name])}" for name in sorted(rooms))


def room(module: str) -> str:
    """As docs/explanation/architecture.md has them: `manciple/store`, `scheduling/cel`, `claims`."""
    first, second, *deeper = module.split("/")
    return f"{first}/{second}" if deeper else first
