"""What generated code calls, by the names it uses for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduling.cel.equality import equals, greater, greater_equal, less, less_equal
from scheduling.cel.errors import CostLimitExceeded, EvaluationError
from scheduling.cel.functions.collections import insert_into
from scheduling.cel.paths import is_present, lookup, lookup_optional, rounds
from scheduling.cel.values import CelMap, Optional, Uint, map_key, no_such_overload

#: What a wrapper message without a value stands for, by the name of the type it wraps.
ZEROS: Mapping[str, Any] = {"bool": False, "bytes": b"", "double": 0.0, "int": 0, "string": "", "uint": Uint(0)}


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


def build_list(elements: Sequence[tuple[Any, bool]]) -> list[Any]:
    """elements: (value, whether it is an optional whose value is meant)."""
    items: list[Any] = []
    for value, is_optional in elements:
        if not is_optional:
            items.append(value)
        elif type(value) is not Optional:
            raise EvaluationError(f"cannot initialize optional list element from non-optional value {value}")
        elif value.present:
            items.append(value.value)
    return items


def build_map(entries: Sequence[tuple[Any, Any, bool]]) -> CelMap:
    mapping = CelMap()
    for key, value, is_optional in entries:
        kept = map_key(key)
        if not is_optional:
            mapping[kept] = value
        elif type(value) is not Optional:
            raise EvaluationError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
        elif value.present:
            mapping[kept] = value.value
    return mapping


def build_wrapper(zero: Any, fields: Sequence[tuple[Any, bool]]) -> Any:
    """google.protobuf.Int32Value{value: 1} is 1."""
    value = zero
    for given, is_optional in fields:
        value = given
        if is_optional and type(given) is Optional:
            value = given.value if given.present else zero
    return value


NAMES: Mapping[str, Any] = {
    "CelMap": CelMap,
    "EvaluationError": EvaluationError,
    "build_list": build_list,
    "build_map": build_map,
    "build_wrapper": build_wrapper,
    "demand_optional": demand_optional,
    "equals": equals,
    "first_failure": first_failure,
    "forced": forced,
    "greater": greater,
    "greater_equal": greater_equal,
    "insert": insert_into,
    "is_present": is_present,
    "less": less,
    "less_equal": less_equal,
    "lookup": lookup,
    "lookup_optional": lookup_optional,
    "no_such_overload": no_such_overload,
    "rounds": rounds,
}
