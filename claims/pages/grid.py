"""The device grid as values: which tile is in which state, who holds it, which tiles run together.

Pure: what is published and who holds it in, lines of tiles out. The page and its live updates draw the same values.

A line is a node, or a pool that belongs to no single node. A tile is a device; the devices that are cut from one GPU
are one tile together, a card (see `claims.pages.cards`). A tile's state is one of `STATES`, in the order of the legend;
devices of one claim that stand side by side join into one entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import NamedTuple

from claims.pages.published import DeviceKey, Keyed, Offer, nanos

__all__ = [
    "DeviceKey",
    "Holder",
    "Line",
    "Offer",
    "Other",
    "Part",
    "Tile",
    "line_of",
    "natural",
    "pool_topic",
    "state_of",
]

#: state -> what the legend calls it
STATES = {
    "free": "Free",
    "reserved": "Reserved",
    "alloc": "Allocated",
    "prep": "Preparing",
    "part": "Partly shared",
    "blocked": "Blocked",
    "taint": "Tainted",
    "bad": "Unhealthy",
    "gone": "Unpublished",
}

#: state -> one sentence for a person who meets the mark for the first time
MEANINGS = {
    "free": "No claim holds it.",
    "reserved": "A claim holds it, and somebody uses that claim.",
    "alloc": "A claim holds it, and nobody uses that claim.",
    "prep": "A claim holds it for a pod that is on its node and does not run yet.",
    "part": "Some of it is held and some of it is left.",
    "blocked": "Others hold the hardware that it needs; it is free again when they are done.",
    "taint": "Its driver or an administrator fenced it off; claims need a toleration.",
    "bad": "Its driver says that it is broken; claims need a toleration.",
    "gone": "Its driver does not publish it now, or publishes its pool in part.",
}

#: What a column of the stylesheet has room for: tiles, and gauges beside them (`--nics`).
COLUMN_TILES, COLUMN_GAUGES = 8, 2
#: States in which neighbours of one claim run together.
_RUNNING = {"reserved", "taint"}
#: What a shared device shows as full; above it nothing can be left but rounding.
_FULL = 100
#: How full a shared device looks whose claims do not say how much they take.
_UNKNOWN_SHARE = 50


class Other(NamedTuple):
    """Who a claim is reserved for besides pods. resource: as kubectl names it, such as "jobs.batch"."""

    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.resource} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a device: one claim, and the pods and others that the claim is reserved for."""

    claim_uid: str
    namespace: str
    claim: str
    pods: tuple[str, ...]
    shared: bool  # holds a share of the device, not all of it
    preparing: bool = False  # for a pod that is bound and does not run yet
    since: datetime | None = None
    #: capacity -> how much of it, in nanos
    consumed: Mapping[str, int] = field(default_factory=dict, compare=False)
    others: tuple[Other, ...] = ()

    @property
    def users(self) -> tuple[str, ...]:
        """The pods by name, the others with what they are; empty where nobody uses the claim."""
        return (*self.pods, *map(str, self.others))

    @property
    def label(self) -> str:
        """`namespace/pod`, or the claim where nobody uses it, as tiles are named on hover."""
        return f"{self.namespace}/{', '.join(self.users) or self.claim}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A partition inside a card. weight: its share of the card, in thousandths. offer: None for what nobody gets."""

    offer: Offer | None
    state: str
    weight: int
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile(Keyed):
    """One mark of the grid: a device, or a card and what it is cut into.

    key: of the device that its panel is about. offers: every published device that it stands for.
    """

    key: DeviceKey
    state: str
    holders: tuple[Holder, ...]
    offers: tuple[Offer, ...] = ()
    parts: tuple[Part, ...] = ()
    level: int = 0  # percent in use, of a shared device
    gauge: bool = False
    joined: bool = False  # runs together with the tile before it
    run: int = 0  # tiles in the run that starts here; 0 inside a run

    @property
    def namespace(self) -> str:
        return self.holders[0].namespace if self.holders else ""

    @property
    def claim_uid(self) -> str:
        return self.holders[0].claim_uid if len(self.holders) == 1 else ""

    @property
    def cut(self) -> bool:
        """Whether it is a card: hardware that is published in partitions."""
        return len(self.offers) > 1

    @property
    def model(self) -> str:
        model = self.offers[0].model if self.offers else self.key[0]
        return f"{model}, partitioned" if self.cut else model


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """A node's devices (or those of a pool without a node), in published order. Compared by identity.

    trouble: what is wrong with the line as a whole, as a sentence. cordoned: its node takes no new pods.
    """

    key: str
    node: str
    tiles: tuple[Tile, ...]
    topics: tuple[str, ...]
    trouble: str = ""
    cordoned: bool = False

    @property
    def name(self) -> str:
        return self.key

    @cached_property
    def counts(self) -> Counter[str]:
        """state -> tiles."""
        return Counter(tile.state for tile in self.tiles)

    @cached_property
    def namespaces(self) -> Counter[str]:
        """namespace -> tiles that it holds something of."""
        return Counter(name for tile in self.tiles for name in {holder.namespace for holder in tile.holders})

    @cached_property
    def model(self) -> str:
        """The model that most of its tiles have (the first of equals)."""
        models = Counter(tile.model for tile in self.main)
        return models.most_common(1)[0][0] if models else ""

    @cached_property
    def main(self) -> tuple[Tile, ...]:
        """What a line is counted by: its devices without the gauges, where there are others."""
        return tuple(tile for tile in self.tiles if not tile.gauge) or self.tiles

    @cached_property
    def main_counts(self) -> Counter[str]:
        return Counter(tile.state for tile in self.main)

    @property
    def free(self) -> int:
        return self.main_counts["free"]

    @cached_property
    def gauges(self) -> int:
        """How many of its tiles are narrow."""
        return sum(tile.gauge for tile in self.tiles)

    @property
    def many(self) -> bool:
        """Whether it goes on below its first row where that finds no room."""
        return self.gauges > COLUMN_GAUGES or len(self.tiles) - self.gauges > COLUMN_TILES

    @property
    def cut(self) -> bool:
        """Whether it has cards, which want room."""
        return any(tile.cut for tile in self.tiles)


def pool_topic(driver: str, pool: str) -> str:
    """The live topic of a pool's devices."""
    return f"pool:{driver}/{pool}"


def node_topic(name: str) -> str:
    """The live topic of a node."""
    return f"node:{name}"


def state_of(offer: Offer | None, holders: Sequence[Holder], *, complete: bool = True, level: int = 0) -> str:
    """The one state that a tile shows; what a person must know first wins. offer: None where nobody publishes it."""
    if offer is None or not complete:
        return "gone"
    if offer.fence:
        return offer.fence
    if not holders:
        return "free"
    if level < _FULL and all(holder.shared for holder in holders):
        return "part"
    if any(holder.preparing for holder in holders):
        return "prep"
    return "reserved" if any(holder.users for holder in holders) else "alloc"


def level_of(offer: Offer, holders: Iterable[Holder]) -> int:
    """How much of a shared device is in use, in percent: of the capacity that is nearest its end."""
    shares = [holder for holder in holders if holder.shared]
    if not shares:
        return 0
    consumed: Counter[str] = Counter()
    for holder in shares:
        consumed.update(holder.consumed)
    levels = [
        100 * used // whole
        for name, used in consumed.items()
        if name in offer.device.capacity and (whole := nanos(offer.device.capacity[name].value))
    ]
    return min(_FULL, max(levels)) if levels else _UNKNOWN_SHARE


def tile_of(offer: Offer, holders: tuple[Holder, ...], *, complete: bool) -> Tile:
    level = level_of(offer, holders)
    return Tile(
        key=offer.key,
        state=state_of(offer, holders, complete=complete, level=level),
        holders=holders,
        offers=(offer,),
        level=level,
        gauge=offer.gauge,
    )


def line_of(
    key: str, node: str, tiles: Iterable[Tile], topics: Iterable[str], *, trouble: str = "", cordoned: bool = False
) -> Line:
    """A line whose neighbours of one claim run together; gauges stand at its end."""
    ordered = sorted(tiles, key=lambda tile: tile.gauge)
    return Line(key=key, node=node, tiles=join_runs(ordered), topics=tuple(topics), trouble=trouble, cordoned=cordoned)


def join_runs(tiles: Sequence[Tile]) -> tuple[Tile, ...]:
    """Mark neighbours that one claim holds in the same state, and how long each run is."""
    starts: list[int] = []
    for index, tile in enumerate(tiles):
        before = tiles[index - 1] if index else None
        starts.append(starts[-1] if before and _joins(before, tile) else index)
    lengths = Counter(starts)
    return tuple(
        replace(tile, joined=starts[index] != index, run=lengths[index]) if tile.holders else tile
        for index, tile in enumerate(tiles)
    )


def _joins(before: Tile, tile: Tile) -> bool:
    if tile.gauge or tile.parts or before.parts or tile.state not in _RUNNING or not tile.claim_uid:
        return False
    return (tile.claim_uid, tile.state) == (before.claim_uid, before.state)


@lru_cache(maxsize=20_000)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sorting key that puts node-2 before node-10."""
    parts: list[tuple[int, int, str]] = []
    digits = text = ""
    for character in f"{name}\0":
        if character.isdigit() and character.isascii():
            digits += character
            continue
        if digits:
            parts += [(1, 0, text), (0, int(digits), "")]
            digits = text = ""
        text += character
    return (*parts, (1, 0, text))
