"""When the embedded system is ready: an applied pod could run now.

`/readyz` asks these beside the API's own checks; each raises `NotReady` saying what is missing.
"""

from __future__ import annotations

from inventory.models import Node, Pool
from manciple.api import health
from manciple.processes.nodes import Nodes
from manciple.processes.worker import EmbeddedWorker


def register(*, worker: EmbeddedWorker, nodes: Nodes) -> None:
    """Let `/readyz` wait for everything that a pod needs."""

    def scheduling() -> None:
        if not worker.alive():
            raise health.NotReady("the Celery worker has stopped")

    def agents() -> None:
        started = nodes.started()
        if started < len(nodes.names):
            raise health.NotReady(f"{started} of {len(nodes.names)} node agents have started")

    def registered() -> None:
        ready = Node.objects.filter(ready=True, name__in=nodes.names).count()
        if ready < len(nodes.names):
            raise health.NotReady(f"{ready} of {len(nodes.names)} nodes are ready")

    def devices() -> None:
        pools = Pool.objects.filter(complete=True, node_name__in=nodes.names)
        published = pools.values("node_name").distinct().count()
        if published < len(nodes.names):
            raise health.NotReady(f"{published} of {len(nodes.names)} nodes have published their devices")

    health.register("scheduling", scheduling)
    health.register("node-agents", agents)
    health.register("nodes-ready", registered)
    health.register("devices-published", devices)
