"""Reads what each namespace holds, from the index tables: six queries for any number of namespaces."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Exists, Model, OuterRef, QuerySet

from claims.admission import is_admin_namespace
from claims.causes.causes import decode
from claims.causes.next_steps import Topic, topic_of
from claims.models import AllocatedDevice, Claim, Pod, Reservation
from manciple.api.namespaces import IMMORTAL_NAMESPACES
from manciple.people import Person
from manciple.store import objects, sql
from manciple.store.records import Stored
from manciple.wire.registry import registry
from manciple.wire.resources import NAMESPACES, NEW_PHASES, kind
from scheduling.models import QueuedPod

#: Pods in the order in which they are told.
POD_STATES = ("Waiting", "Starting", "Running", "Deleting", "Succeeded", "Failed", "Unknown")
#: Claims likewise.
CLAIM_STATES = ("Pending", "Reserved", "Allocated", "Deleting")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceHoldings:
    """What one namespace holds."""

    name: str
    exists: bool = True
    ending: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)  # class -> devices held
    claims: Mapping[str, int] = field(default_factory=dict)
    pods: Mapping[str, int] = field(default_factory=dict)
    causes: tuple[tuple[Topic, int], ...] = ()  # why its pods wait, and how many for that, the most first

    @property
    def device_count(self) -> int:
        return sum(self.devices.values())

    @property
    def claim_count(self) -> int:
        return sum(self.claims.values())

    @property
    def pod_count(self) -> int:
        return sum(self.pods.values())

    @property
    def waiting(self) -> int:
        return self.pods.get("Waiting", 0)

    @property
    def cause(self) -> Topic | None:
        """Why most of its waiting pods wait."""
        return self.causes[0][0] if self.causes else None

    @property
    def admin_access(self) -> bool:
        return is_admin_namespace(self.labels)

    @property
    def immortal(self) -> bool:
        return self.name in IMMORTAL_NAMESPACES


def read_namespaces(person: Person, *, name: str = "") -> list[NamespaceHoldings]:
    """Those that `person` sees, or only `name`; ones that hold something without existing are told too."""
    found = {one.name: one for one in _objects(name) if person.sees(one.name)}
    pods = _pods(_within(Pod.objects.restrict(person), name))
    claims = _claims(_within(Claim.objects.restrict(person), name))
    given = AllocatedDevice.objects.restrict(person).filter(admin_access=False)
    devices = _devices(given.filter(claim__namespace=name) if name else given)
    causes = _causes(_within(QueuedPod.objects.waiting().restrict(person), name))
    names = sorted({*found, *pods, *claims, *devices})
    return [
        _held(one, found.get(one), pods=pods[one], claims=claims[one], devices=devices[one], causes=causes[one])
        for one in names
    ]


def _objects(name: str) -> Iterable[Stored]:
    if not name:
        return objects.list(kind(NAMESPACES)).items
    stored = objects.get(kind(NAMESPACES), "", name)
    return [stored] if stored else []


def _within(found: QuerySet[Any], name: str) -> QuerySet[Any]:
    return found.filter(namespace=name) if name else found


def _held(
    name: str,
    stored: Stored | None,
    *,
    pods: Counter[str],
    claims: Counter[str],
    devices: Counter[str],
    causes: Counter[Topic],
) -> NamespaceHoldings:
    return NamespaceHoldings(
        name=name,
        exists=stored is not None,
        ending=stored is not None and stored.deleting,
        labels=stored.labels if stored else {},
        devices=dict(sorted(devices.items(), key=lambda one: (-one[1], one[0]))),
        claims={state: claims[state] for state in CLAIM_STATES if claims[state]},
        pods={state: pods[state] for state in POD_STATES if pods[state]},
        causes=tuple(sorted(causes.items(), key=lambda one: (-one[1], one[0].title))),
    )


def _counted(found: QuerySet[Model], *columns: str) -> Iterable[tuple[Any, ...]]:
    """(values of the columns, rows with them)."""
    counted: Iterable[tuple[Any, ...]] = found.order_by().values_list(*columns).annotate(count=Count("pk"))
    return counted


def _pods(found: QuerySet[Pod]) -> dict[str, Counter[str]]:
    pods: dict[str, Counter[str]] = defaultdict(Counter)
    bound = found.exclude(node_name="")
    for namespace, phase, deleting, count in _counted(bound, "namespace", "phase", "deleting"):
        pods[namespace][_pod_state(phase, deleting=deleting, bound=True)] += count
    for namespace, phase, deleting, count in _counted(found.filter(node_name=""), "namespace", "phase", "deleting"):
        pods[namespace][_pod_state(phase, deleting=deleting, bound=False)] += count
    return pods


def _pod_state(phase: str, *, deleting: bool, bound: bool) -> str:
    if deleting:
        return "Deleting"
    if phase in NEW_PHASES:
        return "Starting" if bound else "Waiting"
    return phase if phase in POD_STATES else "Unknown"


def _claims(found: QuerySet[Claim]) -> dict[str, Counter[str]]:
    claims: dict[str, Counter[str]] = defaultdict(Counter)
    reserved = Exists(Reservation.objects.filter(claim_id=OuterRef("pk")))
    columns = ("namespace", "allocated", "reserved", "deleting")
    for namespace, allocated, used, deleting, count in _counted(found.annotate(reserved=reserved), *columns):
        state = "Deleting" if deleting else "Pending" if not allocated else "Reserved" if used else "Allocated"
        claims[namespace][state] += count
    return claims


def _devices(found: QuerySet[AllocatedDevice]) -> dict[str, Counter[str]]:
    devices: dict[str, Counter[str]] = defaultdict(Counter)
    for namespace, class_name, count in _counted(found, "claim__namespace", "device_class"):
        devices[namespace][class_name or "no class"] += count
    return devices


def _causes(found: QuerySet[QueuedPod]) -> dict[str, Counter[Topic]]:
    causes: dict[str, Counter[Topic]] = defaultdict(Counter)
    for namespace, cause in found.exclude(cause="").values_list("namespace", "cause"):
        causes[namespace][topic_of(decode(cause))] += 1
    return causes


def contents(person: Person, name: str) -> list[tuple[str, int]]:
    """(kind, how many objects of it) that would go with the namespace, most first; what `person` may list."""
    found = [
        (one.kind, sql.count(one.resource, namespace=name))
        for one in registry
        if one.namespaced and person.may("list", one.resource, name)
    ]
    return sorted(((title, count) for title, count in found if count), key=lambda one: (-one[1], one[0]))
