"""The functions of the language, by overload, and the choice among overloads at run time.

`bind(call's overloads, guard)` gives the Python function of a call. Operators decide by the values' types themselves.
Other functions are guarded where the checker left a type open: the first overload that takes the values is used, and
where none does the call is an error of the language, never Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scheduling.cel.declarations import Overload, all_functions
from scheduling.cel.equality import contains, equals, greater, greater_equal, less, less_equal
from scheduling.cel.errors import EvaluationError
from scheduling.cel.functions import collections, conversions, kubernetes, moments, operators, optionals, text
from scheduling.cel.kinds import is_a, type_name, type_of
from scheduling.cel.values import TypeValue

Function = Callable[..., Any]

#: Functions that look at the types of their operands themselves, by name.
OPERATORS: Mapping[str, Function] = {
    "_+_": operators.add,
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_/_": operators.divide,
    "_%_": operators.modulo,
    "-_": operators.negate,
    "!_": operators.logical_not,
    "_==_": equals,
    "_!=_": operators.not_equals,
    "_<_": less,
    "_<=_": less_equal,
    "_>_": greater,
    "_>=_": greater_equal,
    "@in": contains,
    "size": operators.size,
    "type": lambda value: TypeValue(type_of(value)),
    "dyn": lambda value: value,
}

_BY_OVERLOAD: Mapping[str, Function] = {
    **collections.IMPLEMENTATIONS,
    **conversions.IMPLEMENTATIONS,
    **kubernetes.IMPLEMENTATIONS,
    **moments.IMPLEMENTATIONS,
    **optionals.IMPLEMENTATIONS,
    **text.IMPLEMENTATIONS,
}


def bind(function: str, overload_ids: Sequence[str], *, exact: bool) -> Function:
    """The function to call with the evaluated operands.

    exact: the checker knows the operands' types, so that nothing needs to be looked at. Raises: EvaluationError from
    the returned function only.
    """
    if function in OPERATORS:
        return OPERATORS[function]
    declared = all_functions()[function]
    chosen = [overload for overload in declared if overload.id in overload_ids]
    if len(chosen) == 1 and exact and chosen[0].id in _BY_OVERLOAD:
        return _BY_OVERLOAD[chosen[0].id]
    # Several candidates are tried among all overloads of the name, as upstream's dispatch by name does.
    return _dispatcher(function, chosen if len(chosen) == 1 else declared)


def _dispatcher(function: str, overloads: Sequence[Overload]) -> Function:
    callable_ = [(overload, _BY_OVERLOAD[overload.id]) for overload in overloads if overload.id in _BY_OVERLOAD]

    def dispatch(*values: Any) -> Any:
        for overload, implementation in callable_:
            if len(overload.args) == len(values) and all(map(is_a, values, overload.args)):
                return implementation(*values)
        raise EvaluationError(f"no such overload: {function}({', '.join(map(type_name, values))})")

    return dispatch
