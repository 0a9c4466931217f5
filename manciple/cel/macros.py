"""Macros: calls that the parser replaces by folds and conditionals before anything else looks at the tree.

The expansions are cel-go's, because costs and error places follow from them: `x.all(v, p)` folds with && and stops
early, `x.map(v, e)` appends to a list, `cel.bind(v, a, e)` folds over nothing, `x.optMap(v, e)` binds only when there
is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from manciple.cel.errors import CompileFinding
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
)
from manciple.cel.types import BOOL, INT

Expansion = Callable[[Call], Node]

_SORT_INPUT = "@__sortBy_input__"


class MacroError(Exception):
    """A macro was called with arguments that it cannot expand."""

    def __init__(self, problem: CompileFinding) -> None:
        super().__init__(problem.message)
        self.problem = problem


def expand(call: Call) -> Node:
    """The call itself, or what its macro makes of it. Raises: MacroError."""
    expansion = _MACROS.get((call.function, len(call.args)))
    is_macro = expansion is not None and (call.target is None) is (call.function == "has")
    return expansion(call) if expansion is not None and is_macro else call


def _has(call: Call) -> Node:
    operand = call.args[0]
    if not isinstance(operand, Select) or operand.test_only:
        raise MacroError(CompileFinding(operand.offset, "invalid argument to has() macro"))
    return Select(call.offset, operand.operand, operand.field_name, test_only=True)


def _name(node: Node) -> str:
    if not isinstance(node, Ident):
        raise MacroError(CompileFinding(node.offset, "argument must be a simple name"))
    if node.name in (ACCUMULATOR, "__result__"):
        raise MacroError(CompileFinding(node.offset, "iteration variable overwrites accumulator variable"))
    return node.name


def _variables(call: Call, count: int) -> tuple[str, str]:
    first = _name(call.args[0])
    second = _name(call.args[1]) if count > 1 else ""
    if first == second:
        raise MacroError(CompileFinding(call.args[1].offset, "duplicate variable name: " + first))
    return first, second


def _fold(call: Call, *, variables: int, init: Node, condition: Node, step: Node, result: Node) -> Comprehension:
    iter_var, iter_var2 = _variables(call, variables)
    return Comprehension(
        call.offset,
        macro=call.function,
        iter_range=call.operands[0],
        iter_var=iter_var,
        iter_var2=iter_var2,
        accu_var=ACCUMULATOR,
        accu_init=init,
        loop_condition=condition,
        loop_step=step,
        result=result,
    )


def _accu(call: Call) -> Ident:
    return Ident(call.offset, ACCUMULATOR)


def _true(call: Call) -> Literal:
    return Literal(call.offset, True, BOOL)


def _operator(call: Call, function: str, *args: Node) -> Call:
    return Call(call.offset, function, None, args)


def _quantified(call: Call, *, variables: int, exists: bool) -> Node:
    predicate = call.args[variables]
    accu = _accu(call)
    going_on = _operator(call, "!_", accu) if exists else accu
    return _fold(
        call,
        variables=variables,
        init=Literal(call.offset, not exists, BOOL),
        condition=_operator(call, "@not_strictly_false", going_on),
        step=_operator(call, "_||_" if exists else "_&&_", _accu(call), predicate),
        result=_accu(call),
    )


def _exists_one(call: Call, *, variables: int) -> Node:
    one = Literal(call.offset, 1, INT)
    counted = _operator(call, "_+_", _accu(call), one)
    return _fold(
        call,
        variables=variables,
        init=Literal(call.offset, 0, INT),
        condition=_true(call),
        step=_operator(call, "_?_:_", call.args[variables], counted, _accu(call)),
        result=_operator(call, "_==_", _accu(call), one),
    )


def _guarded(call: Call, predicate: Node | None, step: Node) -> Node:
    return step if predicate is None else _operator(call, "_?_:_", predicate, step, _accu(call))


def _collected(call: Call, *, variables: int, filtered: bool, element: Callable[[Call], Node]) -> Node:
    """A fold that appends one element per round, or only in rounds where the predicate holds."""
    predicate = call.args[variables] if filtered else None
    appended = _operator(call, "_+_", _accu(call), ListLiteral(call.offset, (element(call),)))
    return _fold(
        call,
        variables=variables,
        init=ListLiteral(call.offset, ()),
        condition=_true(call),
        step=_guarded(call, predicate, appended),
        result=_accu(call),
    )


def _mapped(call: Call, *, filtered: bool, entries: bool) -> Node:
    """transformMap keeps each key, transformMapEntry inserts the entry that its argument makes."""
    predicate = call.args[2] if filtered else None
    inserted = (call.args[-1],) if entries else (Ident(call.offset, _name(call.args[0])), call.args[-1])
    return _fold(
        call,
        variables=2,
        init=MapLiteral(call.offset, ()),
        condition=_true(call),
        step=_guarded(call, predicate, _operator(call, "cel.@mapInsert", _accu(call), *inserted)),
        result=_accu(call),
    )


def _named(call: Call, name: str, init: Node, result: Node) -> Comprehension:
    return Comprehension(
        call.offset,
        macro="bind",
        iter_range=ListLiteral(call.offset, ()),
        iter_var="#unused",
        iter_var2="",
        accu_var=name,
        accu_init=init,
        loop_condition=Literal(call.offset, False, BOOL),
        loop_step=Ident(call.offset, name),
        result=result,
    )


def _bind(call: Call) -> Node:
    if not (isinstance(call.target, Ident) and call.target.name == "cel"):
        return call
    name = call.args[0]
    if not isinstance(name, Ident):
        raise MacroError(CompileFinding(name.offset, "cel.bind() variable names must be simple identifiers"))
    return _named(call, name.name, call.args[1], call.args[2])


def _optional_mapped(call: Call, *, flat: bool) -> Node:
    name = call.args[0]
    if not isinstance(name, Ident):
        function = "optFlatMap" if flat else "optMap"
        raise MacroError(CompileFinding(name.offset, f"{function}() variable name must be a simple identifier"))
    value = Call(call.offset, "value", call.target, ())
    bound: Node = _named(call, name.name, value, call.args[1])
    return _operator(
        call,
        "_?_:_",
        Call(call.offset, "hasValue", call.target, ()),
        bound if flat else _operator(call, "optional.of", bound),
        _operator(call, "optional.none"),
    )


def _sort_by(call: Call) -> Node:
    target = call.operands[0]
    if isinstance(target, Literal | MapLiteral):
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(CompileFinding(target.offset, message))
    source = Ident(call.offset, _SORT_INPUT)
    keys = expand(Call(call.offset, "map", source, call.args))
    ordered = Call(call.offset, "@sortByAssociatedKeys", source, (keys,))
    return _named(call, _SORT_INPUT, target, ordered)


def _last(call: Call) -> Node:
    return call.args[-1]


def _first_variable(call: Call) -> Node:
    return Ident(call.offset, _name(call.args[0]))


#: (name, number of arguments) -> what it makes of the call
_MACROS: Mapping[tuple[str, int], Expansion] = {
    ("has", 1): _has,
    ("all", 2): partial(_quantified, variables=1, exists=False),
    ("all", 3): partial(_quantified, variables=2, exists=False),
    ("exists", 2): partial(_quantified, variables=1, exists=True),
    ("exists", 3): partial(_quantified, variables=2, exists=True),
    ("exists_one", 2): partial(_exists_one, variables=1),
    ("exists_one", 3): partial(_exists_one, variables=2),
    ("existsOne", 3): partial(_exists_one, variables=2),
    ("map", 2): partial(_collected, variables=1, filtered=False, element=_last),
    ("map", 3): partial(_collected, variables=1, filtered=True, element=_last),
    ("filter", 2): partial(_collected, variables=1, filtered=True, element=_first_variable),
    ("transformList", 3): partial(_collected, variables=2, filtered=False, element=_last),
    ("transformList", 4): partial(_collected, variables=2, filtered=True, element=_last),
    ("transformMap", 3): partial(_mapped, filtered=False, entries=False),
    ("transformMap", 4): partial(_mapped, filtered=True, entries=False),
    ("transformMapEntry", 3): partial(_mapped, filtered=False, entries=True),
    ("transformMapEntry", 4): partial(_mapped, filtered=True, entries=True),
    ("bind", 3): _bind,
    ("optMap", 2): partial(_optional_mapped, flat=False),
    ("optFlatMap", 2): partial(_optional_mapped, flat=True),
    ("sortBy", 2): _sort_by,
}
