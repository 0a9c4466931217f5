"""Which type a value has at run time, and whether it is what an overload asks for."""

from __future__ import annotations

from typing import Any

from scheduling.cel import types
from scheduling.cel.addresses import Address, Network
from scheduling.cel.formats import NamedFormat
from scheduling.cel.quantities import Amount
from scheduling.cel.semver import Semver
from scheduling.cel.times import Duration, Timestamp
from scheduling.cel.types import CelType, Kind
from scheduling.cel.urls import Url
from scheduling.cel.values import CelMap, DomainMap, Optional, TypeValue, Uint, key_value

_LIST = CelType(Kind.LIST, "list")
_MAP = CelType(Kind.MAP, "map")
_OPTIONAL = CelType(Kind.OPAQUE, "optional_type")
_DOUBLE = float

#: Python class of a value -> (its type, what cel-go calls the Go type of it)
_TYPES: dict[type, tuple[CelType, str]] = {
    bool: (types.BOOL, "types.Bool"),
    int: (types.INT, "types.Int"),
    Uint: (types.UINT, "types.Uint"),
    _DOUBLE: (types.DOUBLE, "types.Double"),
    str: (types.STRING, "types.String"),
    bytes: (types.BYTES, "types.Bytes"),
    type(None): (types.NULL, "types.Null"),
    list: (_LIST, "*types.baseList"),
    CelMap: (_MAP, "*types.baseMap"),
    DomainMap: (_MAP, "cel.mapper"),
    TypeValue: (types.TYPE, "*types.Type"),
    Timestamp: (types.TIMESTAMP, "types.Timestamp"),
    Duration: (types.DURATION, "types.Duration"),
    Optional: (_OPTIONAL, "*types.Optional"),
    Amount: (types.QUANTITY, "cel.Quantity"),
    Semver: (types.SEMVER, "cel.Semver"),
    Url: (types.URL, "cel.URL"),
    Address: (types.IP, "cel.IP"),
    Network: (types.CIDR, "cel.CIDR"),
    NamedFormat: (types.FORMAT, "*cel.Format"),
}


def type_of(value: Any) -> CelType:
    """The type of a value, without parameters."""
    known = _TYPES.get(type(value))
    return known[0] if known else types.DEVICE


def type_name(value: Any) -> str:
    return type_of(value).name


def go_name(value: Any) -> str:
    known = _TYPES.get(type(value))
    return known[1] if known else "map[string]interface {}"


def is_a(value: Any, wanted: CelType) -> bool:
    """True when an overload that asks for `wanted` takes `value`. Of aggregates only the first element is looked at."""
    kind = wanted.kind
    if kind is Kind.DYN or kind is Kind.ANY or kind is Kind.PARAM:
        return True
    found = type_of(value)
    if found.kind is not kind or found.name != wanted.name:
        return kind is Kind.WRAPPER and (value is None or is_a(value, wanted.params[0]))
    if kind is Kind.LIST:
        return not value or is_a(value[0], wanted.params[0])
    if kind is Kind.MAP:
        return all(
            is_a(key_value(key), wanted.params[0]) and is_a(item, wanted.params[1]) for key, item in _first(value)
        )
    if found is _OPTIONAL:
        return not value.present or is_a(value.value, wanted.params[0])
    return True


def _first(mapping: CelMap) -> list[tuple[Any, Any]]:
    return [next(iter(mapping.items()))] if mapping else []
