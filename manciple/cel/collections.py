"""Functions of lists, maps, sets and optionals.

cel-go's lists (version 3), sets, optionals and two-variable libraries, and Kubernetes' lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from manciple.cel.errors import EvaluationError
from manciple.cel.operators import add, compare, contains, equals, type_of
from manciple.cel.times import Duration, Timestamp
from manciple.cel.types import COMPARABLE
from manciple.cel.values import (
    NONE,
    CelMap,
    Optional,
    Uint,
    format_key,
    guard_size,
    key_value,
    map_key,
    no_such_overload,
    optional,
)

_ZEROS = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def numbers_to(count: int) -> list[int]:
    guard_size(count)
    return list(range(count))


def slice_of(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat = items
    while depth > 0 and any(type(item) is list for item in flat):
        flat = [inner for item in flat for inner in (item if type(item) is list else [item])]
        guard_size(len(flat))
        depth -= 1
    return flat


def sort(items: list[Any]) -> list[Any]:
    return sort_by_keys(items, items)


def sort_by_keys(items: list[Any], keys: list[Any]) -> list[Any]:
    """`items` in the order of `keys`, which must be of one comparable type."""
    if len(items) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(items)} and {len(keys)} elements respectively"
        )
    if not keys:
        return items
    if type_of(keys[0]).name not in COMPARABLE:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    by_key = cmp_to_key(compare)
    order = sorted(zip(keys, items, strict=True), key=lambda pair: by_key(pair[0]))
    return [item for _, item in order]


def distinct(items: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for item in items:
        if not contains(item, unique):
            unique.append(item)
    return unique


def is_sorted(items: list[Any]) -> bool:
    return all(compare(first, second) in (-1, 0) for first, second in pairwise(items))


def _total(zero: Any) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        result = zero
        for item in items:
            result = add(result, item)
        return result

    return total


def _extreme(name: str, wanted: int) -> Callable[[list[Any]], Any]:
    def extreme(items: list[Any]) -> Any:
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        best = items[0]
        for item in items[1:]:
            if compare(item, best) == wanted:
                best = item
        return best

    return extreme


def index_of(items: list[Any], wanted: Any) -> int:
    return next((position for position, item in enumerate(items) if equals(item, wanted)), -1)


def last_index_of(items: list[Any], wanted: Any) -> int:
    return next((position for position in reversed(range(len(items))) if equals(items[position], wanted)), -1)


def holds_all(items: list[Any], wanted: list[Any]) -> bool:
    return all(contains(item, items) for item in wanted)


def append(items: Any, more: Any) -> Any:
    """Addition to an accumulator, which nobody else can see: a list grows in place."""
    if type(items) is list and type(more) is list:
        items.extend(more)
        return items
    return add(items, more)


def insert_into(mapping: CelMap, *entry: Any) -> CelMap:
    """Inserts a key with its value, or a map's entries, in place. Raises: EvaluationError for a key that is there."""
    added = ((key_value(key), value) for key, value in entry[0].items()) if len(entry) == 1 else (entry,)
    for key, value in added:
        kept = map_key(key)
        if kept in mapping:
            raise EvaluationError(f"insert failed: key {format_key(key)} already exists")
        mapping[kept] = value
    return mapping


def insert(mapping: CelMap, *entry: Any) -> CelMap:
    return insert_into(CelMap(mapping), *entry)


_PLAIN = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


def value_of(maybe: Optional) -> Any:
    if not maybe.present:
        raise EvaluationError("optional.none() dereference")
    return maybe.value


def of_non_zero(value: Any) -> Optional:
    return NONE if is_zero(value) else optional(value)


def is_zero(value: Any) -> bool:
    """True for the value that a field of its type has when nobody sets it."""
    if value is None:
        return True
    if isinstance(value, bool | int | float | str | bytes | list | CelMap):
        return not value
    if isinstance(value, Duration | Timestamp):
        return value.nanos == 0
    return isinstance(value, Optional) and not value.present


def unwrap(items: list[Any]) -> list[Any]:
    if not all(isinstance(item, Optional) for item in items):
        raise no_such_overload()
    return [item.value for item in items if item.present]


def first(items: list[Any]) -> Optional:
    return optional(items[0]) if items else NONE


def last(items: list[Any]) -> Optional:
    return optional(items[-1]) if items else NONE


IMPLEMENTATIONS: Mapping[str, Callable[..., Any]] = {
    "lists_range": numbers_to,
    "list_slice": slice_of,
    "list_flatten": flatten,
    "list_flatten_int": flatten,
    "list_reverse": lambda items: items[::-1],
    "list_distinct": distinct,
    **{f"list_{name}_sort": sort for name in COMPARABLE},
    **{f"list_{name}_sortByAssociatedKeys": sort_by_keys for name in COMPARABLE},
    **{f"list_{name}_is_sorted_bool": is_sorted for name in _PLAIN},
    **{f"list_{name}_sum_{name}": _total(zero) for name, zero in _ZEROS.items()},
    **{f"list_{name}_min_{name}": _extreme("min", -1) for name in _PLAIN},
    **{f"list_{name}_max_{name}": _extreme("max", 1) for name in _PLAIN},
    "list_a_index_of_int": index_of,
    "list_a_last_index_of_int": last_index_of,
    "list_sets_contains_list": holds_all,
    "list_sets_equivalent_list": lambda left, right: holds_all(left, right) and holds_all(right, left),
    "list_sets_intersects_list": lambda left, right: any(contains(item, right) for item in left),
    "@mapInsert_map_key_value": insert,
    "@mapInsert_map_map": insert,
    "optional_of": optional,
    "optional_ofNonZeroValue": of_non_zero,
    "optional_none": lambda: NONE,
    "optional_hasValue": lambda maybe: maybe.present,
    "optional_value": value_of,
    "optional_unwrap": unwrap,
    "optional_unwrapOpt": unwrap,
    "list_first": first,
    "list_last": last,
}
