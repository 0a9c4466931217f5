"""The search: the first solution in the reference's order, or the proof that there is none.

Claims, requests and devices are visited in order; within a request the next device stands after the previous one. The
stack holds one frame per open choice: an alternative of a request, one device of it, or the next device of
`allocationMode: All`. A frame's `advance` takes back its last choice and makes the next one; when it cannot, the
frame is dropped and the one below advances. Nothing is recursive, so a pod may have any number of claims. The search
stops after a number of device trials, or at its `Deadline`, whichever comes first.
Order and errors: allocateOne of upstream's structured/internal/experimental/allocator_experimental.go (v1.37).

**State.** `SearchState.take` checks what can change during a search, in upstream's order (in use, counters,
constraints, capacity), and records the device; `give_back` undoes the last `take` exactly. The devices of a pool draw
on shared counters: a `CounterLedger` starts with what the allocated devices leave: each counter's value less the
consumption of every allocated device of the pool, wherever that device is visible. The search charges a device before
it takes it and refunds it when it gives it back. Admin access holds nothing: it draws no counters and takes no share.
As in upstream, a claim gets an exclusive device once, and a request gets none to which an earlier one of the same
search has admin access.

**Pruning.** Each frame asks the `Pruner` whether the rest can still be met. It drops branches only if they have no
solution, so the first solution stays the first. If an error could be reached (a selector that errs, All under a
constraint) pruning is off: which error comes up depends on every step of the plain order. Four proofs, each cheap next
to the branch that it saves:
- counting, to a fixpoint: a value of a matchAttribute constraint survives if enough free devices carry it for each
  request that it covers and for all of them together; candidates shrink to the survivors; every request must keep
  enough. For distinctAttribute there must be as many unused values as devices still needed.
- matching (once something failed): the devices still needed form a bipartite graph with the free ones; without a
  perfect matching there is no solution.
- counters: a device that draws more than was left before the search began cannot be taken.
- memory: a choice that failed fails again in the same state; and of two devices with the same membership in every
  candidate set and value, and the same counters, the second cannot succeed if the first failed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from claims.causes.causes import Fault, Misconfigured
from inventory.kinds.pools import PoolKey
from manciple.wire.limits import Deadline, check_time
from scheduling.allocator.outcome import AllocationFailed, Undecided
from scheduling.allocator.problem import MAX_RESULTS, AllocationProblem, ConstraintOnNode, RequestOnNode
from scheduling.allocator.published import Consumption
from scheduling.allocator.requests import error_on
from scheduling.allocator.snapshot import CounterKey, NodeDevices, PoolOnNode, UsageTable, bits, union


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
    """A device that the search holds. `values_before`: the constraint states to restore."""

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
        #: devices that are taken exclusively, or with admin access: in all, and by each claim
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
        """Devices that the request cannot take because this search holds them. Shared ones are never blocked."""
        return self.occupied_by[claim] if request.plan.admin else self.occupied

    def take(self, step: int, request: RequestOnNode, position: int) -> bool:
        """Take the device if it is still available."""
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
        """Add the device to the request's constraints. What to restore; None, with no change, if one refuses it."""
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
    """The constraint's state with one more device; None if it refuses the device."""
    carried = constraint.of_device.get(position, 0)
    if not carried:
        return None
    if not constraint.plan.distinct:
        return values & carried or None
    if values & carried or (covered and carried & constraint.odd):
        return None
    return values | carried


#: Failed states kept per search; past that many the search goes on without remembering more.
MAX_REMEMBERED = 50_000


@dataclass(slots=True)
class _Need:
    """What a request still needs: how many devices, out of which."""

    request: RequestOnNode
    claim: int
    count: int
    free: int


class Pruner:
    """Reads the search's state; owned by one search."""

    def __init__(self, problem: AllocationProblem, state: SearchState) -> None:
        self._problem = problem
        self._state = state
        self._failed: set[Hashable] = set()
        self._stumbled = False
        #: position -> the devices that are equivalent to it, a cache
        self._alike: dict[int, int] = {}
        #: constraint -> value bits -> the devices that carry these, of those that carry several
        self._several: dict[int, dict[int, int]] = {}
        self._hopeless = problem.drained & ~problem.shared
        self._trivial = len(problem.steps) == 1 and not problem.constraints
        self._ahead = self._relevant_ahead()

    def _relevant_ahead(self) -> list[int]:
        """Of each step, the devices that it or a later step could take."""
        masks = [0]
        for _, alternatives in reversed(self._problem.steps):
            masks.append(union((masks[-1], *(one.candidates for one in alternatives))))
        return masks[::-1]

    def _key(self, step: int, alternative: int, *, index: int, last: int) -> Hashable:
        """All of the state that the rest of the search depends on: equal when a choice opens and when it fails."""
        state = self._state
        claim = self._problem.steps[step][0]
        ahead = self._ahead[step]
        held = tuple(mask & ahead for mask in state.occupied_by)
        shares = tuple((at, len(some), id(some[-1])) for at, some in sorted(state.shares.items()) if some)
        constraints = tuple(zip(state.values, state.covered, strict=True)) if state.values else ()
        return (
            step,
            alternative,
            index,
            last,
            state.results[claim],
            held,
            constraints,
            shares,
            state.ledger.state(),
        )

    def remember_failure(self, step: int, alternative: int, *, index: int, last: int) -> None:
        """Call when a choice has no device left to try, and what it took is given back."""
        self._stumbled = True
        if len(self._failed) < MAX_REMEMBERED:
            self._failed.add(self._key(step, alternative, index=index, last=last))

    def promising(self, step: int, alternative: int, *, index: int, last: int) -> int:
        """The devices worth trying for this choice; 0 if the rest cannot be met whatever is chosen.

        Until something fails, only the very first choice is examined as a whole: nearly always it leads to a solution.
        """
        if not self._stumbled and (step or index):
            return self._permitted(self._problem.steps[step][1][alternative])
        if self._failed and self._key(step, alternative, index=index, last=last) in self._failed:
            return 0
        wanted = self._needs(step, alternative, index=index, last=last)
        if self._trivial:
            return wanted[0].free if wanted[0].free.bit_count() >= wanted[0].count else 0
        if not self._counts(wanted):
            return 0
        if self._stumbled and not matchable(self._exclusive(wanted)):
            return 0
        return wanted[0].free

    def _candidates(self, request: RequestOnNode) -> int:
        """The candidates for which the counters sufficed when the search began; admin access draws none."""
        return request.candidates if request.plan.admin else request.candidates & ~self._hopeless

    def _permitted(self, request: RequestOnNode) -> int:
        """The candidates that the constraints do not refuse as they stand."""
        permitted = self._candidates(request)
        for index in request.constraints:
            permitted &= self._alive(index)
        return permitted

    def _alive(self, index: int) -> int:
        """The devices that a constraint would take now."""
        constraint, values = self._problem.constraints[index], self._state.values[index]
        if constraint.plan.distinct:
            values = constraint.all_values & ~values
            if self._state.covered[index]:
                values &= ~constraint.odd
        mask = 0
        for number in bits(values):
            mask |= constraint.carriers[number]
        return mask

    def _needs(self, step: int, alternative: int, *, index: int, last: int) -> list[_Need]:
        """The rest of this request first, then every later request that has no alternatives."""
        problem, state = self._problem, self._state
        claim, alternatives = problem.steps[step]
        request = alternatives[alternative]
        free = self._candidates(request) & (-1 << (last + 1)) & ~state.blocked(request, claim)
        wanted = [_Need(request, claim, request.count - index, free)]
        for later_claim, options in problem.steps[step + 1 :]:
            if len(options) == 1:
                one = options[0]
                later = self._candidates(one) & ~state.blocked(one, later_claim)
                wanted.append(_Need(one, later_claim, one.count, later))
        return wanted

    def _counts(self, wanted: Sequence[_Need]) -> bool:
        """Counting to a fixpoint; narrows `free` in place."""
        covering: dict[int, list[_Need]] = {}
        for need in wanted:
            for index in need.request.constraints:
                covering.setdefault(index, []).append(need)
        while True:
            before = sum(need.free.bit_count() for need in wanted)
            for index, covered in covering.items():
                self._narrow(index, covered)
            if any(need.free.bit_count() < need.count for need in wanted):
                return False
            if not all(self._has_values(index, covered) for index, covered in covering.items()):
                return False
            if sum(need.free.bit_count() for need in wanted) == before:
                return True

    def _narrow(self, index: int, covered: Sequence[_Need]) -> None:
        """Leave each covered request only devices with a value that can still serve all of them."""
        constraint = self._problem.constraints[index]
        if constraint.plan.distinct:
            allowed = self._alive(index)
        else:
            allowed = 0
            for number in bits(self._state.values[index]):
                carriers = constraint.carriers[number]
                if self._enough(carriers, covered):
                    allowed |= carriers
        for need in covered:
            if need.count:
                need.free &= allowed

    def _enough(self, carriers: int, covered: Sequence[_Need]) -> bool:
        union = total = 0
        for need in covered:
            free = need.free & carriers
            if free.bit_count() < need.count:
                return False
            union |= free
            total += need.count
        return bool(union & self._problem.shared) or union.bit_count() >= total

    def _has_values(self, index: int, covered: Sequence[_Need]) -> bool:
        """distinctAttribute: each device needed takes at least one value that no other takes."""
        constraint = self._problem.constraints[index]
        if not constraint.plan.distinct:
            return True
        union = total = 0
        for need in covered:
            union |= need.free
            total += need.count
        unused = constraint.all_values & ~self._state.values[index]
        return sum(1 for number in bits(unused) if constraint.carriers[number] & union) >= total

    def _exclusive(self, wanted: Sequence[_Need]) -> list[tuple[int, int]]:
        """(count, free) of the requests that compete: admin access and shared devices do not."""
        shared = self._problem.shared
        return [(need.count, need.free) for need in wanted if not need.request.plan.admin and not need.free & shared]

    def equivalents(self, request: RequestOnNode, position: int) -> int:
        """Devices that fail at a choice of `request` where the device at `position` failed."""
        if request.plan.admin or self._problem.shared >> position & 1:
            return 0
        alike = self._alike.get(position)
        if alike is None:
            alike = self._alike[position] = self._alike_to(position)
        return alike

    def _alike_to(self, position: int) -> int:
        """By masks of the whole node: of thousands of devices, the search needs this for hardly any."""
        problem, bit = self._problem, 1 << position
        alike = self._ahead[0] & ~problem.shared
        for _, alternatives in problem.steps:
            for one in alternatives:
                alike &= one.candidates if one.candidates & bit else ~one.candidates
        for index in range(len(problem.constraints)):
            alike &= self._carrying_as(index, position)
        return alike & self._drawing_as(position)

    def _carrying_as(self, index: int, position: int) -> int:
        """The devices with the same values of the attribute."""
        constraint = self._problem.constraints[index]
        carried = constraint.of_device.get(position, 0)
        if not carried:
            return ~constraint.present
        if not constraint.several >> position & 1:
            return constraint.carriers[carried.bit_length() - 1] & ~constraint.several
        by_values = self._several.get(index)
        if by_values is None:
            by_values = self._several[index] = {}
            for other in bits(constraint.several):
                values = constraint.of_device[other]
                by_values[values] = by_values.get(values, 0) | (1 << other)
        return by_values[carried]

    def _drawing_as(self, position: int) -> int:
        """The devices that draw the same from the same counters, which belong to one pool; or none, as this device."""
        problem = self._problem
        if not problem.consuming >> position & 1:
            return ~problem.consuming
        devices = problem.devices
        index = devices.pool_index(position)
        shift = devices.shifts[index]
        return devices.pools[index].generation.drawing_alike[position - shift] << shift


def matchable(wanted: Sequence[tuple[int, int]]) -> bool:
    """Whether all (count, free devices) can have their devices at the same time."""
    held = [0] * len(wanted)
    return all(_augment(wanted, held, which) for which, (count, _) in enumerate(wanted) for _ in range(count))


def _augment(wanted: Sequence[tuple[int, int]], held: list[int], which: int) -> bool:
    """Give one more device to `which`, moving other devices along a shortest chain of swaps."""
    occupied = union(held)
    #: request -> (request that wants one of its devices, that device)
    came_from: dict[int, tuple[int, int]] = {which: (-1, 0)}
    queue = [which]
    for current in queue:
        spare = wanted[current][1] & ~occupied
        if spare:
            _shift(held, came_from, current, spare & -spare)
            return True
        for other, mask in enumerate(held):
            contested = wanted[current][1] & mask
            if contested and other not in came_from:
                came_from[other] = (current, contested & -contested)
                queue.append(other)
    return False


def _shift(held: list[int], came_from: dict[int, tuple[int, int]], receiver: int, device: int) -> None:
    """`receiver` gets `device`, and hands its contested device down the chain."""
    while receiver >= 0:
        held[receiver] |= device
        taker, contested = came_from[receiver]
        if taker >= 0:
            held[receiver] &= ~contested
        receiver, device = taker, contested


#: Device trials on one node after which a search is given up: some seconds.
DEFAULT_LIMIT = 200_000
#: Seconds for the claims of one pod on all nodes together. Upstream: filterTimeout of the DynamicResources plugin (gate
#: DRASchedulerFilterTimeout), there for each node, of which it looks at many at once.
DEFAULT_TIMEOUT = 10.0
#: Trials between two looks at the clock.
TRIALS_PER_LOOK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The devices, in order, and the chosen alternative of each step."""

    taken: tuple[Taken, ...]
    chosen: tuple[int, ...]
    trials: int


@dataclass(frozen=True, slots=True)
class NoSolution:
    """Proof that no devices of this node meet the claims."""

    trials: int


class _Stop(Exception):
    """Carries the answer out of the frames."""

    def __init__(self, answer: AllocationFailed | Undecided) -> None:
        super().__init__()
        self.answer = answer


class _Frame(Protocol):
    def advance(self) -> bool:
        """Undo the last choice and make the next one. False when there is none."""

    def successor(self) -> _Frame | None:
        """The frame of the next choice; None when all requests are met."""


def solve(
    problem: AllocationProblem, *, limit: int = DEFAULT_LIMIT, deadline: Deadline | None = None
) -> Solution | NoSolution | AllocationFailed | Undecided:
    """Search the whole space, at most `limit` device trials, and not past the deadline."""
    return _Search(problem, limit, deadline).run()


class _Search:
    def __init__(self, problem: AllocationProblem, limit: int, deadline: Deadline | None) -> None:
        self.problem = problem
        self.state = SearchState(problem)
        self.exact_order = problem.exact_order
        self.pruner = None if self.exact_order else Pruner(problem, self.state)
        self.trials = 0
        self._limit = limit
        self._deadline = deadline

    def run(self) -> Solution | NoSolution | AllocationFailed | Undecided:
        try:
            return self._run()
        except _Stop as stop:
            return stop.answer

    def _run(self) -> Solution | NoSolution:
        first = self.open_step(0)
        stack = [] if first is None else [first]
        while stack:
            if not stack[-1].advance():
                stack.pop()
                continue
            following = stack[-1].successor()
            if following is None:
                return self._solution()
            stack.append(following)
        return self._solution() if first is None else NoSolution(self.trials)

    def _solution(self) -> Solution:
        return Solution(taken=tuple(self.state.taken), chosen=tuple(self.state.chosen), trials=self.trials)

    def try_device(self, step: int, request: RequestOnNode, position: int) -> bool:
        """One trial. Raises: _Stop past the limit or the deadline; TimeLimitExceeded past one that a caller set."""
        self.trials += 1
        if self.trials > self._limit:
            raise _Stop(Undecided(trials=self.trials - 1))
        if not self.trials % TRIALS_PER_LOOK:
            if self._deadline is not None and self._deadline.has_passed:
                raise _Stop(Undecided(trials=self.trials, timed_out=True))
            check_time()
        return self.state.take(step, request, position)

    def fail(self, cause: Misconfigured) -> _Stop:
        return _Stop(AllocationFailed(cause=cause, trials=self.trials))

    def open_step(self, step: int) -> _Frame | None:
        return _AlternativeFrame(self, step) if step < len(self.problem.steps) else None

    def open_device(self, step: int, alternative: int, *, index: int, last: int) -> _Frame | None:
        """The frame for device number `index` of a request, or what comes after the request."""
        request = self.problem.steps[step][1][alternative]
        if index >= request.count:
            return self.open_step(step + 1)
        if request.plan.everything:
            return _EverythingFrame(self, step, alternative, index=index)
        return _DeviceFrame(self, step, alternative, index=index, last=last)


class _AlternativeFrame:
    """The choice of an alternative of a request; a plain request has one."""

    def __init__(self, search: _Search, step: int) -> None:
        self._search = search
        self._step = step
        self._next = 0

    def advance(self) -> bool:
        state = self._search.state
        if self._next:
            state.chosen.pop()
        claim, alternatives = self._search.problem.steps[self._step]
        while self._next < len(alternatives):
            request = alternatives[self._next]
            self._next += 1
            if request.plan.everything and not request.count:
                continue  # "all" of nothing
            if request.count and state.results[claim] + request.count > MAX_RESULTS:
                continue
            state.chosen.append(self._next - 1)
            return True
        return False

    def successor(self) -> _Frame | None:
        return self._search.open_device(self._step, self._next - 1, index=0, last=-1)


class _RequestFrame:
    """The choice of a request's device number `index`."""

    def __init__(self, search: _Search, step: int, alternative: int, *, index: int) -> None:
        self._search = search
        self._step = step
        self._alternative = alternative
        self._index = index
        self._position = -1
        self._request = search.problem.steps[step][1][alternative]

    def successor(self) -> _Frame | None:
        return self._search.open_device(self._step, self._alternative, index=self._index + 1, last=self._position)


class _DeviceFrame(_RequestFrame):
    """A device of a counted request: each candidate after the previous device."""

    def __init__(self, search: _Search, step: int, alternative: int, *, index: int, last: int) -> None:
        super().__init__(search, step, alternative, index=index)
        blocked = search.state.blocked(self._request, search.problem.steps[step][0])
        self._remaining = (self._request.candidates | self._request.errors) & (-1 << (last + 1)) & ~blocked
        self._last = last
        if search.pruner is not None:
            self._remaining &= search.pruner.promising(step, alternative, index=index, last=last)

    def advance(self) -> bool:
        search, request = self._search, self._request
        if self._position >= 0:
            search.state.give_back()
            self._drop_equivalents()
        while self._remaining:
            low = self._remaining & -self._remaining
            self._remaining ^= low
            self._position = low.bit_length() - 1
            if low & request.errors:
                raise search.fail(error_on(request.plan.selectors, search.problem.devices.device(self._position)))
            if search.try_device(self._step, request, self._position):
                return True
            self._drop_equivalents()
        if search.pruner is not None:
            search.pruner.remember_failure(self._step, self._alternative, index=self._index, last=self._last)
        return False

    def _drop_equivalents(self) -> None:
        """Drop the devices that must fail as the last one did."""
        if self._search.pruner is not None and self._remaining:
            self._remaining &= ~self._search.pruner.equivalents(self._request, self._position)


class _EverythingFrame(_RequestFrame):
    """The next device of allocationMode All: that device or nothing."""

    def advance(self) -> bool:
        search, request = self._search, self._request
        if self._position >= 0:
            search.state.give_back()
            return False
        self._position = request.everything[self._index]
        if not request.candidates >> self._position & 1:
            return False  # in use, or tainted
        if search.try_device(self._step, request, self._position):
            return True
        if search.state.refused_by_constraint:
            device = search.problem.devices.device(self._position)
            error = f"cannot add device {device} because a claim constraint would not be satisfied"
            raise search.fail(request.plan.wrong(Fault.CLAIM, f": {error}"))
        return False
