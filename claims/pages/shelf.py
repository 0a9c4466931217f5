"""The shelf as this process knows it: read once from documents and index tables, then kept warm by the log.

The first question reads everything; later ones apply what the log has since, so that a page with one changed line
costs one line, and many browsers cost as much as one. A `Picture` is of one revision and never changes.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from claims.models import AllocatedDevice, Pod, Reservation
from claims.pages.cards import Units, units_of
from claims.pages.grid import DeviceKey, Holder, Line, Tile, line_of, natural, node_topic, pool_topic
from claims.pages.holdings import Holding, Holdings, Share, amounts, holding_of, is_preparing, told_apart
from claims.pages.published import Offer, PoolContent, PoolKey, SliceContent, gather, read_slice
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


@dataclass(frozen=True)
class Picture:
    """What is published and who holds it, at one revision.

    lines: by name. pools: what is published of them. holders: of the devices of a pool that somebody holds.
    """

    revision: int
    lines: Mapping[str, Line]
    pools: Mapping[PoolKey, PoolContent]
    holders: Mapping[PoolKey, Mapping[DeviceKey, tuple[Holder, ...]]]
    #: every published device, in published order; the same tuple as long as nothing is published anew
    offers: tuple[Offer, ...]

    @cached_property
    def ordered(self) -> tuple[Line, ...]:
        """As a person counts: node-2 before node-10."""
        return tuple(self.lines[name] for name in sorted(self.lines, key=natural))

    @cached_property
    def counts(self) -> Counter[str]:
        """state -> tiles."""
        found: Counter[str] = Counter()
        for line in self.lines.values():
            found.update(line.counts)
        return found

    def offer(self, device: DeviceKey) -> Offer | None:
        pool = self.pools.get(device[:2])
        return next((offer for offer in pool.offers if offer.key == device), None) if pool else None

    def held_by(self, device: DeviceKey) -> tuple[Holder, ...]:
        return self.holders.get(device[:2], {}).get(device, ())


def read_picture() -> Picture:
    """The shelf as it is now, or newer."""
    global _shelf  # noqa: PLW0603 - one shelf for all pages of the process
    with _reading:
        shelf, _shelf = _shelf, None  # a reading that fails half-way leaves no half-applied state behind
        if shelf is None or not shelf.catches_up():
            shelf = Shelf.captured()
        _shelf = shelf
        return shelf.picture()


def forget() -> None:
    """Drop what is known; the next question reads everything anew."""
    global _shelf  # noqa: PLW0603
    with _reading:
        _shelf = None


class Shelf:
    """See the module's docstring. One thread at a time."""

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self._slices: dict[str, SliceContent] = {}
        self._slices_of: dict[PoolKey, set[str]] = defaultdict(set)
        self._holdings = Holdings()
        self._units: dict[PoolKey, Units] = {}
        #: pool -> line -> its tiles there
        self._tiles: dict[PoolKey, Mapping[str, list[Tile]]] = {}
        self._pools_of_line: dict[str, set[PoolKey]] = defaultdict(set)
        self._lines: dict[str, Line] = {}
        self._cordoned: set[str] = set()  # names of nodes
        self._picture: Picture | None = None
        self._applying: dict[str, Callable[[Any, bool], set[PoolKey]]] = {
            SLICES: self._apply_slice,
            CLAIMS: self._apply_claim,
            PODS: self._apply_pod,
            NODES: self._apply_node,
        }

    @classmethod
    def captured(cls) -> Shelf:
        """The shelf as it is now. The log is read from the revision before: what changes meanwhile is seen again."""
        shelf = cls(tail.latest_revision())
        kind = registry.by_resource(SLICES)
        for stored in objects.list(kind).items:
            shelf._apply_slice(objects.decode(kind, stored.text), False)
        for pod in Pod.objects.filter(phase__in=("", "Pending")).exclude(node_name="").values_list("uid", flat=True):
            shelf._holdings.pod_is(pod, preparing=True)
        for holding in _read_holdings():
            shelf._holdings.put(holding)
        shelf._cordoned.update(Node.objects.filter(unschedulable=True).values_list("name", flat=True))
        shelf._refresh({*shelf._slices_of, *shelf._holdings.pools()})
        shelf.catches_up()
        return shelf

    def catches_up(self) -> bool:
        """False where the log does not lead from there to now: it was pruned, or an older database was put back."""
        while True:
            try:
                latest, records = tail.read_on(self._revision, resources=FOLLOWED, limit=BATCH)
            except Expired:
                return False
            if latest < self._revision:
                return False
            self._apply(records)
            if len(records) < BATCH:
                self._note(max(latest, self._revision))
                return True
            self._note(records[-1].revision)

    def picture(self) -> Picture:
        if self._picture is None:
            pools = {key: units.pool for key, units in self._units.items()}
            self._picture = Picture(
                revision=self._revision,
                lines=dict(self._lines),
                pools=pools,
                holders={key: self._holdings.of_pool(key) for key in self._holdings.pools()},
                offers=self._offers,
            )
        return self._picture

    def _note(self, revision: int) -> None:
        if revision != self._revision:
            self._revision = revision
            self._picture = None

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
            self._units.pop(pool, None)
        return touched

    def _apply_claim(self, claim: Any, gone: bool) -> set[PoolKey]:
        return self._holdings.remove(claim.metadata.uid) if gone else self._holdings.put(holding_of(claim))

    def _apply_pod(self, pod: Any, gone: bool) -> set[PoolKey]:
        return self._holdings.pod_is(pod.metadata.uid, preparing=not gone and is_preparing(pod))

    def _apply_node(self, node: Any, gone: bool) -> set[PoolKey]:
        name, cordoned = node.metadata.name, node.spec.unschedulable and not gone
        if cordoned == (name in self._cordoned):
            return set()
        (self._cordoned.add if cordoned else self._cordoned.discard)(name)
        return set(self._pools_of_line.get(name, ()))

    # Drawing anew what was touched -----------------------------------------------------------------------------------

    def _refresh(self, pools: Iterable[PoolKey]) -> None:
        lines: set[str] = set()
        for key in pools:
            before = self._tiles.pop(key, {})
            now = self._tiles_of(key)
            if now:
                self._tiles[key] = now
            for line in before:
                self._pools_of_line[line].discard(key)
            for line in now:
                self._pools_of_line[line].add(key)
            lines.update(before, now)
        for name in lines:
            if self._pools_of_line[name]:
                self._lines[name] = self._line(name)
            else:
                del self._pools_of_line[name]
                self._lines.pop(name, None)
        if lines:
            self._picture = None

    def _tiles_of(self, key: PoolKey) -> dict[str, list[Tile]]:
        """line -> the pool's tiles there; devices that are held though nobody publishes them come last."""
        units = self._units.get(key) or self._read_pool(key)
        holders = self._holdings.of_pool(key)
        found: dict[str, list[Tile]] = defaultdict(list)
        elsewhere = "/".join(key)
        if units is not None:
            for tile in units.tiles(holders):
                found[tile.offers[0].node or elsewhere].append(tile)
        known = {offer.key for offer in units.pool.offers} if units else set()
        for device in sorted(holders.keys() - known):
            line = (units.pool.node if units else "") or elsewhere
            found[line].append(Tile(key=device, state="gone", holders=holders[device]))
        return dict(found)

    def _read_pool(self, key: PoolKey) -> Units | None:
        self.__dict__.pop("_offers", None)
        pool = gather(self._slices[name] for name in self._slices_of[key])
        if pool is None:
            self._slices_of.pop(key, None)
            return None
        units = self._units[key] = units_of(pool)
        return units

    @cached_property
    def _offers(self) -> tuple[Offer, ...]:
        return tuple(offer for key in sorted(self._units) for offer in self._units[key].pool.offers)

    def _line(self, name: str) -> Line:
        keys = sorted(self._pools_of_line[name])
        tiles = [tile for key in keys for tile in self._tiles[key][name]]
        pools = [self._units[key].pool for key in keys if key in self._units]
        on_node = any(tile.offers and tile.offers[0].node for tile in tiles) or any(pool.node == name for pool in pools)
        topics = [pool_topic(*key) for key in keys]
        return line_of(
            name,
            name if on_node else "",
            tiles,
            [*topics, node_topic(name)] if on_node else topics,
            trouble=_trouble(tiles, pools),
            cordoned=on_node and name in self._cordoned,
        )


def _trouble(tiles: Iterable[Tile], pools: Iterable[PoolContent]) -> str:
    """What is wrong with a line, for who looks at its name."""
    said = [
        f"{len(pool.slices)} of {pool.expected} slices of {pool.key[0]} are there, so its devices are not offered."
        for pool in pools
        if not pool.complete
    ]
    if broken := sum(tile.state == "bad" for tile in tiles):
        said.append("1 device is unhealthy." if broken == 1 else f"{broken} devices are unhealthy.")
    return " ".join(said)


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
_shelf: Shelf | None = None
