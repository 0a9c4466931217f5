"""What a search for victims costs: `python bench/preemption.py` prints a table, `--json` a JSON line a case.

500 nodes of 10 devices, every device held by a pod of one of three lower priorities. A search is what the scheduler
does for one pod that fits nowhere (`decide`, with the search for a place before it). Budget: no search holds up a cycle
for more than 100 ms; milliseconds are the process's own time.

    one        a pod that wants one device
    four       one that wants four on one node
    match      one that wants four with the same attribute value, of which a node has two
    most       one that is more important than a third of the pods, and wants four
    hopeless   one that wants more than a node has
    resources  one that wants no devices, and most of a node's cpus
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

import django

django.setup()

from cases.figures import quantile  # noqa: E402

from claims.causes.causes import Evicting, NoNodeFits  # noqa: E402
from claims.kinds.pods import Pod  # noqa: E402
from claims.kinds.resource_claims import ResourceClaim  # noqa: E402
from inventory.kinds.devices import DeviceClass, ResourceSlice  # noqa: E402
from inventory.kinds.nodes import Node  # noqa: E402
from manciple.wire.base import timestamp  # noqa: E402
from manciple.wire.codec import decode_value  # noqa: E402
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES  # noqa: E402
from scheduling.allocator import Deadline  # noqa: E402
from scheduling.cycle.post_filter import Remedies  # noqa: E402
from scheduling.cycle.scheduler import decide  # noqa: E402
from scheduling.queue.verdicts import Wait  # noqa: E402
from scheduling.state.cluster import ClusterState  # noqa: E402

BUDGET = 100
NODES_THERE, DEVICES = 500, 10
PRIORITIES = (10, 20, 30)
DRIVER = "gpu.example.com"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
SEED = 20_261_123
Json = dict[str, Any]

#: devices wanted, priority, what else of the claim, cpus
CASES: dict[str, tuple[int, int, Json, str]] = {
    "one": (1, 100, {}, "1"),
    "four": (4, 100, {}, "1"),
    "match": (4, 100, {"constraints": [{"matchAttribute": f"{DRIVER}/pair"}]}, "1"),
    "most": (4, 20, {}, "1"),
    "hopeless": (11, 100, {}, "1"),
    "resources": (0, 100, {}, "14"),
}


def device(number: int) -> Json:
    return {"name": f"gpu-{number}", "attributes": {"index": {"int": number}, "pair": {"int": number // 2}}}


def busy_cluster() -> ClusterState:
    state, draw = ClusterState(), random.Random(SEED)
    expression = f'device.driver == "{DRIVER}"'
    state.put(
        CLASSES,
        decode_value(
            DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        ),
    )
    for number in range(NODES_THERE):
        node = f"node-{number:03}"
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        state.put(NODES, decode_value(Node, {"metadata": {"name": node}, "status": status}))
        spec: Json = {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": [device(one) for one in range(DEVICES)],
        }
        state.put(SLICES, decode_value(ResourceSlice, {"metadata": {"name": node}, "spec": spec}))
        for one in range(DEVICES):
            hold(state, node, f"gpu-{one}", draw)
    return state


def hold(state: ClusterState, node: str, name: str, draw: random.Random) -> None:
    """A pod that has one device."""
    own = f"{node}-{name}"
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": name}
    claim = claim_of(own, 1, {})
    claim["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": own, "uid": own}],
    }
    state.put(CLAIMS, decode_value(ResourceClaim, claim))
    pod = pod_of(own, draw.choice(PRIORITIES), "1", devices=True)
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running", "startTime": timestamp(NOW - timedelta(seconds=draw.randrange(80_000)))}
    state.put(PODS, decode_value(Pod, pod))


def claim_of(name: str, count: int, more: Json) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}], **more}
    return {"metadata": {"name": name, "namespace": "bench", "uid": f"claim-{name}"}, "spec": {"devices": devices}}


def pod_of(name: str, priority: int, cpu: str, *, devices: bool) -> Json:
    entries = [{"name": "gpu", "resourceClaimName": name}] if devices else []
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "bench", "uid": name},
        "spec": {"priority": priority, "containers": [container], "resourceClaims": entries},
    }


def run(state: ClusterState, name: str, searches: int) -> Json:
    """Each search is another pod's; what it decides is taken back. The first, which is cold, is not told."""
    count, priority, more, cpu = CASES[name]
    spent: list[float] = []
    victims = 0
    for number in range(searches + 1):
        own = f"{name}-{number}"
        if count:
            state.put(CLAIMS, decode_value(ResourceClaim, claim_of(own, count, more)))
        pod: Pod = decode_value(Pod, pod_of(own, priority, cpu, devices=bool(count)))
        remedies = Remedies(now=NOW, deadline=Deadline.after(10))
        began = time.process_time()
        with state.overlay.trying(pod):
            verdict = decide(state, pod, remedies)
        spent.append((time.process_time() - began) * 1000)
        state.overlay.undo()
        if not isinstance(verdict, Wait) or not isinstance(verdict.hold.cause, NoNodeFits):
            raise SystemExit(f"{name}: {verdict}")
        if isinstance(told := verdict.hold.cause.preemption, Evicting):
            victims = len(told.victims) + told.more
    spent = spent[1:]
    figures = {"p50_ms": quantile(spent, 0.5), "worst_ms": max(spent)}
    return {"case": name, "searches": searches, **figures, "budget_ms": BUDGET, "victims": victims}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    gc.collect()
    gc.freeze()  # as a worker does before it lists the cluster: what the collector takes is the search's
    state = busy_cluster()
    show: Callable[[Json], str] = json.dumps if asked.json else row
    if not asked.json:
        print(f"{'case':<12}{'p50 ms':>9}{'worst ms':>10}{'victims':>9}")
    for name in asked.case or CASES:
        print(show(run(state, name, asked.searches)), flush=True)


def row(found: Json) -> str:
    return f"{found['case']:<12}{found['p50_ms']:>9.1f}{found['worst_ms']:>10.1f}{found['victims']:>9}"


if __name__ == "__main__":
    main()
