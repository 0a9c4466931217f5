"""Who held a device, and what was out of order with it, from when to when: a strip of the last days, and the entries
behind it.

Of holders, what ended is kept in `PastAllocation`, what is held now is in the cache; what was out of order is in
`Impairment`. The strip is pure: spans in, marks out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, starmap

from claims.devices.holdings import Holder
from claims.devices.published import DeviceKey
from claims.devices.states import DeviceState
from claims.models import PastAllocation
from dashboard.inventory.devices.sight import ELSEWHERE
from dashboard.inventory.devices.words import STATES
from dashboard.inventory.incidents.reading import ImpairedSpan, of_device
from dashboard.kit import links
from manciple.durations import clock, duration
from manciple.people import Person

#: How far back the strip shows.
DAYS = 7
#: Entries in the table; of more, the newest so many.
LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One claim's time with the device. ended: None while it lasts. Names are empty where they are not to be told."""

    began: datetime
    ended: datetime | None
    namespace: str
    claim: str = ""
    pods: tuple[str, ...] = ()

    @property
    def lasts(self) -> bool:
        return self.ended is None

    @property
    def named(self) -> bool:
        return bool(self.claim)


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

    @property
    def url(self) -> str:
        return links.incident_url(self.span.incident)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    strip: Strip
    spans: tuple[Span, ...]
    more: int  # older entries that are not listed
    incidents: tuple[DeviceIncident, ...]  # of the strip's days, the latest first


def read_history(person: Person, device: DeviceKey, holders: Iterable[Holder], *, now: datetime) -> History:
    """Four queries at most. holders: who holds it now, as the person may see them."""
    driver, pool, name, node = device
    past = PastAllocation.objects.filter(driver=driver, pool=pool, device=name, admin_access=False)
    if node:
        past = past.filter(node__in=("", node))
    week = now - timedelta(days=DAYS)
    spans = [_held_now(holder, now) for holder in holders]
    recent = [(row.began_at, row.ended_at) for row in past.filter(ended_at__gt=week).only("began_at", "ended_at")]
    listed = [_past(person, row) for row in past.order_by("-ended_at")[:LISTED]]
    total = past.count()
    held = [*recent, *((span.began, now) for span in spans)]
    impaired = of_device(device, week, now)
    return History(
        strip=strip_of(held, impaired, start=week, now=now),
        spans=(*spans, *listed),
        more=max(0, total - len(listed)),
        incidents=incidents_of(impaired),
    )


def strip_of(
    held: Iterable[tuple[datetime, datetime]],
    impaired: Iterable[ImpairedSpan] = (),
    *,
    start: datetime,
    now: datetime,
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
        found.setdefault(span.incident, []).append(span)
    return tuple(
        DeviceIncident(
            span=spans[0],
            ended=None if any(one.ended is None for one in spans) else max(one.ended for one in spans if one.ended),
            times=len(spans),
        )
        for spans in reversed(found.values())
    )


#: What a strip shows before anything else, the worst first.
OUT_OF_ORDER = (DeviceState.UNHEALTHY, DeviceState.TAINTED)
_WORDS = {DeviceState.RESERVED: "held", DeviceState.FREE: "free"}


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


def _held_now(holder: Holder, now: datetime) -> Span:
    return Span(began=holder.since or now, ended=None, namespace=holder.namespace, claim=holder.claim, pods=holder.pods)


def _past(person: Person, row: PastAllocation) -> Span:
    if not person.sees(row.namespace):
        return Span(began=row.began_at, ended=row.ended_at, namespace=ELSEWHERE)
    return Span(began=row.began_at, ended=row.ended_at, namespace=row.namespace, claim=row.claim, pods=tuple(row.pods))
