"""Finding anything, and doing things with it: `/find?q=`. Without a question, the places that one can go to.

Things are found by a part of their name, by what devices have (UUIDs, serial numbers, PCI addresses), by taints, labels
and uids. Each of several words has to stand in something that the thing is called or has: `gpu a17`, `job train`. A
verb before or behind a name leads to the page that says what it would do: `scale deployment web`, `logs of pod x`. Each
kind has a search, which returns its first few hits, and restricts them to what the person may see. An exact name comes
first, then names that begin so, then those that contain it. `&go=1` opens the only exact match.

`/find/suggestions?q=` is the same for the box that every page opens, with fewer of each kind. `/keys` lists the keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from operator import and_, or_
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.db.models import Case, Exists, IntegerField, Model, OuterRef, Q, QuerySet, Subquery, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.published import CandidateDevice, DeviceSlice, address_of
from claims.models import AllocatedDevice, Claim, Ending, Pod, Quota, QuotaLimit
from dashboard.kit.guards import authorizes, signed_in
from dashboard.kit.navigation import MORE, OWN, PLACES, places_of
from dashboard.kit.rendering import PageContext, TemplateContext, ValueContext, render_page
from dashboard.models import SavedView
from dashboard.templatetags.kit import device_url, driver_url, manual_url, object_url, page_url, person_url, yaml_url
from dashboard.tools import manual
from dashboard.workloads.ended import EndingLine
from dashboard.workloads.owners import WORDS
from dashboard.workloads.workloads.actions import ACTS
from inventory import models
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule
from inventory.kinds.nodes import Node, Taint
from manciple.access.kinds.roles import CLUSTER_ROLE
from manciple.people import Person, person_of
from manciple.store import finding, sql
from manciple.store.event_log import latest_revision
from manciple.store.objects import listed
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, SLICES, TAINT_RULES, TEMPLATES
from networking.kinds.services import SERVICE
from workloads.kinds.horizontal_pod_autoscalers import HORIZONTAL_POD_AUTOSCALER
from workloads.kinds.replica_sets import REPLICA_SET
from workloads.kinds.summaries import SUMMARIES
from workloads.models import Autoscaler, Workload

AUTOSCALERS, SERVICES = HORIZONTAL_POD_AUTOSCALER.resource, SERVICE.resource
#: Hits of one kind on the page; in the box, of one kind and of all.
SHOWN, FEW, ALL_SUGGESTED = 20, 5, 30
#: Shorter texts are parts of too many values, labels and taints.
SHORTEST = 2
#: How well a name fits.
EXACT, PREFIX, PART = 0, 1, 2

#: Records of what ended that are searched: the latest.
MOST_ENDINGS = 50_000

#: (resource, namespace, name) of an object of the API; or DEVICE and the device's key.
Thing = tuple[str, ...]
DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Sought:
    """What was typed; with a slash, the place (a namespace, a pool) and the name."""

    text: str

    @property
    def parts(self) -> tuple[str, str]:
        """(place, name); the place is empty without a slash."""
        place, _, name = self.text.rpartition("/")
        return place.strip(), name.strip()

    @property
    def words(self) -> list[str]:
        """Several that may stand in different fields; none of a text that is one, or names a place."""
        words = self.text.lower().split()
        return words if len(words) > 1 and "/" not in self.text else []

    def fits_in(self, *fields: str) -> Q:
        """Rows in which the name is a part of one of these columns, or each word of any."""
        parts = self.words or [self.text.lower()]
        return reduce(and_, (reduce(or_, (Q(**{f"{one}__icontains": part}) for one in fields)) for part in parts))

    def rank(self, name: str, place: str = "") -> int | None:
        """How well an object fits; None if it does not."""
        if self.words and self.text.lower() not in name.lower():
            if re.findall(r"[^\W_]+", name.lower()) == self.words:  # "gpu a17" is the node gpu-a17
                return EXACT
            both = f"{place} {name}".lower()
            return PART if all(word in both for word in self.words) else None
        wanted_place, wanted = (part.lower() for part in self.parts)
        if wanted_place and wanted_place not in place.lower():
            return None
        if name.lower() == wanted:
            return EXACT if wanted_place in ("", place.lower()) else PREFIX
        if name.lower().startswith(wanted):
            return PREFIX
        return PART if wanted in name.lower() else None


@dataclass(frozen=True, slots=True)
class Hit:
    """Its title in three parts, the middle one as it was typed; aside: where it is, and what distinguishes it from its
    namesakes.
    """

    rank: int
    before: str
    match: str
    after: str
    url: str
    aside: str
    object: Thing = ()

    @property
    def title(self) -> str:
        return f"{self.before}{self.match}{self.after}"


@dataclass(frozen=True, slots=True)
class HitSection:
    """The hits of one kind. more: there are others."""

    title: str
    icon: str
    found: tuple[Hit, ...]
    more: bool

    @property
    def best(self) -> int:
        return min(hit.rank for hit in self.found)

    @property
    def left_out(self) -> str:
        return f"the first {len(self.found)}; type more to narrow it down" if self.more else ""


def hit(text: str, rank: int, title: str, *, url: str, aside: str, thing: Thing = ()) -> Hit:
    """text: what was typed; its last occurrence in the title is marked, or else that of one of its words."""
    marked = next((one for one in (text, *reversed(text.split())) if one.lower() in title.lower()), "")
    at = title.lower().rfind(marked.lower())
    parts = _parts(title, at, marked) if marked else (title, "", "")
    return Hit(rank, *parts, url, aside, thing)


def _parts(title: str, at: int, text: str) -> tuple[str, str, str]:
    """Of a title that has the text at this place."""
    end = at + len(text)
    return title[:at], title[at:end], title[end:]


def rank_of(text: str, value: str) -> int:
    """How well a value fits that contains the text."""
    text, value = text.lower(), value.lower()
    return EXACT if text == value else PREFIX if value.startswith(text) else PART


#: (the first few hits, whether there are more)
Hits = tuple[list[Hit], bool]
Search = Callable[[Sought, Person], Hits]


def best(hits: Iterable[Hit]) -> Hits:
    ordered = sorted(hits, key=lambda one: (one.rank, one.title, one.aside))
    return ordered[:SHOWN], len(ordered) > SHOWN


# By name -------------------------------------------------------------------------------------------------------------


def _first(rows: QuerySet[Any], exact: Q, prefix: Q, *order: str) -> tuple[list[Any], bool]:
    rank = Case(
        When(exact, then=Value(EXACT)),
        When(prefix, then=Value(PREFIX)),
        default=Value(PART),
        output_field=IntegerField(),
    )
    taken = list(rows.annotate(rank=rank).order_by("rank", *order)[: SHOWN + 1])
    return taken[:SHOWN], len(taken) > SHOWN


def _called(rows: QuerySet[Any], sought: Sought, fields: Sequence[str], *order: str) -> tuple[list[Any], bool]:
    """fields: those in which its words may stand, where there are several."""
    name = sought.parts[1]
    fitting = Q(name__icontains=name)
    if sought.words:
        fitting |= sought.fits_in(*fields)
    return _first(rows.filter(fitting), Q(name__iexact=name), Q(name__istartswith=name), *order)


def _namespaced(model: type[Model], resource: str) -> Search:
    def search(sought: Sought, person: Person) -> Hits:
        place, rows = sought.parts[0], model._default_manager  # type: Any, Any
        seen = rows.restrict(person)
        within = seen.filter(namespace__icontains=place) if place else seen
        taken, more = _called(within, sought, ("name", "namespace"), "name", "namespace")
        return list(_objects(sought, resource, taken)), more

    return search


def _cluster_wide(model: type[Model], resource: str, *fields: str) -> Search:
    def search(sought: Sought, person: Person) -> Hits:
        if sought.parts[0] or not person.may("list", resource):
            return [], False
        taken, more = _called(model._default_manager.all(), sought, ("name", *fields), "name")
        return list(_objects(sought, resource, taken)), more

    return search


def _objects(sought: Sought, resource: str, rows: Iterable[Any]) -> Iterator[Hit]:
    """Those whose names fit."""
    for row in rows:
        name, namespace = row.name, getattr(row, "namespace", "")
        rank = sought.rank(name, namespace)
        if rank is None and sought.words and hasattr(row, "rank"):
            rank = PART  # the database found the words in other columns
        if rank is not None:
            thing = (resource, namespace, name)
            url = object_url(*thing) or yaml_url(*thing)
            yield hit(sought.parts[1], rank, name, url=url, aside=namespace, thing=thing)


def _stored(resource: str, may: Callable[[Person, str, str], bool]) -> Search:
    """Of a kind without an index table: all names are read. may: see an object, (person, namespace, name)."""

    def search(sought: Sought, person: Person) -> Hits:
        _, stored = sql.live(resource, namespace="", limit=0, with_text=False)
        return best(_objects(sought, resource, (row for row in stored if may(person, row.namespace, row.name))))

    return search


def search_devices(sought: Sought, person: Person) -> Hits:
    """By their own name, their pool's, or both as they are shown (`gpu-a17 / gpu-2`); several words by all of it."""
    if not person.may("list", SLICES):
        return [], False
    if sought.words:
        return best(_devices_with(sought))
    place, name = sought.parts
    driver, slash, pool = place.partition("/")
    if place:
        in_pool, called = Q(pool__icontains=place), Q(pool__iexact=place)
        if slash:
            in_pool |= Q(driver__iexact=driver.strip(), pool__icontains=pool.strip())
            called |= Q(driver__iexact=driver, pool__iexact=pool)
        rows = models.Device.objects.filter(in_pool, name__istartswith=name)
        exact, prefix = Q(name__iexact=name) & called, Q(name__istartswith=name)
    else:
        rows = models.Device.objects.filter(Q(name__icontains=name) | Q(pool__icontains=name))
        exact, prefix = Q(name__iexact=name), Q(name__istartswith=name) | Q(pool__istartswith=name)
    hits = list[Hit]()
    taken, more = _first(rows, exact, prefix, "pool", "slice_name", "position")
    for row in taken:
        key = (row.driver, row.pool, row.name, row.node_name)
        title, url = f"{row.pool} / {row.name}", device_url(*key)
        hits.append(hit(name, row.rank, title, url=url, aside=row.driver, thing=(DEVICE, *key)))
    return hits, more


def _devices_with(sought: Sought) -> Iterator[Hit]:
    """Devices in whose names or values each word stands."""
    for published in read_devices().published.slices:
        place = f"{published.pool.driver} {published.pool.name} {published.node}".lower()
        common = f"{place}\n{_text_of(published)}"
        left = [word for word in sought.words if word not in place]
        for device in published.candidates:
            own = [word for word in left if word not in device.name]
            if any(word not in common for word in own):
                continue
            values = [value.lower() for _, value in device.facts] if own else []
            if all(any(word in value for value in values) for word in own):
                title, url = f"{device.pool} / {device.name}", device_url(*device.key)
                rank = PART if own else PREFIX
                yield hit(sought.text, rank, title, url=url, aside=device.driver, thing=(DEVICE, *device.key))


def search_workloads(sought: Sought, person: Person, *, resource: str = "") -> Hits:
    """resource: "" for all kinds; a Deployment then stands for its ReplicaSets."""
    place, name = sought.parts
    seen = Workload.objects.restrict(person)
    if resource:
        seen = seen.filter(resource=resource)
    else:
        seen = seen.exclude(~Q(controller_uid="") & Q(resource=REPLICA_SET.resource))
    within = seen.filter(namespace__icontains=place) if place else seen
    taken, more = _called(within, sought, ("name", "namespace", "resource"), "name", "namespace", "resource")
    hits = []
    for row in taken:
        rank = sought.rank(row.name, f"{row.namespace} {WORDS[row.resource]}")
        if rank is not None:
            thing = (row.resource, row.namespace, row.name)
            aside = f"{WORDS[row.resource]} in {row.namespace}"
            hits.append(hit(name, rank, row.name, url=row.get_absolute_url(), aside=aside, thing=thing))
    return hits, more


def search_quotas(sought: Sought, person: Person) -> Hits:
    """By name, by namespace, or by what they limit."""
    place, name = sought.parts
    rows: Any = Quota.objects.restrict(person)
    within = rows.filter(namespace__icontains=place) if place else rows
    limits = QuotaLimit.objects.filter(quota=OuterRef("pk"))
    fitting = reduce(
        and_,
        (
            Q(name__icontains=word) | Q(namespace__icontains=word) | Exists(limits.filter(resource__icontains=word))
            for word in sought.words or [name]
        ),
    )
    exact, prefix = Q(name__iexact=name), Q(name__istartswith=name)
    taken, more = _first(within.filter(fitting), exact, prefix, "name", "namespace")
    hits = []
    for row in taken:
        thing = (QUOTAS, row.namespace, row.name)
        hits.append(hit(name, row.rank, row.name, url=object_url(*thing), aside=row.namespace, thing=thing))
    return hits, more


def search_people(sought: Sought, person: Person) -> Hits:
    """By name or group; administrators alone see others."""
    if not person.administers or sought.parts[0]:
        return [], False
    rows = get_user_model()._default_manager.filter(sought.fits_in("username", "groups__name")).distinct()
    exact, prefix = Q(username__iexact=sought.text), Q(username__istartswith=sought.text)
    taken, more = _first(rows.prefetch_related("groups"), exact, prefix, "username")
    return [
        hit(
            sought.text,
            row.rank,
            row.get_username(),
            url=person_url(row.get_username()),
            aside=", ".join(sorted(group.name for group in row.groups.all())),
        )
        for row in taken
    ], more


def search_drivers(sought: Sought, person: Person) -> Hits:
    if not person.may("list", SLICES):
        return [], False
    published = models.PublishedSlice.objects.order_by().values_list("driver", flat=True).distinct()
    names = {*published, *AllocatedDevice.objects.order_by().values_list("driver", flat=True).distinct()}
    ranked = [(rank, name) for name in names if (rank := sought.rank(name)) is not None]
    return best(hit(sought.parts[1], rank, name, url=driver_url(name), aside="") for rank, name in ranked)


def search_ended(sought: Sought, person: Person) -> Hits:
    """Pods and claims that were deleted, the latest first; behind those of the name that exist."""
    place, name = sought.parts
    newest = Subquery(Ending.objects.order_by("-pk").values("pk")[:1])
    rows = Ending.objects.restrict(person).filter(pk__gt=newest - MOST_ENDINGS, name__icontains=name)
    if place:
        rows = rows.filter(namespace__icontains=place)
    hits = list[Hit]()
    taken, more = _first(rows, Q(name__iexact=name), Q(name__istartswith=name), "-pk")
    for row in taken:
        line = EndingLine(row)
        aside = f"{row.namespace}, {line.noun.lower()}, {row.ended_at:%Y-%m-%d %H:%M} UTC"
        hits.append(hit(name, max(row.rank, PREFIX), row.name, url=line.url, aside=aside))
    return hits, more


def search_saved_views(sought: Sought, person: Person) -> Hits:
    """A person's own, and what others share."""
    views = SavedView.objects.filter(Q(owner__username=person.name) | Q(shared=True), name__icontains=sought.text)
    hits = list[Hit]()
    for view in views:
        page = view.path.strip("/")
        if (rank := sought.rank(view.name, page)) is not None:
            hits.append(hit(sought.parts[1], rank, view.name, url=page_url("view", view.id), aside=page))
    return best(hits)


def search_manual(sought: Sought, _person: Person) -> Hits:
    """Its pages, by words of their titles."""
    titles = {name: manual.title_of(name) for name in manual.NAMES}
    ranked = [(rank, name) for name in titles if (rank := sought.rank(titles[name], name)) is not None]
    return best(hit(sought.text, rank, titles[name], url=manual_url(name), aside="") for rank, name in ranked)


# By what things have -------------------------------------------------------------------------------------------------


def search_attributes(sought: Sought, person: Person) -> Hits:
    """Values of attributes and capacities. One that a single device has leads to it, others to the grid."""
    text = sought.text.lower()
    if len(text) < SHORTEST or not person.may("list", SLICES):
        return [], False
    holders: dict[tuple[str, str], list[CandidateDevice]] = {}
    for published in read_devices().published.slices:
        for device in published.candidates if text in _text_of(published) else ():
            for name, value in device.facts:
                if text in value.lower():
                    holders.setdefault((name, value), []).append(device)
    hits = list[Hit]()
    for (name, value), devices in holders.items():
        url, thing, holder = _device_or(devices, "devices", attr=f"{name}:{value}")
        aside = f"{name} of {holder}"
        hits.append(hit(sought.text, rank_of(sought.text, value), value, url=url, aside=aside, thing=thing))
    return best(hits)


def _text_of(published: DeviceSlice) -> str:
    """Every value that its devices have, a line each, in lower case; kept for as long as the slice is published."""
    text: str | None = published.memo.get(_text_of)
    if text is None:
        values = dict.fromkeys(value.lower() for device in published.candidates for _, value in device.facts)
        text = published.memo[_text_of] = "\n".join(values)
    return text


def _device_or(devices: Sequence[CandidateDevice], route: str, **query: str) -> tuple[str, Thing, str]:
    """(address, thing, in words): of the only device, or of the page that lists several."""
    if len(devices) == 1:
        key = devices[0].key
        return device_url(*key), (DEVICE, *key), devices[0].title
    return f"{reverse(route)}?{urlencode(query)}", (), f"{len(devices):,} devices"


def search_taints(sought: Sought, person: Person) -> Hits:
    """Taints of devices, the rules that add some, and taints of nodes, by key, value or effect."""
    text, hits = sought.text.lower(), list[Hit]()
    if len(text) < SHORTEST:
        return [], False
    if person.may("list", SLICES):
        tainted: dict[str, list[CandidateDevice]] = {}
        for device in read_devices().candidates:
            for taint in map(_taint, device.device.taints):
                if text in taint.lower():
                    tainted.setdefault(taint, []).append(device)
        for taint, devices in tainted.items():
            url, thing, holder = _device_or(devices, "incidents", cause=taint.rpartition(":")[0])
            hits.append(hit(sought.text, PART, taint, url=url, aside=f"on {holder}", thing=thing))
    taints = list[tuple[str, str, str, DeviceTaint | Taint]]()
    if person.may("list", TAINT_RULES):
        rules = listed(TAINT_RULES, DeviceTaintRule)[1]
        taints += [(TAINT_RULES, rule.metadata.name, "by rule", rule.spec.taint) for rule in rules]
    if person.may("list", NODES):
        nodes = listed(NODES, Node)[1]
        taints += [(NODES, node.metadata.name, "on node", taint) for node in nodes for taint in node.spec.taints]
    for resource, name, where, written in taints:
        if text in (taint := _taint(written)).lower():
            url, thing = object_url(resource, "", name), (resource, "", name)
            hits.append(hit(sought.text, PART, taint, url=url, aside=f"{where} {name}", thing=thing))
    return best(hits)


def _taint(taint: DeviceTaint | Taint) -> str:
    """As `kubectl taint` writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


#: Resources whose objects have pages, and what one is called.
NOUNS = {
    PODS: "pod",
    CLAIMS: "claim",
    TEMPLATES: "template",
    NODES: "node",
    CLASSES: "class",
    NAMESPACES: "namespace",
    QUOTAS: "quota",
    AUTOSCALERS: "autoscaler",
    SERVICES: "service",
    TAINT_RULES: "taint rule",
    DEVICE: "device",
}
#: What the beginning of a uid looks like.
_UID = re.compile(r"^[0-9a-f]{6,8}(-[0-9a-f-]*)?$")


def search_labels(sought: Sought, person: Person) -> Hits:
    """Objects by a part of one of their labels."""
    text = sought.text
    if len(text) < SHORTEST:
        return [], False

    def label(row: finding.FoundObject) -> str:
        labels = (f"{key}={value}" for key, value in row.labels.items())
        return next(label for label in labels if text.lower() in label.lower())

    rows = finding.labelled(text, _open_to(person), namespaces=person.namespaces, limit=SHOWN + 1)
    return _by_value(text, rows, person, value=label, rank=lambda _: PART)


def search_uids(sought: Sought, person: Person) -> Hits:
    """Objects by the beginning of their uid."""
    text = sought.text.lower()
    if not _UID.match(text):
        return [], False
    rows = finding.with_uid(text, _open_to(person), namespaces=person.namespaces, limit=SHOWN + 1)
    return _by_value(text, rows, person, value=lambda row: row.uid, rank=lambda uid: rank_of(text, uid))


def _by_value(
    text: str,
    rows: Iterable[finding.FoundObject],
    person: Person,
    *,
    value: Callable[[finding.FoundObject], str],
    rank: Callable[[str], int],
) -> Hits:
    hits = list[Hit]()
    for row in rows:
        # The name of a namespace is visible to people who see what is in it.
        if person.sees(row.name if row.resource == NAMESPACES else row.namespace):
            title, thing = value(row), (row.resource, row.namespace, row.name)
            aside = f"{NOUNS[row.resource].capitalize()} {f'{row.namespace}/' if row.namespace else ''}{row.name}"
            hits.append(hit(text, rank(title), title, url=object_url(*thing), aside=aside, thing=thing))
    return hits[:SHOWN], len(hits) > SHOWN


def _open_to(person: Person) -> list[str]:
    """Resources of which the person sees objects; those in namespaces are restricted by these."""
    return [one for one in NOUNS if one in (PODS, CLAIMS, TEMPLATES) or (one != DEVICE and person.may("list", one))]


CLUSTER_ROLES = CLUSTER_ROLE.resource


@dataclass(frozen=True, slots=True)
class Findable:
    """Things of one kind. title: of their section; resource: of objects of the API, or DEVICE."""

    title: str
    icon: str
    search: Search
    resource: str = ""


#: Equally good kinds come in this order; by what things have, after those that are called so.
KINDS: Sequence[Findable] = (
    Findable("Pods", "i-pod", _namespaced(Pod, PODS), PODS),
    Findable("Workloads", "i-work", search_workloads),
    Findable("Autoscalers", "i-work", _namespaced(Autoscaler, AUTOSCALERS), AUTOSCALERS),
    Findable("Services", "i-work", _stored(SERVICES, lambda person, at, _: person.may("list", SERVICES, at)), SERVICES),
    Findable("Claims", "i-claim", _namespaced(Claim, CLAIMS), CLAIMS),
    Findable("Nodes", "i-node", _cluster_wide(models.Node, NODES, "searched"), NODES),
    Findable("Classes", "i-class", _cluster_wide(models.DeviceClass, CLASSES), CLASSES),
    Findable("Claim templates", "i-claim", _stored(TEMPLATES, lambda person, at, _: person.sees(at)), TEMPLATES),
    Findable("Drivers", "i-dev", search_drivers),
    Findable("Quotas", "i-quota", search_quotas, QUOTAS),
    Findable("Namespaces", "i-over", _stored(NAMESPACES, lambda person, _, name: person.sees(name)), NAMESPACES),
    Findable(
        "Taint rules", "i-alert", _stored(TAINT_RULES, lambda person, *_: person.may("list", TAINT_RULES)), TAINT_RULES
    ),
    Findable("Devices", "i-dev", search_devices, DEVICE),
    Findable("What ended", "i-time", search_ended),
    Findable("People", "i-person", search_people),
    Findable("Roles", "i-person", _stored(CLUSTER_ROLES, lambda person, *_: person.may("list", CLUSTER_ROLES))),
    Findable("Manual", "i-file", search_manual),
    Findable("Saved views", "i-view", search_saved_views),
    Findable("Device attributes", "i-dev", search_attributes),
    Findable("Taints", "i-alert", search_taints),
    Findable("Labels", "i-claim", search_labels),
    Findable("UIDs", "i-claim", search_uids),
)
BY_RESOURCE: Mapping[str, Findable] = {
    **{one: Findable(WORDS[one], "i-work", partial(search_workloads, resource=one), one) for one in SUMMARIES},
    **{kind.resource: kind for kind in KINDS if kind.resource},
}


@cache
def _named_by() -> Mapping[str, Collection[str]]:
    """What people call kinds, such as `job`, `jobs`, `deploy` -> resources."""
    found: dict[str, set[str]] = {}
    for resource in BY_RESOURCE:
        kind = registry.by_resource(resource) if resource != DEVICE else None
        names = [NOUNS.get(resource) or WORDS[resource]]
        if kind is not None:
            names += [kind.kind, kind.plural, *kind.short_names]
        for name in names:
            found.setdefault(name.lower(), set()).add(resource)
            found.setdefault(f"{name.lower()}s", set()).add(resource)
    return found


#: (address, word, icon) of a page
Place = tuple[str, str, str]


def places(person: Person) -> list[Place]:
    """The navigation, "More", and the account's menu."""
    return [(reverse(name), word, icon) for name, word, icon in places_of([*PLACES, *MORE, *OWN], person)]


def gone_to(text: str, person: Person) -> Iterator[HitSection]:
    """Places of which a word begins so."""
    wanted, hits = text.lower(), list[Hit]()
    for url, title, _ in places(person):
        word = title.lower()
        starts = (at for at in range(len(word)) if word.startswith(wanted, at) and (not at or word[at - 1] == " "))
        if (at := next(starts, None)) is not None:
            rank = EXACT if word == wanted else PREFIX
            hits.append(Hit(rank, *_parts(title, at, wanted), url, ""))
    if hits:
        yield HitSection("Go to", "i-chev", tuple(hits), more=False)


# Things to do --------------------------------------------------------------------------------------------------------

#: Things of one kind that a verb is offered for.
OFFERED = 5
#: Letters of a verb that are enough to mean it.
ENOUGH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVerb:
    """Something to do with an object: `drain gpu-a17`, `delete vision/clip`. Leads to the page that says what it would
    do. on: the resources that have it; verb: the right that it needs, "" to see is enough; rights: resources, of one of
    which it needs that, "" for the object's own; asks: whether that page asks something first ("Drain gpu-a17…").
    """

    word: str
    on: Sequence[str]
    url: Callable[[Thing], str]
    verb: str = ""
    rights: Sequence[str] = ("",)
    asks: bool = True

    def may(self, person: Person, resource: str, namespace: str = "") -> bool:
        if not self.verb:
            return True
        own = TAINT_RULES if resource == DEVICE else resource
        may = partial(person.may, namespace=namespace) if namespace else person.may_somewhere
        return any(may(self.verb, one or own) for one in self.rights)


def _page(suffix: str) -> Callable[[Thing], str]:
    return lambda thing: f"{object_url(*thing)}{suffix}"


def _act(act: str) -> Callable[[Thing], str]:
    """Of a node, or of a device."""

    def url(thing: Thing) -> str:
        if thing[0] != DEVICE:
            return f"{object_url(*thing)}?change={act}"
        _, driver, pool, name, node = thing
        at = urlencode({"at": address_of((driver, pool, name, node))})
        return f"{page_url('devices-act', act)}?{at}"

    return url


def _with_pod(route: str, parameter: str) -> Callable[[Thing], str]:
    return lambda pod: f"{reverse(route)}?{urlencode({parameter: '/'.join(pod[1:])}, safe='/')}"


def _workload_verb(word: str, act: str) -> ObjectVerb:
    found = ACTS[act]
    on = [resource for resource in SUMMARIES if WORDS[resource] in found.kinds]
    return ObjectVerb(word=word, on=on, url=_page(f"/{act}"), verb=found.verb, rights=found.resources)


#: What is typed, and the act on workloads that it means.
_OF_WORKLOADS = (
    *((act, act) for act in ("scale", "extend", "restart", "pause", "resume", "suspend", "stop", "rerun", "run")),
    ("suspend", "stop"),
)
_PAGES = (*SUMMARIES, AUTOSCALERS, PODS, CLAIMS, TEMPLATES, NODES, CLASSES, QUOTAS, NAMESPACES, TAINT_RULES)
VERBS: Sequence[ObjectVerb] = (
    ObjectVerb(word="cordon", on=(NODES,), url=_act("cordon"), verb="update"),
    ObjectVerb(word="cordon", on=(DEVICE,), url=_act("cordon"), verb="create"),
    ObjectVerb(word="uncordon", on=(NODES,), url=_act("uncordon"), verb="update"),
    ObjectVerb(word="drain", on=(NODES,), url=_act("drain"), verb="update"),
    ObjectVerb(word="drain", on=(DEVICE,), url=_act("drain"), verb="create"),
    ObjectVerb(word="taint", on=(NODES,), url=_act("taint"), verb="update"),
    ObjectVerb(word="taint", on=(DEVICE,), url=_act("taint"), verb="create"),
    ObjectVerb(word="untaint", on=(DEVICE,), url=_act("untaint"), verb="delete"),
    ObjectVerb(
        word="delete",
        on=(PODS, *SUMMARIES, CLAIMS, TEMPLATES, CLASSES, TAINT_RULES, NAMESPACES),
        url=lambda thing: f"{object_url(*thing)}{'?delete=1' if thing[0] == NAMESPACES else '/delete'}",
        verb="delete",
    ),
    ObjectVerb(word="release", on=(CLAIMS,), url=_page("/release"), verb="*"),
    ObjectVerb(word="duplicate", on=(PODS,), url=_with_pod("pod-new", "like"), verb="create"),
    *(_workload_verb(word, act) for word, act in _OF_WORKLOADS),
    ObjectVerb(word="logs", on=(PODS,), url=_page("?tab=logs"), asks=False),
    ObjectVerb(word="rehearse", on=(PODS,), url=_with_pod("what-if", "pod"), asks=False),
    ObjectVerb(word="history", on=_PAGES, url=_page("?tab=history"), asks=False),
    ObjectVerb(word="yaml", on=(*_PAGES, SERVICES), url=lambda thing: yaml_url(*thing), asks=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something to do without an object. place: the URL name of its page; does: what a script does instead."""

    title: str
    place: str
    does: str = ""
    may: Callable[[Person], bool] = field(default=lambda _person: True)


COMMANDS: Sequence[Command] = (
    Command(title="New pod or Job", place="pod-new", may=lambda person: person.may_somewhere("create", PODS)),
    Command(title="New class", place="class-new", may=lambda person: person.may("create", CLASSES)),
    Command(title="New taint rule", place="taint-rule-new", may=lambda person: person.may("create", TAINT_RULES)),
    Command(title="New namespace", place="namespaces", may=lambda person: person.may("create", NAMESPACES)),
    Command(title="Invite somebody", place="people", may=lambda person: person.administers),
    Command(title="Switch between light and dark", place="account", does="theme"),
    Command(title="Show the keys", place="keys", does="keys"),
    Command(title="Sign out", place="account", does="sign-out"),
)


def done_with(text: str, person: Person) -> Iterator[HitSection]:
    """Verbs and commands that the text may mean, the most certain first."""
    words = text.split()
    hits = list[Hit]()
    if len(words) == 1:
        hits += _verb_hints(words[0], person)
    elif words:
        for word, rest in ((words[0], words[1:]), (words[-1], words[:-1])):
            named, name = _noun_of(rest)
            for verb in _meant(word):
                hits += _done_to(verb, " ".join(rest), person)
                if named or name != rest:
                    hits += _done_to(verb, " ".join(name), person, named)
            if " ".join(rest).lower() in _named_by():  # "scale deployment"
                hits += _verb_hints(word, person)
        hits = list({one.url: one for one in sorted(hits, key=lambda one: -one.rank)}.values())
    hits += _commands(text, person)
    if hits:
        ordered = sorted(hits, key=lambda one: one.rank)
        yield HitSection("Do", "i-do", tuple(ordered[: 2 * OFFERED]), len(ordered) > 2 * OFFERED)


def _meant(word: str) -> list[ObjectVerb]:
    return [verb for verb in VERBS if verb.word.startswith(word.lower())] if len(word) >= ENOUGH else []


#: Words between a verb and what it is done to.
_FILLERS = ("of", "the")


def _noun_of(words: list[str]) -> tuple[Collection[str], list[str]]:
    """(resources that a noun at either end means, the other words): of `deployment web`, of `of pod x`, of `x job`."""
    left = list(words)
    while len(left) > 1 and left[0].lower() in _FILLERS:
        del left[0]
    for length in (2, 1):  # "taint rule"
        for part, rest in ((left[:length], left[length:]), (left[-length:], left[:-length])):
            if rest and (named := _named_by().get(" ".join(part).lower())):
                return named, rest
    return (), left


def _verb_hints(word: str, person: Person) -> Iterator[Hit]:
    """Verbs without an object: choosing one writes it, and the object is typed behind it."""
    on: dict[str, list[str]] = {}
    for verb in _meant(word):
        nouns = (f"a {NOUNS.get(one) or WORDS[one]}" for one in verb.on if verb.may(person, one))
        on.setdefault(verb.word, []).extend(nouns)
    for name, objects in on.items():
        if objects:
            aside = " or ".join(filter(None, (", ".join(objects[:-1]), objects[-1])))
            url = f"{reverse('find')}?{urlencode({'q': f'{name} '})}"
            yield Hit(PREFIX, _shown(name), "", " …", url, aside, ("verb", name))


def _shown(word: str) -> str:
    return word.upper() if word == "yaml" else word.capitalize()


def _done_to(verb: ObjectVerb, rest: str, person: Person, named: Collection[str] = ()) -> Iterator[Hit]:
    """The verb with each object that the rest of the text may mean. named: resources, where the text has a noun."""
    for resource in verb.on:
        if named and resource not in named:
            continue
        hits = BY_RESOURCE[resource].search(Sought(rest), person)[0] if verb.may(person, resource) else []
        for one in hits[:OFFERED]:
            if resource != DEVICE and one.object[1] and not verb.may(person, resource, one.object[1]):
                continue
            yield Hit(
                EXACT if one.rank == EXACT else PREFIX,
                f"{_shown(verb.word)} {one.before}",
                one.match,
                f"{one.after}{'…' if verb.asks else ''}",
                verb.url(one.object),
                f"{f'{one.aside}, ' if one.aside and resource != DEVICE else ''}{NOUNS[resource]}"
                if resource in NOUNS
                else one.aside,
            )


def _commands(text: str, person: Person) -> Iterator[Hit]:
    wanted = text.lower()
    for command in COMMANDS:
        title = command.title.lower()
        begins = any(part.startswith(wanted) for part in (title, *title.split()[1:]))
        if begins and len(wanted) >= ENOUGH and command.may(person):
            rank, parts = EXACT if wanted == title else PREFIX, _parts(command.title, title.find(wanted), wanted)
            does = ("does", command.does) if command.does else ()
            yield Hit(rank, *parts, reverse(command.place), "", does)


#: where -> keys that do it -> what they do; a combination is one key ("Ctrl K")
KEYS: Mapping[str, Mapping[str, str]] = {
    "On every page": {
        "/, Ctrl K": "Find, go or do",
        "?": "Show these keys",
        "Tab": "Next control; the device grid counts as one",
        "Esc": "Close panel, menu or dialog",
    },
    "In what is found": {
        "↓, ↑": "Go to the next one and back",
        "Enter": "Open it, or do it",
        "Ctrl Enter": "Open it in a new tab",
    },
    "In a list": {
        "j, k": "Go to the next row and back",
        "Enter": "Open the row",
        "x": "Choose the row",
        "Shift X": "Choose all rows up to here",
        "a": "Go to the actions for the chosen rows; Esc goes back",
    },
    "In the device grid": {
        "←, →": "Next or previous device, or node",
        "↑, ↓, PgUp, PgDn": "Nearest device above or below",
        "Home, End": "The node's first and last device; with Ctrl the grid's",
        "Enter": "Open the device's panel",
        "x, Shift X": "Choose the device; all up to here",
    },
    "On the timeline": {
        "←, →": "Read along the axis",
        "Enter": "Mark one end of a range, then the other",
        "Esc": "Clear the mark",
    },
    "On the wallboard": {"Esc": "Leave it"},
    "In an editor": {"Ctrl Space": "Complete what is allowed there", "Tab": "Leave the editor"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindContext(PageContext):
    """said: for screen readers, how much was found."""

    text: str
    said: str
    sections: Sequence[HitSection]
    total: int
    pages: Sequence[Place]


@authorizes
@require_safe
def find(request: HttpRequest) -> HttpResponse:
    person, text = person_of(request), _asked(request)
    sections = search(text, person) if text else []
    exact = [one for section in sections for one in section.found if one.rank == EXACT]
    if "go" in request.GET and len(exact) == 1:
        return redirect(exact[0].url)
    total = sum(len(section.found) for section in sections)
    more = " or more" if any(section.more for section in sections) else ""
    said = f"{total}{more} found for {text}." if total else f"Nothing is called {text}." if text else ""
    shown = FindContext(
        place="find", revision=0, text=text, said=said, sections=sections, total=total, pages=places(person)
    )
    return render_page(request, "tools/find/page.html", shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionsContext(TemplateContext):
    """more: whether the page has more."""

    text: str
    sections: Sequence[HitSection]
    more: bool
    pages: Sequence[Place]


@authorizes
@require_safe
def suggest(request: HttpRequest) -> HttpResponse:
    """The part of a page that is shown while somebody types."""
    person, text = person_of(request), _asked(request)
    everything = search(text, person) if text else []
    sections, left = list[HitSection](), ALL_SUGGESTED
    for section in everything:
        shown = section.found[: min(FEW, left)] if section.title != "Do" else section.found
        left -= len(shown)
        if shown:
            sections.append(replace(section, found=shown))
    total = sum(len(section.found) for section in everything)
    more = any(section.more for section in everything) or total > ALL_SUGGESTED - left
    context = SuggestionsContext(text=text, sections=sections, more=more, pages=places(person))
    return render_page(request, "tools/find/suggestions.html", context)


def _asked(request: HttpRequest) -> str:
    return " ".join(request.GET.get("q", "").split())


def search(text: str, person: Person) -> list[HitSection]:
    """Everything that fits, by kind; the kind with the best match first. What is found by its name is not repeated for
    its labels.
    """
    sought, named = Sought(text), set[Thing]()
    sections = [*done_with(text, person), *gone_to(text, person)]
    for kind in KINDS:
        hits, more = kind.search(sought, person)
        fresh = tuple(hit for hit in hits if not hit.object or hit.object not in named)
        named |= {hit.object for hit in fresh if kind.resource}
        if fresh:
            sections.append(HitSection(kind.title, kind.icon, fresh, more))
    return sorted(sections, key=lambda section: section.best)


@signed_in
@require_safe
def show_keys(request: HttpRequest) -> HttpResponse:
    groups = {where: [(keys.split(", "), does) for keys, does in lines.items()] for where, lines in KEYS.items()}
    context = ValueContext(place="keys", revision=latest_revision(), page=groups)
    return render_page(request, "tools/find/keys.html", context)
