"""The list of pods: `/pods`.

Those that wait come first, the longest waiting at the top, each with what keeps it. `?ns=`, `?state=`, `?node=` and
`?q=` (a part of the name) narrow it, and so do `?reason=` (a cause of the overview) and `?class=` (that a waiting pod
asks for); `?page=` turns the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Case, Count, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from claims.models import Pod as PodRow
from claims.models import Reservation
from manciple.pages.people import Person, person_of
from manciple.store.tail import latest_revision
from scheduling.causes import decode
from scheduling.messages import brief
from scheduling.models import QueuedPod
from scheduling.next_steps import TOPICS
from scheduling.pages.overview.pods import asking_for, waiting_for

#: Pods on one page.
PAGE = 100

#: What a pod's state is called -> the icon beside it. In the order of the filter.
STATES = {
    "Waiting": "i-wait",
    "Starting": "i-time",
    "Running": "i-ok",
    "Succeeded": "i-ok",
    "Failed": "i-alert",
    "Deleting": "i-x",
    "Unknown": "i-alert",
}

#: Neither bound nor over.
IS_WAITING = Q(node_name="", phase__in=("", "Pending"), deleting=False)
_IS_STARTING = Q(phase__in=("", "Pending"), deleting=False) & ~Q(node_name="")
#: state -> which rows are in it
CONDITIONS = {
    "Waiting": IS_WAITING,
    "Starting": _IS_STARTING,
    "Deleting": Q(deleting=True),
    **{phase: Q(phase=phase, deleting=False) for phase in ("Running", "Succeeded", "Failed", "Unknown")},
}
_WAITING_FIRST = Case(When(IS_WAITING, then=Value(0)), default=Value(1), output_field=IntegerField())


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What of the list is wanted, as it stands in the address."""

    namespace: str = ""
    state: str = ""
    node: str = ""
    text: str = ""
    reason: str = ""  # the key of a topic of `scheduling.next_steps`
    device_class: str = ""  # that a waiting pod asks for
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        number = query.get("page", "1")
        return cls(
            namespace=query.get("ns", "").strip(),
            state=query.get("state", "") if query.get("state", "") in STATES else "",
            node=query.get("node", "").strip(),
            text=query.get("q", "").strip(),
            reason=query.get("reason", "") if query.get("reason", "") in TOPICS else "",
            device_class=query.get("class", "").strip(),
            page=max(int(number), 1) if number.isdecimal() else 1,
        )

    @property
    def narrows(self) -> bool:
        return bool(self.namespace or self.state or self.node or self.text or self.reason or self.device_class)

    @property
    def waits_for(self) -> str:
        """What the pods have in common that are shown, in words; empty where all are."""
        words = [TOPICS[self.reason].title.lower()] if self.reason else []
        words += [f"they ask for `{self.device_class}`"] if self.device_class else []
        return ", ".join(words)

    def url(self, **changes: str | int) -> str:
        """The address of the list with some of it changed; the page begins anew unless it is changed."""
        held = {"ns": self.namespace, "state": self.state, "node": self.node, "q": self.text}
        held |= {"reason": self.reason, "class": self.device_class}
        held |= {name: str(value) for name, value in changes.items()}
        query = urlencode({name: value for name, value in held.items() if value and (name, value) != ("page", "1")})
        return f"?{query}" if query else "/pods"

    def chosen(self, rows: QuerySet[PodRow]) -> QuerySet[PodRow]:
        """All but the state, which the counts tell apart."""
        wanted = {"namespace": self.namespace, "node_name": self.node, "name__contains": self.text}
        found = rows.filter(**{name: value for name, value in wanted.items() if value})
        if self.reason:
            found = found.filter(uid__in=waiting_for(self.reason))
        return found.filter(uid__in=asking_for(self.device_class)) if self.device_class else found


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """One row of the list. since: from when it waits; devices: how many its claims hold."""

    namespace: str
    name: str
    state: str
    node: str
    reason: str
    since: datetime | None
    devices: int

    @property
    def icon(self) -> str:
        return STATES.get(self.state, "i-pod")


@login_required
@require_safe
def list_pods(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    wanted = Filter.of(request.GET)
    person = person_of(request)
    seen = person.seen(PodRow.objects.all())
    chosen = wanted.chosen(seen)
    counts = _counts(chosen)
    total = counts.get(wanted.state, 0) if wanted.state else sum(counts.values())
    rows = _ordered(chosen.filter(CONDITIONS[wanted.state]) if wanted.state else chosen)
    first = (wanted.page - 1) * PAGE
    lines = read_lines(rows[first : first + PAGE])
    context = {
        "place": "pods",
        "revision": revision,
        "wanted": wanted,
        "namespaces": seen.order_by("namespace").values_list("namespace", flat=True).distinct(),
        "states": _state_links(wanted, counts),
        "total": total,
        "waiting": counts.get("Waiting", 0),
        "pods": lines,
        "first": first + 1,
        "last": first + len(lines),
        "pages": _pages(wanted, total),
        "may_create": may_create(person),
    }
    return render(request, "pods/list.html", context)


def may_create(person: Person) -> bool:
    """Whether there is a namespace in which they may make pods."""
    return person.administers or bool(person.namespaces)


def _ordered(rows: QuerySet[PodRow]) -> QuerySet[PodRow]:
    """Those that wait first, the longest first; then by name."""
    since = QueuedPod.objects.filter(uid=OuterRef("uid")).values("created_at")[:1]
    return rows.annotate(since=Subquery(since)).order_by(_WAITING_FIRST, "since", "namespace", "name")


def _counts(rows: QuerySet[PodRow]) -> dict[str, int]:
    """state -> how many are in it. One query."""
    grouped = rows.order_by().values_list("deleting", "phase", _HAS_NODE).annotate(number=Count("uid"))
    found: dict[str, int] = {}
    for deleting, phase, has_node, number in grouped:
        state = state_of(deleting=deleting, phase=phase, node="yes" if has_node else "")
        found[state] = found.get(state, 0) + number
    return found


_HAS_NODE = Case(When(node_name="", then=Value(0)), default=Value(1), output_field=IntegerField())


def _state_links(wanted: Filter, counts: Mapping[str, int]) -> list[tuple[str, str, int, bool]]:
    """(word, address, number, whether it is chosen) of the filter by state."""
    total = sum(counts.values())
    links = [("All", wanted.url(state=""), total, not wanted.state)]
    for state in STATES:
        if counts.get(state) or state == wanted.state:
            links.append((state, wanted.url(state=state), counts.get(state, 0), state == wanted.state))
    return links


def _pages(wanted: Filter, total: int) -> dict[str, str]:
    """The addresses of the page before and after, where there are any."""
    found = {}
    if wanted.page > 1:
        found["before"] = wanted.url(page=wanted.page - 1)
    if wanted.page * PAGE < total:
        found["after"] = wanted.url(page=wanted.page + 1)
    return found


def read_lines(rows: Iterable[PodRow]) -> list[PodLine]:
    """Three queries, however many."""
    found = list(rows)
    uids = [row.uid for row in found]
    queued = {one.uid: one for one in QueuedPod.objects.filter(uid__in=uids).only("uid", "cause", "created_at")}
    held = _held(uids)
    return [_line(row, queued.get(row.uid), held.get(row.uid, 0)) for row in found]


def _held(uids: Sequence[str]) -> dict[str, int]:
    rows = Reservation.objects.filter(uid__in=uids).values_list("uid").annotate(number=Count("claim__devices"))
    return dict(rows)


def _line(row: PodRow, queued: QueuedPod | None, devices: int) -> PodLine:
    state = state_of(deleting=row.deleting, phase=row.phase, node=row.node_name)
    waits = state == "Waiting"
    return PodLine(
        namespace=row.namespace,
        name=row.name,
        state=state,
        node=row.node_name,
        reason=brief(decode(queued.cause), names_claim=False) if waits and queued else "",
        since=queued.created_at if waits and queued else None,
        devices=devices,
    )


def state_of(*, deleting: bool, phase: str, node: str) -> str:
    """What a pod's state is called, one of `STATES`."""
    if deleting:
        return "Deleting"
    if phase in ("", "Pending"):
        return "Starting" if node else "Waiting"
    return phase
