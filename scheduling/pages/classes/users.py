"""Who asks for devices of a class: claims that wait, claims that hold, templates and pods, as a person sees them.

The claims that wait and the templates are kept for the process and followed in the log, because a page asks at each
keystroke, and their classes stand only in their documents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Count

from claims.kinds.resource_claims import (
    DeviceClaim,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from claims.models import AllocatedDevice, Claim, Pod
from manciple.pages.people import Person
from manciple.store import objects, tail
from manciple.store.records import EventRecord, Stored
from manciple.wire.errors import Expired
from scheduling.resources import CLAIMS, TEMPLATES, decoded, kind

#: Events that are followed one by one; after more, everything is read anew.
FOLLOWED = 2_000

#: The selectors that a request adds to its class's.
Selectors = tuple[str, ...]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Asking:
    """A claim without devices, or a template: what it asks for of each class."""

    namespace: str
    name: str
    requests: Mapping[str, tuple[Selectors, ...]]  # class -> the selectors of each request for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one namespace has of a class."""

    namespace: str
    waiting: int = 0
    holding: int = 0
    templates: int = 0
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Users:
    """Everything a person may know about who uses a class."""

    waiting: tuple[Asking, ...]
    templates: tuple[Asking, ...]
    holding: frozenset[Key]  # (namespace, name) of claims that hold devices through the class
    by_namespace: tuple[Use, ...]

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


class Followed:
    """The objects of one resource that ask for classes, by (namespace, name)."""

    def __init__(
        self,
        resource: str,
        read: Callable[[], Iterable[Stored]],
        asking: Callable[[Stored | EventRecord], Asking | None],
    ) -> None:
        """read: those that may ask. asking: what one asks for; None where it asks for nothing any more."""
        self._resource, self._read, self._asking = resource, read, asking
        self._lock = threading.Lock()
        self._known: dict[Key, Asking] | None = None
        self._revision = 0

    def naming(self, class_name: str) -> list[Asking]:
        """Those that name the class, by namespace and name."""
        return [one for one in self._now() if class_name in one.requests]

    def _now(self) -> list[Asking]:
        with self._lock:
            if self._known is None or not self._catch_up(self._known):
                self._revision = tail.latest_revision()
                found = (self._asking(stored) for stored in self._read())
                self._known = {(one.namespace, one.name): one for one in found if one}
            return [one for _, one in sorted(self._known.items())]

    def all(self) -> list[Asking]:
        return self._now()

    def forget(self) -> None:
        with self._lock:
            self._known = None

    def _catch_up(self, known: dict[Key, Asking]) -> bool:
        try:
            stretch = tail.stretch_after(self._revision, resources=(self._resource,), limit=FOLLOWED)
        except Expired:
            return False
        if stretch.more:
            return False
        for record in stretch.changes:
            known.pop((record.namespace, record.name), None)
            asking = None if record.type == "DELETED" else self._asking(record)
            if asking:
                known[(record.namespace, record.name)] = asking
        self._revision = stretch.revision
        return True


def _waiting_documents() -> Iterable[Stored]:
    keys = Claim.objects.filter(allocated=False, deleting=False).values_list("namespace", "name")
    return objects.get_many(kind(CLAIMS), keys)


def _of_claim(source: Stored | EventRecord) -> Asking | None:
    claim = decoded(source, ResourceClaim)
    if claim.status.allocation is not None or claim.metadata.deletion_timestamp is not None:
        return None
    return Asking(source.namespace, source.name, asked(claim.spec.devices))


def _of_template(source: Stored | EventRecord) -> Asking | None:
    return Asking(source.namespace, source.name, asked(decoded(source, ResourceClaimTemplate).spec.spec.devices))


_WAITING: Followed = Followed(CLAIMS, _waiting_documents, _of_claim)
_TEMPLATES: Followed = Followed(TEMPLATES, lambda: objects.list(kind(TEMPLATES)).items, _of_template)


def forget() -> None:
    """The next question reads everything."""
    _WAITING.forget()
    _TEMPLATES.forget()


# Asking --------------------------------------------------------------------------------------------------------------


def users_of(class_name: str, person: Person) -> Users:
    """Who uses the class. A handful of queries, whatever the size of the cluster."""
    waiting = tuple(one for one in _WAITING.naming(class_name) if person.sees(one.namespace))
    templates = tuple(one for one in _TEMPLATES.naming(class_name) if person.sees(one.namespace))
    rows = person.seen(AllocatedDevice.objects.filter(device_class=class_name), "claim__namespace")
    holding = frozenset(rows.values_list("claim__namespace", "claim__name"))
    return Users(waiting, templates, holding, _by_namespace(waiting, templates, holding))


def _by_namespace(waiting: Iterable[Asking], templates: Iterable[Asking], holding: frozenset[Key]) -> tuple[Use, ...]:
    waits = {(one.namespace, one.name) for one in waiting}
    keeps = [one.namespace for one in templates]
    namespaces = sorted({namespace for namespace, _ in (*waits, *holding)} | set(keeps))
    pods: dict[str, int] = {}
    claims = waits | holding
    for namespace, names in Pod.objects.filter(namespace__in=namespaces).values_list("namespace", "claim_names"):
        if any((namespace, name) in claims for name in names):
            pods[namespace] = pods.get(namespace, 0) + 1
    return tuple(
        Use(
            namespace=namespace,
            waiting=sum(one == namespace for one, _ in waits),
            holding=sum(one == namespace for one, _ in holding),
            templates=keeps.count(namespace),
            pods=pods.get(namespace, 0),
        )
        for namespace in namespaces
    )


def counts(person: Person) -> Mapping[str, tuple[int, int, int]]:
    """class -> (claims that wait, claims that hold, templates), of what the person sees."""
    found: dict[str, list[int]] = {}
    for column, asking in ((0, _WAITING.all()), (2, _TEMPLATES.all())):
        for one in asking:
            if person.sees(one.namespace):
                for name in one.requests:
                    found.setdefault(name, [0, 0, 0])[column] += 1
    rows = person.seen(AllocatedDevice.objects.exclude(device_class=""), "claim__namespace")
    for name, number in rows.values_list("device_class").annotate(Count("claim", distinct=True)):
        found.setdefault(name, [0, 0, 0])[1] = number
    return {name: (waiting, holding, templates) for name, (waiting, holding, templates) in found.items()}
