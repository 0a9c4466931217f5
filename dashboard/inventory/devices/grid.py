"""The device grid: its tiles on lines, the lines under headings, what a person may know of them, and all of it as HTML.

A line is a node, or a pool that belongs to no single node. A tile is a `Unit` (`claims.devices.cache`): a device, or
the devices that are cut from one GPU together. Neighbouring tiles of one claim form a run. That a device is held is
shown to everybody, by which claim only to those who see its namespace.

HTML is written without a template, one element for each tile: a page may have four thousand of them. Of a larger grid
a page has every line, so that it scrolls as a whole, but the tiles of those that are looked at.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import chain
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakKeyDictionary

from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify
from msgspec import structs

from claims.devices.cache import WHOLE, DeviceSnapshot, Part, PoolState, Unit, changed
from claims.devices.holdings import Holder
from claims.devices.published import CandidateDevice, DeviceKey, DevicePool
from claims.devices.states import DeviceState
from dashboard.templatetags.kit import counted, device_url, node_url
from inventory.kinds.pools import PoolKey
from inventory.live import node_topic, pool_topic
from manciple.people import Person
from manciple.per_process import PerProcess
from manciple.wire.base import Alike
from manciple.wire.resources import TAINT_RULES
from manciple.wire.validation import natural

#: state -> what the legend calls it
STATES: Mapping[str, str] = {
    DeviceState.FREE: "Free",
    DeviceState.RESERVED: "Reserved",
    DeviceState.ALLOCATED: "Allocated",
    DeviceState.PREPARING: "Preparing",
    DeviceState.PARTLY_SHARED: "Partly shared",
    DeviceState.BLOCKED: "Blocked",
    DeviceState.CLOSED: "Node closed",
    DeviceState.TAINTED: "Tainted",
    DeviceState.UNHEALTHY: "Unhealthy",
    DeviceState.UNPUBLISHED: "Unpublished",
    DeviceState.UNREACHABLE: "Unreachable",
    DeviceState.UNKNOWN: "Unknown",
}

#: state -> one sentence for a person who meets the mark for the first time
MEANINGS: Mapping[str, str] = {
    DeviceState.FREE: "It can be allocated now.",
    DeviceState.RESERVED: "Held by a claim in use.",
    DeviceState.ALLOCATED: "Held by a claim that is not in use.",
    DeviceState.PREPARING: "Held for a pod that is starting on its node.",
    DeviceState.PARTLY_SHARED: "Part of it is held.",
    DeviceState.BLOCKED: "Other claims hold hardware that it needs.",
    DeviceState.CLOSED: "Its node is cordoned, tainted, full or gone.",
    DeviceState.TAINTED: "Claims need a toleration.",
    DeviceState.UNHEALTHY: "Its driver reports a fault.",
    DeviceState.UNPUBLISHED: "Not published now, or its pool is incomplete.",
    DeviceState.UNREACHABLE: "Its node's agent does not report.",
    DeviceState.UNKNOWN: "What could hold it may not be read.",
}

#: How a bar is drawn, from left to right: what is held, what is out of use, what is free.
IN_BARS = (
    DeviceState.RESERVED,
    DeviceState.ALLOCATED,
    DeviceState.PREPARING,
    DeviceState.PARTLY_SHARED,
    DeviceState.CLOSED,
    DeviceState.TAINTED,
    DeviceState.UNHEALTHY,
    DeviceState.UNPUBLISHED,
    DeviceState.UNREACHABLE,
    DeviceState.UNKNOWN,
    DeviceState.BLOCKED,
    DeviceState.FREE,
)


def bar_of(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """(state, devices) as a bar shows them, without zeros."""
    return [(state, counts[state]) for state in IN_BARS if counts.get(state)]


def in_words(counts: Mapping[str, int]) -> str:
    """The bar for those who do not see it."""
    return ", ".join(f"{count:,} {STATES[state].lower()}" for state, count in bar_of(counts)) or "no device"


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """Devices by state, as a bar and its words show them."""

    counts: Mapping[str, int]

    @property
    def bar(self) -> list[tuple[str, int]]:
        return bar_of(self.counts)

    @property
    def worded(self) -> list[tuple[str, int, str]]:
        return [(state, count, STATES[state]) for state, count in self.bar]

    @property
    def said(self) -> str:
        return in_words(self.counts)

    @property
    def free(self) -> int:
        return self.counts.get(DeviceState.FREE, 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


#: Tiles of a line; one that has more goes on in others, its pieces.
LONGEST_LINE = 256
#: What a column of the stylesheet has room for: tiles, and gauges beside them (`--nics`).
COLUMN_TILES, COLUMN_GAUGES = 8, 2
#: States in which neighbours of one claim run together.
_RUNNING = {DeviceState.RESERVED, DeviceState.TAINTED}


@dataclass(frozen=True, kw_only=True, eq=False)
class GridLine:
    """A node's devices (or those of a pool without a node), in published order. Compared by identity.

    trouble: what is wrong with the line as a whole, as a sentence. cordoned: its node takes no new pods. unreachable:
    nothing is heard of its node. piece: which one of a long line it is, after the first.
    """

    name: str
    node: str
    tiles: tuple[Unit, ...]
    topics: tuple[str, ...]
    trouble: str = ""
    cordoned: bool = False
    unreachable: bool = False
    piece: int = 0

    @property
    def pieces(self) -> tuple[GridLine, ...]:
        return self._pieces if len(self.tiles) > LONGEST_LINE else (self,)

    @cached_property
    def _pieces(self) -> tuple[GridLine, ...]:
        starts = range(0, len(self.tiles), LONGEST_LINE)
        return tuple(
            replace(self, tiles=self.tiles[start : start + LONGEST_LINE], piece=piece)
            for piece, start in enumerate(starts)
        )

    @property
    def place(self) -> str:
        """Where its devices are, behind their names: "gpu-0 on node-1"."""
        return f"on {self.node}" if self.node else f"in {self.name}"

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
    def free(self) -> int:
        return sum(tile.state == DeviceState.FREE for tile in self.main)

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
    name: str,
    node: str,
    tiles: Iterable[Unit],
    topics: Iterable[str],
    *,
    trouble: str = "",
    cordoned: bool = False,
    unreachable: bool = False,
) -> GridLine:
    """Gauges stand at its end."""
    ordered = tuple(tiles)
    if any(tile.gauge for tile in ordered):
        ordered = tuple(sorted(ordered, key=lambda tile: tile.gauge))
    return GridLine(
        name=name,
        node=node,
        tiles=ordered,
        topics=tuple(topics),
        trouble=trouble,
        cordoned=cordoned,
        unreachable=unreachable,
    )


class Grid:
    """A cache of the lines of the last snapshot: only lines that changed are built again for the next one.

    Shared by all requests of the process.
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
        lines |= snapshot.unreachable ^ (last.unreachable if last is not None else frozenset())
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
        unreachable = on_node and name in snapshot.unreachable
        return line_of(
            name,
            name if on_node else "",
            tiles,
            [*topics, node_topic(name)] if on_node else topics,
            trouble=_trouble(tiles, pools, unreachable=unreachable),
            cordoned=on_node and name in snapshot.cordoned,
            unreachable=unreachable,
        )


def _tiles_of(state: PoolState) -> Mapping[str, Sequence[Unit]]:
    """line -> the pool's tiles there."""
    elsewhere, node = str(state.pool.key), state.pool.node
    found: dict[str, list[Unit]] = defaultdict(list)
    for unit in state.units:
        found[(unit.candidates[0].node if unit.candidates else node) or elsewhere].append(unit)
    # Most pools stand on one line: the tuple that the pool has.
    return dict.fromkeys(found, state.units) if len(found) == 1 else found


def _trouble(tiles: Iterable[Unit], pools: Iterable[DevicePool], *, unreachable: bool) -> str:
    """What is wrong with a line, for the title of its name."""
    if unreachable:
        return "The node is unreachable."
    said = [
        f"{len(pool.slices)} of {pool.expected} slices of {pool.key[0]} are published; its devices are not allocatable."
        for pool in pools
        if not pool.complete
    ]
    if broken := sum(tile.state == DeviceState.UNHEALTHY for tile in tiles):
        said.append(f"{counted(broken, 'device is', 'devices are')} unhealthy.")
    return " ".join(said)


_GRID = Grid()
#: The lines of a snapshot, and one of them.
lines_of, line_named = _GRID.lines, _GRID.line


#: how the grid can be grouped -> what the button says
GROUPINGS = {"model": "Model", "class": "Class", "namespace": "Namespace", "node": "Node"}
NOBODY = "Held by nobody"
NO_CLASS = "In no class"
#: One for each of eight GPUs; a line of more goes on below.
_MOST_GAUGES = 8


@dataclass(frozen=True, kw_only=True)
class LineGroup:
    """A heading and its lines."""

    title: str
    lines: tuple[GridLine, ...]

    @property
    def id(self) -> str:
        return slugify(self.title) or "group"

    @cached_property
    def pieces(self) -> tuple[GridLine, ...]:
        """Its lines as they are drawn."""
        return tuple(chain.from_iterable(line.pieces for line in self.lines))

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """state -> tiles that lines are counted by, in the legend's order, without zeros."""
        found: Counter[str] = Counter(tile.state for line in self.lines for tile in line.main)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def said(self) -> str:
        """The counts in words."""
        return ", ".join(f"{count:,} {STATES[state].lower()}" for state, count in self.counts.items())

    @property
    def free(self) -> int:
        return self.counts.get("free", 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    #: whether it has cards, which want room
    @property
    def cut(self) -> bool:
        return any(line.cut for line in self.lines)

    @cached_property
    def interfaces(self) -> tuple[int, int]:
        """Of the network interfaces, where they stand beside others: free, all."""
        beside = [tile for line in self.lines if len(line.main) < len(line.tiles) for tile in line.tiles if tile.gauge]
        return sum(tile.state == DeviceState.FREE for tile in beside), len(beside)

    @property
    def gauges(self) -> int:
        """How many gauges its columns leave room for, where that is more than the stylesheet's own; else 0."""
        most = max((line.gauges for line in self.lines), default=0)
        return min(most, _MOST_GAUGES) if most > COLUMN_GAUGES else 0


def group_lines(
    by: str, lines: Iterable[GridLine], classes: Mapping[str, frozenset[CandidateDevice]]
) -> list[LineGroup]:
    """by: one of `GROUPINGS`. classes: name -> the devices that it accepts."""
    if by == "namespace":
        return _by_holder(lines)
    found: dict[str, list[GridLine]] = {}
    for line in lines:
        title = line.model if by == "model" else "Nodes" if by == "node" else _class_of(line, classes)
        found.setdefault(title, []).append(line)
    titles = sorted(found, key=lambda title: (title == NO_CLASS, title))
    return [LineGroup(title=title, lines=tuple(found[title])) for title in titles]


def _class_of(line: GridLine, classes: Mapping[str, frozenset[CandidateDevice]]) -> str:
    """The class that accepts most of its devices; of equals the one that accepts fewest elsewhere."""
    candidates = [candidate for tile in line.main for candidate in tile.candidates]
    best = max(
        classes,
        key=lambda name: (sum(candidate in classes[name] for candidate in candidates), -len(classes[name])),
        default=NO_CLASS,
    )
    return best if best in classes and not classes[best].isdisjoint(candidates) else NO_CLASS


def _by_holder(lines: Iterable[GridLine]) -> list[LineGroup]:
    """A line stands under each namespace that holds something of it, with those devices alone."""
    found: dict[str, list[GridLine]] = {}
    for line in lines:
        for title in sorted({tile.namespace or NOBODY for tile in line.tiles}, key=natural):
            kept = [tile for tile in line.tiles if (tile.namespace or NOBODY) == title]
            found.setdefault(title, []).append(replace(line, tiles=tuple(kept)))
    titles = sorted(found, key=lambda title: (title == NOBODY, natural(title)))
    return [LineGroup(title=title, lines=tuple(found[title])) for title in titles]


# What a person may know of holders -----------------------------------------------------------------------------------

#: What stands for the namespace of a holder that is not to be named.
ELSEWHERE = "another namespace"


class DeviceRights(NamedTuple):
    """Which acts on devices a page offers."""

    taint: bool
    untaint: bool

    @classmethod
    def of(cls, person: Person) -> DeviceRights:
        return cls(taint=person.may("create", TAINT_RULES), untaint=person.may("delete", TAINT_RULES))


def lines_for(person: Person, lines: Sequence[GridLine]) -> Sequence[GridLine]:
    return lines if person.namespaces is None else [line_for(person, line) for line in lines]


def line_for(person: Person, line: GridLine) -> GridLine:
    if person.namespaces is None or all(map(person.sees, line.namespaces)):
        return line
    tiles = []
    for tile in line.tiles:
        parts = tuple(replace(part, holders=holders_for(person, part.holders)) for part in tile.parts)
        tiles.append(structs.replace(tile, holders=holders_for(person, tile.holders), parts=parts))
    return replace(line, tiles=tuple(tiles))


def holders_for(person: Person, holders: Iterable[Holder]) -> tuple[Holder, ...]:
    return tuple(
        holder
        if person.sees(holder.namespace)
        else replace(holder, claim_uid="", namespace=ELSEWHERE, claim="", pods=(), others=())
        for holder in holders
    )


# Tiles as HTML -------------------------------------------------------------------------------------------------------

#: A partition at least this large has room for its profile, in thousandths of the card.
_NAMED = WHOLE // 5
#: Letters at the end of a node's name that are never cut.
ENDING = 8
#: Letters of a claim's uid by which a page knows its devices: random ones are a third of what is sent of a large grid.
KIN = 13
#: What is said of a node that is marked as cordoned.
CORDONED = "Cordoned: no new pods"


def draw_lines(
    lines: Iterable[tuple[str, GridLine]],
    *,
    current: str = "",
    matches: Callable[[Unit], bool] | None = None,
    whole: Container[str] | None = None,
) -> SafeString:
    """Lines as list items. lines: (id, line). current: the address of the device whose panel is open.

    What does not match is dim. whole: ids of the lines that are drawn with their tiles; None for all. The others have
    the same name and take the same room; they have no topics, by which a page tells them.
    """
    drawn = []
    for id_, line in lines:
        marks = {"many": line.many, "cards": line.cut, "warn": line.trouble, "cordoned": line.cordoned}
        kinds = " ".join(["node", *(mark for mark, told in marks.items() if told)])
        if whole is not None and id_ not in whole:
            topics, inside = "", _outline(line)
        else:
            tiles = (
                _tiles(line, current)
                if matches is None
                else (draw_tile(tile, at, dim=not matches(tile), current=current) for tile, at in places(line))
            )
            topics, inside = f' data-topics="{escape(" ".join(line.topics))}"', _line_name(line) + "".join(tiles)
        drawn.append(
            f'<div class="{kinds}" role="row" id="{escape(id_)}"{topics}>'
            # What stands on it is laid out by itself, which an item of a CSS grid is not.
            f'<div class="line">{inside}</div></div>'
        )
    return mark_safe("".join(drawn))  # noqa: S308 - every value is escaped


#: a line without its tiles, for as long as the line stays as it is
_outlines = PerProcess(WeakKeyDictionary[GridLine, str])


def _outline(line: GridLine) -> str:
    """The line's name; of one with several rows the room of its tiles, too, by which its height follows."""
    known = _outlines.value.get(line)
    if known is None:
        room = (
            "".join(
                f'<i class="room{" nic" if tile.gauge else ""}{" parts" if tile.cut else ""}'
                f'{" first" if at.first_gauge else ""}"></i>'
                for tile, at in places(line)
            )
            if line.many
            else ""
        )
        known = _outlines.value[line] = _line_name(line, titled=False) + room
    return known


#: a line's tiles when nothing is dim and no panel is open, for as long as the line stays as it is
_plain = PerProcess(WeakKeyDictionary[GridLine, str])


def _tiles(line: GridLine, current: str) -> Iterable[str]:
    if current and any(_shows(tile, current) for tile in line.tiles):
        return (draw_tile(tile, at, current=current) for tile, at in places(line))
    known = _plain.value.get(line)
    if known is None:
        known = _plain.value[line] = "".join(draw_tile(tile, at) for tile, at in places(line))
    return (known,)


class TilePlace(NamedTuple):
    """A tile on its line. place: as `GridLine.place`. run: as `GridLine.runs` has it.

    goes_on: the next tile is of the same run. first_gauge: it is the first of the narrow ones.
    """

    place: str = ""
    run: int = 1
    goes_on: bool = False
    first_gauge: bool = False


def places(line: GridLine) -> Iterator[tuple[Unit, TilePlace]]:
    place, runs = line.place, (*line.runs, 1)
    first = len(line.tiles) - line.gauges  # gauges stand at the end
    for index, tile in enumerate(line.tiles):
        yield tile, TilePlace(place, runs[index], not runs[index + 1], index == first)


def _line_name(line: GridLine, *, titled: bool = True) -> str:
    """titled: with a title that counts its devices."""
    name = escape(line.name)
    said = [CORDONED] if line.cordoned else []
    said += [line.trouble] if line.trouble else []
    free = f"{line.free} of {len(line.main)} free"
    if beside := len(line.tiles) - len(line.main):
        free += f", and {line.counts[DeviceState.FREE] - line.free} of {beside} network interfaces"
    title = f' title="{name}, {free}{"".join(f". {escape(one)}" for one in said)}"' if titled else ""
    start, end = line.name[:-ENDING], line.name[-ENDING:]  # names begin alike: a long one loses its beginning
    shown = f'<span class="start">{escape(start)}</span><span>{escape(end)}</span>' if start else escape(end)
    inside = shown + "".join(f'<span class="sr">, {escape(one)}</span>' for one in said)
    if line.node:
        whole = escape(", ".join((line.name, *said)))
        inside = f'<a href="{escape(node_url(line.node))}" tabindex="-1" aria-label="{whole}">{inside}</a>'
    return f'<span class="name" role="rowheader"{title}>{inside}</span>'


#: A tile by itself.
_ALONE = TilePlace()


def draw_tile(tile: Unit, at: TilePlace = _ALONE, *, current: str = "", dim: bool = False) -> str:
    """One tile as a cell of the grid, with an anchor to its device's panel."""
    address = tile.address
    attributes = [
        f'href="?at={quote(address)}" tabindex="-1" data-at="{escape(address)}"'
        f' aria-label="{escape(label(tile, at.place))}"'
    ]
    if tile.claim_uid:
        attributes.append(f'data-c="{escape(tile.claim_uid[:KIN])}"')
    if tile.namespace:
        attributes.append(f'data-ns="{escape(tile.namespace)}"')
    if current and _shows(tile, current):
        attributes.append('aria-current="true"')
    inside = "".join(map(_part, _parts(tile))) if tile.cut else _name(tile, at.run)
    return f'<span role="gridcell">{_anchor(tile, at, " ".join(attributes), inside, " dim" if dim else "")}</span>'


def draw_row(line: GridLine) -> SafeString:
    """The line's tiles beside each other, each a link to the page of its device."""
    drawn = []
    for tile, at in places(line):
        said = escape(label(tile))
        attributes = f'href="{escape(device_url(*tile.key))}" aria-label="{said}" title="{said}"'
        inside = "".join(f'<i data-s="{part.state}" style="--w:{part.weight}"></i>' for part in _parts(tile))
        if at.run and tile.claim_uid and tile.state == DeviceState.RESERVED:
            inside += f'<b style="--n:{at.run}" aria-hidden="true">{escape(tile.namespace)}</b>'
        drawn.append(_anchor(tile, at, attributes, inside))
    return mark_safe("".join(drawn))  # noqa: S308 - every value is escaped


def _anchor(tile: Unit, at: TilePlace, attributes: str, inside: str, css: str = "") -> str:
    css = (" nic" if tile.gauge else "") + (" parts" if tile.cut else "") + css + (" first" if at.first_gauge else "")
    marks = ("" if at.run else " data-j") + (" data-k" if at.goes_on else "")
    if tile.state in (DeviceState.TAINTED, DeviceState.UNREACHABLE) and tile.holders:
        marks += " data-held"
    if tile.state == DeviceState.PARTLY_SHARED and not tile.parts:
        marks += f' style="--lvl:{tile.level}%"'
    return f'<a class="tile{css}" {attributes} data-s="{tile.state}"{marks}>{inside}</a>'


def label(tile: Unit, place: str = "") -> str:
    """What a screen reader says and the tip shows: name, place (as `GridLine.place`), state, share, holders."""
    name = f"{tile.name} {place}" if place else tile.name
    words = [name, STATES[tile.state].lower()]
    if tile.parts:
        shown = [part for part in tile.parts if part.candidate]
        states = Counter[str](part.state for part in shown)
        tally = (f"{states[state]} {title.lower()}" for state, title in STATES.items() if states[state])
        words = [name, f"cut into {counted(len(shown), 'partition')}", *tally]
    elif tile.state == "part":
        words.append(f"{tile.level}% in use")
    if held := "; ".join(dict.fromkeys(one.label if one.claim else one.namespace for one in tile.holders)):
        words.append(held)
    return ", ".join(words)


def _shows(tile: Unit, address: str) -> bool:
    return tile.address == address or any(candidate.address == address for candidate in tile.candidates)


def _parts(tile: Unit) -> tuple[Part, ...]:
    """What a card is cut into; one that is free or held as a whole fills its frame."""
    if tile.parts or not tile.cut:
        return tile.parts
    return (Part(candidate=tile.candidates[0], state=tile.state, weight=WHOLE, holders=tile.holders),)


def _part(part: Part) -> str:
    attributes = [f'data-s="{part.state}" style="--w:{part.weight}"']
    if part.candidate:
        attributes.append(f'data-at="{escape(part.candidate.address)}"')
        if part.weight >= _NAMED and (text := _text(part)):
            attributes.append(f'data-p="{escape(text)}"')
    if part.state in (DeviceState.TAINTED, DeviceState.UNREACHABLE) and part.holders:
        attributes.append("data-held")
    return f"<i {' '.join(attributes)}></i>"


def _text(part: Part) -> str:
    """Who holds the whole card; of a partition the short form of its profile: "3g" of "3g.40gb"."""
    if part.weight == WHOLE and part.holders:
        return part.holders[0].namespace
    facts = dict(part.candidate.facts) if part.candidate else {}
    return facts.get("profile", "").partition(".")[0]


def _name(tile: Unit, run: int) -> str:
    """The holder's namespace, on the first tile of a run; the stylesheet cuts it to the room there is."""
    if not run or not tile.claim_uid or tile.state == "part" or tile.gauge:
        return ""
    return f'<b style="--n:{run}">{escape(tile.namespace)}</b>'


def key_of(address: str, snapshot: DeviceSnapshot) -> DeviceKey | None:
    """The device of an address (`Keyed.address`); a pool's name may itself contain slashes."""
    driver, _, rest = address.partition("/")
    place, _, node = rest.partition("?node=")
    pool, _, device = place.rpartition("/")
    return snapshot.find(driver, pool, device, node) if driver and pool and device else None
