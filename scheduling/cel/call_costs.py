"""What one call has cost once its values are known.

A failed operand counts as size 1, as in cel-go. Sources: cel-go interpreter/runtimecost.go and ext/, apiserver
pkg/cel/library/cost.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

from scheduling.cel.addresses import Address, Network
from scheduling.cel.formats import NamedFormat
from scheduling.cel.sizes import LIST_CREATE, REGEX_LENGTH, TRAVERSAL
from scheduling.cel.values import CelMap, Strict, key_value

_Rule = Callable[[Sequence[Any], Any], int]


def call_cost(function: str, overload: str, args: Sequence[Any], result: Any) -> int:
    """The cost of a call. overload: empty where run-time types chose it; args and result may be errors."""
    rule = _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function) or _STANDARD.get(overload)
    if function == "ip" and overload == "cidr_ip":
        return 1
    return rule(args, result) if rule is not None else 1


def size_of(value: Any) -> int:
    """What size() would say, 1 for what has no size."""
    if isinstance(value, str | bytes | list | CelMap):
        return len(value)
    if isinstance(value, Address):
        return len(value.address.packed)
    if isinstance(value, Network):
        return ceil(value.prefix / 8)
    return 1


def _share(size: int, factor: float) -> int:
    return ceil(float(size) * factor)


def _traversed(value: Any) -> int:
    """The cost of reading a value with all that is in it."""
    if isinstance(value, str):
        return int(len(value.encode(errors="surrogatepass")) * TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, list):
        return sum(map(_traversed, value))
    if isinstance(value, CelMap):
        return sum(_traversed(key_value(key)) + _traversed(item) for key, item in value.items())
    return 1


def _reading(times: float = 1) -> _Rule:
    return lambda args, _result: _share(size_of(args[0]), times * TRAVERSAL)


def _searching(args: Sequence[Any], _result: Any) -> int:
    return _share(1 + size_of(args[0]), TRAVERSAL) * _share(size_of(args[1]), REGEX_LENGTH)


def _containing(args: Sequence[Any], _result: Any) -> int:
    return _share(size_of(args[0]), TRAVERSAL) * _share(size_of(args[1]), TRAVERSAL)


def _joining(_args: Sequence[Any], result: Any) -> int:
    return _share(size_of(result), 2 * TRAVERSAL)


def _contains_ip(args: Sequence[Any], _result: Any) -> int:
    return _share(2 * size_of(args[0]), TRAVERSAL)


def _contains_ip_text(args: Sequence[Any], result: Any) -> int:
    return _contains_ip(args, result) + _share(size_of(args[1]), TRAVERSAL)


def _contains_cidr(args: Sequence[Any], _result: Any) -> int:
    return _share(2 * size_of(args[0]), TRAVERSAL) + _share(size_of(args[0]), TRAVERSAL) + 1


def _contains_cidr_text(args: Sequence[Any], result: Any) -> int:
    return _contains_cidr(args, result) + _share(size_of(args[1]), TRAVERSAL)


def _validating(args: Sequence[Any], _result: Any) -> int:
    if not isinstance(args[0], NamedFormat):
        return 1
    return _share(1 + size_of(args[1]), TRAVERSAL) * _share(args[0].pattern_size, REGEX_LENGTH)


def _comparing(args: Sequence[Any], _result: Any) -> int:
    return _share(min(size_of(args[0]), size_of(args[1])), TRAVERSAL)


def _equal(args: Sequence[Any], result: Any) -> int:
    return 1 if isinstance(args[0], Strict) else _comparing(args, result)


def _concatenating(args: Sequence[Any], _result: Any) -> int:
    return _share(size_of(args[0]) + size_of(args[1]), TRAVERSAL)


def _new_list(_args: Sequence[Any], result: Any) -> int:
    return size_of(result) + 1 + LIST_CREATE


def _range(args: Sequence[Any], _result: Any) -> int:
    return max(args[0], 0) + 1 + LIST_CREATE if type(args[0]) is int else 1


def _flattening(args: Sequence[Any], _result: Any) -> int:
    depth = args[1] if len(args) > 1 and type(args[1]) is int else 1
    return int(size_of(args[0]) * float(depth)) + 1 + LIST_CREATE


def _comparing_all(items: Any) -> int:
    """Every element with every other."""
    size = size_of(items)
    is_text = isinstance(items, list) and items and isinstance(items[0], str | bytes)
    return int(size * size * (2 + TRAVERSAL if is_text else 2)) + 1 + LIST_CREATE


def _self_comparing(args: Sequence[Any], _result: Any) -> int:
    return _comparing_all(args[0])


def _key_comparing(args: Sequence[Any], _result: Any) -> int:
    return _comparing_all(args[1])


def _sets(factor: float) -> _Rule:
    return lambda args, _result: int(size_of(args[0]) * size_of(args[1]) * factor) + 1


_COMPARABLE = (
    "int",
    "uint",
    "double",
    "bool",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "string",
    "bytes",
)
_BY_OVERLOAD: Mapping[str, _Rule] = {
    "list_slice": _new_list,
    "lists_range": _range,
    "list_reverse": _new_list,
    "list_flatten": _flattening,
    "list_flatten_int": _flattening,
    "list_distinct": _self_comparing,
    **{f"list_{name}_sort": _self_comparing for name in _COMPARABLE},
    **{f"list_{name}_sortByAssociatedKeys": _key_comparing for name in _COMPARABLE},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "cidr_contains_ip_string": _contains_ip_text,
    "cidr_contains_cidr_string": _contains_cidr_text,
}
_BY_FUNCTION: Mapping[str, _Rule] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), lambda args, _result: _traversed(args[0])
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _reading()),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _reading()),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _reading(2)),
    "join": _joining,
    **dict.fromkeys(("find", "findAll"), _searching),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validating,
    "_==_": _equal,
}
_ORDERS = ("less", "less_equals", "greater", "greater_equals")
_STANDARD: Mapping[str, _Rule] = {
    **dict.fromkeys(
        (
            "starts_with_string",
            "ends_with_string",
            "string_to_bytes",
            "bytes_to_string",
            "strings_quote",
            "string_format",
        ),
        _reading(),
    ),
    "in_list": lambda args, _result: size_of(args[1]),
    **dict.fromkeys((f"{order}_{type_}" for order in _ORDERS for type_ in ("string", "bytes")), _comparing),
    "not_equals": _comparing,
    "add_string": _concatenating,
    "add_bytes": _concatenating,
    "matches_string": _searching,
    "contains_string": _containing,
}
