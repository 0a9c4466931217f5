"""The device grid as values: which tile is in which state, who holds it, which tiles run together.

Pure: what is published and who holds it in, lines of tiles out. The page and its live updates draw the same values.

A line is a node, or a pool that belongs to no single node. A tile is a device; the devices that are cut from one GPU
are one tile together, a card (see `claims.devices.cards`). A tile is a `Unit`;
devices of one claim that stand side by side join into one entry.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from claims.devices.cards import Unit
from claims.devices.pools import DeviceSnapshot, PoolState, changed
from claims.devices.published import DevicePool
from claims.devices.states import DeviceState
from inventory.kinds.pools import PoolKey
from inventory.live import node_topic, pool_topic
from manciple.wire.base import Alike
from manciple.wire.validation import natural

#: What a column of the stylesheet has room for: tiles, and gauges beside them (`--nics`).
COLUMN_TILES, COLUMN_GAUGES = 8, 2
#: States in which neighbours of one claim run together.
_RUNNING = {DeviceState.RESERVED, DeviceState.TAINTED}


@dataclass(frozen=True, kw_only=True, eq=False)
class GridLine:
    """A node's devices (or those of a pool without a node), in published order. Compared by identity.

    trouble: what is wrong with the line as a whole, as a sentence. cordoned: its node takes no new pods.
    """

    key: str
    node: str
    tiles: tuple[Unit, ...]
    topics: tuple[str, ...]
    trouble: str = ""
    cordoned: bool = False

    @property
    def name(self) -> str:
        return self.key

    @property
    def place(self) -> str:
        """Where its devices are, behind their names: "gpu-0 on node-1"."""
        return f"on {self.node}" if self.node else f"in {self.key}"

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """For each tile, how many of one claim and state stand side by side from it on; 0 inside such a run."""
        starts: list[int] = []
        for index, tile in enumerate(self.tiles):
            before = self.tiles[index - 1] if index else None
            starts.append(starts[-1] if before and _joins(before, tile) else index)
        lengths = Counter(starts)
        return tuple(lengths[index] for index in range(len(self.tiles)))

    @cached_property
    def counts(self) -> Counter[str]:
        """state -> tiles."""
        return _alike(Counter(tile.state for tile in self.tiles))

    @cached_property
    def namespaces(self) -> Counter[str]:
        """namespace -> tiles that it holds something of."""
        return _alike(Counter(name for tile in self.tiles for name in {holder.namespace for holder in tile.holders}))

    @cached_property
    def model(self) -> str:
        """The model that most of its tiles have (the first of equals)."""
        models = Counter(tile.model for tile in self.main)
        return models.most_common(1)[0][0] if models else ""

    @cached_property
    def main(self) -> tuple[Unit, ...]:
        """What a line is counted by: its devices without the gauges, where there are others."""
        return tuple(tile for tile in self.tiles if not tile.gauge) or self.tiles

    @cached_property
    def main_counts(self) -> Counter[str]:
        return _alike(Counter(tile.state for tile in self.main))

    @property
    def free(self) -> int:
        return self.main_counts[DeviceState.FREE]

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


#: many lines are in the same state
_counters = Alike[Counter[str]]()


def _alike(counted: Counter[str]) -> Counter[str]:
    return _counters.first(tuple(counted.items()), counted)


def _joins(before: Unit, tile: Unit) -> bool:
    if tile.gauge or tile.parts or before.parts or tile.state not in _RUNNING or not tile.claim_uid:
        return False
    return (tile.claim_uid, tile.state) == (before.claim_uid, before.state)


def line_of(
    key: str, node: str, tiles: Iterable[Unit], topics: Iterable[str], *, trouble: str = "", cordoned: bool = False
) -> GridLine:
    """Gauges stand at its end."""
    ordered = tuple(tiles)
    if any(tile.gauge for tile in ordered):
        ordered = tuple(sorted(ordered, key=lambda tile: tile.gauge))
    return GridLine(key=key, node=node, tiles=ordered, topics=tuple(topics), trouble=trouble, cordoned=cordoned)


# All lines -----------------------------------------------------------------------------------------------------------


class Grid:
    """The lines of the last snapshot that was asked for. Of the next one only those lines are drawn anew that changed.

    One for all requests of the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot: DeviceSnapshot | None = None
        #: pool -> line -> its tiles there
        self._tiles: dict[PoolKey, Mapping[str, Sequence[Unit]]] = {}
        self._pools_of_line: dict[str, tuple[PoolKey, ...]] = {}
        self._lines: dict[str, GridLine] = {}
        self._ordered: tuple[GridLine, ...] = ()

    def lines(self, snapshot: DeviceSnapshot) -> tuple[GridLine, ...]:
        """As a person counts: node-2 before node-10."""
        with self._lock:
            if self._snapshot is not snapshot:
                self._follow(snapshot)
            return self._ordered

    def line(self, snapshot: DeviceSnapshot, name: str) -> GridLine | None:
        """None where the node, or pool without a node, has no device."""
        with self._lock:
            if self._snapshot is not snapshot:
                self._follow(snapshot)
            return self._lines.get(name)

    def _follow(self, snapshot: DeviceSnapshot) -> None:
        last = self._snapshot
        lines = set(snapshot.cordoned ^ (last.cordoned if last is not None else frozenset()))
        for key in changed(last.pools if last is not None else {}, snapshot.pools):
            lines |= self._place(key, snapshot.pools.get(key))
        for name in lines:
            if self._pools_of_line.get(name):
                self._lines[name] = self._line(name, snapshot)
            else:
                self._pools_of_line.pop(name, None)
                self._lines.pop(name, None)
        self._snapshot = snapshot
        if lines:
            self._ordered = tuple(self._lines[name] for name in sorted(self._lines, key=natural))

    def _place(self, key: PoolKey, pool: PoolState | None) -> set[str]:
        """Put the pool's tiles on their lines. Returns the lines that have, or had, some."""
        before = self._tiles.pop(key, {})
        now = _tiles_of(pool) if pool is not None else {}
        if now:
            self._tiles[key] = now
        for line in before:
            self._pools_of_line[line] = tuple(one for one in self._pools_of_line[line] if one != key)
        for line in now:
            self._pools_of_line[line] = (*self._pools_of_line.get(line, ()), key)
        return {*before, *now}

    def _line(self, name: str, snapshot: DeviceSnapshot) -> GridLine:
        keys = sorted(self._pools_of_line[name])
        found = [self._tiles[key][name] for key in keys]
        tiles = tuple(found[0]) if len(found) == 1 else tuple(chain.from_iterable(found))
        pools = [pool for key in keys if (pool := snapshot.pools[key].pool).slices]
        on_node = any(tile.candidates and tile.candidates[0].node for tile in tiles) or any(
            pool.node == name for pool in pools
        )
        topics = list(dict.fromkeys(pool_topic(key.driver, key.name) for key in keys))
        return line_of(
            name,
            name if on_node else "",
            tiles,
            [*topics, node_topic(name)] if on_node else topics,
            trouble=_trouble(tiles, pools),
            cordoned=on_node and name in snapshot.cordoned,
        )


def _tiles_of(state: PoolState) -> Mapping[str, Sequence[Unit]]:
    """line -> the pool's tiles there."""
    elsewhere = str(state.pool.key)
    node = state.pool.node
    found: dict[str, list[Unit]] = defaultdict(list)
    for unit in state.units:
        found[(unit.candidates[0].node if unit.candidates else node) or elsewhere].append(unit)
    # Most pools stand on one line: the tuple that the pool has.
    return dict.fromkeys(found, state.units) if len(found) == 1 else found


def _trouble(tiles: Iterable[Unit], pools: Iterable[DevicePool]) -> str:
    """What is wrong with a line, for the title of its name."""
    said = [
        f"{len(pool.slices)} of {pool.expected} slices of {pool.key[0]} are published; its devices are not allocatable."
        for pool in pools
        if not pool.complete
    ]
    if broken := sum(tile.state == DeviceState.UNHEALTHY for tile in tiles):
        said.append("1 device is unhealthy." if broken == 1 else f"{broken} devices are unhealthy.")
    return " ".join(said)


_GRID = Grid()
#: The lines of a snapshot, and one of them.
lines_of, line_named = _GRID.lines, _GRID.line
