"""A pool as it is at one moment, and all pools together. Values: what changes is replaced by another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from claims.devices.cards import Layout, Unit, layout_of, unit_of
from claims.devices.holdings import Holder, Holders, state_of
from claims.devices.nodes import NodeState
from claims.devices.published import CandidateDevice, DeviceKey, DevicePool, Draw, Published, is_blocked, pool_of
from claims.devices.states import OUT_OF_USE, DeviceState, by_use
from inventory.kinds.pools import PoolKey
from manciple.copying import immutable
from manciple.per_process import PerProcess
from manciple.wire.base import Alike

#: many pools are in the same state
_masks = Alike[Mapping[DeviceState, int]]()
_counts = Alike[Counter[DeviceState]]()


@immutable
class PoolState:
    """What is published of a pool, and who holds which of its devices. Compared by identity.

    pool: without slices where nobody publishes it, though somebody holds something of it.
    """

    def __init__(self, pool: DevicePool, holders: Holders, layout: Layout | None = None) -> None:
        """layout: of this very pool, where it is known."""
        self.pool = pool
        self.holders = holders
        self.layout = layout_of(pool) if layout is None else layout

    def held_by(self, holders: Holders) -> PoolState:
        """The same pool with other holders."""
        return PoolState(self.pool, holders, self.layout)

    @property
    def complete(self) -> bool:
        return self.pool.complete

    @property
    def candidates(self) -> Iterable[CandidateDevice]:
        return self.pool.candidates

    @cached_property
    def left(self) -> Draw:
        """counter set -> counter -> what is left of it, in nanos."""
        return self.pool.left(
            {device: [one.drawn for one in holders if one.drawn] for device, holders in self.holders.items()}
        )

    @cached_property
    def masks(self) -> Mapping[DeviceState, int]:
        """state -> the devices in it, a bit each, by `candidates`."""
        found: dict[DeviceState, int] = {}
        for place, state in enumerate(map(self.state_of, self.candidates)):
            found[state] = found.get(state, 0) | 1 << place
        return _masks.first(tuple(found.items()), found)

    @cached_property
    def held(self) -> int:
        """The devices that somebody holds, a bit each, by `candidates`."""
        return sum(1 << place for place, one in enumerate(self.candidates) if one.key in self.holders)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """In published order; devices that are held though nobody publishes them come last."""
        known = {one.key for one in self.candidates}
        unpublished = (
            Unit(stands=key, state=DeviceState.UNPUBLISHED, holders=self.holders[key])
            for key in sorted(self.holders.keys() - known)
        )
        return (*(unit_of(one, self) for one in self.layout), *unpublished)

    @cached_property
    def counts(self) -> Counter[DeviceState]:
        """state -> units."""
        found = Counter(unit.state for unit in self.units)
        return _counts.first(tuple(found.items()), found)

    @cached_property
    def held_out_of_use(self) -> Counter[DeviceState]:
        """state -> units that somebody holds although they are out of use."""
        return Counter(unit.state for unit in self.units if unit.holders and unit.state in OUT_OF_USE)

    def candidate(self, device: DeviceKey) -> CandidateDevice | None:
        return next((one for one in self.candidates if one.key == device), None)

    def state(self, device: DeviceKey) -> DeviceState:
        found = self.candidate(device)
        return DeviceState.UNPUBLISHED if found is None else self.state_of(found)

    def state_of(self, one: CandidateDevice) -> DeviceState:
        """Of a published device; partitions each by themselves."""
        blocked = bool(one.draws) and is_blocked(one, self.left)
        return state_of(one, self.holders.get(one.key, ()), complete=self.complete, blocked=blocked)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceSnapshot:
    """All pools and nodes at one revision. memo: what others derived from it."""

    revision: int
    pools: Mapping[PoolKey, PoolState]
    nodes: Mapping[str, NodeState]
    published: Published
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def candidates(self) -> tuple[CandidateDevice, ...]:
        """Every published device, in published order."""
        return self.published.candidates

    @cached_property
    def cordoned(self) -> frozenset[str]:
        """Names of nodes that take no new pods."""
        return frozenset(node.name for node in self.nodes.values() if node.cordoned)

    @property
    def published_pools(self) -> Iterable[DevicePool]:
        """The pools that somebody publishes."""
        return (state.pool for state in self.pools.values() if state.pool.slices)

    @cached_property
    def counts(self) -> Counter[str]:
        """state -> units."""
        found: Counter[str] = Counter()
        for pool in self.pools.values():
            found.update(pool.counts)
        return found

    @cached_property
    def by_use(self) -> Mapping[str, int]:
        """state -> units, those that are held as held."""
        out_of_use: Counter[str] = Counter()
        for pool in self.pools.values():
            out_of_use.update(pool.held_out_of_use)
        return by_use(self.counts, out_of_use)

    def named(self, driver: str, pool: str, device: str) -> Iterator[CandidateDevice]:
        """The published devices of these names, in published order; "" for any."""
        for key in sorted(key for key in self.pools if driver in ("", key.driver) and pool in ("", key.name)):
            yield from (one for one in self.pools[key].candidates if device in ("", one.name))

    def find(self, driver: str, pool: str, name: str, node: str = "") -> DeviceKey:
        """The key of a device, if only the node of its allocation is known, or none: of several, the pool named after
        its node first, then the one of no single node. Without any, the key that was asked for.
        """
        keys = [(driver, pool, name, one) for one in ((node, "") if node else (pool, ""))]
        if node == "" and not any(PoolKey(driver, pool, one) in self.pools for one in (pool, "")):
            keys = [(driver, pool, name, key.node) for key in sorted(self.pools) if key[:2] == (driver, pool)]
        known = [key for key in keys if pool_of(key) in self.pools]
        published = (key for key in known if self.candidate(key) is not None)
        held = (key for key in known if self.held_by(key))
        return next(published, None) or next(held, None) or (driver, pool, name, node)

    def candidate(self, device: DeviceKey) -> CandidateDevice | None:
        pool = self.pools.get(pool_of(device))
        return pool.candidate(device) if pool is not None else None

    def held_by(self, device: DeviceKey) -> tuple[Holder, ...]:
        pool = self.pools.get(pool_of(device))
        return pool.holders.get(device, ()) if pool is not None else ()

    def state(self, device: DeviceKey) -> DeviceState:
        pool = self.pools.get(pool_of(device))
        return DeviceState.UNPUBLISHED if pool is None else pool.state(device)

    def state_of(self, candidate: CandidateDevice) -> DeviceState:
        return self.pools[candidate.home].state_of(candidate)


Key = TypeVar("Key")
#: (before, after, what differs) of the last question
_last = PerProcess[tuple[Any, Any, frozenset[Any]]](lambda: ({}, {}, frozenset()))


def changed(before: Mapping[Key, object], after: Mapping[Key, object]) -> frozenset[Key]:
    """The keys that came, went, or have another object now. Many ask for the same two, one after the other."""
    last = _last.value
    if last[0] is not before or last[1] is not after:
        keys = before.keys() | after.keys() if before is not after else ()
        last = (before, after, frozenset(key for key in keys if before.get(key) is not after.get(key)))
        _last.value = last
    found: frozenset[Key] = last[2]
    return found
