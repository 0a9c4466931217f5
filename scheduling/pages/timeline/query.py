"""What a person asks the timeline for: what stands in its address. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from manciple.wire.quantity import whole

GROUPINGS = {"device": "Devices", "class": "Classes", "namespace": "Namespaces"}
RANGES = {
    "1h": ("1 hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}
USUAL = "24h"
#: As long as the history is kept.
LONGEST = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time that is shown. now: when the page was drawn; a live window ends there."""

    begin: datetime
    end: datetime
    now: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()

    @property
    def live(self) -> bool:
        return self.end >= self.now

    def place(self, at: datetime) -> float:
        """Where a moment is, in percent from the left; never outside."""
        return min(max(100 * (at - self.begin).total_seconds() / self.seconds, 0.0), 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuery:
    """range: one of RANGES, or "" for the moments that `begin` and `end` name (as they were written)."""

    by: str = "device"
    range: str = USUAL
    begin: str = ""
    end: str = ""
    namespace: str = ""
    device_class: str = ""
    driver: str = ""
    node: str = ""
    page: int = 1
    table: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> TimelineQuery:
        """What is not understood is left out; moments that cannot be read are told by `window`."""
        by, chosen, page = query.get("by", ""), query.get("range", ""), query.get("page", "")
        begin, end = query.get("from", "").strip(), query.get("to", "").strip()
        if begin or end:  # a form that sends both means the moments
            chosen = ""
        return cls(
            by=by if by in GROUPINGS else "device",
            range=chosen if chosen in RANGES else "" if begin or end else USUAL,
            begin=begin,
            end=end,
            namespace=query.get("ns", "").strip(),
            device_class=query.get("class", "").strip(),
            driver=query.get("driver", "").strip(),
            node=query.get("node", "").strip(),
            page=max(1, whole(page, digits=7) or 1),
            table=query.get("view") == "table",
        )

    def window(self, now: datetime) -> tuple[Window, str]:
        """The time asked for, and what is wrong with what was asked; then it is the usual one."""
        if self.range:
            return Window(begin=now - RANGES[self.range][1], end=now, now=now), ""
        usual = Window(begin=now - RANGES[USUAL][1], end=now, now=now)
        end = _moment(self.end) if self.end else now
        begin = _moment(self.begin) if self.begin else None if end is None else end - RANGES[USUAL][1]
        if begin is None or end is None:
            return usual, "Write a time as 2026-11-20T10:00, in UTC. The last 24 hours are shown."
        end = min(end, now)
        if begin >= end:
            return (
                usual,
                "The first time has to be before the second, and not in the future. The last 24 hours are shown.",
            )
        if end - begin > LONGEST:
            return Window(begin=end - LONGEST, end=end, now=now), f"The history is kept for {LONGEST.days} days."
        return Window(begin=begin, end=end, now=now), ""

    def parameters(self, **changes: str | int) -> dict[str, str | int]:
        """The address's query with some of it changed."""
        parts: dict[str, str | int] = {
            "by": self.by, "range": self.range, "from": self.begin, "to": self.end, "ns": self.namespace,
            "class": self.device_class, "driver": self.driver, "node": self.node, "page": self.page,
            "view": "table" if self.table else "",
        }  # fmt: skip
        if set(changes) - {"page", "view"}:
            parts["page"] = 1
        parts |= changes
        usual = {("by", "device"), ("range", USUAL), ("page", 1)}
        return {name: value for name, value in parts.items() if value and (name, value) not in usual}

    def url(self, path: str = "/timeline", **changes: str | int) -> str:
        kept = self.parameters(**changes)
        return f"{path}?{urlencode(kept)}" if kept else path

    @property
    def range_label(self) -> str:
        """`the last 24 hours`; "" for moments of one's own."""
        return f"the last {RANGES[self.range][0].removeprefix('1 ')}" if self.range else ""

    @property
    def narrows(self) -> bool:
        return bool(self.namespace or self.device_class or self.driver or self.node)


def _moment(text: str) -> datetime | None:
    """A time as a form or a person writes it; UTC where it says nothing else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
