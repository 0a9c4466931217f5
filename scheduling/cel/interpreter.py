"""Evaluates a checked tree step by step and counts what each step costs.

This is the evaluator that is always right: it keeps to cel-go's order of steps, so that actual costs agree and an
expression that would run away stops at the limit. A node becomes a `Step`: a function from a `Frame` (the device, the
variables, the meter) to a value. Errors are values here, because operands of && and || absorb them and because cel-go
evaluates (and counts) the other operands of a call whose first one failed.

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
from scheduling.cel.call_costs import call_cost
from scheduling.cel.checker import CheckedTree
from scheduling.cel.declarations import WRAPPERS
from scheduling.cel.device import DeviceView
from scheduling.cel.equality import has_key
from scheduling.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from scheduling.cel.functions.kubernetes import compiled
from scheduling.cel.functions.operators import index
from scheduling.cel.kinds import go_name
from scheduling.cel.sizes import LIST_CREATE, MAP_CREATE, STRUCT_CREATE
from scheduling.cel.tree import (
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
)
from scheduling.cel.types import Kind
from scheduling.cel.values import (
    NONE,
    CelMap,
    Optional,
    TypeValue,
    Uint,
    key_value,
    map_key,
    no_such_key,
    no_such_overload,
    optional,
)


class Frame:
    """One evaluation: whose device, which variables, how much it has cost."""

    __slots__ = ("cost", "device", "limit", "variables")

    def __init__(self, device: DeviceView, limit: int) -> None:
        self.device = device
        self.limit = limit
        self.cost = 0
        self.variables: dict[str, Any] = {}

    def spend(self, cost: int) -> None:
        """Raises: CostLimitExceeded, through everything."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitExceeded


Step: TypeAlias = Callable[[Frame], Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to evaluate a node. `path`: without the cost of the name a plain path begins with, or None for no path."""

    run: Step
    path: Step | None = None
    is_constant: bool = False
    value: Any = None


def plan(tree: CheckedTree) -> Step:
    """The step that evaluates the whole expression. Raises: CompileError when a constant part already fails."""
    return _Planner(tree).plan(tree.root).run


def _constant(value: Any) -> _Plan:
    return _Plan(lambda _frame: value, is_constant=True, value=value)


def _path(path: Step) -> _Plan:
    def run(frame: Frame) -> Any:
        value = path(frame)
        frame.spend(1)
        return value

    return _Plan(run, path=path)


class _Planner:
    def __init__(self, tree: CheckedTree) -> None:
        self._tree = tree
        self._plans: dict[Node, _Plan] = {}
        self._scopes: list[str] = []
        self._rules: dict[type, Callable[..., _Plan]] = {
            Literal: lambda node: _constant(node.value),
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            StructLiteral: self._struct,
            Comprehension: self._comprehension,
        }

    def plan(self, node: Node) -> _Plan:
        if node not in self._plans:
            self._plans[node] = self._rules[type(node)](node)
        return self._plans[node]

    def _ident(self, node: Ident) -> _Plan:
        return self._name(node, node.name)

    def _name(self, node: Node, name: str) -> _Plan:
        if name in self._scopes:
            return _path(lambda frame: _variable(frame, name))
        type_ = self._tree.types[node]
        if type_.kind is Kind.TYPE:
            return _constant(TypeValue(type_.params[0]))
        return _path(lambda frame: frame.device)

    # paths

    def _select(self, node: Select) -> _Plan:
        reference = self._tree.references.get(node)
        if reference is not None:
            return self._name(node, reference.name)
        inner = self._operand(node.operand)
        name = node.field_name
        if node.test_only:
            return _Plan(lambda frame: _presence(inner(frame), name, frame))
        return _path(lambda frame: _qualified(inner(frame), name, frame))

    def _operand(self, node: Node) -> Step:
        """The operand of a selection: a path goes on, anything else is evaluated in full first."""
        planned = self.plan(node)
        return planned.path or planned.run

    def index(self, node: Call, *, is_optional: bool) -> _Plan:
        inner, key = self._operand(node.args[0]), self.plan(node.args[1])
        key_step = key.path or key.run
        qualify = _optional_qualified if is_optional else _qualified

        def path(frame: Frame) -> Any:
            container = inner(frame)
            if isinstance(container, EvaluationError):
                return container
            value = key_step(frame)
            return value if isinstance(value, EvaluationError) else qualify(container, value, frame)

        return _path(path)

    # calls

    def _call(self, node: Call) -> _Plan:
        special = _SPECIAL.get(node.function)
        reference = self._tree.references[node]
        if special is not None and (node.target is None) is (node.function in _GLOBAL):
            return special(self, node)
        if reference.function == "@in" and self._is_set_membership(node):
            return self._membership(node)
        plans = [self.plan(operand) for operand in self._tree.operands(node)]
        function = functions.bind(reference.function, reference.overloads, exact=False)
        overload = reference.overloads[0] if len(reference.overloads) == 1 else ""
        if reference.function in ("_==_", "_!=_"):
            overload = "equals" if reference.function == "_==_" else "not_equals"
        folded = _folded(reference.function, function, plans)
        if folded is not None:
            return folded
        in_order = len(plans) > 2 or (not overload and reference.function not in functions.OPERATORS)
        in_order = in_order or _precompiled(reference.function, plans)
        grows = node.args[:1] and isinstance(node.args[0], Ident) and node.args[0].name == ACCUMULATOR
        if reference.function == "_+_" and grows:
            function = _append
        steps = [planned.run for planned in plans]
        return _Plan(_calling(reference.function, overload, function, steps, in_order=in_order))

    def _is_set_membership(self, node: Call) -> bool:
        planned = self.plan(node.args[1])
        primitive = (bool, int, Uint, float, str, bytes)
        is_list = planned.is_constant and isinstance(planned.value, list)
        only_list = self._tree.references[node].overloads == ("in_list",)
        return is_list and only_list and all(type(item) in primitive for item in planned.value)

    def _membership(self, node: Call) -> _Plan:
        items = self.plan(node.args[1]).value
        if not items:
            return _constant(False)
        element = self.plan(node.args[0]).run

        def run(frame: Frame) -> Any:
            value = element(frame)
            return value if isinstance(value, EvaluationError) else functions.OPERATORS["@in"](value, items)

        return _Plan(run)

    def logical(self, node: Call, *, decisive: bool) -> _Plan:
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

        return _Plan(run)

    def conditional(self, node: Call) -> _Plan:
        condition = self.plan(node.args[0]).run
        branches = [self._operand(branch) for branch in node.args[1:]]

        def run(frame: Frame) -> Any:
            value = condition(frame)
            if value is True:
                return branches[0](frame)
            if value is False:
                return branches[1](frame)
            return value if isinstance(value, EvaluationError) else no_such_overload()

        return _Plan(run, path=run)

    def not_strictly_false(self, node: Call) -> _Plan:
        inner = self.plan(node.args[0]).run

        def run(frame: Frame) -> bool:
            value = inner(frame)
            frame.spend(1)
            return value is not False

        return _Plan(run)

    def alternative(self, node: Call, *, unwrap: bool) -> _Plan:
        """or() and orValue(): the argument is evaluated only when there is no value."""
        assert node.target is not None  # it is a method
        maybe, other = self.plan(node.target).run, self.plan(node.args[0]).run

        def run(frame: Frame) -> Any:
            value = maybe(frame)
            if isinstance(value, EvaluationError):
                return value
            if not isinstance(value, Optional):
                return no_such_overload()
            if not value.present:
                return other(frame)
            return value.value if unwrap else value

        return _Plan(run)

    # aggregates

    def _list(self, node: ListLiteral) -> _Plan:
        plans = [self.plan(element) for element in node.elements]
        steps = [(planned.run, position in node.optional) for position, planned in enumerate(plans)]

        def build(frame: Frame) -> Any:
            items: list[Any] = []
            for step, is_optional in steps:
                value = step(frame)
                if isinstance(value, EvaluationError):
                    return value
                if not is_optional:
                    items.append(value)
                elif not isinstance(value, Optional):
                    return EvaluationError(f"cannot initialize optional list element from non-optional value {value}")
                elif value.present:
                    items.append(value.value)
            return items

        return _aggregate(build, plans, LIST_CREATE)

    def _map(self, node: MapLiteral) -> _Plan:
        plans = [self.plan(part) for entry in node.entries for part in (entry.key, entry.value)]
        steps = [(self.plan(entry.key).run, self.plan(entry.value).run, entry.optional) for entry in node.entries]

        def build(frame: Frame) -> Any:
            mapping = CelMap()
            for key_step, value_step, is_optional in steps:
                failure = _set_entry(mapping, key_step(frame), value_step, is_optional, frame)
                if failure is not None:
                    return failure
            return mapping

        return _aggregate(build, plans, MAP_CREATE)

    def _struct(self, node: StructLiteral) -> _Plan:
        zero = _ZEROS.get(WRAPPERS[node.name].name) if node.name in WRAPPERS else None
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

        return _Plan(run)

    # folds

    def _comprehension(self, node: Comprehension) -> _Plan:
        source, init = self.plan(node.iter_range).run, self.plan(node.accu_init).run
        self._scopes.append(node.accu_var)
        result = self.plan(node.result).run
        names = [name for name in (node.iter_var, node.iter_var2) if name]
        self._scopes.extend(names)
        condition, step = self.plan(node.loop_condition).run, self.plan(node.loop_step).run
        del self._scopes[-len(names) - 1 :]
        if node.is_bind:
            return _Plan(_binding(node.accu_var, init, result))
        return _Plan(_folding(names, source, init, condition, step, result))


def _variable(frame: Frame, name: str) -> Any:
    value = frame.variables[name]
    if isinstance(value, _Pending):
        value = frame.variables[name] = value.step(frame)
    return value


@dataclass(frozen=True, slots=True)
class _Pending:
    """A bound variable that nobody has asked for yet."""

    step: Step


def _binding(name: str, init: Step, result: Step) -> Step:
    def run(frame: Frame) -> Any:
        outer = frame.variables
        inner = dict(outer)
        # The value is worked out where it was written, among the variables of outside.
        inner[name] = _Pending(lambda _frame: _within(frame, outer, init))
        return _within(frame, inner, result)

    return run


def _within(frame: Frame, variables: dict[str, Any], step: Step) -> Any:
    outer, frame.variables = frame.variables, variables
    try:
        return step(frame)
    finally:
        frame.variables = outer


def _folding(names: Sequence[str], source: Step, init: Step, condition: Step, step: Step, result: Step) -> Step:
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
        pairs = rounds(container, len(names))
        if isinstance(pairs, EvaluationError):
            return pairs
        return _within(frame, dict(frame.variables), lambda inner: fold(inner, pairs))

    return run


def rounds(container: Any, variables: int) -> Iterable[tuple[Any, ...]] | EvaluationError:
    """What the iteration variables stand for in each round of a fold."""
    if type(container) is list:
        return enumerate(container) if variables == 2 else ((item,) for item in container)
    if isinstance(container, CelMap):
        if variables == 2:
            return ((key_value(key), value) for key, value in container.items())
        return ((key_value(key),) for key in container)
    return EvaluationError(f"got '{go_name(container)}', expected iterable type")


def _append(items: Any, more: Any) -> Any:
    """Addition to an accumulator, which nobody else can see: a list grows in place."""
    if type(items) is list and type(more) is list:
        items.extend(more)
        return items
    return functions.OPERATORS["_+_"](items, more)


def _set_entry(mapping: CelMap, key: Any, value_step: Step, is_optional: bool, frame: Frame) -> EvaluationError | None:
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


def _aggregate(build: Step, plans: Sequence[_Plan], cost: int) -> _Plan:
    def run(frame: Frame) -> Any:
        value = build(frame)
        frame.spend(cost)
        return value

    if all(planned.is_constant for planned in plans):
        value = build(_nowhere())
        if isinstance(value, EvaluationError):
            return _constant(value)
        # Accumulators grow in place: every evaluation gets a list of its own.
        copied = list if isinstance(value, list) else CelMap
        return _Plan(lambda _frame: copied(value), is_constant=True, value=value)
    return _Plan(run)


def _nowhere() -> Frame:
    """A frame for what depends on no device."""
    return Frame(DeviceView(driver=""), limit=0)


_CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))
_PATTERNS = frozenset(("matches", "find", "findAll"))


def _folded(name: str, function: functions.Function, plans: Sequence[_Plan]) -> _Plan | None:
    """Conversions of constants are done once, before any evaluation. Raises: CompileError where one fails."""
    if name not in _CONVERSIONS or len(plans) != 1 or not plans[0].is_constant:
        return None
    try:
        return _constant(function(plans[0].value))
    except EvaluationError as error:
        raise CompileError(f"program instantiation failed: {error.message}") from None


def _precompiled(name: str, plans: Sequence[_Plan]) -> bool:
    """True for a search with a constant pattern. Raises: CompileError for a pattern that is none."""
    if name not in _PATTERNS or not plans[1].is_constant or not isinstance(plans[1].value, str):
        return False
    try:
        compiled(plans[1].value)
    except EvaluationError as error:
        raise CompileError(f"program instantiation failed: {error.message}") from None
    return True


def _calling(name: str, overload: str, function: functions.Function, steps: Sequence[Step], *, in_order: bool) -> Step:
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
        if overload != "lists_range":
            frame.spend(call_cost(name, overload, values, result))
        return result

    return run


# selection


def _qualified(operand: Any, key: Any, frame: Frame) -> Any:
    """`operand.key` or `operand[key]`: an error, a value, or an optional where the operand is one."""
    if isinstance(operand, EvaluationError):
        return operand
    if type(operand) is Optional:
        return _optional_qualified(operand, key, frame)
    frame.spend(1)
    try:
        return lookup(operand, key)
    except EvaluationError as error:
        return error


def _optional_qualified(operand: Any, key: Any, frame: Frame) -> Any:
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


def _presence(operand: Any, name: str, frame: Frame) -> Any:
    if isinstance(operand, EvaluationError):
        return operand
    frame.spend(1)
    return is_present(operand, name)


def lookup(operand: Any, key: Any) -> Any:
    """Raises: EvaluationError when nothing is there."""
    if type(operand) is DeviceView:
        return _device_field(operand, key)
    if isinstance(operand, CelMap | list):
        return index(operand, key)
    raise no_such_key(key)


def lookup_optional(operand: Any, key: Any) -> Optional:
    """What lookup() finds, or nothing where it finds nothing."""
    if type(operand) is DeviceView:
        return optional(_device_field(operand, key))
    if isinstance(operand, CelMap):
        try:
            return optional(index(operand, key))
        except EvaluationError:
            return NONE
    if type(operand) is list:
        inside = type(key) in (int, Uint) and 0 <= key < len(operand)
        return optional(operand[key]) if inside else NONE
    return NONE


def is_present(operand: Any, name: str) -> bool:
    """has(operand.name)."""
    if type(operand) is Optional:
        return operand.present and is_present(operand.value, name)
    if type(operand) is DeviceView:
        return True
    return isinstance(operand, CelMap) and has_key(operand, name)


def _device_field(device: DeviceView, name: str) -> Any:
    if name == "allowMultipleAllocations":
        return device.allow_multiple_allocations
    return getattr(device, name)


_ZEROS: dict[str, Any] = {"bool": False, "bytes": b"", "double": 0.0, "int": 0, "string": "", "uint": Uint(0)}
_GLOBAL = frozenset(("_&&_", "_||_", "_?_:_", "_[_]", "_[?_]", "_?._", "@not_strictly_false"))
_SPECIAL: dict[str, Callable[[_Planner, Call], _Plan]] = {
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
