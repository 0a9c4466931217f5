"""How many devices are in which state, in all and of each class: what the overview shows and usage samples keep.

States are those of the device grid. In all, a card that is cut into partitions counts once, as it does in the grid; of
a class, each published device that its selectors accept counts, so that a device counts in every class it matches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from claims.devices.cache import DeviceSnapshot, read_devices
from claims.kinds.resource_claims import ResourceClaim
from claims.models import Pod
from insight.how_many_fit import NOTHING, count
from insight.selector_matches import complaint
from inventory.kinds import devices as kinds
from inventory.kinds import gates
from inventory.models import DeviceClass
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import CLAIMS, CLASSES, Key, kind
from scheduling.cel import CompileError
from scheduling.models import QueuedPod
from scheduling.queue.hints import RESOURCE_KEY
from scheduling.state.node_fit import ServingClasses

#: Waiting pods whose claims are looked at, to tell which classes they ask for; the first in the queue.
LOOKED_AT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """One class. counts: its devices by state; by_use: those that are held as held.

    fits: how many more claims for one of them would get one.
    waiting: pods that ask for it and have no node. complaint: why its selectors say nothing.
    """

    name: str
    counts: Mapping[str, int]
    waiting: int
    by_use: Mapping[str, int]
    fits: int = 0
    complaint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """All of it. waiting: pods without a node."""

    revision: int
    snapshot: DeviceSnapshot
    totals: Mapping[str, int]
    classes: tuple[ClassCount, ...]
    waiting: int

    @property
    def total(self) -> int:
        return sum(self.totals.values())


def read_census(person: Person | None = None) -> Census:
    """As it is now. person: waiting pods are counted only as far as they see them; None for all."""
    snapshot = read_devices()
    waiting = QueuedPod.objects.waiting()
    queue = waiting if person is None else waiting.restrict(person)
    return Census(
        revision=snapshot.revision,
        snapshot=snapshot,
        totals=snapshot.counts,
        classes=tuple(_class_counts(snapshot, waiting_by_class(queue))),
        waiting=queue.count(),
    )


def _class_counts(snapshot: DeviceSnapshot, asked: Mapping[str, int]) -> Iterator[ClassCount]:
    for name, selectors in DeviceClass.objects.order_by("name").values_list("name", "selectors"):
        try:
            found, said = count(snapshot, expressions_of(selectors)), ""
        except CompileError as error:
            found, said = NOTHING, complaint(error)
        except TimeLimitExceeded:
            found, said = NOTHING, "its selectors take too long to evaluate"
        yield ClassCount(
            name=name,
            counts=found.by_state,
            by_use=found.by_use,
            fits=found.fits,
            waiting=asked.get(name, 0),
            complaint=said,
        )


def expressions_of(selectors: Iterable[Mapping[str, Mapping[str, str]]]) -> tuple[str, ...]:
    """The CEL expressions of a class, as its index row holds them."""
    return tuple(selector["cel"]["expression"] for selector in selectors if selector.get("cel"))


# Which classes waiting pods ask for ----------------------------------------------------------------------------------


def waiting_by_class(queue: QuerySet[QueuedPod]) -> Counter[str]:
    """class -> pods of the queue that ask for it."""
    return Counter(name for names in classes_asked(queue).values() for name in names)


def classes_asked(queue: QuerySet[QueuedPod]) -> dict[str, frozenset[str]]:
    """uid of a waiting pod -> the classes that it asks for: by its claims without devices, and by the names of extended
    resources. Three queries, but for many claims; one more where somebody waits for such names.

    Of the first pods in the queue, where there are many.
    """
    awaited = dict(queue.order_by("created_at").values_list("uid", "awaited")[:LOOKED_AT])
    served = _served({uid: keys for uid, keys in awaited.items() if any(key.startswith(RESOURCE_KEY) for key in keys)})
    pods = Pod.objects.filter(uid__in=list(awaited)).values_list("uid", "namespace", "claim_names")
    claims_of = {uid: [(namespace, name) for name in names] for uid, namespace, names in pods}
    wanted = {key for keys in claims_of.values() for key in keys}
    asked = dict(_unallocated(sorted(wanted))) if wanted else {}
    nothing: frozenset[str] = frozenset()
    return {
        uid: served.get(uid, nothing).union(*(asked.get(key, nothing) for key in keys))
        for uid, keys in claims_of.items()
    }


def _served(awaited: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """awaited: uid of a pod -> what it waits for, names of extended resources among it. Those that no class serves are
    left out."""
    if not awaited:
        return {}
    serving = ServingClasses(enabled=gates.enabled("DRAExtendedResource"))
    for stored in objects.list(kind(CLASSES)).items:
        serving.put(decoded(stored, kinds.DeviceClass))
    classes = {f"{RESOURCE_KEY}{resource}": name for resource, name in serving.by_resource.items()}
    return {uid: frozenset(classes[key] for key in keys if key in classes) for uid, keys in awaited.items()}


def _unallocated(keys: Sequence[Key]) -> Iterator[tuple[Key, frozenset[str]]]:
    for stored in objects.get_many(kind(CLAIMS), keys):
        claim = decoded(stored, ResourceClaim)
        if claim.status.allocation is None:
            yield (stored.namespace, stored.name), frozenset(classes_of(claim))


def classes_of(claim: ResourceClaim) -> Iterator[str]:
    """The classes that a claim's requests name, alternatives included."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        yield from (alternative.device_class_name for alternative in request.first_available)
