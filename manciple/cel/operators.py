"""What the operators do with values of any type: types at run time, equality, order, arithmetic, lookup.

Values of different types are unequal, except that numbers compare by value. Kubernetes' own types refuse: a quantity
or a version equals nothing but its like, and asking is an error (cel-go: Equal of the left operand decides). 64-bit
overflow is an error. Both evaluators read what lies at a place (fields of values, entries of maps, elements of
lists) through `lookup`: what is not there is an error of the language; behind an optional it is an absent value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from manciple.cel import types
from manciple.cel.errors import EvaluationError
from manciple.cel.kubernetes import Amount, IpAddress, Network, Semver, Url
from manciple.cel.text import NamedFormat
from manciple.cel.times import Duration, Timestamp
from manciple.cel.types import CelType, TypeKind
from manciple.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NONE,
    CelMap,
    DomainMap,
    EnvironmentValue,
    Optional,
    StructValue,
    TypeValue,
    Uint,
    guard_size,
    key_value,
    map_key,
    no_such_key,
    no_such_overload,
    optional,
    overflow,
    three_way,
)

_LIST = CelType(TypeKind.LIST, "list")
_MAP = CelType(TypeKind.MAP, "map")
_OPTIONAL = CelType(TypeKind.OPAQUE, "optional_type")

#: Python class of a value -> (its type, what cel-go calls the Go type of it)
_TYPES: dict[type, tuple[CelType, str]] = {
    bool: (types.BOOL, "types.Bool"),
    int: (types.INT, "types.Int"),
    Uint: (types.UINT, "types.Uint"),
    float: (types.DOUBLE, "types.Double"),
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
    IpAddress: (types.IP, "cel.IP"),
    Network: (types.CIDR, "cel.CIDR"),
    NamedFormat: (types.FORMAT, "*cel.Format"),
}


def type_of(value: Any) -> CelType:
    """The type of a value, without parameters."""
    known = _TYPES.get(type(value))
    return known[0] if known else value.TYPE  # of an EnvironmentValue


def type_name(value: Any) -> str:
    return type_of(value).name


def go_name(value: Any) -> str:
    known = _TYPES.get(type(value))
    return known[1] if known else "map[string]interface {}"


def is_a(value: Any, wanted: CelType) -> bool:
    """True when an overload that asks for `wanted` takes `value`. Of aggregates only the first element is looked at."""
    kind = wanted.kind
    if kind is TypeKind.DYN or kind is TypeKind.ANY or kind is TypeKind.PARAM:
        return True
    found = type_of(value)
    if found.kind is not kind or found.name != wanted.name:
        return kind is TypeKind.WRAPPER and (value is None or is_a(value, wanted.params[0]))
    if kind is TypeKind.LIST:
        return not value or is_a(value[0], wanted.params[0])
    if kind is TypeKind.MAP:
        return all(
            is_a(key_value(key), wanted.params[0]) and is_a(item, wanted.params[1]) for key, item in _first(value)
        )
    if found is _OPTIONAL:
        return not value.present or is_a(value.value, wanted.params[0])
    return True


def _first(mapping: CelMap) -> list[tuple[Any, Any]]:
    return [next(iter(mapping.items()))] if mapping else []


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


_RULES: Mapping[type, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(_NUMBERS, _same_number),
    **dict.fromkeys(_ORDERED_ALIKE, _same_plain),
    list: _same_list,
    CelMap: _same_map,
    DomainMap: _same_map,
    Optional: _same_optional,
    TypeValue: lambda left, right: type(right) is TypeValue and left.name == right.name,
}


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; 2 where a NaN is in it. Raises: EvaluationError where there is no order."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return 2 if left != left or right != right else three_way(left, right)  # noqa: PLR0124  # only NaN differs from itself
    if kind is other and kind in _ORDERED_ALIKE:
        return three_way(left, right)
    raise no_such_overload()


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


def bounded_int(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        overflow()
    return value


def bounded_uint(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        overflow("unsigned integer")
    return Uint(value)


#: class of both operands -> what makes the result, or refuses it
_NUMBER_OF: Mapping[type, Callable[[Any], Any]] = {int: bounded_int, Uint: bounded_uint, float: float}


def _number_of(kind: type) -> Callable[[Any], Any]:
    make = _NUMBER_OF.get(kind)
    if make is None:
        raise no_such_overload()
    return make


def add(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is not other:
        if {kind, other} == {Timestamp, Duration}:
            return Timestamp(left.nanos + right.nanos)
        raise no_such_overload()
    if kind is str or kind is bytes or kind is list:
        guard_size(len(left) + len(right))
        return left + right
    if kind is Duration:
        return Duration(left.nanos + right.nanos)
    return _number_of(kind)(left + right)


def subtract(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is Timestamp and other in (Timestamp, Duration):
        return (Duration if other is Timestamp else Timestamp)(left.nanos - right.nanos)
    if kind is not other:
        raise no_such_overload()
    return Duration(left.nanos - right.nanos) if kind is Duration else _number_of(kind)(left - right)


def multiply(left: Any, right: Any) -> Any:
    if type(left) is not type(right):
        raise no_such_overload()
    return _number_of(type(left))(left * right)


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
        is_key = type(key) is str or (type(key) is float and not key.is_integer())
        return container[key if is_key else map_key(key)]
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


def not_equals(left: Any, right: Any) -> bool:
    return not equals(left, right)


def lookup(operand: Any, key: Any) -> Any:
    """`operand.key` or `operand[key]`. Raises: EvaluationError when nothing is there."""
    if type(operand) is Optional:
        return lookup_optional(operand, key)
    if isinstance(operand, CelMap | list):
        return index(operand, key)
    if isinstance(operand, EnvironmentValue):
        return _field(operand, key)
    raise no_such_key(key)


def lookup_optional(operand: Any, key: Any) -> Optional:
    """`operand.?key` or `operand[?key]`."""
    if type(operand) is Optional:
        return lookup_optional(operand.value, key) if operand.present else NONE
    if isinstance(operand, EnvironmentValue):
        return optional(_field(operand, key)) if _is_field(operand, key) else NONE
    if isinstance(operand, CelMap):
        try:
            return optional(index(operand, key))
        except EvaluationError:
            return NONE
    if type(operand) is list:
        position = list_position(key)
        return optional(operand[position]) if 0 <= position < len(operand) else NONE
    return NONE


def is_present(operand: Any, name: str) -> bool:
    """has(operand.name)."""
    if type(operand) is Optional:
        return operand.present and is_present(operand.value, name)
    if isinstance(operand, EnvironmentValue):
        return _is_field(operand, name)
    return isinstance(operand, CelMap) and has_key(operand, name)


def _is_field(value: EnvironmentValue, key: Any) -> bool:
    if isinstance(value, StructValue):
        return key in value.members
    return isinstance(key, str) and key in value.FIELDS


def _field(value: EnvironmentValue, key: Any) -> Any:
    if not _is_field(value, key):
        raise no_such_key(key)
    return value.members[key] if isinstance(value, StructValue) else getattr(value, value.FIELDS[key])


def rounds(container: Any, variables: int) -> Iterable[tuple[Any, ...]]:
    """What the 1 or 2 iteration variables stand for in each round. Raises: EvaluationError for what has no elements."""
    if type(container) is list:
        return ((item,) for item in container) if variables == 1 else enumerate(container)
    if isinstance(container, CelMap):
        if variables == 1:
            return ((key_value(key),) for key in container)
        return ((key_value(key), value) for key, value in container.items())
    raise EvaluationError(f"got '{go_name(container)}', expected iterable type")
