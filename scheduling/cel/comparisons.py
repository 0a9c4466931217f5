"""Comparisons as Python expressions: Python's operator where the types make it mean the same, else a function.

A value of an open type is asked for its class first, as in `v >= 16 if (v := ...).__class__ is int else
greater_equal(v, 16)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.cel.types import INT, STRING, CelType

_EQUALITIES = ("_==_", "_!=_")
#: Python's operator and the function that decides by the values' types
_ORDERS = {
    "_<_": ("<", "less"),
    "_<=_": ("<=", "less_equal"),
    "_>_": (">", "greater"),
    "_>=_": (">=", "greater_equal"),
}
COMPARISONS = frozenset((*_EQUALITIES, *_ORDERS))


def is_comparable(function: str, left: CelType, right: CelType, *, literal: bool) -> bool:
    """True when `comparison` can write this one. literal: the right operand is a literal."""
    return function in _EQUALITIES or _is_plain(left, right) or (literal and right == INT)


def _is_plain(left: CelType, right: CelType) -> bool:
    return left == right and left in (INT, STRING)


def comparison(function: str, left: CelType, right: CelType, texts: Sequence[str], *, literal: bool, name: str) -> str:
    """texts: the operands as Python expressions. name: a variable for the left one."""
    operator, decider = ("==", "equals") if function in _EQUALITIES else _ORDERS[function]
    negation = "not " if function == "_!=_" else ""
    # A strict value refuses to be compared with text; all else is simply different from it.
    if _is_plain(left, right) or (literal and right == STRING and function in _EQUALITIES):
        return f"({negation}{texts[0]} {operator} {texts[1]})"
    if literal and right == INT:
        fast = f"{name} {operator} {texts[1]} if ({name} := {texts[0]}).__class__ is int"
        return f"({negation}({fast} else {decider}({name}, {texts[1]})))"
    return f"({negation}{decider}({texts[0]}, {texts[1]}))"
