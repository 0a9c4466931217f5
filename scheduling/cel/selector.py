"""Selectors: expressions that are compiled once, cached by their text, and asked about many devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from scheduling.cel.checker import CheckedTree, check
from scheduling.cel.compiler import compile_tree
from scheduling.cel.declarations import Environment, Features, new_environment, stored_environment
from scheduling.cel.device import DeviceView
from scheduling.cel.errors import CompileError, CostLimitExceeded, EvaluationError, compile_error
from scheduling.cel.estimate import estimate_cost
from scheduling.cel.interpreter import plan
from scheduling.cel.kinds import type_name
from scheduling.cel.references import DeviceReference, device_references
from scheduling.cel.steps import Frame, Step
from scheduling.cel.syntax import parse
from scheduling.cel.types import BOOL
from scheduling.cel.validators import validate

#: What one evaluation may cost (resource.k8s.io: CELSelectorExpressionMaxCost).
COST_LIMIT = 1_000_000
#: Expressions that may cost more than this are always counted. Well below the limit, because estimates may be too low.
FAST_LIMIT = COST_LIMIT // 10
#: How many compiled expressions are kept.
CACHE_SIZE = 4096


@dataclass(frozen=True)
class Outcome:
    """One counted evaluation: the verdict or why there is none, and what it cost."""

    matches: bool
    error: EvaluationError | None
    cost: int


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression. Threads may share it."""

    expression: str
    #: "bool", or the type of an attribute's value, which is looked at only when it is there
    output_type: str
    #: the most that an evaluation can cost
    estimated_max_cost: int
    #: what of a device the verdict depends on; None where that cannot be told from the expression
    references: frozenset[DeviceReference] | None
    _step: Step = field(repr=False, compare=False)
    #: the evaluator that counts nothing, for expressions that cannot become dear
    _fast: Callable[[DeviceView], Any] | None = field(repr=False, compare=False)

    @property
    def exceeds_cost_limit(self) -> bool:
        """True when no new object may contain the expression."""
        return self.estimated_max_cost > COST_LIMIT

    def matches(self, device: DeviceView) -> bool:
        """Whether the device is selected. Raises: EvaluationError with cel-go's message."""
        if self._fast is not None and not device.fault:
            value = self._fast(device)
            if value is True or value is False:
                return value
            raise not_bool(value)
        outcome = self.evaluate(device)
        if outcome.error is not None:
            raise outcome.error
        return outcome.matches

    def evaluate(self, device: DeviceView) -> Outcome:
        """As matches(), counting the cost, with the error as a value."""
        if device.fault:
            return Outcome(matches=False, error=EvaluationError(device.fault), cost=0)
        frame = Frame(device, COST_LIMIT)
        try:
            value = self._step(frame)
        except CostLimitExceeded as error:
            value = error
        if isinstance(value, EvaluationError):
            return Outcome(matches=False, error=value, cost=frame.cost)
        if type(value) is not bool:
            return Outcome(matches=False, error=not_bool(value), cost=frame.cost)
        return Outcome(matches=value, error=None, cost=frame.cost)


def not_bool(value: object) -> EvaluationError:
    name = type_name(value)
    reason = _CONVERSION_ERRORS.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")
    return EvaluationError(f"CEL result of type {name} could not be converted to bool: {reason}")


#: Each of cel-go's types has its own words for it.
_CONVERSION_ERRORS = {
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "string": "unsupported native conversion from string to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
}


def compile_selector(expression: str) -> Selector:
    """The selector of an expression that is part of an object. Raises: CompileError."""
    return _kept(expression, stored_environment())


def compile_new_selector(expression: str, features: Features) -> Selector:
    """The same for an expression on its way into an object: only what the features allow. Raises: CompileError."""
    return _kept(expression, new_environment(features))


def _kept(expression: str, environment: Environment) -> Selector:
    compiled = _compiled(expression, _Key(environment))
    if isinstance(compiled, CompileError):
        # The kept error is not raised itself: each raise would add to its traceback.
        raise CompileError(compiled.message, line=compiled.line, column=compiled.column, snippet=compiled.snippet)
    return compiled


@dataclass(frozen=True)
class _Key:
    """Environments are kept, so that identity tells them apart."""

    environment: Environment = field(compare=False)
    id: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", id(self.environment))


@lru_cache(maxsize=CACHE_SIZE)
def _compiled(expression: str, key: _Key) -> Selector | CompileError:
    try:
        return _compile(expression, key.environment)
    except CompileError as error:
        return error
    except RecursionError:
        return CompileError(
            "compilation failed: ERROR: <input>:1:1: expression recursion limit exceeded", line=1, column=1
        )


def _compile(expression: str, environment: Environment) -> Selector:
    tree, problems = check(parse(expression), environment)
    problems = problems or validate(tree)
    if problems:
        raise compile_error(expression, problems)
    _demand_bool(tree)
    step = plan(tree)
    cost = estimate_cost(tree).max
    return Selector(
        expression=expression,
        output_type=str(tree.output_type),
        estimated_max_cost=cost,
        references=device_references(tree),
        _step=step,
        _fast=compile_tree(tree) if cost <= FAST_LIMIT else None,
    )


def _demand_bool(tree: CheckedTree) -> None:
    if tree.output_type not in (BOOL, tree.environment.attribute):
        raise CompileError(f"must evaluate to {BOOL} or the unknown type, not {tree.output_type}")
