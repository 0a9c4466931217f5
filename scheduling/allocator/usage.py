"""What is allocated: per pool, which devices are taken and how much of each shared device is consumed.

A `PoolUsage` is a value: giving and taking make a new one, so that a snapshot keeps what it saw. An entry with admin
access counts for nothing; an entry with a share id is a share of a device that allows multiple allocations; any other
takes the device exclusively (semantics of upstream's allocated state, dynamicresources/allocateddevices.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from claims.kinds.allocations import DeviceRequestAllocationResult
from manciple.wire.quantity import Quantity
from scheduling.allocator.pools import Generation
from scheduling.allocator.published import PoolKey


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares given out of one device: how many, and what they consume together (capacity name -> nanos)."""

    count: int = 0
    consumed: Mapping[str, int] = field(default_factory=dict)

    def plus(self, consumed: Mapping[str, int], *, sign: int) -> Shares:
        total = dict(self.consumed)
        for name, nanos in consumed.items():
            total[name] = total.get(name, 0) + sign * nanos
        return Shares(self.count + sign, {name: nanos for name, nanos in total.items() if nanos})


NO_SHARES = Shares()


class PoolUsage:
    """The allocated devices of one pool. `taken`: device name -> exclusive allocations (1, but for conflicts)."""

    __slots__ = ("_masks", "shares", "taken")

    def __init__(self, taken: Mapping[str, int], shares: Mapping[str, Shares]) -> None:
        self.taken = taken
        self.shares = shares
        self._masks: tuple[Generation, int, int] | None = None

    def masks(self, generation: Generation) -> tuple[int, int]:
        """(devices allocated exclusively, devices with shares), as bits of `generation`."""
        if self._masks is None or self._masks[0] is not generation:
            names = generation.bits_by_name
            self._masks = (generation, _mask(self.taken, names), _mask(self.shares, names))
        return self._masks[1], self._masks[2]

    def with_device(self, device: str, *, sign: int) -> PoolUsage:
        """One exclusive allocation more (sign 1) or less (sign -1)."""
        taken = dict(self.taken)
        taken[device] = taken.get(device, 0) + sign
        if taken[device] <= 0:
            del taken[device]
        return PoolUsage(taken, self.shares)

    def with_share(self, device: str, consumed: Mapping[str, int], *, sign: int) -> PoolUsage:
        """One share more (sign 1) or less (sign -1)."""
        shares = dict(self.shares)
        shares[device] = shares.get(device, NO_SHARES).plus(consumed, sign=sign)
        if shares[device].count <= 0:
            del shares[device]
        return PoolUsage(self.taken, shares)


def _mask(devices: Iterable[str], names: Mapping[str, int]) -> int:
    mask = 0
    for device in devices:
        mask |= names.get(device, 0)
    return mask


NO_USAGE = PoolUsage({}, {})


class UsageTable:
    """The usage of every pool, as a value: a large table that is shared, and a few newer entries over it."""

    __slots__ = ("_base", "_newer")

    #: newer entries that are carried along before they are merged into a table of their own
    MAX_NEWER = 128

    def __init__(self, base: Mapping[PoolKey, PoolUsage] | None = None) -> None:
        self._base: Mapping[PoolKey, PoolUsage] = base or {}
        self._newer: Mapping[PoolKey, PoolUsage] = {}

    def get(self, key: PoolKey) -> PoolUsage:
        """Of a pool that nobody has devices of, an empty one."""
        return self._newer.get(key) or self._base.get(key) or NO_USAGE

    def counted(self, results: Iterable[DeviceRequestAllocationResult], *, sign: int) -> UsageTable:
        """The table with `results` counted in (sign 1) or out (sign -1)."""
        newer = dict(self._newer)
        for result in results:
            if result.admin_access:
                continue
            key = PoolKey(result.driver, result.pool)
            before = newer.get(key) or self.get(key)
            if result.share_id is None:
                newer[key] = before.with_device(result.device, sign=sign)
            else:
                consumed = {name: Quantity.parse(text).nanos for name, text in result.consumed_capacity.items()}
                newer[key] = before.with_share(result.device, consumed, sign=sign)
        if len(newer) > self.MAX_NEWER:
            return UsageTable({**self._base, **newer})
        table = UsageTable(self._base)
        table._newer = newer
        return table
