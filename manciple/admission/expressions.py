"""Expressions of policies and match conditions: compiled against an environment, run within a budget. PURE.

A `Composition` is the expressions of one policy. Its variables are compiled in their order, each against those before
it, and evaluated when an expression first asks for them; what that costs is taken from the budget of whoever asked. An
expression that does not compile fails whoever evaluates it, as one that was stored before a rule became stricter does.

    composition = Composition(variables, params=True)
    program = composition.compile("object.spec.nodeName == variables.node", BOOLEAN)    # raises CompileError
    evaluation = Evaluation(composition, values, budget=VALIDATION_BUDGET)
    evaluation.run(program)                                       # raises EvaluationFailed, OutOfBudget

Source: apiserver/pkg/admission/plugin/cel/composition.go, activation.go and condition.go; pkg/apis/cel/config.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from manciple.admission.environment import (
    NAMES,
    VARIABLES,
    VARIABLES_TYPE,
    environment_of,
    variable_type,
    with_variables,
)
from manciple.cel.checker import check, validate
from manciple.cel.errors import CompileError, CostLimitExceeded, EvaluationError, compile_error
from manciple.cel.functions import Environment
from manciple.cel.interpreter import Frame, Step, plan
from manciple.cel.parser import parse
from manciple.cel.tree import Comprehension, Node, walk
from manciple.cel.types import BOOL, DYN, NULL, STRING, CelType
from manciple.cel.values import KEY_ADVICE, CelMap, no_such_key
from manciple.wire.limits import check_time

#: What one expression may cost (upstream: PerCallLimit).
EXPRESSION_LIMIT = 1_000_000
#: All validations of one binding with one parameter object; its audit annotations once more (RuntimeCELCostBudget).
VALIDATION_BUDGET = 10_000_000
#: All match conditions of one policy or webhook (RuntimeCELCostBudgetMatchConditions).
CONDITION_BUDGET = 2_500_000

_BIND = "bind"
#: What an expression may give; anything where it is None.
Returns = tuple[CelType, ...] | None
BOOLEAN: Returns = (BOOL,)
TEXT: Returns = (STRING,)
TEXT_OR_NULL: Returns = (STRING, NULL)
ANYTHING: Returns = None


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. names: what it reads of its environment."""

    expression: str
    output: CelType
    names: frozenset[str]
    step: Step = field(repr=False, compare=False)


def compile_expression(expression: str, environment: Environment, returns: Returns) -> Program:
    """Raises: CompileError."""
    try:
        tree, problems = check(_parsed(expression), environment)
        problems = problems or validate(tree)
    except RecursionError:
        raise CompileError(
            "compilation failed: ERROR: <input>:1:1: expression recursion limit exceeded", line=1, column=1
        ) from None
    if problems:
        raise compile_error(expression, problems)
    if returns is not None and tree.output_type not in returns:
        raise CompileError(_wrong_type(returns, tree.output_type))
    read = frozenset(reference.name for reference in tree.references.values()) & NAMES
    return Program(expression, tree.output_type, read, plan(tree))


def _parsed(expression: str) -> Node:
    """Without cel.bind(), which this environment does not have. Its own parser is only made where somebody uses it."""
    tree = parse(expression)
    binds = any(isinstance(node, Comprehension) and node.macro == _BIND for node in walk(tree))
    return parse(expression, without=_BIND) if binds else tree


def _wrong_type(returns: tuple[CelType, ...], found: CelType) -> str:
    if len(returns) == 1:
        return f"must evaluate to {returns[0]} but got {found}"
    return f"must evaluate to one of [{' '.join(map(str, returns))}] but got {found}"


@lru_cache(maxsize=256)
def compile_condition(expression: str, *, params: bool = False) -> Program:
    """A match condition as it is judged at the door: without variables. Raises: CompileError."""
    return compile_expression(expression, environment_of(params=params, authorizer=True), BOOLEAN)


class Composition:
    """The environment of one policy's expressions, and its variables, compiled."""

    def __init__(
        self,
        variables: Iterable[tuple[str, str]] = (),
        *,
        params: bool = False,
        composed: bool = True,
        typed: Callable[[Environment], Environment] = lambda environment: environment,
    ) -> None:
        """variables: (name, expression) in order. One that does not compile fails those who read it.

        params: the policy has parameters. composed: expressions may name `variables`. typed: the environment with more
        known of what documents are.
        """
        self._typed = typed
        self._params = params
        self._composed = composed
        self.programs: dict[str, Program | CompileError] = {}
        self._types: dict[str, CelType] = {}
        for name, expression in variables:
            with suppress(CompileError):
                self.add(name, expression)

    def add(self, name: str, expression: str) -> None:
        """A variable for the expressions that are compiled after it. Raises: CompileError; they may name it even so."""
        try:
            program = self.programs[name] = self.compile(expression, ANYTHING)
        except CompileError as error:
            self.programs[name], self._types[name] = error, DYN
            raise
        self._types[name] = variable_type(program.output)

    def compile(self, expression: str, returns: Returns, *, authorizer: bool = True) -> Program:
        """Raises: CompileError."""
        environment = self._typed(environment_of(params=self._params, authorizer=authorizer))
        if self._composed:
            environment = with_variables(environment, dict(self._types))
        return compile_expression(expression, environment, returns)


class EvaluationFailed(Exception):
    """The expression has no value; `message` says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class OutOfBudget(EvaluationFailed):
    """All expressions together cost too much; those that are left are not evaluated."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


def _why(error: EvaluationError) -> str:
    """What device selectors are advised beside a key that is not there, policies are not (1.36)."""
    return error.message.removesuffix(KEY_ADVICE)


class Evaluation:
    """The evaluation of several expressions against one request; what variables gave is kept between them."""

    def __init__(self, composition: Composition, values: Mapping[str, Callable[[], Any]], *, budget: int) -> None:
        """values: what the environment's names stand for; each is asked for once, if anything reads it."""
        self._sources = values
        self._values: dict[str, Any] = {VARIABLES: VariableMap(self, composition.programs)}
        self._composed = 0
        self.budget = budget

    def run(self, program: Program | CompileError) -> Any:
        """Raises: EvaluationFailed, with upstream's message; OutOfBudget."""
        if isinstance(program, CompileError):
            raise EvaluationFailed(f"compilation error: {program.message}")
        value, cost = self.evaluate(program)
        self._spend(self._composed)
        self._composed = 0
        self._spend(cost)
        if isinstance(value, EvaluationError):
            raise EvaluationFailed(f"expression '{program.expression}' resulted in error: {_why(value)}")
        return value

    def evaluate(self, program: Program) -> tuple[Any, int]:
        """(the value, or an EvaluationError as one; the cost). Raises: TimeLimitExceeded."""
        check_time()
        frame = Frame({name: self._value(name) for name in program.names}, EXPRESSION_LIMIT)
        try:
            value = program.step(frame)
        except CostLimitExceeded as error:
            value = error
        return value, frame.cost

    def note_composed(self, cost: int) -> None:
        """A variable was evaluated for the expression that runs."""
        self._composed += cost

    def _value(self, name: str) -> Any:
        if name not in self._values:
            source = self._sources.get(name)
            self._values[name] = source() if source is not None else None
        return self._values[name]

    def _spend(self, cost: int) -> None:
        if cost > self.budget:
            raise OutOfBudget
        self.budget -= cost


class VariableMap(CelMap):
    """`variables`: evaluates each when it is first asked for."""

    __slots__ = ("_evaluation", "_failures", "_programs")

    TYPE = VARIABLES_TYPE

    def __init__(self, evaluation: Evaluation, programs: Mapping[str, Program | CompileError]) -> None:
        super().__init__()
        self._evaluation = evaluation
        self._programs = programs
        self._failures: dict[str, str] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._programs

    def __missing__(self, name: Any) -> Any:
        if name not in self._programs:
            raise no_such_key(name)
        if name not in self._failures:
            value = self._evaluated(self._programs[name])
            if not isinstance(value, EvaluationError):
                self[name] = value
                return value
            self._failures[name] = f'composited variable "{name}" fails to {value.message}'
        raise EvaluationError(self._failures[name])

    def _evaluated(self, program: Program | CompileError) -> Any:
        if isinstance(program, CompileError):
            return EvaluationError(f"compile: {program.message}")
        value, cost = self._evaluation.evaluate(program)
        self._evaluation.note_composed(cost)
        return EvaluationError(f"evaluate: {_why(value)}") if isinstance(value, EvaluationError) else value
