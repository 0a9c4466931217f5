"""The devices page, the panel and page of one device, and acting on many at once.

- `/devices`: every device as a tile. The address has the grouping `?group=`, the tile size `?size=`, the open panel
  `?at=DRIVER/POOL/DEVICE`, and the filters (`DeviceFilters`), which dim what does not match.
  Of a grid of more than `AT_ONCE` tiles, the page has the names of all lines and the tiles of a window: lines from
  `?from=LINE` on, or around the open device, with up to `WINDOW` tiles.
- `/devices/window?first=LINE&last=LINE`: the lines between those, as many as a window has; `?around=ADDRESS`: those
  around one that shows this device.
- `/devices/lines?topic=...&other=...`: the lines that those topics touch, with legend, filters and headings, for a live
  page; of a large grid those of the other topics without their tiles.
- `/devices/matches`: which tiles the filters dim, without the tiles; of a large grid only how many match.
- `/devices/panel?at=...`: the panel alone; `/devices/d/DRIVER/POOL/DEVICE`: the page of one device.
- `/devices/act/ACT`: an act on chosen devices (`Chosen`). A GET, or a POST that is not `sure`, previews it; the form in
  the preview does it through the API with the person's identity, and the next page offers to undo it.
  `taint`, `cordon` and `drain` create DeviceTaintRules of effect any, NoSchedule and NoExecute; `untaint` deletes the
  rules that taint nothing but the chosen devices; `selector` shows a CEL selector that chooses exactly these devices;
  `list` shows them as a table, to leave some out.
- `/devices.csv`: the chosen devices, or all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from urllib.parse import quote, urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_safe

from claims.device_taints import NO_EXECUTE, following
from claims.devices.cache import DeviceSnapshot, Unit, read_devices
from claims.devices.holdings import Holder
from claims.devices.published import CandidateDevice, DeviceKey, address_of
from dashboard.inventory.devices.grid import (
    GROUPINGS,
    MEANINGS,
    STATES,
    DeviceRights,
    GridLine,
    LineGroup,
    draw_lines,
    group_lines,
    holders_for,
    key_of,
    lines_for,
    lines_of,
)
from dashboard.inventory.devices.queries import (
    Chosen,
    DeviceFilters,
    DevicePanel,
    Facet,
    TileFilter,
    facets,
    read_chosen,
    read_device,
    read_panel,
    select,
    stands_for,
)
from dashboard.inventory.devices.selectors import ExactSelector, exact_selector
from dashboard.inventory.taint_rules import (
    EFFECT_MEANINGS,
    RuleChange,
    Untaint,
    effect_of,
    irrevocable,
    rules_for,
    taint_in_words,
    untainting,
)
from dashboard.kit import undo
from dashboard.kit.forms import PageForm, code_input
from dashboard.kit.guards import listing
from dashboard.kit.lists import file_answer
from dashboard.kit.meters import IdleList, MeterCharts, asked_window, draw, read_idle
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import ActionEffect, Consequence, not_changed, only_with
from dashboard.kit.rendering import PageContext, TemplateContext, render_page
from dashboard.templatetags.kit import claim_url, counted, listed, taint_rule_url
from insight.how_many_fit import count, how_many
from insight.selector_matches import class_selectors, complaint, judge
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule
from inventory.kinds.taint_rules import TaintRules
from inventory.live import pool_topic
from inventory.meters import history, series_of
from inventory.models import MeterBlock
from manciple.api import verbs
from manciple.people import Person, demand, person_of
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError, PartlyDone
from manciple.wire.identity import Identity
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import NODES, SLICES, TAINT_RULES, kind
from scheduling.cel import CompileError

#: The fewer tiles, the larger they are: up to this many, a tile of that size keeps the whole cluster in view.
SIZES = ((96, "x"), (500, "l"), (2000, "m"))
SMALLEST = "s"
SIZE_NAMES = {"s": "Small", "m": "Medium", "l": "Large", "x": "Huge"}
#: States that the legend shows even where no device is in them.
_ALWAYS = {"free", "reserved"}
#: Tiles of a page that has all; and, of a larger grid, of one window.
AT_ONCE, WINDOW = 4000, 1200
#: Query parameters of the filters, which dim tiles.
FILTERS = ("state", "class", "model", "ns", "driver", "attr", "cel")
#: Those that name lines, of which a page's own address has none.
_LINES = ("topic", "other", "first", "last", "around")


@dataclass(frozen=True)
class Grid:
    """The grid as one person asks for it in one URL: all that the templates of the page and its parts use."""

    person: Person
    query: QueryDict
    snapshot: DeviceSnapshot
    #: name -> selectors
    classes: Mapping[str, Sequence[str]]

    @cached_property
    def asked(self) -> DeviceFilters:
        return DeviceFilters.in_url(self.query)

    @cached_property
    def panel(self) -> DevicePanel | None:
        """The device whose panel is open."""
        at = self.query.get("at", "")
        return read_panel(self.person, self.snapshot, at) if at else None

    @property
    def missing(self) -> str:
        """What the address names as the open device, if there is no such device."""
        return "" if self.panel else self.query.get("at", "")

    @property
    def may(self) -> DeviceRights:
        return DeviceRights.of(self.person)

    @property
    def total(self) -> int:
        return self.snapshot.counts.total()

    @property
    def free(self) -> int:
        return self.snapshot.counts["free"]

    @property
    def cordoned(self) -> int:
        return sum(line.cordoned for line in self.lines)

    @property
    def longest_name(self) -> int:
        return max((len(line.name) for line in self.lines), default=0)

    # Lines under headings

    @cached_property
    def lines(self) -> Sequence[GridLine]:
        """All of them, as the person may see them."""
        return lines_for(self.person, lines_of(self.snapshot))

    @property
    def grouping(self) -> str:
        asked = self.query.get("group", "")
        return asked if asked in GROUPINGS else "model"

    @cached_property
    def groups(self) -> list[LineGroup]:
        accepted: dict[str, frozenset[CandidateDevice]] = {}
        if self.grouping == "class":
            published = self.snapshot.published
            accepted = {name: judge(selectors, published).matching for name, selectors in self.classes.items()}
        return group_lines(self.grouping, self.lines, accepted)

    @cached_property
    def rows(self) -> Sequence[tuple[str, GridLine]]:
        """(id, line) as the lines stand on the page."""
        return [(line_id(line, group), line) for group in self.groups for line in group.pieces]

    @cached_property
    def partly(self) -> bool:
        """Whether a page has the tiles of a window only."""
        return sum(len(line.tiles) for _, line in self.rows) > AT_ONCE

    def place(self, parameter: str) -> int | None:
        """Which line the address names."""
        asked = self.query.get(parameter, "")
        return next((at for at, (id_, _) in enumerate(self.rows) if id_ == asked), None) if asked else None

    def window_from(self, start: int, last: int | None = None) -> range:
        """Lines from one on that have as many tiles as a window, up to the last that is asked for."""
        tiles, stop = 0, start
        for _, line in self.rows[start : None if last is None else last + 1]:
            tiles += len(line.tiles)
            if tiles > WINDOW and stop > start:
                break
            stop += 1
        return range(start, stop)

    @cached_property
    def window(self) -> range:
        """The lines that a page has with their tiles."""
        if not self.partly:
            return range(len(self.rows))
        first, last = self.place("first"), self.place("last")
        if first is not None and last is not None:
            return self.window_from(first, last)
        start, before = self.place("from"), WINDOW // 2
        if start is None:
            start = self.opened or 0
            while start and (before := before - len(self.rows[start - 1][1].tiles)) >= 0:
                start -= 1
        return self.window_from(start)

    @cached_property
    def opened(self) -> int | None:
        """The line of the device that is looked for, or whose panel is open."""
        key = key_of(self.query.get("around") or self.query.get("at", ""), self.snapshot)
        topic = pool_topic(key[0], key[1]) if key else ""
        of_pool = ((at, line) for at, (_, line) in enumerate(self.rows) if topic in line.topics)
        return next((at for at, line in of_pool if key and any(stands_for(tile, key) for tile in line.tiles)), None)

    @cached_property
    def parts(self) -> list[tuple[str, bool]]:
        """(address, whether it is this one) of the pages that have the grid's windows, for browsers without scripts."""
        found, start = [], 0
        while self.partly and start < len(self.rows):
            id_, part = self.rows[start][0], self.window_from(start)
            found.append((f"{self._link(**{'from': id_})}#{quote(id_)}", self.window.start in part))
            start = part.stop
        return found

    @property
    def drawn(self) -> Iterator[tuple[LineGroup, SafeString]]:
        """Each group with its lines."""
        return self._draw([id_ for id_, _ in self.rows], {self.rows[at][0] for at in self.window})

    @property
    def in_window(self) -> Iterator[tuple[LineGroup, SafeString]]:
        return self._draw([self.rows[at][0] for at in self.window])

    @property
    def touched(self) -> Iterator[tuple[LineGroup, SafeString]]:
        """The lines of the topics that the address asks for."""
        topics, others = set(self.query.getlist("topic")), set(self.query.getlist("other"))
        if not self.partly:
            topics, others = topics | others, set()
        ids = {id_ for id_, line in self.rows if not topics.isdisjoint(line.topics)}
        return self._draw(ids | {id_ for id_, line in self.rows if not others.isdisjoint(line.topics)}, ids)

    def _draw(
        self, ids: Collection[str], whole: Container[str] | None = None
    ) -> Iterator[tuple[LineGroup, SafeString]]:
        """whole: those of them with their tiles; None for all."""
        shown, matches = set(ids), self.selection.matches if self.asked.anything else None
        for group in self.groups:
            named = ((id_, line) for line in group.pieces if (id_ := line_id(line, group)) in shown)
            yield group, draw_lines(named, current=self.query.get("at", ""), matches=matches, whole=whole)

    @property
    def dims(self) -> str:
        """line -> which of its tiles are dim, as a text of 0 and 1. As JSON. Those of a large grid are drawn again."""
        matches, lines = self.selection.matches, () if self.partly else self.rows
        return _json({id_: "".join("0" if matches(tile) else "1" for tile in line.tiles) for id_, line in lines})

    # Filters, and what they leave

    @cached_property
    def selection(self) -> TileFilter:
        return select(self.asked, self.snapshot.published, self.classes)

    @cached_property
    def matched(self) -> Sequence[Unit]:
        matches = self.selection.matches
        return [tile for line in self.lines for tile in line.tiles if matches(tile)]

    @property
    def facets(self) -> list[Facet]:
        return facets(self.asked, self.lines, self.snapshot.published, self.classes)

    @cached_property
    def unjudged(self) -> str:
        """`3 of 5,000 devices` for which there was no time to evaluate a class or the filter; "" for none."""
        of_classes = (judge(selectors, self.snapshot.published).unjudged for selectors in self.classes.values())
        unjudged, devices = max(self.selection.unjudged, *of_classes, 0), len(self.snapshot.published.candidates)
        return f"{unjudged:,} of {counted(devices, 'device')}" if unjudged else ""

    @property
    def class_counts(self) -> list[str]:
        """A sentence about each class that the filters ask for: its devices, and how many more claims fit."""
        apart, counts = ", partitions counted one by one" if any(tile.cut for tile in self.matched) else "", []
        for name in sorted(self.asked.classes & self.classes.keys()):
            try:
                found = count(self.snapshot, self.classes[name])
            except CompileError as error:
                counts.append(f"Class {name} allocates nothing: a selector does not compile: {complaint(error)}.")
                continue
            except TimeLimitExceeded:
                continue  # `unjudged` says so
            fits, fit = how_many(found.fits), "more claim fits" if found.fits == 1 else "more claims fit"
            devices = f"{counted(found.devices, 'device')}{apart}, {found.free:,} free"
            counts.append(f"Class {name}: {devices}; {fits} {fit}.")
        return counts

    # Legend and links

    @property
    def legend(self) -> Iterator[tuple[str, str, str, int, bool, str]]:
        """(state, name, meaning, devices, whether it is chosen, the address that chooses it, or no longer does)."""
        for state, title in STATES.items():
            devices, chosen = self.snapshot.counts[state], state in self.asked.states
            if devices or state in _ALWAYS or chosen:
                query = self.query.copy()
                states = query.getlist("state")
                query.setlist("state", [one for one in states if one != state] if state in states else [*states, state])
                for name in _LINES:
                    query.pop(name, None)
                yield state, title, MEANINGS[state], devices, chosen, f"?{query.urlencode()}"

    @property
    def words(self) -> str:
        """state -> how the page's script says it, as JSON."""
        return _json({state: title.lower() for state, title in STATES.items()})

    @property
    def groupings(self) -> list[tuple[str, str, str]]:
        """(as the address has it, title, address)."""
        return [(key, title, self._link(group=key)) for key, title in GROUPINGS.items()]

    @property
    def density(self) -> str:
        asked = self.query.get("size", "")
        return asked if asked in SIZE_NAMES else next((size for most, size in SIZES if self.total <= most), SMALLEST)

    @property
    def sizes(self) -> list[tuple[str, str, str]]:
        """Of tiles, as `groupings`."""
        return [(key, title, self._link(size=key)) for key, title in SIZE_NAMES.items()]

    @property
    def unfiltered(self) -> str:
        return self._link(*FILTERS)

    @property
    def act_url(self) -> str:
        """What can be done with the devices that match."""
        filters = self.query.copy()
        for name in self.query.keys() - set(FILTERS):
            filters.pop(name)
        query = {"matching": filters.urlencode(), "back": f"{reverse('devices')}{self._link()}"}
        return f"{reverse('devices-act', args=('list',))}?{urlencode(query)}"

    def _link(self, *without: str, **changes: str) -> str:
        query = self.query.copy()
        for name in (*without, *_LINES):
            query.pop(name, None)
        for name, value in changes.items():
            query[name] = value
        return f"?{query.urlencode()}"


def line_id(line: GridLine, group: LineGroup) -> str:
    """A node may stand under several headings."""
    return f"line-{group.id}-{line.name}" + (f"~{line.piece}" if line.piece else "")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GridContext(PageContext):
    """dims: which tiles are dim is asked for, not the tiles."""

    page: Grid
    dims: bool


def grid_of(request: HttpRequest) -> Grid:
    return Grid(person_of(request), request.GET, read_devices(), class_selectors())


def _show_grid(request: HttpRequest, grid: Grid, template: str, *, dims: bool = False) -> HttpResponse:
    context = GridContext(place="devices", revision=grid.snapshot.revision, page=grid, dims=dims)
    return render_page(request, f"inventory/devices/{template}.html", context)


@listing(NODES, SLICES)
@require_safe
@opens_as_usual
def show_devices(request: HttpRequest) -> HttpResponse:
    return _show_grid(request, grid_of(request), "devices")


@listing(NODES, SLICES)
@require_safe
def show_lines(request: HttpRequest) -> HttpResponse:
    """Only the lines that show one of the topics given: none without a topic."""
    return _show_grid(request, grid_of(request), "lines")


@listing(NODES, SLICES)
@require_safe
def show_window(request: HttpRequest) -> HttpResponse:
    """Some lines with their tiles: those that the page has, where none are named. 404 where those named are no longer
    there: the page is then out of date.
    """
    grid = grid_of(request)
    between = [grid.place(one) for one in ("first", "last") if one in request.GET]
    if None in between or len(between) == 1 or ("around" in request.GET and grid.opened is None):
        raise Http404("There is no such line.")
    return _show_grid(request, grid, "window")


@listing(NODES, SLICES)
@require_safe
def show_matches(request: HttpRequest) -> HttpResponse:
    """Which tiles are dim, by line."""
    return _show_grid(request, grid_of(request), "lines", dims=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelContext(TemplateContext):
    panel: DevicePanel | None


@listing(NODES, SLICES)
@require_safe
def show_panel(request: HttpRequest) -> HttpResponse:
    """The panel of `?at=`; empty when no such device is known."""
    panel = read_panel(person_of(request), read_devices(), request.GET.get("at", ""))
    return render_page(request, "inventory/devices/panel.html", PanelContext(panel=panel))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceContext(PageContext):
    panel: DevicePanel
    may: DeviceRights
    meters: MeterCharts | None
    idle: IdleList | None


@listing(NODES, SLICES)
@require_safe
def show_device(request: HttpRequest, driver: str, pool: str, device: str) -> HttpResponse:
    snapshot, person = read_devices(), person_of(request)
    panel = read_device(person, snapshot, snapshot.find(driver, pool, device, request.GET.get("node", "")))
    if panel is None:
        raise Http404(f"Device {driver}/{pool}/{device} does not exist.")
    now = datetime.now(UTC)
    window, node = asked_window(request.GET, now), panel.key[3] or panel.node
    read = history(MeterBlock.Owner.NODE, [node], since=window.begin, until=now) if node else {}
    context = DeviceContext(
        place="devices",
        revision=snapshot.revision,
        panel=panel,
        may=DeviceRights.of(person),
        meters=draw([read.get((node, series_of((driver, pool, device))), ())], request.GET, window),
        idle=read_idle(
            person, now, most=1, driver=driver, pool=pool, device=device, **({"node": node} if node else {})
        ),
    )
    return render_page(request, "inventory/devices/device.html", context)


# Acting on devices ---------------------------------------------------------------------------------------------------

#: Devices that the list shows with a box each.
LISTED = 500
#: Characters of chosen devices that an address may carry; more are sent as a form.
IN_ADDRESS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act that creates taint rules. key, effect: of the taint, unless they are typed; done: `12 devices are …`."""

    word: str
    done: str
    does: str
    key: str = ""
    effect: str = ""


ACTS: Mapping[str, Act] = {
    "taint": Act(word="Taint", done="tainted", does="Keeps claims without a toleration away."),
    "cordon": Act(
        word="Cordon",
        done="cordoned",
        does="No new claims.",
        key="manciple.dev/cordon",
        effect="NoSchedule",
    ),
    "drain": Act(
        word="Drain",
        done="being drained",
        does="No new claims; pods that hold them are evicted.",
        key="manciple.dev/drain",
        effect=NO_EXECUTE,
    ),
}


class TaintForm(PageForm):
    """The taint as it is typed; for cordon and drain only its value, the reason."""

    ids = "t-%s"
    key = forms.CharField(required=False, widget=code_input("example.com/maintenance"))
    value = forms.CharField(required=False, widget=code_input("may be empty"))
    effect = forms.CharField(required=False)

    @property
    def taint(self) -> DeviceTaint:
        return DeviceTaint(key=self.text("key"), value=self.text("value"), effect=self.text("effect"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesPreview:
    """What `kit/preview.html` shows of an act. effect: None while there is something to be typed first."""

    act: str
    word: str
    chosen: Chosen
    effect: ActionEffect | None
    back: str
    error: str = ""
    form: TaintForm | None = None
    uid: str = ""
    topics: str = ""

    @property
    def action(self) -> str:
        return self.word

    @property
    def name(self) -> str:
        return self.chosen.title

    @property
    def button(self) -> str:
        return f"{self.word} {self.chosen.title}"

    @property
    def question(self) -> str:
        return f"{self.word} {self.chosen.title}?"

    @property
    def url(self) -> str:
        return reverse("devices-act", args=(self.act,))

    @property
    def above(self) -> tuple[tuple[str, str], ...]:
        return (("Devices", reverse("devices")),)

    @property
    def method(self) -> str:
        """Of the form that shows it again."""
        return "get" if len(self.chosen.text) <= IN_ADDRESS else "post"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActContext(PageContext):
    """effects: of taints, with what each means."""

    preview: DevicesPreview
    effects: Mapping[str, str]


@listing(NODES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def act_on_devices(request: HttpRequest, act: str) -> HttpResponse:
    """See the module's docstring."""
    show = _SHOWN.get(act)
    if show is None:
        raise Http404(f"There is no act {act}.")
    if verb := {"untaint": "delete", **dict.fromkeys(ACTS, "create")}.get(act):
        demand(request, f"{act} devices", verb, TAINT_RULES)
    data = request.POST if request.method == "POST" else request.GET
    chosen = read_chosen(data, read_devices(), class_selectors())
    if not chosen.keys:
        why = f"The expression does not compile: {chosen.complaint}"
        messages.error(request, why if chosen.complaint else "Choose devices in the grid, or use the filters.")
        return redirect(_back(request, data))
    return show(request, data, act, chosen)


def _back(request: HttpRequest, data: QueryDict) -> str:
    back = data.get("back", "")
    ours = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()})
    return back if ours and back.startswith("/") else reverse("devices")


def _show_act(request: HttpRequest, preview: DevicesPreview, *, refused: bool) -> HttpResponse:
    context = ActContext(place="devices", revision=latest_revision(), preview=preview, effects=EFFECT_MEANINGS)
    return render_page(request, "inventory/devices/act.html", context, status=422 if refused else 200)


def _done(request: HttpRequest, data: QueryDict, steps: Sequence[undo.UndoStep], said: str) -> HttpResponse:
    undo.offer(request, said, steps)
    return redirect(_back(request, data))


def _taint(request: HttpRequest, data: QueryDict, name: str, chosen: Chosen) -> HttpResponse:
    person, act = person_of(request), ACTS[name]
    typed = {field: data.get(field, "").strip() for field in ("key", "value", "effect")}
    typed |= {field: value for field, value in (("key", act.key), ("effect", act.effect)) if value}
    begins, effect = name == "taint" and not any(typed.values()), None
    form = TaintForm(None if begins else typed)
    if not begins:
        rules = rules_for(chosen.keys, form.taint, chosen.pools, word=form.taint.key.rpartition("/")[2] or name)

        def create(rule: DeviceTaintRule, *, dry_run: bool = False) -> undo.UndoStep:
            created = verbs.create(kind(TAINT_RULES), rule, identity=person.identity, dry_run=dry_run)
            return undo.UndoStep.of(kind(TAINT_RULES), None, created)

        form.is_valid()
        steps, refusal = _write_all(rules[:1], partial(create, dry_run=True), person.identity)
        if steps and data.get("sure") and request.method == "POST":
            steps, refusal = _write_all(rules, create, person.identity)
            if steps:
                is_ = "is" if len(chosen.keys) == 1 else "are"
                stays = irrevocable(rules, chosen.keys, chosen.snapshot)
                return _done(request, data, steps, f"{chosen.title} {is_} {act.done}.{stays}")
        if refusal:
            form.add_refusal(refusal)
        if not form.errors:
            effect = _effect_of_tainting(act, rules, person, chosen)
    back = _back(request, data)
    preview = DevicesPreview(act=name, word=act.word, chosen=chosen, effect=effect, back=back, form=form)
    return _show_act(request, preview, refused=bool(form.errors))


def _write_all(
    rules: Iterable[DeviceTaintRule], write: Callable[[DeviceTaintRule], undo.UndoStep], identity: Identity
) -> tuple[list[undo.UndoStep], ApiError | None]:
    """(what was done, the refusal): write all rules, or none, as those before one that is refused are taken back."""
    steps = list[undo.UndoStep]()
    try:
        for rule in rules:
            steps.append(write(rule))
    except ApiError as refusal:
        try:
            if steps:
                undo.take_back(steps, identity)
        except ApiError as kept:
            names = listed([step.name for step in steps], 6)
            said = f"{refusal.message} Before that {names} changed, and it could not be taken back: {kept.message}"
            return [], PartlyDone(said)
        return [], refusal
    return steps, None


def _effect_of_tainting(act: Act, rules: Sequence[DeviceTaintRule], person: Person, chosen: Chosen) -> ActionEffect:
    taint = rules[0].spec.taint
    pools = [one.pool for rule in rules if (one := rule.spec.device_selector) and one.device is None]
    count = "1 DeviceTaintRule is made" if len(rules) == 1 else f"{len(rules)} DeviceTaintRules are made"
    summary = f"{count}, with the taint {taint_in_words(taint)}"
    if pools:
        which = f"pool {pools[0]}" if len(pools) == 1 else f"{len(pools)} whole pools"
        summary += f"; later devices in {which} are tainted too"
    changes = [RuleChange(after=rule) for rule in rules]
    effect = effect_of(changes, person, chosen.snapshot, datetime.now(UTC), summary=f"{summary}.")
    gone = Consequence(term="Unknown", sentences=(f"Nobody publishes {', '.join(chosen.gone[:3])}.",))
    does = act.does if act.effect else f"{EFFECT_MEANINGS.get(taint.effect, '').capitalize()}."
    consequences = (*effect.consequences, gone) if chosen.gone else effect.consequences
    return replace(effect, summary=f"{does} {effect.summary}", consequences=consequences)


def _untaint(request: HttpRequest, data: QueryDict, act: str, chosen: Chosen) -> HttpResponse:
    person, error = person_of(request), ""
    with following.view() as view:
        rules = view.now().all
    by_rules = TaintRules(rules)
    published = {  # by the drivers themselves: the snapshot has the rules' taints behind these
        one.key: one.device.taints[: len(one.device.taints) - len(by_rules.taints_of(*one.key[:3]))]
        for one in chosen.snapshot.candidates
    }
    untaint = untainting(chosen.keys, rules, published)

    def delete(rule: DeviceTaintRule) -> undo.UndoStep:
        name, options = rule.metadata.name, only_with(rule.metadata.uid)
        verbs.delete(kind(TAINT_RULES), name=name, identity=person.identity, options=options)
        return undo.UndoStep.of(kind(TAINT_RULES), rule, None)

    if data.get("sure") and request.method == "POST" and untaint.removed:
        steps, refusal = _write_all(untaint.removed, delete, person.identity)
        if refusal is None:
            deleted = counted(len(steps), "rule is", "rules are")
            return _done(request, data, steps, f"{deleted} deleted; {chosen.title} no longer tainted.")
        error = not_changed(refusal, noun="rule")
    effect, back = _effect_of_untainting(untaint, person, chosen), _back(request, data)
    preview = DevicesPreview(act=act, word="Untaint", chosen=chosen, effect=effect, back=back, error=error)
    return _show_act(request, preview, refused=bool(error))


def _effect_of_untainting(untaint: Untaint, person: Person, chosen: Chosen) -> ActionEffect:
    stays = list[Consequence]()
    for rule, others in untaint.wider:
        name, taint = rule.metadata.name, taint_in_words(rule.spec.taint)
        said = f"{taint} stays: its rule taints {counted(others, 'other device')} too. Change it there:"
        stays.append(Consequence(term="Stays", sentences=(said,), links=((name, taint_rule_url(name)),)))
    if untaint.published:
        taints = sorted({f"{taint_in_words(taint)} by {key[0]}" for key, taint in untaint.published})
        said = f"{', '.join(taints[:3])}: published by the driver; only the driver can remove it."
        stays.append(Consequence(term="Stays", sentences=(said,)))
    if not untaint.removed:
        return ActionEffect(consequences=tuple(stays), refused="no rule taints these devices alone")
    deleted = counted(len(untaint.removed), "rule is", "rules are")
    names = [one.metadata.name for one in untaint.removed]
    changes = [RuleChange(before=rule) for rule in untaint.removed]
    summary = f"{deleted} deleted: {listed(names, 5)}."
    effect = effect_of(changes, person, chosen.snapshot, datetime.now(UTC), summary=summary)
    return replace(effect, consequences=(*effect.consequences, *stays))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorContext(PageContext):
    """found: a selector for the chosen devices, None where none is published; also: devices that it chooses too."""

    chosen: Chosen
    back: str
    found: ExactSelector | None
    also: str


def _show_selector(request: HttpRequest, data: QueryDict, _act: str, chosen: Chosen) -> HttpResponse:
    candidates = chosen.candidates
    found = exact_selector(candidates, chosen.snapshot.candidates) if candidates else None
    also = ""
    if found is not None and found.also:
        were, them = ("was", "it") if len(found.also) == 1 else ("were", "them")
        also = (
            f"It also chooses {counted(len(found.also), 'device')} that {were} not chosen: nothing that a selector sees"
            f" tells {them} apart. For example {found.also[0].title}."
        )
    revision, back = chosen.snapshot.revision, _back(request, data)
    context = SelectorContext(place="devices", revision=revision, chosen=chosen, back=back, found=found, also=also)
    return render_page(request, "inventory/devices/selector.html", context)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One chosen device, as far as the person may know. one: None where nobody publishes it."""

    key: DeviceKey
    one: CandidateDevice | None
    state: str
    holders: tuple[Holder, ...]

    @property
    def address(self) -> str:
        return address_of(self.key)

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def taints(self) -> list[str]:
        return [taint_in_words(taint) for taint in self.one.device.taints] if self.one else []

    @property
    def holder_links(self) -> list[str | tuple[str, str]]:
        """Claims; of those that the person may not see only that they are elsewhere."""
        return [
            (one.label, claim_url(one.namespace, one.claim))
            if one.claim
            else format_html('<span class="muted">{}</span>', one.namespace)
            for one in self.holders
        ]

    def cells(self, facts: Iterable[str]) -> tuple[str, ...]:
        """Of the file. facts: its attributes and capacities, a column each."""
        one, holders = self.one, self.holders
        return (
            *self.key[:3],
            *((one.node, one.model) if one else ("", "")),
            self.state_name,
            " ".join(holder.namespace for holder in holders),
            " ".join(holder.claim for holder in holders),
            " ".join(user for holder in holders for user in holder.users),
            " ".join(self.taints),
            *facts,
        )


def _rows(person: Person, chosen: Chosen, keys: Iterable[DeviceKey]) -> list[DeviceRow]:
    there, published, rows = chosen.snapshot, {one.key: one for one in chosen.candidates}, list[DeviceRow]()
    for key in keys:
        one = published.get(key)
        rows.append(DeviceRow(key, one, there.state(key), holders_for(person, there.held_by(key))))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenContext(PageContext):
    """more: chosen devices that are not listed."""

    chosen: Chosen
    back: str
    rows: Sequence[DeviceRow]
    more: int
    may: DeviceRights


def _show_list(request: HttpRequest, data: QueryDict, _act: str, chosen: Chosen) -> HttpResponse:
    person = person_of(request)
    context = ChosenContext(
        place="devices",
        revision=chosen.snapshot.revision,
        chosen=chosen,
        back=_back(request, data),
        rows=_rows(person, chosen, chosen.keys[:LISTED]),
        more=max(0, len(chosen.keys) - LISTED),
        may=DeviceRights.of(person),
    )
    return render_page(request, "inventory/devices/chosen.html", context)


@listing(NODES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def export_devices(request: HttpRequest) -> HttpResponse:
    """The chosen devices, or all of them, with who holds them and a column for each attribute."""
    data = request.POST if request.method == "POST" else request.GET
    asked = data if {"at", "tile", "matching"} & data.keys() else QueryDict("matching=")
    chosen = read_chosen(asked, read_devices(), class_selectors())
    rows = _rows(person_of(request), chosen, chosen.keys)
    facts = [dict(row.one.facts) if row.one else {} for row in rows]
    names = sorted({name for own in facts for name in own})
    head = ("driver", "pool", "device", "node", "model", "state", "namespace", "claim", "pods", "taints", *names)
    cells = (row.cells(own.get(name, "") for name in names) for row, own in zip(rows, facts, strict=True))
    return file_answer(request, f"devices-{datetime.now(UTC):%Y%m%dT%H%M}Z", [head, *cells])


_SHOWN: Mapping[str, Callable[[HttpRequest, QueryDict, str, Chosen], HttpResponse]] = {
    **dict.fromkeys(ACTS, _taint),
    "untaint": _untaint,
    "selector": _show_selector,
    "list": _show_list,
}
