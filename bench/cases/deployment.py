"""One Deployment of many pods, each with a device of its own by template: how soon they are there, and what they cost.

A fleet of nodes renews its Leases all the while, and an agent without pods watches for some: the first watch has a
process follow the log, which costs the same ever after. No agent reports that a pod runs. Then, one after the other:

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

from asgiref.sync import sync_to_async
from django.db import connection as database

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
    async with running(*fleet(installation.connect, documents.node_names(nodes)), watching(installation.connect())):
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
    before, started, read = cpu.by_role(), time.monotonic(), await sync_to_async(rows_read)()
    await asyncio.sleep(IDLE_SECONDS)
    passed, read = time.monotonic() - started, await sync_to_async(rows_read)() - read
    shares = {role: seconds / passed for role, seconds in cpu.since(before).items()}
    yield Figure(name=f"{name}: idle", value=sum(shares.values()) * 100, unit="% core")
    for role, share in shares.items():
        yield Figure(name=f"  {role}", value=share * 100, unit="% core")
    yield Figure(name="  rows and index entries that PostgreSQL read", value=read / passed, unit="a second")
    held = cpu.memory_by_role()
    for role in ("api", "workers"):
        yield Figure(name=f"  {role}", value=held[role], unit="MiB")


def rows_read() -> int:
    """So far, by all: unlike CPU it does not depend on what else the machine does."""
    statement = "SELECT tup_returned + tup_fetched FROM pg_stat_database WHERE datname = current_database()"
    with database.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])


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


async def watching(connection: Connection) -> None:
    """Without end, for pods of a node that has none."""
    while True:
        async for _ in connection.lines(f"{PODS}?watch=true&fieldSelector=spec.nodeName%3Dnobody"):
            pass


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
