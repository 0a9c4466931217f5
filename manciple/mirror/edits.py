"""Edits of an object as another cluster has it, which keep what our types do not know of it. PURE.

An edit is known as two documents, before and after, which may lack fields of the object: those that our types do not
know, and what is not copied. `carried` makes the same change in the object itself, and `patch_of` writes it as a JSON
patch that fails where the object has changed meanwhile:

    there  {"taints": [{"key": "a", "futureField": 1}, {"key": "b"}]}
    before {"taints": [{"key": "a"}, {"key": "b"}]}
    after  {"taints": [{"key": "b"}, {"key": "a", "value": "x"}]}
    ->     {"taints": [{"key": "b"}, {"key": "a", "value": "x", "futureField": 1}]}

Elements of lists are recognised by their content, else by what names them, else by their place where as many go as
come. Where that leaves a choice, and a wrong one would lose something, the edit is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

Document = dict[str, Any]

#: What names an element among others, the first of these that it has.
_NAMES: Final = ("name", "uid", "key", "type", "ip", "containerPort")
_MISSING: Final = object()


class Ambiguous(Exception):
    """It cannot be told where fields belong that our types do not know. path: of the list."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


# The change in the object ---------------------------------------------------------------------------------------------


def carried(there: Any, before: Any, after: Any, path: str = "") -> Any:
    """`there` with the change that makes `after` of `before`. Shares what stays with `there`. Raises: Ambiguous."""
    if same(before, after):
        return there
    if isinstance(there, dict) and isinstance(before, dict) and isinstance(after, dict):
        kept = {name: value for name, value in there.items() if name in after or name not in before}
        return kept | {
            name: carried(there.get(name), before.get(name), value, f"{path}/{name}")
            for name, value in after.items()
            if name not in before or not same(before[name], value)
        }
    if isinstance(there, list) and isinstance(before, list) and isinstance(after, list):
        return _carried_list(there, before, after, path)
    if before is None and _says_something(there):
        raise Ambiguous(path)  # all of it is unknown to us, and would be lost
    return after


def _carried_list(there: list[Any], before: list[Any], after: list[Any], path: str) -> list[Any]:
    if len(there) != len(before):
        raise Ambiguous(path)
    places = _matched(before, after)
    coming = [one for one, place in zip(after, places, strict=True) if place is None]
    going = [place for place in range(len(before)) if place not in places]
    unnamed_go = [place for place in going if _name(before[place]) is None]
    unnamed_come = [one for one in coming if _name(one) is None]
    if len(unnamed_go) == len(unnamed_come):
        stand_in = iter(unnamed_go)
        places = [
            next(stand_in) if place is None and _name(one) is None else place
            for one, place in zip(after, places, strict=True)
        ]
    elif unnamed_come and any(_has_more(there[place], before[place]) for place in unnamed_go):
        raise Ambiguous(path)
    return [
        one if place is None else carried(there[place], before[place], one, f"{path}/{place}")
        for one, place in zip(after, places, strict=True)
    ]


def _matched(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """For each element of `after`, the one of `before` that it is; each is one at most."""
    places: list[int | None] = [None] * len(after)
    free = dict.fromkeys(range(len(before)))

    def take(number: int, candidates: Sequence[int]) -> None:
        if places[number] is None and candidates:
            places[number] = chosen = candidates[0]
            del free[chosen]

    for number, one in enumerate(after):
        take(number, [number] if number in free and same(before[number], one) else [])
    for number, one in enumerate(after):
        if places[number] is None:
            take(number, [place for place in free if same(before[place], one)])
    for number, one in enumerate(after):
        if (name := _name(one)) is not None:
            alike = [place for place in free if same(_name(before[place]), name)]
            take(number, sorted(alike, key=lambda place: -_agreement(before[place], one)))
    return places


def _name(one: Any) -> tuple[str, Any] | None:
    if not isinstance(one, dict):
        return ("", one) if not isinstance(one, list) else None
    return next(((name, one[name]) for name in _NAMES if one.get(name) not in (None, "")), None)


def _agreement(left: Document, right: Any) -> int:
    return sum(same(value, right.get(name, _MISSING)) for name, value in left.items())


def _has_more(there: Any, known: Any) -> bool:
    """Whether something would be lost if only what is known of it stayed."""
    if isinstance(there, dict) and isinstance(known, dict):
        return any(
            _has_more(value, known[name]) if name in known else _says_something(value) for name, value in there.items()
        )
    if isinstance(there, list) and isinstance(known, list):
        return len(there) != len(known) or any(map(_has_more, there, known))
    return False


def _says_something(value: Any) -> bool:
    """Whether it is other than what a field says that is not there."""
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    return bool(value)


def same(left: Any, right: Any) -> bool:
    """Whether two documents say the same: to Python, `true` is also 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


# As a JSON patch ------------------------------------------------------------------------------------------------------


def patch_of(there: Document, wanted: Document) -> list[Document]:
    """RFC 6902. It fails, and changes nothing, unless the object still has the version that `there` has; it is empty
    where nothing changes.
    """
    operations = list(_operations(there, wanted, ""))
    if not operations:
        return []
    version = there["metadata"]["resourceVersion"]
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *operations]


def _operations(there: Any, wanted: Any, path: str) -> Iterator[Document]:
    if there is wanted or same(there, wanted):
        return
    if isinstance(there, dict) and isinstance(wanted, dict):
        for name in there:
            if name not in wanted:
                yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
        for name, value in wanted.items():
            if name not in there:
                yield {"op": "add", "path": f"{path}/{_escaped(name)}", "value": value}
            else:
                yield from _operations(there[name], value, f"{path}/{_escaped(name)}")
    elif isinstance(there, list) and isinstance(wanted, list) and len(there) == len(wanted):
        for number, value in enumerate(wanted):
            yield from _operations(there[number], value, f"{path}/{number}")
    else:
        yield {"op": "replace", "path": path, "value": wanted}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
