"""The search: the first solution in the reference's order, or the proof that there is none.

Claims, requests and devices are visited in order; within a request the next device stands after the previous one. The
stack holds one frame per open choice: an alternative of a request, one device of it, or the next device of
`allocationMode: All`. A frame's `advance` takes back its last choice and makes the next one; when it cannot, the
frame is dropped and the one below advances. Nothing is recursive, so a pod may have any number of claims. It stops
after so many device trials, or when time is up (`Deadline`), whichever comes first.

Each frame asks the `Pruner` whether the rest can still be met. Pruning only drops branches without a solution, so the
first solution stays the first. Where an error could be reached (a selector that errs, All under a constraint) pruning
is off: which error comes up depends on every step of the plain order.
Order and errors: allocateOne of upstream's structured/internal/experimental/allocator_experimental.go (v1.37).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from claims.causes.causes import Fault, Misconfigured
from manciple.wire.limits import Deadline, check_time
from scheduling.allocator.outcome import AllocationFailed, Undecided
from scheduling.allocator.problem import MAX_RESULTS, AllocationProblem, RequestOnNode
from scheduling.allocator.pruning import Pruner
from scheduling.allocator.requests import error_on
from scheduling.allocator.state import SearchState, Taken

#: Device trials on one node after which a search is given up: some seconds.
DEFAULT_LIMIT = 200_000
#: Seconds for the claims of one pod on all nodes together. Upstream: filterTimeout of the DynamicResources plugin (gate
#: DRASchedulerFilterTimeout), there for each node, of which it looks at many at once.
DEFAULT_TIMEOUT = 10.0
#: Trials between two looks at the clock.
TRIALS_PER_LOOK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What was taken, in order, and which alternative of each step was chosen."""

    taken: tuple[Taken, ...]
    chosen: tuple[int, ...]
    trials: int


@dataclass(frozen=True, slots=True)
class NoSolution:
    """Proven: no devices of this node meet the claims."""

    trials: int


class _Stop(Exception):
    """Carries the answer out of the frames."""

    def __init__(self, answer: AllocationFailed | Undecided) -> None:
        super().__init__()
        self.answer = answer


class _Frame(Protocol):
    def advance(self) -> bool:
        """Take back the choice made, make the next one. False when there is none."""

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
    """Which alternative of a request; a plain request has one."""

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
    """A device of a request: number `index` of them."""

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
    """One device of a counted request: every candidate after the previous device."""

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
        """A device that cannot differ from one that failed fails as well."""
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
