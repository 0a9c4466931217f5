"""Objects of early forms of dynamic resource allocation, beside those of today: claims of cdi.k8s.io with the claims,
ResourceClasses with the classes, NodeResourceSlices with the drivers.

Each list has the columns of `kubectl get -o wide`; a name leads to the object's YAML. Nothing while a gate is off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dashboard.templatetags.kit import yaml_url
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.store.records import Stored
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind
from manciple.wire.resources import DRAFT_CLAIMS, DRAFT_CLASSES, NODE_SLICES, RESOURCE_CLASSES, kind

#: place of a page -> the resources that its list does not have
BESIDE: Mapping[str, Sequence[str]] = {
    "claims": (DRAFT_CLAIMS,),
    "classes": (RESOURCE_CLASSES, DRAFT_CLASSES),
    "drivers": (NODE_SLICES,),
}
#: Objects of a list.
SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRow:
    """cells: as `EarlyList.heads` calls them, but for the name."""

    name: str
    namespace: str
    url: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyList:
    """more: whether there are more than SHOWN."""

    resource: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[EarlyRow, ...]
    more: bool


def early_lists(person: Person, place: str) -> Iterator[EarlyList]:
    """Those that have objects which the person sees. One query for each form whose gate is on, and each namespace."""
    for resource in BESIDE.get(place, ()):
        found = kind(resource)
        if not found.is_served():
            continue
        stored = list(_seen(found, person))
        if stored:
            columns = [column for column in found.columns if column.name != "Name"]
            yield EarlyList(
                resource=resource,
                title=f"{found.kind} of {found.group}",
                heads=("Name", *(column.name.replace("-", " ") for column in columns)),
                rows=tuple(_row(one, found) for one in stored[:SHOWN]),
                more=len(stored) > SHOWN,
            )


def _seen(found: Kind, person: Person) -> Iterator[Stored]:
    if not found.namespaced or person.namespaces is None:
        if person.may("list", found.resource):
            yield from objects.list(found, limit=SHOWN + 1).items
        return
    for namespace in sorted(person.namespaces):
        if person.may("list", found.resource, namespace):
            yield from objects.list(found, namespace=namespace, limit=SHOWN + 1).items


def _row(stored: Stored, found: Kind) -> EarlyRow:
    one, now = decoded(stored, ApiObject), time.time()
    return EarlyRow(
        name=stored.name,
        namespace=stored.namespace,
        url=yaml_url(found.resource, stored.namespace, stored.name),
        cells=tuple(
            (column.name.replace("-", " "), str(column.cell(one, now) or ""))
            for column in found.columns
            if column.name != "Name"
        ),
    )
