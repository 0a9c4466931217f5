"""What a `Value` type declares about each of its fields, read once per type.

JSON normalisation, protobuf, OpenAPI schemas and strategic merge all work from these rows and from nothing else, so a
field that is declared in its struct is known everywhere. The rows come from msgspec's own view of the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import inspect

from manciple.wire.base import Value

Container = Literal["", "list", "map"]

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A type without its name: what one value, or each element of a list or map, is.

    element: bool, int, str, a `Value` subclass, or object where any JSON (or int | str) may stand.
    """

    container: Container = ""
    element: type
    bits: Literal[32, 64] = 64  # of an int
    optional: bool = False  # None is a value of its own: absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One field of a `Value`."""

    attribute: str  # in Python
    name: str  # in JSON
    number: int  # in protobuf; 0 for apiVersion and kind, which protobuf keeps in the envelope
    embedded: int = 0  # the number of the embedded message that holds the field in protobuf; 0 when the message itself
    encoding: str = ""
    shape: Shape
    default: Any = None
    merge_key: str = ""
    retain_keys: bool = False
    list_keys: tuple[str, ...] = ()


@cache
def declarations(type_: type[Value]) -> tuple[Declaration, ...]:
    """The fields of a type in the order of their declaration, embedded ones first."""
    info = inspect.type_info(type_)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{type_!r} is not a Value")
    embedded, number = type_.EMBEDS if type_.EMBEDS and "EMBEDS" in type_.__dict__ else (None, 0)
    inherited = {field.name for field in msgspec.structs.fields(embedded)} if embedded else frozenset()
    return tuple(_declaration(field, number if field.name in inherited else 0) for field in info.fields)


@cache
def by_name(type_: type[Value]) -> Mapping[str, Declaration]:
    """The same by the names that JSON has."""
    return {declared.name: declared for declared in declarations(type_)}


def _declaration(field: inspect.Field, embedded: int) -> Declaration:
    extra: dict[str, Any] = {}
    if isinstance(field.type, inspect.Metadata):
        extra = field.type.extra or {}
    merge_key = extra.get("merge_key", "")
    keys = extra.get("list_keys", "") or merge_key
    return Declaration(
        attribute=field.name,
        name=field.encode_name,
        number=extra.get("pb", 0),
        embedded=embedded,
        encoding=extra.get("encoding", ""),
        shape=shape_of(field.type),
        default=_default(field),
        merge_key=merge_key,
        retain_keys=extra.get("retain_keys", False),
        list_keys=tuple(keys.split(",")) if keys else (),
    )


def _default(field: inspect.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else None


def shape_of(info: inspect.Type) -> Shape:
    """The shape of any type that a declaration may name."""
    if isinstance(info, inspect.Metadata):
        return shape_of(info.type)
    if isinstance(info, inspect.UnionType):
        return _union(info)
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        return _contained("list", shape_of(info.item_type))
    if isinstance(info, inspect.DictType):
        return _contained("map", shape_of(info.value_type))
    return _scalar(info)


def _union(info: inspect.UnionType) -> Shape:
    others = [one for one in info.types if not isinstance(one, inspect.NoneType)]
    if len(others) > 1:
        return Shape(element=object, optional=info.includes_none)
    one = shape_of(others[0])
    return Shape(container=one.container, element=one.element, bits=one.bits, optional=True)


def _contained(container: Container, element: Shape) -> Shape:
    if element.container:
        raise TypeError("a list or map of lists or maps cannot be declared")
    return Shape(container=container, element=element.element, bits=element.bits)


def _scalar(info: inspect.Type) -> Shape:
    match info:
        case inspect.StructType(cls=cls):
            return Shape(element=cls)
        case inspect.BoolType():
            return Shape(element=bool)
        case inspect.StrType():
            return Shape(element=str)
        case inspect.IntType(le=upper):
            return Shape(element=int, bits=32 if upper == _INT32_MAX else 64)
        case inspect.AnyType():
            return Shape(element=object, optional=True)
        case _:
            raise TypeError(f"no field can be declared as {info!r}")
