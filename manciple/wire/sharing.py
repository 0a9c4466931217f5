"""What repeats is kept once: in documents names, types, words of an enumeration, empty maps; and whatever equal values
are derived from many of them.

Each decoded document has a copy of its own of every text in it. Who keeps thousands of documents lets `shared_texts`
replace these by the copies that others have. A text lives as long as somebody has it (`sys.intern`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from sys import intern
from typing import Any, Generic, TypeVar

from msgspec.structs import force_setattr

from manciple.wire.base import Value

#: Texts that no two documents have in common.
UNIQUE = frozenset({"uid", "resource_version"})
#: For all: values never change.
EMPTY: dict[str, Any] = {}

ValueT = TypeVar("ValueT", bound=Value)
AnyT = TypeVar("AnyT")


class Alike(Generic[AnyT]):
    """The first value that came under each key. Past `most` of them it starts anew, and sharing with it: of what is
    common there is soon one again.
    """

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._known: dict[Hashable, AnyT] = {}

    def get(self, key: Hashable) -> AnyT | None:
        return self._known.get(key)

    def first(self, key: Hashable, value: AnyT) -> AnyT:
        if len(self._known) >= self._most:
            self._known.clear()
        return self._known.setdefault(key, value)


def shared_texts(value: ValueT) -> ValueT:
    """The value itself; it was decoded just now, and nobody else has it yet."""
    for name in _fields(type(value)):
        part = getattr(value, name)
        share = _SHARES.get(type(part))
        if share is not None:
            force_setattr(value, name, share(part))
        elif isinstance(part, Value):
            shared_texts(part)
    return value


@cache
def _fields(type_: type[Value]) -> tuple[str, ...]:
    return tuple(name for name in type_.__struct_fields__ if name not in UNIQUE)


def _tuple(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    if parts and isinstance(parts[0], Value):
        for part in parts:
            shared_texts(part)
        return parts
    return tuple(map(_part, parts))


def _map(parts: dict[str, Any]) -> dict[str, Any]:
    for key, part in parts.items():
        parts[key] = _part(part)
    return parts or EMPTY


def _part(part: Any) -> Any:
    share = _SHARES.get(type(part))
    if share is not None:
        return share(part)
    return shared_texts(part) if isinstance(part, Value) else part


_SHARES: dict[type, Callable[[Any], Any]] = {str: intern, tuple: _tuple, dict: _map}
