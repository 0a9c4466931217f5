"""Functions of lists, maps and sets: cel-go's lists (version 3), sets and two-variable libraries, Kubernetes' lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from scheduling.cel.equality import compare, contains, equals
from scheduling.cel.errors import EvaluationError
from scheduling.cel.functions.operators import add, guard_size
from scheduling.cel.kinds import type_of
from scheduling.cel.times import Duration
from scheduling.cel.values import CelMap, Uint, format_key, key_value, map_key

#: includes() takes no list longer than a list-typed attribute can be.
INCLUDES_MAX = 48
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
    if type_of(keys[0]).name not in _COMPARABLE:
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


def includes(target: Any, wanted: Any) -> bool:
    """True when the value, or one of the list's values, is `wanted`. Raises: EvaluationError for too long a list."""
    if type(target) is not list:
        return contains(wanted, [target])
    if contains(wanted, target[:INCLUDES_MAX]):
        return True
    if len(target) > INCLUDES_MAX:
        raise EvaluationError(f"'includes' function cannot be applied to lists longer than {INCLUDES_MAX} values")
    return False


def insert_into(mapping: CelMap, *entry: Any) -> None:
    """Inserts a key with its value, or a map's entries, in place. Raises: EvaluationError for a key that is there."""
    added = ((key_value(key), value) for key, value in entry[0].items()) if len(entry) == 1 else (entry,)
    for key, value in added:
        kept = map_key(key)
        if kept in mapping:
            raise EvaluationError(f"insert failed: key {format_key(key)} already exists")
        mapping[kept] = value


def insert(mapping: CelMap, *entry: Any) -> CelMap:
    extended = CelMap(mapping)
    insert_into(extended, *entry)
    return extended


def _by_type(pattern: str, names: tuple[str, ...], implementation: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {pattern.format(name): implementation for name in names}


_PLAIN = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_Function = Callable[..., Any]

IMPLEMENTATIONS: Mapping[str, _Function] = {
    "lists_range": numbers_to,
    "list_slice": slice_of,
    "list_flatten": flatten,
    "list_flatten_int": flatten,
    "list_reverse": lambda items: items[::-1],
    "list_distinct": distinct,
    **_by_type("list_{}_sort", _COMPARABLE, sort),
    **_by_type("list_{}_sortByAssociatedKeys", _COMPARABLE, sort_by_keys),
    **_by_type("list_{}_is_sorted_bool", _PLAIN, is_sorted),
    **{f"list_{name}_sum_{name}": _total(zero) for name, zero in _ZEROS.items()},
    **{f"list_{name}_min_{name}": _extreme("min", -1) for name in _PLAIN},
    **{f"list_{name}_max_{name}": _extreme("max", 1) for name in _PLAIN},
    "list_a_index_of_int": index_of,
    "list_a_last_index_of_int": last_index_of,
    "list_sets_contains_list": holds_all,
    "list_sets_equivalent_list": lambda left, right: holds_all(left, right) and holds_all(right, left),
    "list_sets_intersects_list": lambda left, right: any(contains(item, right) for item in left),
    "dra_includes_dyn_dyn": includes,
    "@mapInsert_map_key_value": insert,
    "@mapInsert_map_map": insert,
}
