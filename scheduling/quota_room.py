"""What the quotas of a namespace leave for allocations, as a scheduling worker knows it. PURE.

Quotas may limit what claims hold (`claims.kinds.allocated_usage`). The writer charges them in the transaction of the
commit, and would refuse it. So that no search, no eviction and no commit is made in vain, a pod is asked twice before:
by the least that its claims can be given (`hold_before`), then by what was found for it (`hold_after`). What the
batch has given out so far counts. A pod that is held waits until the quota has room; nobody is evicted for it, since a
quota holds whoever it is for, whatever its priority.

Alternatives of a request for which there is no room are left out of the search (`within`), so that another one is
found where one has room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from claims.kinds.allocated_usage import AllocatedKey, Draws, usage_of_allocation
from claims.kinds.quota_usage import NONE, QuotaLimits, Usage, parsed, plus
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from manciple.wire.quantity import Quantity
from scheduling.causes import Hold, QuotaUsedUp, Reason, quota_key


class QuotaRoom:
    """Of all namespaces; empty where no quota limits what is held."""

    def __init__(self, draws: Draws) -> None:
        """draws: what a published device draws from counters."""
        self._draws = draws
        #: namespace -> quota -> (its limits, what is used of those that are counted)
        self._quotas: dict[str, dict[str, tuple[QuotaLimits, Usage]]] = {}
        #: namespace -> what the batch has given out and not committed
        self._assumed: dict[str, Usage] = {}

    def put(self, quota: ResourceQuota) -> None:
        limits = QuotaLimits.of(quota)
        if not limits.of_allocations:
            self.remove(quota)
            return
        found = self._quotas.setdefault(quota.metadata.namespace, {})
        found[limits.name] = limits, parsed(quota.status.used)

    def remove(self, quota: ResourceQuota) -> None:
        found = self._quotas.get(quota.metadata.namespace, {})
        found.pop(quota.metadata.name, None)
        if not found:
            self._quotas.pop(quota.metadata.namespace, None)

    def copied(self, draws: Draws) -> QuotaRoom:
        """The same; neither shows what changes in the other."""
        made = QuotaRoom(draws)
        made._quotas = {namespace: dict(found) for namespace, found in self._quotas.items()}
        made._assumed = dict(self._assumed)
        return made

    def limits(self, namespace: str) -> bool:
        """Whether any quota limits what claims of the namespace hold."""
        return namespace in self._quotas

    # Asking ----------------------------------------------------------------------------------------------------------

    def hold_before(self, namespace: str, claims: Iterable[ResourceClaim]) -> Hold | None:
        """What keeps these claims from being given even the least that they ask for."""
        if namespace not in self._quotas:
            return None
        least: dict[str, Quantity] = defaultdict(lambda: NONE)
        for claim in claims:
            for request in claim.spec.devices.requests if claim.status.allocation is None else ():
                held = [self._hold(namespace, _usage_of(one)) for one in request.first_available]
                if held and all(held):
                    return held[0]
                for key, amount in _least(request).items():
                    least[key] += amount
        return self._hold(namespace, least)

    def hold_after(
        self, namespace: str, claims: Iterable[ResourceClaim], given: Mapping[str, AllocationResult]
    ) -> Hold | None:
        """What keeps these claims from what was found for them. given: claim uid -> its allocation."""
        return self._hold(namespace, self._usage(namespace, claims, given))

    def within(self, namespace: str, claims: Sequence[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        """The claims without the alternatives for which there is no room."""
        if namespace not in self._quotas:
            return tuple(claims)
        return tuple(self._narrowed(namespace, claim) if claim.status.allocation is None else claim for claim in claims)

    def _narrowed(self, namespace: str, claim: ResourceClaim) -> ResourceClaim:
        asked = claim.spec.devices.requests
        requests = tuple(self._with_room(namespace, request) for request in asked)
        if all(one is other for one, other in zip(requests, asked, strict=True)):
            return claim
        devices = structs.replace(claim.spec.devices, requests=requests)
        return structs.replace(claim, spec=structs.replace(claim.spec, devices=devices))

    def _with_room(self, namespace: str, request: DeviceRequest) -> DeviceRequest:
        def has_room(one: DeviceSubRequest) -> bool:
            return self._hold(namespace, _usage_of(one)) is None

        left = tuple(filter(has_room, request.first_available))
        # Where none has room, the refusal is to name the quota: see `hold_before`.
        return (
            request if not left or left == request.first_available else structs.replace(request, first_available=left)
        )

    def _hold(self, namespace: str, wanted: Usage) -> Hold | None:
        assumed = self._assumed.get(namespace, {})
        for name, (limits, used) in sorted(self._quotas.get(namespace, {}).items()):
            for key, amount in sorted(wanted.items()):
                if amount.sign <= 0 or key not in limits.hard or key not in used or limits.scopes:
                    continue
                taken = used[key] + assumed.get(key, NONE)
                if taken + amount > limits.hard[key]:
                    cause = QuotaUsedUp(
                        quota=name,
                        key=key,
                        requested=amount.canonical(),
                        used=taken.canonical(),
                        hard=limits.hard[key].canonical(),
                    )
                    return Hold(reasons=Reason.QUOTA, awaited=frozenset({quota_key(namespace, name)}), cause=cause)
        return None

    # Assuming --------------------------------------------------------------------------------------------------------

    def assume(self, namespace: str, claims: Iterable[ResourceClaim], given: Mapping[str, AllocationResult]) -> None:
        """Count these allocations as if they were committed."""
        if given and namespace in self._quotas:
            used = self._usage(namespace, claims, given)
            self._assumed[namespace] = plus(self._assumed.get(namespace, {}), used)

    def drop_assumptions(self) -> None:
        self._assumed.clear()

    def _usage(self, namespace: str, claims: Iterable[ResourceClaim], given: Mapping[str, AllocationResult]) -> Usage:
        total: Usage = {}
        for claim in claims if namespace in self._quotas else ():
            if (allocation := given.get(claim.metadata.uid)) is not None:
                total = plus(total, usage_of_allocation(claim, allocation, self._draws))
        return total


def _least(request: DeviceRequest) -> Usage:
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
