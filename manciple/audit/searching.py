"""Reading the trail: what a filter lets through, the newest first; and what happened to one object.

Whoever reads has taken over what was written until then (`recording.catch_up`), so a write is seen as soon as it is
committed; a denial, within a second or two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db.models import Q, QuerySet

from manciple.audit import recording
from manciple.audit.happenings import REFUSED
from manciple.audit.models import Entry

#: The code of a write that made its object, whatever the verb: an apply and a PUT create too.
CREATED = 201
Outcome = Literal["", "done", "denied", "failed"]
#: Answers that say that somebody may not, or not so often.
DENIED = (401, 403, 429)

_OUTCOMES: dict[str, Q] = {
    "": Q(),
    "done": Q(code__lt=REFUSED),
    "denied": Q(code__in=DENIED),
    "failed": Q(code__gte=REFUSED) & ~Q(code__in=DENIED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is looked for; "" and None let everything through.

    user: the user, or who impersonated that user. namespaces: only these. routine: include the routine work of
    the system's parts.
    """

    since: datetime | None = None
    until: datetime | None = None
    user: str = ""
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    audit_id: str = ""
    outcome: Outcome = ""
    namespaces: Collection[str] | None = None
    routine: bool = False


def entries(search: Search) -> QuerySet[Entry]:
    """In no order."""
    exact = {
        "verb": search.verb,
        "resource": search.resource,
        "namespace": search.namespace,
        "name": search.name,
        "audit_id": search.audit_id,
        "at__gte": search.since,
        "at__lt": search.until,
    }
    found = Entry.objects.filter(_OUTCOMES[search.outcome], **{key: value for key, value in exact.items() if value})
    if not search.routine:
        found = found.filter(routine=False)
    if search.user:
        found = found.filter(Q(username=search.user) | Q(impersonator=search.user))
    if search.namespaces is not None:
        found = found.filter(namespace__in=search.namespaces)
    return found


def newest(search: Search, *, before: int = 0, limit: int) -> list[Entry]:
    """The newest that the search lets through, of those below id `before` (0: of all)."""
    recording.catch_up()
    found = entries(search)
    return list((found.filter(id__lt=before) if before else found).order_by("-id")[:limit])


def creators(uids: Collection[str]) -> dict[str, str]:
    """uid -> in whose name the object was created, as far as the trail goes back."""
    recording.catch_up()
    rows = Entry.objects.filter(uid__in=list(uids), code=CREATED, revision__isnull=False)
    return dict(rows.values_list("uid", "username"))


def beyond(search: Search, count: int) -> int:
    """The id of the newest entry that is not among the newest `count`; 0 where there are not so many."""
    return entries(search).order_by("-id").values_list("id", flat=True)[count : count + 1].first() or 0


def oldest(search: Search, *, after: int = 0) -> Iterator[Entry]:
    """All that the search lets through, of those above id `after`, oldest first, a part at a time."""
    recording.catch_up()
    yield from entries(search).filter(id__gt=after).order_by("id").iterator(chunk_size=1000)


def of_objects(uids: Collection[str], *, before: int = 0, limit: int) -> list[Entry]:
    """The newest writes of these objects, newest first; of those below id `before` (0: of all)."""
    recording.catch_up()
    found = Entry.objects.filter(uid__in=uids, revision__isnull=False)
    return list((found.filter(id__lt=before) if before else found).order_by("-id")[:limit])
