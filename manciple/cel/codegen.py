"""Writing Python: statements, blocks, fresh names, constants and functions; and what the generated code calls.

The text consists of names that are made here and of nothing else: whatever comes from an expression (texts, numbers,
patterns) is a constant that the text refers to by name. Blocks that would nest deeper than Python allows (20 loops and
tries, 100 indents) go into functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from manciple.cel.collections import insert_into
from manciple.cel.errors import CostLimitExceeded, EvaluationError
from manciple.cel.functions import WRAPPERS
from manciple.cel.operators import (
    equals,
    greater,
    greater_equal,
    is_present,
    less,
    less_equal,
    lookup,
    lookup_optional,
    rounds,
)
from manciple.cel.types import INT, STRING, CelType
from manciple.cel.values import CelMap, Optional, Uint, map_key, no_such_overload

#: How deep statements of one function may nest.
MAX_NESTING = 14
#: Longer code is not worth making: operands that macros use twice are written twice, and so on inside them.
MAX_LINES = 3000


class TooLong(Exception):
    """The code of an expression would be out of proportion."""


class FunctionWriter:
    """The functions of one expression while they are being written. The function being written is the current one."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._constants: dict[int, str] = {}
        self._finished: list[str] = []
        self._lines: list[str] = []
        self._indent = 1
        self._names = 0
        self._written = 0

    def fresh(self, prefix: str = "t") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = self._constants.get(id(value))
        if name is None:
            name = self.fresh("k")
            self._constants[id(value)] = name
            self._namespace[name] = value  # kept here, so that the id stays its own
        return name

    def line(self, text: str) -> None:
        """Raises: TooLong."""
        self._written += 1
        if self._written > MAX_LINES:
            raise TooLong
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The statements inside `with` are the body of `head:`."""
        self.line(f"{head}:")
        self._indent += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._indent -= 1

    @property
    def is_deep(self) -> bool:
        """True when what comes next should go into a function of its own."""
        return self._indent >= MAX_NESTING

    def function(self, parameters: list[str], body: Callable[[], str]) -> str:
        """Writes a function; `body` writes its statements and gives the expression it returns. Gives its name."""
        name = self.fresh("f")
        outer_lines, outer_indent = self._lines, self._indent
        self._lines, self._indent = [f"def {name}({', '.join(parameters)}):"], 1
        self.line(f"return {body()}")
        self._finished.append("\n".join(self._lines))
        self._lines, self._indent = outer_lines, outer_indent
        return name

    def build(self, name: str) -> Callable[..., Any]:
        """Makes what was written into functions and gives the one with this name."""
        source = "\n\n".join(self._finished)
        exec(compile(source, "<selector>", "exec"), self._namespace)  # noqa: S102  # all names in it are ours
        function: Callable[..., Any] = self._namespace[name]
        return function


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
    """As a Python expression: Python's operator where the types make it mean the same, else a function.

    A value of an open type is asked for its class first, as in `v >= 16 if (v := ...).__class__ is int else
    greater_equal(v, 16)`. texts: the operands as Python expressions. name: a variable for the left one.
    """
    operator, decider = ("==", "equals") if function in _EQUALITIES else _ORDERS[function]
    negation = "not " if function == "_!=_" else ""
    # A strict value refuses to be compared with text; all else is simply different from it.
    if _is_plain(left, right) or (literal and right == STRING and function in _EQUALITIES):
        return f"({negation}{texts[0]} {operator} {texts[1]})"
    if literal and right == INT:
        fast = f"{name} {operator} {texts[1]} if ({name} := {texts[0]}).__class__ is int"
        return f"({negation}({fast} else {decider}({name}, {texts[1]})))"
    return f"({negation}{decider}({texts[0]}, {texts[1]}))"


_ZEROS: Mapping[str, Any] = {"bool": False, "bytes": b"", "double": 0.0, "int": 0, "string": "", "uint": Uint(0)}


def zero_of(message: str) -> Any:
    """What a wrapper message without a value stands for; None for any other message."""
    return _ZEROS[WRAPPERS[message].name] if message in WRAPPERS else None


def first_failure(first: EvaluationError | None, later: EvaluationError) -> EvaluationError:
    """The failure to keep. Raises: CostLimitExceeded, which nothing absorbs."""
    if isinstance(later, CostLimitExceeded):
        raise later
    return first or later


def forced(value: Any) -> Any:
    """A bound variable's value. Raises: the error it has instead."""
    if isinstance(value, EvaluationError):
        raise value
    return value


def demand_optional(value: Any) -> Optional:
    if type(value) is not Optional:
        raise no_such_overload()
    return value


def add_element(items: list[Any], value: Any, is_optional: bool) -> None:
    """is_optional: the value of an optional is meant, if there is one."""
    if not is_optional:
        items.append(value)
    elif type(value) is not Optional:
        raise EvaluationError(f"cannot initialize optional list element from non-optional value {value}")
    elif value.present:
        items.append(value.value)


def add_entry(mapping: CelMap, key: Any, value: Any, is_optional: bool) -> None:
    kept = map_key(key)
    if not is_optional:
        mapping[kept] = value
    elif type(value) is not Optional:
        raise EvaluationError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
    elif value.present:
        mapping[kept] = value.value


def build_list(elements: Sequence[tuple[Any, bool]]) -> list[Any]:
    items: list[Any] = []
    for value, is_optional in elements:
        add_element(items, value, is_optional)
    return items


def build_map(entries: Sequence[tuple[Any, Any, bool]]) -> CelMap:
    mapping = CelMap()
    for key, value, is_optional in entries:
        add_entry(mapping, key, value, is_optional)
    return mapping


def build_wrapper(zero: Any, fields: Sequence[tuple[Any, bool]]) -> Any:
    """google.protobuf.Int32Value{value: 1} is 1."""
    value = zero
    for given, is_optional in fields:
        value = given
        if is_optional and type(given) is Optional:
            value = given.value if given.present else zero
    return value


_CALLED: tuple[Callable[..., Any], ...] = (
    *(build_list, build_map, build_wrapper, demand_optional, equals, first_failure, forced, greater, greater_equal),
    *(is_present, less, less_equal, lookup, lookup_optional, no_such_overload, rounds),
)
NAMES: Mapping[str, Any] = {
    "CelMap": CelMap,
    "EvaluationError": EvaluationError,
    "insert": insert_into,
    **{function.__name__: function for function in _CALLED},
}
