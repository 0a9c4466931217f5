"""What a person asks the timeline for: what stands in its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

from dashboard.kit.windows import USUAL, ChosenTime, Window
from manciple.wire.quantity import whole

GROUPINGS = {"device": "Devices", "class": "Classes", "model": "Models", "namespace": "Namespaces"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuery:
    """by: one of GROUPINGS."""

    by: str = "device"
    time: ChosenTime = field(default_factory=ChosenTime)
    namespace: str = ""
    device_class: str = ""
    driver: str = ""
    node: str = ""
    page: int = 1
    table: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> TimelineQuery:
        """What is not understood is left out."""
        by, page = query.get("by", ""), query.get("page", "")
        return cls(
            by=by if by in GROUPINGS else "device",
            time=ChosenTime.read(query),
            namespace=query.get("ns", "").strip(),
            device_class=query.get("class", "").strip(),
            driver=query.get("driver", "").strip(),
            node=query.get("node", "").strip(),
            page=max(1, whole(page, digits=7) or 1),
            table=query.get("view") == "table",
        )

    def window(self, now: datetime) -> tuple[Window, str]:
        return self.time.window(now)

    def parameters(self, **changes: str | int) -> dict[str, str | int]:
        """The address's query with some of it changed."""
        parts: dict[str, str | int] = {
            "by": self.by, **self.time.parameters, "ns": self.namespace,
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
    def narrows(self) -> bool:
        return bool(self.namespace or self.device_class or self.driver or self.node)
