"""The device grid as values: which tile is in which state, who holds it, which tiles run together.

Pure: rows of the index tables in, groups of lines of tiles out. The page and its live updates draw the same values.

A line is a node, or a pool that belongs to no single node. A tile's state is one of `STATES`, in the order of the
legend; devices of one claim that stand side by side join into one entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

#: state -> what the legend calls it
STATES = {
    "free": "Free",
    "reserved": "Reserved",
    "alloc": "Allocated",
    "part": "Partly shared",
    "taint": "Tainted",
    "gone": "Unpublished",
}

#: state -> one sentence for a person who meets the mark for the first time
MEANINGS = {
    "free": "No claim holds it.",
    "reserved": "A claim holds it and is reserved for a pod.",
    "alloc": "A claim holds it, and no pod uses that claim.",
    "part": "Several claims share it; some of it is left.",
    "taint": "Its driver or an administrator fenced it off; claims need a toleration.",
    "gone": "Its driver does not publish it now, or publishes its pool in part.",
}

#: (driver, pool, device)
DeviceKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a device: one claim, and the pods that the claim is reserved for."""

    claim_uid: str
    namespace: str
    claim: str
    pods: tuple[str, ...]
    shared: bool  # holds a share of the device, not all of it

    @property
    def label(self) -> str:
        """`namespace/pod`, or the claim where no pod uses it, as tiles are named on hover."""
        return f"{self.namespace}/{', '.join(self.pods) or self.claim}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevice:
    """A row of the device index."""

    driver: str
    pool: str
    name: str
    node: str  # empty where the pool belongs to no single node
    model: str
    tainted: bool
    complete: bool  # its pool is complete

    @property
    def key(self) -> DeviceKey:
        return self.driver, self.pool, self.name

    @property
    def line(self) -> str:
        return self.node or f"{self.driver}/{self.pool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One device as it is drawn."""

    key: DeviceKey
    state: str
    holders: tuple[Holder, ...]
    joined: bool = False  # runs together with the tile before it
    run: int = 0  # tiles in the run that starts here; 0 inside a run

    @property
    def name(self) -> str:
        return self.key[2]

    @property
    def address(self) -> str:
        """driver/pool/device, as it stands in URLs and element ids."""
        return "/".join(self.key)

    @property
    def label(self) -> str:
        """What a screen reader says and the tip shows."""
        held = "; ".join(holder.label for holder in self.holders)
        return f"{self.name}, {STATES[self.state].lower()}" + (f", {held}" if held else "")

    @property
    def namespace(self) -> str:
        return self.holders[0].namespace if self.holders else ""

    @property
    def claim_uid(self) -> str:
        return self.holders[0].claim_uid if len(self.holders) == 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A node's devices (or those of a pool without a node), in published order."""

    key: str
    name: str
    tiles: tuple[Tile, ...]
    topics: tuple[str, ...]

    @property
    def free(self) -> int:
        return sum(tile.state == "free" for tile in self.tiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lines whose devices are of one model."""

    key: str
    title: str
    lines: tuple[Line, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """state -> devices, in the legend's order, without zeros."""
        found = Counter(tile.state for line in self.lines for tile in line.tiles)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def free(self) -> int:
        return self.counts.get("free", 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def pool_topic(driver: str, pool: str) -> str:
    """The live topic of a pool's devices."""
    return f"pool:{driver}/{pool}"


def state_of(device: PublishedDevice, holders: Sequence[Holder]) -> str:
    """The one state that a tile shows; what a person must know first wins."""
    if not device.complete:
        return "gone"
    if device.tainted:
        return "taint"
    if not holders:
        return "free"
    if all(holder.shared for holder in holders):
        return "part"
    return "reserved" if any(holder.pods for holder in holders) else "alloc"


def build_groups(devices: Iterable[PublishedDevice], holders: Mapping[DeviceKey, Sequence[Holder]]) -> list[Group]:
    """The whole grid. `devices` come in published order within their pool."""
    lines: dict[str, list[PublishedDevice]] = {}
    for device in devices:
        lines.setdefault(device.line, []).append(device)
    groups: dict[str, list[Line]] = {}
    for key in sorted(lines, key=natural):
        groups.setdefault(_model_of(lines[key]), []).append(_line(key, lines[key], holders))
    return [Group(key=model, title=model, lines=tuple(groups[model])) for model in sorted(groups)]


def totals(groups: Iterable[Group]) -> Mapping[str, int]:
    """state -> devices over the whole grid, zeros included, in the legend's order."""
    found: Counter[str] = Counter()
    for group in groups:
        found.update(group.counts)
    return {state: found[state] for state in STATES}


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


def _model_of(devices: Sequence[PublishedDevice]) -> str:
    """The model that most devices of the line have (the first of equals)."""
    return Counter(device.model for device in devices).most_common(1)[0][0]


def _line(key: str, devices: Sequence[PublishedDevice], holders: Mapping[DeviceKey, Sequence[Holder]]) -> Line:
    tiles = []
    for device in devices:
        held_by = tuple(holders.get(device.key, ()))
        tiles.append(Tile(key=device.key, state=state_of(device, held_by), holders=held_by))
    pools = dict.fromkeys(pool_topic(device.driver, device.pool) for device in devices)
    return Line(key=key, name=key, tiles=_join_runs(tiles), topics=tuple(pools))


def _join_runs(tiles: Sequence[Tile]) -> tuple[Tile, ...]:
    """Mark neighbours that one claim holds in the same state, and how long each run is."""
    starts: list[int] = []
    for index, tile in enumerate(tiles):
        before = tiles[index - 1] if index else None
        joins = before and tile.claim_uid and (tile.claim_uid, tile.state) == (before.claim_uid, before.state)
        starts.append(starts[-1] if joins and tile.state in {"reserved", "taint"} else index)
    lengths = Counter(starts)
    return tuple(
        replace(tile, joined=starts[index] != index, run=lengths[index]) if tile.holders else tile
        for index, tile in enumerate(tiles)
    )
