"""Reads what a driver publishes, what of it is given out, and what shows that something is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.devices.cards import Unit
from claims.devices.holdings import Holder
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import CandidateDevice, DevicePool, attribute_text, short_name
from claims.devices.states import DeviceState
from dashboard.inventory.devices.lines import lines_of
from dashboard.inventory.devices.words import bar_of
from dashboard.inventory.nodes.reading import nanos
from inventory.models import Node
from manciple.store import history
from manciple.wire.resources import SLICES, kind
from manciple.wire.validation import natural

#: Different values of an attribute that are written out; of more, how many there are.
WRITTEN_OUT = 6
#: Values longer than this are identifiers: of several, one stands for all.
LONG = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFigures:
    """What is known of a driver by what it publishes, and by the claims that hold devices of it."""

    name: str
    pools: tuple[DevicePool, ...]  # the incomplete ones first
    tiles: tuple[Unit, ...]
    holders: Mapping[str, tuple[Holder, int]]  # claim's uid -> (the claim, its devices)

    @property
    def nodes(self) -> list[str]:
        return sorted({one.node for pool in self.pools for one in pool.slices if one.node}, key=natural)

    @property
    def incomplete(self) -> list[DevicePool]:
        return [pool for pool in self.pools if not pool.complete]

    @property
    def counts(self) -> list[tuple[str, int]]:
        return bar_of(Counter(tile.state for tile in self.tiles))

    @property
    def free(self) -> int:
        return dict(self.counts).get("free", 0)

    @property
    def published(self) -> int:
        """Devices, each partition of a card by itself."""
        return sum(1 for _ in self.candidates)

    @property
    def candidates(self) -> Iterable[CandidateDevice]:
        return (candidate for pool in self.pools for candidate in pool.candidates)


def read_drivers(snapshot: DeviceSnapshot) -> list[DriverFigures]:
    """Every driver that publishes anything, or of which somebody holds anything, by name. No query."""
    pools: dict[str, list[DevicePool]] = defaultdict(list)
    for pool in snapshot.published_pools:
        pools[pool.key[0]].append(pool)
    tiles: dict[str, list[Unit]] = defaultdict(list)
    for line in lines_of(snapshot):
        for tile in line.tiles:
            tiles[tile.key[0]].append(tile)
    held: dict[str, Counter[str]] = defaultdict(Counter)
    holders: dict[str, Holder] = {}
    for (driver, _, _), pool_state in snapshot.pools.items():
        for found in pool_state.holders.values():
            for holder in found:
                holders[holder.claim_uid] = holder
                held[driver][holder.claim_uid] += 1
    return [
        DriverFigures(
            name=name,
            pools=tuple(sorted(pools.get(name, ()), key=lambda pool: (pool.complete, natural(pool.key[1])))),
            tiles=tuple(tiles.get(name, ())),
            holders={uid: (holders[uid], count) for uid, count in held[name].items()},
        )
        for name in sorted({*pools, *tiles, *held})
    ]


# What it publishes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverProperty:
    """An attribute or a capacity. values: what devices say, as one line; devices: how many have it."""

    name: str
    values: str
    devices: int


def attributes(driver: DriverFigures) -> list[DriverProperty]:
    """Each attribute with its values: a range of numbers, or the values where they are few."""
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    numbers: dict[str, list[int]] = defaultdict(list)
    for candidate in driver.candidates:
        for name, attribute in candidate.device.attributes.items():
            short = short_name(driver.name, name)
            texts[short][attribute_text(attribute)] += 1
            if attribute.int_value is not None:
                numbers[short].append(attribute.int_value)
    return [
        DriverProperty(name, _range(found, numbers.get(name, [])), found.total())
        for name, found in sorted(texts.items())
    ]


def capacities(driver: DriverFigures) -> list[DriverProperty]:
    """Each capacity from the least to the most."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for candidate in driver.candidates:
        for name, capacity in candidate.device.capacity.items():
            found[short_name(driver.name, name)][str(capacity.value)] += 1
    return [
        DriverProperty(name, _span(sorted(values, key=nanos)), values.total()) for name, values in sorted(found.items())
    ]


def _range(values: Counter[str], numbers: Sequence[int]) -> str:
    if len(values) > WRITTEN_OUT and len(numbers) == values.total():
        return f"{min(numbers)} to {max(numbers)}"
    if len(values) > 1 and max(map(len, values)) > LONG and len(values) > WRITTEN_OUT:
        return f"{len(values)} different, such as {min(values)}"
    if len(values) > WRITTEN_OUT:
        first = ", ".join(value for value, _ in values.most_common(WRITTEN_OUT - 1))
        return f"{first} and {len(values) - WRITTEN_OUT + 1} more"
    return ", ".join(sorted(values, key=natural))


def _span(values: Sequence[str]) -> str:
    return ", ".join(values) if len(values) <= WRITTEN_OUT // 2 else f"{values[0]} to {values[-1]}"


# Pools ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool as a row. published_at: when the newest of its slices was written; by_state: tiles."""

    pool: DevicePool
    published_at: datetime | None
    devices: int

    @property
    def missing(self) -> int:
        return self.pool.expected - len(self.pool.slices)

    @property
    def what(self) -> str:
        """What is wrong with an incomplete pool, and what to do, as a sentence each."""
        there, wanted = len(self.pool.slices), self.pool.expected
        if self.missing > 0:
            return f"{there} of {wanted} slices of generation {self.pool.generation} are there"
        if there == 1:
            return f"1 slice is published, but it announces {wanted}"
        return f"{there} slices are there, and they say that there are {wanted}"


def pool_lines(pools: Sequence[DevicePool]) -> list[PoolLine]:
    names = frozenset(one.name for pool in pools for one in pool.slices)
    written = history.last_written(kind(SLICES), names=names) if names else {}
    return [
        PoolLine(
            pool,
            max((written[one.name] for one in pool.slices if one.name in written), default=None),
            sum(len(one.candidates) for one in pool.slices),
        )
        for pool in pools
    ]


# What is wrong -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverTrouble:
    """One thing that shows that the driver is not well. nodes: where, to link to."""

    what: str
    next: str
    nodes: tuple[str, ...] = ()


def troubles(driver: DriverFigures) -> list[DriverTrouble]:
    """What shows, here, that the driver or its machines are unwell. One query."""
    ready = dict(Node.objects.values_list("name", "ready"))
    return [*_pools_short(driver), *_machines(driver, ready), *_fenced(driver), *_withdrawn(driver)]


def _pools_short(driver: DriverFigures) -> Iterable[DriverTrouble]:
    short = driver.incomplete
    if not short:
        return
    nodes = _nodes_of(short)
    devices = _count(sum(1 for pool in short for _ in pool.candidates), "device is", "devices are")
    yield DriverTrouble(
        f"{_count(len(short), 'pool is', 'pools are')} incomplete; {devices} not allocatable.",
        "Restart the driver there; it publishes every slice of its pool again. If that does not help, read its log.",
        nodes,
    )


def _machines(driver: DriverFigures, ready: Mapping[str, bool]) -> Iterable[DriverTrouble]:
    lost = tuple(name for name in driver.nodes if ready.get(name) is False)
    gone = tuple(name for name in driver.nodes if name not in ready)
    if lost:
        yield DriverTrouble(
            f"{_count(len(lost), 'node', 'nodes')} it publishes for {'is' if len(lost) == 1 else 'are'} not ready.",
            "Check the agent of the node; its devices are allocated again when it is back.",
            lost,
        )
    if gone:
        yield DriverTrouble(
            f"It publishes devices of {', '.join(gone)}, which {'is no Node' if len(gone) == 1 else 'are no Nodes'}.",
            "Register the node again, or delete its ResourceSlices.",
        )


def _fenced(driver: DriverFigures) -> Iterable[DriverTrouble]:
    keys: Counter[str] = Counter()
    nodes: dict[str, set[str]] = defaultdict(set)
    for candidate in driver.candidates:
        if candidate.fence is DeviceState.UNHEALTHY:
            for taint in candidate.device.taints:
                keys[taint.key] += 1
                nodes[taint.key].add(candidate.node)
    for key, count in keys.most_common():
        yield DriverTrouble(
            f"{_count(count, 'device is', 'devices are')} reported unhealthy: `{key}`.",
            "Repair or replace the hardware; the driver removes the taint when it is healthy again.",
            tuple(sorted(filter(None, nodes[key]), key=natural)),
        )


def _withdrawn(driver: DriverFigures) -> Iterable[DriverTrouble]:
    held = sum(1 for tile in driver.tiles if tile.state == "gone" and not tile.candidates)
    if held:
        yield DriverTrouble(
            f"{_count(held, 'device is', 'devices are')} held by claims and no longer published.",
            "Check whether the driver still runs there. The claims keep them until their pods are gone.",
        )


def _nodes_of(pools: Iterable[DevicePool]) -> tuple[str, ...]:
    return tuple(sorted({one.node for pool in pools for one in pool.slices if one.node}, key=natural))


def _count(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
