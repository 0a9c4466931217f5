"""A large installation at rest: thousands of nodes with their agents, many pods on record, many watches.

All is on record before anything starts: nodes with twenty devices, and ten pods on each that hold one each. Then API
process and two workers are started and timed; agents' Leases are renewed every ten seconds by this process, and
each watch follows the pods of one node, as an agent does. Measured: CPU of each part at rest, its memory, its restart,
pods created meanwhile, lists of all slices in pages, at once and as a watch, and what the log grows by.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import connection
from msgspec import structs

from cases import cluster, cpu, documents
from cases.clients import IDLE_SECONDS, PODS
from cases.connection import Connection, running
from cases.figures import Figure, quantile
from cases.fleet import fleet
from cases.installation import Installation, installed
from claims.controllers.reservations import FINALIZER
from claims.kinds.pods import PodStatus
from manciple.store import objects, sql
from manciple.wire.codec import encode
from tests.builders import NAMESPACE, make_allocation, make_claim, make_consumer, make_pod, make_result, make_uid
from tests.e2e.processes import Process

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
#: Objects of a page, as clients of Kubernetes ask for them.
PAGE = 500
#: Pods that are created at rest, a tenth of a second apart.
CREATED = 50
#: Seconds of a watch that begins with all slices.
WATCHED = 30.0
#: Seconds that one may take.
PATIENCE = 60.0


@dataclass(slots=True)
class _Seen:
    """What was measured. shares: role -> of a core. listed: how -> (seconds, MiB that the API process grew by)."""

    shares: dict[str, float] = field(default_factory=dict)
    bound: list[float] = field(default_factory=list)  # milliseconds
    listed: dict[str, tuple[float, float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)  # status -> answers to renewals of Leases
    log_rows: float = 0.0  # a second
    dead: float = 0.0  # rows that vacuum has not cleared away, of all tables
    restarted: tuple[float, float] = (0.0, 0.0)  # seconds until a worker that was killed consumes again; of CPU


def measure(*, nodes: int, devices: int, pods: int, watches: int) -> list[Figure]:
    began = time.monotonic()
    # Everybody here comes as the administrator; agents and users would be many, each with limits of their own.
    os.environ |= {"MANCIPLE_IDENTITY_WATCHES": str(2 * watches), "MANCIPLE_IDENTITY_RATE": "0"}
    cluster.fill(nodes=nodes, devices=devices)
    _fill_with_pods(nodes, pods)
    cluster.stand_for_a_minute()
    filled = time.monotonic()
    with ExitStack() as running_parts:
        with cluster.alive(nodes):  # else they are silent when the first worker looks
            installation = running_parts.enter_context(installed(workers=2))
        started = time.monotonic()
        seen = asyncio.run(_measured(installation, nodes=nodes, watches=watches))
    return [
        Figure(name="written before", value=filled - began, unit="s"),
        Figure(name="start of API and two workers", value=started - filled, unit="s"),
        Figure(name="start of a worker that was killed", value=seen.restarted[0], unit="s", budget=10),
        Figure(name="  of CPU", value=seen.restarted[1], unit="s"),
        Figure(name="at rest", value=sum(seen.shares.values()) * 100, unit="% core", budget=50),
        *(Figure(name=f"  {role}", value=share * 100, unit="% core") for role, share in seen.shares.items()),
        *(
            Figure(name=f"renewals answered {code}", value=n / IDLE_SECONDS, unit="/s")
            for code, n in seen.codes.items()
        ),
        Figure(name="the log grows by", value=seen.log_rows, unit="rows/s"),
        Figure(name="rows to be vacuumed", value=seen.dead, unit=""),
        Figure(name="POST of a pod to bound, p50", value=quantile(seen.bound, 0.5), unit="ms"),
        Figure(name="POST of a pod to bound, longest", value=max(seen.bound), unit="ms"),
        *(Figure(name=f"memory of {name}", value=size, unit="MiB", budget=600) for name, size in seen.memory.items()),
        *_list_figures(seen),
    ]


def _list_figures(seen: _Seen) -> Iterator[Figure]:
    for how, (took, grown) in seen.listed.items():
        yield Figure(name=f"all slices {how}", value=took, unit="s")
        yield Figure(name="  the API process grows by at most", value=grown, unit="MiB")


# On record -----------------------------------------------------------------------------------------------------------


def _fill_with_pods(nodes: int, pods: int) -> None:
    """Running, each with a claim that holds a device of its node."""
    for numbers in sql.chunks(range(pods), cluster.BATCH // 2):
        with objects.writing() as writer:
            for number in numbers:
                name, node = f"resident-{number:06}", f"node-{number % nodes:05}"
                result = make_result(f"gpu-{number // nodes}", pool=node)
                claim = make_claim(
                    name,
                    allocation=make_allocation(result, node=node),
                    reserved_for=[make_consumer(name)],
                    finalizers=(FINALIZER,),
                )
                pod = make_pod(name, node=node, claims={"gpu": name})
                pod = structs.replace(pod, status=PodStatus(phase="Running"))
                writer.create(cluster.kind_of(claim), claim)
                writer.create(cluster.kind_of(pod), pod, uid=make_uid("Pod", NAMESPACE, name))


# At rest -------------------------------------------------------------------------------------------------------------


async def _measured(installation: Installation, *, nodes: int, watches: int) -> _Seen:
    seen = _Seen()
    codes = Counter[int]()
    agents = [*fleet(installation.connect, documents.node_names(nodes), codes=codes)]
    revision = await asyncio.to_thread(_last_revision)
    watching = [_watch(installation, f"node-{number % nodes:05}", revision) for number in range(watches)]
    async with running(*agents, *watching):
        await asyncio.sleep(2 * documents.RENEWAL)  # everything warms up
        before, rows, began = cpu.by_role(), await asyncio.to_thread(_last_revision), time.monotonic()
        codes.clear()
        await asyncio.sleep(IDLE_SECONDS)
        seen.codes = dict(codes)
        passed = time.monotonic() - began
        seen.shares = {role: seconds / passed for role, seconds in cpu.since(before).items()}
        seen.log_rows = (await asyncio.to_thread(_last_revision) - rows) / passed
        seen.dead = await asyncio.to_thread(_dead_rows)
        seen.bound = await _created(installation)
        seen.memory = {name: _resident(process, "VmRSS") for name, process in installation.processes.items()}
        for how, read in (("in pages", _in_pages), ("at once", _at_once), ("as a watch", _as_a_watch)):
            seen.listed[how] = await _growing(installation.processes["api"], read(installation.connect(), nodes))
        seen.restarted = await asyncio.to_thread(_restarted, installation.processes["worker-1"])
    return seen


async def _watch(installation: Installation, node: str, revision: int) -> None:
    """As an agent watches the pods of its node; nothing comes."""
    path = f"/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D{node}&resourceVersion={revision}"
    answer = await installation.connect().request("GET", f"{path}&timeoutSeconds=3600")
    raise RuntimeError(f"a watch has ended: {answer.status} {answer.body[-300:]!r}")


def _last_revision() -> int:
    return int(sql.counter()[0])


def _dead_rows() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(n_dead_tup) FROM pg_stat_user_tables")
        return float(cursor.fetchone()[0])


async def _created(installation: Installation) -> list[float]:
    """Milliseconds from each POST until the pod has a node; one after the other, asked for every 5 ms."""
    took, client = [], installation.connect()
    for pod in documents.pods(CREATED):
        began = time.perf_counter()
        answer = await client.request("POST", PODS, encode(pod))
        assert answer.status == 201, answer
        while not (found := await _get(client, pod.metadata.name))["spec"].get("nodeName"):
            if time.perf_counter() - began > PATIENCE:
                raise TimeoutError(f"a pod got no node: {found['status']}")
            await asyncio.sleep(0.005)
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.1)
    return took


async def _get(client: Connection, pod: str) -> dict[str, Any]:
    return dict(json.loads((await client.request("GET", f"{PODS}/{pod}")).body))


def _restarted(process: Process) -> tuple[float, float]:
    process.kill()
    process.output.clear()
    began = time.monotonic()
    process.start()
    process.line(r"ready\.")
    return time.monotonic() - began, process.worked()


# Lists ---------------------------------------------------------------------------------------------------------------


async def _in_pages(client: Connection, nodes: int) -> None:
    found, token = 0, ""
    while True:
        answer = await client.request("GET", f"{SLICES}?limit={PAGE}&continue={token}")
        page = json.loads(answer.body)
        found, token = found + len(page["items"]), page["metadata"].get("continue", "")
        if not token:
            assert found == nodes, found
            return


async def _at_once(client: Connection, nodes: int) -> None:
    answer = await client.request("GET", SLICES)
    assert answer.body.count(b'"nodeName"') >= nodes, answer.status


async def _as_a_watch(client: Connection, nodes: int) -> None:
    """For so long that all has been told."""
    path = f"{SLICES}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    answer = await client.request("GET", f"{path}&timeoutSeconds={round(WATCHED)}")
    assert answer.body.count(b'"ADDED"') >= nodes, answer.status


async def _growing(process: Process, reading: Coroutine[None, None, None]) -> tuple[float, float]:
    """Seconds, and MiB that the process had more at its largest than before."""
    before = _resident(process, "VmRSS")
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak counts from here
    began = time.monotonic()
    await reading
    return time.monotonic() - began, _resident(process, "VmHWM") - before


def _resident(process: Process, what: str) -> float:
    """MiB of a process and its children."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in (str(process.pid), *children)]
    found = [re.search(rf"{what}:\s+(\d+) kB", status) for status in statuses]
    return sum(int(one[1]) for one in found if one) / 1024
