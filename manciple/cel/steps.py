"""The steps of an evaluation: functions from a `Frame` to a value, which count what they cost.

Errors are values here, because operands of && and || absorb them and because cel-go evaluates (and counts) the other
operands of a call whose first one failed; only `CostLimitExceeded` and `TimeLimitExceeded` go through everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from manciple.cel.costs import AMPLIFYING, Counting, size_of
from manciple.cel.errors import CostLimitExceeded, EvaluationError
from manciple.cel.functions import Function
from manciple.cel.operators import lookup, lookup_optional, rounds
from manciple.cel.tree import ACCUMULATOR
from manciple.cel.values import Optional
from manciple.wire.limits import check_time

#: Units of cost between two looks at the clock: about a millisecond.
UNITS_PER_LOOK = 1_000
#: How many elements and code points one evaluation may build with AMPLIFYING functions.
BUILD_LIMIT = 10_000_000


class Frame:
    """One evaluation: what its variables stand for, how much it has cost.

    Beside the cost, what calls build is counted: upstream adds lists lazily and lets some functions blow texts up for
    little, which here would take memory and time that the cost does not show.
    """

    __slots__ = ("built", "checkpoint", "cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int) -> None:
        """variables: those of the environment; what the expression itself names is added while it needs it."""
        self.limit = limit
        self.cost = 0
        #: the cost past which limit and clock are looked at
        self.checkpoint = min(limit, UNITS_PER_LOOK)
        self.built = 0
        self.variables = variables

    def spend(self, cost: int) -> None:
        """Raises: CostLimitExceeded and TimeLimitExceeded, through everything."""
        self.cost += cost
        if self.cost > self.checkpoint:
            if self.cost > self.limit:
                raise CostLimitExceeded
            check_time()
            self.checkpoint = min(self.limit, self.cost + UNITS_PER_LOOK)

    def build(self, size: int) -> None:
        """Counts the elements or code points of something new. Raises: CostLimitExceeded."""
        self.built += size
        if self.built > BUILD_LIMIT:
            raise CostLimitExceeded


Step: TypeAlias = Callable[[Frame], Any]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """How to evaluate a node. `path`: without the cost of the name a plain path begins with, or None for no path."""

    run: Step
    path: Step | None = None
    is_constant: bool = False
    value: Any = None


def constant(value: Any) -> NodePlan:
    return NodePlan(lambda _frame: value, is_constant=True, value=value)


def path_plan(path: Step) -> NodePlan:
    def run(frame: Frame) -> Any:
        value = path(frame)
        frame.spend(1)
        return value

    return NodePlan(run, path=path)


def variable(frame: Frame, name: str) -> Any:
    value = frame.variables[name]
    if isinstance(value, Pending):
        value = frame.variables[name] = value.step(frame)
    return value


@dataclass(frozen=True, slots=True)
class Pending:
    """A bound variable that nobody has asked for yet."""

    step: Step


def binding(name: str, init: Step, result: Step) -> Step:
    def run(frame: Frame) -> Any:
        outer = frame.variables
        # The value is worked out where it was written, among the variables of outside.
        value = Pending(lambda _frame: within(frame, outer, init))
        return within(frame, {**outer, name: value}, result)

    return run


def within(frame: Frame, variables: dict[str, Any], step: Step) -> Any:
    outer, frame.variables = frame.variables, variables
    try:
        return step(frame)
    finally:
        frame.variables = outer


def folding(names: Sequence[str], *, source: Step, init: Step, condition: Step, step: Step, result: Step) -> Step:
    def fold(frame: Frame, pairs: Iterable[tuple[Any, ...]]) -> Any:
        variables = frame.variables
        variables[ACCUMULATOR] = init(frame)
        for values in pairs:
            variables.update(zip(names, values, strict=True))
            if condition(frame) is not True:
                break
            variables[ACCUMULATOR] = step(frame)
        return result(frame)

    def go_through(container: Any, frame: Frame) -> Any:
        pairs = attempted(rounds, container, len(names))
        if isinstance(pairs, EvaluationError):
            return pairs
        return within(frame, dict(frame.variables), lambda inner: fold(inner, pairs))

    return then(source, go_through)


def attempted(function: Callable[..., Any], *args: Any) -> Any:
    """The result, or the error of the language as a value. Raises: CostLimitExceeded, through everything."""
    try:
        return function(*args)
    except CostLimitExceeded:
        raise
    except EvaluationError as error:
        return error


def then(step: Step, use: Callable[[Any, Frame], Any]) -> Step:
    """A step whose value is made use of; its error stays the error."""

    def run(frame: Frame) -> Any:
        value = step(frame)
        return value if isinstance(value, EvaluationError) else use(value, frame)

    return run


def aggregate(build: Step, plans: Sequence[NodePlan], cost: int) -> NodePlan:
    if all(planned.is_constant for planned in plans):
        value = attempted(build, Frame({}, limit=0))
        if isinstance(value, EvaluationError):
            return constant(value)
        # Accumulators grow in place: every evaluation gets a list of its own.
        return NodePlan(lambda _frame: type(value)(value), is_constant=True, value=value)

    def run(frame: Frame) -> Any:
        value = attempted(build, frame)
        frame.spend(cost)
        return value

    return NodePlan(run)


def calling(
    name: str, overload: str, function: Function, steps: Sequence[Step], *, cost: Counting, in_order: bool
) -> Step:
    """A call. in_order: operands behind a failed one are not evaluated, and then the call itself costs nothing."""
    grows, is_range = name in AMPLIFYING, overload == "lists_range"

    def run(frame: Frame) -> Any:
        values: list[Any] = []
        failure: EvaluationError | None = None
        for step in steps:
            value = step(frame)
            values.append(value)
            if isinstance(value, EvaluationError):
                failure = failure or value
                if in_order:
                    break
        if failure is not None:
            if len(values) == len(steps):
                frame.spend(cost(values, failure))
            return failure
        if is_range:  # counted before it takes the memory
            frame.spend(cost(values, None))
        result = attempted(function, *values)
        if grows:
            frame.build(size_of(result))
        if not is_range:
            frame.spend(cost(values, result))
        return result

    return run


def qualified(operand: Any, key: Any, frame: Frame) -> Any:
    """`operand.key` or `operand[key]`: an error, a value, or an optional where the operand is one."""
    if type(operand) is Optional:
        return optional_qualified(operand, key, frame)
    frame.spend(1)
    try:
        return lookup(operand, key)
    except EvaluationError as error:
        return error


def optional_qualified(operand: Any, key: Any, frame: Frame) -> Any:
    found = attempted(lookup_optional, operand, key)
    if isinstance(found, EvaluationError) or found.present:
        frame.spend(1)
    return found
