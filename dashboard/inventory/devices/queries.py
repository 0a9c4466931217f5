"""What the device pages read: filters and their facets, one device with its history, and the devices chosen for an act.

A filter dims the tiles that do not match. Choices of one kind widen it (this model or that one), choices of different
kinds narrow it. `?attr=NAME:VALUE` filters by an attribute or a capacity, `?cel=` by an expression.

Of holders in namespaces that a person does not see, a device's page says only that there are some.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise, starmap
from typing import NamedTuple
from urllib.parse import urlencode

from django.conf import settings
from django.http import QueryDict
from django.urls import reverse
from msgspec import structs

from claims.device_taints import following
from claims.devices.cache import DeviceSnapshot, Unit
from claims.devices.holdings import Holder, Other, level_of
from claims.devices.published import (
    CandidateDevice,
    DeviceKey,
    DevicePool,
    Keyed,
    Published,
    address_of,
    attribute_text,
    nanos,
    pool_of,
)
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from claims.models import Claim, PastAllocation
from dashboard.inventory.devices.grid import (
    ELSEWHERE,
    MEANINGS,
    STATES,
    GridLine,
    holders_for,
    key_of,
    label,
    line_for,
    lines_of,
)
from dashboard.inventory.devices.selectors import selector_of
from dashboard.inventory.incidents import ImpairedSpan, of_device
from dashboard.kit.mirrored import agent
from dashboard.templatetags.kit import clock, counted, device_url, listed
from insight.selector_matches import SelectorVerdict, judge
from insight.start_estimates import latest_ends
from inventory.kinds.devices import DeviceTaint, is_unhealthy
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import TaintRules
from inventory.live import pool_topic
from manciple.durations import duration
from manciple.people import Person
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.quantity import Format, Quantity
from manciple.wire.registry import registry
from manciple.wire.resources import Key
from manciple.wire.validation import natural

#: Attributes with fewer values tell nothing apart, those with more are names.
FEWEST_VALUES, MOST_VALUES = 2, 12
#: Attributes that can be a filter.
MOST_ATTRIBUTES = 8
#: They have choices of their own.
_SHOWN_ELSEWHERE = {"productName", "model"}

Matches = Callable[[Unit], bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a facet: the query parameter that makes it, and how many tiles it would leave."""

    parameter: str
    value: str
    title: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Facet:
    title: str
    choices: tuple[Choice, ...]
    #: shown only on demand
    minor: bool = False

    @property
    def name(self) -> str:
        """An attribute without its domain."""
        return self.title.rpartition("/")[2]

    @property
    def used(self) -> bool:
        return any(choice.chosen for choice in self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFilters:
    """The filters of a URL."""

    states: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    #: "name:value"
    attributes: frozenset[str] = frozenset()
    cel: str = ""

    @classmethod
    def in_url(cls, query: QueryDict) -> DeviceFilters:
        return cls(
            states=frozenset(query.getlist("state")) & STATES.keys(),
            classes=frozenset(query.getlist("class")),
            models=frozenset(query.getlist("model")),
            namespaces=frozenset(query.getlist("ns")),
            drivers=frozenset(query.getlist("driver")),
            attributes=frozenset(query.getlist("attr")),
            cel=query.get("cel", "").strip(),
        )

    @property
    def anything(self) -> bool:
        return self != DeviceFilters()


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFilter:
    """A filter that can be asked about tiles. verdict: what its expression says, None where there is none.

    unjudged: devices for which there was no time.
    """

    matches: Matches
    verdict: SelectorVerdict | None = None
    unjudged: int = 0

    @property
    def complaint(self) -> str:
        """Why its expression is not used; then nothing may be counted, chosen or changed by this filter."""
        return self.verdict.complaint if self.verdict else ""


def select(asked: DeviceFilters, published: Published, classes: Mapping[str, Sequence[str]]) -> TileFilter:
    """classes: name -> selectors."""
    tests: list[Matches] = []
    if asked.states:
        tests.append(lambda tile: tile.state in asked.states or any(part.state in asked.states for part in tile.parts))
    if asked.models:
        tests.append(lambda tile: tile.model in asked.models)
    if asked.drivers:
        tests.append(lambda tile: tile.key[0] in asked.drivers)
    if asked.namespaces:
        tests.append(lambda tile: any(holder.namespace in asked.namespaces for holder in tile.holders))
    tests += [_has_one_of(name, values) for name, values in _by_name(asked.attributes).items()]
    verdicts = [judge(classes[name], published) for name in asked.classes if name in classes]
    if asked.classes:
        tests.append(_is_in(frozenset().union(*(one.matching for one in verdicts))))
    verdict = judge([asked.cel], published) if asked.cel else None
    if verdict is not None and not verdict.complaint:  # what cannot be judged dims nothing
        tests.append(_is_in(verdict.matching))
        verdicts.append(verdict)
    unjudged = max((one.unjudged for one in verdicts), default=0)
    return TileFilter(matches=lambda tile: all(test(tile) for test in tests), verdict=verdict, unjudged=unjudged)


def _is_in(matching: frozenset[CandidateDevice]) -> Matches:
    return lambda tile: any(candidate in matching for candidate in tile.candidates)


def _by_name(attributes: Iterable[str]) -> dict[str, set[str]]:
    """A name may have a domain, never a colon; a value may have anything."""
    found: dict[str, set[str]] = {}
    for one in sorted(attributes):
        name, _, value = one.partition(":")
        found.setdefault(name, set()).add(value)
    return found


def _has_one_of(name: str, values: set[str]) -> Matches:
    wanted = {(name, value) for value in values}
    return lambda tile: any(not wanted.isdisjoint(candidate.facts) for candidate in tile.candidates)


def facets(
    asked: DeviceFilters, lines: Iterable[GridLine], published: Published, classes: Mapping[str, Sequence[str]]
) -> list[Facet]:
    """Everything that can be chosen, with counts of the whole grid."""
    shown = list(lines)
    states: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    for line in shown:
        states.update(line.counts)
        namespaces.update(line.namespaces)
    kept = _kept_counts(shown, published, classes)
    found = [
        Facet(
            "State",
            tuple(
                Choice("state", state, title, states[state], state in asked.states)
                for state, title in STATES.items()
                if states[state] or state in asked.states or state in {"free", "reserved"}
            ),
        ),
        Facet("Class", _choices("class", kept.classes, asked.classes)),
        Facet("Model", _choices("model", kept.models, asked.models)),
        Facet("Held by namespace", _choices("ns", namespaces, asked.namespaces, most_first=True)),
        Facet("Driver", _choices("driver", kept.drivers, asked.drivers)),
    ]
    found += _attribute_facets(kept.facts, asked)
    return [facet for facet in found if len(facet.choices) > 1 or facet.used or facet.title in _ALWAYS]


#: Facets that are shown with a single choice, too, or with none.
_ALWAYS = {"State", "Class", "Held by namespace"}


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tiles there are of each kind."""

    classes: Counter[str]
    models: Counter[str]
    drivers: Counter[str]
    #: name -> value -> how many
    facts: dict[str, Counter[str]]


_Classes = tuple[tuple[str, tuple[str, ...]], ...]

#: cache of the last counts with their key; valid until devices are published again
_last_counts = PerProcess[tuple[Published, _Classes, Counts] | None](lambda: None)


def _kept_counts(lines: Sequence[GridLine], published: Published, classes: Mapping[str, Sequence[str]]) -> Counts:
    key = tuple((name, tuple(selectors)) for name, selectors in sorted(classes.items()))
    last = _last_counts.value
    if last is not None and last[0] is published and last[1] == key:
        return last[2]
    verdicts = {name: judge(selectors, published) for name, selectors in key}
    counts = Counts(Counter(dict.fromkeys(verdicts, 0)), Counter(), Counter(), defaultdict(Counter))
    for tile in (tile for line in lines for tile in line.tiles if tile.candidates):
        counts.models[tile.model] += 1
        counts.drivers[tile.key[0]] += 1
        for name, verdict in verdicts.items():
            counts.classes[name] += not verdict.matching.isdisjoint(tile.candidates)
        for name, value in {fact for candidate in tile.candidates for fact in candidate.facts}:
            counts.facts[name][value] += 1
    if not any(verdict.unjudged for verdict in verdicts.values()):
        _last_counts.value = (published, key, counts)
    return counts


def _choices(
    parameter: str, counts: Counter[str], chosen: frozenset[str], *, most_first: bool = False
) -> tuple[Choice, ...]:
    names = {**counts, **{name: counts[name] for name in chosen}}
    ordered = sorted(names, key=lambda name: (-counts[name] if most_first else 0, natural(name)))
    return tuple(Choice(parameter, name, name, counts[name], name in chosen) for name in ordered)


def _attribute_facets(facts: Mapping[str, Counter[str]], asked: DeviceFilters) -> list[Facet]:
    chosen = _by_name(asked.attributes)
    telling = [
        name
        for name, values in facts.items()
        if FEWEST_VALUES <= len(values) <= MOST_VALUES and len(values) < values.total() and name not in _SHOWN_ELSEWHERE
    ]
    telling = sorted(telling, key=lambda name: (-facts[name].total(), name))[:MOST_ATTRIBUTES]
    found = []
    for name in dict.fromkeys((*chosen, *telling)):
        values = facts.get(name, Counter())
        choices = tuple(
            Choice("attr", f"{name}:{value}", value or "empty", values[value], value in chosen.get(name, ()))
            for value in sorted({*values, *chosen.get(name, ())}, key=natural)
            if len(values) <= MOST_VALUES or value in chosen.get(name, ())
        )
        found.append(Facet(name, choices, minor=True))
    return found


@lru_cache(maxsize=1)
def fact_counts(candidates: tuple[CandidateDevice, ...]) -> Mapping[str, Counter[str]]:
    """name of an attribute or a capacity -> value -> devices that have it."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for candidate in candidates:
        for name, value in candidate.facts:
            found[name][value] += 1
    return found


# The history of one device -------------------------------------------------------------------------------------------

#: How far back the strip shows.
DAYS = 7
#: Entries in the table; of more, the newest so many.
LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that one claim held the device. ended: None if it still does. Names are empty if they are hidden."""

    began: datetime
    ended: datetime | None
    namespace: str
    claim: str = ""
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """A stretch of the strip. weight: seconds. held: somebody had it though it was out of order."""

    state: str
    weight: int
    title: str
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    marks: tuple[HistoryMark, ...]
    days: tuple[str, ...]  # what stands under it, from left to right
    held: int  # percent of the time
    out_of_order: float  # seconds

    @property
    def label(self) -> str:
        """What a screen reader says."""
        return ", ".join(f"{mark.title}" for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIncident:
    """What one incident was to the device. times: how often it came in it."""

    span: ImpairedSpan  # the first
    ended: datetime | None
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    strip: Strip
    spans: tuple[Span, ...]
    more: int  # older entries that are not listed
    incidents: tuple[DeviceIncident, ...]  # of the strip's days, the latest first

    @property
    def listed_said(self) -> str:
        return f"the latest {len(self.spans)}; {self.more} older are not listed" if self.more else ""


def read_history(
    person: Person, device: DeviceKey, holders: Iterable[Holder], *, now: datetime, place: str = ""
) -> History:
    """Four queries at most. Allocations that ended are in PastAllocation, current ones in the cache, impairments in
    Impairment. holders: the current ones, as the person may see them. place: the node it is on, if any."""
    driver, pool, name, node = device
    past = PastAllocation.objects.filter(driver=driver, pool=pool, device=name, admin_access=False)
    if node:
        past = past.filter(node__in=("", node))
    week = now - timedelta(days=DAYS)
    spans = [
        Span(began=one.since or now, ended=None, namespace=one.namespace, claim=one.claim, pods=one.pods)
        for one in holders
    ]
    recent = [(row.began_at, row.ended_at) for row in past.filter(ended_at__gt=week).only("began_at", "ended_at")]
    listed = [_past(person, row) for row in past.order_by("-ended_at")[:LISTED]]
    total = past.count()
    held = [*recent, *((span.began, now) for span in spans)]
    impaired = of_device(device, week, now, node=place)
    return History(
        strip=strip_of(held, impaired, start=week, now=now),
        spans=(*spans, *listed),
        more=max(0, total - len(listed)),
        incidents=incidents_of(impaired),
    )


def strip_of(
    held: Iterable[tuple[datetime, datetime]], impaired: Iterable[ImpairedSpan] = (), *, start: datetime, now: datetime
) -> Strip:
    """held: spans in any order, which may overlap where several claims share the device; so may `impaired`."""
    of: dict[DeviceState, list[tuple[datetime, datetime]]] = {state: [] for state in OUT_OF_ORDER}
    for span in impaired:
        of[span.state].append((span.began, span.ended or now))
    layers = {state: _joined(spans, start, now) for state, spans in (*of.items(), (DeviceState.RESERVED, list(held)))}
    edges = sorted({start, now, *(at for spans in layers.values() for span in spans for at in span)})
    marks: list[tuple[DeviceState, bool, datetime, datetime]] = []
    for began, ended in pairwise(edges):
        covering = [state for state, spans in layers.items() if any(a <= began and ended <= b for a, b in spans)]
        state = covering[0] if covering else DeviceState.FREE
        taken = state in OUT_OF_ORDER and DeviceState.RESERVED in covering
        if marks and marks[-1][:2] == (state, taken):
            marks[-1] = (state, taken, marks[-1][2], ended)
        else:
            marks.append((state, taken, began, ended))
    days = [start + timedelta(days=day) for day in range(0, DAYS, 2)]
    return Strip(
        marks=tuple(starmap(_mark, marks)),
        days=(f"{days[0]:%-d %b}", *(f"{day:%-d}" for day in days[1:]), "now"),
        held=round(100 * _seconds(layers[DeviceState.RESERVED]) / (now - start).total_seconds()),
        out_of_order=_seconds([(began, ended) for state, _, began, ended in marks if state in OUT_OF_ORDER]),
    )


def incidents_of(impaired: Iterable[ImpairedSpan]) -> tuple[DeviceIncident, ...]:
    """impaired: the oldest first. The latest incident first."""
    found: dict[str, list[ImpairedSpan]] = {}
    for span in impaired:
        found.setdefault(span.row.incident_id, []).append(span)
    return tuple(
        DeviceIncident(
            span=spans[0],
            ended=None if any(one.ended is None for one in spans) else max(one.ended for one in spans if one.ended),
            times=len(spans),
        )
        for spans in reversed(found.values())
    )


#: What a strip shows before anything else, the worst first.
OUT_OF_ORDER = (DeviceState.UNREACHABLE, DeviceState.UNHEALTHY, DeviceState.UNPUBLISHED, DeviceState.TAINTED)
_WORDS = {DeviceState.RESERVED: "held", DeviceState.FREE: "not held"}


def _seconds(spans: Iterable[tuple[datetime, datetime]]) -> float:
    return sum((ended - began).total_seconds() for began, ended in spans)


def _joined(
    spans: Iterable[tuple[datetime, datetime]], start: datetime, now: datetime
) -> Sequence[tuple[datetime, datetime]]:
    """Without overlaps, within the strip, oldest first."""
    found: list[tuple[datetime, datetime]] = []
    for began, ended in sorted((max(began, start), min(ended, now)) for began, ended in spans):
        if ended <= began:
            continue
        if found and began <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ended))
        else:
            found.append((began, ended))
    return found


def _mark(state: DeviceState, held: bool, began: datetime, ended: datetime) -> HistoryMark:
    seconds = (ended - began).total_seconds()
    word = _WORDS.get(state) or f"{STATES[state].lower()}{' and held' if held else ''}"
    title = f"{word} {duration(seconds)} until {clock(ended, now=ended)}"
    return HistoryMark(state, max(1, int(seconds)), title, held)


def _past(person: Person, row: PastAllocation) -> Span:
    if not person.sees(row.namespace):
        return Span(began=row.began_at, ended=row.ended_at, namespace=ELSEWHERE)
    return Span(began=row.began_at, ended=row.ended_at, namespace=row.namespace, claim=row.claim, pods=tuple(row.pods))


PODS = "pods"
#: Holders that are described; the rest of a widely shared device is counted.
DESCRIBED = 8
#: NeighbourStrip that fit into the strip of a panel.
NEIGHBOURS = 24


class Health(NamedTuple):
    """What is known of a device's health, and the source."""

    state: str = ""
    message: str = ""
    source: str = ""


class Neighbour(NamedTuple):
    """A tile of the same line, as the strip draws it."""

    at: str
    state: DeviceState
    level: int
    label: str
    here: bool


class NeighbourStrip(NamedTuple):
    """The tiles of its line that are alike, and which of them it is: `position` 3 `of` 8. before, after: addresses."""

    mini: tuple[Neighbour, ...] = ()
    position: int = 0
    of: int = 0
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePanel(Keyed):
    """One device, as far as one person may know of it. candidate: None where nobody publishes it."""

    key: DeviceKey = field()  # without it, the property that it stands for would count as its default
    node: str
    candidate: CandidateDevice | None
    state: DeviceState
    level: int
    holders: tuple[HeldBy, ...]
    more_holders: int
    history: History
    health: Health
    pool_row: DevicePool | None
    siblings: Sequence[tuple[str, str, DeviceState, str]]  # as `_siblings` has them
    neighbours: NeighbourStrip
    capacity: Sequence[tuple[str, str, str]]  # as `_capacity` has it
    counters: Sequence[tuple[str, str, str, str, bool]]  # as `_counters` has them
    attributes: Sequence[tuple[str, list[tuple[str, str]]]]  # as `_attributes` has them
    selector: str  # an expression that chooses such devices
    rules: tuple[str, ...]  # names of those that taint it

    @property
    def topic(self) -> str:
        return pool_topic(self.driver, self.pool)

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def meaning(self) -> str:
        return MEANINGS[self.state]

    @property
    def acts_url(self) -> str:
        """The device as a choice of one, to act on; back to its panel."""
        back = f"{reverse('devices')}?{urlencode({'at': self.address})}"
        return f"{reverse('devices-act', args=('list',))}?{urlencode({'at': self.address, 'back': back})}"

    @property
    def taints(self) -> list[tuple[DeviceTaint, str]]:
        """(taint, the DeviceTaintRule that it is of); "" for those that the driver publishes, which stand first."""
        taints = self.candidate.device.taints if self.candidate else ()
        own = len(taints) - len(self.rules)
        return [*((taint, "") for taint in taints[:own]), *zip(taints[own:], self.rules, strict=True)]


def read_panel(person: Person, snapshot: DeviceSnapshot, address: str) -> DevicePanel | None:
    """What the panel says of the device at this address; None where the address names none."""
    key = key_of(address, snapshot)
    return None if key is None else read_device(person, snapshot, key)


def read_device(person: Person, snapshot: DeviceSnapshot, key: DeviceKey) -> DevicePanel | None:
    """None where nobody publishes it, and nobody holds it."""
    candidate, holders = snapshot.candidate(key), snapshot.held_by(key)
    if candidate is None and not holders:
        return None
    seen = holders_for(person, holders)
    pool = snapshot.pools[pool_of(key)]
    topic = pool_topic(key[0], key[1])
    lines = [line for line in lines_of(snapshot) if topic in line.topics]
    line = next((line for line in lines if any(stands_for(tile, key) for tile in line.tiles)), None)
    pods, state = _pods(seen[:DESCRIBED]), pool.state(key)
    ends = latest_ends(pods)
    claims = [one.claim_uid for one in seen[:DESCRIBED] if one.claim_uid]
    deleted = set(Claim.objects.filter(uid__in=claims, deleting=True).values_list("uid", flat=True))
    lost = state is DeviceState.UNREACHABLE
    health = _health(key, candidate, seen, pods)
    if lost:
        last = f"last reported: {health.state}" if health.state else ""
        health = Health("Unknown", last, "its node is unreachable")
    return DevicePanel(
        key=key,
        node=line.node if line else "",
        candidate=candidate,
        state=state,
        level=level_of(candidate, holders) if candidate else 0,
        holders=tuple(_held_by(holder, key, pods, ends, deleted, lost=lost) for holder in seen[:DESCRIBED]),
        more_holders=max(0, len(seen) - DESCRIBED),
        history=read_history(person, key, seen, now=datetime.now(UTC), place=line.node if line else ""),
        health=health,
        pool_row=pool.pool if pool.pool.slices else None,
        siblings=_siblings(person, snapshot, key, line),
        neighbours=_neighbours(person, key, line),
        capacity=list(_capacity(candidate, holders)) if candidate else (),
        counters=list(_counters(snapshot, candidate)) if candidate else (),
        attributes=_attributes(candidate) if candidate else (),
        selector=selector_of(candidate, fact_counts(snapshot.candidates)) if candidate else "",
        rules=_rules(key, candidate) if candidate else (),
    )


def _rules(key: DeviceKey, candidate: CandidateDevice) -> tuple[str, ...]:
    """The rules whose taints the snapshot has of it; none where they have changed since it was taken."""
    if not candidate.device.taints:
        return ()
    with following.view() as view:
        known = TaintRules(view.now().all).of(*key[:3])
    behind = candidate.device.taints[-len(known) :] if known else ()
    return tuple(rule.metadata.name for rule in known) if behind == tuple(rule.spec.taint for rule in known) else ()


def stands_for(tile: Unit, key: DeviceKey) -> bool:
    return tile.key == key or any(candidate.key == key for candidate in tile.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBy:
    """A holder as the page tells it. leaving: what of it is being deleted, as a sentence; ends: when the device is free
    again. cdi_file: the agent's name for the claim's file. cdi_ids: for the runtime.
    """

    holder: Holder
    share: str
    leaving: str
    ends: str
    cdi_file: str
    cdi_ids: tuple[str, ...]


def _pods(holders: Iterable[Holder]) -> dict[Key, Pod]:
    """Those that the holders are reserved for, in one query; who may not be named has none."""
    names = {(holder.namespace, pod) for holder in holders for pod in holder.pods}
    if not names:
        return {}
    kind = registry.by_resource(PODS)
    found = (objects.decode(kind, stored.text) for stored in objects.get_many(kind, names))
    return {pod.key: pod for pod in found if isinstance(pod, Pod)}


def _held_by(
    holder: Holder,
    key: DeviceKey,
    pods: dict[Key, Pod],
    ends: Mapping[Key, datetime | None],
    deleted: Container[str],
    *,
    lost: bool,
) -> HeldBy:
    """ends: when each pod ends at the latest. deleted: uids of claims that are being deleted. lost: its node is
    unreachable, so no time limit ends it.
    """
    using = [pods[holder.namespace, name] for name in holder.pods if (holder.namespace, name) in pods]
    ids = dict.fromkeys(one for pod in using for one, _, _ in _reports(pod, key, holder) if "=" in one)
    staying = [pod for pod in using if not pod.metadata.deletion_timestamp]
    leaving = [pod.metadata.name for pod in using if pod.metadata.deletion_timestamp]
    return HeldBy(
        holder=holder,
        leaving=_leaving(leaving, claim=holder.claim_uid in deleted),
        share=", ".join(f"{Quantity(amount).canonical()} of {name}" for name, amount in holder.consumed.items()),
        ends="Free again: unknown. Its node is unreachable."
        if lost
        else _ends([ends.get(pod.key) for pod in staying], holder.others),
        cdi_file=f"k8s.{key[0]}-claim_{holder.claim_uid}.json" if holder.claim_uid and not settings.MIRROR else "",
        cdi_ids=tuple(ids),
    )


def _leaving(pods: Sequence[str], *, claim: bool) -> str:
    parts = ["The claim"] if claim else []
    parts += [f"{'pod' if len(pods) == 1 else 'pods'} {listed(pods, 3)}"] if pods else []
    subject = " and ".join(parts)
    are = "are" if len(pods) > 1 or len(parts) > 1 else "is"
    return f"{subject[:1].upper()}{subject[1:]} {are} being deleted." if subject else ""


def _ends(ends: Sequence[datetime | None], others: Sequence[Other]) -> str:
    """When the device is free again, as far as it is known. ends: of the pods that use it, at the latest."""
    if others:
        return f"Free again: unknown. The controller of {listed(list(map(str, others)), 1)} decides."
    if not ends:
        return ""
    if None in ends:
        return f"Free again: unknown. {'The pod has' if len(ends) == 1 else 'The pods have'} no time limit."
    return f"Free again: by {clock(max(filter(None, ends)))}, when its time limit ends."


def _reports(pod: Pod, key: DeviceKey, holder: Holder) -> Iterator[tuple[str, str, str]]:
    """(resource id, health, message) of what the node's agent reports of this device."""
    plain, cdi = "/".join(key[:3]), f"={holder.claim_uid}-{key[2]}"
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        for resource in container.allocated_resources_status:
            for one in resource.resources:
                if one.resource_id == plain or (holder.claim_uid and cdi in one.resource_id):
                    yield one.resource_id, one.health, one.message or ""


def _health(
    key: DeviceKey, candidate: CandidateDevice | None, holders: Iterable[Holder], pods: dict[tuple[str, str], Pod]
) -> Health:
    """What an agent reports, or a taint if it reports nothing definite."""
    reports = (
        Health(health, message, f"as the {agent()} reports it with the pod")
        for holder in holders
        for name in holder.pods
        if (pod := pods.get((holder.namespace, name))) is not None
        for _, health, message in _reports(pod, key, holder)
    )
    reported = next(reports, Health())
    if candidate is None or reported.message or reported.state not in {"", "Unknown"}:
        return reported
    broken = next((taint for taint in candidate.device.taints if is_unhealthy(taint.key)), None)
    return reported if broken is None else Health("Unhealthy", broken.value, f"by taint {broken.key}")


def _capacity(candidate: CandidateDevice, holders: Iterable[Holder]) -> Iterator[tuple[str, str, str]]:
    """(name, amount, how much of it is in use where the device is shared)."""
    used: dict[str, int] = {}
    for holder in holders:
        for name, amount in holder.consumed.items():
            used[name] = used.get(name, 0) + amount
    for name, capacity in sorted(candidate.device.capacity.items()):
        shown = ""
        if candidate.device.allow_multiple_allocations:
            shown = f"{_amount(used.get(name, 0), capacity.value)} in use"
        yield name, str(capacity.value), shown


def _amount(amount: int, like: str) -> str:
    """A quantity in the family (binary, decimal) of another."""
    try:
        return Quantity(amount, Quantity.parse(like).format).canonical()
    except ValueError:
        return Quantity(amount, Format.DECIMAL_SI).canonical()


def _counters(snapshot: DeviceSnapshot, candidate: CandidateDevice) -> Iterator[tuple[str, str, str, str, bool]]:
    """(counter set, counter, what the device draws, what is left, whether that is too little)."""
    left = snapshot.pools[candidate.home].left
    for one in candidate.device.consumes_counters:
        for name, counter in sorted(one.counters.items()):
            rest = left.get(one.counter_set, {}).get(name, 0)
            short = rest < nanos(counter.value)
            yield one.counter_set, name, str(counter.value), _amount(rest, counter.value), short


def _attributes(candidate: CandidateDevice) -> list[tuple[str, list[tuple[str, str]]]]:
    """(domain, [(name, value as text)]), the driver's own domain first."""
    driver = candidate.key[0]
    domains: dict[str, list[tuple[str, str]]] = {}
    for full_name, value in sorted(candidate.device.attributes.items()):
        domain, slash, name = full_name.rpartition("/")
        domains.setdefault(domain if slash else driver, []).append((name, attribute_text(value)))
    return sorted(domains.items(), key=lambda item: (item[0] != driver, item[0]))


def _siblings(
    person: Person, snapshot: DeviceSnapshot, key: DeviceKey, line: GridLine | None
) -> list[tuple[str, str, DeviceState, str]]:
    """(address, name, state, its holders, or its state in words) of the other devices of its card: those that are held
    or can be had, then those that others block."""
    tile = next((tile for tile in line.tiles if stands_for(tile, key)), None) if line else None
    found: list[tuple[str, str, DeviceState, str]] = []
    for candidate in tile.candidates if tile and tile.cut else ():
        holders = holders_for(person, snapshot.held_by(candidate.key))
        state = snapshot.state_of(candidate)
        named = "; ".join(holder.label if holder.claim else holder.namespace for holder in holders)
        found.append((candidate.address, candidate.name, state, named or STATES[state].lower()))
    order, last = list(STATES), {DeviceState.FREE, DeviceState.BLOCKED}
    return sorted(found, key=lambda one: (one[2] in last, order.index(one[2])))


def _neighbours(person: Person, key: DeviceKey, line: GridLine | None) -> NeighbourStrip:
    if line is None:
        return NeighbourStrip()
    tiles = line_for(person, line).tiles
    at = next(index for index, tile in enumerate(tiles) if stands_for(tile, key))
    alike = [tile for tile in tiles if tile.gauge == tiles[at].gauge]
    place = alike.index(tiles[at])
    first = max(0, min(place - NEIGHBOURS // 2, len(alike) - NEIGHBOURS))
    return NeighbourStrip(
        mini=tuple(
            Neighbour(at=tile.address, state=tile.state, level=tile.level, label=label(tile), here=tile is tiles[at])
            for tile in alike[first : first + NEIGHBOURS]
        ),
        position=place + 1,
        of=len(alike),
        before=device_url(*alike[place - 1].key) if place else "",
        after=device_url(*alike[place + 1].key) if place + 1 < len(alike) else "",
    )


# The devices chosen for an act ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The devices that an address or a form names.

    `at`: addresses of devices, a line each; `tile`: addresses of tiles, a card stands for all that it is cut into;
    `matching`: a query of the grid, for whatever its filters let through; `except`: addresses of tiles without which.

    keys: in the order of their places. gone: addresses of which nothing is known. complaint: why an expression chose
    nothing.
    """

    snapshot: DeviceSnapshot
    keys: tuple[DeviceKey, ...]
    gone: tuple[str, ...] = ()
    complaint: str = ""

    @property
    def text(self) -> str:
        """A line each, for a form to send."""
        return "\n".join(map(address_of, self.keys))

    @property
    def title(self) -> str:
        """`gpu-a17/gpu-3`, or how many they are."""
        return "/".join(self.keys[0][1:3]) if len(self.keys) == 1 else counted(len(self.keys), "device")

    @property
    def candidates(self) -> list[CandidateDevice]:
        """Those that are published."""
        wanted = set(self.keys)
        return [one for one in self.snapshot.candidates if one.key in wanted]

    @property
    def pools(self) -> Mapping[PoolKey, Sequence[DeviceKey]]:
        """What is published of the pools that have the names of theirs."""
        names = {key[:2] for key in self.keys}
        pools = self.snapshot.pools
        return {key: [one.key for one in pools[key].candidates] for key in pools if key[:2] in names}


def read_chosen(data: QueryDict, snapshot: DeviceSnapshot, classes: Mapping[str, Sequence[str]]) -> Chosen:
    """classes: name -> selectors."""
    found: dict[DeviceKey, None] = {}
    gone = list[str]()
    for address in _lines(data.getlist("at")):
        key = key_of(address, snapshot)
        if key is not None and (snapshot.candidate(key) is not None or snapshot.held_by(key)):
            found[key] = None
        else:
            gone.append(address)
    found.update(dict.fromkeys(_of_tiles(data.getlist("tile"), snapshot)))
    complaint = ""
    if "matching" in data:
        asked = DeviceFilters.in_url(QueryDict(data.get("matching", "").removeprefix("?")))
        selection = select(asked, snapshot.published, classes)
        complaint = selection.complaint
        but = set(_of_tiles(data.getlist("except"), snapshot))
        found.update((key, None) for key in (() if complaint else _matching(selection, snapshot)) if key not in but)
    return Chosen(snapshot=snapshot, keys=tuple(sorted(found, key=_place)), gone=tuple(gone), complaint=complaint)


def _lines(fields: Iterable[str]) -> Iterator[str]:
    return (line.strip() for field in fields for line in field.splitlines() if line.strip())


def _of_tiles(fields: Iterable[str], snapshot: DeviceSnapshot) -> Iterator[DeviceKey]:
    tiles = {key for address in _lines(fields) if (key := key_of(address, snapshot)) is not None}
    for unit in _units(snapshot) if tiles else ():
        if unit.key in tiles:
            yield from (one.key for one in unit.candidates)


def _units(snapshot: DeviceSnapshot) -> Iterator[Unit]:
    return (unit for pool in snapshot.pools.values() for unit in pool.units)


def _matching(selection: TileFilter, snapshot: DeviceSnapshot) -> Iterator[DeviceKey]:
    """What a card is cut into is asked one by one: the filters may mean some of it only.

    Raises: TimeLimitExceeded.
    """
    if selection.unjudged:
        raise TimeLimitExceeded  # nothing is done to a part of what was asked for
    matches = selection.matches
    for unit in _units(snapshot):
        for one in unit.candidates:
            alone = structs.replace(unit, stands=one, state=snapshot.state_of(one), holders=snapshot.held_by(one.key))
            if matches(structs.replace(alone, card=(one,) if unit.card else (), parts=())):
                yield one.key


def _place(key: DeviceKey) -> tuple[object, ...]:
    driver, pool, device, node = key
    return natural(pool), driver, natural(device), natural(node)
