"""The types of the language: immutable terms such as `map(string, dyn)`.

A term is a kind, a name and parameters. Type parameters of overloads are terms of kind PARAM; the checker gives each
use fresh ones and binds them. Texts: `str(type)` is what a selector's output type is called, `describe(type)` is how
the checker's messages name it (they differ for null, timestamps, durations and google.protobuf.Any, as in cel-go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache


class Kind(Enum):
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
    kind: Kind
    name: str
    params: tuple[CelType, ...] = ()

    def __str__(self) -> str:
        if self.kind is Kind.WRAPPER:
            return f"wrapper({self.params[0]})"
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


DYN = CelType(Kind.DYN, "dyn")
ANY = CelType(Kind.ANY, "google.protobuf.Any")
ERROR = CelType(Kind.ERROR, "*error*")
BOOL = CelType(Kind.PRIMITIVE, "bool")
INT = CelType(Kind.PRIMITIVE, "int")
UINT = CelType(Kind.PRIMITIVE, "uint")
DOUBLE = CelType(Kind.PRIMITIVE, "double")
STRING = CelType(Kind.PRIMITIVE, "string")
BYTES = CelType(Kind.PRIMITIVE, "bytes")
NULL = CelType(Kind.NULL, "null_type")
TIMESTAMP = CelType(Kind.TIME, "google.protobuf.Timestamp")
DURATION = CelType(Kind.TIME, "google.protobuf.Duration")
TYPE = CelType(Kind.TYPE, "type")
QUANTITY = CelType(Kind.STRUCT, "kubernetes.Quantity")
SEMVER = CelType(Kind.STRUCT, "kubernetes.Semver")
URL = CelType(Kind.STRUCT, "kubernetes.URL")
FORMAT = CelType(Kind.STRUCT, "kubernetes.NamedFormat")
IP = CelType(Kind.OPAQUE, "net.IP")
CIDR = CelType(Kind.OPAQUE, "net.CIDR")
DEVICE = CelType(Kind.STRUCT, "kubernetes.DRADevice")

_NAMED = {
    type_.name: type_
    for type_ in (DYN, ANY, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION, TYPE, IP, CIDR)
}
_MESSAGE_NAMES = {ANY: "any", NULL: "null", TIMESTAMP: "timestamp", DURATION: "duration", ERROR: "!error!"}
_TOKEN = re.compile(r"\s*(<\w+>|[\w.]+|[(),])")


def list_of(element: CelType) -> CelType:
    return CelType(Kind.LIST, "list", (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType(Kind.MAP, "map", (key, value))


def optional_of(value: CelType) -> CelType:
    return CelType(Kind.OPAQUE, "optional_type", (value,))


def type_of_type(value: CelType) -> CelType:
    return CelType(Kind.TYPE, "type", (value,))


def param(name: str) -> CelType:
    return CelType(Kind.PARAM, name)


def wrapper_of(value: CelType) -> CelType:
    return CelType(Kind.WRAPPER, "wrapper", (value,))


def is_optional(type_: CelType) -> bool:
    return type_.kind is Kind.OPAQUE and type_.name == "optional_type"


def is_dynamic(type_: CelType) -> bool:
    """True for the types that anything may be assigned to and from."""
    return type_.kind in (Kind.DYN, Kind.ANY)


def describe(type_: CelType) -> str:
    """The type as the checker's messages write it."""
    if type_ in _MESSAGE_NAMES:
        return _MESSAGE_NAMES[type_]
    if type_.kind is Kind.WRAPPER or type_.params:
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
    return _NAMED.get(name) or CelType(Kind.STRUCT, name)


def _composite(name: str, params: tuple[CelType, ...]) -> CelType:
    kinds = {"list": Kind.LIST, "map": Kind.MAP, "type": Kind.TYPE}
    return CelType(kinds.get(name, Kind.OPAQUE), name, params)
