"""The steps that the counting evaluator is made of.

A `Step` is a function from a `Frame` (the device, the variables, the meter) to a value. Errors are values here, because
operands of && and || absorb them and because cel-go evaluates (and counts) the other operands of a call whose first one
failed.

How cel-go counts, as far as it is not in `call_costs`: a name costs 1 and each selection or index on it 1; so does a
selection on the result of a call, plus 1 for looking at all. has() costs what it walks through; constants, folded
aggregates, &&, || and ?: cost nothing; a branch of ?: that is a plain path costs only its selections. An optional
selection costs only when something is there. Source: cel-go interpreter/{planner,interpretable,attributes}.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from scheduling.cel import functions
from scheduling.cel.call_costs import call_cost, size_of
from scheduling.cel.device import DeviceView
from scheduling.cel.errors import CostLimitExceeded, EvaluationError
from scheduling.cel.functions.collections import insert_into
from scheduling.cel.paths import is_present, lookup, lookup_optional, rounds
from scheduling.cel.tree import ACCUMULATOR
from scheduling.cel.values import NONE, CelMap, Optional, map_key

#: How many elements and code points one evaluation may build with AMPLIFYING functions.
BUILD_LIMIT = 10_000_000
#: Functions whose results may be far larger than what they cost.
AMPLIFYING = frozenset(("_+_", "flatten", "format", "getQuery", "lists.range", "replace", "strings.quote"))


class Frame:
    """One evaluation: whose device, which variables, how much it has cost.

    Beside the cost, what calls build is counted: upstream adds lists lazily and lets some functions blow texts up for
    little, which here would take memory and time that the cost does not show.
    """

    __slots__ = ("built", "cost", "device", "limit", "variables")

    def __init__(self, device: DeviceView, limit: int) -> None:
        self.device = device
        self.limit = limit
        self.cost = 0
        self.built = 0
        self.variables: dict[str, Any] = {}

    def spend(self, cost: int) -> None:
        """Raises: CostLimitExceeded, through everything."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitExceeded

    def build(self, size: int) -> None:
        """Counts the elements or code points of something new. Raises: CostLimitExceeded."""
        self.built += size
        if self.built > BUILD_LIMIT:
            raise CostLimitExceeded


Step: TypeAlias = Callable[[Frame], Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to evaluate a node. `path`: without the cost of the name a plain path begins with, or None for no path."""

    run: Step
    path: Step | None = None
    is_constant: bool = False
    value: Any = None


def constant(value: Any) -> Plan:
    return Plan(lambda _frame: value, is_constant=True, value=value)


def path_plan(path: Step) -> Plan:
    def run(frame: Frame) -> Any:
        value = path(frame)
        frame.spend(1)
        return value

    return Plan(run, path=path)


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
        inner = dict(outer)
        # The value is worked out where it was written, among the variables of outside.
        inner[name] = Pending(lambda _frame: within(frame, outer, init))
        return within(frame, inner, result)

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

    def run(frame: Frame) -> Any:
        container = source(frame)
        if isinstance(container, EvaluationError):
            return container
        try:
            pairs = rounds(container, len(names))
        except EvaluationError as failure:
            return failure
        return within(frame, dict(frame.variables), lambda inner: fold(inner, pairs))

    return run


def insert_here(mapping: CelMap, *entry: Any) -> CelMap:
    """Insertion into an accumulator, in place."""
    insert_into(mapping, *entry)
    return mapping


def append(items: Any, more: Any) -> Any:
    """Addition to an accumulator, which nobody else can see: a list grows in place."""
    if type(items) is list and type(more) is list:
        items.extend(more)
        return items
    return functions.OPERATORS["_+_"](items, more)


def set_entry(mapping: CelMap, key: Any, value_step: Step, is_optional: bool, frame: Frame) -> EvaluationError | None:
    if isinstance(key, EvaluationError):
        return key
    value = value_step(frame)
    if isinstance(value, EvaluationError):
        return value
    try:
        kept = map_key(key)
    except EvaluationError as failure:
        return failure
    if not is_optional:
        mapping[kept] = value
    elif not isinstance(value, Optional):
        return EvaluationError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
    elif value.present:
        mapping[kept] = value.value
    return None


def aggregate(build: Step, plans: Sequence[Plan], cost: int) -> Plan:
    def run(frame: Frame) -> Any:
        value = build(frame)
        frame.spend(cost)
        return value

    if all(planned.is_constant for planned in plans):
        value = build(nowhere())
        if isinstance(value, EvaluationError):
            return constant(value)
        # Accumulators grow in place: every evaluation gets a list of its own.
        copied = list if isinstance(value, list) else CelMap
        return Plan(lambda _frame: copied(value), is_constant=True, value=value)
    return Plan(run)


def nowhere() -> Frame:
    """A frame for what depends on no device."""
    return Frame(DeviceView(driver=""), limit=0)


def calling(name: str, overload: str, function: functions.Function, steps: Sequence[Step], *, in_order: bool) -> Step:
    """A call. in_order: operands behind a failed one are not evaluated, and then the call itself costs nothing."""

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
                frame.spend(call_cost(name, overload, values, failure))
            return failure
        if overload == "lists_range":  # counted before it takes the memory
            frame.spend(call_cost(name, overload, values, None))
        try:
            result = function(*values)
        except CostLimitExceeded:
            raise
        except EvaluationError as error:
            result = error
        if name in AMPLIFYING:
            frame.build(size_of(result))
        if overload != "lists_range":
            frame.spend(call_cost(name, overload, values, result))
        return result

    return run


def qualified(operand: Any, key: Any, frame: Frame) -> Any:
    """`operand.key` or `operand[key]`: an error, a value, or an optional where the operand is one."""
    if isinstance(operand, EvaluationError):
        return operand
    if type(operand) is Optional:
        return optional_qualified(operand, key, frame)
    frame.spend(1)
    try:
        return lookup(operand, key)
    except EvaluationError as error:
        return error


def optional_qualified(operand: Any, key: Any, frame: Frame) -> Any:
    if isinstance(operand, EvaluationError):
        return operand
    if type(operand) is Optional:
        if not operand.present:
            return NONE
        operand = operand.value
    try:
        found = lookup_optional(operand, key)
    except EvaluationError as error:
        frame.spend(1)
        return error
    if found.present:
        frame.spend(1)
    return found


def presence(operand: Any, name: str, frame: Frame) -> Any:
    if isinstance(operand, EvaluationError):
        return operand
    frame.spend(1)
    return is_present(operand, name)
