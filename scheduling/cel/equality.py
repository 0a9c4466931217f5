"""When two values are equal, and which is less, whatever their types.

Values of different types are unequal, except that numbers compare by value. Kubernetes' own types refuse: a quantity
or a version equals nothing but its like, and asking is an error (cel-go: Equal of the left operand decides).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduling.cel.errors import EvaluationError
from scheduling.cel.times import Duration, Timestamp
from scheduling.cel.values import CelMap, DomainMap, Optional, TypeValue, Uint, map_key, no_such_overload

_NUMBERS = (int, float, Uint)
_ORDERED_ALIKE = (bool, str, bytes, Timestamp, Duration)


def equals(left: Any, right: Any) -> bool:
    """Raises: EvaluationError where the left operand cannot be compared with the right one."""
    if left is None or right is None:
        return left is right
    rule = _RULES.get(type(left))
    if rule is not None:
        return rule(left, right)
    # Strict values refuse what is not their like.
    return bool(left == right)


def _same_number(left: Any, right: Any) -> bool:
    if type(right) not in _NUMBERS:
        return False
    if isinstance(left, float) is isinstance(right, float):
        return bool(left == right)
    return float(left) == float(right)


def _same_plain(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _same_list(left: Any, right: Any) -> bool:
    return type(right) is list and len(left) == len(right) and all(map(equals, left, right))


def _same_map(left: Any, right: Any) -> bool:
    if not isinstance(right, CelMap) or len(left) != len(right):
        return False
    return all(key in right and equals(value, right[key]) for key, value in left.items())


def _same_optional(left: Any, right: Any) -> bool:
    if type(right) is not Optional or left.present != right.present:
        return False
    return not left.present or equals(left.value, right.value)


def _same_type(left: Any, right: Any) -> bool:
    return type(right) is TypeValue and left.name == right.name


_RULES: Mapping[type, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(_NUMBERS, _same_number),
    **dict.fromkeys(_ORDERED_ALIKE, _same_plain),
    list: _same_list,
    CelMap: _same_map,
    DomainMap: _same_map,
    Optional: _same_optional,
    TypeValue: _same_type,
}


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; 2 where a NaN is in it. Raises: EvaluationError where there is no order."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return _compare_numbers(left, right)
    if kind is other and kind in _ORDERED_ALIKE:
        return int(left > right) - int(left < right)
    raise no_such_overload()


def _compare_numbers(left: float, right: float) -> int:
    if left != left or right != right:  # noqa: PLR0124  # only NaN differs from itself
        return 2
    return (left > right) - (left < right)


def less(left: Any, right: Any) -> bool:
    return compare(left, right) == -1


def less_equal(left: Any, right: Any) -> bool:
    return compare(left, right) in (-1, 0)


def greater(left: Any, right: Any) -> bool:
    return compare(left, right) == 1


def greater_equal(left: Any, right: Any) -> bool:
    return compare(left, right) in (0, 1)


def contains(element: Any, container: Any) -> bool:
    """`element in container`."""
    if type(container) is list:
        return any(_lenient_equals(item, element) for item in container)
    if isinstance(container, CelMap):
        return has_key(container, element)
    raise no_such_overload()


def has_key(mapping: CelMap, key: Any) -> bool:
    kind = type(key)
    if kind is str:
        return key in mapping
    if kind is bool or kind is int or kind is Uint or (kind is float and key.is_integer()):
        return map_key(key) in mapping
    return False


def _lenient_equals(left: Any, right: Any) -> bool:
    try:
        return equals(left, right)
    except EvaluationError:
        return False
