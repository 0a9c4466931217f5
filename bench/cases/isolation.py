"""What one tenant can cost another: `cases.attacks`, one after the other, and what somebody else sees meanwhile.

The other tenant creates pods from a template at a steady rate and lists what it has; probes ask `/livez` on connections
of their own, and 300 nodes renew their Leases. The API process has the file descriptors that systemd and Debian give
(1,024 soft). After an attack what the attacker has made is deleted, and the same is measured once more.
"""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client as Browser

from cases import attacks, cluster, documents
from cases.attacks import ATTACKS, Target
from cases.connection import MERGE_PATCH, Connection, running
from cases.figures import Figure, quantile
from cases.fleet import Patch, renewals
from cases.installation import Installation, installed
from manciple.access.authentication import tokens
from manciple.access.bootstrap import let_edit
from manciple.store import objects
from manciple.store.objects import to_read
from manciple.wire.codec import encode
from manciple.wire.errors import NotFound
from manciple.wire.registry import registry
from tests.builders import NAMESPACE, make_namespace

TENANT, ATTACKER = "tenant", attacks.NAMESPACE
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Pods, lists and probes a second.
RATE, LISTS, PROBES = 5.0, 5.0, 4.0
#: Seconds that an attack has to get going, and that pods may take which were created at its end.
LEAD, PATIENCE = 5.0, 60.0
#: File descriptors of a process, as systemd and Debian have it.
DESCRIPTORS = 1_024


@dataclass(slots=True)
class TenantView:
    """What the tenant, the probes and the nodes saw. Milliseconds."""

    posted: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    lists: list[float] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    #: what went wrong, in a word -> how often
    failed: Counter[str] = field(default_factory=Counter)
    silent: int = 0

    @property
    def took(self) -> list[float]:
        """Of pods that were never bound, the time until it was given up."""
        now = time.perf_counter()
        return [(self.bound.get(name, now) - sent) * 1000 for name, sent in self.posted.items()]


def measure(*, nodes: int, devices: int, seconds: float, only: str) -> list[Figure]:
    """only: a part of the names of the attacks that are tried, or several with "|" between them."""
    cluster.fill(nodes=nodes, devices=devices)
    cluster.create([make_namespace(ATTACKER)])
    for name, namespace in ((TENANT, NAMESPACE), (ATTACKER, ATTACKER)):
        let_edit(name, namespace)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    with installed(workers=2) as installation:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return list(asyncio.run(_all(installation, nodes=nodes, seconds=seconds, only=only)))


async def _all(installation: Installation, *, nodes: int, seconds: float, only: str) -> list[Figure]:
    figures = list[Figure]()
    target = await asyncio.to_thread(_target, installation)
    tenant = await asyncio.to_thread(tokens.issue, TENANT, ["system:authenticated"])
    cookie = await asyncio.to_thread(_cookie, TENANT)
    seen = TenantView()
    async with running(*renewals(documents.node_names(nodes), lambda: _renewing(installation, seen))):
        await _watched(installation, tenant, cookie, TenantView(), prefix="warm", seconds=5)
        attempt = 0
        for name in ("no attack", *(one for one in ATTACKS if any(part in one for part in only.split("|")))):
            for phase in (name, f"after {name}"):
                if phase == "after no attack":
                    continue
                attempt += 1
                now = TenantView()
                seen.silent, seen.failed = 0, Counter()
                answers = ""
                if phase == name and name in ATTACKS:
                    async with _attacked(name, target) as told:
                        await _watched(installation, tenant, cookie, now, prefix=f"p{attempt}", seconds=seconds)
                    answers = " ".join(f"{key}: {value}" for key, value in sorted(told.items()))
                else:
                    await _watched(installation, tenant, cookie, now, prefix=f"p{attempt}", seconds=seconds)
                now.failed += seen.failed
                now.silent = seen.silent
                found = list(_figures(phase, now))
                figures += found
                rows = "\n".join(figure.row() for figure in found)
                print(f"   {phase}: {answers}; failed: {dict(now.failed)}\n{rows}", file=sys.stderr, flush=True)
                await asyncio.to_thread(_cleared, NAMESPACE, "pods")  # or the devices run out after some attacks
                if phase == name:
                    await asyncio.to_thread(_cleared, ATTACKER, *STORED)
    return figures


def _figures(phase: str, seen: TenantView) -> Iterator[Figure]:
    took = seen.took
    yield Figure(name=f"{phase}: POST to bound, p50", value=quantile(took, 0.5), unit="ms")
    yield Figure(name=f"{phase}: POST to bound, p99", value=quantile(took, 0.99), unit="ms", budget=1000)
    yield Figure(name=f"{phase}: a list, p50", value=quantile(seen.lists, 0.5), unit="ms")
    yield Figure(name=f"{phase}: a list, p99", value=quantile(seen.lists, 0.99), unit="ms", budget=100)
    yield Figure(name=f"{phase}: a page of pods, p99", value=quantile(seen.pages, 0.99), unit="ms")
    yield Figure(name=f"{phase}: /livez, longest", value=max(seen.probes, default=0.0), unit="ms")
    yield Figure(name=f"{phase}: requests that failed", value=seen.failed.total(), unit="", budget=0)
    yield Figure(name=f"{phase}: Leases not renewed", value=seen.silent, unit="", budget=0)


# The attacker --------------------------------------------------------------------------------------------------------


def _target(installation: Installation) -> Target:
    return Target(
        api=installation.api,
        web=installation.web,
        token=tokens.issue(ATTACKER, ["system:authenticated"]),
        cookie=_cookie(ATTACKER),
        authority=str(installation.authority),
    )


def _cookie(name: str) -> str:
    """Of a session of this person on the dashboard."""
    browser = Browser()
    browser.force_login(get_user_model().objects.get_or_create(username=name)[0])
    return f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"


@asynccontextmanager
async def _attacked(name: str, target: Target) -> AsyncIterator[dict[str, int]]:
    """Filled in when it is left: how the attack was answered."""
    told: dict[str, int] = {}
    command = [sys.executable, str(Path(attacks.__file__)), name]
    attack = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert attack.stdin is not None
    attack.stdin.write(json.dumps(asdict(target)))
    attack.stdin.close()
    await asyncio.sleep(LEAD)
    try:
        yield told
    finally:
        attack.terminate()
        with suppress(subprocess.TimeoutExpired, json.JSONDecodeError):
            await asyncio.to_thread(attack.wait, 10.0)
            assert attack.stdout is not None
            told |= json.loads(attack.stdout.read())
        attack.kill()


#: What attackers store, pods first.
STORED = ("pods", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io", "configmaps")


def _cleared(namespace: str, *resource_names: str) -> None:
    """Delete all objects of these resources in the namespace, as its user would."""
    for resource_name in resource_names:
        kind = registry.by_resource(resource_name)
        keys = [(namespace, one.name) for one in objects.list(kind, namespace=namespace).items]
        for first in range(0, len(keys), cluster.BATCH):
            some = keys[first : first + cluster.BATCH]
            with objects.writing(reads=to_read((kind, some))) as writer:
                for key in some:
                    with suppress(NotFound):  # its controller was faster
                        writer.delete(kind, *key, grace_seconds=0)


# The others ----------------------------------------------------------------------------------------------------------


async def _watched(
    installation: Installation, token: str, cookie: str, seen: TenantView, *, prefix: str, seconds: float
) -> None:
    """Returns when all pods are bound, or have waited too long."""

    def connect() -> Connection:
        return Connection(installation.api, token=token, authority=installation.authority)

    async with running(_following(connect(), seen)):
        async with running(
            _listing(connect(), seen), _probing(installation, seen), _browsing(installation, cookie, seen)
        ):
            await _creating(connect(), seen, prefix=prefix, seconds=seconds)
        end = time.monotonic() + PATIENCE
        while not seen.posted.keys() <= seen.bound.keys() and time.monotonic() < end:
            await asyncio.sleep(0.05)


async def _creating(connection: Connection, seen: TenantView, *, prefix: str, seconds: float) -> None:
    """Open loop: a pod every 1/RATE seconds, however the last one was answered."""
    posting = set[asyncio.Task[None]]()
    connections = [connection]

    async def post(name: str, body: bytes) -> None:
        mine = connections.pop() if connections else connection.another()
        seen.posted[name] = time.perf_counter()
        try:
            answer = await mine.request("POST", PODS, body)
        except (OSError, EOFError):
            seen.failed["POST broken"] += 1
            return
        connections.append(mine)
        if answer.status != 201:
            seen.failed[f"POST {answer.status}"] += 1

    due = time.perf_counter()
    for pod in documents.pods(round(seconds * RATE), prefix=prefix):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        due += 1 / RATE
        posting.add(asyncio.create_task(post(pod.metadata.name, encode(pod))))
    await asyncio.wait(posting, timeout=PATIENCE)


async def _following(connection: Connection, seen: TenantView) -> None:
    while True:
        with suppress(OSError, EOFError, ValueError):
            async for line in connection.lines(f"{PODS}?watch=true"):
                if line:
                    pod = json.loads(line)["object"]
                    if pod.get("spec", {}).get("nodeName"):
                        seen.bound.setdefault(pod["metadata"]["name"], time.perf_counter())
        await asyncio.sleep(0.1)


async def _listing(connection: Connection, seen: TenantView) -> None:
    while True:
        began = time.perf_counter()
        try:
            answer = await connection.request("GET", f"{PODS}?limit=100")
            if answer.status != 200:
                seen.failed[f"GET {answer.status}"] += 1
        except (OSError, EOFError):
            seen.failed["GET broken"] += 1
        seen.lists.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(max(0.0, 1 / LISTS - (time.perf_counter() - began)))


async def _probing(installation: Installation, seen: TenantView) -> None:
    """As a kubelet probes: each time on a new connection."""
    context = ssl.create_default_context(cafile=str(installation.authority))
    host, port = installation.api.removeprefix("https://").split(":")
    while True:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
                writer.write(f"GET /livez HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
                    seen.failed["/livez"] += 1
                writer.close()
        except (OSError, EOFError, TimeoutError):
            seen.failed["/livez"] += 1
        seen.probes.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(1 / PROBES)


async def _browsing(installation: Installation, cookie: str, seen: TenantView) -> None:
    """The tenant's list of pods on the dashboard, once a second."""
    host, port = installation.web.removeprefix("http://").split(":")
    while True:
        began = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"GET /pods HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n".encode()
            )
            page = await reader.read()
            if not page.startswith(b"HTTP/1.1 200"):
                seen.failed[f"page {page[9:12].decode()}"] += 1
            writer.close()
        except (OSError, EOFError):
            seen.failed["page broken"] += 1
        seen.pages.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - began)))


def _renewing(installation: Installation, seen: TenantView) -> Patch:
    connection = installation.connect()

    async def patch(path: str, body: bytes) -> None:
        try:
            async with asyncio.timeout(10):
                answer = await connection.request("PATCH", path, body, media=MERGE_PATCH)
            seen.silent += answer.status != 200
        except (OSError, EOFError, TimeoutError):
            connection.close()
            seen.silent += 1

    return patch
