"""Costs and sizes: ranges of them, and what one call costs, at most beforehand and once its values are known.

One table has both rules of a function, by overload, or by the function's name where all of its overloads cost alike;
what stands in neither way costs 1. Arguments' own costs are added by the caller. A failed operand counts as size 1.
Sources: cel-go checker/cost.go, interpreter/runtimecost.go, common/cost.go and ext/, apiserver
pkg/cel/library/cost.go, dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from manciple.cel.kubernetes import IpAddress, Network
from manciple.cel.text import NamedFormat
from manciple.cel.types import BYTES, CIDR, COMPARABLE, FORMAT, IP, QUANTITY, SEMVER, STRING, URL, CelType
from manciple.cel.values import CelMap, Strict, key_value

MAX = 2**64 - 1
#: cel-go common/cost.go
LIST_CREATE = 10
MAP_CREATE = 30
STRUCT_CREATE = 40
TRAVERSAL = 0.1
_REGEX_LENGTH = 0.25
#: apiserver/pkg/cel: MaxNameFormatRegexSize, MaxFormatSize
_FORMAT_REGEX_SIZE = 128
_FORMAT_NAME_SIZE = 64
#: Functions whose results may be far larger than what they cost, or take far longer.
AMPLIFYING = frozenset(("_+_", "findAll", "flatten", "format", "getQuery", "lists.range", "replace", "strings.quote"))


@dataclass(frozen=True, slots=True)
class Range:
    """From `min` to `max`, both within 0 and 2**64-1, where arithmetic stops: a cost or the size of a value."""

    min: int
    max: int

    def __add__(self, other: Range) -> Range:
        return Range(min(self.min + other.min, MAX), min(self.max + other.max, MAX))

    def __mul__(self, other: Range) -> Range:
        return Range(min(self.min * other.min, MAX), min(self.max * other.max, MAX))

    def __or__(self, other: Range) -> Range:
        """What covers both."""
        return Range(min(self.min, other.min), max(self.max, other.max))

    def times(self, factor: float) -> Range:
        """Through floating point, as in cel-go."""
        return Range(_times(self.min, factor), _times(self.max, factor))


def fixed(value: int) -> Range:
    return Range(value, value)


def _times(value: int, factor: float) -> int:
    if value > 0 and factor > 0 and float(value) > MAX / factor:
        return MAX
    return min(math.ceil(float(value) * factor), MAX)


UNKNOWN = Range(0, MAX)
ZERO = fixed(0)
ONE = fixed(1)
_ADDRESS_BYTES = Range(4, 16)


@dataclass(frozen=True, slots=True)
class Operand:
    """What is known of a target or argument."""

    type: CelType
    path: tuple[str, ...]
    computed_size: Range | None
    #: the value of a literal
    literal: object = None
    #: declared for the elements of what lies at `path`
    element_size: Range | None = None

    @property
    def size(self) -> Range:
        return UNKNOWN if self.computed_size is None else self.computed_size


@dataclass(frozen=True, slots=True)
class CallEstimate:
    cost: Range
    #: of the result, where it can be told
    size: Range | None = None


#: of the target, where there is one, and the arguments
Operands: TypeAlias = Sequence[Operand]
#: (the operands' values, the result) -> cost; any of them may be an error
Counting: TypeAlias = Callable[[Sequence[Any], Any], int]


@dataclass(frozen=True, slots=True)
class CostRule:
    """What a call costs, beside what its operands cost: at most, beforehand; and once values are known."""

    estimate: Callable[[Operands], CallEstimate]
    count: Counting


def rule_of(function: str, overload: str, more: Mapping[str, CostRule]) -> CostRule:
    """The rule of a call. overload: empty where run-time types choose it. more: the environment's, by function."""
    return _RULES.get(overload) or _RULES.get(function) or more.get(function) or PLAIN


# Estimates -----------------------------------------------------------------------------------------------------------


def _traversal(size: Range) -> Range:
    return size.times(TRAVERSAL)


def _read(operands: Operands, *, position: int = 0, times: int = 1) -> CallEstimate:
    return CallEstimate(operands[position].size.times(times * TRAVERSAL))


def _transformed(operands: Operands) -> CallEstimate:
    """A text of the same size."""
    return CallEstimate(_traversal(operands[0].size), operands[0].size)


def _element(operand: Operand) -> Operand | None:
    if not operand.type.params:
        return None
    return Operand(operand.type.params[0], (), operand.element_size)


def _scan(operands: Operands) -> CallEstimate:
    element = _element(operands[0])
    if element is None:
        return CallEstimate(_traversal(operands[0].size))
    compared = ONE + _traversal(element.size) if element.type in (STRING, BYTES) else ONE
    return CallEstimate(operands[0].size * compared)


def _replace(operands: Operands) -> CallEstimate:
    size, old, new = (operand.size for operand in operands[:3])
    longest = _replaced(size.max, old.min, new.max, is_longest=True)
    shortest = _replaced(size.min, old.max, new.min, is_longest=False)
    return CallEstimate(size.times(2 * TRAVERSAL), Range(min(shortest, MAX), min(longest, MAX)))


def _replaced(size: int, old: int, new: int, *, is_longest: bool) -> int:
    if old == 0:
        return min(size + 1, MAX) * new + size
    if new <= old if is_longest else old <= new:
        return size
    return math.ceil(float(size) / old) * new


def _split(operands: Operands) -> CallEstimate:
    limit = operands[2].literal if len(operands) > 2 else None  # noqa: PLR2004
    most = limit % 2**64 if isinstance(limit, int) else operands[0].size.max
    return CallEstimate(operands[0].size.times(2 * TRAVERSAL), Range(0, most))


def _join(operands: Operands) -> CallEstimate:
    items = operands[0].size
    element = _element(operands[0])
    size = items * element.size if element else ZERO
    if len(operands) > 1:
        size += operands[1].size * Range(max(items.min - 1, 0), max(items.max - 1, 0))
    return CallEstimate(_traversal(size), size)


def _search(operands: Operands) -> Range:
    return _traversal(operands[0].size + ONE) * operands[1].size.times(_REGEX_LENGTH)


def _equality(operands: Operands) -> CallEstimate:
    """Kubernetes' types compare at once."""
    left, right = operands[0].type, operands[1].type
    if left == right and left in (IP, CIDR, QUANTITY, SEMVER):
        return CallEstimate(ONE)
    if left == right == FORMAT:
        return CallEstimate(_traversal(Range(1, _FORMAT_NAME_SIZE)))
    if left == right == URL:
        return CallEstimate(_traversal(Range(1, (operands[1].computed_size or ONE).max)))
    return _comparison(operands)


def _comparison(operands: Operands) -> CallEstimate:
    most = min(operands[0].size.max, operands[1].size.max)
    return CallEstimate(_traversal(Range(1 if most else 0, most)))


def _new_list(size: Range, factor: float = 1) -> CallEstimate:
    return CallEstimate(size.times(factor) + ONE + fixed(LIST_CREATE), size)


def _literal_int(operand: Operand, default: int) -> int:
    value = operand.literal
    return max(value, 0) if type(value) is int else default


def _slice(operands: Operands) -> CallEstimate:
    items, start, end = operands
    return _new_list(fixed((_literal_int(end, items.size.max) - _literal_int(start, 0)) % 2**64))


def _flatten(operands: Operands) -> CallEstimate:
    return _new_list(operands[0].size, _literal_int(operands[1], MAX) if len(operands) > 1 else 1)


def _compare_all(operands: Operands, *, is_text: bool = False) -> CallEstimate:
    """Every element (or key, where there are keys) with every other."""
    size = operands[-1].size
    return _new_list(size * size, 2 + TRAVERSAL if is_text else 2)


def _concatenation(operands: Operands, *, copied: bool = True) -> CallEstimate:
    size = operands[0].size + operands[1].size
    return CallEstimate(_traversal(size) if copied else ONE, size)


# Counting ------------------------------------------------------------------------------------------------------------


def size_of(value: Any) -> int:
    """What size() would say, 1 for what has no size."""
    if isinstance(value, str | bytes | list | CelMap):
        return len(value)
    if isinstance(value, IpAddress):
        return len(value.address.packed)
    if isinstance(value, Network):
        return math.ceil(value.prefix / 8)
    return 1


def _share(size: int, factor: float = TRAVERSAL) -> int:
    return math.ceil(float(size) * factor)


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


def _count_one(_args: Sequence[Any], _result: Any) -> int:
    return 1


def _count_read(args: Sequence[Any], _result: Any) -> int:
    return _share(size_of(args[0]))


def _count_read_twice(args: Sequence[Any], _result: Any) -> int:
    return _share(size_of(args[0]), 2 * TRAVERSAL)


def _count_search(args: Sequence[Any], _result: Any) -> int:
    return _share(1 + size_of(args[0])) * _share(size_of(args[1]), _REGEX_LENGTH)


def _count_in_network(args: Sequence[Any], *, is_network: bool, is_text: bool) -> int:
    """Whether an address or network, or its text, is in a network."""
    cost = _share(2 * size_of(args[0]))
    if is_network:
        cost += _share(size_of(args[0])) + 1
    return cost + _share(size_of(args[1])) if is_text else cost


def _count_validation(args: Sequence[Any], _result: Any) -> int:
    if not isinstance(args[0], NamedFormat):
        return 1
    return _share(1 + size_of(args[1])) * _share(args[0].pattern_size, _REGEX_LENGTH)


def _count_comparison(args: Sequence[Any], _result: Any) -> int:
    return _share(min(size_of(args[0]), size_of(args[1])))


def _count_equality(args: Sequence[Any], result: Any) -> int:
    return 1 if isinstance(args[0], Strict) else _count_comparison(args, result)


def _count_concatenation(args: Sequence[Any], _result: Any) -> int:
    return _share(size_of(args[0]) + size_of(args[1]))


def _count_new_list(_args: Sequence[Any], result: Any) -> int:
    return size_of(result) + 1 + LIST_CREATE


def _count_range(args: Sequence[Any], _result: Any) -> int:
    return max(args[0], 0) + 1 + LIST_CREATE if type(args[0]) is int else 1


def _count_flattening(args: Sequence[Any], _result: Any) -> int:
    depth = args[1] if len(args) > 1 and type(args[1]) is int else 1
    return int(size_of(args[0]) * float(depth)) + 1 + LIST_CREATE


def _count_all_compared(args: Sequence[Any], _result: Any) -> int:
    items = args[-1]
    size = size_of(items)
    is_text = isinstance(items, list) and items and isinstance(items[0], str | bytes)
    return int(size * size * (2 + TRAVERSAL if is_text else 2)) + 1 + LIST_CREATE


# The table -----------------------------------------------------------------------------------------------------------


def _same(rule: CostRule, *names: str) -> dict[str, CostRule]:
    return dict.fromkeys(names, rule)


def _in_network(*, is_network: bool, is_text: bool) -> CostRule:
    known = _traversal(_ADDRESS_BYTES + _ADDRESS_BYTES)
    if is_network:
        known += _traversal(_ADDRESS_BYTES) + ONE
    return CostRule(
        lambda operands: CallEstimate(known + _traversal(operands[1].size) if is_text else known),
        lambda args, _result: _count_in_network(args, is_network=is_network, is_text=is_text),
    )


def _converting(resize: Callable[[Range], Range]) -> CostRule:
    def estimate(operands: Operands) -> CallEstimate:
        made = resize(operands[0].size)
        return CallEstimate(_traversal(operands[0].size), Range(made.min % 2**64, made.max % 2**64))

    return CostRule(estimate, _count_read)


def _sorting(type_name: str) -> CostRule:
    return CostRule(partial(_compare_all, is_text=type_name in ("string", "bytes")), _count_all_compared)


def _sets(factor: int) -> CostRule:
    return CostRule(
        lambda operands: CallEstimate((operands[0].size * operands[1].size).times(factor) + ONE),
        lambda args, _result: size_of(args[0]) * size_of(args[1]) * factor + 1,
    )


PLAIN = CostRule(lambda _operands: CallEstimate(ONE), _count_one)
_AFFIX = CostRule(partial(_read, position=1), _count_read)
_FLATTEN = CostRule(_flatten, _count_flattening)
_FIND = CostRule(lambda operands: CallEstimate(_search(operands), Range(0, operands[0].size.max)), _count_search)
_ORDERS = ("less", "less_equals", "greater", "greater_equals")
_RULES: Mapping[str, CostRule] = {
    # Kubernetes' functions
    **_same(
        CostRule(_scan, lambda args, _result: _traversed(args[0])),
        *("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"),
    ),
    **_same(CostRule(_transformed, _count_read), "url", "lowerAscii", "upperAscii", "substring", "trim"),
    **_same(
        CostRule(_read, _count_read),
        *("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver", "string_format"),
    ),
    "cidr_ip": PLAIN,
    "ip.isCanonical": CostRule(partial(_read, times=2), _count_read_twice),
    "replace": CostRule(_replace, _count_read_twice),
    "split": CostRule(_split, _count_read_twice),
    "join": CostRule(_join, lambda _args, result: _share(size_of(result), 2 * TRAVERSAL)),
    **_same(_FIND, "find", "findAll"),
    "containsIP": _in_network(is_network=False, is_text=False),
    "cidr_contains_ip_string": _in_network(is_network=False, is_text=True),
    "containsCIDR": _in_network(is_network=True, is_text=False),
    "cidr_contains_cidr_string": _in_network(is_network=True, is_text=True),
    "validate": CostRule(
        lambda operands: CallEstimate(_traversal(operands[1].size).times(_FORMAT_REGEX_SIZE * _REGEX_LENGTH)),
        _count_validation,
    ),
    # cel-go's lists and sets
    "list_slice": CostRule(_slice, _count_new_list),
    "lists_range": CostRule(lambda operands: _new_list(fixed(_literal_int(operands[0], MAX))), _count_range),
    "list_reverse": CostRule(lambda operands: _new_list(operands[0].size), _count_new_list),
    **_same(_FLATTEN, "list_flatten", "list_flatten_int"),
    "list_distinct": CostRule(_compare_all, _count_all_compared),
    **{f"list_{name}_sort": _sorting(name) for name in COMPARABLE},
    **{f"list_{name}_sortByAssociatedKeys": _sorting(name) for name in COMPARABLE},
    **_same(_sets(1), "list_sets_contains_list", "list_sets_intersects_list"),
    "list_sets_equivalent_list": _sets(2),
    # the standard functions
    "string_to_bytes": _converting(lambda size: Range(size.min, size.max * 4)),
    "bytes_to_string": _converting(lambda size: Range(size.min // 4, size.max)),
    "strings_quote": _converting(lambda size: Range(size.min + 2, size.max * 2 + 2)),
    **_same(_AFFIX, "starts_with_string", "ends_with_string"),
    "in_list": CostRule(
        lambda operands: CallEstimate(operands[1].size.times(1)), lambda args, _result: size_of(args[1])
    ),
    "matches_string": CostRule(lambda operands: CallEstimate(_search(operands)), _count_search),
    "contains_string": CostRule(
        lambda operands: CallEstimate(_traversal(operands[0].size) * _traversal(operands[1].size)),
        lambda args, _result: _share(size_of(args[0])) * _share(size_of(args[1])),
    ),
    "conditional": CostRule(lambda operands: CallEstimate(ZERO, operands[1].size | operands[2].size), _count_one),
    **_same(CostRule(_concatenation, _count_concatenation), "add_string", "add_bytes"),
    "add_list": CostRule(partial(_concatenation, copied=False), _count_one),
    **_same(
        CostRule(_comparison, _count_comparison),
        *("not_equals", *(f"{order}_{type_}" for order in _ORDERS for type_ in ("string", "bytes"))),
    ),
    "equals": CostRule(_equality, _count_equality),
}
