"""How many pods a second one worker process takes from created to bound, on an empty PostgreSQL.

The pods are there when the clock starts; their claims are made with their placement.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cases import cluster, documents
from cases.figures import Figure
from claims.models import AllocatedDevice, Pod
from manciple.controllers.coordination import utc_now
from scheduling.cycle.scheduler import SchedulingWorker


def _timed(step: Callable[[], Any]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure(*, nodes: int, devices: int, pods: int, budget: float) -> list[Figure]:
    """Everything in this process. The worker is warm: it has scheduled one pod before."""
    cluster.fill(nodes=nodes, devices=devices)
    worker = SchedulingWorker(utc_now)
    cluster.create(documents.pods(1, prefix="warm"))
    worker.run()
    creating = _timed(lambda: cluster.create(documents.pods(pods)))
    scheduling = _timed(worker.run)
    bound = Pod.objects.exclude(node_name="").count()
    assert bound == AllocatedDevice.objects.count() == pods + 1, f"{bound} of {pods + 1} pods are bound"
    size = f"{nodes} nodes x {devices}"
    return [
        Figure(name=f"{size}: creating pods", value=pods / creating, unit="pods/s"),
        Figure(
            name=f"{size}: claims and scheduling",
            value=pods / scheduling,
            unit="pods/s",
            budget=budget,
            at_least=True,
        ),
    ]
