"""One Deployment of many pods, each with a device of its own by template: how soon they are there, and what they cost.

A fleet of nodes renews its Leases all the while; no agent reports that a pod runs. Then, one after the other:

    idle     nobody but the fleet
    pods     the Deployment is created; a watch counts its pods, and those that are bound
    idle     with all pods there

CPU is that of the server processes (API, workers, PostgreSQL, Redis).
"""

from __future__ import annotations

import asyncio
import json
import time

from cases import cluster, cpu, documents
from cases.connection import running
from cases.documents import TEMPLATE
from cases.figures import Figure
from cases.fleet import fleet
from cases.installation import Installation, installed
from tests.builders import NAMESPACE

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Seconds of each idle measurement: several rounds of renewals.
IDLE_SECONDS = 20.0
#: Seconds until all pods are bound, at most.
PATIENCE = 900.0


def measure(*, nodes: int, devices: int, pods: int, workers: int) -> list[Figure]:
    cluster.fill(nodes=nodes, devices=devices)
    with installed(workers=workers) as installation:
        return asyncio.run(_measure(installation, nodes=nodes, pods=pods))


async def _measure(installation: Installation, *, nodes: int, pods: int) -> list[Figure]:
    async with running(*fleet(installation.connect, documents.node_names(nodes))):
        before = await _idle()
        spent, started = cpu.by_role(), time.monotonic()
        answer = await installation.connect().request("POST", DEPLOYMENTS, json.dumps(deployment(pods)).encode())
        assert answer.status == 201, answer
        created, bound = await asyncio.wait_for(_counted(installation, pods, started), PATIENCE)
        costs = {role: seconds * 1000 / pods for role, seconds in cpu.since(spent).items()}
        after = await _idle()
    return [
        Figure(name=f"{pods:,} pods: created", value=pods / created, unit="pods/s"),
        Figure(name=f"{pods:,} pods: created and bound", value=pods / bound, unit="pods/s", budget=200, at_least=True),
        Figure(name="CPU a pod", value=sum(costs.values()), unit="ms"),
        *(Figure(name=f"  {role}", value=cost, unit="ms") for role, cost in costs.items()),
        Figure(name=f"{nodes} nodes, idle", value=sum(before.values()) * 100, unit="% core"),
        Figure(name=f"{nodes} nodes, {pods:,} pods, idle", value=sum(after.values()) * 100, unit="% core"),
    ]


async def _idle() -> dict[str, float]:
    """role -> share of a core."""
    await asyncio.sleep(documents.RENEWAL)
    before, started = cpu.by_role(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    passed = time.monotonic() - started
    return {role: seconds / passed for role, seconds in cpu.since(before).items()}


async def _counted(installation: Installation, pods: int, started: float) -> tuple[float, float]:
    """Seconds from `started` until the watch has shown so many pods, and so many that are bound."""
    names, bound, created = set[str](), set[str](), 0.0
    async for line in installation.connect().lines(f"{PODS}?watch=true"):
        pod = json.loads(line)["object"]
        names.add(pod["metadata"]["name"])
        if len(names) == pods and not created:
            created = time.monotonic() - started
        if pod["spec"].get("nodeName"):
            bound.add(pod["metadata"]["name"])
        if len(bound) == pods:
            return created, time.monotonic() - started
    raise RuntimeError("the watch ended")


def deployment(replicas: int) -> dict[str, object]:
    labels = {"app": "web"}
    container = {"name": "app", "image": "example.com/app", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "resourceClaims": claims}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }
