"""Copies of mutable state, derived from its fields: `copy_of(state)`. PURE.

A part of the state is a dataclass that isn't frozen. The type of each of its fields says how the field is copied:

    str, tuple, frozenset, Mapping, Sequence, a frozen dataclass, an API value    shared: it never changes
    dict, list, set, deque, Counter, defaultdict                                  copied, and its elements by their type
    another dataclass that isn't frozen                                           a part of its own, copied likewise

A field of any other type, or one that needs something else, says so:

    _index: Index = field(metadata=SHARED)                  the copy uses the same object
    _cache: dict[K, V] = field(metadata=RESET, ...)         the copy starts with the field's default

A class whose objects never change, apart from caches, is declared as such once: `@immutable`. If the type of a field
says nothing and the field doesn't either, copying raises TypeError. A part that several fields refer to is copied once,
and the copies refer to each other as the originals do. An attribute that isn't a field is missing in the copy.
"""

from __future__ import annotations

import types
import typing
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, timedelta
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

SHARED: Mapping[str, str] = {"copied": "shared"}
RESET: Mapping[str, str] = {"copied": "reset"}

StateT = TypeVar("StateT")
ClassT = TypeVar("ClassT", bound=type)
#: id of a part -> its copy
Memo = dict[int, Any]
Copy = Callable[[Any, Memo], Any]

_VALUES = (str, bytes, int, float, complex, type(None), date, timedelta, Enum, type)
#: Their methods don't change them. Whoever declares a field as one of these promises not to.
_READ_ONLY = (tuple, frozenset, Mapping, Sequence, AbstractSet, Collection, Iterable)


def copy_of(state: StateT) -> StateT:
    """Nothing that is done to the copy shows in `state`, or the other way round. Raises: TypeError, see above."""
    return typing.cast("StateT", _copy_part(state, {}))


def immutable(cls: ClassT) -> ClassT:
    """Class decorator: copies share the objects of this class. They never change, apart from caches."""
    cls.__copied_by_reference__ = True  # type: ignore[attr-defined]  # on whatever class
    return cls


@cache
def copies_of_fields(part: type) -> tuple[tuple[str, Copy | None], ...]:
    """How each field of a part is copied; None: it's shared. Raises: TypeError for a field that doesn't say."""
    hints = typing.get_type_hints(part)
    return tuple((one.name, _copy_of_field(part, one, hints[one.name])) for one in fields(part))


def is_part(cls: type) -> bool:
    return is_dataclass(cls) and not cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


def _copy_part(part: Any, memo: Memo) -> Any:
    made = memo.get(id(part))
    if made is None:
        cls: type = type(part)
        made = memo[id(part)] = object.__new__(cls)
        for name, copy in copies_of_fields(cls):
            value = getattr(part, name)
            setattr(made, name, value if copy is None else copy(value, memo))
    return made


def _copy_of_field(part: type, declared: Field[Any], hint: Any) -> Copy | None:
    match declared.metadata.get("copied"):
        case "shared":
            return None
        case "reset":
            default, factory = declared.default, declared.default_factory
            return (lambda _value, _memo: default) if factory is MISSING else (lambda _value, _memo: factory())
    try:
        shallow, deep = _rule(hint)
    except _Undecided as error:
        text = f"{part.__module__}.{part.__qualname__}.{declared.name}: its type doesn't say how {error} is copied"
        raise TypeError(f"{text}; declare the field with metadata=SHARED or RESET") from None
    return (lambda value, _memo: shallow(value)) if shallow is not None else deep


class _Undecided(Exception):
    """The type of a field doesn't say how it's copied."""


#: (a copy that needs no memo, else a copy); both None: shared
_Rule = tuple[Callable[[Any], Any] | None, Copy | None]
_SHARE: _Rule = (None, None)


def _rule(hint: Any) -> _Rule:
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    rule = _SHARE
    if isinstance(origin, TypeVar):
        rule = _rule_of_union(origin.__constraints__ or (origin.__bound__,))
    elif origin in (typing.Union, types.UnionType):
        rule = _rule_of_union(args)
    elif hint is None or origin in (Literal, Hashable):
        pass
    elif not isinstance(origin, type):
        raise _Undecided(hint)
    elif is_part(origin):
        rule = None, _copy_part
    elif issubclass(origin, dict) and args:
        rule = _rule_of_dict(origin, args)
    elif issubclass(origin, list | set | deque) and args:
        rule = _rule_of_elements(origin, args)
    elif origin in _READ_ONLY:
        if any(_rule(one) != _SHARE for one in args if one is not Ellipsis):
            if origin is not tuple or len(set(args) - {Ellipsis}) > 1:
                raise _Undecided(hint)
            rule = _rule_of_elements(tuple, args)
    elif not issubclass(origin, (*_VALUES, tuple)) and not _never_changes(origin):
        raise _Undecided(hint)
    return rule


def _never_changes(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_config__.frozen
    return is_dataclass(cls) or getattr(cls, "__copied_by_reference__", False)  # a dataclass here is a frozen one


def _rule_of_union(options: Sequence[Any]) -> _Rule:
    rules = {one: _rule(one) for one in options if one is not type(None)}
    copying = [rule for rule in rules.values() if rule != _SHARE]
    if not copying:
        return _SHARE
    if len(rules) > 1:
        raise _Undecided(" | ".join(map(str, options)))
    shallow, deep = copying[0]
    copy = deep or (lambda value, _memo: shallow(value))  # type: ignore[misc]
    return None, lambda value, memo: None if value is None else copy(value, memo)


def _rule_of_dict(kind: type[dict[Any, Any]], args: Sequence[Any]) -> _Rule:
    if kind not in (dict, Counter, defaultdict):
        raise _Undecided(kind)
    inner, deep = _SHARE if kind is Counter else _rule(args[1])
    if inner is None and deep is None:
        return (_copy_counter if kind is Counter else kind.copy), None
    if kind is defaultdict:

        def copy_defaultdict(value: defaultdict[Any, Any], memo: Memo) -> defaultdict[Any, Any]:
            items = ((key, inner(one) if inner else deep(one, memo)) for key, one in value.items())  # type: ignore[misc]
            return defaultdict(value.default_factory, items)

        return None, copy_defaultdict
    if inner is not None:
        return (lambda value: {key: inner(one) for key, one in value.items()}), None
    return None, lambda value, memo: {key: deep(one, memo) for key, one in value.items()}  # type: ignore[misc]


def _rule_of_elements(kind: Any, args: Sequence[Any]) -> _Rule:
    inner, deep = _rule(args[0])
    if inner is None and deep is None:
        return kind.copy, None
    if inner is not None:
        return (lambda value: kind(map(inner, value))), None
    return None, lambda value, memo: kind(deep(one, memo) for one in value)  # type: ignore[misc]


def _copy_counter(value: Counter[Any]) -> Counter[Any]:
    """Counter.copy counts each element."""
    made: Counter[Any] = Counter()
    dict.update(made, value)
    return made
