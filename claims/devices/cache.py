"""The devices as this process knows them: read once from documents and index tables, then kept warm by the log.

The first question reads everything; later ones apply what the log has since, so that a page with one changed line
costs one line, and many browsers cost as much as one. A `DeviceSnapshot` is of one revision and never changes.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from claims.devices.holdings import Holding, Holdings, Share, amounts, holding_of, is_preparing, told_apart
from claims.devices.nodes import Nodes, node_of
from claims.devices.pools import DeviceSnapshot, PoolState
from claims.devices.published import DevicePool, DeviceSlice, PoolKey, Published, gather, read_slice
from claims.models import AllocatedDevice, Pod, Reservation
from inventory.models import Node
from manciple.store import objects, tail
from manciple.store.records import EventRecord
from manciple.wire.errors import Expired
from manciple.wire.registry import registry

SLICES = "resourceslices.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
PODS = "pods"
NODES = "nodes"
FOLLOWED = (SLICES, CLAIMS, PODS, NODES)
#: Events read at a time.
BATCH = 2000
_OF_NODES = ("name", "labels", "unschedulable", "taints", "allocatable")


def read_devices() -> DeviceSnapshot:
    """The devices as they are now."""
    global _cache  # noqa: PLW0603 - one cache for all readers of the process
    with _reading:
        cache, _cache = _cache, None  # a reading that fails half-way leaves no half-applied state behind
        if cache is None or not cache.catches_up():
            cache = DeviceCache.captured()
        _cache = cache
        return cache.snapshot()


def forget() -> None:
    """Drop what is known; the next question reads everything anew."""
    global _cache  # noqa: PLW0603
    with _reading:
        _cache = None


class DeviceCache:
    """See the module's docstring. One thread at a time."""

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self._slices: dict[str, DeviceSlice] = {}
        self._slices_of: dict[PoolKey, set[str]] = defaultdict(set)
        self._holdings = Holdings()
        self._pools: dict[PoolKey, PoolState] = {}
        self._nodes = Nodes()
        self._snapshot: DeviceSnapshot | None = None
        self._applying: dict[str, Callable[[Any, bool], set[PoolKey]]] = {
            SLICES: self._apply_slice,
            CLAIMS: self._apply_claim,
            PODS: self._apply_pod,
            NODES: self._apply_node,
        }

    @classmethod
    def captured(cls) -> DeviceCache:
        """As it is now. The log is read from the revision before: what changes meanwhile is seen again."""
        cache = cls(tail.latest_revision())
        kind = registry.by_resource(SLICES)
        for stored in objects.list(kind).items:
            cache._apply_slice(objects.decode(kind, stored.text), False)
        running = Pod.objects.exclude(node_name="").exclude(phase__in=("Succeeded", "Failed"))
        for uid, node, phase in running.values_list("uid", "node_name", "phase").iterator():
            cache._nodes.pod_is(uid, node)
            cache._holdings.pod_is(uid, preparing=phase in {"", "Pending"})
        for holding in _read_holdings():
            cache._holdings.put(holding)
        for name, labels, unschedulable, taints, allocatable in Node.objects.values_list(*_OF_NODES):
            effects = [taint.get("effect", "") for taint in taints]
            cache._nodes.put(name, labels=labels, unschedulable=unschedulable, effects=effects, allocatable=allocatable)
        cache._refresh({*cache._slices_of, *cache._holdings.pools()})
        cache.catches_up()
        return cache

    def catches_up(self) -> bool:
        """False where the log does not lead from there to now: it was pruned, or an older database was put back."""
        more = True
        while more:
            try:
                stretch = tail.stretch_after(self._revision, resources=FOLLOWED, limit=BATCH)
            except Expired:
                return False
            self._apply(stretch.changes)
            self._note(stretch.revision)
            more = stretch.more
        return True

    def snapshot(self) -> DeviceSnapshot:
        if self._snapshot is None:
            self._snapshot = DeviceSnapshot(
                revision=self._revision,
                pools=dict(self._pools),
                nodes=self._nodes.now,
                published=self._published,
            )
        return self._snapshot

    def _note(self, revision: int) -> None:
        if revision != self._revision:
            self._revision = revision
            self._snapshot = None

    def _apply(self, records: Iterable[EventRecord]) -> None:
        touched: set[PoolKey] = set()
        for record in records:
            obj = objects.decode(registry.by_resource(record.resource), record.text)
            touched |= self._applying[record.resource](obj, record.type == "DELETED")
        self._refresh(touched)

    def _apply_slice(self, published: Any, gone: bool) -> set[PoolKey]:
        touched = set()
        if (old := self._slices.pop(published.metadata.name, None)) is not None:
            self._slices_of[old.pool].discard(old.name)
            touched.add(old.pool)
        if not gone:
            new = read_slice(published)
            self._slices[new.name] = new
            self._slices_of[new.pool].add(new.name)
            touched.add(new.pool)
        for pool in touched:
            self._pools.pop(pool, None)
        return touched

    def _apply_claim(self, claim: Any, gone: bool) -> set[PoolKey]:
        return self._holdings.remove(claim.metadata.uid) if gone else self._holdings.put(holding_of(claim))

    def _apply_pod(self, pod: Any, gone: bool) -> set[PoolKey]:
        if self._nodes.pod_is(pod.metadata.uid, "" if gone else node_of(pod)):
            self._snapshot = None
        return self._holdings.pod_is(pod.metadata.uid, preparing=not gone and is_preparing(pod))

    def _apply_node(self, node: Any, gone: bool) -> set[PoolKey]:
        if self._nodes.remove(node.metadata.name) if gone else self._nodes.put_node(node):
            self._snapshot = None
        return set()

    def _refresh(self, pools: Iterable[PoolKey]) -> None:
        for key in pools:
            known, holders = self._pools.get(key), self._holdings.of_pool(key)
            known = PoolState(self._read_pool(key), holders) if known is None else known.held_by(holders)
            if not known.pool.slices and not holders:
                self._pools.pop(key, None)
            else:
                self._pools[key] = known
            self._snapshot = None

    def _read_pool(self, key: PoolKey) -> DevicePool:
        self.__dict__.pop("_published", None)
        names = self._slices_of[key]
        if not names:
            del self._slices_of[key]
        return gather(key, (self._slices[name] for name in names))

    @cached_property
    def _published(self) -> Published:
        return Published(one for key in sorted(self._pools) for one in self._pools[key].pool.slices)


def _read_holdings() -> Iterable[Holding]:
    """What every claim holds, from the index."""
    reserved: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for claim, *entry in Reservation.objects.values_list("claim_id", "resource", "name", "uid"):
        reserved[claim].append((entry[0], entry[1], entry[2]))
    columns = ("claim__namespace", "claim__name", "claim__allocated_at", "share_id", "consumed_capacity")
    rows = AllocatedDevice.objects.filter(admin_access=False).values_list(
        "claim_id", "driver", "pool", "device", *columns
    )
    claims: dict[str, tuple[str, str, Any]] = {}
    shares: dict[str, list[Share]] = defaultdict(list)
    for uid, driver, pool, device, namespace, name, since, share, consumed in rows:
        claims[uid] = (namespace, name, since)
        shares[uid].append(Share((driver, pool, device), bool(share), amounts(consumed)))
    for uid, (namespace, name, since) in claims.items():
        users, others = told_apart(reserved.get(uid, ()))
        yield Holding(
            uid=uid,
            namespace=namespace,
            claim=name,
            since=since,
            users=users,
            others=others,
            shares=tuple(shares[uid]),
        )


_reading = threading.Lock()
_cache: DeviceCache | None = None
