"""What values are at run time: Python's own where they fit, small classes where they do not.

bool, int, float, str, bytes and None are themselves; a list is a `list` and a map is a `CelMap`, neither changed after
it is made. `Uint` is an int that knows it is unsigned. Map keys: numbers of any type that are equal are one key, as
in cel-go; booleans stand as `BoolKey`, because Python takes True for 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from manciple.cel.errors import CostLimitExceeded, EvaluationError, NoSuchKey
from manciple.cel.types import CelType, TypeKind

MIN_INT = -(2**63)
MAX_INT = 2**63 - 1
MAX_UINT = 2**64 - 1

KEY_ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
    "for optional fields"
)


class Uint(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BoolKey:
    """A boolean as key of a map."""

    value: bool


class CelMap(dict[Any, Any]):
    """A map. Looking up a key that is not there is the language's error, not KeyError."""

    __slots__ = ()

    def __missing__(self, key: Any) -> Any:
        raise no_such_key(key)


class DomainMap(CelMap):
    """Maps by domain: a domain that is not there has an empty map (but is not `in` this one)."""

    __slots__ = ()

    def __missing__(self, key: Any) -> CelMap:
        return EMPTY_MAP


EMPTY_MAP = CelMap()


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """A value that may be absent."""

    value: Any = None
    present: bool = False


NONE = Optional()


def optional(value: Any) -> Optional:
    return Optional(value, present=True)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: what type(x) gives and `int` names."""

    type: CelType

    @property
    def name(self) -> str:
        return self.type.name


class EnvironmentValue:
    """A value of a type that an environment declares, such as a device: opaque but for its `FIELDS`."""

    __slots__ = ()

    TYPE: ClassVar[CelType]
    #: what expressions call its fields -> what Python calls them
    FIELDS: ClassVar[Mapping[str, str]] = {}


class StructValue(EnvironmentValue):
    """A structure that an expression made: `Object.spec{replicas: 1}`. Its type is that of its name."""

    __slots__ = ("members", "name")

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        self.name = name
        self.members = members

    @property
    def TYPE(self) -> CelType:  # type: ignore[override]  # noqa: N802 - each value has its own
        return CelType(TypeKind.STRUCT, self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructValue) and (self.name, self.members) == (other.name, other.members)

    def __hash__(self) -> int:
        return hash(self.name)


class Strict:
    """A value of one of Kubernetes' own types: it can be compared with its like only, and asking else is an error."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            raise no_such_overload()
        return self.same(other)

    def __hash__(self) -> int:
        raise NotImplementedError

    def same(self, other: Any) -> bool:
        """Equality with a value of the same type."""
        raise NotImplementedError


def no_such_key(key: Any) -> NoSuchKey:
    return NoSuchKey(f"no such key: {format_key(key)}{KEY_ADVICE}")


def format_key(key: Any) -> str:
    if isinstance(key, BoolKey):
        return str(key.value).lower()
    if isinstance(key, bool):
        return str(key).lower()
    return str(key)


def map_key(value: Any) -> Any:
    """The key under which a map keeps `value`. Raises: EvaluationError for what cannot be a key."""
    kind = type(value)
    if kind is str or kind is int or kind is Uint:
        return value
    if kind is bool:
        return BoolKey(value)
    if kind is float and value.is_integer():
        return int(value)
    raise EvaluationError(f"unsupported key type: {value!r}")


def key_value(key: Any) -> Any:
    """The value that a map's key stands for."""
    return key.value if type(key) is BoolKey else key


def overflow(kind: str = "integer") -> NoReturn:
    raise EvaluationError(f"{kind} overflow")


def no_such_overload(detail: str = "") -> EvaluationError:
    return EvaluationError(f"no such overload{': ' + detail if detail else ''}")


#: Texts and lists longer than this are never built; cel-go would run into its cost limit or build them lazily.
MAX_SIZE = 8_000_000


def guard_size(size: int) -> None:
    """Raises: CostLimitExceeded before memory is taken for a value that no expression needs."""
    if size > MAX_SIZE:
        raise CostLimitExceeded


def three_way(left: Any, right: Any) -> int:
    """-1, 0 or 1."""
    return int(left > right) - int(left < right)


def or_error(parse: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its ValueError as the language's error."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    return parsed


def is_valid(parse: Callable[..., Any]) -> Callable[..., bool]:
    """Whether the function takes its argument without ValueError."""

    def valid(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return valid
