"""Finding anything by a part of its name: `/find?q=`. Without a question, every place there is.

The best match comes first: what is called exactly so, then what begins so, then what holds it. `&go=1` opens a match
that is exact and the only one. Only what the person may see is found; of each kind the first few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Case, IntegerField, Model, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from claims.models import AllocatedDevice, Claim, Pod
from inventory.models import Device, DeviceClass, Node, PublishedSlice
from manciple.pages import links
from manciple.pages.people import Person, person_of
from manciple.pages.rendering import PageContext, render_page
from manciple.store import sql
from scheduling.pages.quotas.reading import may_read
from scheduling.resources import NAMESPACES, QUOTAS, TEMPLATES

#: Of each kind, the first so many.
SHOWN = 20
#: How well a name fits.
EXACT, PREFIX, PART = 0, 1, 2
#: Places that are not in the main navigation: (URL name, word, icon).
MORE_PLACES = (
    ("incidents", "Incidents", "i-alert"),
    ("templates", "Claim templates", "i-claim"),
    ("drivers", "Drivers", "i-dev"),
    ("namespaces", "Namespaces", "i-over"),
    ("events", "Events", "i-time"),
)

#: the text sought -> the first few objects of one kind, and whether there are more
Search = Callable[["Sought", Person], tuple[list["Hit"], bool]]


@dataclass(frozen=True, slots=True)
class Sought:
    """What was typed; with a slash, the place (a namespace, a pool) and the name."""

    text: str

    @property
    def parts(self) -> tuple[str, str]:
        """(place, name); the place is empty where there is no slash."""
        place, _, name = self.text.rpartition("/")
        return place.strip(), name.strip()

    def rank(self, name: str, place: str = "") -> int | None:
        """How well an object fits; None where it does not."""
        wanted_place, wanted = (part.lower() for part in self.parts)
        if wanted_place and wanted_place not in place.lower():
            return None
        found, exact_place = name.lower(), wanted_place in ("", place.lower())
        if found == wanted:
            return EXACT if exact_place else PREFIX
        if found.startswith(wanted):
            return PREFIX
        return PART if wanted in found else None


@dataclass(frozen=True, slots=True)
class Hit:
    """One object: what it is called (with the part that was sought), where it is, what tells it from its namesakes."""

    rank: int
    before: str
    match: str
    after: str
    url: str
    aside: str


@dataclass(frozen=True, slots=True)
class HitSection:
    """The objects of one kind. `more`: there are others."""

    title: str
    found: tuple[Hit, ...]
    more: bool

    @property
    def best(self) -> int:
        return min(one.rank for one in self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindContext(PageContext):
    """more: whether there are more of some kind than are shown."""

    text: str
    sections: Sequence[HitSection]
    total: int
    more: bool
    more_places: Sequence[tuple[str, str, str]] = MORE_PLACES


@login_required
@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """The page."""
    text = " ".join(request.GET.get("q", "").split())
    sections = search(text, person_of(request)) if text else []
    exact = [one for section in sections for one in section.found if one.rank == EXACT]
    if "go" in request.GET and len(exact) == 1:
        return redirect(exact[0].url)
    context = FindContext(
        place="find",
        revision=0,
        text=text,
        sections=sections,
        total=sum(len(section.found) for section in sections),
        more=any(section.more for section in sections),
    )
    return render_page(request, "finding/page.html", context)


def search(text: str, person: Person) -> list[HitSection]:
    """Everything that fits, by kind; the kind with the best match first."""
    sought = Sought(text)
    sections = []
    for title, search in KINDS:
        found, more = search(sought, person)
        if found:
            sections.append(HitSection(title, tuple(found), more))
    return sorted(sections, key=lambda section: section.best)


def _found(sought: Sought, rank: int, title: str, url: str, aside: str) -> Hit:
    wanted = sought.parts[1]
    at = title.lower().rfind(wanted.lower())
    if at < 0:
        return Hit(rank, title, "", "", url, aside)
    end = at + len(wanted)
    return Hit(rank, title[:at], title[at:end], title[end:], url, aside)


# Kinds with an index table ---------------------------------------------------------------------------------------


def _ranked(found: QuerySet[Any], name: str) -> QuerySet[Any]:
    """Those whose name holds `name`, the best first."""
    rank = Case(
        When(name__iexact=name, then=Value(EXACT)),
        When(name__istartswith=name, then=Value(PREFIX)),
        default=Value(PART),
        output_field=IntegerField(),
    )
    ranked: QuerySet[Any] = found.filter(name__icontains=name).annotate(rank=rank)
    return ranked


def _first(found: QuerySet[Any], *order: str) -> tuple[list[Any], bool]:
    taken = list(found.order_by("rank", *order)[: SHOWN + 1])
    return taken[:SHOWN], len(taken) > SHOWN


def _namespaced(model: type[Model], url: Callable[[str, str], str]) -> Search:
    def search(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
        place, name = sought.parts
        seen = person.seen(model._default_manager.all())
        taken, more = _first(
            _ranked(seen.filter(namespace__icontains=place) if place else seen, name), "name", "namespace"
        )
        return [_namespaced_row(sought, row, url) for row in taken], more

    return search


def _namespaced_row(sought: Sought, row: Any, url: Callable[[str, str], str]) -> Hit:
    rank = sought.rank(row.name, row.namespace)
    return _found(sought, PART if rank is None else rank, row.name, url(row.namespace, row.name), row.namespace)


def _cluster_wide(model: type[Model], url: Callable[[str], str]) -> Search:
    def search(sought: Sought, _person: Person) -> tuple[list[Hit], bool]:
        if sought.parts[0]:
            return [], False
        taken, more = _first(_ranked(model._default_manager.all(), sought.text), "name")
        return [_found(sought, row.rank, row.name, url(row.name), "") for row in taken], more

    return search


def _devices(sought: Sought, _person: Person) -> tuple[list[Hit], bool]:
    """By their own name, their pool's, or both as they are shown: `gpu-a17 / gpu-2`."""
    place, name = sought.parts
    driver, slash, pool = place.partition("/")
    if place:
        in_pool = Q(pool__icontains=place)
        if slash:
            in_pool |= Q(driver__iexact=driver.strip(), pool__icontains=pool.strip())
        fitting = Device.objects.filter(in_pool, name__istartswith=name)
        exact = Q(name__iexact=name) & (
            Q(pool__iexact=place) | (Q(driver__iexact=driver, pool__iexact=pool) if slash else Q())
        )
        prefix = Q(name__istartswith=name)
    else:
        fitting = Device.objects.filter(Q(name__icontains=name) | Q(pool__icontains=name))
        exact, prefix = Q(name__iexact=name), Q(name__istartswith=name) | Q(pool__istartswith=name)
    rank = Case(
        When(exact, then=Value(EXACT)),
        When(prefix, then=Value(PREFIX)),
        default=Value(PART),
        output_field=IntegerField(),
    )
    taken, more = _first(fitting.annotate(rank=rank), "pool", "slice_name", "position")
    return [_device(sought, row) for row in taken], more


def _device(sought: Sought, row: Any) -> Hit:
    return _found(
        sought,
        row.rank,
        f"{row.pool} / {row.name}",
        links.device_url(row.driver, row.pool, row.name),
        row.driver,
    )


# Kinds without one -----------------------------------------------------------------------------------------------


def _drivers(sought: Sought, _person: Person) -> tuple[list[Hit], bool]:
    published = PublishedSlice.objects.order_by().values_list("driver", flat=True).distinct()
    names = {*published, *AllocatedDevice.objects.order_by().values_list("driver", flat=True).distinct()}
    return _best(sought, ((name, "", links.driver_url(name)) for name in names))


def _namespaces(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    _, stored = sql.live(NAMESPACES, namespace="", limit=0, with_text=False)
    return _best(sought, ((row.name, "", links.namespace_url(row.name)) for row in stored if person.sees(row.name)))


def _templates(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    _, stored = sql.live(TEMPLATES, namespace="", limit=0, with_text=False)
    return _best(
        sought,
        (
            (row.name, row.namespace, links.template_url(row.namespace, row.name))
            for row in stored
            if person.sees(row.namespace)
        ),
    )


def _quotas(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    _, stored = sql.live(QUOTAS, namespace="", limit=0, with_text=False)
    return _best(
        sought,
        (
            (row.name, row.namespace, links.quota_url(row.namespace, row.name))
            for row in stored
            if may_read(person, row.namespace)
        ),
    )


def _best(sought: Sought, objects: Iterable[tuple[str, str, str]]) -> tuple[list[Hit], bool]:
    """objects: (name, namespace, address)."""
    fitting = [
        (rank, name, place, url) for name, place, url in objects if (rank := sought.rank(name, place)) is not None
    ]
    fitting.sort()
    return [_found(sought, rank, name, url, place) for rank, name, place, url in fitting[:SHOWN]], len(fitting) > SHOWN


#: (what the section is called, how its objects are found); of equals, in this order.
KINDS: Sequence[tuple[str, Search]] = (
    ("Pods", _namespaced(Pod, links.pod_url)),
    ("Claims", _namespaced(Claim, links.claim_url)),
    ("Claim templates", _templates),
    ("Nodes", _cluster_wide(Node, links.node_url)),
    ("Classes", _cluster_wide(DeviceClass, links.class_url)),
    ("Drivers", _drivers),
    ("Quotas", _quotas),
    ("Namespaces", _namespaces),
    ("Devices", _devices),
)
