"""The timeline as values: lanes with bars, areas, a time axis. Places are percent of the window.

Times are told in Django's current zone, the reader's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType

from claims.devices.published import DeviceKey
from dashboard.capacity.timeline.reading import STEPS, HeldSpan
from dashboard.inventory.incidents import ImpairedSpan
from dashboard.kit import links
from dashboard.kit.windows import Window
from manciple.durations import clock, duration

#: The narrowest that a bar is drawn, in percent.
NARROWEST = 0.15
#: Rows of bars under one area.
ROWS = 8
#: The height of an area, in units of its drawing.
HEIGHT = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineBar:
    """Devices that one claim held, as it is drawn."""

    left: float
    width: float
    holding: HeldSpan
    url: str  # "" where nothing is left to lead to
    label: str
    seconds: float
    row: int = 0

    @property
    def style(self) -> str:
        return f"--l:{self.left:.3f};--w:{self.width:.3f};--r:{self.row}"

    @property
    def word(self) -> str:
        return self.holding.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpairedStretch:
    """A time in which a device was out of order, as it is drawn under the bars."""

    left: float
    width: float
    span: ImpairedSpan
    label: str
    seconds: float

    @property
    def style(self) -> str:
        return f"--l:{self.left:.3f};--w:{self.width:.3f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One device with who held it, or a class or namespace with how many it held."""

    name: str
    note: str
    url: str
    bars: tuple[TimelineBar, ...]
    impaired: tuple[ImpairedStretch, ...] = ()
    rows: int = 1
    hidden: int = 0  # holdings that found no row
    area: str = ""  # an SVG path
    now: int = 0
    most: int = 0
    mean: float = 0.0
    hours: float = 0.0  # device-hours
    levels: str = ""  # of each step, for the readout: "12x30 13x5" is 30 steps with 12, then 5 with 13


def bar(one: HeldSpan, window: Window, *, living: Collection[str], what: str) -> TimelineBar:
    """living: uids of claims that still exist, which a bar can lead to. what: whose lane it is in."""
    left = window.place(one.began)
    right = window.place(one.ended or window.end)
    width = max(right - left, NARROWEST)
    return TimelineBar(
        left=min(left, 100 - width),
        width=width,
        holding=one,
        url=links.claim_url(one.namespace, one.claim) if one.claim_uid in living else "",
        label=describe(one, window, what=what),
        seconds=((one.ended or window.now) - one.began).total_seconds(),
    )


def describe(one: HeldSpan, window: Window, *, what: str) -> str:
    """What a screen reader says of a bar, and a tip shows."""
    who = f"{one.namespace}/{', '.join(one.pods) or one.claim}" if one.known else "another namespace"
    some = f"{one.devices} devices" if one.devices > 1 else what
    since = clock(one.began, now=window.now)
    if one.ended is None:
        return f"{who} holds {some} since {since}, for {duration((window.now - one.began).total_seconds())}"
    long = duration((one.ended - one.began).total_seconds())
    return f"{who} held {some} from {since} to {clock(one.ended, now=window.now)}, {long}"


def stretch(one: ImpairedSpan, window: Window) -> ImpairedStretch:
    left, right = window.place(one.began), window.place(one.ended or window.end)
    width = max(right - left, NARROWEST)
    since, seconds = clock(one.began, now=window.now), ((one.ended or window.now) - one.began).total_seconds()
    until = (
        f"from {since} to {clock(one.ended, now=window.now)}, {duration(seconds)}" if one.ended else f"since {since}"
    )
    return ImpairedStretch(
        left=min(left, 100 - width),
        width=width,
        span=one,
        label=f"{one.state_name} {until}: {one.cause}",
        seconds=seconds,
    )


def device_lanes(
    keys: Sequence[DeviceKey],
    holdings: Iterable[HeldSpan],
    window: Window,
    *,
    living: Collection[str],
    impaired: Sequence[ImpairedSpan] = (),
) -> list[Lane]:
    """A lane for each device, in the order of `keys`. Shares of one device lie in rows under each other."""
    found: dict[str | DeviceKey, list[HeldSpan]] = defaultdict(list)
    for one in holdings:
        found[one.group].append(one)
    lanes = []
    for key in keys:
        _, pool, device, node = key
        bars = [bar(one, window, living=living, what=device) for one in found[key]]
        packed, rows, hidden = pack(bars, most=ROWS)
        lanes.append(
            Lane(
                name=device, note=node or pool, url=links.device_url(*key), bars=packed, rows=rows,
                hidden=hidden, now=sum(one.ended is None for one in found[key]),
                impaired=tuple(stretch(one, window) for one in impaired if one.concerns(key)),
            )
        )  # fmt: skip
    return lanes


def group_lanes(
    names: Sequence[str],
    holdings: Iterable[HeldSpan],
    levels: Mapping[str, Sequence[int]],
    window: Window,
    *,
    by: str,
    living: Collection[str],
    hours: Mapping[str, float] = MappingProxyType({}),
) -> list[Lane]:
    """A lane for each class or namespace: how many devices were held, and the holdings under it."""
    found: dict[str | DeviceKey, list[HeldSpan]] = defaultdict(list)
    for one in holdings:
        found[one.group].append(one)
    lanes = []
    for name in names:
        level = levels[name]
        packed, rows, hidden = pack(
            [bar(one, window, living=living, what="1 device") for one in found[name]], most=ROWS
        )
        lanes.append(
            Lane(
                name=called(name, by), note="", url=page_of(name, by), bars=packed, rows=rows, hidden=hidden,
                area=area(level), now=level[-1], most=max(level), mean=sum(level) / len(level),
                hours=hours.get(name, 0.0), levels=" ".join(f"{held}x{len(list(run))}" for held, run in groupby(level)),
            )
        )  # fmt: skip
    return lanes


def called(name: str, by: str) -> str:
    """What a group of the timeline is called."""
    return name or ("Other namespaces" if by == "namespace" else f"No {by}")


def page_of(name: str, by: str) -> str:
    """The page of a group; "" where there is none."""
    pages = {"class": links.class_url, "namespace": links.namespace_url}
    return pages[by](name) if name and by in pages else ""


def pack(bars: Iterable[TimelineBar], *, most: int) -> tuple[tuple[TimelineBar, ...], int, int]:
    """Bars in as few rows as they fit into without covering each other: (bars, rows, how many found no row)."""
    ends: list[float] = []
    placed, hidden = [], 0
    for one in sorted(bars, key=lambda bar: (bar.left, -bar.width)):
        row = next((index for index, end in enumerate(ends) if end <= one.left + 1e-9), len(ends))
        if row == most:
            hidden += 1
            continue
        if row == len(ends):
            ends.append(0.0)
        ends[row] = one.left + one.width
        placed.append(_in_row(one, row))
    return tuple(placed), max(len(ends), 1), hidden


def _in_row(one: TimelineBar, row: int) -> TimelineBar:
    return replace(one, row=row)


def area(level: Sequence[int]) -> str:
    """A stepped area in a drawing of STEPS by HEIGHT units, as an SVG path."""
    top = max([*level, 1])
    parts = [f"M0 {HEIGHT}"]
    before: int | None = None
    for step, value in enumerate(level):
        if value != before:
            parts.append(f"H{step}V{HEIGHT - value * (HEIGHT - 2) / top:.1f}".replace(".0", ""))
            before = value
    parts.append(f"H{STEPS}V{HEIGHT}Z")
    return "".join(parts)
