"""What one call costs at most, by function and overload: cel-go's standard rules, its lists and sets, Kubernetes' own.

Kubernetes' rules come first and are by function name; a rule that has nothing to say leaves the call to the standard
ones. Arguments' own costs are added by the caller. Sources: cel-go checker/cost.go and ext/, apiserver
pkg/cel/library/cost.go, dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from scheduling.cel.device_sizes import size_at
from scheduling.cel.sizes import LIST_CREATE, MAX, ONE, REGEX_LENGTH, TRAVERSAL, UNKNOWN, ZERO, Range, fixed
from scheduling.cel.types import BYTES, CIDR, FORMAT, IP, QUANTITY, SEMVER, STRING, URL, CelType

#: apiserver/pkg/cel: MaxNameFormatRegexSize, MaxFormatSize; resource.k8s.io: values of a list-typed attribute
_FORMAT_REGEX_SIZE = 128
_FORMAT_NAME_SIZE = 64
_INCLUDES_MAX = 48
_ADDRESS_BYTES = Range(4, 16)


@dataclass(frozen=True, slots=True)
class Operand:
    """What is known of a target or argument."""

    type: CelType
    path: tuple[str, ...]
    computed_size: Range | None
    #: the value of a literal
    literal: object = None

    @property
    def size(self) -> Range:
        return UNKNOWN if self.computed_size is None else self.computed_size


@dataclass(frozen=True, slots=True)
class CallEstimate:
    cost: Range
    #: of the result, where it can be told
    size: Range | None = None


_Rule = Callable[[str, Operand | None, Sequence[Operand]], CallEstimate | None]


def estimate_call(function: str, overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    """The call's own cost, without its arguments'."""
    for rule in (_BY_OVERLOAD.get(overload), _BY_FUNCTION.get(function), _STANDARD.get(overload)):
        estimated = rule(overload, target, args) if rule is not None else None
        if estimated is not None:
            return estimated
    return CallEstimate(ONE)


def _traversal(size: Range) -> Range:
    return size.times(TRAVERSAL)


# Kubernetes' functions


def _free_call(_overload: str, _target: Operand | None, _args: Sequence[Operand]) -> CallEstimate:
    return CallEstimate(ONE)


def _parsing(factor: float) -> _Rule:
    """Functions that read a text once per `factor`."""

    def rule(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
        if target is not None or not args:
            return CallEstimate(ONE)
        return CallEstimate(args[0].size.times(factor * TRAVERSAL))

    return rule


def _element(operand: Operand) -> Operand | None:
    if not operand.type.params:
        return None
    path = (*operand.path, "@items") if operand.path else ()
    return Operand(operand.type.params[0], path, size_at(path))


def _list_scan(_overload: str, target: Operand | None, _args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    element = _element(target)
    if element is None:
        return CallEstimate(_traversal(target.size))
    compared = ONE
    if element.type in (STRING, BYTES):
        compared += _traversal(element.size)
    return CallEstimate(target.size * compared)


def _url(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(_traversal(args[0].size), args[0].size) if len(args) == 1 else None


def _same_size(_overload: str, target: Operand | None, _args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(_traversal(target.size), target.size) if target else None


def _replace(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size, old, new = target.size, args[0].size, args[1].size
    longest, shortest = _longest_replaced(size, old, new), _shortest_replaced(size, old, new)
    return CallEstimate(size.times(2 * TRAVERSAL), Range(min(shortest, MAX), min(longest, MAX)))


def _longest_replaced(size: Range, old: Range, new: Range) -> int:
    if old.min == 0:
        return min(size.max + 1, MAX) * new.max + size.max
    if new.max <= old.min:
        return size.max
    return ceil(float(size.max) / old.min) * new.max


def _shortest_replaced(size: Range, old: Range, new: Range) -> int:
    if old.max == 0:
        return min(size.min + 1, MAX) * new.min + size.min
    if old.max <= new.min:
        return size.min
    return ceil(float(size.min) / old.max) * new.min


def _split(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    most = target.size.max
    if len(args) > 1 and isinstance(args[1].literal, int):
        most = args[1].literal % 2**64
    return CallEstimate(target.size.times(2 * TRAVERSAL), Range(0, most))


def _join(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    element = _element(target)
    size = target.size * element.size if element else ZERO
    if args:
        gaps = Range(max(target.size.min - 1, 0), max(target.size.max - 1, 0))
        size += args[0].size * gaps
    return CallEstimate(_traversal(size), size)


def _find(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None or not args:
        return None
    cost = _traversal(target.size + ONE) * args[0].size.times(REGEX_LENGTH)
    return CallEstimate(cost, Range(0, target.size.max))


def _contains_ip(overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    cost = _traversal(_ADDRESS_BYTES + _ADDRESS_BYTES)
    if overload == "cidr_contains_ip_string":
        cost += _traversal(args[0].size)
    return CallEstimate(cost)


def _contains_cidr(overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    cost = _traversal(_ADDRESS_BYTES + _ADDRESS_BYTES) + _traversal(_ADDRESS_BYTES) + ONE
    if overload == "cidr_contains_cidr_string":
        cost += _traversal(args[0].size)
    return CallEstimate(cost)


def _validate(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    return CallEstimate(_traversal(args[0].size).times(_FORMAT_REGEX_SIZE * REGEX_LENGTH))


def _equal(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    """Kubernetes' types compare at once."""
    left, right = args[0].type, args[1].type
    if left != right:
        return None
    if left in (IP, CIDR, QUANTITY, SEMVER):
        return CallEstimate(ONE)
    if left == FORMAT:
        return CallEstimate(Range(1, _FORMAT_NAME_SIZE).times(TRAVERSAL))
    if left == URL:
        size = args[1].computed_size or ONE
        return CallEstimate(Range(1, size.max).times(TRAVERSAL))
    return None


def _includes(_overload: str, target: Operand | None, _args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(Range(0, _INCLUDES_MAX)) if target else None


_FREE = (
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub",
    "major", "minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery",
    "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast",
    "isGlobalUnicast", "format.named",
)  # fmt: skip
_BY_FUNCTION: Mapping[str, _Rule] = {
    **dict.fromkeys(_FREE, _free_call),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _list_scan),
    "url": _url,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _parsing(1)),
    "ip.isCanonical": _parsing(2),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
    "includes": _includes,
}

# cel-go's lists and sets


def _new_list(size: Range, factor: float = 1) -> CallEstimate:
    return CallEstimate(size.times(factor) + ONE + fixed(LIST_CREATE), size)


def _literal_int(operand: Operand, default: int) -> int:
    value = operand.literal
    return max(value, 0) if type(value) is int else default


def _slice(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    length = _literal_int(args[1], target.size.max) - _literal_int(args[0], 0)
    return _new_list(fixed(length % 2**64))


def _range(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    return _new_list(fixed(_literal_int(args[0], MAX)))


def _reverse(_overload: str, target: Operand | None, _args: Sequence[Operand]) -> CallEstimate | None:
    return _new_list(target.size) if target else None


def _flatten(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return _new_list(target.size, _literal_int(args[0], MAX) if args else 1) if target else None


def _distinct(_overload: str, target: Operand | None, _args: Sequence[Operand]) -> CallEstimate | None:
    return _new_list(target.size * target.size, 2) if target else None


def _sort(overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    compared = args[0].size if args else target.size
    is_text = overload.startswith(("list_string", "list_bytes"))
    return _new_list(compared * compared, 2 + TRAVERSAL if is_text else 2)


def _sets(factor: float) -> _Rule:
    def rule(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
        return CallEstimate((args[0].size * args[1].size).times(factor) + ONE)

    return rule


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
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _distinct,
    **{f"list_{name}_sort": _sort for name in _COMPARABLE},
    **{f"list_{name}_sortByAssociatedKeys": _sort for name in _COMPARABLE},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}

# The standard functions


def _format(_overload: str, target: Operand | None, _args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(_traversal(target.size)) if target else None


def _to_bytes(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    size = args[0].size
    return CallEstimate(_traversal(size), Range(size.min, size.max * 4 % 2**64))


def _to_string(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    size = args[0].size
    return CallEstimate(_traversal(size), Range(size.min // 4, size.max))


def _quote(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    size = args[0].size
    return CallEstimate(_traversal(size), Range((size.min + 2) % 2**64, (size.max * 2 + 2) % 2**64))


def _affix(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    return CallEstimate(_traversal(args[0].size))


def _in_list(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    return CallEstimate(args[1].size.times(1))


def _matches(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_traversal(target.size + ONE) * args[0].size.times(REGEX_LENGTH))


def _contains(_overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(_traversal(target.size) * _traversal(args[0].size)) if target else None


def _conditional(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    return CallEstimate(ZERO, args[1].size | args[2].size)


def _concatenation(overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    size = args[0].size + args[1].size
    return CallEstimate(ONE if overload == "add_list" else _traversal(size), size)


def _comparison(_overload: str, _target: Operand | None, args: Sequence[Operand]) -> CallEstimate:
    most = min(args[0].size.max, args[1].size.max)
    return CallEstimate(_traversal(Range(1 if most else 0, most)))


_ORDERS = ("less", "less_equals", "greater", "greater_equals")
_STANDARD: Mapping[str, _Rule] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _in_list,
    "matches_string": _matches,
    "contains_string": _contains,
    "conditional": _conditional,
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _concatenation),
    **dict.fromkeys((f"{order}_{type_}" for order in _ORDERS for type_ in ("string", "bytes")), _comparison),
    **dict.fromkeys(("equals", "not_equals"), _comparison),
}
