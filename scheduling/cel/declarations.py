"""What an expression may name: the functions, variables, fields and types of the environment.

`overloads.txt` lists the functions of Kubernetes' base environment at compatibility version 1.36 plus the device
environment's own `includes`. Two things vary. Stored expressions are checked against everything any release allowed;
new ones only against what the enabled features allow: without list-typed attributes an attribute has the type `any`
and there is no `includes`, without consumable capacity there is no `device.allowMultipleAllocations`.
Source: dynamic-resource-allocation/cel/compile.go and apiserver/pkg/cel/environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from scheduling.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    QUANTITY,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    Kind,
    list_of,
    map_of,
    param,
    parse_type,
    type_of_type,
    wrapper_of,
)

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
class Features:
    """Which feature gates are on, by their Kubernetes names without the DRA prefix."""

    consumable_capacity: bool = False
    list_type_attributes: bool = False


@dataclass(frozen=True)
class Environment:
    functions: Mapping[str, tuple[Overload, ...]]
    #: the type of every name an expression may use
    idents: Mapping[str, CelType]
    device_fields: Mapping[str, CelType]
    #: the type of an attribute's value
    attribute: CelType


def stored_environment() -> Environment:
    """For expressions that are already part of an object: everything any release allowed."""
    return _environment(Features(consumable_capacity=True, list_type_attributes=True))


def new_environment(features: Features) -> Environment:
    """For expressions on their way into an object."""
    return _environment(features)


@lru_cache(maxsize=4)
def _environment(features: Features) -> Environment:
    attribute = DYN if features.list_type_attributes else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    functions = dict(all_functions())
    if not features.list_type_attributes:
        del functions["includes"]
    return Environment(functions, {**_type_names(), "device": DEVICE}, fields, attribute)


@cache
def all_functions() -> Mapping[str, tuple[Overload, ...]]:
    functions: dict[str, list[Overload]] = {}
    text = Path(__file__).with_name("overloads.txt").read_text(encoding="utf-8")
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


def _type_names() -> dict[str, CelType]:
    """Types are values: `int` has the type type(int)."""
    plain = {type_.name: type_ for type_ in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION)}
    generic = {
        "list": list_of(DYN),
        "map": map_of(DYN, DYN),
        "type": CelType(Kind.TYPE, "type"),
        "optional_type": CelType(Kind.OPAQUE, "optional_type", (DYN,)),
        "net.IP": CelType(Kind.OPAQUE, "net.IP"),
        "net.CIDR": CelType(Kind.OPAQUE, "net.CIDR"),
        "kubernetes.DRADevice": DEVICE,
    }
    structs = {
        name: parse_type(name)
        for name in ("kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat")
    }
    wrappers = {name: wrapper_of(type_) for name, type_ in WRAPPERS.items()}
    return {name: type_of_type(type_) for name, type_ in {**plain, **generic, **structs, **wrappers}.items()}
