"""Finding by name: a search for each kind of thing, and all of them in the order in which equals are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, IntegerField, Model, Q, QuerySet, Value, When

from claims.models import AllocatedDevice, Claim, Pod
from dashboard.capacity.quotas import may_read
from dashboard.kit import links
from dashboard.models import SavedView
from dashboard.tools.find.sought import EXACT, PART, PREFIX, SHOWN, Hit, Search, Sought, hit
from inventory.models import Device, DeviceClass, Node, PublishedSlice
from manciple.people import Person
from manciple.store import sql
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, SLICES, TAINT_RULES, TEMPLATES

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
    key = (row.driver, row.pool, row.name, row.node_name)
    title, url = f"{row.pool} / {row.name}", links.device_url(*key)
    return hit(sought.parts[1], row.rank, title, url=url, aside=row.driver, thing=(DEVICE, *key))


# Kinds without one -----------------------------------------------------------------------------------------------


def _drivers(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    if not person.may("list", SLICES):
        return [], False
    published = PublishedSlice.objects.order_by().values_list("driver", flat=True).distinct()
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
    Findable("Nodes", "i-node", _cluster_wide(Node, NODES, links.node_url), NODES),
    Findable("Classes", "i-class", _cluster_wide(DeviceClass, CLASSES, links.class_url), CLASSES),
    Findable("Drivers", "i-dev", _drivers),
    Findable("Quotas", "i-quota", _quotas, QUOTAS),
    Findable("Namespaces", "i-over", _namespaces, NAMESPACES),
    Findable("Taint rules", "i-alert", _taint_rules, TAINT_RULES),
    Findable("Devices", "i-dev", _devices, DEVICE),
    Findable("Saved views", "i-view", _saved_views),
)
BY_RESOURCE: Mapping[str, Findable] = {one.resource: one for one in KINDS if one.resource}
