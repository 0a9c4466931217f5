"""What the search need not try: branches that counting, matching or an earlier failure prove to be empty.

Four proofs, each cheap next to the branch it saves:
- counting, to a fixpoint: a value of a matchAttribute constraint survives if enough free devices carry it for each
  request that it covers and for all of them together; candidates shrink to the survivors; every request must keep
  enough. For distinctAttribute there must be as many unused values as devices still needed.
- matching (once something failed): the devices still needed form a bipartite graph with the free ones; no perfect
  matching means no solution.
- counters: a device that draws more than was left before the search began is never to be had.
- memory: a choice point that failed fails again in the same state; and of two devices with the same membership in every
  candidate set and value, and the same counters, the second cannot succeed where the first failed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from scheduling.allocator.pools import bits, union
from scheduling.allocator.problem import AllocationProblem, RequestOnNode
from scheduling.allocator.state import SearchState

#: Failed states kept per search; past that many the search goes on without remembering more.
MAX_REMEMBERED = 50_000


@dataclass(slots=True)
class _Need:
    """A request that is still to be met, or partly: how many devices, out of which."""

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
        #: position -> the devices like it; one that was not asked about is not in it
        self._alike: dict[int, int] = {}
        #: constraint -> value bits -> the devices that carry these, of those that carry several
        self._several: dict[int, dict[int, int]] = {}
        self._hopeless = problem.drained & ~problem.shared
        self._trivial = len(problem.steps) == 1 and not problem.constraints
        self._ahead = self._relevant_ahead()

    def _relevant_ahead(self) -> list[int]:
        """Per step, the devices that this step or a later one could take."""
        masks = [0]
        for _, alternatives in reversed(self._problem.steps):
            masks.append(union((masks[-1], *(one.candidates for one in alternatives))))
        return masks[::-1]

    def _key(self, step: int, alternative: int, *, index: int, last: int) -> Hashable:
        """All of the state that the rest of the search depends on. The same when a choice opens and when it fails."""
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
        """The devices worth trying for this choice; 0 where the rest cannot be met whatever is chosen.

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
        """Those for which enough was left of every counter when the search began; admin access draws none."""
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
        known = self._alike.get(position)
        if known is None:
            known = self._alike[position] = self._alike_to(position)
        return known

    def _alike_to(self, position: int) -> int:
        """By masks of the node as a whole: of thousands of devices hardly any is ever asked about."""
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
        known = self._several.get(index)
        if known is None:
            known = self._several[index] = {}
            for other in bits(constraint.several):
                values = constraint.of_device[other]
                known[values] = known.get(values, 0) | (1 << other)
        return known[carried]

    def _drawing_as(self, position: int) -> int:
        """The devices that draw the same from the same counters, which belong to one pool; or nothing, as this one."""
        problem = self._problem
        if not problem.consuming >> position & 1:
            return ~problem.consuming
        devices = problem.devices
        index = devices.pool_index(position)
        shift = devices.shifts[index]
        return devices.pools[index].generation.drawing_alike[position - shift] << shift


def matchable(wanted: Sequence[tuple[int, int]]) -> bool:
    """Whether each (count, free devices) can have `count` devices of its own."""
    held = [0] * len(wanted)
    return all(_augment(wanted, held, which) for which, (count, _) in enumerate(wanted) for _ in range(count))


def _augment(wanted: Sequence[tuple[int, int]], held: list[int], which: int) -> bool:
    """Give one more device to `which`, moving others along a shortest chain of swaps."""
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
    """`receiver` gets `device`; it hands its contested one down the chain."""
    while receiver >= 0:
        held[receiver] |= device
        taker, contested = came_from[receiver]
        if taker >= 0:
            held[receiver] &= ~contested
        receiver, device = taker, contested
