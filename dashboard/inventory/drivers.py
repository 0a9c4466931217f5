"""Drivers: `/drivers`, and `/drivers/NAME` with what one publishes and what shows that it is unwell.

A driver is no object of the API: it is known by the ResourceSlices that bear its name and by the claims that hold
devices of it. A cluster has a handful, so the list is sorted in memory; its numbers come from pools, not from devices.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from claims.devices.cache import DeviceSnapshot, PoolState, read_devices
from claims.devices.holdings import Holder
from claims.devices.published import CandidateDevice, DevicePool, attribute_text, short_name
from claims.devices.states import DeviceState
from dashboard.inventory.devices.grid import DeviceTotals
from dashboard.inventory.nodes.queries import PoolLine, nanos, pool_lines
from dashboard.kit.guards import listing
from dashboard.kit.lists import ListColumn, ListQuery, Table, sorted_by
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.templatetags.kit import counted, driver_url, node_url
from dashboard.tools.objects import HistoryPage, asked, show_history
from insight.selector_matches import class_selectors, judged_devices, matches
from inventory.models import Node
from manciple.people import person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.resources import SLICES, kind
from manciple.wire.validation import natural

#: Different values of an attribute that are written out; of more, how many there are.
WRITTEN_OUT = 6
#: Values longer than this are identifiers: one of several is enough.
LONG = 20
#: Pools and claims that are shown; all of them with `?all=1`.
SHOWN = 20
#: ResourceSlices whose histories are shown together.
MOST_SLICES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """states: its pools with their holders. devices: as a person counts them."""

    name: str
    states: Sequence[PoolState]
    pools: Sequence[DevicePool]  # published ones, the incomplete first
    devices: DeviceTotals
    holders: Mapping[str, tuple[Holder, int]]  # uid of a claim -> (the claim, its devices)

    @property
    def nodes(self) -> list[str]:
        return sorted({one.node for pool in self.pools for one in pool.slices if one.node}, key=natural)

    @property
    def incomplete(self) -> list[DevicePool]:
        return [pool for pool in self.pools if not pool.complete]

    @property
    def candidates(self) -> Iterator[CandidateDevice]:
        return (candidate for pool in self.pools for candidate in pool.candidates)

    @property
    def published(self) -> int:
        """Devices, each partition of a card by itself."""
        return sum(1 for _ in self.candidates)


def read_drivers(snapshot: DeviceSnapshot) -> list[Driver]:
    """Every driver that publishes anything, or of which somebody holds anything, by name. No query."""
    states: dict[str, list[PoolState]] = defaultdict(list)
    for key, state in snapshot.pools.items():
        states[key.driver].append(state)
    return [_driver(name, states[name]) for name in sorted(states)]


def _driver(name: str, states: Sequence[PoolState]) -> Driver:
    counts = Counter[str]()
    holders: dict[str, tuple[Holder, int]] = {}
    for state in states:
        counts.update(state.counts)
        for holder in chain.from_iterable(state.holders.values()):
            _, devices = holders.get(holder.claim_uid, (holder, 0))
            holders[holder.claim_uid] = (holder, devices + 1)
    pools = [state.pool for state in states if state.pool.slices]
    pools.sort(key=lambda pool: (pool.complete, natural(pool.key.name)))
    return Driver(name=name, states=states, pools=pools, devices=DeviceTotals(counts), holders=holders)


#: An attribute or a capacity: its name, what devices say, as one line, and how many have it.
DriverProperty = tuple[str, str, int]


def attributes(driver: Driver) -> list[DriverProperty]:
    """Each attribute with its values: a range of numbers, or the values where they are few."""
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    numbers: dict[str, list[int]] = defaultdict(list)
    for candidate in driver.candidates:
        for name, attribute in candidate.device.attributes.items():
            short = short_name(driver.name, name)
            texts[short][attribute_text(attribute)] += 1
            if attribute.int_value is not None:
                numbers[short].append(attribute.int_value)
    return [(name, _range(found, numbers[name]), found.total()) for name, found in sorted(texts.items())]


def capacities(driver: Driver) -> list[DriverProperty]:
    """Each capacity from the least to the most."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for candidate in driver.candidates:
        for name, capacity in candidate.device.capacity.items():
            found[short_name(driver.name, name)][str(capacity.value)] += 1
    return [(name, _span(sorted(values, key=nanos)), values.total()) for name, values in sorted(found.items())]


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


@dataclass(frozen=True, slots=True)
class DriverTrouble:
    """A sign that the driver or its machines are unwell. nodes: where."""

    what: str
    next: str
    nodes: tuple[str, ...] = ()

    @property
    def node_links(self) -> list[tuple[str, str]]:
        return [(name, node_url(name)) for name in self.nodes]


def troubles(driver: Driver, unreachable: Collection[str]) -> Iterator[DriverTrouble]:
    """One query. unreachable: nodes."""
    if incomplete := driver.incomplete:
        devices = counted(sum(1 for pool in incomplete for _ in pool.candidates), "device is", "devices are")
        yield DriverTrouble(
            f"{counted(len(incomplete), 'pool is', 'pools are')} incomplete; {devices} not allocatable.",
            "Restart the driver there.",
            tuple(sorted({one.node for pool in incomplete for one in pool.slices if one.node}, key=natural)),
        )
    ready, nodes = dict(Node.objects.values_list("name", "ready")), driver.nodes
    if away := tuple(name for name in nodes if name in unreachable):
        one = len(away) == 1
        yield DriverTrouble(
            f"{counted(len(away), 'node')} it publishes for {'is' if one else 'are'} unreachable; "
            f"{'its' if one else 'their'} devices are not free.",
            "Start the agent there.",
            away,
        )
    if lost := tuple(name for name in nodes if ready.get(name) is False and name not in unreachable):
        yield DriverTrouble(
            f"{counted(len(lost), 'node')} it publishes for {'is' if len(lost) == 1 else 'are'} not ready.",
            "Check the agent there.",
            lost,
        )
    if gone := [name for name in nodes if name not in ready]:
        yield DriverTrouble(
            f"It publishes devices of {', '.join(gone)}, which {'is' if len(gone) == 1 else 'are'} not registered.",
            "Register the node again, or delete its ResourceSlices.",
        )
    broken: dict[str, list[str]] = defaultdict(list)  # key of a taint -> the node of each device
    for candidate in driver.candidates:
        if candidate.fence is DeviceState.UNHEALTHY:
            for taint in candidate.device.taints:
                broken[taint.key].append(candidate.node)
    for key, places in sorted(broken.items(), key=lambda item: -len(item[1])):
        yield DriverTrouble(
            f"{counted(len(places), 'device is', 'devices are')} reported unhealthy: `{key}`.",
            "Repair or replace it; the driver then removes the taint.",
            tuple(sorted(filter(None, set(places)), key=natural)),
        )
    units = (unit for state in driver.states if state.counts[DeviceState.UNPUBLISHED] for unit in state.units)
    if held := sum(unit.state == DeviceState.UNPUBLISHED and not unit.candidates for unit in units):
        yield DriverTrouble(
            f"{counted(held, 'device is', 'devices are')} held by claims and no longer published.",
            "Check the driver there. The claims keep them until their pods are gone.",
        )


Column = ListColumn[Driver]
COLUMNS = (
    Column(title="Driver", sort="name", key=lambda row: row.name, text=lambda row: row.name),
    Column(title="Nodes", css="num", sort="nodes", key=lambda row: len(row.nodes), text=lambda row: len(row.nodes)),
    Column(
        title="Pools",
        sort="pools",
        key=lambda row: (-len(row.incomplete), -len(row.pools)),
        text=lambda row: f"{len(row.pools) - len(row.incomplete)} of {len(row.pools)} complete",
    ),
    Column(title="Devices", sort="devices", key=lambda row: row.devices.total, text=lambda row: row.devices.said),
    Column(
        title="Claims", css="num", sort="claims", key=lambda row: len(row.holders), text=lambda row: len(row.holders)
    ),
)


@listing(SLICES)
@require_safe
@opens_as_usual
def list_drivers(request: HttpRequest) -> HttpResponse:
    revision, query = latest_revision(), ListQuery.read(request)
    table = Table(
        id="drivers",
        topics="slices nodes pool:",
        title="Drivers",
        query=query,
        columns=COLUMNS,
        read=sorted_by(COLUMNS, query.sort, read_drivers(read_devices())).__getitem__,
    )
    context = ListContext(place="drivers", revision=revision, table=table)
    return show_list(request, "inventory/drivers/list.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext(PageContext):
    """One driver, for one person. The driver itself is `driver`: the history's tabs take `name`."""

    name: str
    driver: Driver
    troubles: Sequence[DriverTrouble]
    pools: Sequence[PoolLine]
    more_pools: int
    attributes: Sequence[DriverProperty]
    capacities: Sequence[DriverProperty]
    #: (class, how many of the driver's devices it selects)
    classes: Sequence[tuple[str, int]]
    #: (holder, devices), those with most first
    claims: Sequence[tuple[Holder, int]]
    more_claims: int
    elsewhere: str  # a sentence about claims of namespaces that the person does not see
    generations: str


@listing(SLICES)
@require_safe
def show_driver(request: HttpRequest, name: str) -> HttpResponse:
    """The page; with `?tab=history` the history of its slices that exist."""
    revision, person = latest_revision(), person_of(request)
    snapshot = read_devices()
    driver = next((one for one in read_drivers(snapshot) if one.name == name), None)
    if driver is None:
        raise Http404(f"No driver {name} publishes anything, and no claim holds a device of it.")
    if asked(request):
        names = [one.name for pool in driver.pools for one in pool.slices][:MOST_SLICES]
        slices = objects.get_many(kind(SLICES), (("", name) for name in names))
        page = HistoryPage(
            place="drivers",
            crumbs=((reverse("drivers"), "Drivers"),),
            word="Driver",
            name=name,
            url=driver_url(name),
            topics="slices",
        )
        return show_history(request, page, [stored.uid for stored in slices])
    shown = None if "all" in request.GET else SHOWN
    seen = [(holder, count) for holder, count in driver.holders.values() if person.sees(holder.namespace)]
    seen.sort(key=lambda one: (-one[1], one[0].namespace, natural(one[0].claim)))
    hidden = len(driver.holders) - len(seen)
    hold = counted(hidden, "claim of other namespaces holds", "claims of other namespaces hold")
    pools = sorted(driver.pools, key=lambda pool: pool.generation)
    generations = [pool.generation_said for pool in pools] or ["none"]
    context = DriverContext(
        place="drivers",
        revision=revision,
        name=name,
        driver=driver,
        troubles=list(troubles(driver, snapshot.unreachable)),
        pools=pool_lines(driver.pools[:shown]),
        more_pools=len(driver.pools[shown:]) if shown else 0,
        attributes=attributes(driver),
        capacities=capacities(driver),
        classes=_classes(name),
        claims=seen[:shown],
        more_claims=len(seen[shown:]) if shown else 0,
        elsewhere=f"{hold} devices of it{' too' if seen else ''}." if hidden else "",
        generations=" to ".join(dict.fromkeys((generations[0], generations[-1]))),
    )
    return render_page(request, "inventory/drivers/page.html", context)


def _classes(driver: str) -> list[tuple[str, int]]:
    """(class, how many devices of the driver it selects), of those that select any."""
    devices = judged_devices(read_devices().published)
    own = sum(1 << place for place, one in enumerate(devices.candidates) if one.driver == driver)
    counts = [(name, (matches(selectors, devices) & own).bit_count()) for name, selectors in class_selectors().items()]
    return [(name, count) for name, count in counts if count]
