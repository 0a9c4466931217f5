"""How many devices are in which state, in all and of each class: what the overview shows and usage samples keep.

States are those of the device grid. In all, a card that is cut into partitions counts once, as it does in the grid; of
a class, each published device that its selectors accept counts, so that a device counts in every class it matches.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from claims.kinds.resource_claims import ResourceClaim
from claims.models import Pod
from claims.pages.cards import is_blocked, remaining
from claims.pages.grid import level_of, state_of
from claims.pages.judging import judge
from claims.pages.published import Offer
from claims.pages.shelf import Picture, read_picture
from inventory.models import DeviceClass
from manciple.pages.people import Person
from manciple.store import objects
from scheduling.models import QueuedPod
from scheduling.resources import CLAIMS, Key, decoded, kind

#: Waiting pods whose claims are looked at, to tell which classes they ask for; the first in the queue.
LOOKED_AT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """One class. waiting: pods that ask for it and have no node. complaint: why its selectors say nothing."""

    name: str
    counts: Mapping[str, int]
    waiting: int
    complaint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """All of it. waiting: pods without a node."""

    revision: int
    picture: Picture
    totals: Mapping[str, int]
    classes: tuple[ClassCount, ...]
    waiting: int

    @property
    def total(self) -> int:
        return sum(self.totals.values())


def read_census(person: Person | None = None) -> Census:
    """As it is now. person: waiting pods are counted only as far as they see them; None for all."""
    picture = read_picture()
    queue = QueuedPod.objects.all() if person is None else person.seen(QueuedPod.objects.all())
    asked = Counter(name for names in classes_asked(queue).values() for name in names)
    return Census(
        revision=picture.revision,
        picture=picture,
        totals=picture.counts,
        classes=tuple(_class_counts(picture, asked)),
        waiting=queue.count(),
    )


def _class_counts(picture: Picture, asked: Mapping[str, int]) -> Iterator[ClassCount]:
    states = _states(picture)
    for name, selectors in DeviceClass.objects.order_by("name").values_list("name", "selectors"):
        verdict = judge(expressions_of(selectors), picture.offers)
        yield ClassCount(
            name=name,
            counts=Counter(states[offer] for offer in verdict.matching),
            waiting=asked.get(name, 0),
            complaint=verdict.complaint,
        )


def expressions_of(selectors: Iterable[Mapping[str, Mapping[str, str]]]) -> tuple[str, ...]:
    """The CEL expressions of a class, as its index row holds them."""
    return tuple(selector["cel"]["expression"] for selector in selectors if selector.get("cel"))


# States of devices one by one ----------------------------------------------------------------------------------------


def device_states(picture: Picture) -> dict[Offer, str]:
    """The state of every published device, partitions each by themselves."""
    found = {}
    for key, pool in picture.pools.items():
        held = picture.holders.get(key, {})
        left = remaining(pool, held)
        for offer in pool.offers:
            holders = held.get(offer.key, ())
            state = state_of(offer, holders, complete=pool.complete, level=level_of(offer, holders))
            found[offer] = "blocked" if state == "free" and left and is_blocked(offer, left) else state
    return found


_guard = threading.Lock()
_known: tuple[Picture, dict[Offer, str]] | None = None


def _states(picture: Picture) -> Mapping[Offer, str]:
    """`device_states`, remembered for the last picture: a page and its parts ask for the same one."""
    global _known  # noqa: PLW0603 - one for all requests of the process
    with _guard:
        if _known is None or _known[0] is not picture:
            _known = (picture, device_states(picture))
        return _known[1]


# Which classes waiting pods ask for ----------------------------------------------------------------------------------


def classes_asked(queue: QuerySet[QueuedPod]) -> dict[str, frozenset[str]]:
    """uid of a waiting pod -> the classes that its claims without devices ask for. Three queries, but for many claims.

    Of the first pods in the queue, where there are many.
    """
    uids = list(queue.order_by("created_at").values_list("uid", flat=True)[:LOOKED_AT])
    pods = Pod.objects.filter(uid__in=uids).values_list("uid", "namespace", "claim_names")
    claims_of = {uid: [(namespace, name) for name in names] for uid, namespace, names in pods}
    wanted = {key for keys in claims_of.values() for key in keys}
    asked = dict(_unallocated(sorted(wanted))) if wanted else {}
    nothing: frozenset[str] = frozenset()
    return {uid: nothing.union(*(asked.get(key, nothing) for key in keys)) for uid, keys in claims_of.items()}


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
