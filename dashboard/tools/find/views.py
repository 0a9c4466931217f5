"""Finding anything, and doing things with it: `/find?q=`. Without a question, every place there is.

Things are found by a part of their name, by what devices have (UUIDs, serial numbers, PCI addresses), by taints, labels
and uids; a verb before a name leads to what it would do. The best match comes first: what is called exactly so, then
what begins so, then what holds it. `&go=1` opens a match that is exact and the only one. Only what the person may see
is found; of each kind the first few.

`/find/suggestions?q=` is the same for the box that is open on every page, with fewer of each kind. `/keys` lists the
keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from dashboard.kit.rendering import PageContext, TemplateContext, render_page
from dashboard.kit.rights import authorizes, signed_in
from dashboard.tools.find.keys import KEYS, KeyGroup
from dashboard.tools.find.names import KINDS, Findable
from dashboard.tools.find.places import PlaceToGo, gone_to, places
from dashboard.tools.find.sought import EXACT, HitSection, Sought
from dashboard.tools.find.values import search_attributes, search_labels, search_taints, search_uids
from dashboard.tools.find.verbs import done_with
from manciple.people import Person, person_of
from manciple.store.event_log import latest_revision

#: Suggestions of one kind, and of all.
FEW, ALL_SUGGESTED = 5, 30

#: By what things have, behind those that are called so.
BY_VALUE: Sequence[Findable] = (
    Findable("Device attributes", "i-dev", search_attributes),
    Findable("Taints", "i-alert", search_taints),
    Findable("Labels", "i-claim", search_labels),
    Findable("UIDs", "i-claim", search_uids),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindContext(PageContext):
    """more: whether there are more of some kind than are shown."""

    text: str
    sections: Sequence[HitSection]
    total: int
    more: bool
    pages: Sequence[PlaceToGo]


@authorizes
@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """The page."""
    person, text = person_of(request), _asked(request)
    sections = search(text, person) if text else []
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
        pages=places(person),
    )
    return render_page(request, "tools/find/page.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionsContext(TemplateContext):
    """more: whether the page of what is found has more."""

    text: str
    sections: Sequence[HitSection]
    more: bool
    pages: Sequence[PlaceToGo]


@authorizes
@require_safe
def suggest(request: HttpRequest) -> HttpResponse:
    """The part of a page that is shown while somebody types."""
    person, text = person_of(request), _asked(request)
    found = search(text, person) if text else []
    sections, left = list[HitSection](), ALL_SUGGESTED
    for section in found:
        shown = section.found[: min(FEW, left)] if section.title != "Do" else section.found
        left -= len(shown)
        if shown:
            sections.append(replace(section, found=shown))
    more = any(section.more for section in found) or sum(len(one.found) for one in found) > ALL_SUGGESTED - left
    context = SuggestionsContext(text=text, sections=sections, more=more, pages=places(person))
    return render_page(request, "tools/find/suggestions.html", context)


def _asked(request: HttpRequest) -> str:
    return " ".join(request.GET.get("q", "").split())


def search(text: str, person: Person) -> list[HitSection]:
    """Everything that fits, by kind; the kind with the best match first. What is called so is not told again for its
    labels."""
    sought, named = Sought(text), set[tuple[str, ...]]()
    sections = [*done_with(text, person), *gone_to(text, person)]
    for one in (*KINDS, *BY_VALUE):
        found, more = one.search(sought, person)
        found = [each for each in found if not each.object or each.object not in named]
        named |= {each.object for each in found if one.resource}
        if found:
            sections.append(HitSection(one.title, one.icon, tuple(found), more))
    return sorted(sections, key=lambda section: section.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysContext(PageContext):
    groups: Sequence[KeyGroup]


@signed_in
@require_safe
def show_keys(request: HttpRequest) -> HttpResponse:
    """What every key does."""
    return render_page(
        request, "tools/find/keys.html", KeysContext(place="keys", revision=latest_revision(), groups=KEYS)
    )
