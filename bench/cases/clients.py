"""Many clients at once, through the API's HTTPS door: how fast they are served, and what a pod costs the servers.

A fleet of nodes renews its Leases every ten seconds all the while. Then, one after the other:

    idle     nobody but the fleet
    lone     one client creates pods one by one
    crowd    `clients` connections create pods from a template as fast as they are answered, until all are bound

CPU is that of the server processes (API, workers, PostgreSQL, Redis), the client's own is not in it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from cases import cluster, cpu, documents
from cases.connection import Connection, running
from cases.figures import Figure, quantile
from cases.fleet import fleet
from cases.installation import Installation, installed
from manciple.wire.codec import encode
from tests.builders import NAMESPACE

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Seconds of the idle measurement; several rounds of renewals and of every periodic task but the rarest.
IDLE_SECONDS = 20.0
LONE_PODS = 40
#: Seconds that binding may take after the last pod was created.
PATIENCE = 120.0


@dataclass(slots=True)
class _Crowd:
    """What the crowd saw."""

    created_within: float = 0.0  # seconds
    bound_within: float = 0.0  # seconds, from the same start
    took: list[float] = field(default_factory=list)  # milliseconds of each create
    codes: Counter[int] = field(default_factory=Counter)


def measure(*, nodes: int, devices: int, pods: int, clients: int, workers: int) -> list[Figure]:
    cluster.fill(nodes=nodes, devices=devices)
    with installed(workers=workers) as installation:
        return asyncio.run(_measure(installation, nodes=nodes, pods=pods, clients=clients))


async def _measure(installation: Installation, *, nodes: int, pods: int, clients: int) -> list[Figure]:
    async with running(*fleet(installation.connect, documents.node_names(nodes))):
        idle = await _idle(installation)
        lone = await _lone(installation)
        before = cpu.by_role()
        crowd = await _crowd(installation, pods=pods, clients=clients)
        spent = cpu.since(before)
    return [*_idle_figures(idle, nodes), *_lone_figures(lone), *_crowd_figures(crowd, spent, pods, clients)]


# The three phases ----------------------------------------------------------------------------------------------------


async def _idle(_installation: Installation) -> dict[str, float]:
    """role -> share of a core."""
    await asyncio.sleep(documents.RENEWAL)  # the first round: everything warms up
    before, started = cpu.by_role(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    passed = time.monotonic() - started
    return {role: seconds / passed for role, seconds in cpu.since(before).items()}


async def _lone(installation: Installation) -> list[float]:
    connection = installation.connect()
    took = []
    for body in _bodies(LONE_PODS, "lone"):
        started = time.perf_counter()
        answer = await connection.request("POST", PODS, body)
        took.append((time.perf_counter() - started) * 1000)
        assert answer.status == 201, answer
        await asyncio.sleep(0.1)
    await _all_bound(connection)
    connection.close()
    return took


async def _crowd(installation: Installation, *, pods: int, clients: int) -> _Crowd:
    crowd, bodies = _Crowd(), iter(list(_bodies(pods, "pod")))
    connections = [installation.connect() for _ in range(clients)]
    for connection in connections:  # everybody is there already, as clients with a connection pool are
        await connection.request("GET", f"{PODS}/nobody")
    started = time.monotonic()
    await asyncio.gather(*(_create(connection, bodies, crowd) for connection in connections))
    crowd.created_within = time.monotonic() - started
    await _all_bound(connections[0])
    crowd.bound_within = time.monotonic() - started
    for connection in connections:
        connection.close()
    return crowd


async def _create(connection: Connection, bodies: Iterator[bytes], crowd: _Crowd) -> None:
    for body in bodies:
        started = time.perf_counter()
        answer = await connection.request("POST", PODS, body)
        crowd.took.append((time.perf_counter() - started) * 1000)
        crowd.codes[answer.status] += 1


async def _all_bound(connection: Connection) -> None:
    end = time.monotonic() + PATIENCE
    while json.loads((await connection.request("GET", f"{PODS}?fieldSelector=spec.nodeName%3D&limit=1")).body)["items"]:
        if time.monotonic() > end:
            raise TimeoutError(f"pods were left without a node for {PATIENCE:.0f} s")
        await asyncio.sleep(0.2)


def _bodies(count: int, prefix: str) -> Iterator[bytes]:
    return (encode(pod) for pod in documents.pods(count, prefix=prefix))


# Figures -------------------------------------------------------------------------------------------------------------


def _idle_figures(shares: dict[str, float], nodes: int) -> list[Figure]:
    total = Figure(name=f"{nodes} idle nodes", value=sum(shares.values()) * 100, unit="% core", budget=15)
    return [total, *(Figure(name=f"  {role}", value=share * 100, unit="% core") for role, share in shares.items())]


def _lone_figures(took: list[float]) -> list[Figure]:
    return [
        Figure(name="a lone POST of a pod: p50", value=quantile(took, 0.5), unit="ms", budget=10),
        Figure(name="a lone POST of a pod: p90", value=quantile(took, 0.9), unit="ms"),
    ]


def _crowd_figures(crowd: _Crowd, spent: dict[str, float], pods: int, clients: int) -> list[Figure]:
    who = f"{clients} clients"
    costs = {role: seconds * 1000 / pods for role, seconds in spent.items()}
    refused = sum(count for code, count in crowd.codes.items() if code != 201)
    return [
        Figure(name=f"{who}: created", value=pods / crowd.created_within, unit="pods/s"),
        Figure(
            name=f"{who}: created and bound", value=pods / crowd.bound_within, unit="pods/s", budget=200, at_least=True
        ),
        Figure(name=f"{who}: a create, p50", value=quantile(crowd.took, 0.5), unit="ms"),
        Figure(name=f"{who}: a create, p99", value=quantile(crowd.took, 0.99), unit="ms", budget=700),
        Figure(name=f"{who}: creates refused", value=refused, unit="", budget=0),
        Figure(name="server CPU a pod", value=sum(costs.values()), unit="ms", budget=6),
        *(Figure(name=f"  {role}", value=cost, unit="ms") for role, cost in costs.items()),
    ]
