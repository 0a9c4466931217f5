"""Reads what a driver publishes, what of it is given out, and what shows that something is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.cards import Unit
from claims.devices.holdings import Holder
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import CandidateDevice, DevicePool, attribute_text, short_name
from claims.devices.states import DeviceState
from dashboard.inventory.classes.verdicts import matches
from dashboard.inventory.devices.grid import STATES, bar_of, in_words, lines_of
from dashboard.inventory.nodes.queries import nanos
from dashboard.kit import links
from dashboard.kit.lists import ListColumn, ListQuery, Table, sorted_by
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import listing
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.history.views import HistoryPage, asked, show_history
from insight.selector_matches import judged_devices
from inventory.models import DeviceClass, Node
from manciple.people import Person, person_of
from manciple.store import history, objects
from manciple.store.event_log import latest_revision
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
    def said(self) -> str:
        """Its devices by state, in words."""
        return in_words(dict(self.counts))

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


#: Of many pools and claims, the first so many are shown; with `?all=1` all of them.
SHOWN = 20
#: ResourceSlices whose history is told together.
MOST_SLICES = 1000

#: What the list tells of a driver.
COLUMNS = (
    ListColumn[DriverFigures](
        title="Driver", sort="name", key=lambda driver: driver.name, text=lambda driver: driver.name
    ),
    ListColumn[DriverFigures](
        title="Nodes",
        css="num",
        sort="nodes",
        key=lambda driver: len(driver.nodes),
        text=lambda driver: len(driver.nodes),
    ),
    ListColumn[DriverFigures](
        title="Pools",
        sort="pools",
        key=lambda driver: (-len(driver.incomplete), -len(driver.pools)),
        text=lambda driver: f"{len(driver.pools) - len(driver.incomplete)} of {len(driver.pools)} complete",
    ),
    ListColumn[DriverFigures](
        title="Devices",
        sort="devices",
        key=lambda driver: len(driver.tiles),
        text=lambda driver: driver.said,
    ),
    ListColumn[DriverFigures](
        title="Claims",
        css="num",
        sort="claims",
        key=lambda driver: len(driver.holders),
        text=lambda driver: len(driver.holders),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriversContext(ListContext):
    states: Mapping[str, str]


@listing(SLICES)
@require_safe
@opens_as_usual
def list_drivers(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    query = ListQuery.read(request)
    drivers = sorted_by(COLUMNS, query.sort, read_drivers(read_devices()))
    table = Table(
        id="drivers",
        topics="slices nodes pool:",
        title="Drivers",
        query=query,
        columns=COLUMNS,
        rows=drivers,
    )
    context = DriversContext(place="drivers", revision=revision, table=table, states=STATES)
    return show_list(request, "inventory/drivers/list.html", context)


@listing(SLICES)
@require_safe
def show_driver(request: HttpRequest, name: str) -> HttpResponse:
    """One driver."""
    revision = latest_revision()
    driver = next((one for one in read_drivers(read_devices()) if one.name == name), None)
    if driver is None:
        raise Http404(f"No driver {name} publishes anything, and no claim holds a device of it.")
    if asked(request):
        return _show_history(request, driver)
    sheet = _sheet(driver, person_of(request), shown=None if "all" in request.GET else SHOWN)
    context = DriverContext(place="drivers", revision=revision, name=name, sheet=sheet, states=STATES)
    return render_page(request, "inventory/drivers/page.html", context)


def _show_history(request: HttpRequest, driver: DriverFigures) -> HttpResponse:
    """What happened to the slices that it has published and that exist."""
    names = [one.name for pool in driver.pools for one in pool.slices][:MOST_SLICES]
    slices = objects.get_many(kind(SLICES), (("", name) for name in names))
    page = HistoryPage(
        place="drivers",
        crumbs=(("/drivers", "Drivers"),),
        word="Driver",
        name=driver.name,
        url=links.driver_url(driver.name),
        topics="slices",
    )
    return show_history(request, page, [stored.uid for stored in slices])


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSheet:
    """One driver, for one person."""

    driver: DriverFigures
    troubles: Sequence[DriverTrouble]
    pools: Sequence[PoolLine]
    more_pools: int
    attributes: Sequence[DriverProperty]
    capacities: Sequence[DriverProperty]
    #: (class, how many of its devices the class selects)
    classes: list[tuple[str, int]]
    #: (holder, devices), those with most first; of other namespaces only how many
    claims: list[tuple[Holder, int]]
    more_claims: int
    other_claims: int

    @property
    def generations(self) -> str:
        found = sorted({pool.generation for pool in self.driver.pools})
        if not found:
            return "none"
        return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext(PageContext):
    name: str
    sheet: DriverSheet
    states: Mapping[str, str]


def _sheet(driver: DriverFigures, person: Person, *, shown: int | None) -> DriverSheet:
    """shown: how many pools and claims are named; None for all."""
    seen = [(holder, count) for holder, count in driver.holders.values() if person.sees(holder.namespace)]
    seen.sort(key=lambda one: (-one[1], one[0].namespace, natural(one[0].claim)))
    return DriverSheet(
        driver=driver,
        troubles=troubles(driver),
        pools=pool_lines(driver.pools[:shown]),
        more_pools=len(driver.pools[shown:]) if shown else 0,
        attributes=attributes(driver),
        capacities=capacities(driver),
        classes=_classes(driver.name),
        claims=seen[:shown],
        more_claims=len(seen[shown:]) if shown else 0,
        other_claims=len(driver.holders) - len(seen),
    )


def _classes(driver: str) -> list[tuple[str, int]]:
    """(class, how many devices of the driver it selects), of those that select any."""
    devices = judged_devices(read_devices().published)
    own = sum(1 << place for place, one in enumerate(devices.candidates) if one.driver == driver)
    found = []
    for name, selectors in DeviceClass.expressions().items():
        count = (matches(selectors, devices) & own).bit_count()
        if count:
            found.append((name, count))
    return found
