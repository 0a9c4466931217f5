"""Starts the scheduler as a worker does, decides one pod and prints the node, the reason, and our imported modules.

    python -m tests.scheduling.placement.decide
    decided(home, MANCIPLE_PLACEMENT="pack")     the same in a fresh interpreter, from a test

The pod asks for one device. `node-small` has two of them, `node-large` five, which costs less.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command

from tests.examples import MIGRATED

ROOT = Path(__file__).resolve().parents[3]


def decided(home: Path, **settings: str) -> dict[str, Any]:
    """What a fresh interpreter with these settings decides. home: also a folder of modules."""
    elsewhere = {"MANCIPLE_DATABASE_URL", "MANCIPLE_REDIS_URL"}
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere} | {
        "MANCIPLE_HOME": str(home),
        "DJANGO_SETTINGS_MODULE": "manciple.settings",
        "PYTHONPATH": str(home),
        **settings,
    }
    if MIGRATED in os.environ:  # migrating takes a second
        shutil.copy(os.environ[MIGRATED], home / "manciple.sqlite3")
    command = [sys.executable, "-m", "tests.scheduling.placement.decide"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    django.setup()
    if MIGRATED not in os.environ:  # a copy of a migrated database otherwise
        call_command("migrate", verbosity=0)
    from manciple.controllers.declaration import controllers
    from manciple.wire.resources import CLAIMS, PODS
    from scheduling.cycle import scheduler
    from scheduling.queue.verdicts import Placement
    from scheduling.state.cluster import ClusterState
    from tests.builders import (
        make_claim,
        make_class,
        make_devices,
        make_node,
        make_pod,
        make_slice,
    )
    from tests.scheduling.cluster import kind_of

    assert controllers.value
    state, pod = ClusterState(), make_pod("web", claims={"gpu": "web"}, meta={"uid": "web"})
    state.put(kind_of(make_class()).resource, make_class())
    for name, size, price in (("node-small", 2, "9"), ("node-large", 5, "3")):
        for obj in (make_node(name, labels={"price": price}), make_slice(node=name, devices=make_devices(size))):
            state.put(kind_of(obj).resource, obj)
    state.put(CLAIMS, make_claim("web"))
    state.put(PODS, pod)
    decided = scheduler.decide(state, pod)
    assert isinstance(decided, Placement)
    ours = sorted(name for name in sys.modules if name.partition(".")[0] in ("scheduling", "site_policies"))
    print(json.dumps({"node": decided.node, "why": decided.why, "modules": ours}))


if __name__ == "__main__":
    main()
