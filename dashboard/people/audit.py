"""Who did what: the audit trail, for whoever may read it (`Person.may_audit`).

- `/audit`: filtered by `?user=`, `?verb=`, `?resource=`, `?ns=`, `?name=`, `?outcome=`, `?range=`, `?id=` (of a
  request), `?system=1` (include the routine work of the system's parts); `?before=ENTRY` continues where a page ended,
  `?entry=` shows one request with all that is known of it and with what it changed.
- `/audit.csv`, `/audit.jsonl`: the newest entries of the same address, oldest first; as lines of JSON they are
  `audit.k8s.io/v1` Events. `manage.py audit export` has no limit.

Whoever may read the trail of one namespace alone asks with `?ns=`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.kit.guards import authorizes, begin_costly
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, csv_cell, csv_lines, parameter
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, show_list
from dashboard.templatetags.kit import claim_url, class_url, namespace_url, node_url, pod_url, template_url
from dashboard.tools.objects import Author, ObjectChange, change_of, read_states
from manciple.audit import events, retention, searching
from manciple.audit.commands import UNSERVED
from manciple.audit.happenings import REFUSED
from manciple.audit.models import Entry, Shortfall
from manciple.audit.searching import DENIED, Search
from manciple.people import AUDIT_EVENTS, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.records import Note
from manciple.wire.quantity import whole
from manciple.wire.registry import registry
from manciple.wire.resources import NAMESPACES, kind

#: Entries on one page.
SHOWN = 100
OUTCOMES = ("done", "denied", "failed")
VERBS = ("create", "update", "patch", "delete", "deletecollection", "get", "list", "watch")
RANGES = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}

_NAMESPACED = {
    "pods": pod_url,
    "resourceclaims.resource.k8s.io": claim_url,
    "resourceclaimtemplates.resource.k8s.io": template_url,
}
_CLUSTER_WIDE = {
    "nodes": node_url,
    "deviceclasses.resource.k8s.io": class_url,
    "namespaces": namespace_url,
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
        return Author.of(self.entry)

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


COLUMNS = (
    ListColumn[AuditLine](title="When", css="when"),
    ListColumn[AuditLine](title="Who"),
    ListColumn[AuditLine](title="Did"),
    ListColumn[AuditLine](title="To"),
    ListColumn[AuditLine](title="Outcome"),
)


#: Senders whose entries are incomplete, that the page names.
SHORTFALLS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditContext(ListContext):
    """shown: the entry that is open; close_url: the list without it.

    system_url: the list with what the system's own parts did, or without it.
    """

    query: AuditQuery
    shown: ShownEntry | None
    next_url: str
    newest_url: str
    system_url: str
    close_url: str
    csv_url: str
    json_url: str
    shortfalls: Sequence[Shortfall]


@authorizes
@require_safe
@opens_as_usual
def list_audit(request: HttpRequest) -> HttpResponse:
    """The page."""
    revision, now = latest_revision(), datetime.now(UTC)
    query = AuditQuery.read(request)
    _demand_audit(request, query.namespace)
    person = person_of(request)
    found = searching.newest(query.search(now), before=number(query.before), limit=SHOWN + 1)
    namespaces = [stored.name for stored in objects.list(kind(NAMESPACES)).items if person.sees(stored.name)]
    resources = sorted({one.resource for one in registry}.union(UNSERVED))
    table = Table(
        id="audit",
        topics="",
        title="Entries",
        css="stack audit",
        query=query,
        columns=COLUMNS,
        read=[*map(AuditLine.of, found[:SHOWN])].__getitem__,
        filters=(
            Filter("user", "Who", query.user, hint="Who"),
            Filter("verb", "Did", query.verb, every="Did anything", options=VERBS),
            Filter(
                "resource",
                "To",
                query.resource,
                every="To anything",
                options=resources,
            ),
            Filter.of_namespaces(query.namespace, namespaces),
            Filter("outcome", "Outcome", query.outcome, every="Any outcome", options=OUTCOMES),
            Filter("range", "Within", query.range, every="Any time", options=tuple(RANGES)),
        ),
    )
    whole_list = query.url(before="", entry="")
    context = AuditContext(
        place="audit",
        revision=revision,
        query=query,
        table=table,
        shown=_shown(request, query),
        next_url=query.url(before=found[SHOWN - 1].id, entry="") if len(found) > SHOWN else "",
        newest_url=whole_list,
        system_url=query.url(system="" if query.system else "1", before="", entry=""),
        close_url=query.url(entry=""),
        csv_url=whole_list.replace(query.path, "/audit.csv", 1),
        json_url=whole_list.replace(query.path, "/audit.jsonl", 1),
        shortfalls=list(retention.shortfalls()[:SHORTFALLS]),
    )
    return show_list(request, "people/audit/list.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEntry:
    """One entry with everything. change: None where nothing was written."""

    line: AuditLine
    change: ObjectChange | None
    more_url: str  # what else the same request did


def _shown(request: HttpRequest, query: AuditQuery) -> ShownEntry | None:
    """The entry that the address names. Raises: Http404, PermissionDenied."""
    if not query.entry:
        return None
    entry = Entry.objects.filter(id=number(query.entry)).first()
    if entry is None:
        raise Http404("This entry does not exist, or has expired.")
    _demand_audit(request, entry.namespace)
    change = change_of(entry, read_states([entry])) if entry.revision else None
    more = AuditQuery(path=query.path, request=entry.audit_id, system="1").url() if entry.audit_id else ""
    return ShownEntry(line=AuditLine.of(entry), change=change, more_url=more)


# Files ----------------------------------------------------------------------------------------------------------------


#: Entries in a file, at most: it is made in memory.
EXPORTED = 20_000
#: Of processor time, for a file.
EXPORT_SECONDS = 10.0
HEAD = (
    *("at", "user", "inTheNameOf", "verb", "resource", "subresource", "namespace", "name", "uid", "code", "reason"),
    *("message", "dryRun", "revision", "count", "auditID", "sourceIPs", "userAgent"),
)


@authorizes
@require_safe
def export_csv(request: HttpRequest) -> HttpResponse:
    return _exported(request, _csv, "text/csv; charset=utf-8; header=present", "csv")


@authorizes
@require_safe
def export_json(request: HttpRequest) -> HttpResponse:
    return _exported(request, lambda found: map(events.line, found), "application/jsonl", "jsonl")


def _exported(
    request: HttpRequest, pieces: Callable[[Iterable[Entry]], Iterable[bytes]], content_type: str, ending: str
) -> HttpResponse:
    query, now = AuditQuery.read(request), datetime.now(UTC)
    _demand_audit(request, query.namespace)
    begin_costly(request, seconds=EXPORT_SECONDS)
    search = query.search(now)
    found = searching.oldest(search, after=searching.beyond(search, EXPORTED))
    answer = HttpResponse(b"".join(pieces(found)), content_type=content_type)
    answer["Content-Disposition"] = f'attachment; filename="audit-{now:%Y%m%dT%H%M}Z.{ending}"'
    return answer


def _csv(found: Iterable[Entry]) -> Iterator[bytes]:
    for row in chain([HEAD], map(_cells, found)):
        yield csv_lines([[csv_cell(cell) for cell in row]]).encode()


def _cells(entry: Entry) -> tuple[Any, ...]:
    """In the order of HEAD."""
    note = events.note_of(entry)
    asking, acted = (entry.impersonator, entry.username) if entry.impersonator else (entry.username, "")
    return (
        *(entry.at.isoformat(timespec="milliseconds"), asking, acted, entry.verb, entry.resource, entry.subresource),
        *(entry.namespace, entry.name, entry.uid, entry.code, entry.reason, entry.message, entry.dry_run),
        *(entry.revision or "", entry.count, entry.audit_id, " ".join(note.source_ips), note.user_agent),
    )


def _demand_audit(request: HttpRequest, namespace: str = "") -> None:
    """Raises: PermissionDenied saying who may."""
    if not person_of(request).may_audit(namespace):
        where = f" of namespace {namespace}" if namespace else ""
        resource, _, group = AUDIT_EVENTS.partition(".")
        raise PermissionDenied(
            f"You may not read the audit trail{where}: that takes a role that lists {resource} of {group}."
        )
