"""Evaluates a checked tree step by step and counts what each step costs.

This is the evaluator that is always right: it keeps to cel-go's order of steps, so that actual costs agree and an
expression that would run away stops at the limit. `plan` turns every node into a `Step` once; conversions of constants
are done there, and constant patterns are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scheduling.cel import functions
from scheduling.cel.checker import CheckedTree
from scheduling.cel.declarations import WRAPPERS
from scheduling.cel.errors import CompileError, EvaluationError
from scheduling.cel.functions.kubernetes import compiled
from scheduling.cel.runtime import ZEROS
from scheduling.cel.sizes import LIST_CREATE, MAP_CREATE, STRUCT_CREATE
from scheduling.cel.steps import (
    Frame,
    Plan,
    Step,
    aggregate,
    append,
    binding,
    calling,
    constant,
    folding,
    insert_here,
    optional_qualified,
    path_plan,
    presence,
    qualified,
    set_entry,
    variable,
)
from scheduling.cel.tree import (
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
from scheduling.cel.types import Kind
from scheduling.cel.values import CelMap, Optional, TypeValue, Uint, no_such_overload


def plan(tree: CheckedTree) -> Step:
    """The step that evaluates the whole expression. Raises: CompileError when a constant part already fails."""
    return _Planner(tree).plan(tree.root).run


class _Planner:
    def __init__(self, tree: CheckedTree) -> None:
        self._tree = tree
        self._plans: dict[Node, Plan] = {}
        self._scopes: list[str] = []
        self._rules: dict[type, Callable[..., Plan]] = {
            Literal: lambda node: constant(node.value),
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            StructLiteral: self._struct,
            Comprehension: self._comprehension,
        }

    def plan(self, node: Node) -> Plan:
        if node not in self._plans:
            self._plans[node] = self._rules[type(node)](node)
        return self._plans[node]

    def _ident(self, node: Ident) -> Plan:
        return self._name(node, node.name)

    def _name(self, node: Node, name: str) -> Plan:
        if name in self._scopes:
            return path_plan(lambda frame: variable(frame, name))
        type_ = self._tree.types[node]
        if type_.kind is Kind.TYPE:
            return constant(TypeValue(type_.params[0]))
        return path_plan(lambda frame: frame.device)

    # paths

    def _select(self, node: Select) -> Plan:
        reference = self._tree.references.get(node)
        if reference is not None:
            return self._name(node, reference.name)
        inner = self._operand(node.operand)
        name = node.field_name
        if node.test_only:
            return Plan(lambda frame: presence(inner(frame), name, frame))
        return path_plan(lambda frame: qualified(inner(frame), name, frame))

    def _operand(self, node: Node) -> Step:
        """The operand of a selection: a path goes on, anything else is evaluated in full first."""
        planned = self.plan(node)
        return planned.path or planned.run

    def index(self, node: Call, *, is_optional: bool) -> Plan:
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

    def _call(self, node: Call) -> Plan:
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
        by_name = not overload and reference.function not in functions.OPERATORS
        in_order = len(plans) > _BINARY or by_name or _precompiled(reference.function, plans)
        steps = [planned.run for planned in plans]
        if extends_accumulator(node):
            return Plan(calling("", overload, _IN_PLACE[reference.function], steps, in_order=in_order))
        return Plan(calling(reference.function, overload, function, steps, in_order=in_order))

    def _is_set_membership(self, node: Call) -> bool:
        planned = self.plan(node.args[1])
        primitive = (bool, int, Uint, float, str, bytes)
        is_list = planned.is_constant and isinstance(planned.value, list)
        only_list = self._tree.references[node].overloads == ("in_list",)
        return is_list and only_list and all(type(item) in primitive for item in planned.value)

    def _membership(self, node: Call) -> Plan:
        items = self.plan(node.args[1]).value
        if not items:
            return constant(False)
        element = self.plan(node.args[0]).run

        def run(frame: Frame) -> Any:
            value = element(frame)
            return value if isinstance(value, EvaluationError) else functions.OPERATORS["@in"](value, items)

        return Plan(run)

    def logical(self, node: Call, *, decisive: bool) -> Plan:
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

        return Plan(run)

    def conditional(self, node: Call) -> Plan:
        condition = self.plan(node.args[0]).run
        branches = [self._operand(branch) for branch in node.args[1:]]

        def run(frame: Frame) -> Any:
            value = condition(frame)
            if value is True:
                return branches[0](frame)
            if value is False:
                return branches[1](frame)
            return value if isinstance(value, EvaluationError) else no_such_overload()

        return Plan(run, path=run)

    def not_strictly_false(self, node: Call) -> Plan:
        inner = self.plan(node.args[0]).run

        def run(frame: Frame) -> bool:
            value = inner(frame)
            frame.spend(1)
            return value is not False

        return Plan(run)

    def alternative(self, node: Call, *, unwrap: bool) -> Plan:
        """or() and orValue(): the argument is evaluated only when there is no value."""
        maybe, other = (self.plan(operand).run for operand in node.operands)

        def run(frame: Frame) -> Any:
            value = maybe(frame)
            if isinstance(value, EvaluationError):
                return value
            if not isinstance(value, Optional):
                return no_such_overload()
            if not value.present:
                return other(frame)
            return value.value if unwrap else value

        return Plan(run)

    # aggregates

    def _list(self, node: ListLiteral) -> Plan:
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

        return aggregate(build, plans, LIST_CREATE)

    def _map(self, node: MapLiteral) -> Plan:
        plans = [self.plan(part) for entry in node.entries for part in (entry.key, entry.value)]
        steps = [(self.plan(entry.key).run, self.plan(entry.value).run, entry.optional) for entry in node.entries]

        def build(frame: Frame) -> Any:
            mapping = CelMap()
            for key_step, value_step, is_optional in steps:
                failure = set_entry(mapping, key_step(frame), value_step, is_optional, frame)
                if failure is not None:
                    return failure
            return mapping

        return aggregate(build, plans, MAP_CREATE)

    def _struct(self, node: StructLiteral) -> Plan:
        zero = ZEROS.get(WRAPPERS[node.name].name) if node.name in WRAPPERS else None
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

        return Plan(run)

    # folds

    def _comprehension(self, node: Comprehension) -> Plan:
        source, init = self.plan(node.iter_range).run, self.plan(node.accu_init).run
        self._scopes.append(node.accu_var)
        result = self.plan(node.result).run
        names = [name for name in (node.iter_var, node.iter_var2) if name]
        self._scopes.extend(names)
        condition, step = self.plan(node.loop_condition).run, self.plan(node.loop_step).run
        del self._scopes[-len(names) - 1 :]
        if node.is_bind:
            return Plan(binding(node.accu_var, init, result))
        return Plan(folding(names, source=source, init=init, condition=condition, step=step, result=result))


#: Calls with more operands than this stop at the first that fails.
_BINARY = 2
_IN_PLACE: dict[str, functions.Function] = {"_+_": append, "cel.@mapInsert": insert_here}
_CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))
_PATTERNS = frozenset(("matches", "find", "findAll"))


def _folded(name: str, function: functions.Function, plans: Sequence[Plan]) -> Plan | None:
    """Conversions of constants are done once, before any evaluation. Raises: CompileError where one fails."""
    if name not in _CONVERSIONS or len(plans) != 1 or not plans[0].is_constant:
        return None
    try:
        return constant(function(plans[0].value))
    except EvaluationError as error:
        raise CompileError(f"program instantiation failed: {error.message}") from None


def _precompiled(name: str, plans: Sequence[Plan]) -> bool:
    """True for a search with a constant pattern. Raises: CompileError for a pattern that is none."""
    if name not in _PATTERNS or not plans[1].is_constant or not isinstance(plans[1].value, str):
        return False
    try:
        compiled(plans[1].value)
    except EvaluationError as error:
        raise CompileError(f"program instantiation failed: {error.message}") from None
    return True


_GLOBAL = frozenset(("_&&_", "_||_", "_?_:_", "_[_]", "_[?_]", "_?._", "@not_strictly_false"))
_SPECIAL: dict[str, Callable[[_Planner, Call], Plan]] = {
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
