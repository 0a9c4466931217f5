"""What an expression may name, and what its calls do: functions, names and types.

`overloads.txt` lists the functions of Kubernetes' base environment at compatibility version 1.36. An `Environment` is
that and what one use adds: its variables, its structures, functions of its own (`scheduling.cel.environment` for device
selectors, `manciple.admission.environment` for policies). Source: apiserver/pkg/cel/environment.

`bind` gives the Python function of a call. Operators decide by the values' types themselves. Other functions are
guarded where the checker left a type open: the first overload that takes the values is used, and where none does the
call is an error of the language, never Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from manciple.cel import collections, conversions, kubernetes, operators, text, times, types
from manciple.cel.costs import CostRule
from manciple.cel.errors import EvaluationError
from manciple.cel.kubernetes import Amount, Semver
from manciple.cel.operators import is_a, type_name, type_of
from manciple.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    NULLABLE,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    TypeKind,
    list_of,
    map_of,
    param,
    parse_type,
    type_of_type,
    wrapper_of,
)
from manciple.cel.values import TypeValue, Uint

Function: TypeAlias = Callable[..., Any]

_LINE = re.compile(r"(\S+) (\S+) (\.?)\((.*)\) -> (.*)")


@dataclass(frozen=True)
class Overload:
    """One signature of a function. For a method the first argument is its target."""

    id: str
    function: str
    is_member: bool
    args: tuple[CelType, ...]
    result: CelType
    type_params: tuple[CelType, ...]


@dataclass(frozen=True)
class Environment:
    """What expressions of one use may name beside the base functions, and what that is when they are evaluated."""

    functions: Mapping[str, tuple[Overload, ...]]
    #: the type of every name an expression may use
    idents: Mapping[str, CelType]
    #: the fields of structures, by the structure's name
    structs: Mapping[str, Mapping[str, CelType]] = field(default_factory=dict)
    #: the name from which structures can be made that nothing declares, with any fields: "Object" stands for Object,
    #: Object.spec, ...; "" where there are none
    open_structs: str = ""
    #: what the environment's own overloads do, by their ids
    implementations: Mapping[str, Function] = field(default_factory=dict)
    #: what calls of the environment's own functions cost, by function; 1 where they are not told
    costs: Mapping[str, CostRule] = field(default_factory=dict)
    #: path from a variable -> the greatest size of what lies there; None where nothing is declared of it
    greatest_size: Callable[[tuple[str, ...]], int | None] = lambda _path: None

    def is_open(self, name: str) -> bool:
        root = self.open_structs
        return bool(root) and (name == root or name.startswith(f"{root}."))


@cache
def base_functions() -> Mapping[str, tuple[Overload, ...]]:
    return declared(Path(__file__).with_name("overloads.txt").read_text(encoding="utf-8"))


def declared(text: str) -> Mapping[str, tuple[Overload, ...]]:
    """Functions from their declarations, one overload a line: `includes dra_includes_dyn_dyn .(dyn, dyn) -> bool`."""
    functions: dict[str, list[Overload]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            overload = _overload(line)
            functions.setdefault(overload.function, []).append(overload)
    return {name: tuple(overloads) for name, overloads in functions.items()}


def _overload(line: str) -> Overload:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"overloads.txt: {line!r}")
    function, id_, dot, args, result = match.groups()
    types = parse_type(f"function({args})").params if args else ()
    variables = tuple(param(name) for name in dict.fromkeys(re.findall(r"<(\w+)>", line.partition(" ")[2])))
    return Overload(id_, function, dot == ".", types, parse_type(result), variables)


#: Messages that a user may write although values of them are plain values: name -> what they stand for.
WRAPPERS = {
    "google.protobuf.BoolValue": BOOL,
    "google.protobuf.BytesValue": BYTES,
    "google.protobuf.DoubleValue": DOUBLE,
    "google.protobuf.FloatValue": DOUBLE,
    "google.protobuf.Int32Value": INT,
    "google.protobuf.Int64Value": INT,
    "google.protobuf.StringValue": STRING,
    "google.protobuf.UInt32Value": UINT,
    "google.protobuf.UInt64Value": UINT,
}


@cache
def type_names() -> dict[str, CelType]:
    """Types are values: `int` has the type type(int)."""
    plain = {type_.name: type_ for type_ in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION)}
    generic = {
        "list": list_of(DYN),
        "map": map_of(DYN, DYN),
        "type": CelType(TypeKind.TYPE, "type"),
        "optional_type": CelType(TypeKind.OPAQUE, "optional_type", (DYN,)),
        "net.IP": CelType(TypeKind.OPAQUE, "net.IP"),
        "net.CIDR": CelType(TypeKind.OPAQUE, "net.CIDR"),
    }
    structs = {
        name: parse_type(name)
        for name in ("kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat")
    }
    wrappers = {name: wrapper_of(type_) for name, type_ in WRAPPERS.items()}
    return {name: type_of_type(type_) for name, type_ in {**plain, **generic, **structs, **wrappers}.items()}


#: Functions that look at the types of their operands themselves, by name.
OPERATORS: Mapping[str, Function] = {
    "_+_": operators.add,
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_/_": operators.divide,
    "_%_": operators.modulo,
    "-_": operators.negate,
    "!_": operators.logical_not,
    "_==_": operators.equals,
    "_!=_": operators.not_equals,
    "_<_": operators.less,
    "_<=_": operators.less_equal,
    "_>_": operators.greater,
    "_>=_": operators.greater_equal,
    "@in": operators.contains,
    "_in_": operators.contains,
    "size": operators.size,
    "type": lambda value: TypeValue(type_of(value)),
    "dyn": lambda value: value,
}

_BY_OVERLOAD: Mapping[str, Function] = {
    **collections.IMPLEMENTATIONS,
    **conversions.IMPLEMENTATIONS,
    **kubernetes.IMPLEMENTATIONS,
    **text.IMPLEMENTATIONS,
    **times.IMPLEMENTATIONS,
}


def bind(environment: Environment, function: str, overload_ids: Sequence[str], *, exact: bool) -> Function:
    """The function to call with the evaluated operands.

    exact: the checker knows the operands' types, so that nothing needs to be looked at. Raises: EvaluationError from
    the returned function only.
    """
    if function in OPERATORS:
        return OPERATORS[function]
    known = environment.functions[function]
    chosen = [overload for overload in known if overload.id in overload_ids]
    may_be_null = any(argument.kind in NULLABLE for overload in chosen for argument in overload.args)
    only = _implementation(environment, chosen[0]) if len(chosen) == 1 else None
    if only is not None:
        return only if exact and not may_be_null else _guarded(chosen[0], only)
    # Several candidates are tried among all overloads of the name, as upstream's dispatch by name does.
    return _dispatcher(environment, function, chosen if len(chosen) == 1 else known)


def _implementation(environment: Environment, overload: Overload) -> Function | None:
    return _BY_OVERLOAD.get(overload.id) or environment.implementations.get(overload.id)


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
    slow = _trying(overload.function, [(overload, implementation)])
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


def _dispatcher(environment: Environment, function: str, overloads: Sequence[Overload]) -> Function:
    found = [(overload, _implementation(environment, overload)) for overload in overloads]
    return _trying(function, [(overload, callable_) for overload, callable_ in found if callable_ is not None])


def _trying(function: str, overloads: Sequence[tuple[Overload, Function]]) -> Function:
    def dispatch(*values: Any) -> Any:
        for overload, implementation in overloads:
            if len(overload.args) == len(values) and all(map(is_a, values, overload.args)):
                return implementation(*values)
        raise EvaluationError(f"no such overload: {function}({', '.join(map(type_name, values))})")

    return dispatch
