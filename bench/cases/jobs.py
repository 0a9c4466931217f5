"""Many Jobs of one pod, each with a device of its own by template: how soon they run, what they cost at rest, how soon
they are gone, and what somebody else sees meanwhile, whose namespace has nothing to do with them.

A fleet of nodes renews its Leases all the while; no agent reports that a pod runs. Then, one after the other:

    at rest    nobody but the fleet
    pods       clients create the pods that the Jobs would make, and nothing else; then these go with their namespace
    jobs       as many clients create the Jobs; a watch counts the pods that are bound
    at rest    with all Jobs there
    each       the Jobs are deleted one by one, as `kubectl delete job --all` does
    namespace  as many Jobs again, whose namespace is deleted
    at rest    nobody but the fleet again

While pods and Jobs come and go, a ConfigMap is created ten times a second in another namespace.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from cases import cluster, cpu, documents
from cases.connection import COME_BACK, Connection, running
from cases.deployment import PATIENCE, UNATTENDED, at_rest, counted, gone, watching
from cases.documents import TEMPLATE
from cases.figures import Figure, quantile
from cases.fleet import fleet
from cases.installation import Installation, installed
from manciple.wire.codec import encode
from tests.builders import NAMESPACE, make_template

TEAM = "team"
JOBS, PODS = f"/apis/batch/v1/namespaces/{TEAM}/jobs", f"/api/v1/namespaces/{TEAM}/pods"
TEAMS = "/api/v1/namespaces"
TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{TEAM}/resourceclaimtemplates"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
CLIENTS, PAUSE = 30, 0.1


def measure(*, nodes: int, devices: int, jobs: int, workers: int) -> list[Figure]:
    cluster.fill(nodes=nodes, devices=devices)
    with installed(workers=workers) as installation:
        return asyncio.run(_measure(installation, nodes=nodes, jobs=jobs))


async def _measure(installation: Installation, *, nodes: int, jobs: int) -> list[Figure]:
    connect, figures = installation.connect, list[Figure]()
    async with running(*fleet(connect, documents.node_names(nodes)), watching(connect())):
        figures += [one async for one in at_rest(f"{nodes} nodes")]
        async with _neighbour(connect(), "pods are created", figures):
            figures += await _create(connect, "pods", PODS, pod, jobs)
        await _timed(_accepted(connect(), "DELETE", f"{TEAMS}/{TEAM}"), _forgotten(connect()))
        async with _neighbour(connect(), "Jobs are created", figures):
            figures += await _create(connect, "Jobs", JOBS, job, jobs)
        figures += [one async for one in at_rest(f"{nodes} nodes, {jobs:,} Jobs")]
        async with _neighbour(connect(), "Jobs are deleted one by one", figures):
            took = await _timed(_delete_each(connect(), jobs), gone(connect(), PODS))
        figures.append(Figure(name=f"{jobs:,} Jobs: deleted one by one", value=took, unit="s"))
        await _create(connect, "Jobs", JOBS, job, jobs)
        async with _neighbour(connect(), "Jobs are deleted with their namespace", figures):
            took = await _timed(_accepted(connect(), "DELETE", f"{TEAMS}/{TEAM}"), _forgotten(connect()))
        figures.append(Figure(name=f"{jobs:,} Jobs: deleted with their namespace", value=took, unit="s"))
        figures += [one async for one in at_rest(f"{nodes} nodes, Jobs deleted")]
    return figures


async def _create(
    connect: Callable[[], Connection], name: str, path: str, made: Callable[[str], object], number: int
) -> list[Figure]:
    """So many of what `made` makes: how soon all were accepted and their pods bound, and the CPU of the servers."""
    await _accepted(connect(), "POST", TEAMS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    await _accepted(connect(), "POST", TEMPLATES, json.loads(encode(make_template(TEMPLATE, namespace=TEAM))))
    spent, started = cpu.by_role(), time.monotonic()
    counting = asyncio.create_task(counted(connect(), PODS, number, started))
    numbers = range(number)
    await asyncio.gather(*(_post(connect(), path, made, numbers[first::CLIENTS]) for first in range(CLIENTS)))
    posted = time.monotonic() - started
    _, bound = await asyncio.wait_for(counting, PATIENCE)
    costs = {role: seconds * 1000 / number for role, seconds in cpu.since(spent).items()}
    return [
        Figure(name=f"{number:,} {name}: created", value=number / posted, unit=f"{name}/s"),
        Figure(name=f"{number:,} {name}: created, pods bound", value=number / bound, unit=f"{name}/s"),
        Figure(name="CPU each", value=sum(costs.values()), unit="ms"),
        *(Figure(name=f"  {role}", value=cost, unit="ms") for role, cost in costs.items()),
    ]


async def _post(connection: Connection, path: str, made: Callable[[str], object], numbers: Sequence[int]) -> None:
    for number in numbers:
        await _accepted(connection, "POST", path, made(f"job-{number:05}"))


async def _delete_each(connection: Connection, jobs: int) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    for number in range(jobs):
        await _accepted(connection, "DELETE", f"{JOBS}/job-{number:05}", options)


async def _forgotten(connection: Connection) -> None:
    while (await connection.request("GET", f"{TEAMS}/{TEAM}")).status != 404:
        await asyncio.sleep(0.5)


async def _accepted(connection: Connection, method: str, path: str, body: object = None) -> None:
    text = b"" if body is None else json.dumps(body).encode()
    while (answer := await connection.request(method, path, text)).status in COME_BACK:
        await asyncio.sleep(answer.retry_after or PAUSE)
    assert answer.status < 300 or answer.status == 409, answer


async def _timed(*steps: Awaitable[None]) -> float:
    started = time.monotonic()
    for step in steps:
        await asyncio.wait_for(step, PATIENCE)
    return time.monotonic() - started


@asynccontextmanager
async def _neighbour(connection: Connection, name: str, figures: list[Figure]) -> AsyncIterator[None]:
    """Somebody with another namespace is at work meanwhile; adds how long they waited."""
    took = list[float]()

    async def work() -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
        while True:
            began = time.monotonic()
            await _accepted(connection, "POST", CONFIG_MAPS, body)
            took.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(PAUSE)

    async with running(work()):
        yield
    figures += [
        Figure(name=f"a POST elsewhere while {name}: {shown}", value=value, unit="ms")
        for shown, value in (("p50", quantile(took, 0.5)), ("p99", quantile(took, 0.99)), ("longest", max(took)))
    ]


def pod(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": _pod_spec()}


def job(name: str) -> dict[str, object]:
    spec = {"template": {"spec": _pod_spec()}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _pod_spec() -> dict[str, object]:
    container = {"name": "app", "image": "example.com/app", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    return {**UNATTENDED, "restartPolicy": "Never", "containers": [container], "resourceClaims": claims}
