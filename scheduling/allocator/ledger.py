"""What an allocation would give twice: the judgement of allocations that others have made. PURE.

    ledger.apply_slice(published); ledger.put(uid, allocation)    the cluster as it is
    ledger.overlaps(uid, allocation, instead={...})               what keeps `allocation` from being this claim's

The sums are the allocator's own (`Inventory`): pools that nodes share by name, pools in several slices or spread over
nodes, devices that draw more than their slice says by now. An allocation overlaps with what others hold where it takes

    a device      that another claim holds: all of it, or a share of a device that may not be shared; or twice by itself
    a capacity    of which the shares of the device would consume more than it has
    a counter     of which the devices of the pool would draw more than it has

Admin access holds nothing. What the claim held before is replaced. A limit that nobody publishes cannot be exceeded,
and one that others exceed already is none of an allocation that takes nothing of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    highest,
    node_of,
    pools_allocated_from,
)
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.pools import PoolKey
from manciple.wire.quantity import Quantity
from scheduling.allocator.published import Features, PublishedDevice
from scheduling.allocator.snapshot import (
    CounterKey,
    Inventory,
    PoolOnNode,
    PoolUsage,
    Snapshot,
    bits,
    needs,
)

#: (driver, pool name, device), as a result names a device
DeviceName = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """device: of the allocation; of a counter, the first that draws from it. limit: the capacity, or SET/COUNTER.

    holders: the uids of the others that hold it; none where the allocation takes too much by itself.
    """

    kind: Literal["device", "capacity", "counter"]
    pool: PoolKey
    device: str
    limit: str = ""
    holders: tuple[str, ...] = ()


class AllocationLedger:
    """One thread at a time."""

    def __init__(self) -> None:
        self._inventory = Inventory(Features())  # a server drops the fields of features that are off
        self._held: dict[str, AllocationResult] = {}
        #: device -> the uids of the claims that hold it, in the order in which they came
        self._holders: dict[DeviceName, dict[str, None]] = {}

    def apply_slice(self, published: ResourceSlice) -> None:
        self._inventory.apply_slice(published)

    def remove_slice(self, name: str) -> None:
        self._inventory.remove_slice(name)

    def put(self, uid: str, allocation: AllocationResult | None) -> None:
        """What the claim holds now."""
        before = self._held.pop(uid, None)
        for name in _names(before):
            holders = self._holders[name]
            del holders[uid]
            if not holders:
                del self._holders[name]
        if allocation is None:
            if before is not None:
                self._inventory.forget([uid])
            return
        self._held[uid] = allocation
        for name in _names(allocation):
            self._holders.setdefault(name, {})[uid] = None
        self._inventory.assume([(uid, allocation)])

    def overlaps(
        self, uid: str, allocation: AllocationResult, *, instead: Mapping[str, AllocationResult | None] | None = None
    ) -> tuple[Overlap, ...]:
        """Devices and capacities first, in the order of the results. instead: what others hold, where more is known."""
        if allocation.controller_name:  # a driver's controller knows which of its claims may share a device
            return ()
        with self._holding({**(instead or {}), uid: None}):
            return tuple(dict.fromkeys(self._overlaps(allocation)))

    @contextmanager
    def _holding(self, others: Mapping[str, AllocationResult | None]) -> Iterator[None]:
        before = {uid: self._held.get(uid) for uid in others}
        for uid, allocation in others.items():
            self.put(uid, allocation)
        try:
            yield
        finally:
            for uid, known in before.items():
                self.put(uid, known)

    def _overlaps(self, allocation: AllocationResult) -> Iterator[Overlap]:
        snapshot, node = self._inventory.snapshot(), node_of(allocation)
        results = [one for one in allocation.devices.results if not one.admin_access]
        by_pool: dict[PoolKey, list[DeviceRequestAllocationResult]] = defaultdict(list)
        for result in results:
            nodes = [key.node for key in self._inventory.pools_named(result.driver, result.pool)]
            for key in pools_allocated_from(result.driver, result.pool, node, nodes):
                by_pool[key].append(result)
        for key, taken in by_pool.items():
            yield from self._devices(key, taken, snapshot.pool_usage(key))
        for key, taken in by_pool.items():
            yield from self._counters(key, taken, snapshot)

    def _devices(
        self, key: PoolKey, results: Sequence[DeviceRequestAllocationResult], usage: PoolUsage
    ) -> Iterator[Overlap]:
        """Devices and capacities."""
        wholes = Counter(one.device for one in results if one.share_id is None)
        shares = Counter(one.device for one in results if one.share_id is not None)
        consumed: dict[str, Counter[str]] = defaultdict(Counter)
        for one in results:
            if one.share_id is not None:
                consumed[one.device].update(
                    {name: Quantity.parse(text).nanos for name, text in one.consumed_capacity.items()}
                )
        for device in dict.fromkeys(one.device for one in results):
            held = usage.shares.get(device)
            published = self._published(key, device)
            may_be_shared = not published or any(one.published.allow_multiple_allocations for one in published)
            by_others = usage.taken.get(device, 0) > 0 or (
                held is not None and bool(wholes[device] or not may_be_shared)
            )
            by_itself = (
                wholes[device] > 1 or (wholes[device] and shares[device]) or (shares[device] > 1 and not may_be_shared)
            )
            if by_others or by_itself:
                holders = self._holders_of(key, device) if by_others else ()
                yield Overlap(kind="device", pool=key, device=device, holders=holders)
                continue
            for name, nanos in consumed[device].items():
                totals = [one.capacities.totals[name] for one in published if name in one.capacities.totals]
                already = held.consumed.get(name, 0) if held is not None else 0
                if nanos and totals and nanos + already > max(totals):
                    holders = self._holders_of(key, device) if already else ()
                    yield Overlap(kind="capacity", pool=key, device=device, limit=name, holders=holders)

    def _counters(
        self, key: PoolKey, results: Iterable[DeviceRequestAllocationResult], snapshot: Snapshot
    ) -> Iterator[Overlap]:
        pool = self._inventory.published(key)
        if pool is None or not pool.newest.consuming:
            return
        view, usage = pool.whole, snapshot.pool_usage(key)
        drawn, first = Counter[CounterKey](), dict[CounterKey, str]()
        for device in dict.fromkeys(one.device for one in results):
            if device in usage.taken or device in usage.shares:
                continue  # it draws already
            positions = bits(view.generation.bits_by_name.get(device, 0))
            for counter, nanos in highest(view.generation.draws[one] for one in positions).items():
                drawn[counter] += nanos
                first.setdefault(counter, device)
        left = usage.counters_left(view, snapshot.usage) if drawn else {}
        for counter, nanos in drawn.items():
            if nanos and counter in left and nanos > left[counter]:
                holders = tuple(self._drawing(view, counter, snapshot))
                limit = "/".join(counter[1:])
                yield Overlap(kind="counter", pool=key, device=first[counter], limit=limit, holders=holders)

    def _drawing(self, view: PoolOnNode, counter: CounterKey, snapshot: Snapshot) -> Iterable[str]:
        """Who holds devices that draw from the counter, or drew from one when they were allocated."""
        found: dict[str, None] = {}
        for generation in (view.generation, *view.elsewhere):
            usage = snapshot.pool_usage(generation.key)
            for device in (*usage.taken, *usage.shares):
                draws = [
                    needs(generation.devices[one], view.key) for one in bits(generation.bits_by_name.get(device, 0))
                ]
                if device in usage.draws or any(counter in one for one in draws):
                    found |= dict.fromkeys(self._holders_of(generation.key, device))
        return found

    def _published(self, key: PoolKey, device: str) -> list[PublishedDevice]:
        """Several slices may have one of the name, for different nodes."""
        pool = self._inventory.published(key)
        if pool is None:
            return []
        return [pool.newest.devices[one] for one in bits(pool.newest.bits_by_name.get(device, 0))]

    def _holders_of(self, key: PoolKey, device: str) -> tuple[str, ...]:
        name = (key.driver, key.name, device)
        found = [uid for uid in self._holders.get(name, ()) if self._is_in(key, self._held[uid], name)]
        if not found:  # they hold it by another name of the pool
            renamed = [one for one in self._holders if (one[0], one[2]) == (key.driver, device)]
            found = [uid for one in renamed for uid in self._holders[one] if self._is_in(key, self._held[uid], one)]
        return tuple(found)

    def _is_in(self, key: PoolKey, allocation: AllocationResult, name: DeviceName) -> bool:
        return any(
            key in self._inventory.pools_in_use(one, allocation)
            for one in allocation.devices.results
            if not one.admin_access and (one.driver, one.pool, one.device) == name
        )


def _names(allocation: AllocationResult | None) -> dict[DeviceName, None]:
    """The devices that it holds."""
    if allocation is None:
        return {}
    return {(one.driver, one.pool, one.device): None for one in allocation.devices.results if not one.admin_access}
