"""JSONPath as kubectl and printer columns speak it: `.status.conditions[?(@.type=="Ready")].status`. PURE.

    find(parse(".spec.ports[*].name"), document)        # every value there, in order

A path is a list of steps, each from values to values: a member, an element, a slice, all of them, everything below
(`..`), and filters that compare. Source: client-go/util/jsonpath.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

Step = Callable[[Any], Iterable[Any]]
Path = tuple[Step, ...]

_FIELD = re.compile(r"(?:\\.|[^.\[\]{}()'\"\s,?@|!])+")
_FILTER = re.compile(r"\s*(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+?)\s*", re.DOTALL)
_SLICE = re.compile(r"(-?[0-9]*)(?::(-?[0-9]*))?(?::(-?[0-9]*))?")
_QUOTED = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class BadPath(ValueError):
    """A text that is no path."""


@lru_cache(maxsize=1024)
def parse(text: str) -> Path:
    """Raises: BadPath."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return tuple(_steps(text.removeprefix("$")))


def find(path: Path, document: Any) -> list[Any]:
    """Every value at the path; none where there is nothing."""
    found = [document]
    for step in path:
        found = [value for one in found for value in step(one)]
    return found


def _steps(text: str) -> Iterator[Step]:
    at = 0
    while at < len(text):
        if text.startswith("..", at):
            at += 2
            yield _everything_below
            if at < len(text) and text[at] not in ".[":
                name, at = _field(text, at)
                yield _member(name)
        elif text[at] == ".":
            at += 1
            if at == len(text):
                raise BadPath("unexpected end of path")
            if text[at] == "[":
                continue
            if text[at] == "*":
                at += 1
                yield _all
                continue
            name, at = _field(text, at)
            yield _member(name)
        elif text[at] == "[":
            end = _closing(text, at)
            yield _bracketed(text[at + 1 : end].strip())
            at = end + 1
        else:
            raise BadPath(f"unrecognized character in action: {text[at]!r}")


def _field(text: str, at: int) -> tuple[str, int]:
    match = _FIELD.match(text, at)
    if match is None:
        raise BadPath(f"unrecognized character in action: {text[at]!r}")
    return re.sub(r"\\(.)", r"\1", match[0]), match.end()


def _closing(text: str, at: int) -> int:
    """Where the bracket at `at` is closed. Raises: BadPath."""
    depth, position = 0, at
    while position < len(text):
        quoted = _QUOTED.match(text, position)
        if quoted is not None:
            position = quoted.end()
            continue
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return position
        position += 1
    raise BadPath("unterminated array")


def _bracketed(inner: str) -> Step:
    if inner == "*":
        return _all
    if inner.startswith("?(") and inner.endswith(")"):
        return _filter(inner[2:-1])
    if quoted := _QUOTED.fullmatch(inner):
        return _member(re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2]))
    if "," in inner:
        steps = [_bracketed(part.strip()) for part in inner.split(",")]
        return lambda value: [found for step in steps for found in step(value)]
    match = _SLICE.fullmatch(inner)
    if match is None or not inner:
        raise BadPath(f"invalid array index {inner}")
    return _slice(match) if ":" in inner else _element(int(inner))


def _member(name: str) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _element(index: int) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()

    return step


def _slice(match: re.Match[str]) -> Step:
    first, last, stride = (int(part) if part else None for part in match.groups())
    if stride == 0:
        raise BadPath("step must be > 0")
    return lambda value: value[first:last:stride] if isinstance(value, list) else ()


def _all(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _everything_below(value: Any) -> Iterator[Any]:
    yield value
    for one in _all(value):
        yield from _everything_below(one)


def _filter(text: str) -> Step:
    match = _FILTER.fullmatch(text)
    if match is None:
        there = _operand(text.strip())
        return lambda value: [one for one in _all(value) if there(one)]
    left, compare, right = _operand(match[1]), _COMPARISONS[match[2]], _operand(match[3])

    def holds(one: Any) -> bool:
        try:
            return any(compare(a, b) for a in left(one) for b in right(one) if isinstance(a, str) == isinstance(b, str))
        except TypeError:
            return False

    return lambda value: [one for one in _all(value) if holds(one)]


def _operand(text: str) -> Callable[[Any], Sequence[Any]]:
    if text.startswith("@"):
        path = parse(text[1:])
        return lambda one: find(path, one)
    if quoted := _QUOTED.fullmatch(text):
        fixed: Any = re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2])
    else:
        try:
            fixed = json.loads(text)
        except ValueError as error:
            raise BadPath(f"unrecognized text in a filter: {text}") from error
    return lambda _one: (fixed,)
