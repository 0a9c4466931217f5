"""What deciding about a large gang costs: `python bench/gangs.py` prints seconds of CPU beside their budgets.

250 nodes of 8 devices in 25 racks, and a gang of 2,000 pods with a claim for one device each:

    free       every device is free
    spread     the same, where the gang prefers to stay within a rack
    one rack   the same, where it has to: no rack is large enough
    full       each device is held by a pod that is less important and may not be evicted

While a gang is decided about no other pod is placed, unless pods of other namespaces wait and its slice has passed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

import django

django.setup()

from cases.figures import Figure  # noqa: E402
from msgspec import structs  # noqa: E402

from claims.kinds.pod_groups import GANG, GANG_SIZE, PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY  # noqa: E402
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES  # noqa: E402
from scheduling.allocator import Features  # noqa: E402
from scheduling.cycle import scheduler  # noqa: E402
from scheduling.cycle.gangs import decide_with_group  # noqa: E402
from scheduling.cycle.post_filter import Remedies  # noqa: E402
from scheduling.queue.verdicts import AnyVerdict, GroupVerdict, Placement  # noqa: E402
from scheduling.state.cluster import ClusterState  # noqa: E402
from tests.builders import make_claim, make_class, make_devices, make_node, make_pod, make_request, make_slice  # noqa: E402

RACK, RACKS, DEVICES = "example.com/rack", 25, 8
NOW = datetime(2026, 1, 2, tzinfo=UTC)
#: case -> its topology annotation and its budget in seconds
CASES: dict[str, tuple[dict[str, str], float]] = {
    "free": ({}, 2),
    "spread": ({PREFERRED_TOPOLOGY: RACK}, 4),
    "one rack": ({REQUIRED_TOPOLOGY: RACK}, 2),
    "full": ({}, 2),
}


def cluster(nodes: int) -> ClusterState:
    state = ClusterState(Features())
    state.put(CLASSES, make_class())
    for number in range(nodes):
        name = f"node-{number:04}"
        state.put(NODES, make_node(name, labels={RACK: f"r-{number % RACKS}"}))
        state.put(SLICES, make_slice(node=name, devices=make_devices(DEVICES)))
    return state


def decide(
    state: ClusterState, gang: str, pods: int, priority: int, annotations: dict[str, str]
) -> Sequence[AnyVerdict]:
    """The verdicts on a gang, all of whose pods wait."""
    for number in range(pods):
        name = f"{gang}-{number}"
        state.put(CLAIMS, make_claim(name, requests=[make_request()], uid=f"claim-{name}"))
        meta = {"uid": name, "annotations": {GANG: gang, GANG_SIZE: str(pods), **annotations}}
        state.put(PODS, make_pod(name, claims={"gpu": name}, priority=priority, meta=meta))
    return decide_with_group(state, state.pending[f"{gang}-0"], Remedies(now=NOW), scheduler.decide_one)


def fill(state: ClusterState, pods: int) -> None:
    (filling,) = decide(state, "low", pods, 0, {})
    assert isinstance(filling, GroupVerdict)
    state.overlay.undo()
    for one in filling.verdicts:
        assert isinstance(one, Placement)
        for claim in one.claims:
            given = structs.replace(claim.status, allocation=one.allocations[claim.metadata.uid])
            state.put(CLAIMS, structs.replace(claim, status=given))
        state.put(PODS, structs.replace(one.pod, spec=structs.replace(one.pod.spec, node_name=one.node)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=250)
    options = parser.parse_args()
    pods = options.nodes * DEVICES
    for name, (topology, budget) in CASES.items():
        state = cluster(options.nodes)
        if name == "full":
            fill(state, pods)
        began = time.process_time()
        (verdict,) = decide(state, "train", pods, 100, topology)
        took = time.process_time() - began
        assert isinstance(verdict, GroupVerdict)
        assert verdict.scheduled == (name in ("free", "spread")), name
        print(Figure(name=f"{name}: {pods:,} pods", value=took, unit="s", budget=budget).row(), flush=True)


if __name__ == "__main__":
    main()
