"""Who asks for devices of a class: claims that wait, claims that hold, templates and pods, as a person sees them.

The claims that wait and the templates are followed, because a page asks at each keystroke, and their classes stand only
in their documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from django.db.models import Count

from claims.kinds.resource_claims import (
    DeviceClaim,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from claims.models import AllocatedDevice, Pod
from manciple.people import Person
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.wire.base import ApiObject
from manciple.wire.resources import CLAIMS, TEMPLATES, Key

#: The selectors that a request adds to its class's.
Selectors = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassRequest:
    """A claim without devices, or a template: what it asks for of each class."""

    namespace: str
    name: str
    requests: Mapping[str, tuple[Selectors, ...]]  # class -> the selectors of each request for it


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUse:
    """What one namespace has of a class."""

    namespace: str
    waiting: int = 0
    holding: int = 0
    templates: int = 0
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Users:
    """Everything a person may know about who uses a class."""

    waiting: tuple[ClassRequest, ...]
    templates: tuple[ClassRequest, ...]
    holding: frozenset[Key]  # (namespace, name) of claims that hold devices through the class
    by_namespace: tuple[NamespaceUse, ...]

    @property
    def claims(self) -> int:
        return len(self.waiting) + len(self.holding)


def asked(devices: DeviceClaim) -> dict[str, tuple[Selectors, ...]]:
    """class -> the selectors of each request or alternative that names it."""
    found: dict[str, tuple[Selectors, ...]] = {}
    for request in devices.requests:
        alternatives: tuple[ExactDeviceRequest | DeviceSubRequest, ...] = request.first_available
        for one in (request.exactly,) if request.exactly else alternatives:
            texts = tuple(selector.cel.expression for selector in one.selectors if selector.cel)
            found[one.device_class_name] = (*found.get(one.device_class_name, ()), texts)
    return found


# What the process keeps ----------------------------------------------------------------------------------------------


class Askers(View):
    """The claims that wait for devices, and the templates: what each asks for.

    Counted as they change: a page that added them up would take as long as any namespace has claims and requests.
    """

    resources: ClassVar[Sequence[str]] = (CLAIMS, TEMPLATES)

    def __init__(self) -> None:
        self._known: dict[str, dict[Key, ClassRequest]] = {CLAIMS: {}, TEMPLATES: {}}
        #: resource -> class -> namespace -> how many of its objects name the class
        self._counts: dict[str, dict[str, Counter[str]]] = {CLAIMS: {}, TEMPLATES: {}}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._put(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            self._remove(change.resource, change.object.key)
            if change.type != "DELETED":
                self._put(change.resource, change.object)

    def of(self, resource: str, class_name: str) -> tuple[ClassRequest, ...]:
        """Those that name the class, by namespace and name."""
        if class_name not in self._counts[resource]:
            return ()
        naming = (one for one in self._known[resource].values() if class_name in one.requests)
        return tuple(sorted(naming, key=lambda one: (one.namespace, one.name)))

    def count(self, resource: str, class_name: str, person: Person) -> int:
        """How many of those that the person sees name the class."""
        found = self._counts[resource].get(class_name, Counter())
        return sum(number for namespace, number in found.items() if person.sees(namespace))

    def _put(self, resource: str, obj: ApiObject) -> None:
        if isinstance(obj, ResourceClaimTemplate):
            request = ClassRequest(*obj.key, asked(obj.spec.spec.devices))
        elif isinstance(obj, ResourceClaim) and _waits(obj):
            request = ClassRequest(*obj.key, asked(obj.spec.devices))
        else:
            return
        self._known[resource][obj.key] = request
        for name in request.requests:
            self._counts[resource].setdefault(name, Counter())[request.namespace] += 1

    def _remove(self, resource: str, key: Key) -> None:
        request = self._known[resource].pop(key, None)
        counts = self._counts[resource]
        for name in request.requests if request else ():
            counts[name][key[0]] -= 1
            counts[name] += Counter()  # without those that are zero
            if not counts[name]:
                del counts[name]


def _waits(claim: ResourceClaim) -> bool:
    return claim.status.allocation is None and claim.metadata.deletion_timestamp is None


_following = Follower(Askers)


# Asking --------------------------------------------------------------------------------------------------------------


def users_of(class_name: str, person: Person) -> Users:
    """Who uses the class. A handful of queries, whatever the size of the cluster."""
    with _following.view() as view:
        waiting, templates = (
            tuple(one for one in view.of(resource, class_name) if person.sees(one.namespace))
            for resource in (CLAIMS, TEMPLATES)
        )
    rows = AllocatedDevice.objects.restrict(person).filter(device_class=class_name, admin_access=False)
    holding = frozenset(rows.values_list("claim__namespace", "claim__name"))
    return Users(waiting, templates, holding, _by_namespace(waiting, templates, holding))


def _by_namespace(
    waiting: Iterable[ClassRequest], templates: Iterable[ClassRequest], holding: frozenset[Key]
) -> tuple[NamespaceUse, ...]:
    waits = {(one.namespace, one.name) for one in waiting}
    keeps = [one.namespace for one in templates]
    namespaces = sorted({namespace for namespace, _ in (*waits, *holding)} | set(keeps))
    pods: dict[str, int] = {}
    claims = waits | holding
    for namespace, names in Pod.objects.filter(namespace__in=namespaces).values_list("namespace", "claim_names"):
        if any((namespace, name) in claims for name in names):
            pods[namespace] = pods.get(namespace, 0) + 1
    return tuple(
        NamespaceUse(
            namespace=namespace,
            waiting=sum(one == namespace for one, _ in waits),
            holding=sum(one == namespace for one, _ in holding),
            templates=keeps.count(namespace),
            pods=pods.get(namespace, 0),
        )
        for namespace in namespaces
    )


def counts(person: Person, class_names: Iterable[str]) -> Mapping[str, tuple[int, int, int]]:
    """class -> (claims that wait, claims that hold, templates), of what the person sees."""
    rows = AllocatedDevice.objects.restrict(person).filter(admin_access=False).exclude(device_class="")
    holding = dict(rows.values_list("device_class").annotate(Count("claim", distinct=True)))
    with _following.view() as view:
        return {
            name: (view.count(CLAIMS, name, person), holding.get(name, 0), view.count(TEMPLATES, name, person))
            for name in class_names
        }
