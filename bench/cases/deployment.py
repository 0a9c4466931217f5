"""One Deployment of many pods, each with a device of its own by template: how soon they are there, and what they cost.

A fleet of nodes renews its Leases all the while; no agent reports that a pod runs. Then, one after the other:

    at rest  nobody but the fleet
    pods     the Deployment is created; a watch counts its pods, and those that are bound
    at rest  with all pods there
    deleted  the Deployment is deleted, and its pods with it
    at rest  nobody but the fleet again

CPU and memory are those of the server processes (API, workers, PostgreSQL, Redis).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from cases import cluster, cpu, documents
from cases.connection import Connection, running
from cases.documents import TEMPLATE
from cases.figures import Figure
from cases.fleet import fleet
from cases.installation import Installation, installed
from tests.builders import NAMESPACE

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Seconds of each measurement at rest, in which all that runs once a minute runs once; and of the rest before it, in
#: which PostgreSQL's autovacuum, the audit trail and the like catch up with what was written.
IDLE_SECONDS, REST = 60.0, 75.0
#: Of a pod's spec: it has no agent that would end it.
UNATTENDED = {"terminationGracePeriodSeconds": 0}
#: Seconds until all pods are bound, or gone, at most.
PATIENCE = 900.0


def measure(*, nodes: int, devices: int, pods: int, workers: int) -> list[Figure]:
    cluster.fill(nodes=nodes, devices=devices)
    with installed(workers=workers) as installation:
        return asyncio.run(_measure(installation, nodes=nodes, pods=pods))


async def _measure(installation: Installation, *, nodes: int, pods: int) -> list[Figure]:
    async with running(*fleet(installation.connect, documents.node_names(nodes))):
        before = [one async for one in at_rest(f"{nodes} nodes")]
        spent, started = cpu.by_role(), time.monotonic()
        answer = await installation.connect().request("POST", DEPLOYMENTS, json.dumps(deployment(pods)).encode())
        assert answer.status == 201, answer
        created, bound = await asyncio.wait_for(counted(installation.connect(), PODS, pods, started), PATIENCE)
        costs = {role: seconds * 1000 / pods for role, seconds in cpu.since(spent).items()}
        during = [one async for one in at_rest(f"{nodes} nodes, {pods:,} pods")]
        started = time.monotonic()
        answer = await installation.connect().request("DELETE", f"{DEPLOYMENTS}/web")
        assert answer.status == 200, answer
        await asyncio.wait_for(gone(installation.connect(), PODS), PATIENCE)
        deleted = time.monotonic() - started
        after = [one async for one in at_rest(f"{nodes} nodes, pods deleted")]
    return [
        Figure(name=f"{pods:,} pods: created", value=pods / created, unit="pods/s"),
        Figure(name=f"{pods:,} pods: created and bound", value=pods / bound, unit="pods/s", budget=200, at_least=True),
        Figure(name=f"{pods:,} pods: deleted", value=pods / deleted, unit="pods/s"),
        Figure(name="CPU a pod, created and bound", value=sum(costs.values()), unit="ms"),
        *(Figure(name=f"  {role}", value=cost, unit="ms") for role, cost in costs.items()),
        *before,
        *during,
        *after,
    ]


async def at_rest(name: str) -> AsyncIterator[Figure]:
    """What the servers use while nothing happens but renewals."""
    await asyncio.sleep(REST)
    before, started = cpu.by_role(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    passed = time.monotonic() - started
    shares = {role: seconds / passed for role, seconds in cpu.since(before).items()}
    yield Figure(name=f"{name}: idle", value=sum(shares.values()) * 100, unit="% core")
    for role, share in shares.items():
        yield Figure(name=f"  {role}", value=share * 100, unit="% core")
    held = cpu.memory_by_role()
    for role in ("api", "workers"):
        yield Figure(name=f"  {role}", value=held[role], unit="MiB")


async def counted(connection: Connection, path: str, pods: int, started: float) -> tuple[float, float]:
    """Seconds from `started` until a watch of `path` has shown so many pods, and so many that are bound."""
    names, bound, created = set[str](), set[str](), 0.0
    async for line in connection.lines(f"{path}?watch=true"):
        pod = json.loads(line)["object"]
        names.add(pod["metadata"]["name"])
        if len(names) == pods and not created:
            created = time.monotonic() - started
        if pod["spec"].get("nodeName"):
            bound.add(pod["metadata"]["name"])
        if len(bound) == pods:
            return created, time.monotonic() - started
    raise RuntimeError("the watch ended")


async def gone(connection: Connection, path: str) -> None:
    """Until a list of `path` is empty."""
    while json.loads((await connection.request("GET", f"{path}?limit=1")).body)["items"]:
        await asyncio.sleep(0.5)


def deployment(replicas: int) -> dict[str, object]:
    labels = {"app": "web"}
    container = {"name": "app", "image": "example.com/app", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    template = {
        "metadata": {"labels": labels},
        "spec": {**UNATTENDED, "containers": [container], "resourceClaims": claims},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }
