"""Values that may be absent: optional.of(), orValue() and their kin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduling.cel.errors import EvaluationError
from scheduling.cel.times import Duration, Timestamp
from scheduling.cel.values import NONE, CelMap, Optional, no_such_overload, optional


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
