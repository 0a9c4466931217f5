"""Starts the scheduler as a worker does, decides one pod and prints the node, the reason, and our imported modules.

    python -m tests.scheduling.placement.decide

The pod asks for one device. `node-small` has two of them, `node-large` five, which costs less.
"""

from __future__ import annotations

import json
import sys

import django
from django.core.management import call_command


def main() -> None:
    django.setup()
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
