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
        known = self._masks
        if known is None or known[0] is not generation:
            names = generation.bits_by_name
            known = self._masks = (generation, _mask(self.taken, names), _mask(self.shares, names))
        return known[1], known[2]

    def with_device(self, device: str, *, sign: int) -> PoolUsage:
        """One exclusive allocation more (sign 1) or less (sign -1)."""
        taken = dict(self.taken)
        left = taken.get(device, 0) + sign
        if left > 0:
            taken[device] = left
        else:
            taken.pop(device, None)
        made = PoolUsage(taken, self.shares)
        known = self._masks
        if known is not None and len(taken) != len(self.taken):
            # One device came or went: its bit changes.
            made._masks = (known[0], known[1] ^ known[0].bits_by_name.get(device, 0), known[2])
        return made

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


class UsageLog:
    """The usage of every pool, which changes, with the log by which what it was before can still be told.

    Entry i of `entries` is (pool, its usage before the change number i). The owner starts a new log (`continued`) once
    this one has grown `long`; whoever still reads at an earlier version keeps this one.
    """

    __slots__ = ("_now", "began", "entries", "previous")

    #: Entries after which a log is long: each holds the usage of a pool as it was.
    LONG = 16_384

    def __init__(self, now: dict[PoolKey, PoolUsage] | None = None, *, previous: UsageLog | None = None) -> None:
        self._now = now or {}
        #: the log that this one goes on from
        self.previous = previous
        #: changes that were counted before this log
        self.began: int = previous.began + len(previous.entries) if previous is not None else 0
        self.entries: list[tuple[PoolKey, PoolUsage]] = []

    @property
    def is_long(self) -> bool:
        return len(self.entries) > self.LONG

    def continued(self) -> UsageLog:
        """A log with the same usage. Of the past it knows this log alone."""
        self.previous = None
        return UsageLog(dict(self._now), previous=self)

    def copied(self) -> UsageLog:
        """A log with the same usage and no past."""
        return UsageLog(dict(self._now))

    def count(self, result: DeviceRequestAllocationResult, *, sign: int) -> None:
        """Count `result` in (sign 1) or out (sign -1)."""
        if result.admin_access:
            return
        key = PoolKey(result.driver, result.pool)
        before = self._now.get(key, NO_USAGE)
        self.entries.append((key, before))
        if result.share_id is None:
            self._now[key] = before.with_device(result.device, sign=sign)
        else:
            consumed = {name: Quantity.parse(text).nanos for name, text in result.consumed_capacity.items()}
            self._now[key] = before.with_share(result.device, consumed, sign=sign)

    def latest(self, key: PoolKey) -> PoolUsage:
        """Of a pool that nobody has devices of, an empty one."""
        return self._now.get(key, NO_USAGE)


class UsageTable:
    """The usage as it was after the first `version` changes of `log`: a value, though the log goes on."""

    __slots__ = ("_undone", "log", "version")

    def __init__(self, log: UsageLog, version: int) -> None:
        self.log = log
        self.version = version
        #: pools that changed since, as they were; up to which version that was read
        self._undone: tuple[int, dict[PoolKey, PoolUsage]] = (version, {})

    @property
    def age(self) -> int:
        """Changes before it: of two tables of one inventory, the later one has more."""
        return self.log.began + self.version

    def get(self, key: PoolKey) -> PoolUsage:
        """Of a pool that nobody has devices of, an empty one."""
        if len(self.log.entries) != self._undone[0]:
            self._read_on()
        before = self._undone[1].get(key)
        return self.log.latest(key) if before is None else before

    def _read_on(self) -> None:
        """The first change of a pool since the version tells what the pool was."""
        read, undone = self._undone
        for key, before in self.log.entries[read:]:
            undone.setdefault(key, before)
        self._undone = (len(self.log.entries), undone)
