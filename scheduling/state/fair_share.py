"""Fair share: among pods of one priority, the namespace that holds least for its weight goes first. Off by default.

With MANCIPLE_FAIR_SHARE=1 a batch takes pods by priority, and among equal priorities from the namespace with the least
share; within a namespace the oldest first. What the batch has placed so far counts, so turns move on as devices are
allocated. The share of a namespace is the largest part that it holds of the devices of any class (its dominant share),
divided by its weight: the label `manciple.dev/fair-share-weight` of the Namespace, 1 by default. The number of devices
of a class comes from the last usage sample; without one, it is the number of those held.

No namespace is kept from devices that no other wants: one alone gets everything. Nothing is taken away, so shares
change only as devices are released. Room is kept (`scheduling.cycle.post_filter`) for pods of the namespace whose turn
it is. Source of the order: Ghodsi et al., Dominant Resource Fairness (NSDI 2011).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import ClassVar

from django.conf import settings

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim, class_of
from manciple.wire.machinery import Namespace
from manciple.wire.resources import CLAIMS, NAMESPACES, Key
from scheduling.models import UsageSample
from scheduling.queue.queue import ReadyPod
from scheduling.state.part import Part

WEIGHT = "manciple.dev/fair-share-weight"
#: A namespace may weigh as much as so many others.
MOST_WEIGHT = 1000
#: How old samples may be, and how long the last ones are remembered.
SAMPLES_OF, REMEMBERED = timedelta(hours=1), timedelta(minutes=1)

#: class -> devices
Holding = Counter[str]


@dataclass(slots=True, eq=False, repr=False)
class FairShare(Part):
    """What each namespace holds and weighs, as a scheduling worker knows it."""

    follows: ClassVar[tuple[str, ...]] = (NAMESPACES, CLAIMS)

    #: class -> how many devices it has
    sizes: Mapping[str, int] = field(default_factory=dict)
    _sized_at: datetime | None = None
    _weights: dict[str, int] = field(default_factory=dict)
    _of_claim: dict[Key, Holding] = field(default_factory=dict)
    #: namespace -> what its claims hold
    _held: defaultdict[str, Holding] = field(default_factory=lambda: defaultdict(Counter))
    #: namespace -> what the batch has given it and not committed
    _assumed: dict[str, Holding] = field(default_factory=dict)
    _all: Holding = field(default_factory=Counter)
    #: priority -> the namespace whose turn came first in this batch
    _first: dict[int, str] = field(default_factory=dict)

    @classmethod
    def if_wanted(cls) -> FairShare | None:
        """None where turns are not taken."""
        return cls() if settings.SCHEDULER_FAIR_SHARE else None

    # Keeping up ------------------------------------------------------------------------------------------------------

    def put(self, obj: Namespace | ResourceClaim) -> None:
        if isinstance(obj, Namespace):
            self._weights[obj.metadata.name] = weight_of(obj.metadata.labels)
            return
        self.remove(obj)
        if obj.status.allocation is not None:
            held = self._of_claim[obj.key] = _holding(obj, obj.status.allocation)
            self._held[obj.metadata.namespace].update(held)
            self._all.update(held)

    def remove(self, obj: Namespace | ResourceClaim) -> None:
        if isinstance(obj, Namespace):
            self._weights.pop(obj.metadata.name, None)
        elif before := self._of_claim.pop(obj.key, None):
            namespace = obj.metadata.namespace
            self._held[namespace] -= before
            self._all -= before
            if not self._held[namespace]:
                del self._held[namespace]

    def reserve(
        self, pod: Pod, claims: Iterable[ResourceClaim], given: Mapping[str, AllocationResult]
    ) -> tuple[str, Holding | None]:
        """Count these allocations (claim uid -> result) as if they were committed. Returns the amounts before, for
        `unreserve`.
        """
        namespace = pod.metadata.namespace  # its claims are there too
        before = self._assumed.get(namespace)
        held = Counter(before or ())
        for claim in claims:
            if (allocation := given.get(claim.metadata.uid)) is not None:
                held.update(_holding(claim, allocation))
        if held:
            self._assumed[namespace] = held
        return namespace, before

    def unreserve(self, before: tuple[str, Holding | None]) -> None:
        """Take back the last `reserve` that isn't taken back yet."""
        namespace, held = before
        if held is None:
            self._assumed.pop(namespace, None)
        else:
            self._assumed[namespace] = held

    # Asking ----------------------------------------------------------------------------------------------------------

    def share(self, namespace: str) -> float:
        """Its dominant share for its weight."""
        held, assumed = self._held.get(namespace, Counter()), self._assumed.get(namespace, Counter())
        parts = ((held[name] + assumed[name]) / self._size(name) for name in held.keys() | assumed.keys())
        return max(parts, default=0.0) / self._weights.get(namespace, 1)

    def _size(self, device_class: str) -> int:
        given = sum(one[device_class] for one in self._assumed.values())
        return self.sizes.get(device_class) or max(1, self._all[device_class] + given)

    def turns(self, ready: Sequence[ReadyPod], limit: int, now: datetime) -> Iterator[str]:
        """The uids of at most `limit` pods, each chosen when it is asked for: by what was given until then.

        ready: by priority, then age.
        """
        if self._sized_at is None or now - self._sized_at >= REMEMBERED:
            self.sizes, self._sized_at = sampled_sizes(now), now
        self._first.clear()
        return islice(self._turns(ready), limit)

    def _turns(self, ready: Sequence[ReadyPod]) -> Iterator[str]:
        for priority, pods in groupby(ready, key=lambda pod: pod.priority):
            waiting: dict[str, deque[str]] = defaultdict(deque)
            for pod in pods:
                waiting[pod.namespace].append(pod.uid)
            # Of equal shares the one whose pod has waited for longest comes first, as `waiting` is in their order.
            while waiting:
                namespace = min(waiting, key=self.share)
                self._first.setdefault(priority, namespace)
                yield waiting[namespace].popleft()
                if not waiting[namespace]:
                    del waiting[namespace]

    def has_the_turn(self, namespace: str, priority: int) -> bool:
        """Whether room may be kept for pods of the namespace: no other was to come before it."""
        return self._first.get(priority, namespace) == namespace


def sampled_sizes(now: datetime) -> Mapping[str, int]:
    """class -> how many devices the last sample of the usage counted."""
    rows = UsageSample.objects.filter(at__gt=now - SAMPLES_OF).exclude(device_class="").order_by("at")
    return {name: sum(counts.values()) for name, counts in rows.values_list("device_class", "counts")}


def weight_of(labels: Mapping[str, str]) -> int:
    """1 where the label is missing, or says no whole number from 1 to `MOST_WEIGHT`."""
    text = labels.get(WEIGHT, "")
    weight = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_WEIGHT)) else 1
    return weight if 1 <= weight <= MOST_WEIGHT else 1


def _holding(claim: ResourceClaim, allocation: AllocationResult) -> Holding:
    """Devices by class, a share of one like a whole one; who has admin access holds nothing."""
    requests = claim.spec.devices.requests
    held = (class_of(requests, one.request) for one in allocation.devices.results if not one.admin_access)
    return Counter(name for name in held if name)
