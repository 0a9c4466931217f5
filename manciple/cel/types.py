"""The types of the language: immutable terms such as `map(string, dyn)`, and which of them fit which.

A term is a kind, a name and parameters. Type parameters of overloads are terms of kind PARAM; the checker gives each
use fresh ones and binds them. Texts: `str(type)` is what a selector's output type is called, `describe(type)` is how
the checker's messages name it (they differ for null, timestamps, durations and google.protobuf.Any, as in cel-go).

A `Bindings` maps type parameters to types while one expression is checked. `assignable` tries to make one type fit
another, binding parameters on the way; when it fails, nothing stays bound. Source: cel-go checker/types.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache


class TypeKind(Enum):
    DYN = auto()
    ANY = auto()
    ERROR = auto()
    PRIMITIVE = auto()
    WRAPPER = auto()
    NULL = auto()
    TIME = auto()
    TYPE = auto()
    LIST = auto()
    MAP = auto()
    STRUCT = auto()
    OPAQUE = auto()
    PARAM = auto()


@dataclass(frozen=True)
class CelType:
    kind: TypeKind
    name: str
    params: tuple[CelType, ...] = ()

    def __str__(self) -> str:
        if self.kind is TypeKind.WRAPPER:
            return f"wrapper({self.params[0]})"
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


DYN = CelType(TypeKind.DYN, "dyn")
ANY = CelType(TypeKind.ANY, "google.protobuf.Any")
ERROR = CelType(TypeKind.ERROR, "*error*")
BOOL = CelType(TypeKind.PRIMITIVE, "bool")
INT = CelType(TypeKind.PRIMITIVE, "int")
UINT = CelType(TypeKind.PRIMITIVE, "uint")
DOUBLE = CelType(TypeKind.PRIMITIVE, "double")
STRING = CelType(TypeKind.PRIMITIVE, "string")
BYTES = CelType(TypeKind.PRIMITIVE, "bytes")
NULL = CelType(TypeKind.NULL, "null_type")
TIMESTAMP = CelType(TypeKind.TIME, "google.protobuf.Timestamp")
DURATION = CelType(TypeKind.TIME, "google.protobuf.Duration")
TYPE = CelType(TypeKind.TYPE, "type")
QUANTITY = CelType(TypeKind.STRUCT, "kubernetes.Quantity")
SEMVER = CelType(TypeKind.STRUCT, "kubernetes.Semver")
URL = CelType(TypeKind.STRUCT, "kubernetes.URL")
FORMAT = CelType(TypeKind.STRUCT, "kubernetes.NamedFormat")
IP = CelType(TypeKind.OPAQUE, "net.IP")
CIDR = CelType(TypeKind.OPAQUE, "net.CIDR")

#: The names of the types whose lists can be sorted.
COMPARABLE = (*(type_.name for type_ in (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)),)

_NAMED = {
    type_.name: type_
    for type_ in (DYN, ANY, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION, TYPE, IP, CIDR)
}
_MESSAGE_NAMES = {ANY: "any", NULL: "null", TIMESTAMP: "timestamp", DURATION: "duration", ERROR: "!error!"}
_TOKEN = re.compile(r"\s*(<\w+>|[\w.]+|[(),])")


def list_of(element: CelType) -> CelType:
    return CelType(TypeKind.LIST, "list", (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType(TypeKind.MAP, "map", (key, value))


def optional_of(value: CelType) -> CelType:
    return CelType(TypeKind.OPAQUE, "optional_type", (value,))


def type_of_type(value: CelType) -> CelType:
    return CelType(TypeKind.TYPE, "type", (value,))


def param(name: str) -> CelType:
    return CelType(TypeKind.PARAM, name)


def wrapper_of(value: CelType) -> CelType:
    return CelType(TypeKind.WRAPPER, "wrapper", (value,))


def is_optional(type_: CelType) -> bool:
    return type_.kind is TypeKind.OPAQUE and type_.name == "optional_type"


def is_dynamic(type_: CelType) -> bool:
    """True for the types that anything may be assigned to and from."""
    return type_.kind in (TypeKind.DYN, TypeKind.ANY)


def describe(type_: CelType) -> str:
    """The type as the checker's messages write it."""
    if type_ in _MESSAGE_NAMES:
        return _MESSAGE_NAMES[type_]
    if type_.kind is TypeKind.WRAPPER or type_.params:
        return f"{type_.name}({', '.join(map(describe, type_.params))})"
    return type_.name


@lru_cache(maxsize=512)
def parse_type(text: str) -> CelType:
    """`map(string, <V>)` as a term. Names that are no built-in type are structs."""
    return _term(iter([*_TOKEN.findall(text), ""]))[0]


def _term(tokens: Iterator[str]) -> tuple[CelType, str]:
    """(the term, the token after it)."""
    name = next(tokens)
    after = next(tokens)
    if after != "(":
        return _simple(name), after
    params: list[CelType] = []
    while after != ")":
        term, after = _term(tokens)
        params.append(term)
    return _composite(name, tuple(params)), next(tokens)


def _simple(name: str) -> CelType:
    if name.startswith("<"):
        return param(name[1:-1])
    return _NAMED.get(name) or CelType(TypeKind.STRUCT, name)


def _composite(name: str, params: tuple[CelType, ...]) -> CelType:
    kinds = {"list": TypeKind.LIST, "map": TypeKind.MAP, "type": TypeKind.TYPE}
    return CelType(kinds.get(name, TypeKind.OPAQUE), name, params)


#: Types that null is assignable to, as in cel-go: an operand of such a type may be null when it is evaluated.
NULLABLE = (TypeKind.NULL, TypeKind.STRUCT, TypeKind.OPAQUE, TypeKind.WRAPPER, TypeKind.TIME)


class Bindings:
    """What the type parameters of one expression stand for."""

    def __init__(self) -> None:
        self._bound: dict[CelType, CelType] = {}
        self._fresh = 0

    def fresh(self) -> CelType:
        """A type parameter that nothing else uses."""
        self._fresh += 1
        return CelType(TypeKind.PARAM, f"_var{self._fresh}")

    def assignable(self, given: CelType, wanted: CelType) -> bool:
        return self.all_assignable((given,), (wanted,))

    def all_assignable(self, given: Sequence[CelType], wanted: Sequence[CelType]) -> bool:
        """Binds parameters where all fit; changes nothing where one does not."""
        before = dict(self._bound)
        if self._fit_all(given, wanted):
            return True
        self._bound = before
        return False

    def resolve(self, type_: CelType, *, unbound_to_dyn: bool) -> CelType:
        """The type with every bound parameter replaced, and unbound ones by dyn where asked."""
        bound = self._bound.get(type_)
        if bound is not None:
            return self.resolve(bound, unbound_to_dyn=unbound_to_dyn)
        if type_.kind is TypeKind.PARAM and unbound_to_dyn:
            return DYN
        if not type_.params:
            return type_
        params = tuple(self.resolve(part, unbound_to_dyn=unbound_to_dyn) for part in type_.params)
        return replace(type_, params=params)

    def _fit_all(self, given: Sequence[CelType], wanted: Sequence[CelType]) -> bool:
        return len(given) == len(wanted) and all(map(self._fit, given, wanted))

    def _fit(self, given: CelType, wanted: CelType) -> bool:
        if wanted.kind is TypeKind.PARAM:
            valid, had = self._bind(given, wanted)
            if valid or had:
                return valid
        if given.kind is TypeKind.PARAM:
            return self._bind(wanted, given)[0]
        if TypeKind.ERROR in (given.kind, wanted.kind) or is_dynamic(given) or is_dynamic(wanted):
            return True
        return self._fit_concrete(given, wanted)

    def _fit_concrete(self, given: CelType, wanted: CelType) -> bool:
        if given.kind is TypeKind.NULL:
            return wanted.kind in NULLABLE
        if given.kind is TypeKind.WRAPPER:
            return self._fit(given.params[0], wanted.params[0] if wanted.kind is TypeKind.WRAPPER else wanted)
        if wanted.kind is TypeKind.WRAPPER:
            return given == wanted.params[0]
        if given.kind is TypeKind.TYPE:
            return wanted.kind is TypeKind.TYPE
        return given.kind is wanted.kind and given.name == wanted.name and self._fit_all(given.params, wanted.params)

    def _bind(self, type_: CelType, parameter: CelType) -> tuple[bool, bool]:
        """(whether `parameter` may stand for `type_`, whether it already stood for something)."""
        if type_ == parameter:
            return True, True
        bound = self._bound.get(parameter)
        if bound is not None:
            if type_ == bound:
                return True, True
            if not self._fit(type_, bound):
                return False, True
            general = more_general(type_, bound)
            if not self._occurs(parameter, general):
                self._bound[parameter] = general
            return True, True
        if self._occurs(parameter, type_):
            return False, False
        self._bound[parameter] = type_
        return True, False

    def _occurs(self, parameter: CelType, type_: CelType) -> bool:
        if type_ == parameter:
            return True
        if type_.kind is TypeKind.PARAM:
            bound = self._bound.get(type_)
            return bound is not None and self._occurs(parameter, bound)
        return any(self._occurs(parameter, part) for part in type_.params)


def more_general(first: CelType, second: CelType) -> CelType:
    """The less specific of two types that fit each other."""
    return first if _no_more_specific(first, second) else second


def _no_more_specific(first: CelType, second: CelType) -> bool:
    if is_dynamic(first) or first.kind is TypeKind.PARAM:
        return True
    if is_dynamic(second) or second.kind is TypeKind.PARAM:
        return False
    if first.kind is TypeKind.NULL or second.kind is TypeKind.NULL:
        return first.kind is not TypeKind.NULL
    if first.kind is not second.kind or first.name != second.name or len(first.params) != len(second.params):
        return first.kind is TypeKind.WRAPPER
    return first.kind is TypeKind.TYPE or all(map(_no_more_specific, first.params, second.params))
