"""What an open page costs and how soon it knows: server time of the device grid, and commit to WebSocket message."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Sequence
from statistics import median

import httpx
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client
from msgspec import structs
from websockets.asyncio.client import ClientConnection, connect

from cases import cluster, documents
from cases.figures import Figure, quantile
from cases.installation import Installation, installed
from claims.controllers.generated_claims import FOLLOWER
from manciple.controllers.coordination import utc_now
from manciple.store import objects
from manciple.wire.resources import CLAIMS, kind
from scheduling.cycle.scheduler import SchedulingWorker
from tests.builders import DRIVER

REPEATS = 9


def _signed_in() -> Client:
    client = Client(SERVER_NAME="localhost")
    user, _ = get_user_model().objects.get_or_create(username="bench", is_superuser=True)
    client.force_login(user)
    return client


def _server_time(client: Client, url: str) -> float:
    """Median milliseconds of one request, from view to body."""
    took = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        answer = client.get(url)
        took.append((time.perf_counter() - start) * 1000)
        assert answer.status_code == httpx.codes.OK, answer.content
    return median(took[1:])


def _half_taken(*, nodes: int, devices: int) -> None:
    cluster.fill(nodes=nodes, devices=devices)
    cluster.create(documents.pods(nodes * devices // 2))
    FOLLOWER.follow()
    SchedulingWorker(utc_now).run()
    # What the worker knew is no part of an API process: leave it out of the collections that requests pay for.
    gc.collect()
    gc.freeze()


def measure_page(*, nodes: int, devices: int) -> list[Figure]:
    """Half of the devices are held."""
    _half_taken(nodes=nodes, devices=devices)
    client = _signed_in()
    topic = f"pool:{DRIVER}/node-00001"
    size = f"{nodes * devices} devices"
    return [
        Figure(name=f"/devices, {size}", value=_server_time(client, "/devices"), unit="ms", budget=300),
        Figure(
            name=f"/devices/lines of a pool, {size}",
            value=_server_time(client, f"/devices/lines?topic={topic}"),
            unit="ms",
        ),
    ]


def measure_live(*, nodes: int, devices: int, changes: int) -> list[Figure]:
    """Claims are given up one after the other while a page listens; no worker runs, so nothing else happens."""
    _half_taken(nodes=nodes, devices=devices)
    held = [stored.name for stored in objects.list(kind(CLAIMS)).items[:changes]]
    client = _signed_in()
    name = settings.SESSION_COOKIE_NAME
    cookie = f"{name}={client.cookies[name].value}"
    with installed(workers=0) as installation:
        heard, shown = asyncio.run(_listen(installation, cookie, held))
    return [
        Figure(name="commit to WebSocket message: p50", value=quantile(heard, 0.5), unit="ms"),
        Figure(name="commit to WebSocket message: p99", value=quantile(heard, 0.99), unit="ms"),
        Figure(name="commit to new lines in the browser: p99", value=quantile(shown, 0.99), unit="ms", budget=300),
    ]


async def _listen(installation: Installation, cookie: str, claims: Sequence[str]) -> tuple[list[float], list[float]]:
    heard, shown = [], []
    address = installation.web.replace("http", "ws") + "/live"
    headers = {"Cookie": cookie, "Origin": installation.web}
    async with (
        connect(address, additional_headers=headers) as socket,
        httpx.AsyncClient(base_url=installation.web, headers=headers) as browser,
    ):
        await socket.recv()
        (await browser.get("/devices")).raise_for_status()  # the page that is open, and whatever a first request loads
        for name in claims:
            revision = await asyncio.to_thread(_give_up, name)
            committed = time.perf_counter()
            topics = await _topics_at(socket, revision)
            heard.append((time.perf_counter() - committed) * 1000)
            answer = await browser.get("/devices/lines", params={"topic": topics})
            answer.raise_for_status()
            shown.append((time.perf_counter() - committed) * 1000)
    return heard, shown


async def _topics_at(socket: ClientConnection, revision: int) -> list[str]:
    while True:
        message = json.loads(await socket.recv())
        if message["revision"] >= revision:
            return [str(topic) for topic in message["topics"]]


def _give_up(name: str) -> int:
    """Take its devices from a claim; returns the revision of that."""
    with objects.writing() as writer:
        claim = writer.get(kind(CLAIMS), "default", name)
        assert claim is not None
        status = structs.replace(claim.status, allocation=None, reserved_for=())  # type: ignore[attr-defined]
        writer.update(kind(CLAIMS), structs.replace(claim, status=status))
        return writer.revision
