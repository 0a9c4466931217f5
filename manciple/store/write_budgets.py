"""How many bytes each namespace may write: a token bucket of `WRITE_RATE` bytes per second, `WRITE_BURST` at most.

Every creation and update is charged with the size of its entry in the log, because that is what it costs: a patch of a
few bytes stores the whole document. Deletions are free. The buckets:

- a namespace: whoever writes into it, except nodes
- a node: all that its agent writes, into whatever namespace; the heartbeat is free
- a user: objects of cluster-wide kinds; a service account on several nodes (a driver) has one bucket on each

Administrators and the control plane are not limited.

The buckets are rows of the database, so all API processes share them. A process takes tokens in portions (`PORTION`),
inside the transaction of the write, which holds the lock of the log: most writes touch no row. A transaction that is
rolled back keeps its portion in memory but not in the database, and a process that ends loses its own: either way the
error is one portion.
"""

from __future__ import annotations

import hashlib
import math
from datetime import datetime

from django.conf import settings

from manciple.per_process import PerProcess
from manciple.store import log_metrics, sql
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import MASTERS, NODES, Identity, is_control_plane

#: Bytes that a process takes from a bucket at once, but never more than a sixteenth of it.
PORTION = 1 << 20
#: A node's Lease of at most this many bytes is free: heartbeats must never fail.
HEARTBEAT = 8192
LEASES = "leases.coordination.k8s.io"
#: What a token bound to a node says of it.
_BOUND_TO = "authentication.kubernetes.io/node-name"
#: Characters of a user's name in a key; longer ones are hashed.
LONGEST_NAME = 253
#: Portions that this process holds: after so many buckets it lets go of all.
MOST_BUCKETS = 10_000

#: bucket -> bytes that this process has taken and not yet written. Changed only under the lock of the log.
_taken = PerProcess(dict[str, int])


def charge(identity: Identity, resource: str, namespace: str, size: int, *, now: datetime) -> None:
    """Charge a write of `size` bytes. namespace: "" for cluster-wide kinds. Raises: TooManyRequests."""
    if MASTERS in identity.groups or is_control_plane(identity.name) or not settings.WRITE_RATE:
        return
    bucket = _bucket(identity, namespace)
    if resource == LEASES and NODES in identity.groups and size <= HEARTBEAT:
        return
    taken = _taken()
    held = taken.get(bucket, 0)
    if held < size:
        if len(taken) >= MOST_BUCKETS:
            taken.clear()
            held = 0
        held += _take(bucket, size - held, now.timestamp())
    taken[bucket] = held - size


def _bucket(identity: Identity, namespace: str) -> str:
    if NODES not in identity.groups:
        if namespace:
            return f"namespace {namespace}"
        node = "".join(f" on node {name}" for name in identity.extras(_BOUND_TO))
        name = f"{identity.name}{node}"
    else:
        name = identity.name
    if len(name) > LONGEST_NAME:
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"user {name}"


def _take(bucket: str, needed: int, now: float) -> int:
    """Take at least `needed` bytes out of a bucket; returns how many. Raises: TooManyRequests."""
    rate, burst = settings.WRITE_RATE, settings.WRITE_BURST
    found = sql.fetch("SELECT tokens, refilled_at FROM store_writebudget WHERE key = %s", [bucket])
    tokens = burst
    if found:
        before, since = found[0]
        tokens = min(burst, before + int(max(0.0, now - since) * rate))
        now = max(now, since)  # the clock of another process may be ahead
    missing = min(needed, burst) - tokens  # a write that is larger than the bucket goes once the bucket is full
    if missing > 0:
        log_metrics.REFUSED["budget"].inc()
        seconds = max(1, math.ceil(missing / rate))
        raise TooManyRequests(
            f"{bucket} writes more bytes than its budget allows ({rate:,} bytes per second after {burst:,} at once; "
            f"every update counts with the whole object): retry after {seconds} s",
            details={"retryAfterSeconds": seconds},
        )
    taken = max(needed, min(PORTION, burst // 16, tokens))
    sql.execute(
        "INSERT INTO store_writebudget (key, tokens, refilled_at) VALUES (%s, %s, %s) "
        "ON CONFLICT (key) DO UPDATE SET tokens = excluded.tokens, refilled_at = excluded.refilled_at",
        [bucket, tokens - taken, now],
    )
    return taken


def drop_full(now: datetime) -> int:
    """Delete the rows of buckets that are full again; returns how many."""
    if not settings.WRITE_RATE:
        return sql.execute("DELETE FROM store_writebudget")
    statement = "DELETE FROM store_writebudget WHERE tokens + (%s - refilled_at) * %s >= %s"
    return sql.execute(statement, [now.timestamp(), settings.WRITE_RATE, settings.WRITE_BURST])
