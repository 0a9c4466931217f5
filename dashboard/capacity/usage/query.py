"""What a person asks the usage for: what stands in its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from dashboard.capacity.timeline.query import TimelineQuery
from dashboard.kit.windows import USUAL, ChosenTime

STACKS = {"state": "States", "class": "Classes", "model": "Models", "namespace": "Namespaces"}
BY = "class"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """by: one of STACKS. The states of devices are those of everybody's: a namespace narrows the others."""

    by: str = BY
    time: ChosenTime = field(default_factory=ChosenTime)
    namespace: str = ""
    device_class: str = ""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> UsageQuery:
        """What is not understood is left out."""
        by = query.get("by", "")
        return cls(
            by=by if by in STACKS else BY,
            time=ChosenTime.read(query),
            namespace=query.get("ns", "").strip(),
            device_class=query.get("class", "").strip(),
        )

    @property
    def timeline(self) -> TimelineQuery:
        """The holdings that are asked for; by states they are summed by class."""
        by = BY if self.by == "state" else self.by
        return TimelineQuery(by=by, time=self.time, namespace=self.namespace, device_class=self.device_class)

    @property
    def narrows(self) -> bool:
        return bool(self.namespace or self.device_class)

    def url(self, path: str = "/usage", **changes: str) -> str:
        parts = {"by": self.by, **self.time.parameters, "ns": self.namespace, "class": self.device_class} | changes
        usual = {("by", BY), ("range", USUAL)}
        kept = {name: value for name, value in parts.items() if value and (name, value) not in usual}
        return f"{path}?{urlencode(kept)}" if kept else path
