"""The clients and agents of the case `paced`, in a process of their own: `python -m cases.paced_load`.

The first line of standard input is a `Start`: the cluster is created through the API, its agents renew their Leases
from then on, and a watch follows the pods. Each further line is an `Order`: pods are created at a steady rate. Each
line of standard output is a `Report`. The process ends with its standard input.

A pod's life has four requests. A client creates it. Once the watch shows its node, the node's agent reports that it
runs. `LIFETIME` seconds later the agent reports that it succeeded, and a client deletes it. With `Order.only_bound` it
ends with the binding, and pods are deleted after the window. The load is open: each pod is created when it is due, on a
free connection or a new one, however late the answers to the others are.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cases import documents
from cases.connection import COME_BACK, MERGE_PATCH, PAUSE, Connection, HttpAnswer, running
from cases.figures import quantile
from cases.fleet import fleet
from manciple.wire.base import ApiObject
from manciple.wire.codec import encode
from tests.builders import NAMESPACE

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
#: Where the objects of each stage are created.
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceClaimTemplate": f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates",
    "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{documents.LEASES}/leases",
    "Node": "/api/v1/nodes",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
}
#: Connections that create the cluster, and those that are open before the first pod is due.
CONNECTIONS = 20
#: Seconds that a pod runs.
LIFETIME = 5.0
#: Seconds of load before the window in which pods are counted, beyond a pod's life.
WARMING = 3.0
#: Seconds for the pods of an order to be bound, run and be deleted, after the last was due.
PATIENCE = 120.0


class Start(msgspec.Struct, frozen=True):
    api: str
    token: str
    authority: str  # file of the CA's certificate
    nodes: int
    devices: int  # of each node


class Order(msgspec.Struct, frozen=True):
    rate: float  # pods a second
    seconds: float  # of the window
    only_bound: bool = False


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """at: ready (after `Start`), begin and end (of an order's window), done (all pods of the order are deleted)."""

    at: str
    pods: int = 0  # that were due in the window
    bound: int = 0  # that the watch showed with a node within the window
    latencies: list[float] = []  # ms from when each pod was due to the watch event that shows its node
    late: float = 0.0  # ms: p99 of how much later than due a pod was sent, which is this process's own delay
    turned_away: int = 0  # answers of a server that is too busy; the request was repeated
    refused: int = 0  # requests with another unexpected answer, and pods that were not done within `PATIENCE`
    broken: int = 0  # connections that broke; the request was repeated


class _Metadata(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    conditions: list[dict[str, Any]] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class _WatchEvent(msgspec.Struct):
    object: _Pod


class _Clients:
    """Any number of connections to the API; a request takes a free one, or opens one."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._free: list[Connection] = []
        self.turned_away = self.refused = self.broken = 0

    def connect(self) -> Connection:
        return Connection(self._start.api, token=self._start.token, authority=Path(self._start.authority))

    async def request(
        self, method: str, path: str, body: bytes = b"", *, media: str = "application/json"
    ) -> HttpAnswer | None:
        """None where the answer is unexpected. Waits and retries while the server is too busy, or unreachable."""
        expected = {201, 409} if method == "POST" else {200}
        while True:
            connection = self._free.pop() if self._free else self.connect()
            try:
                answer = await connection.request(method, path, body, media=media)
            except (OSError, EOFError):
                self.broken += 1
                await asyncio.sleep(PAUSE)
                continue
            self._free.append(connection)
            if answer.status not in COME_BACK:
                break
            self.turned_away += 1
            await asyncio.sleep(answer.retry_after or PAUSE)
        if answer.status in expected:
            return answer
        self.refused += 1
        if self.refused <= 3:
            print(f"{method} {path}: {answer.status} {answer.body[:500]!r}", file=sys.stderr)
        return None

    async def create_all(self, objects: Iterable[ApiObject]) -> None:
        """Raises: RuntimeError where one is refused."""
        waiting = iter(objects)

        async def create() -> None:
            for each in waiting:
                if await self.request("POST", PATHS[each.kind], encode(each)) is None:
                    raise RuntimeError(f"{each.kind} {each.metadata.name} was refused")

        await asyncio.gather(*(create() for _ in range(CONNECTIONS)))


class _Load:
    """The pods of all orders."""

    def __init__(self, clients: _Clients) -> None:
        self._clients = clients
        #: pod -> its event with a node; unset until the watch shows it
        self._shown: dict[str, asyncio.Future[_Pod]] = {}
        #: pod -> when the watch showed its node
        self._bound: dict[str, float] = {}
        self._orders = 0

    async def watch(self) -> None:
        """Without end; a watch that the server ends is opened again, and begins with the pods that exist."""
        decoder = msgspec.json.Decoder(_WatchEvent)
        connection = self._clients.connect()
        while True:
            with suppress(OSError, EOFError):
                async for line in connection.lines(f"{PODS}?watch=true"):
                    pod = decoder.decode(line).object
                    if pod.spec.node_name and pod.metadata.name not in self._bound:
                        self._bound[pod.metadata.name] = time.perf_counter()
                        if (shown := self._shown.get(pod.metadata.name)) and not shown.done():
                            shown.set_result(pod)
            await asyncio.sleep(0.1)

    async def run(self, order: Order) -> Report:
        """Reports begin and end of the window itself. The window's edges lie midway between two pods."""
        self._orders += 1
        self._bound.clear()
        self._clients.turned_away = self._clients.refused = self._clients.broken = 0
        interval = 1 / order.rate
        warming, counted = (math.ceil(part * order.rate) for part in (LIFETIME + WARMING, order.seconds))
        pods = list(documents.pods(warming + counted, prefix=f"paced-{self._orders}"))
        names = [pod.metadata.name for pod in pods]
        sent: dict[str, float] = {}
        started = time.perf_counter() + 0.1
        begin, end = (started + (number - 0.5) * interval for number in (warming, warming + counted))
        window = asyncio.create_task(_report_window(begin, end))
        lives = []
        for number, pod in enumerate(pods):
            await asyncio.sleep(max(0.0, started + number * interval - time.perf_counter()))
            lives.append(asyncio.create_task(self._live(pod.metadata.name, encode(pod), sent, order.only_bound)))
        await window
        finished, unfinished = await asyncio.wait(lives, timeout=PATIENCE)
        for life in unfinished:
            life.cancel()
        for life in finished:
            life.result()
        ended = time.perf_counter()
        await self._emptied()
        due_at = {name: started + number * interval for number, name in enumerate(names) if number >= warming}
        return Report(
            at="done",
            pods=counted,
            bound=sum(begin <= at < end for at in self._bound.values()),
            # A pod that was never bound was not bound until now.
            latencies=[(self._bound.get(name, ended) - due) * 1000 for name, due in due_at.items()],
            late=quantile([(sent[name] - due) * 1000 for name, due in due_at.items()], 0.99),
            turned_away=self._clients.turned_away,
            refused=self._clients.refused + len(unfinished),
            broken=self._clients.broken,
        )

    async def _live(self, name: str, body: bytes, sent: dict[str, float], only_bound: bool) -> None:
        """One pod, from its creation to its deletion, or to its binding."""
        request, path = self._clients.request, f"{PODS}/{name}"
        shown = self._shown[name] = asyncio.get_running_loop().create_future()
        sent[name] = time.perf_counter()
        if await request("POST", PODS, body) is None:
            return
        pod = await shown
        del self._shown[name]
        if only_bound:
            return
        await request("PATCH", f"{path}/status", _status(pod, "Running", ready=True), media=MERGE_PATCH)
        await asyncio.sleep(LIFETIME)
        await request("PATCH", f"{path}/status", _status(pod, "Succeeded", ready=False), media=MERGE_PATCH)
        await request("DELETE", path)

    async def _emptied(self) -> None:
        """Delete whatever is left, and wait until all claims are gone."""
        end = time.perf_counter() + PATIENCE
        for path in (PODS, CLAIMS):
            while (answer := await self._clients.request("GET", f"{path}?limit=1")) is None or (
                json.loads(answer.body)["items"]
            ):
                if time.perf_counter() > end:
                    raise TimeoutError(f"{path} was not empty within {PATIENCE:.0f} s")
                if path == PODS:
                    await self._clients.request("DELETE", PODS, b'{"gracePeriodSeconds":0}')
                await asyncio.sleep(0.2)


def _status(pod: _Pod, phase: str, *, ready: bool) -> bytes:
    """A merge patch, with what an agent reports of a pod of one container."""
    now = f"{documents.now()[:19]}Z"
    others = [each for each in pod.status.conditions if each["type"] not in {"Ready", "ContainersReady"}]
    conditions = [
        {"type": kind, "status": "True" if ready else "False", "lastTransitionTime": now}
        for kind in ("Ready", "ContainersReady")
    ]
    return json.dumps({"status": {"phase": phase, "conditions": [*others, *conditions], "startTime": now}}).encode()


async def _report_window(begin: float, end: float) -> None:
    for at, when in (("begin", begin), ("end", end)):
        await asyncio.sleep(max(0.0, when - time.perf_counter()))
        _print(Report(at=at))


def _print(report: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


async def _main() -> None:
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=Start)
    clients = _Clients(start)
    for stage in documents.stages(nodes=start.nodes, devices=start.devices):
        await clients.create_all(stage)
    load = _Load(clients)
    agents = fleet(clients.connect, documents.node_names(start.nodes))
    async with running(*agents, load.watch()):
        _print(Report(at="ready"))
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            _print(await load.run(msgspec.json.decode(line, type=Order)))


if __name__ == "__main__":
    asyncio.run(_main())
