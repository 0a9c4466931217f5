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

Usage = Mapping[PoolKey, PoolUsage]


def applied(usage: dict[PoolKey, PoolUsage], results: Iterable[DeviceRequestAllocationResult], *, sign: int) -> None:
    """Count `results` in (sign 1) or out (sign -1) of `usage`, in place."""
    for result in results:
        if result.admin_access:
            continue
        key = PoolKey(result.driver, result.pool)
        before = usage.get(key, NO_USAGE)
        if result.share_id is None:
            usage[key] = before.with_device(result.device, sign=sign)
        else:
            consumed = {name: Quantity.parse(text).nanos for name, text in result.consumed_capacity.items()}
            usage[key] = before.with_share(result.device, consumed, sign=sign)
