"""Makes a checked tree into steps, which evaluate it and count what that costs.

This is the evaluator that is always right: it keeps to cel-go's order of steps, so that actual costs agree and an
expression that would run away stops at the limit. `plan` turns every node into a `Step` once; conversions of constants
are done there, and constant patterns are compiled. A `Step` is a function from a `Frame` (the variables, the meter)
to a value. Errors are values here, because operands of && and || absorb them and because cel-go evaluates (and counts)
the other operands of a call whose first one failed; only `CostLimitExceeded` and `TimeLimitExceeded` go through
everything.

How cel-go counts, as far as it is not in `costs`: a name costs 1 and each selection or index on it 1; so does a
selection on the result of a call, plus 1 for looking at all. has() costs what it walks through; constants, folded
aggregates, &&, || and ?: cost nothing; a branch of ?: that is a plain path costs only its selections. An optional
selection costs only when something is there. Source: cel-go interpreter/{planner,interpretable,attributes}.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from manciple.cel import functions
from manciple.cel.checker import CheckedTree
from manciple.cel.codegen import add_element, add_entry, zero_of
from manciple.cel.collections import append, insert_into
from manciple.cel.costs import AMPLIFYING, LIST_CREATE, MAP_CREATE, STRUCT_CREATE, Counting, rule_of, size_of
from manciple.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from manciple.cel.functions import Function
from manciple.cel.operators import contains, is_present, lookup, lookup_optional, rounds
from manciple.cel.text import compiled
from manciple.cel.tree import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    extends_accumulator,
)
from manciple.cel.types import TypeKind
from manciple.cel.values import CelMap, Optional, StructValue, TypeValue, Uint, no_such_overload
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


def plan(tree: CheckedTree) -> Step:
    """The step that evaluates the whole expression. Raises: CompileError when a constant part already fails."""
    return _Planner(tree).plan(tree.root).run


class _Planner:
    def __init__(self, tree: CheckedTree) -> None:
        self._tree = tree
        self._plans: dict[Node, NodePlan] = {}
        self._scopes: list[str] = []
        self._rules: dict[type, Callable[..., NodePlan]] = {
            Literal: lambda node: constant(node.value),
            Ident: lambda node: self._name(node, node.name),
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            StructLiteral: self._struct,
            Comprehension: self._comprehension,
        }

    def plan(self, node: Node) -> NodePlan:
        if node not in self._plans:
            self._plans[node] = self._rules[type(node)](node)
        return self._plans[node]

    def _name(self, node: Node, name: str) -> NodePlan:
        if name in self._scopes:
            return path_plan(lambda frame: variable(frame, name))
        type_ = self._tree.types[node]
        if type_.kind is TypeKind.TYPE:
            return constant(TypeValue(type_.params[0]))
        return path_plan(lambda frame: frame.variables[name])

    # paths

    def _select(self, node: Select) -> NodePlan:
        reference = self._tree.references.get(node)
        if reference is not None:
            return self._name(node, reference.name)
        inner = self._operand(node.operand)
        name = node.field_name
        if node.test_only:

            def present(operand: Any, frame: Frame) -> bool:
                frame.spend(1)
                return is_present(operand, name)

            return NodePlan(then(inner, present))

        def path(frame: Frame) -> Any:
            operand = inner(frame)
            return operand if isinstance(operand, EvaluationError) else qualified(operand, name, frame)

        return path_plan(path)

    def _operand(self, node: Node) -> Step:
        """The operand of a selection: a path goes on, anything else is evaluated in full first."""
        planned = self.plan(node)
        return planned.path or planned.run

    def index(self, node: Call, *, is_optional: bool) -> NodePlan:
        inner, key = self._operand(node.args[0]), self.plan(node.args[1])
        key_step = key.path or key.run
        qualify = optional_qualified if is_optional else qualified

        def path(frame: Frame) -> Any:
            container = inner(frame)
            if isinstance(container, EvaluationError):
                return container
            value = key_step(frame)
            return value if isinstance(value, EvaluationError) else qualify(container, value, frame)

        return path_plan(path)

    # calls

    def _call(self, node: Call) -> NodePlan:
        special = _SPECIAL.get(node.function)
        reference = self._tree.references[node]
        if special is not None and (node.target is None) is (node.function in _GLOBAL):
            return special(self, node)
        membership = self._membership(node) if reference.function == "@in" else None
        if membership is not None:
            return membership
        plans = [self.plan(operand) for operand in self._tree.operands(node)]
        function = functions.bind(self._tree.environment, reference.function, reference.overloads, exact=False)
        chosen = reference.overloads[0] if len(reference.overloads) == 1 else ""
        overload = {"_==_": "equals", "_!=_": "not_equals"}.get(reference.function, chosen)
        if reference.function in _CONVERSIONS and len(plans) == 1 and plans[0].is_constant:
            return constant(_instantiated(function, plans[0].value))
        by_name = not overload and reference.function not in functions.OPERATORS
        in_order = len(plans) > _BINARY or by_name or _precompiled(reference.function, plans)
        steps = [planned.run for planned in plans]
        name = reference.function
        if extends_accumulator(node):
            name, function = "", _IN_PLACE[name]
        cost = rule_of(name, overload, self._tree.environment.costs).count
        return NodePlan(calling(name, overload, function, steps, cost=cost, in_order=in_order))

    def _membership(self, node: Call) -> NodePlan | None:
        """Being in a constant list of plain values, which costs nothing; None for anything else."""
        items = self.plan(node.args[1]).value
        only_list = self._tree.references[node].overloads == ("in_list",)
        if not only_list or not isinstance(items, list) or any(type(item) not in _PLAIN for item in items):
            return None
        if not items:
            return constant(False)
        return NodePlan(then(self.plan(node.args[0]).run, lambda value, _frame: contains(value, items)))

    def logical(self, node: Call, *, decisive: bool) -> NodePlan:
        steps = [self.plan(arg).run for arg in node.args]

        def run(frame: Frame) -> Any:
            failure: EvaluationError | None = None
            for step in steps:
                value = step(frame)
                if value is decisive:
                    return decisive
                if value is not (not decisive):
                    failure = failure or (value if isinstance(value, EvaluationError) else no_such_overload())
            return failure if failure is not None else not decisive

        return NodePlan(run)

    def conditional(self, node: Call) -> NodePlan:
        condition = self.plan(node.args[0]).run
        branches = [self._operand(branch) for branch in node.args[1:]]

        def chosen(value: Any, frame: Frame) -> Any:
            if value is True:
                return branches[0](frame)
            return branches[1](frame) if value is False else no_such_overload()

        run = then(condition, chosen)
        return NodePlan(run, path=run)

    def not_strictly_false(self, node: Call) -> NodePlan:
        inner = self.plan(node.args[0]).run

        def run(frame: Frame) -> bool:
            value = inner(frame)
            frame.spend(1)
            return value is not False

        return NodePlan(run)

    def alternative(self, node: Call, *, unwrap: bool) -> NodePlan:
        """or() and orValue(): the argument is evaluated only when there is no value."""
        maybe, other = (self.plan(operand).run for operand in node.operands)

        def chosen(value: Any, frame: Frame) -> Any:
            if not isinstance(value, Optional):
                return no_such_overload()
            if not value.present:
                return other(frame)
            return value.value if unwrap else value

        return NodePlan(then(maybe, chosen))

    # aggregates

    def _list(self, node: ListLiteral) -> NodePlan:
        plans = [self.plan(element) for element in node.elements]
        steps = [(planned.run, position in node.optional) for position, planned in enumerate(plans)]

        def build(frame: Frame) -> Any:
            items: list[Any] = []
            for step, is_optional in steps:
                value = step(frame)
                if isinstance(value, EvaluationError):
                    return value
                add_element(items, value, is_optional)
            return items

        return aggregate(build, plans, LIST_CREATE)

    def _map(self, node: MapLiteral) -> NodePlan:
        plans = [self.plan(part) for entry in node.entries for part in (entry.key, entry.value)]
        steps = [(self.plan(entry.key).run, self.plan(entry.value).run, entry.optional) for entry in node.entries]

        def build(frame: Frame) -> Any:
            mapping = CelMap()
            for key_step, value_step, is_optional in steps:
                key = key_step(frame)
                value = key if isinstance(key, EvaluationError) else value_step(frame)
                if isinstance(value, EvaluationError):
                    return value
                add_entry(mapping, key, value, is_optional)
            return mapping

        return aggregate(build, plans, MAP_CREATE)

    def _struct(self, node: StructLiteral) -> NodePlan:
        if self._tree.types[node].kind is TypeKind.STRUCT:
            return self._made(node)
        zero = zero_of(node.name)
        steps = [(self.plan(init.value).run, init.optional) for init in node.fields]

        def run(frame: Frame) -> Any:
            value: Any = zero
            for step, is_optional in steps:
                value = step(frame)
                if is_optional and isinstance(value, Optional):
                    value = value.value if value.present else zero
                if isinstance(value, EvaluationError):
                    break
            frame.spend(STRUCT_CREATE)
            return value

        return NodePlan(run)

    def _made(self, node: StructLiteral) -> NodePlan:
        steps = [(init.name, self.plan(init.value).run, init.optional) for init in node.fields]

        def run(frame: Frame) -> Any:
            members: dict[str, Any] = {}
            for name, step, is_optional in steps:
                value = step(frame)
                if isinstance(value, EvaluationError):
                    return value
                if not is_optional:
                    members[name] = value
                elif not isinstance(value, Optional):
                    return no_such_overload()
                elif value.present:
                    members[name] = value.value
            frame.spend(STRUCT_CREATE)
            return StructValue(node.name, members)

        return NodePlan(run)

    # folds

    def _comprehension(self, node: Comprehension) -> NodePlan:
        source, init = self.plan(node.iter_range).run, self.plan(node.accu_init).run
        self._scopes.append(node.accu_var)
        result = self.plan(node.result).run
        names = [name for name in (node.iter_var, node.iter_var2) if name]
        self._scopes.extend(names)
        condition, step = self.plan(node.loop_condition).run, self.plan(node.loop_step).run
        del self._scopes[-len(names) - 1 :]
        if node.is_bind:
            return NodePlan(binding(node.accu_var, init, result))
        return NodePlan(folding(names, source=source, init=init, condition=condition, step=step, result=result))


_PLAIN = (bool, int, Uint, float, str, bytes)
#: Calls with more operands than this stop at the first that fails.
_BINARY = 2
_IN_PLACE: dict[str, functions.Function] = {"_+_": append, "cel.@mapInsert": insert_into}
_CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))
_PATTERNS = frozenset(("matches", "find", "findAll"))


def _instantiated(function: Callable[[Any], Any], value: Any) -> Any:
    """What is worked out before any evaluation. Raises: CompileError where it fails."""
    try:
        return function(value)
    except EvaluationError as error:
        raise CompileError(f"program instantiation failed: {error.message}") from None


def _precompiled(name: str, plans: Sequence[NodePlan]) -> bool:
    """True for a search with a constant pattern. Raises: CompileError for a pattern that is none."""
    if name not in _PATTERNS or not plans[1].is_constant or not isinstance(plans[1].value, str):
        return False
    _instantiated(compiled, plans[1].value)
    return True


_GLOBAL = frozenset(("_&&_", "_||_", "_?_:_", "_[_]", "_[?_]", "_?._", "@not_strictly_false"))
_SPECIAL: dict[str, Callable[[_Planner, Call], NodePlan]] = {
    "_&&_": lambda planner, node: planner.logical(node, decisive=False),
    "_||_": lambda planner, node: planner.logical(node, decisive=True),
    "_?_:_": lambda planner, node: planner.conditional(node),
    "_[_]": lambda planner, node: planner.index(node, is_optional=False),
    "_[?_]": lambda planner, node: planner.index(node, is_optional=True),
    "_?._": lambda planner, node: planner.index(node, is_optional=True),
    "@not_strictly_false": lambda planner, node: planner.not_strictly_false(node),
    "or": lambda planner, node: planner.alternative(node, unwrap=False),
    "orValue": lambda planner, node: planner.alternative(node, unwrap=True),
}
