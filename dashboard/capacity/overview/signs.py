"""Reads what the health of the overview is made of: a bounded number of queries, whatever the size of the cluster."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime

from django.db.models import Count, Min

from claims.controllers.node_lifecycle import LEASE_NAMESPACE
from claims.devices.pools import DeviceSnapshot
from claims.devices.states import DeviceState
from dashboard.capacity.overview.health import (
    NAMED,
    DriverSign,
    HealthSigns,
    NodeSign,
    ProcessSign,
    QueueSign,
    ShortPool,
)
from dashboard.inventory.incidents import count_open
from insight.usage import ALL, sampled_every
from inventory.kinds.pools import PoolKey
from inventory.models import Node
from manciple.controllers.coordination import SILENT_AFTER
from manciple.controllers.models import Heartbeat
from manciple.people import Person
from manciple.per_process import PerProcess
from manciple.store import history, space, sql
from manciple.store.history import last_change
from manciple.wire.resources import LEASES, SLICES, kind
from scheduling.models import QueuedPod, UsageSample

#: How far from its end the log is searched for the last change of a pool.
SEARCHED = 20_000
#: Pools whose last change is remembered.
REMEMBERED = 256

#: (driver, pool, generation, slices seen) -> when its slices last changed
_changes = PerProcess(dict[tuple[str, str, str, int, int], datetime | None])


def read_signs(snapshot: DeviceSnapshot, person: Person, *, now: datetime) -> HealthSigns:
    counter, ping = _timed_counter()
    room = space.measure()
    return HealthSigns(
        now=now,
        nodes=_nodes(),
        drivers=_drivers(snapshot, revision=counter.current),
        processes=[
            ProcessSign(name=name, seen=seen, **lately)
            for name, seen, lately in Heartbeat.objects.order_by("name").values_list("name", "seen_at", "lately")
        ],
        queue=_queue(person),
        incidents=count_open(),
        sampled=UsageSample.objects.filter(device_class=ALL).order_by("-at").values_list("at", flat=True).first(),
        sampled_every=sampled_every(len(snapshot.candidates)),
        silent_after=SILENT_AFTER,
        revision=counter.current,
        floor=counter.floor,
        log_bytes=counter.log_bytes,
        database="PostgreSQL" if sql.on_postgresql() else "SQLite",
        database_size=room.used,
        database_limit=room.limit,
        database_nearly_full=room.nearly_full,
        database_full=room.full,
        ping=ping,
        whole=person.namespaces is None,
    )


def _timed_counter() -> tuple[sql.RevisionCounter, float]:
    began = time.perf_counter()
    return sql.counter(), time.perf_counter() - began


def _nodes() -> list[NodeSign]:
    heard = history.last_written(kind(LEASES), LEASE_NAMESPACE)
    nodes = Node.objects.order_by("name").values_list("name", "ready")
    return [NodeSign(name=name, ready=ready, heard=heard.get(name)) for name, ready in nodes]


def _drivers(snapshot: DeviceSnapshot, *, revision: int) -> list[DriverSign]:
    pools = Counter(pool.key[0] for pool in snapshot.published_pools)
    unhealthy = Counter(
        candidate.key[0] for candidate in snapshot.candidates if candidate.fence is DeviceState.UNHEALTHY
    )
    short: dict[str, list[ShortPool]] = {}
    for pool in sorted(snapshot.published_pools, key=lambda one: one.key):
        if not pool.complete:
            driver, name, _ = pool.key
            known = short.setdefault(driver, [])
            # Those that are named are looked up; the others are counted.
            named = len(known) < NAMED
            changed = _last_change(pool.key, pool.generation, len(pool.slices), revision) if named else None
            known.append(
                ShortPool(
                    driver=driver,
                    name=name,
                    node=pool.node,
                    expected=pool.expected,
                    seen=len(pool.slices),
                    devices=sum(len(one.candidates) for one in pool.slices),
                    changed=changed,
                )
            )
    return [
        DriverSign(name=name, pools=count, short=tuple(short.get(name, ())), unhealthy=unhealthy[name])
        for name, count in sorted(pools.items())
    ]


def _last_change(pool: PoolKey, generation: int, seen: int, revision: int) -> datetime | None:
    """Remembered as long as the pool stays as it is."""
    key = (*pool, generation, seen)
    changes = _changes.value
    if key not in changes:
        if len(changes) >= REMEMBERED:
            changes.clear()
        fields = {"spec.nodeName": pool.node, "spec.driver": pool.driver}
        changes[key] = last_change(SLICES, fields, after=max(0, revision - SEARCHED))
    return changes[key]


def _queue(person: Person) -> QueueSign:
    waiting = QueuedPod.objects.waiting().restrict(person)
    return QueueSign(**waiting.aggregate(length=Count("uid"), oldest=Min("created_at")))
