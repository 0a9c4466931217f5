"""The room that a namespace's quotas have for allocations, as a scheduling worker caches it. PURE.

Quotas may limit the devices that claims hold (`claims.kinds.allocated_usage`). The writer charges them in the
transaction of the commit, and would refuse it. So that no search, eviction or commit is made in vain, a pod is checked
twice before: with the least that its claims can be given (`hold_before`), then with the allocations that were found
(`hold_after`). What the batch has allocated so far counts. A pod without room waits until the quota has some; no pod is
evicted for it, because a quota applies whatever the priority.

Alternatives of a request for which there is no room are left out of the search (`within`), so that another one is
found if one has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from msgspec import structs

from claims.causes.causes import QuotaUsedUp
from claims.kinds.allocated_usage import AllocatedKey, usage_of_allocation
from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from claims.kinds.resource_usage import CLAIMS, NONE, QuotaLimits, Usage, parsed, plus
from claims.pod_claims import is_for_pod
from manciple.wire.quantity import Quantity
from manciple.wire.resources import QUOTAS
from scheduling.queue.hints import held_by_quota
from scheduling.queue.reasons import Hold
from scheduling.state.part import Part


@dataclass(slots=True, eq=False, repr=False)
class QuotaRoom(Part):
    """The room of all namespaces; empty if no quota limits allocations."""

    follows: ClassVar[tuple[str, ...]] = (QUOTAS,)

    #: namespace -> quota -> (its limits, the usage of those that are counted); read directly, so that a pod in a
    #: namespace without such quotas costs one look-up
    by_namespace: dict[str, dict[str, tuple[QuotaLimits, Usage]]] = field(default_factory=dict)
    #: (namespace, quota) -> what the batch has allocated and not committed
    _assumed: dict[tuple[str, str], Usage] = field(default_factory=dict)

    def put(self, quota: ResourceQuota) -> None:
        limits = QuotaLimits.of(quota)
        if not limits.of_allocations:
            self.remove(quota)
            return
        found = self.by_namespace.setdefault(quota.metadata.namespace, {})
        found[limits.name] = limits, parsed(quota.status.used)

    def remove(self, quota: ResourceQuota) -> None:
        found = self.by_namespace.get(quota.metadata.namespace, {})
        found.pop(quota.metadata.name, None)
        if not found:
            self.by_namespace.pop(quota.metadata.namespace, None)

    # Asking ----------------------------------------------------------------------------------------------------------

    def hold_before(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
        """What keeps the pod's claims from being given even the least that they ask for."""
        wanting = [claim for claim in claims if claim.status.allocation is None]
        for claim in wanting:
            for request in claim.spec.devices.requests:
                held = [self._hold_of(pod, claim, one) for one in request.first_available]
                if held and all(held):
                    return held[0]
        return self._hold(pod, wanting, least)

    def hold_after(
        self, pod: Pod, claims: Sequence[ResourceClaim], given: Mapping[str, AllocationResult]
    ) -> Hold | None:
        """What keeps the pod's claims from what was found for them. given: claim uid -> its allocation."""
        return self._hold(pod, claims, partial(self._usage, given))

    def within(self, pod: Pod, claims: Sequence[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        """The pod's claims without the alternatives for which there is no room."""
        return tuple(self._narrowed(pod, claim) if claim.status.allocation is None else claim for claim in claims)

    def _narrowed(self, pod: Pod, claim: ResourceClaim) -> ResourceClaim:
        asked = claim.spec.devices.requests
        requests = tuple(self._with_room(pod, claim, request) for request in asked)
        if all(one is other for one, other in zip(requests, asked, strict=True)):
            return claim
        devices = structs.replace(claim.spec.devices, requests=requests)
        return structs.replace(claim, spec=structs.replace(claim.spec, devices=devices))

    def _with_room(self, pod: Pod, claim: ResourceClaim, request: DeviceRequest) -> DeviceRequest:
        left = tuple(one for one in request.first_available if self._hold_of(pod, claim, one) is None)
        if not left or left == request.first_available:
            return request  # where none has room, the refusal names the quota (`hold_before`)
        return structs.replace(request, first_available=left)

    def _hold_of(self, pod: Pod, claim: ResourceClaim, alternative: DeviceSubRequest) -> Hold | None:
        return self._hold(pod, [claim], lambda _: _usage_of(alternative))

    def _hold(
        self, pod: Pod, claims: Sequence[ResourceClaim], amounts: Callable[[ResourceClaim], Usage]
    ) -> Hold | None:
        namespace = pod.metadata.namespace
        for name, (limits, used) in sorted(self.by_namespace.get(namespace, {}).items()):
            assumed = self._assumed.get((namespace, name), {})
            for key, amount in sorted(_share(limits, pod, claims, amounts).items()):
                taken = used.get(key, NONE) + assumed.get(key, NONE)
                if key in used and amount.sign > 0 and taken + amount > limits.hard[key]:
                    told = {"requested": amount, "used": taken, "hard": limits.hard[key]}
                    texts = {what: quantity.canonical() for what, quantity in told.items()}
                    return held_by_quota(namespace, QuotaUsedUp(quota=name, key=key, **texts))
        return None

    # Reserving -------------------------------------------------------------------------------------------------------

    def reserve(
        self, pod: Pod, claims: Sequence[ResourceClaim], given: Mapping[str, AllocationResult]
    ) -> Mapping[tuple[str, str], Usage]:
        """Count these allocations as if they were committed. Returns the amounts before, for `unreserve`."""
        namespace, before = pod.metadata.namespace, dict[tuple[str, str], Usage]()
        for name, (limits, _) in self.by_namespace.get(namespace, {}).items() if given else ():
            key = namespace, name
            before[key] = self._assumed.get(key, {})
            self._assumed[key] = plus(before[key], _share(limits, pod, claims, partial(self._usage, given)))
        return before

    def unreserve(self, before: Mapping[tuple[str, str], Usage]) -> None:
        """Take back the last `reserve` that isn't taken back yet."""
        for key, usage in before.items():
            if usage:
                self._assumed[key] = usage
            else:
                self._assumed.pop(key, None)

    def _usage(self, given: Mapping[str, AllocationResult], claim: ResourceClaim) -> Usage:
        allocation = given.get(claim.metadata.uid)
        return {} if allocation is None else usage_of_allocation(claim, allocation)


def _share(
    limits: QuotaLimits, pod: Pod, claims: Iterable[ResourceClaim], amounts: Callable[[ResourceClaim], Usage]
) -> Usage:
    """What the pod's claims count there, each as many as `amounts` says."""
    total: Usage = {}
    for claim in claims:
        owner = pod if is_for_pod(claim, pod) else None
        if limits.concerns(CLAIMS, claim, owner):
            total = plus(total, {key: amount for key, amount in amounts(claim).items() if key in limits.hard})
    return total


def least(claim: ResourceClaim) -> Usage:
    """What the claim is given at least."""
    if claim.spec.resource_class_name:  # each of its requests is for one device
        return {str(AllocatedKey(claim.spec.resource_class_name)): Quantity.of(len(claim.spec.devices.requests))}
    total: Usage = {}
    for request in claim.spec.devices.requests:
        total = plus(total, _least_of(request))
    return total


def _least_of(request: DeviceRequest) -> Usage:
    """What the request is given at least."""
    if request.exactly is not None:
        return {} if request.exactly.admin_access else _usage_of(request.exactly)
    if len({one.device_class_name for one in request.first_available}) != 1:
        return {}
    return _usage_of(min(request.first_available, key=_count))


def _usage_of(request: ExactDeviceRequest | DeviceSubRequest) -> Usage:
    return {str(AllocatedKey(request.device_class_name)): Quantity.of(_count(request))}


def _count(request: ExactDeviceRequest | DeviceSubRequest) -> int:
    """Where it asks for all, at least one."""
    return 1 if request.allocation_mode == "All" else request.count
