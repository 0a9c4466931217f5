"""Whose turn it is among pods of one priority: the namespace that holds least for its weight. Off by default.

With MANCIPLE_FAIR_SHARE=1 a batch takes up pods by priority, and of one priority from the namespace with the least
share; within a namespace the oldest first, as ever. What the batch has placed so far counts, so the turn moves on as
devices are given. The share of a namespace is the largest part that it holds of the devices of any class (its dominant
share), divided by its weight: the label `manciple.dev/fair-share-weight` of the Namespace, 1 where there is none. How
many devices a class has is what the last sample of the usage says, and where there is none, how many of it are held.

Nobody is kept from what nobody else wants: a namespace alone gets everything. Nothing is taken from anybody, so shares
come about as devices are given back. Room is kept (`scheduling.cycle.remedies`) for pods of the namespace whose turn it
is. Source of the order: Ghodsi et al., Dominant Resource Fairness (NSDI 2011).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice

from django.conf import settings

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim, class_of
from manciple.wire.machinery import Namespace
from manciple.wire.resources import Key
from scheduling.models import UsageSample
from scheduling.queue.queue import ReadyPod

WEIGHT = "manciple.dev/fair-share-weight"
#: A namespace may weigh as much as so many others.
MOST_WEIGHT = 1000
#: How old samples may be, and how long the last ones are remembered.
SAMPLES_OF, REMEMBERED = timedelta(hours=1), timedelta(minutes=1)

#: class -> devices
Holding = Counter[str]


class FairShare:
    """What each namespace holds and weighs, as a scheduling worker knows it."""

    def __init__(self) -> None:
        #: class -> how many devices it has
        self.sizes: Mapping[str, int] = {}
        self._sized_at: datetime | None = None
        self._weights: dict[str, int] = {}
        self._of_claim: dict[Key, Holding] = {}
        #: namespace -> what its claims hold; what the batch has given it and not committed
        self._held: dict[str, Holding] = defaultdict(Counter)
        self._assumed: dict[str, Holding] = defaultdict(Counter)
        self._all: Holding = Counter()
        #: priority -> the namespace whose turn came first in this batch
        self._first: dict[int, str] = {}

    @classmethod
    def if_wanted(cls) -> FairShare | None:
        """None where turns are not taken."""
        return cls() if settings.SCHEDULER_FAIR_SHARE else None

    # Keeping up ------------------------------------------------------------------------------------------------------

    def put(self, obj: object, *, gone: bool = False) -> None:
        """Take over a namespace or a claim as it is now; other objects are none of its business."""
        if isinstance(obj, Namespace) and gone:
            self._weights.pop(obj.metadata.name, None)
        elif isinstance(obj, Namespace):
            self._weights[obj.metadata.name] = weight_of(obj.metadata.labels)
        elif isinstance(obj, ResourceClaim):
            self._put_claim(obj, gone=gone)

    def _put_claim(self, claim: ResourceClaim, *, gone: bool) -> None:
        namespace, before = claim.metadata.namespace, self._of_claim.pop(claim.key, None)
        if before:
            self._held[namespace] -= before
            self._all -= before
            if not self._held[namespace]:
                del self._held[namespace]
        if claim.status.allocation is not None and not gone:
            held = self._of_claim[claim.key] = _holding(claim, claim.status.allocation)
            self._held[namespace].update(held)
            self._all.update(held)

    def assume(self, _pod: Pod, claims: Iterable[ResourceClaim], given: Mapping[str, AllocationResult]) -> None:
        """Count these allocations (claim uid -> what it is given) as if they were committed."""
        for claim in claims:
            if (allocation := given.get(claim.metadata.uid)) is not None:
                self._assumed[claim.metadata.namespace].update(_holding(claim, allocation))

    def mark(self) -> Callable[[], None]:
        """Returns the way back to what is assumed now."""
        earlier = {namespace: Counter(held) for namespace, held in self._assumed.items()}

        def go_back() -> None:
            self._assumed.clear()
            self._assumed.update({namespace: Counter(held) for namespace, held in earlier.items()})

        return go_back

    def drop_assumptions(self) -> None:
        self._assumed.clear()

    def _measure(self, now: datetime) -> None:
        """Learn how many devices the classes have."""
        if self._sized_at is not None and now - self._sized_at < REMEMBERED:
            return
        self.sizes, self._sized_at = sampled_sizes(now), now

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
        self._measure(now)
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
