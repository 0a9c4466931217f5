"""The page "not found": what ended under the name in the address, and what is called almost like it.

Stale links lead here: to a pod that was deleted, or to a name with a typing error. It offers only what the person sees,
and says the same of a namespace that they do not see as of one that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from django.http import HttpRequest, HttpResponse
from django.views import defaults

from claims import endings
from dashboard.kit.rendering import TemplateContext, render_page
from dashboard.tools.find import AUTOSCALERS, BY_RESOURCE, DEVICE, NOUNS, Hit, Search, Sought, search_drivers
from dashboard.workloads import ended
from dashboard.workloads.ended import EndingLine
from dashboard.workloads.owners import WORDS
from manciple.people import Person, person_of
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, TAINT_RULES, TEMPLATES

#: The first part of an address -> what the page is of.
RESOURCES = {
    "pods": PODS,
    "claims": CLAIMS,
    "templates": TEMPLATES,
    "quotas": QUOTAS,
    "nodes": NODES,
    "classes": CLASSES,
    "namespaces": NAMESPACES,
    "taint-rules": TAINT_RULES,
    "autoscalers": AUTOSCALERS,
    "devices": DEVICE,
    **{f"workloads/{resource.partition('.')[0]}": resource for resource in WORDS},
}
#: The same -> what one is called, and what finds near names, where Find has no resource for it.
OTHERS: Mapping[str, tuple[str, Search | None]] = {
    "drivers": ("driver", search_drivers),
    "incidents": ("incident", None),
    "roles": ("role", None),
    "views": ("saved view", None),
}
#: Near names that are offered, how alike they have to be (0 to 1), and the shortest part of a name that is searched.
OFFERED, ALIKE, SHORTEST = 5, 0.6, 2
#: Characters of an address that are taken for a name.
LONGEST = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingContext(TemplateContext):
    """what: `pod team-a/web`, "" where the address names nothing. gone: records of what ended under this name. near:
    what is called almost so. kept: how long such records are kept, "" where there are none of its kind.
    """

    what: str
    name: str
    gone: Sequence[EndingLine]
    near: Sequence[Hit]
    kept: str


def show_missing(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler404`."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return defaults.page_not_found(request, exception)
    person, named = person_of(request), request.resolver_match.kwargs if request.resolver_match else {}
    parts = request.path.strip("/").split("/")
    resource = RESOURCES.get("/".join(parts[:2]), RESOURCES.get(parts[0], ""))
    namespace, name = str(named.get("namespace", "")), str(named.get("name", ""))[:LONGEST]
    if parts[0] == "yaml" and named.get("resource") in BY_RESOURCE:
        resource, namespace = named["resource"], request.GET.get("ns", "")
    if "device" in named:
        name = f"{named['pool']}/{named['device']}"[:LONGEST]
    has_records = resource in ended.NOUNS and bool(name)
    gone: list[EndingLine] = []
    if has_records and person.sees(namespace):
        endings.note_authors()
        gone = ended.called(person, resource, namespace, name)
    noun, search = OTHERS.get(parts[0], ("", None))
    if resource:
        noun, search = NOUNS.get(resource) or WORDS[resource], BY_RESOURCE[resource].search
    context = MissingContext(
        what=f"{noun} {f'{namespace}/' if namespace else ''}{name}" if noun and name else "",
        name=name or parts[-1][:LONGEST],
        gone=gone,
        near=near(person, search, name) if search and name else (),
        kept=ended.KEPT if has_records else "",
    )
    return render_page(request, "404.html", context, status=404)


def near(person: Person, search: Search, name: str) -> list[Hit]:
    """What is called almost so, the most alike first: in any namespace that they see."""
    found = dict[str, Hit]()
    for text in _parts(name):
        hits, _ = search(Sought(text), person)
        found.update((hit.url, hit) for hit in hits if hit.url not in found)
        if any(_alike(name, hit) >= ALIKE for hit in found.values()):
            break
    alike = sorted(((_alike(name, hit), hit) for hit in found.values()), key=lambda one: (-one[0], one[1].title))
    return [hit for ratio, hit in alike if ratio >= ALIKE][:OFFERED]


def _alike(name: str, hit: Hit) -> float:
    return SequenceMatcher(None, name.lower(), hit.title.lower()).ratio()


def _parts(name: str) -> list[str]:
    """What near names may contain: the name, what its generated ending was added to, and its halves and ends."""
    stem = name.rpartition("-")[0]
    middle = len(name) // 2
    ends = (name[: SHORTEST + 1], name[-SHORTEST - 1 :], name[:SHORTEST], name[-SHORTEST:])
    parts = (name, stem, stem.rpartition("-")[0], name[:middle], name[middle:], *ends)
    return [part for part in dict.fromkeys(part.strip("-.") for part in parts) if len(part) >= SHORTEST]
