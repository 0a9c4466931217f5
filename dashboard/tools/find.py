"""Finding anything, and doing things with it: `/find?q=`. Without a question, every place there is.

Things are found by a part of their name, by what devices have (UUIDs, serial numbers, PCI addresses), by taints, labels
and uids; a verb before a name leads to what it would do. The best match comes first: what is called exactly so, then
what begins so, then what holds it. `&go=1` opens a match that is exact and the only one. Only what the person may see
is found; of each kind the first few.

`/find/suggestions?q=` is the same for the box that is open on every page, with fewer of each kind. `/keys` lists the
keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

from django.db.models import Case, IntegerField, Model, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.published import CandidateDevice, DeviceSlice, address_of
from claims.models import AllocatedDevice, Claim, Pod
from dashboard.capacity.quotas.reading import may_read
from dashboard.kit import links
from dashboard.kit.rendering import MORE, PLACES, PageContext, TemplateContext, render_page
from dashboard.kit.rights import authorizes, signed_in
from dashboard.models import SavedView
from inventory import models
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule
from inventory.kinds.nodes import Node, Taint
from manciple.people import Person, person_of
from manciple.store import finding, sql
from manciple.store.event_log import latest_revision
from manciple.store.objects import listed
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, SLICES, TAINT_RULES, TEMPLATES

#: Of each kind, the first so many.
SHOWN = 20
#: How well a name fits.
EXACT, PREFIX, PART = 0, 1, 2

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
    """One thing: what it is called (with the part that was sought), where it is, what tells it from its namesakes.

    object: (resource, namespace, name) of what is an object of the API, or a device's key behind "device".
    """

    rank: int
    before: str
    match: str
    after: str
    url: str
    aside: str
    object: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.before}{self.match}{self.after}"


@dataclass(frozen=True, slots=True)
class HitSection:
    """The things of one kind. `more`: there are others."""

    title: str
    icon: str
    found: tuple[Hit, ...]
    more: bool

    @property
    def best(self) -> int:
        return min(one.rank for one in self.found)


def hit(text: str, rank: int, title: str, *, url: str, aside: str, thing: tuple[str, ...] = ()) -> Hit:
    """text: what was sought, of which the last place in the title is marked."""
    at = title.lower().rfind(text.lower())
    if at < 0:
        return Hit(rank, title, "", "", url, aside, thing)
    end = at + len(text)
    return Hit(rank, title[:at], title[at:end], title[end:], url, aside, thing)


def rank_of(text: str, found: str) -> int:
    """How well `found` fits, of which `text` is a part."""
    text, found = text.lower(), found.lower()
    return EXACT if text == found else PREFIX if found.startswith(text) else PART


def best(hits: Iterable[Hit]) -> tuple[list[Hit], bool]:
    """The first few, the best first."""
    ordered = sorted(hits, key=lambda one: (one.rank, one.title, one.aside))
    return ordered[:SHOWN], len(ordered) > SHOWN


#: What a device is called among the resources.
DEVICE = "device"

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


def _namespaced(model: type[Model], resource: str, url: Callable[[str, str], str]) -> Search:
    def search(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
        place, name = sought.parts
        rows: Any = model._default_manager
        seen = rows.restrict(person)
        taken, more = _first(
            _ranked(seen.filter(namespace__icontains=place) if place else seen, name), "name", "namespace"
        )
        return [_namespaced_row(sought, row, resource, url) for row in taken], more

    return search


def _namespaced_row(sought: Sought, row: Any, resource: str, url: Callable[[str, str], str]) -> Hit:
    rank, thing = sought.rank(row.name, row.namespace), (resource, row.namespace, row.name)
    address = url(row.namespace, row.name)
    return hit(sought.parts[1], PART if rank is None else rank, row.name, url=address, aside=row.namespace, thing=thing)


def _cluster_wide(model: type[Model], resource: str, url: Callable[[str], str]) -> Search:
    def search(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
        if sought.parts[0] or not person.may("list", resource):
            return [], False
        taken, more = _first(_ranked(model._default_manager.all(), sought.text), "name")
        return [
            hit(sought.text, row.rank, row.name, url=url(row.name), aside="", thing=(resource, "", row.name))
            for row in taken
        ], more

    return search


def _devices(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """By their own name, their pool's, or both as they are shown: `gpu-a17 / gpu-2`."""
    if not person.may("list", SLICES):
        return [], False
    place, name = sought.parts
    driver, slash, pool = place.partition("/")
    if place:
        in_pool = Q(pool__icontains=place)
        if slash:
            in_pool |= Q(driver__iexact=driver.strip(), pool__icontains=pool.strip())
        fitting = models.Device.objects.filter(in_pool, name__istartswith=name)
        exact = Q(name__iexact=name) & (
            Q(pool__iexact=place) | (Q(driver__iexact=driver, pool__iexact=pool) if slash else Q())
        )
        prefix = Q(name__istartswith=name)
    else:
        fitting = models.Device.objects.filter(Q(name__icontains=name) | Q(pool__icontains=name))
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
    key = (row.driver, row.pool, row.name, row.node_name)
    title, url = f"{row.pool} / {row.name}", links.device_url(*key)
    return hit(sought.parts[1], row.rank, title, url=url, aside=row.driver, thing=(DEVICE, *key))


# Kinds without one -----------------------------------------------------------------------------------------------


def _drivers(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    if not person.may("list", SLICES):
        return [], False
    published = models.PublishedSlice.objects.order_by().values_list("driver", flat=True).distinct()
    names = {*published, *AllocatedDevice.objects.order_by().values_list("driver", flat=True).distinct()}
    return _best(sought, "", ((name, "", links.driver_url(name)) for name in names))


def _namespaces(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    _, stored = sql.live(NAMESPACES, namespace="", limit=0, with_text=False)
    return _best(
        sought, NAMESPACES, ((row.name, "", links.namespace_url(row.name)) for row in stored if person.sees(row.name))
    )


def _templates(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    _, stored = sql.live(TEMPLATES, namespace="", limit=0, with_text=False)
    return _best(
        sought,
        TEMPLATES,
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
        QUOTAS,
        (
            (row.name, row.namespace, links.quota_url(row.namespace, row.name))
            for row in stored
            if may_read(person, row.namespace)
        ),
    )


def _taint_rules(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    if not person.may("list", TAINT_RULES):
        return [], False
    _, stored = sql.live(TAINT_RULES, namespace="", limit=0, with_text=False)
    return _best(sought, TAINT_RULES, ((row.name, "", links.taint_rule_url(row.name)) for row in stored))


def _saved_views(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """A person's own, and what others share."""
    found = SavedView.objects.filter(Q(owner__username=person.name) | Q(shared=True), name__icontains=sought.text)
    return _best(sought, "", ((one.name, one.path.strip("/"), f"/views/{one.id}") for one in found))


def _best(sought: Sought, resource: str, objects: Iterable[tuple[str, str, str]]) -> tuple[list[Hit], bool]:
    """objects: (name, namespace, address)."""
    fitting = [
        (rank, name, place, url) for name, place, url in objects if (rank := sought.rank(name, place)) is not None
    ]
    fitting.sort()
    hits = [
        hit(sought.parts[1], rank, name, url=url, aside=place, thing=(resource, place, name) if resource else ())
        for rank, name, place, url in fitting[:SHOWN]
    ]
    return hits, len(fitting) > SHOWN


@dataclass(frozen=True, slots=True)
class Findable:
    """Things of one kind. title: of their section; resource: of what is an object of the API."""

    title: str
    icon: str
    search: Search
    resource: str = ""


#: Of equals, in this order.
KINDS: Sequence[Findable] = (
    Findable("Pods", "i-pod", _namespaced(Pod, PODS, links.pod_url), PODS),
    Findable("Claims", "i-claim", _namespaced(Claim, CLAIMS, links.claim_url), CLAIMS),
    Findable("Claim templates", "i-claim", _templates, TEMPLATES),
    Findable("Nodes", "i-node", _cluster_wide(models.Node, NODES, links.node_url), NODES),
    Findable("Classes", "i-class", _cluster_wide(models.DeviceClass, CLASSES, links.class_url), CLASSES),
    Findable("Drivers", "i-dev", _drivers),
    Findable("Quotas", "i-quota", _quotas, QUOTAS),
    Findable("Namespaces", "i-over", _namespaces, NAMESPACES),
    Findable("Taint rules", "i-alert", _taint_rules, TAINT_RULES),
    Findable("Devices", "i-dev", _devices, DEVICE),
    Findable("Saved views", "i-view", _saved_views),
)
BY_RESOURCE: Mapping[str, Findable] = {one.resource: one for one in KINDS if one.resource}


#: Shorter texts are parts of too much to be worth looking for.
SHORTEST = 2
#: Resources whose objects have pages, and what one is called.
WORDS = {
    PODS: "Pod",
    CLAIMS: "Claim",
    TEMPLATES: "Template",
    NODES: "Node",
    CLASSES: "Class",
    NAMESPACES: "Namespace",
    QUOTAS: "Quota",
    TAINT_RULES: "Taint rule",
}
#: What the beginning of a uid looks like.
_UID = re.compile(r"^[0-9a-f]{6,8}(-[0-9a-f-]*)?$")

# Devices -------------------------------------------------------------------------------------------------------------


def search_attributes(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Values of attributes and capacities."""
    text = sought.text.lower()
    if len(text) < SHORTEST or not person.may("list", SLICES):
        return [], False
    holders: dict[tuple[str, str], list[CandidateDevice]] = {}
    for one, (name, value) in _facts_with(text):
        holders.setdefault((name, value), []).append(one)
    return best(_attribute(sought.text, name, value, those) for (name, value), those in holders.items())


def _facts_with(text: str) -> Iterator[tuple[CandidateDevice, tuple[str, str]]]:
    for published in read_devices().published.slices:
        if text not in _text_of(published):
            continue
        for one in published.candidates:
            for name, value in one.facts:
                if text in value.lower():
                    yield one, (name, value)


def _text_of(published: DeviceSlice) -> str:
    """Every value that its devices have, a line each, in small letters."""
    known: str | None = published.memo.get(_text_of)
    if known is None:
        values = dict.fromkeys(value.lower() for one in published.candidates for _, value in one.facts)
        known = published.memo[_text_of] = "\n".join(values)
    return known


def _attribute(text: str, name: str, value: str, those: list[CandidateDevice]) -> Hit:
    rank = rank_of(text, value)
    if len(those) == 1:
        one = those[0]
        aside, url = f"{name} of {one.title}", links.device_url(*one.key)
        return hit(text, rank, value, url=url, aside=aside, thing=("device", *one.key))
    url = f"/devices?{urlencode({'attr': f'{name}:{value}'})}"
    return hit(text, rank, value, url=url, aside=f"{name} of {len(those):,} devices")


# Taints --------------------------------------------------------------------------------------------------------------


def search_taints(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Taints of devices, of nodes, and the rules that make them, by key, value or effect."""
    text = sought.text.lower()
    if len(text) < SHORTEST:
        return [], False
    hits = list[Hit]()
    if person.may("list", SLICES):
        hits += _device_taints(sought.text)
    if person.may("list", TAINT_RULES):
        hits += _rules(sought.text)
    if person.may("list", NODES):
        hits += _node_taints(sought.text)
    return best(hits)


def _said(taint: DeviceTaint | Taint) -> str:
    """As `kubectl taint` writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _device_taints(text: str) -> Iterator[Hit]:
    devices: dict[str, list[CandidateDevice]] = {}
    for one in read_devices().candidates:
        for taint in one.device.taints:
            if text.lower() in (said := _said(taint)).lower():
                devices.setdefault(said, []).append(one)
    for said, those in devices.items():
        yield _device_taint(text, said, those)


def _device_taint(text: str, said: str, those: list[CandidateDevice]) -> Hit:
    if len(those) == 1:
        one = those[0]
        url = links.device_url(*one.key)
        return hit(text, PART, said, url=url, aside=f"on {one.title}", thing=("device", *one.key))
    cause = said.rpartition(":")[0]
    url = f"/incidents?{urlencode({'cause': cause})}"
    return hit(text, PART, said, url=url, aside=f"on {len(those):,} devices")


def _rules(text: str) -> Iterator[Hit]:
    _, rules = listed(TAINT_RULES, DeviceTaintRule)
    for rule in rules:
        if text.lower() in (said := _said(rule.spec.taint)).lower():
            name = rule.metadata.name
            url = links.taint_rule_url(name)
            yield hit(text, PART, said, url=url, aside=f"by rule {name}", thing=(TAINT_RULES, "", name))


def _node_taints(text: str) -> Iterator[Hit]:
    _, nodes = listed(NODES, Node)
    for node in nodes:
        for taint in node.spec.taints:
            if text.lower() in (said := _said(taint)).lower():
                name = node.metadata.name
                url = links.node_url(name)
                yield hit(text, PART, said, url=url, aside=f"on node {name}", thing=(NODES, "", name))


# Objects -------------------------------------------------------------------------------------------------------------


def search_labels(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Objects by a part of one of their labels."""
    text = sought.text
    if len(text) < SHORTEST:
        return [], False
    found = finding.labelled(text, _open_to(person), namespaces=person.namespaces, limit=SHOWN + 1)
    hits = [_labelled(text, one) for one in found if _is_seen(one, person)]
    return hits[:SHOWN], len(hits) > SHOWN


def _labelled(text: str, one: finding.FoundObject) -> Hit:
    label = next(f"{key}={value}" for key, value in one.labels.items() if text.lower() in f"{key}={value}".lower())
    return hit(text, PART, label, url=_url(one), aside=_aside(one), thing=(one.resource, one.namespace, one.name))


def search_uids(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Objects by the beginning of their uid."""
    text = sought.text.lower()
    if not _UID.match(text):
        return [], False
    found = finding.with_uid(text, _open_to(person), namespaces=person.namespaces, limit=SHOWN + 1)
    hits = [_with_uid(text, one) for one in found if _is_seen(one, person)]
    return hits[:SHOWN], len(hits) > SHOWN


def _with_uid(text: str, one: finding.FoundObject) -> Hit:
    thing = (one.resource, one.namespace, one.name)
    return hit(text, rank_of(text, one.uid), one.uid, url=_url(one), aside=_aside(one), thing=thing)


def _open_to(person: Person) -> list[str]:
    """Resources of which the person sees objects; those in namespaces are chosen by these."""
    open_ones = {PODS, CLAIMS, TEMPLATES}
    return [one for one in WORDS if one in open_ones or person.may("list", one)]


def _is_seen(one: finding.FoundObject, person: Person) -> bool:
    """The name of a namespace is told to whoever sees what is in it."""
    return person.sees(one.name if one.resource == NAMESPACES else one.namespace)


def _url(one: finding.FoundObject) -> str:
    return links.object_url(one.resource, one.namespace, one.name)


def _aside(one: finding.FoundObject) -> str:
    place = f"{one.namespace}/" if one.namespace else ""
    return f"{WORDS[one.resource]} {place}{one.name}"


#: See `dashboard.kit.auditors`.
AUDIT = "events.audit.manciple.dev"
#: (URL name, word, icon) of what the account's menu has.
_OWN = (("account", "Your account", "i-person"), ("keys", "Keys", "i-key"))


@dataclass(frozen=True, slots=True)
class PlaceToGo:
    """One page."""

    url: str
    word: str
    icon: str


def places(person: Person) -> list[PlaceToGo]:
    """All that the person may go to."""
    named = [*PLACES, *MORE, *_OWN]
    if person.may("list", AUDIT):
        named.append(("audit", "Audit", "i-time"))
    if person.administers:
        named += [("people", "People and groups", "i-person"), ("roles", "Roles", "i-person")]
    return [PlaceToGo(reverse(name), word, icon) for name, word, icon in named]


def gone_to(text: str, person: Person) -> Iterator[HitSection]:
    """Those of which a word begins so."""
    wanted = text.lower()
    found = []
    for one in places(person):
        word = one.word.lower()
        starts = [at for at in range(len(word)) if word.startswith(wanted, at) and (not at or word[at - 1] == " ")]
        if starts:
            at, end = starts[0], starts[0] + len(wanted)
            rank = EXACT if word == wanted else PREFIX
            found.append(Hit(rank, one.word[:at], one.word[at:end], one.word[end:], one.url, ""))
    if found:
        yield HitSection("Go to", "i-chev", tuple(found), more=False)


#: Things of one kind that a verb is offered for.
OFFERED = 5
#: Letters of a verb that are enough to mean it.
ENOUGH = 2
_YAML = (PODS, CLAIMS, TEMPLATES, NODES, CLASSES, QUOTAS, NAMESPACES, TAINT_RULES)

#: (resource, namespace, name), or a device's key behind DEVICE
Thing = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVerb:
    """word: as it is typed, and shown with a capital; on: what it is done to; verb: the right that it needs, "" for
    none but to see."""

    word: str
    on: Sequence[str]
    url: Callable[[Thing], str]
    verb: str = ""
    asks: bool = True  # whether something is to be said before it is done: "Drain gpu-a17…"

    def may(self, person: Person, resource: str, namespace: str = "") -> bool:
        if not self.verb:
            return True
        wanted = TAINT_RULES if resource == DEVICE else resource
        return person.may(self.verb, wanted, namespace) if namespace else person.may_somewhere(self.verb, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something to do without an object. does: what a script does with it, where it is no page."""

    title: str
    url: str
    icon: str = "i-do"
    does: str = ""
    may: Callable[[Person], bool] = field(default=lambda _person: True)


_ONE = {
    PODS: "a pod",
    CLAIMS: "a claim",
    TEMPLATES: "a template",
    NODES: "a node",
    CLASSES: "a class",
    QUOTAS: "a quota",
    NAMESPACES: "a namespace",
    TAINT_RULES: "a taint rule",
    DEVICE: "a device",
}


def _page(thing: Thing) -> str:
    return links.object_url(thing[0], thing[1], thing[2])


def _tab(name: str) -> Callable[[Thing], str]:
    return lambda thing: f"{_page(thing)}?tab={name}"


def _below(word: str) -> Callable[[Thing], str]:
    return lambda thing: f"{_page(thing)}/{word}"


def _act(word: str) -> Callable[[Thing], str]:
    """Of a node, or of a device."""

    def url(thing: Thing) -> str:
        if thing[0] == DEVICE:
            _, driver, pool, name, node = thing
            return f"/devices/act/{word}?{urlencode({'at': address_of((driver, pool, name, node))})}"
        return f"{_page(thing)}?change={word}"

    return url


def _delete(thing: Thing) -> str:
    return f"{_page(thing)}?delete=1" if thing[0] == NAMESPACES else f"{_page(thing)}/delete"


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
        word="delete", on=(PODS, CLAIMS, TEMPLATES, CLASSES, TAINT_RULES, NAMESPACES), url=_delete, verb="delete"
    ),
    ObjectVerb(word="release", on=(CLAIMS,), url=_below("release"), verb="*"),
    ObjectVerb(
        word="duplicate",
        on=(PODS,),
        url=lambda thing: f"/pods/new?like={quote('/'.join(thing[1:]))}",
        verb="create",
    ),
    ObjectVerb(word="logs", on=(PODS,), url=_tab("logs"), asks=False),
    ObjectVerb(word="rehearse", on=(PODS,), url=lambda thing: f"/what-if?pod={quote('/'.join(thing[1:]))}", asks=False),
    ObjectVerb(word="history", on=_YAML, url=_tab("history"), asks=False),
    ObjectVerb(word="yaml", on=_YAML, url=lambda thing: links.yaml_url(*thing), asks=False),
)

COMMANDS: Sequence[Command] = (
    Command(title="New pod", url="/pods/new", may=lambda person: person.may_somewhere("create", PODS)),
    Command(title="New class", url="/classes/new", may=lambda person: person.may("create", CLASSES)),
    Command(title="New taint rule", url="/taint-rules/new", may=lambda person: person.may("create", TAINT_RULES)),
    Command(title="New namespace", url="/namespaces", may=lambda person: person.may("create", NAMESPACES)),
    Command(title="Invite somebody", url="/people", may=lambda person: person.administers),
    Command(title="Switch between light and dark", url="/account", icon="i-theme", does="theme"),
    Command(title="Show the keys", url="/keys", icon="i-key", does="keys"),
    Command(title="Sign out", url="/account", icon="i-x", does="sign-out"),
)


def done_with(text: str, person: Person) -> Iterator[HitSection]:
    """What the text may mean as something to do; the most certain first."""
    hits = [*_acts(text, person), *_commands(text, person)]
    if hits:
        found = sorted(hits, key=lambda one: one.rank)
        yield HitSection("Do", "i-do", tuple(found[: 2 * OFFERED]), len(found) > 2 * OFFERED)


def _acts(text: str, person: Person) -> Iterator[Hit]:
    words = text.split()
    if len(words) == 1:
        yield from _hints(words[0], person)
    elif words:
        for at, rest in ((words[0], words[1:]), (words[-1], words[:-1])):
            for verb in _meant(at):
                yield from _on(verb, " ".join(rest), person)


def _meant(word: str) -> Iterator[ObjectVerb]:
    if len(word) >= ENOUGH:
        yield from (verb for verb in VERBS if verb.word.startswith(word.lower()))


def _hints(word: str, person: Person) -> Iterator[Hit]:
    """That there are such verbs: choosing one writes it, and what it is done to is written behind."""
    on: dict[str, list[str]] = {}
    for verb in _meant(word):
        on.setdefault(verb.word, []).extend(_ONE[one] for one in verb.on if verb.may(person, one))
    for found, named in on.items():
        if named:
            whom = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} or {named[-1]}"
            url = f"/find?{urlencode({'q': f'{found} '})}"
            yield Hit(PREFIX, _shown(found), "", " …", url, whom, ("verb", found))


def _shown(word: str) -> str:
    return word.upper() if word == "yaml" else word.capitalize()


def _on(verb: ObjectVerb, rest: str, person: Person) -> Iterator[Hit]:
    for resource in verb.on:
        if not verb.may(person, resource):
            continue
        kind = BY_RESOURCE[resource]
        for one in kind.search(Sought(rest), person)[0][:OFFERED]:
            thing = one.object
            if resource != DEVICE and thing[1] and not verb.may(person, resource, thing[1]):
                continue
            place = f"{one.aside}, " if one.aside and resource != DEVICE else ""
            behind = f"{one.after}{'…' if verb.asks else ''}"
            yield Hit(
                EXACT if one.rank == EXACT else PREFIX,
                f"{_shown(verb.word)} {one.before}",
                one.match,
                behind,
                verb.url(thing),
                f"{place}{_ONE[resource].removeprefix('a ')}",
            )


def _commands(text: str, person: Person) -> Iterator[Hit]:
    wanted = text.lower()
    for one in COMMANDS:
        if not any(part.startswith(wanted) for part in (one.title.lower(), *one.title.lower().split()[1:])):
            continue
        if len(wanted) < ENOUGH or not one.may(person):
            continue
        at = one.title.lower().find(wanted)
        before, match, after = one.title[:at], one.title[at : at + len(wanted)], one.title[at + len(wanted) :]
        rank = EXACT if wanted == one.title.lower() else PREFIX
        yield Hit(rank, before, match, after, one.url, "", ("does", one.does) if one.does else ())


@dataclass(frozen=True, slots=True)
class KeyLine:
    """keys: those that do it; a combination is one of them ("Ctrl K")."""

    keys: tuple[str, ...]
    does: str


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Where they do it."""

    title: str
    lines: tuple[KeyLine, ...]


KEYS: Sequence[KeyGroup] = (
    KeyGroup(
        "On every page",
        (
            KeyLine(("/", "Ctrl K"), "Find anything, go anywhere, do something"),
            KeyLine(("?",), "Show these keys"),
            KeyLine(("Tab",), "Go from control to control; the device grid is one stop"),
            KeyLine(("Esc",), "Close panel, menu or dialog; from the panel back to its device"),
        ),
    ),
    KeyGroup(
        "In what is found",
        (
            KeyLine(("↓", "↑"), "Go to the next one and back"),
            KeyLine(("Enter",), "Open it, or do it"),
            KeyLine(("Ctrl Enter",), "Open it in a new tab"),
        ),
    ),
    KeyGroup(
        "In a list",
        (
            KeyLine(("j", "k"), "Go to the next row and back"),
            KeyLine(("Enter",), "Open the row"),
            KeyLine(("x",), "Choose the row"),
            KeyLine(("Shift X",), "Choose all rows from the last one up to here"),
            KeyLine(("a",), "Go to what can be done with the chosen rows; Esc goes back"),
        ),
    ),
    KeyGroup(
        "In the device grid",
        (
            KeyLine(("←", "→"), "Go along a node, whose name is the first cell, and on to the next one"),
            KeyLine(("↑", "↓", "PgUp", "PgDn"), "Go to the nearest device above or below"),
            KeyLine(("Home", "End"), "Go to the node's first and last device; with Ctrl to the grid's"),
            KeyLine(("Enter",), "Open the device's panel and go into it"),
            KeyLine(("x", "Shift X"), "Choose the device; all from the last one up to here"),
        ),
    ),
    KeyGroup(
        "On the timeline",
        (
            KeyLine(("←", "→"), "Read along the axis"),
            KeyLine(("Enter",), "Mark one end of a stretch, then the other, and show it"),
            KeyLine(("Esc",), "Take the mark back"),
        ),
    ),
    KeyGroup("On the wallboard", (KeyLine(("Esc",), "Leave it"),)),
    KeyGroup(
        "In an editor",
        (KeyLine(("Ctrl Space",), "Complete what is allowed there"), KeyLine(("Tab",), "Leave the editor")),
    ),
)


# Views ---------------------------------------------------------------------------------------------------------------

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
