"""One workload of scheduler_perf, played to the API of a production installation by HTTPS clients.

Everything is created through the API: nodes, slices, classes, claims, templates, the pods that are there before, and
those that are timed. Throughput counts from the first create to the last binding. CPU and memory are those of the
servers; the CPU includes the renewals of every node's Lease, which scheduler_perf goes without. That of the clients,
who renew these Leases as well, stands beside it: scheduler_perf has clients and servers in one process.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cases import cpu, documents
from cases.connection import MERGE_PATCH, Connection, running
from cases.figures import Figure
from cases.fleet import LEASES, fleet
from cases.installation import Installation, installed
from cases.workloads import (
    DRIVER,
    INIT,
    RESOURCE,
    TAINT_RULES,
    TEST,
    Document,
    PerfWorkload,
    claim,
    local_slice,
    node,
    node_name,
    shared_claims,
    template,
)

#: Connections that create what is asked for, as scheduler_perf's.
CLIENTS = 30
#: Seconds between two renewals of a Lease. (Kubelet renews every 10 s; a node is silent after 40.)
RENEWAL = 20.0
#: Seconds for the pods to be bound after the last was created.
PATIENCE = 600.0
#: Seconds that the installation has to read what was created, before anything is timed.
SETTLING = 5.0

#: The namespace of claims that nobody's pod uses.
HELD = INIT
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "DeviceTaintRule": f"/apis/{TAINT_RULES}/devicetaintrules",
    "DeviceClass": f"/apis/{RESOURCE}/deviceclasses",
    "ResourceSlice": f"/apis/{RESOURCE}/resourceslices",
    "Pod": "/api/v1/namespaces/{}/pods",
    "ResourceClaim": f"/apis/{RESOURCE}/namespaces/{{}}/resourceclaims",
    "ResourceClaimTemplate": f"/apis/{RESOURCE}/namespaces/{{}}/resourceclaimtemplates",
}


def measure(name: str, workload: PerfWorkload, *, workers: int) -> list[Figure]:
    with installed(workers=workers) as installation:
        return asyncio.run(_Play(installation, workload).measured(name))


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    document: Document
    media: str = "application/json"


class _Play:
    def __init__(self, installation: Installation, workload: PerfWorkload) -> None:
        self._installation, self._workload = installation, workload

    async def measured(self, name: str) -> list[Figure]:
        workload, started = self._workload, cpu.by_role()
        await self._send(_create(_lease(number), LEASES) for number in range(workload.nodes))
        names = [node_name(number) for number in range(workload.nodes)]
        async with running(*fleet(self._installation.connect, names, every=RENEWAL)):
            await self._set_up()
            await self._create_and_bind(INIT, workload.first)
            await asyncio.sleep(SETTLING)
            before, begun, ours = cpu.by_role(), time.monotonic(), time.process_time()
            pods = await (self._steadily() if workload.seconds else self._create_and_bind(TEST, workload.pods))
            passed, spent, ours = time.monotonic() - begun, cpu.since(before), time.process_time() - ours
        each = {role: used * 1000 / max(pods, 1) for role, used in spent.items()}
        return [
            Figure(name=name, value=pods / passed, unit="pods/s"),
            Figure(name="  server CPU a pod", value=sum(each.values()), unit="ms"),
            *(Figure(name=f"    {role}", value=used, unit="ms") for role, used in each.items()),
            Figure(name="  CPU a pod of the clients", value=ours * 1000 / max(pods, 1), unit="ms"),
            Figure(name="  server CPU of the whole run", value=sum(cpu.since(started).values()), unit="s"),
            Figure(name="  memory of the servers", value=sum(cpu.memory_by_role().values()), unit="MiB"),
        ]

    # What is there before --------------------------------------------------------------------------------------------

    async def _set_up(self) -> None:
        workload = self._workload
        await self._create(node(number) for number in range(workload.nodes))
        await self._create(workload.rules)
        if workload.devices:
            await self._create(local_slice(number, workload.devices) for number in range(workload.nodes))
        if workload.pool is not None:
            await self._create(part for number in range(workload.pools) for part in workload.pool(number))
        await self._create(workload.classes)
        for namespace, pods in ((INIT, workload.first), (TEST, workload.pods)):
            await self._create([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
            if workload.asked is not None:
                await self._create([template(workload.asked)], namespace)
            await self._create(shared_claims(workload, pods), namespace)
        await self._hold()

    async def _hold(self) -> None:
        """Claims that are allocated without anybody who uses them."""
        workload = self._workload
        if workload.holding is None:
            return
        await self._create((claim(number) for number in range(workload.held)), HELD)
        await self._send(_allocate(number, *workload.holding(number)) for number in range(workload.held))

    # What is timed ---------------------------------------------------------------------------------------------------

    async def _create_and_bind(self, namespace: str, pods: int) -> int:
        await self._create((self._workload.pod(number) for number in range(pods)), namespace)
        connection, end = self._installation.connect(), time.monotonic() + PATIENCE
        unbound = PLURALS["Pod"].format(namespace) + "?fieldSelector=spec.nodeName%3D&limit=1"
        while json.loads((await connection.request("GET", unbound)).body)["items"]:
            if time.monotonic() > end:
                raise TimeoutError(f"pods were left without a node for {PATIENCE:.0f} s")
            await asyncio.sleep(0.1)
        connection.close()
        return pods

    async def _steadily(self) -> int:
        """Once all pods are bound they are deleted, and as many created. Returns how many were bound."""
        workload, bound, path = self._workload, 0, PLURALS["Pod"].format(TEST)
        with self._connected() as connections, suppress(TimeoutError):
            async with asyncio.timeout(workload.seconds):
                names = self._bound(path)
                while True:
                    pods = (workload.pod(bound + number) for number in range(workload.pods))
                    await _send_all((_create(pod, path) for pod in pods), connections)
                    for _ in range(workload.pods):
                        await anext(names)
                        bound += 1
                    await _send_all([_Request("DELETE", path, {"gracePeriodSeconds": 0})], connections)
        return bound

    async def _bound(self, path: str) -> AsyncIterator[str]:
        """The name of each pod once it has a node."""
        seen: set[str] = set()
        connection = self._installation.connect()
        async for line in connection.lines(f"{path}?watch=true"):
            pod = json.loads(line)["object"]
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") and name not in seen:
                seen.add(name)
                yield name

    # Requests --------------------------------------------------------------------------------------------------------

    async def _create(self, documents: Iterable[Document], namespace: str = "") -> None:
        await self._send(_create(one, PLURALS[one["kind"]].format(namespace)) for one in documents)

    async def _send(self, requests: Iterable[_Request]) -> None:
        with self._connected() as connections:
            await _send_all(requests, connections)

    @contextmanager
    def _connected(self) -> Iterator[list[Connection]]:
        connections = [self._installation.connect() for _ in range(CLIENTS)]
        yield connections
        for connection in connections:
            connection.close()


async def _send_all(requests: Iterable[_Request], connections: Iterable[Connection]) -> None:
    """One at a time by each connection."""
    waiting = iter(requests)
    await asyncio.gather(*(_send_each(waiting, connection) for connection in connections))


async def _send_each(waiting: Iterator[_Request], connection: Connection) -> None:
    for request in waiting:
        await _sent(connection, request)


def _create(document: Document, path: str) -> _Request:
    return _Request("POST", path, document)


def _lease(number: int) -> Document:
    spec = {"holderIdentity": node_name(number), "leaseDurationSeconds": 40, "renewTime": documents.now()}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node_name(number)},
        "spec": spec,
    }


def _allocate(number: int, pool: str, device: str) -> _Request:
    """A claim's status, written as a scheduler writes it."""
    name = f"test-claim-{number}"
    result = {"request": "req-0", "driver": DRIVER, "pool": pool, "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    path = f"{PLURALS['ResourceClaim'].format(HELD)}/{name}/status"
    return _Request("PATCH", path, {"status": status}, MERGE_PATCH)


async def _sent(connection: Connection, request: _Request) -> None:
    body = json.dumps(request.document).encode()
    answer = await connection.request(request.method, request.path, body, media=request.media)
    if answer.status >= 300:
        raise RuntimeError(f"{request.method} {request.path}: {answer.status} {answer.body.decode()[:500]}")
