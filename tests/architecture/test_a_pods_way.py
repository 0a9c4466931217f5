"""A pod's way, from its POST to Running, goes through few modules, so that a person can follow it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Who folds modules of the way into one lowers it; what a pod's way newly does must find its room below it.
#: 94: limits for each tenant came to the way (connections, work of a request, size of a pod's spec). 95: which pool an
#: allocation is of. 97: bytes of bodies in flight, and time limits for what decodes them. 98: fields of a pod's status
#: that schedulers alone write. 100: what a worker keeps of a pending pod, and who owns which field of what is written.
MOST_MODULES = 100
#: Asked at every step who it is, whether they may and whose turn it is, and noted that they did; which kinds were added
#: beside those of the way: subjects by themselves, which a reader of the way need not open.
APART = (
    *("manciple/access/", "manciple/admission/", "manciple/api/first_stage", "manciple/api/door", "claims/access/"),
    *("claims/kinds/security_", "nodeagent/runtimes/security.py"),
    *("manciple/wire/identity", "claims/kinds/references"),
    *("manciple/api/auditing", "manciple/audit/", "manciple/store/origins"),
    *("manciple/api/flow", "manciple/api/lanes", "manciple/api/connections"),
    #: how much may be stored: a look before each write and after each commit
    *("manciple/store/pruning", "manciple/store/space", "manciple/store/write_budgets"),
    #: how long a pod may take before it is another's turn
    *("scheduling/namespace_time", "manciple/cel/time_limit"),
    "manciple/api/renewals",  # nodes renew their Leases, whatever pods do
    #: how nodes are compared: one question of the allocator, which docs/placement.md answers
    "scheduling/allocator/fragmentation/",
    #: each about one part of a pod
    *(f"claims/kinds/{part}_rules" for part in ("container", "mount", "network", "pod_status", "probe", "resource")),
    *(f"claims/kinds/{part}_rules" for part in ("source", "volume", "windows")),
    *("claims/kinds/pod_warnings", "nodeagent/resizing"),
    "inventory/kinds/gate",
    *("manciple/extensions/", "manciple/api/runtime_config"),
    *("manciple/telemetry/", "manciple/api/request_metrics", "manciple/store/log_metrics", "nodeagent/metrics"),
    *("scheduling/attempts", "scheduling/scheduler_metrics", "scheduling/controller_metrics"),
)
#: What runs for the documents of gates that are off by default (KEP-3063, the drafts).
EARLY_DOCUMENTS = (
    *("inventory/classic/", "inventory/drafts/", "claims/classic/", "claims/drafts/", "manciple/controller_kit/"),
    *("scheduling/classic/", "scheduling/negotiation", "scheduling/draft_claims", "scheduling/structured_claims"),
    *("scheduling/controllers/scheduling_contexts", "scheduling/controllers/draft_claims", "nodeagent/draft_claims"),
)


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`modules` that a pod goes through while the gates are as by default, and the number of `changes` of module."""
    elsewhere = {"MANCIPLE_DATABASE_URL", "MANCIPLE_REDIS_URL"}  # the embedded system keeps to itself
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    command = [sys.executable, "-m", "tests.architecture.pods_way", str(tmp_path_factory.mktemp("way"))]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    traced: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return traced


def test_a_pods_way_goes_through_few_modules(way: dict[str, Any]) -> None:
    modules: list[str] = way["modules"]
    print(f"{len(modules)} modules, {way['changes']} changes of module\n{by_room(modules)}")
    assert {room(one) for one in modules} >= {"claims", "inventory", "manciple/api", "manciple/store", "nodeagent"}
    assert sum(not one.startswith(APART) for one in modules) <= MOST_MODULES, by_room(modules)


def test_while_their_gates_are_off_a_pod_runs_no_line_of_the_early_documents(way: dict[str, Any]) -> None:
    assert all(list(ROOT.glob(f"{path}*")) for path in EARLY_DOCUMENTS)
    assert [module for module in way["modules"] if module.startswith(EARLY_DOCUMENTS)] == []


def by_room(modules: list[str]) -> str:
    """One line for each room: how many, and which."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        rooms[room(module)].append(module.removeprefix(f"{room(module)}/").removesuffix(".py"))
    return "\n".join(f"{name}: {len(rooms[name])}: {', '.join(rooms[name])}" for name in sorted(rooms))


def room(module: str) -> str:
    """As docs/architecture.md has them: `manciple/store`, `scheduling/cel`, `claims`."""
    first, second, *deeper = module.split("/")
    inner = first == "manciple" or (first, second) in {("scheduling", "cel"), ("scheduling", "allocator")}
    return f"{first}/{second}" if inner and deeper else first
