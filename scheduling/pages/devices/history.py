"""Who held a device, from when to when: a strip of the last days, and the entries behind it.

What ended is kept in `PastAllocation`, what is held now is in the cache. The strip is pure: spans in, marks out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from claims.devices.holdings import Holder
from claims.devices.published import DeviceKey
from claims.models import PastAllocation
from manciple.pages.durations import clock, duration
from manciple.pages.people import Person
from scheduling.pages.devices.sight import ELSEWHERE

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
    """A stretch of the strip. weight: seconds."""

    state: str
    weight: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    marks: tuple[HistoryMark, ...]
    days: tuple[str, ...]  # what stands under it, from left to right
    held: int  # percent of the time

    @property
    def label(self) -> str:
        """What a screen reader says."""
        return ", ".join(f"{mark.title}" for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    strip: Strip
    spans: tuple[Span, ...]
    more: int  # older entries that are not listed


def read_history(person: Person, device: DeviceKey, holders: Iterable[Holder], *, now: datetime) -> History:
    """Three queries at most. holders: who holds it now, as the person may see them."""
    driver, pool, name = device
    past = PastAllocation.objects.filter(driver=driver, pool=pool, device=name, admin_access=False)
    week = now - timedelta(days=DAYS)
    spans = [_held_now(holder, now) for holder in holders]
    recent = [(row.began_at, row.ended_at) for row in past.filter(ended_at__gt=week).only("began_at", "ended_at")]
    listed = [_past(person, row) for row in past.order_by("-ended_at")[:LISTED]]
    total = past.count()
    held = [*recent, *((span.began, now) for span in spans)]
    return History(strip=strip_of(held, start=week, now=now), spans=(*spans, *listed), more=max(0, total - len(listed)))


def strip_of(held: Iterable[tuple[datetime, datetime]], *, start: datetime, now: datetime) -> Strip:
    """held: spans in any order, which may overlap where several claims share the device."""
    marks: list[HistoryMark] = []
    at, taken = start, 0.0
    for began, ended in _joined(held, start, now):
        if began > at:
            marks.append(_mark("free", at, began))
        marks.append(_mark("reserved", began, ended))
        taken += (ended - began).total_seconds()
        at = ended
    if at < now:
        marks.append(_mark("free", at, now))
    days = [start + timedelta(days=day) for day in range(0, DAYS, 2)]
    names = (f"{days[0]:%-d %b}", *(f"{day:%-d}" for day in days[1:]), "now")
    return Strip(marks=tuple(marks), days=names, held=round(100 * taken / (now - start).total_seconds()))


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


def _mark(state: str, began: datetime, ended: datetime) -> HistoryMark:
    seconds = (ended - began).total_seconds()
    word = "held" if state == "reserved" else "free"
    return HistoryMark(state, max(1, int(seconds)), f"{word} {duration(seconds)} until {clock(ended, now=ended)}")


def _held_now(holder: Holder, now: datetime) -> Span:
    return Span(began=holder.since or now, ended=None, namespace=holder.namespace, claim=holder.claim, pods=holder.pods)


def _past(person: Person, row: PastAllocation) -> Span:
    if not person.sees(row.namespace):
        return Span(began=row.began_at, ended=row.ended_at, namespace=ELSEWHERE)
    return Span(began=row.began_at, ended=row.ended_at, namespace=row.namespace, claim=row.claim, pods=tuple(row.pods))
