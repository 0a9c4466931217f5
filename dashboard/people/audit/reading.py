"""What the address of the audit page asks for, and the lines that answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboard.kit import links
from dashboard.kit.lists import ListQuery, parameter
from dashboard.tools.objects import Author
from manciple.audit import events, searching
from manciple.audit.happenings import REFUSED
from manciple.audit.models import Entry
from manciple.audit.searching import DENIED, Search
from manciple.store.records import Note
from manciple.wire.quantity import whole

#: Entries on one page.
SHOWN = 100
OUTCOMES = ("done", "denied", "failed")
VERBS = ("create", "update", "patch", "delete", "deletecollection", "get", "list", "watch")
RANGES = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}

_NAMESPACED = {
    "pods": links.pod_url,
    "resourceclaims.resource.k8s.io": links.claim_url,
    "resourceclaimtemplates.resource.k8s.io": links.template_url,
}
_CLUSTER_WIDE = {
    "nodes": links.node_url,
    "deviceclasses.resource.k8s.io": links.class_url,
    "namespaces": links.namespace_url,
}


def number(text: str) -> int:
    """Of an entry; 0 for what is none."""
    return whole(text) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery(ListQuery):
    """before: the entry before which the page begins; entry: the one that is shown with everything."""

    user: str = parameter("user")
    verb: str = parameter("verb", known=VERBS)
    resource: str = parameter("resource")
    namespace: str = parameter("ns")
    name: str = parameter("name")
    outcome: str = parameter("outcome", known=OUTCOMES)
    range: str = parameter("range", known=RANGES)
    request: str = parameter("id")
    system: str = parameter("system", known=("1",))
    before: str = parameter("before", selects=True)
    entry: str = parameter("entry", selects=True)

    def search(self, now: datetime) -> Search:
        age = RANGES.get(self.range)
        return Search(
            since=now - age if age else None,
            user=self.user,
            verb=self.verb,
            resource=self.resource,
            namespace=self.namespace,
            name=self.name,
            audit_id=self.request,
            outcome="" if self.outcome not in OUTCOMES else self.outcome,  # type: ignore[arg-type]
            routine=bool(self.system),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One entry as the list shows it."""

    entry: Entry
    note: Note

    @classmethod
    def of(cls, entry: Entry) -> AuditLine:
        return cls(entry=entry, note=events.note_of(entry))

    @property
    def author(self) -> Author:
        return Author(self.entry.username)

    @property
    def through(self) -> Author | None:
        return Author(self.entry.impersonator) if self.entry.impersonator else None

    @property
    def outcome(self) -> str:
        if self.entry.code in DENIED:
            return "denied"
        return "failed" if self.entry.code >= REFUSED else "done"

    @property
    def plural(self) -> str:
        """What it was done to: "pods", "resourceclaims/status"; of no object, the path."""
        plural = self.entry.resource.partition(".")[0]
        below = f"/{self.entry.subresource}" if self.entry.subresource else ""
        return f"{plural}{below}" if plural else self.note.request_uri.partition("?")[0]

    @property
    def title(self) -> str:
        entry = self.entry
        return f"{entry.namespace}/{entry.name}" if entry.namespace and entry.name else entry.name or entry.namespace

    @property
    def url(self) -> str:
        """The page of the object; "" where there is none, or it was never made."""
        entry = self.entry
        if not entry.name or (entry.verb == "create" and self.outcome != "done"):
            return ""
        if entry.namespace and entry.resource in _NAMESPACED:
            return _NAMESPACED[entry.resource](entry.namespace, entry.name)
        return _CLUSTER_WIDE[entry.resource](entry.name) if entry.resource in _CLUSTER_WIDE else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """on: the entry before which the next page begins, 0 at the end."""

    lines: Sequence[AuditLine]
    on: int


def find(query: AuditQuery, now: datetime, *, shown: int = SHOWN) -> AuditPage:
    """The newest entries that the query lets through."""
    found = searching.newest(query.search(now), before=number(query.before), limit=shown + 1)
    on = found[shown - 1].id if len(found) > shown else 0
    return AuditPage(lines=tuple(map(AuditLine.of, found[:shown])), on=on)
