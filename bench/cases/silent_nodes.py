"""Pods are created at a steady rate through the API while many nodes fall silent at once.

Some nodes renew their Leases all the time; the others never do after they were made, so that all of them are silent
forty seconds later. Each of these has pods, half of which tolerate its silence for a few seconds only. A pod's delay is
from its POST to the watch that shows it bound: before the first node is marked, and from then until all are.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from cases import cluster, cpu, documents, latency
from cases.connection import running
from cases.figures import Figure, quantile
from cases.fleet import fleet
from cases.installation import Installation, installed
from claims.kinds.pods import Toleration
from inventory.kinds.nodes import UNREACHABLE
from inventory.models import Node
from manciple.wire.base import ApiObject
from manciple.wire.codec import encode
from tests.builders import make_pod

#: Nodes that are well; the first by name.
HEALTHY = 100
#: Pods on each silent node, and how long every second of them stays there (seconds).
RESIDENTS, STAY = 4, 5
#: Connections that create pods.
CLIENTS = 4
#: Seconds that go on after the last node was marked: evictions come then.
AFTER = 10.0
#: Seconds after which the silence must have been noticed.
PATIENCE = 120.0


@dataclass(slots=True)
class Phase:
    """posted: pod -> when it was sent (monotonic seconds)."""

    began: float = field(default_factory=time.perf_counter)
    posted: dict[str, float] = field(default_factory=dict)
    #: when the last node was marked
    marked: float = 0.0
    cpu: dict[str, float] = field(default_factory=cpu.by_role)


def measure(*, silent: int, devices: int, rate: float) -> list[Figure]:
    cluster.fill(nodes=HEALTHY + silent, devices=devices)
    cluster.create(_residents(silent))
    with installed(workers=2) as installation:
        bound: dict[str, float] = {}
        threading.Thread(target=latency.watch, args=(installation, bound), daemon=True).start()
        before, during = asyncio.run(_measure(installation, silent=silent, rate=rate, bound=bound))
        revoked = sum("revoked" in line for one in installation.processes.values() for line in one.output)
    return [
        *figures("before", before, bound),
        *figures(f"while {silent:,} nodes fall silent", during, bound, budget=1000),
        Figure(name="all marked within", value=during.marked - during.began, unit="s"),
        Figure(name="messages told of as discarded", value=revoked, unit="", budget=0),
    ]


def _residents(silent: int) -> Iterable[ApiObject]:
    brief = Toleration(key=UNREACHABLE, operator="Exists", effect="NoExecute", toleration_seconds=STAY)
    for number in range(HEALTHY, HEALTHY + silent):
        for one in range(RESIDENTS):
            tolerations = (brief,) if one % 2 else ()
            yield make_pod(f"resident-{number}-{one}", node=f"node-{number:05}", tolerations=tolerations)


async def _measure(
    installation: Installation, *, silent: int, rate: float, bound: dict[str, float]
) -> tuple[Phase, Phase]:
    async with running(*fleet(installation.connect, documents.node_names(HEALTHY))):
        before = Phase()
        async with creating(installation, before, "before", rate):
            await until(lambda: _marked() > 0)
        before.cpu = cpu.since(before.cpu)
        during = Phase()
        async with creating(installation, during, "during", rate):
            await until(lambda: _marked() >= silent)
            during.marked = time.perf_counter()
            await asyncio.sleep(AFTER)
        during.cpu = cpu.since(during.cpu)
        await until(lambda: before.posted.keys() | during.posted.keys() <= bound.keys())
    return before, during


def _marked() -> int:
    return Node.objects.filter(ready=False).count()


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(condition):
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} stayed false for {PATIENCE:.0f} s")
        await asyncio.sleep(0.1)


def creating(installation: Installation, phase: Phase, prefix: str, rate: float) -> AbstractAsyncContextManager[None]:
    """Pods come at `rate` a second."""

    async def create(client: int) -> None:
        connection = installation.connect()
        bodies = ((pod.metadata.name, encode(pod)) for pod in documents.pods(10**6, prefix=f"{prefix}-{client}"))
        due = time.perf_counter() + client / rate
        for name, body in bodies:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            due += CLIENTS / rate
            phase.posted[name] = time.perf_counter()
            answer = await connection.request("POST", latency.PODS, body)
            if answer.status != 201:
                raise RuntimeError(f"{name}: {answer}")

    return running(*map(create, range(CLIENTS)))


def figures(name: str, phase: Phase, bound: dict[str, float], *, budget: float | None = None) -> list[Figure]:
    took = [(bound[pod] - sent) * 1000 for pod, sent in phase.posted.items()]
    return [
        Figure(name=f"{name}: POST to bound, p50", value=quantile(took, 0.5), unit="ms"),
        Figure(name=f"{name}: POST to bound, p99", value=quantile(took, 0.99), unit="ms"),
        Figure(name=f"{name}: POST to bound, longest", value=max(took), unit="ms", budget=budget),
        *(
            Figure(name=f"{name}: CPU of {role}", value=seconds / len(took) * 1000, unit="ms/pod")
            for role, seconds in phase.cpu.items()
        ),
    ]
