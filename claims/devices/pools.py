"""A pool as it is at one moment, and all pools together. Values: what changes is replaced by another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from claims.devices.cards import Layout, Unit, layout_of, unit_of
from claims.devices.holdings import Holder, Holders, state_of
from claims.devices.published import CandidateDevice, DeviceKey, DevicePool, Draw, PoolKey, is_blocked
from claims.devices.states import DeviceState


class PoolState:
    """What is published of a pool, and who holds which of its devices. Compared by identity.

    pool: None where nobody publishes it, though somebody holds something of it.
    """

    def __init__(self, key: PoolKey, pool: DevicePool | None, holders: Holders, layout: Layout | None = None) -> None:
        """layout: of this very pool, where it is known."""
        self.key = key
        self.pool = pool
        self.holders = holders
        self.layout: Layout = layout if layout is not None else layout_of(pool) if pool is not None else ()

    def held_by(self, holders: Holders) -> PoolState:
        """The same pool with other holders."""
        return PoolState(self.key, self.pool, holders, self.layout)

    @property
    def complete(self) -> bool:
        return self.pool is not None and self.pool.complete

    @property
    def candidates(self) -> Iterable[CandidateDevice]:
        return self.pool.candidates if self.pool is not None else ()

    @cached_property
    def left(self) -> Draw:
        """counter set -> counter -> what is left of it, in nanos."""
        return self.pool.left(self.holders) if self.pool is not None else {}

    @cached_property
    def states(self) -> Mapping[CandidateDevice, DeviceState]:
        """Of every published device, partitions each by themselves."""
        return {one: self._state(one) for one in self.candidates}

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """In published order; devices that are held though nobody publishes them come last."""
        known = {one.key for one in self.candidates}
        unpublished = (
            Unit(key=key, state=DeviceState.UNPUBLISHED, holders=self.holders[key])
            for key in sorted(self.holders.keys() - known)
        )
        return (*(unit_of(one, self) for one in self.layout), *unpublished)

    @cached_property
    def counts(self) -> Counter[DeviceState]:
        """state -> units."""
        return Counter(unit.state for unit in self.units)

    def candidate(self, device: DeviceKey) -> CandidateDevice | None:
        return next((one for one in self.candidates if one.key == device), None)

    def state(self, device: DeviceKey) -> DeviceState:
        found = self.candidate(device)
        return DeviceState.UNPUBLISHED if found is None else self.states[found]

    def _state(self, one: CandidateDevice) -> DeviceState:
        blocked = bool(one.draws) and is_blocked(one, self.left)
        return state_of(one, self.holders.get(one.key, ()), complete=self.complete, blocked=blocked)


@dataclass(frozen=True, kw_only=True)
class DeviceSnapshot:
    """All pools at one revision. cordoned: names of the nodes that take no new pods."""

    revision: int
    pools: Mapping[PoolKey, PoolState]
    cordoned: frozenset[str]
    #: every published device, in published order; the same tuple as long as nothing is published anew
    candidates: tuple[CandidateDevice, ...]

    @property
    def published(self) -> Iterable[DevicePool]:
        """The pools that somebody publishes."""
        return (state.pool for state in self.pools.values() if state.pool is not None)

    @cached_property
    def counts(self) -> Counter[str]:
        """state -> units."""
        found: Counter[str] = Counter()
        for pool in self.pools.values():
            found.update(pool.counts)
        return found

    def candidate(self, device: DeviceKey) -> CandidateDevice | None:
        pool = self.pools.get(device[:2])
        return pool.candidate(device) if pool is not None else None

    def held_by(self, device: DeviceKey) -> tuple[Holder, ...]:
        pool = self.pools.get(device[:2])
        return pool.holders.get(device, ()) if pool is not None else ()

    def state(self, device: DeviceKey) -> DeviceState:
        pool = self.pools.get(device[:2])
        return DeviceState.UNPUBLISHED if pool is None else pool.state(device)

    def state_of(self, candidate: CandidateDevice) -> DeviceState:
        return self.pools[candidate.key[:2]].states[candidate]
