"""The devices page: every device as a tile, who holds it, and its panel.

- `/devices`: the page; what a person sees is in its URL: `?group=`, `?size=`, the open panel `?at=DRIVER/POOL/DEVICE`,
  and the filters (see `dashboard.inventory.devices.filters`) that dim what does not match.
- `/devices/lines?topic=...`: the lines that those topics touch, with legend, filters and headings, for a live page.
- `/devices/matches`: which tiles the filters dim, without the tiles.
- `/devices/panel?at=...`: the panel alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.cards import Unit
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import CandidateDevice
from dashboard.inventory.devices.filters import DeviceFilters, Facet, TileFilter, facets, select
from dashboard.inventory.devices.groups import GROUPINGS, LineGroup, group_lines
from dashboard.inventory.devices.lines import GridLine, lines_of
from dashboard.inventory.devices.panel import DevicePanel, read_panel
from dashboard.inventory.devices.sight import DeviceRights, lines_for
from dashboard.inventory.devices.tiles import draw_lines
from dashboard.inventory.devices.words import MEANINGS, STATES, how_many
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import listing
from dashboard.kit.saved_views import opens_as_usual
from insight.how_many_fit import NOTHING, count
from insight.selector_matches import SelectorVerdict, judge
from inventory.models import DeviceClass
from manciple.people import Person, person_of
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import NODES, SLICES
from scheduling.cel import CompileError

#: The fewer tiles, the larger they are: up to this many, a tile of that size keeps the whole cluster in view.
SIZES = ((96, "x"), (500, "l"), (2000, "m"))
SMALLEST = "s"
SIZE_NAMES = {"s": "Small", "m": "Medium", "l": "Large", "x": "Huge"}
#: States that the legend shows even where no device is in them.
_ALWAYS = {"free", "reserved"}


@listing(NODES, SLICES)
@require_safe
@opens_as_usual
def show_devices(request: HttpRequest) -> HttpResponse:
    """The page."""
    shown = Shown.read(request)
    context = replace(
        shown.context(),
        panel=read_panel(shown.person, shown.snapshot, shown.at) if shown.at else None,
        drawn=[(group, shown.draw(group.lines, group)) for group in shown.groups],
    )
    return render_page(request, "inventory/devices/devices.html", context)


@listing(NODES, SLICES)
@require_safe
def show_lines(request: HttpRequest) -> HttpResponse:
    """Only the lines that show one of the `topic`s given."""
    shown = Shown.read(request)
    wanted = frozenset(request.GET.getlist("topic"))
    touched = [
        (group, shown.draw([line for line in group.lines if not wanted.isdisjoint(line.topics)], group))
        for group in shown.groups
    ]
    return render_page(request, "inventory/devices/lines.html", replace(shown.context(), touched=touched))


@listing(NODES, SLICES)
@require_safe
def show_matches(request: HttpRequest) -> HttpResponse:
    """For each line which of its tiles are dim, as a text of 0 and 1."""
    shown = Shown.read(request)
    matches = shown.selection.matches
    dims = {
        line_id(line, group): "".join("0" if matches(tile) else "1" for tile in line.tiles)
        for group in shown.groups
        for line in group.lines
    }
    return render_page(request, "inventory/devices/lines.html", replace(shown.context(), dims=dims))


def line_id(line: GridLine, group: LineGroup) -> str:
    """A node may stand under several headings."""
    return f"line-{group.id}-{line.key}"


class GridChoice(NamedTuple):
    """A grouping, or a size of tiles. key: as the address has it."""

    key: str
    title: str
    url: str


class LegendEntry(NamedTuple):
    """A state in the legend. url: asks for it, or no longer where it is `chosen`."""

    state: str
    name: str
    meaning: str
    devices: int
    chosen: bool
    url: str


class ChosenClass(NamedTuple):
    """A class that the filters ask for. fits: how many more claims, in words."""

    name: str
    devices: int
    free: int
    fits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridContext(PageContext):
    """The page, or the parts of it that a live page asks for.

    cut: whether partitions are among what matches classes; matching: all devices where nothing is asked for.
    filters: as a query; filters_url: the page with them; unfiltered: without. drawn: groups with their lines;
    touched: those lines that topics touched; dims: line -> which of its tiles are dim.
    """

    groups: Sequence[LineGroup]
    grouping: str
    groupings: Sequence[GridChoice]
    legend: Sequence[LegendEntry]
    words: Mapping[str, str]
    longest_name: int
    cordoned: int
    facets: Sequence[Facet]
    asked: DeviceFilters
    verdict: SelectorVerdict | None
    unjudged: int
    devices: int
    class_counts: Sequence[ChosenClass]
    cut: bool
    total: int
    free: int
    matching: int
    density: str
    sizes: Sequence[GridChoice]
    unfiltered: str
    filters: str
    filters_url: str
    may: DeviceRights
    panel: DevicePanel | None = None
    drawn: Sequence[tuple[LineGroup, SafeString]] = ()
    touched: Sequence[tuple[LineGroup, SafeString]] = ()
    dims: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Shown:
    """The grid as one person asks for it in one URL."""

    person: Person
    query: QueryDict
    snapshot: DeviceSnapshot
    #: name -> selectors
    classes: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, request: HttpRequest) -> Shown:
        return cls(person_of(request), request.GET, read_devices(), read_classes())

    @property
    def at(self) -> str:
        return self.query.get("at", "")

    @property
    def grouping(self) -> str:
        asked = self.query.get("group", "")
        return asked if asked in GROUPINGS else "model"

    @cached_property
    def asked(self) -> DeviceFilters:
        return DeviceFilters.in_url(self.query)

    @cached_property
    def lines(self) -> Sequence[GridLine]:
        """All of them, as the person may see them."""
        return lines_for(self.person, lines_of(self.snapshot))

    @cached_property
    def selection(self) -> TileFilter:
        return select(self.asked, self.snapshot.published, self.classes)

    @cached_property
    def groups(self) -> list[LineGroup]:
        accepted: dict[str, frozenset[CandidateDevice]] = {}
        if self.grouping == "class":
            published = self.snapshot.published
            accepted = {name: judge(selectors, published).matching for name, selectors in self.classes.items()}
        return group_lines(self.grouping, self.lines, accepted)

    @cached_property
    def facets(self) -> list[Facet]:
        return facets(self.asked, self.lines, self.snapshot.published, self.classes)

    def draw(self, lines: Iterable[GridLine], group: LineGroup) -> SafeString:
        matches = self.selection.matches if self.asked.anything else None
        return draw_lines(((line_id(line, group), line) for line in lines), current=self.at, matches=matches)

    def context(self) -> GridContext:
        counts = self.snapshot.counts
        total = counts.total()
        return GridContext(
            place="devices",
            revision=self.snapshot.revision,
            groups=self.groups,
            grouping=self.grouping,
            groupings=[GridChoice(key, title, self._link(group=key)) for key, title in GROUPINGS.items()],
            legend=list(self._legend(counts)),
            words={state: title.lower() for state, title in STATES.items()},
            longest_name=max((len(line.name) for line in self.lines), default=0),
            cordoned=sum(line.cordoned for line in lines_of(self.snapshot)),
            facets=self.facets,
            asked=self.asked,
            verdict=self.selection.verdict,
            unjudged=self._unjudged,
            devices=len(self.snapshot.published.candidates),
            class_counts=list(self._class_counts()),
            cut=any(tile.cut for tile in self._matched) if self.asked.classes else False,
            total=total,
            free=counts["free"],
            matching=len(self._matched) if self.asked.anything else total,
            density=self._size(total),
            sizes=[GridChoice(key, title, self._link(size=key)) for key, title in SIZE_NAMES.items()],
            unfiltered=self._link(*FILTERS),
            filters=self._filters,
            filters_url=f"/devices{self._link()}",
            may=DeviceRights.of(self.person),
        )

    @property
    def _unjudged(self) -> int:
        """Devices of which not every class, or not the filter, is known: there was no time."""
        of_classes = (judge(selectors, self.snapshot.published).unjudged for selectors in self.classes.values())
        return max(self.selection.unjudged, *of_classes, 0)

    def _legend(self, counts: Mapping[str, int]) -> Iterator[LegendEntry]:
        for state, title in STATES.items():
            chosen = state in self.asked.states
            if counts[state] or state in _ALWAYS or chosen:
                yield LegendEntry(state, title, MEANINGS[state], counts[state], chosen, self._toggled(state))

    def _class_counts(self) -> Iterator[ChosenClass]:
        """Of the classes that are asked for."""
        for name in sorted(self.asked.classes & self.classes.keys()):
            try:
                found = count(self.snapshot, self.classes[name])
            except (CompileError, TimeLimitExceeded):
                found = NOTHING
            yield ChosenClass(name, found.devices, found.free, how_many(found.fits))

    @cached_property
    def _matched(self) -> Sequence[Unit]:
        matches = self.selection.matches
        return [tile for line in self.lines for tile in line.tiles if matches(tile)]

    def _size(self, total: int) -> str:
        asked = self.query.get("size", "")
        return asked if asked in SIZE_NAMES else next((size for most, size in SIZES if total <= most), SMALLEST)

    def _link(self, *without: str, **changes: str) -> str:
        query = self.query.copy()
        for name in (*without, "topic"):
            query.pop(name, None)
        for name, value in changes.items():
            query[name] = value
        return f"?{query.urlencode()}"

    @property
    def _filters(self) -> str:
        """What the filters say, as a query."""
        query = self.query.copy()
        for name in self.query.keys() - set(FILTERS):
            query.pop(name)
        return query.urlencode()

    def _toggled(self, state: str) -> str:
        """The URL that asks for a state, or no longer."""
        query = self.query.copy()
        states = query.getlist("state")
        query.setlist("state", [one for one in states if one != state] if state in states else [*states, state])
        query.pop("topic", None)
        return f"?{query.urlencode()}"


#: Query parameters that dim.
FILTERS = ("state", "class", "model", "ns", "driver", "attr", "cel")


def read_classes() -> dict[str, tuple[str, ...]]:
    """Every class and its selectors."""
    return {
        name: tuple(one["cel"]["expression"] for one in selectors if one.get("cel"))
        for name, selectors in DeviceClass.objects.order_by("name").values_list("name", "selectors")
    }
