"""Who looks at a page: what that person may see, and what they may change.

Staff administer: they see and change everything. Everybody else looks: at everything, or, as a member of Django groups
named `namespace:NAME`, at those namespaces and at what belongs to none (nodes, devices, classes); in those namespaces
they may also make and delete pods and claims. Every page asks here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest

from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity

#: What the name of a group begins with that opens one namespace to its members.
NAMESPACE_GROUP = "namespace:"
#: Live topics that name a namespace: `pod:NAMESPACE/NAME`, `claims:NAMESPACE`.
NAMESPACED_TOPICS = ("pod:", "claim:", "claims:", "template:", "events:")

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Person:
    """Who is signed in. `namespaces`: those whose objects they see, None for all."""

    name: str
    administers: bool
    namespaces: frozenset[str] | None

    @property
    def identity(self) -> Identity:
        """Who that is to the API. The pages ask who may do what before they write, so nobody asks again."""
        return Identity(self.name, (MASTERS, AUTHENTICATED) if self.administers else (AUTHENTICATED,)).let_in()

    @property
    def initials(self) -> str:
        return self.name[:2].upper()

    def sees(self, namespace: str) -> bool:
        """Whether they may know what is in `namespace` ("" for what belongs to none)."""
        return not namespace or self.namespaces is None or namespace in self.namespaces

    def may_edit(self, namespace: str = "") -> bool:
        """Whether they may change what is in `namespace`; without one, what belongs to none."""
        return self.administers or bool(namespace and self.namespaces and namespace in self.namespaces)

    def seen(self, rows: QuerySet[Row], field: str = "namespace") -> QuerySet[Row]:
        """Those of `rows` whose namespace (in `field`) they see."""
        return rows if self.namespaces is None else rows.filter(**{f"{field}__in": self.namespaces})


def person_of_user(user: Any) -> Person:
    """`user`: a signed-in Django user. Reads its groups."""
    if user.is_staff:
        return Person(user.get_username(), administers=True, namespaces=None)
    names = user.groups.filter(name__startswith=NAMESPACE_GROUP).values_list("name", flat=True)
    namespaces = frozenset(name.removeprefix(NAMESPACE_GROUP) for name in names)
    return Person(user.get_username(), administers=False, namespaces=namespaces or None)


def person_of(request: HttpRequest) -> Person:
    """Who sent the request; it was checked that they are signed in. One query for a request."""
    known: Person | None = getattr(request, "manciple_person", None)
    if known is None:
        known = person_of_user(request.user)
        request.manciple_person = known  # type: ignore[attr-defined]  # kept for the rest of the request
    return known


def demand_sight(request: HttpRequest, namespace: str, what: str) -> Person:
    """Raises: Http404 as for an object that does not exist, so that nothing is told about it."""
    person = person_of(request)
    if not person.sees(namespace):
        raise Http404(f"{what} does not exist.")
    return person


def demand_edit(request: HttpRequest, what: str, namespace: str = "") -> Person:
    """Raises: PermissionDenied saying who may. what: "change device classes"."""
    person = person_of(request)
    if not person.may_edit(namespace):
        who = f"administrators and members of the group {NAMESPACE_GROUP}{namespace}" if namespace else "administrators"
        raise PermissionDenied(f"Only {who} may {what}.")
    return person


def topics_seen_by(user: Any) -> Callable[[Iterable[str]], Iterable[str]]:
    """For the live line of one page: leaves out the topics that name what `user` may not see. Reads the database."""
    person = person_of_user(user)
    if person.namespaces is None:
        return lambda topics: topics
    return lambda topics: [topic for topic in topics if person.sees(_namespace_of(topic))]


def _namespace_of(topic: str) -> str:
    prefix = next((one for one in NAMESPACED_TOPICS if topic.startswith(one)), None)
    return topic.removeprefix(prefix).partition("/")[0] if prefix else ""
