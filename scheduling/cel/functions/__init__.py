"""The functions of the language, by overload, and the choice among overloads at run time.

`bind(call's overloads, guard)` gives the Python function of a call. Operators decide by the values' types themselves.
Other functions are guarded where the checker left a type open: the first overload that takes the values is used, and
where none does the call is an error of the language, never Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scheduling.cel import types
from scheduling.cel.declarations import Overload, all_functions
from scheduling.cel.equality import contains, equals, greater, greater_equal, less, less_equal
from scheduling.cel.errors import EvaluationError
from scheduling.cel.functions import collections, conversions, kubernetes, moments, operators, optionals, text
from scheduling.cel.kinds import is_a, type_name, type_of
from scheduling.cel.quantities import Amount
from scheduling.cel.semver import Semver
from scheduling.cel.unification import NULLABLE
from scheduling.cel.values import TypeValue, Uint

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
    "_in_": contains,
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
    may_be_null = any(argument.kind in NULLABLE for overload in chosen for argument in overload.args)
    if len(chosen) == 1 and exact and not may_be_null and chosen[0].id in _BY_OVERLOAD:
        return _BY_OVERLOAD[chosen[0].id]
    if len(chosen) == 1 and chosen[0].id in _BY_OVERLOAD:
        return _guarded(chosen[0], _BY_OVERLOAD[chosen[0].id])
    # Several candidates are tried among all overloads of the name, as upstream's dispatch by name does.
    return _dispatcher(function, chosen if len(chosen) == 1 else declared)


#: Types whose values are told by their class alone.
_CLASSES = {
    types.BOOL: bool,
    types.INT: int,
    types.UINT: Uint,
    types.DOUBLE: float,
    types.STRING: str,
    types.BYTES: bytes,
    types.QUANTITY: Amount,
    types.SEMVER: Semver,
}


def _guarded(overload: Overload, implementation: Function) -> Function:
    """The one overload there is, asked for by class where that tells the types."""
    slow = _dispatcher(overload.function, (overload,))
    classes = tuple(_CLASSES.get(type_) for type_ in overload.args)
    if None in classes or len(classes) > len(_GUARDS):
        return slow
    return _GUARDS[len(classes) - 1](implementation, slow, *classes) if classes else implementation


def _guard_one(implementation: Function, slow: Function, wanted: type) -> Function:
    def call(value: Any) -> Any:
        return implementation(value) if value.__class__ is wanted else slow(value)

    return call


def _guard_two(implementation: Function, slow: Function, wanted: type, second: type) -> Function:
    def call(left: Any, right: Any) -> Any:
        if left.__class__ is wanted and right.__class__ is second:
            return implementation(left, right)
        return slow(left, right)

    return call


_GUARDS: tuple[Callable[..., Function], ...] = (_guard_one, _guard_two)


def _dispatcher(function: str, overloads: Sequence[Overload]) -> Function:
    callable_ = [(overload, _BY_OVERLOAD[overload.id]) for overload in overloads if overload.id in _BY_OVERLOAD]

    def dispatch(*values: Any) -> Any:
        for overload, implementation in callable_:
            if len(overload.args) == len(values) and all(map(is_a, values, overload.args)):
                return implementation(*values)
        raise EvaluationError(f"no such overload: {function}({', '.join(map(type_name, values))})")

    return dispatch
