"""The agents of a cluster, as its API sees them: each renews the Lease of its node, again and again."""

from __future__ import annotations

import itertools
import json
import time
from asyncio import sleep
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress

from cases import documents
from cases.connection import COME_BACK, MERGE_PATCH, Connection

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{documents.LEASES}/leases"
#: Nodes that share a connection of the fleet: agents are many, but each sends little. With fewer connections the fleet
#: would be late, as a renewal waits half a second for others to share a commit with.
NODES_A_CONNECTION = 10
NODES = "/api/v1/nodes"
#: Seconds late with a renewal from which on a node reports its conditions, too, as a kubelet does: it may be marked
#: unreachable by then, and what the mark overwrote comes back only from itself.
SILENT = 20.0

#: Sends a merge patch: path, body.
Patch = Callable[[str, bytes], Awaitable[object]]


def fleet(
    connect: Callable[[], Connection],
    nodes: Sequence[str],
    *,
    every: float = documents.RENEWAL,
    codes: Counter[int] | None = None,
) -> Iterator[Coroutine[None, None, None]]:
    """What the agents of these nodes do without end. codes: counts the answers by status.

    One that is not answered is left out. Raises: RuntimeError where one is refused: the nodes would be silent.
    """
    told = Counter[int]() if codes is None else codes
    return renewals(nodes, lambda: _patch_of(connect(), told), every=every)


def renewals(
    nodes: Sequence[str], opened: Callable[[], Patch], *, every: float = documents.RENEWAL
) -> Iterator[Coroutine[None, None, None]]:
    """The same by connections of another kind, each of which `opened` opens. every: seconds between two of a node."""
    connections = -(-len(nodes) // NODES_A_CONNECTION)
    for first in range(connections):
        yield _renew(nodes[first::connections], opened(), every, offset=first / connections)


async def _renew(nodes: Sequence[str], patch: Patch, every: float, *, offset: float) -> None:
    """One after the other, spread over the interval as the agents of a real fleet are; after an outage they hurry, for
    one round: nobody makes up for the renewals before the last.

    offset: the part of a pause by which it begins later.
    """
    pause = every / len(nodes)
    due = time.monotonic() + pause * offset
    renewed = dict.fromkeys(nodes, due)
    for node in itertools.cycle(nodes):
        await sleep(max(0.0, due - time.monotonic()))
        now = documents.now()
        await patch(f"{LEASES}/{node}", json.dumps({"spec": {"renewTime": now}}).encode())
        was_silent, renewed[node] = time.monotonic() - renewed[node] > every + SILENT, time.monotonic()
        if was_silent:
            times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), f"{now[:19]}Z")
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", **times}
            await patch(f"{NODES}/{node}/status", json.dumps({"status": {"conditions": [ready]}}).encode())
        due = max(due + pause, time.monotonic() - every)


def _patch_of(connection: Connection, codes: Counter[int]) -> Patch:
    async def patch(path: str, body: bytes) -> None:
        with suppress(OSError, EOFError):
            answer = await connection.request("PATCH", path, body, media=MERGE_PATCH)
            codes[answer.status] += 1
            if answer.status not in COME_BACK | {200}:
                raise RuntimeError(f"PATCH {path}: {answer.status} {answer.body[:300]!r}")

    return patch
