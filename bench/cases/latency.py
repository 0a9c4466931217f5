"""From POST pod to the watch that shows it bound, at a steady rate, against an installation of several processes."""

from __future__ import annotations

import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import msgspec

from cases import cluster, documents
from cases.checkout import PATIENCE
from cases.figures import Figure, quantile
from cases.installation import Installation, installed
from manciple.wire.codec import encode
from tests.builders import NAMESPACE
from tests.e2e.processes import wait_for

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Requests under way at once, at most.
CONNECTIONS = 4


class _Metadata(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _WatchEvent(msgspec.Struct):
    object: _Pod


def measure(*, nodes: int, devices: int, rate: float, seconds: float) -> list[Figure]:
    cluster.fill(nodes=nodes, devices=devices)
    with cluster.alive(nodes), installed(workers=2) as installation, _client(installation) as client:
        bound: dict[str, float] = {}
        threading.Thread(target=watch, args=(installation, bound), daemon=True).start()
        _submit(client, bound, prefix="warm", rate=rate, seconds=2)
        posted = _submit(client, bound, prefix="pod", rate=rate, seconds=seconds)
    took = [(bound[name] - sent) * 1000 for name, sent in posted.items()]
    name = f"POST pod to bound at {rate:.0f} pods/s"
    return [
        Figure(name=f"{name}: p50", value=quantile(took, 0.5), unit="ms", budget=60),
        Figure(name=f"{name}: p90", value=quantile(took, 0.9), unit="ms"),
        Figure(name=f"{name}: p99", value=quantile(took, 0.99), unit="ms", budget=250),
    ]


def _client(installation: Installation, *, timeout: float | None = 10.0) -> httpx.Client:
    return httpx.Client(
        base_url=installation.api,
        headers={"Authorization": f"Bearer {installation.token}"},
        verify=ssl.create_default_context(cafile=str(installation.authority)),
        timeout=timeout,
    )


def watch(installation: Installation, bound: dict[str, float]) -> None:
    """Note when each pod is first seen with a node, until the server ends; a watch that it ends is begun anew."""
    with suppress(httpx.ConnectError), _client(installation, timeout=None) as client:
        while True:
            with suppress(httpx.RemoteProtocolError, httpx.ReadError):
                _watch_once(client, bound)


def _watch_once(client: httpx.Client, bound: dict[str, float]) -> None:
    """The first events tell of all the pods that there are."""
    decoder = msgspec.json.Decoder(_WatchEvent)
    with client.stream("GET", PODS, params={"watch": "true"}) as answer:
        for line in answer.iter_lines():
            seen = decoder.decode(line).object
            if seen.spec.node_name:
                bound.setdefault(seen.metadata.name, time.perf_counter())


def _submit(
    client: httpx.Client, bound: dict[str, float], *, prefix: str, rate: float, seconds: float
) -> dict[str, float]:
    """POST pods at a steady rate and wait until all are bound: pod -> when it was sent."""
    posted: dict[str, float] = {}

    def post(name: str, body: bytes) -> None:
        posted[name] = time.perf_counter()
        client.post(PODS, content=body, headers={"Content-Type": "application/json"}).raise_for_status()

    started = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        waiting = []
        for number, pod in enumerate(documents.pods(round(rate * seconds), prefix=prefix)):
            time.sleep(max(0.0, started + number / rate - time.perf_counter()))
            waiting.append(pool.submit(post, pod.metadata.name, encode(pod)))
        for one in waiting:
            one.result()
    wait_for("all pods to be bound", lambda: posted.keys() <= bound.keys(), timeout=PATIENCE)
    return posted
