"""Arithmetic and concatenation, with 64-bit overflow as an error."""

from __future__ import annotations

import math
from typing import Any

from scheduling.cel.equality import equals
from scheduling.cel.errors import CostLimitExceeded, EvaluationError
from scheduling.cel.kinds import type_name
from scheduling.cel.times import Duration, Timestamp
from scheduling.cel.values import MAX_INT, MAX_UINT, MIN_INT, CelMap, Uint, map_key, no_such_overload, overflow

#: Texts and lists longer than this are never built; cel-go would run into its cost limit or build them lazily.
MAX_SIZE = 8_000_000


def bounded_int(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        overflow()
    return value


def bounded_uint(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        overflow("unsigned integer")
    return Uint(value)


def guard_size(size: int) -> None:
    """Raises: CostLimitExceeded before memory is taken for a value that no device selector needs."""
    if size > MAX_SIZE:
        raise CostLimitExceeded


def add(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is not other:
        if {kind, other} == {Timestamp, Duration}:
            return Timestamp(left.nanos + right.nanos)
        raise no_such_overload()
    if kind is int:
        return bounded_int(left + right)
    if kind is str or kind is bytes or kind is list:
        guard_size(len(left) + len(right))
        return left + right
    if kind is Uint:
        return bounded_uint(int(left) + int(right))
    if kind is float:
        return left + right
    if kind is Duration:
        return Duration(left.nanos + right.nanos)
    raise no_such_overload()


def subtract(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is Timestamp and other is Timestamp:
        return Duration(left.nanos - right.nanos)
    if kind is Timestamp and other is Duration:
        return Timestamp(left.nanos - right.nanos)
    if kind is not other:
        raise no_such_overload()
    if kind is int:
        return bounded_int(left - right)
    if kind is Uint:
        return bounded_uint(int(left) - int(right))
    if kind is float:
        return left - right
    if kind is Duration:
        return Duration(left.nanos - right.nanos)
    raise no_such_overload()


def multiply(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right):
        raise no_such_overload()
    if kind is int:
        return bounded_int(left * right)
    if kind is Uint:
        return bounded_uint(int(left) * int(right))
    if kind is float:
        return left * right
    raise no_such_overload()


def divide(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right):
        raise no_such_overload()
    if kind is float:
        return _divide_doubles(left, right)
    if kind is not int and kind is not Uint:
        raise no_such_overload()
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    if kind is Uint:
        return Uint(quotient)
    return bounded_int(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right) or (kind is not int and kind is not Uint):
        raise no_such_overload()
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == MIN_INT and right == -1:
        overflow()
    remainder = abs(int(left)) % abs(int(right))
    return kind(remainder if left >= 0 else -remainder)


def negate(value: Any) -> Any:
    if type(value) is int:
        return bounded_int(-value)
    if type(value) is float:
        return -value
    raise no_such_overload()


def logical_not(value: Any) -> bool:
    if type(value) is not bool:
        raise no_such_overload()
    return not value


def size(value: Any) -> int:
    if isinstance(value, str | bytes | list | CelMap):
        return len(value)
    raise no_such_overload()


def index(container: Any, key: Any) -> Any:
    """`container[key]` for a list or a map. Raises: EvaluationError."""
    if isinstance(container, CelMap):
        return _map_index(container, key)
    if type(container) is not list:
        raise no_such_overload()
    position = list_position(key)
    if not 0 <= position < len(container):
        raise EvaluationError(f"index out of bounds: {position}")
    return container[position]


def list_position(key: Any) -> int:
    """Raises: EvaluationError for a key that is no place in any list."""
    if type(key) in (int, Uint) or (type(key) is float and key.is_integer()):
        return int(key)
    if type(key) is float:
        raise EvaluationError(f"unsupported index value {key:g} in list")
    raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")


def _map_index(mapping: CelMap, key: Any) -> Any:
    if type(key) is str:
        return mapping[key]
    return mapping[_searched_key(key)]


def _searched_key(key: Any) -> Any:
    if type(key) is float and not key.is_integer():
        return key
    return map_key(key)


def not_equals(left: Any, right: Any) -> bool:
    return not equals(left, right)
