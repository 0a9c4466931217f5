"""What a search has taken so far, and how each step is undone.

`take` checks what can change during a search, in upstream's order (in use, counters, constraints, capacity), and
records the device; `give_back` undoes the last `take` exactly.

Shared counters are what the devices of a pool draw on together. A `CounterLedger` starts with what the allocated
devices leave: each counter's value less the consumption of every device of the pool that is allocated, wherever that
device is visible. The search charges a device before it takes it and refunds it when it lets go. Counters belong to
their pool; a device is checked against the counters that it consumes alone.

Admin access holds nothing: it draws no counters and takes no share. As in upstream, a claim gets an exclusive device
once, and a request gets none to which an earlier one of the same search has admin access.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inventory.kinds.pools import PoolKey
from scheduling.allocator.pools import CounterKey, NodeDevices, PoolOnNode, union
from scheduling.allocator.problem import AllocationProblem, ConstraintOnNode, RequestOnNode
from scheduling.allocator.published import Consumption
from scheduling.allocator.snapshot import UsageTable


class CounterLedger:
    """What is left of each counter, in nanos, during one search."""

    def __init__(self, devices: NodeDevices, usage: UsageTable) -> None:
        self._devices = devices
        self._usage = usage
        self._left: dict[CounterKey, int] = {}
        self._opened: set[PoolKey] = set()

    def charge(self, position: int) -> bool:
        """Draw the device's counters, if there is enough of each."""
        needs = self._needs(position)
        if any(self._left.get(key, 0) < nanos for key, nanos in needs.items()):
            return False
        for key, nanos in needs.items():
            self._left[key] -= nanos
        return True

    def refund(self, position: int) -> None:
        for key, nanos in self._needs(position).items():
            self._left[key] += nanos

    def state(self) -> tuple[tuple[CounterKey, int], ...]:
        """A hashable snapshot of what is left."""
        return tuple(self._left.items())

    def _needs(self, position: int) -> Mapping[CounterKey, int]:
        index = self._devices.pool_index(position)
        view = self._devices.pools[index]
        if view.key not in self._opened:
            self._open(view)
        return view.generation.draws[position - self._devices.shifts[index]]

    def _open(self, view: PoolOnNode) -> None:
        self._opened.add(view.key)
        self._left |= self._usage.get(view.key).counters_left(view, self._usage)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """One device in hand. `values_before`: the constraint states to go back to."""

    step: int
    claim: int
    request: RequestOnNode
    position: int
    charged: bool = False
    consumed: Consumption | None = None  # what a share takes; None for an exclusive device and for admin access
    values_before: tuple[tuple[int, int], ...] = ()


class SearchState:
    """Mutable; owned by one search."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._problem = problem
        self.taken: list[Taken] = []
        self.chosen: list[int] = []
        #: devices that are taken exclusively, or with admin access: by anybody, and by each claim
        self.occupied = 0
        self.occupied_by = [0] * len(problem.claims)
        #: matchAttribute: the values that all devices so far have in common; distinctAttribute: the values used
        self.values = [0 if one.plan.distinct else one.all_values for one in problem.constraints]
        #: devices so far under each constraint
        self.covered = [0] * len(problem.constraints)
        self.refused_by_constraint = False
        self.ledger = CounterLedger(problem.devices, problem.snapshot.usage)
        #: position -> what each share taken in this search consumes
        self.shares: dict[int, list[Consumption]] = {}
        #: devices so far of each claim
        self.results = [0] * len(problem.claims)

    def blocked(self, request: RequestOnNode, claim: int) -> int:
        """Devices that the request cannot take because this search took them. Shared ones are never blocked."""
        return self.occupied_by[claim] if request.plan.admin else self.occupied

    def take(self, step: int, request: RequestOnNode, position: int) -> bool:
        """Take the device if it is still to be had."""
        claim, bit = self._problem.steps[step][0], 1 << position
        self.refused_by_constraint = False
        if bit & self.blocked(request, claim):
            return False
        share = bool(bit & self._problem.shared) and not request.plan.admin
        charged = self._problem.draws(request, position) and not (share and self._is_shared_out(position))
        if charged and not self.ledger.charge(position):
            return False
        consumed = self._consumption(request, position) if share else None
        before = self._constrain(request, position)
        if before is None or (consumed is not None and not self._has_room(position, consumed)):
            self.refused_by_constraint = before is None
            self._restore(before or ())
            if charged:
                self.ledger.refund(position)
            return False
        self._record(
            Taken(
                step=step,
                claim=claim,
                request=request,
                position=position,
                charged=charged,
                consumed=consumed,
                values_before=before,
            )
        )
        return True

    def give_back(self) -> None:
        """Undo the last `take`."""
        last = self.taken.pop()
        self.results[last.claim] -= 1
        bit = 1 << last.position
        if last.consumed is not None:
            self.shares[last.position].pop()
        elif not bit & self._problem.shared:
            self.occupied_by[last.claim] &= ~bit
            self.occupied = union(self.occupied_by)
        self._restore(last.values_before)
        if last.charged:
            self.ledger.refund(last.position)

    def _record(self, taken: Taken) -> None:
        self.taken.append(taken)
        self.results[taken.claim] += 1
        bit = 1 << taken.position
        if taken.consumed is not None:
            self.shares.setdefault(taken.position, []).append(taken.consumed)
        elif not bit & self._problem.shared:
            self.occupied_by[taken.claim] |= bit
            self.occupied |= bit

    def _is_shared_out(self, position: int) -> bool:
        return bool(self.shares.get(position)) or self._problem.has_shares(position)

    def _has_room(self, position: int, consumed: Consumption) -> bool:
        """Beside the allocated shares and those of this search."""
        now = ({name: amount.nanos for name, amount in one.items()} for one in self.shares.get(position, ()))
        capacities = self._problem.devices.device(position).capacities
        return capacities.fits(consumed, self._problem.consumed_before(position), *now)

    def _consumption(self, request: RequestOnNode, position: int) -> Consumption | None:
        return self._problem.devices.device(position).capacities.consumption(request.plan.capacity)

    def _constrain(self, request: RequestOnNode, position: int) -> tuple[tuple[int, int], ...] | None:
        """Put the device under the request's constraints; what to restore, or None (nothing changed) if one refuses."""
        before: list[tuple[int, int]] = []
        for index in request.constraints:
            constraint = self._problem.constraints[index]
            after = joined(constraint, self.values[index], self.covered[index], position)
            if after is None:
                self._restore(before)
                return None
            before.append((index, self.values[index]))
            self.values[index] = after
            self.covered[index] += 1
        return tuple(before)

    def _restore(self, before: tuple[tuple[int, int], ...] | list[tuple[int, int]]) -> None:
        for index, values in before:
            self.values[index] = values
            self.covered[index] -= 1


def joined(constraint: ConstraintOnNode, values: int, covered: int, position: int) -> int | None:
    """The constraint's state with one device more; None where it refuses the device."""
    carried = constraint.of_device.get(position, 0)
    if not carried:
        return None
    if not constraint.plan.distinct:
        return values & carried or None
    if values & carried or (covered and carried & constraint.odd):
        return None
    return values | carried
