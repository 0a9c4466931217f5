"""The agent's endpoint, put together from the parts of the agent that it tells about."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from claims.kinds.pods import Pod
from nodeagent.client import Client
from nodeagent.config import AgentConfig
from nodeagent.disk import Disk
from nodeagent.metrics import AgentMetrics
from nodeagent.registration import LEASE_DURATION, Registration
from nodeagent.runtimes.protocol import Runtime
from nodeagent.server.authentication import TokenReviewer
from nodeagent.server.health import Health, lease_renewed, threads_run, writable
from nodeagent.server.logs import Logs
from nodeagent.server.routes import Routes
from nodeagent.server.serving import AgentServer


def make_server(
    config: AgentConfig,
    *,
    client: Client,
    registration: Registration,
    threads: Callable[[], Sequence[threading.Thread]],
    pods: Callable[[], Sequence[Pod]],
    runtime: Runtime,
    metrics: AgentMetrics,
    disk: Disk,
    clock: Callable[[], float],
) -> AgentServer | None:
    """None where the configuration wants none. threads: the watches and workers, once they are started."""
    if config.listen is None:
        return None
    checks = {
        "watches": threads_run(threads),
        "checkpoint": writable(config.state_dir / "claims", disk),
        "lease": lease_renewed(lambda: registration.renewed_at, within=LEASE_DURATION),
    }
    routes = Routes(
        health=Health(checks),
        metrics=metrics.text,
        logs=Logs(pods, runtime, clock=clock),
        reviewer=TokenReviewer(client, node=config.node_name),
    )
    hosts = tuple(dict.fromkeys((config.node_name, config.node_ip, config.listen.host)))
    return AgentServer(config.listen, routes.respond, folder=config.state_dir / "serving", hosts=hosts)
