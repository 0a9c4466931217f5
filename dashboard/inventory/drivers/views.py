"""The drivers: `/drivers`, and `/drivers/NAME` with what one publishes and what shows that it is unwell.

A driver is no object of the API: it is known by the ResourceSlices that bear its name and by the claims that hold
devices of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.holdings import Holder
from dashboard.inventory.devices.words import STATES, in_words
from dashboard.inventory.drivers.reading import (
    DriverFigures,
    DriverProperty,
    DriverTrouble,
    PoolLine,
    attributes,
    capacities,
    pool_lines,
    read_drivers,
    troubles,
)
from dashboard.kit import links
from dashboard.kit.lists import ListColumn, ListQuery, Table, sorted_by
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import listing
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.objects import HistoryPage, asked, show_history
from insight.selector_matches import judged_devices, matches
from inventory.models import DeviceClass
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.resources import SLICES, kind
from manciple.wire.validation import natural

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
        text=lambda driver: in_words(dict(driver.counts)),
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
    for name, selectors in DeviceClass.objects.order_by("name").values_list("name", "selectors"):
        count = (matches(_expressions(selectors), devices) & own).bit_count()
        if count:
            found.append((name, count))
    return found


def _expressions(selectors: Iterable[dict[str, Any]]) -> list[str]:
    return [one["cel"]["expression"] for one in selectors if one.get("cel")]
