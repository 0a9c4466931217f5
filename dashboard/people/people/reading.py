"""Reads people: two queries for a page of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from dashboard.kit import links
from dashboard.kit.lists import ListQuery, PageOfRows, parameter
from manciple.access.authentication import tokens
from manciple.access.models import Token

#: People on a page.
SHOWN = 100
ADMINISTRATORS, CLOSED = "Administrators", "Closed accounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleQuery(ListQuery):
    """who: the one that is shown above the list."""

    text: str = parameter("q")
    kind: str = parameter("kind", known=(ADMINISTRATORS, CLOSED))
    group: str = parameter("group")
    who: str = parameter("who", selects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRow:
    """One person in the list. user: a user of Django's, its groups fetched; tokens: of theirs and of their name, that
    have not expired."""

    user: Any
    tokens: int

    @property
    def name(self) -> str:
        return str(self.user.get_username())

    @property
    def groups(self) -> list[str]:
        return sorted(group.name for group in self.user.groups.all())

    @property
    def seen(self) -> str:
        return self.user.last_login.isoformat(timespec="seconds") if self.user.last_login else ""

    @property
    def url(self) -> str:
        return links.person_url(self.name)


#: `sort` in the address -> the order
_ORDERS = {
    "name": F("username").asc(),
    "-name": F("username").desc(),
    "seen": F("last_login").asc(nulls_first=True),
    "-seen": F("last_login").desc(nulls_last=True),
    "tokens": F("token_count").asc(),
    "-tokens": F("token_count").desc(),
}


def find_people(query: PeopleQuery) -> tuple[PageOfRows, list[PersonRow], Callable[[], list[PersonRow]]]:
    """A page of those whom the query lets through, and how all of them are read."""
    found = _filtered(query)
    page = PageOfRows(total=found.count(), size=SHOWN, asked=query.page)
    theirs = Q(person=OuterRef("pk")) | Q(person=None, name=OuterRef("username"))
    together = tokens.live().filter(theirs).annotate(all=Value(1)).values("all")
    count = Subquery(together.annotate(count=Count("pk")).values("count"))
    counted = found.annotate(token_count=Coalesce(count, 0)).prefetch_related("groups")
    order = _ORDERS.get(query.sort, _ORDERS["name"])
    ordered = counted.order_by(order, "pk")
    return page, _rows(ordered[page.rows]), lambda: _rows(ordered)


def _rows(found: QuerySet[Any]) -> list[PersonRow]:
    return [PersonRow(user=one, tokens=one.token_count) for one in found]


def _filtered(query: PeopleQuery) -> QuerySet[Any]:
    found: QuerySet[Any] = get_user_model()._default_manager.filter(username__icontains=query.text)
    if query.group:
        found = found.filter(groups__name=query.group)
    if query.kind == ADMINISTRATORS:
        return found.filter(is_staff=True)
    return found.filter(is_active=False) if query.kind == CLOSED else found


def all_groups() -> list[str]:
    """Those that somebody is in."""
    found = Group.objects.filter(user__isnull=False).distinct().order_by("name")
    return list(found.values_list("name", flat=True))


def read_person(name: str) -> PersonRow | None:
    found = get_user_model()._default_manager.filter(username=name).prefetch_related("groups").first()
    return PersonRow(user=found, tokens=tokens_of(found).count()) if found else None


def tokens_of(user: Any) -> QuerySet[Token]:
    """Theirs and those of their name that have not expired, the newest first."""
    return (tokens.of_person(user) & tokens.live()).order_by("-created")
