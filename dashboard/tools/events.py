"""What happened: the Events (core/v1) that the person may see, the newest first.

Everybody with write access to a namespace can write Events there, and name any object in them. So an Event about an
object of the cluster counts as the system's word only if its author may report about that object (`may_report`);
otherwise pages leave it out or name the author. As it may name objects of any namespace, its text is shown only to
people who see all of them.

`/events`: `?ns=`, `?type=Warning`, `?kind=` and `?name=` of the object, `?q=` (words of the message or the reason);
`?before=REVISION` continues where a page ended. Events are kept for an hour, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.access.event_authors import cluster_kinds, may_report
from claims.causes.causes import AnyCause
from claims.causes.messages import brief
from claims.event_recorder import cause_in
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, is_file, parameter
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, show_list
from dashboard.templatetags.kit import claim_url, class_url, namespace_url, node_url, pod_url, said_by, template_url
from manciple.people import ALL_NAMESPACES, Person, person_of
from manciple.store import records
from manciple.store.event_log import latest_revision
from manciple.store.history import Recent, namespaces_with, newest_among
from manciple.wire.quantity import whole
from manciple.wire.registry import Kind
from manciple.wire.resources import EVENTS

#: In place of the text of an Event about an object of the cluster, for people who do not see every namespace.
HIDDEN = "Only people who see every namespace may read the text."
#: An author that the log does not name.
UNKNOWN = "an unknown author"
#: Events on one page.
SHOWN = 100
#: Events that are searched for one page, at most.
LOOKED_AT = 5000
#: Events in a file, at most.
EXPORTED = 10_000
#: Events that are read at a time if the database cannot filter them.
BATCH = 500
NORMAL, WARNING = "Normal", "Warning"


class _About(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: str | None = None
    annotations: dict[str, str] = {}


class _Source(msgspec.Struct, frozen=True):
    component: str = ""


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an Event that pages show; the rest of its document is not decoded."""

    involved_object: _About = _About()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    reporting_component: str = ""
    source: _Source = _Source()
    metadata: _Meta = _Meta()


_decoder = msgspec.json.Decoder(_Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEvent:
    """One line. first, at: when it happened for the first and the last time."""

    revision: int
    namespace: str
    about: str  # the object's kind
    name: str
    warning: bool
    reason: str
    message: str
    cause: AnyCause | None
    said_by: str  # the component, with the author unless that is a part of the system
    count: int
    at: str | None
    first: str | None
    author: str = ""  # who wrote it, if they may not report about the object of the cluster that it names

    @property
    def url(self) -> str:
        """The object's page; empty if it has none, or if the author may not report about it."""
        return "" if self.author else url_of(self.about, self.namespace, self.name)

    @property
    def type(self) -> str:
        return WARNING if self.warning else NORMAL

    @property
    def severity(self) -> str:
        return "warn" if self.warning else "info"

    @property
    def clause(self) -> str:
        """Its message, without what all of the scheduler's refusals begin and end with."""
        return brief(self.cause) if self.cause else self.message

    @property
    def title(self) -> str:
        """`nlp-lab/llama-eval-3`, or the name alone of an object without a namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery(ListQuery):
    namespace: str = parameter("ns")
    type: str = parameter("type", known=(NORMAL, WARNING))
    kind: str = parameter("kind")
    name: str = parameter("name")
    text: str = parameter("q")
    before: str = parameter("before", selects=True)

    @property
    def revision(self) -> int:
        """Before which the page begins; 0 for the newest."""
        return whole(self.before) or 0

    @property
    def fields(self) -> dict[str, str]:
        """Patterns for `newest_among`: what the database can filter by, which `admits` repeats exactly."""
        patterns = {
            "type": WARNING if self.type == WARNING else "",
            "involvedObject.kind": self.kind,
            "involvedObject.name": f"%{self.name}%" if self.name else "",
        }
        return {field: pattern for field, pattern in patterns.items() if pattern}

    def admits(self, event: ShownEvent) -> bool:
        """All but the namespace."""
        if self.type not in ("", event.type) or self.kind not in ("", event.about):
            return False
        texts = (event.clause, event.message, event.reason)
        said = any(self.text.lower() in text.lower() for text in texts)
        return said and self.name.lower() in event.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """on: the revision before which the next page begins, 0 at the end; looked_at: events that were searched."""

    events: tuple[ShownEvent, ...]
    on: int
    looked_at: int

    @property
    def gave_up(self) -> bool:
        """Whether it ends because enough was searched, not because it is full."""
        return bool(self.on) and len(self.events) < SHOWN

    @property
    def none_yet(self) -> str:
        """The title of a page without events that has older ones behind it."""
        return f"None among the newest {self.looked_at}"


COLUMNS = (
    ListColumn[ShownEvent](title="Last", css="when", text=lambda event: event.at or ""),
    ListColumn[ShownEvent](title="Type", text=lambda event: event.type),
    ListColumn[ShownEvent](title="What", text=lambda event: f"{event.reason}: {event.clause}"),
    ListColumn[ShownEvent](title="About", text=lambda event: f"{event.about} {event.title}"),
    ListColumn[ShownEvent](title="Reported by", text=lambda event: event.said_by),
    ListColumn[ShownEvent](title="As recorded", text=lambda event: event.message, extra=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsContext(ListContext):
    query: EventQuery
    found: EventPage
    next_url: str
    newest_url: str


@namespaced()
@require_safe
@opens_as_usual
def list_events(request: HttpRequest) -> HttpResponse:
    revision = latest_revision()
    person, query = person_of(request), EventQuery.read(request)
    found = find(query, person, shown=EXPORTED if is_file(request) else SHOWN)
    namespaces = [name for name in namespaces_with(EVENTS) if person.sees(name)]
    table = Table(
        id="found",
        topics=f"events:{query.namespace}",
        title="Events",
        css="stack happened",
        query=query,
        columns=COLUMNS,
        read=found.events.__getitem__,
        filters=(
            Filter.of_namespaces(query.namespace, namespaces),
            Filter("type", "Type", query.type, every="All types", options=(WARNING, NORMAL)),
            Filter("kind", "About a", query.kind, every="About anything", options=KINDS),
            Filter("name", "named", query.name, hint="Named"),
            Filter("q", "saying", query.text, hint="Saying"),
        ),
    )
    urls = {"next_url": query.url(before=found.on) if found.on else "", "newest_url": query.url(before="")}
    context = EventsContext(place="events", revision=revision, query=query, table=table, found=found, **urls)
    return show_list(request, "tools/events/list.html", context)


def find(query: EventQuery, person: Person, *, shown: int = SHOWN, reported: bool = False) -> EventPage:
    """The newest events that match and that the person sees. reported: only by authors who may report them."""
    namespaces: Iterable[str] | None = person.namespaces
    if query.namespace:
        namespaces = {query.namespace} if person.sees(query.namespace) else ()
    chosen = None if namespaces is None else tuple(namespaces)
    limit = BATCH if query.text or query.type == NORMAL else shown + 1
    among = LOOKED_AT if query.fields and limit != BATCH else limit
    events: list[ShownEvent] = []
    before, looked_at = query.revision, 0
    kinds = cluster_kinds()
    while looked_at < LOOKED_AT:
        read = newest_among(EVENTS, limit=limit, among=among, before=before, namespaces=chosen, fields=query.fields)
        for stored in read.found:
            event = shown_event(stored, person, kinds)
            if query.admits(event) and not (reported and event.author):
                if len(events) == shown:
                    return EventPage(events=tuple(events), on=before, looked_at=looked_at)
                events.append(event)
            before = stored.revision
        if len(read.found) < limit:  # all of them were searched
            looked_at += read.looked_at
            if read.looked_at < among:
                return EventPage(events=tuple(events), on=0, looked_at=looked_at)
            before = read.last
        else:
            looked_at += len(read.found)
    return EventPage(events=tuple(events), on=before, looked_at=looked_at)


def shown_event(stored: Recent, person: Person, kinds: Mapping[str, Kind]) -> ShownEvent:
    """kinds: `cluster_kinds()`."""
    event = _decoder.decode(stored.text)
    about, created = event.involved_object, event.event_time or event.metadata.creation_timestamp
    of_cluster = not about.namespace or about.kind in kinds
    author, stranger = records.author_of(stored.note), ""
    if of_cluster and not may_report(author, kinds.get(about.kind), about.name):
        stranger = author.username or UNKNOWN
    legible = not of_cluster or person.namespaces is ALL_NAMESPACES
    return ShownEvent(
        revision=stored.revision,
        namespace=about.namespace,
        about=about.kind,
        name=about.name,
        warning=event.type == WARNING,
        reason=event.reason,
        message=event.message.strip() if legible else HIDDEN,
        cause=cause_in(event.metadata.annotations) if legible else None,
        said_by=said_by(event.reporting_component or event.source.component, stranger or author.outsider),
        count=event.count,
        at=event.last_timestamp or created,
        first=event.first_timestamp or created,
        author=stranger,
    )


KINDS = ("Pod", "ResourceClaim", "Node", "DeviceClass", "ResourceSlice", "ResourceClaimTemplate", "Namespace")
#: kind -> its page
_NAMESPACED = {"Pod": pod_url, "ResourceClaim": claim_url, "ResourceClaimTemplate": template_url}
_CLUSTER_WIDE = {"Node": node_url, "DeviceClass": class_url, "Namespace": namespace_url}


def url_of(kind: str, namespace: str, name: str) -> str:
    if name and namespace and kind in _NAMESPACED:
        return _NAMESPACED[kind](namespace, name)
    return _CLUSTER_WIDE[kind](name) if name and kind in _CLUSTER_WIDE else ""
