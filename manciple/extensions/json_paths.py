"""JSONPath as kubectl and printer columns speak it: `.status.conditions[?(@.type=="Ready")].status`. PURE.

    find(parse(".spec.ports[*].name"), document)        # every value there, in order

A path is a list of steps, each from values to values: a member, an element, a slice, all of them, everything below
(`..`), and filters that compare. Steps multiply what they find, so a search that visits too much finds nothing: a
column must not hold up everybody who lists its kind. Source: client-go/util/jsonpath.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from operator import eq, ge, gt, le, lt, ne
from typing import Any

#: Characters of a path, and values that one search may visit.
LONGEST, MOST_VISITED = 4096, 20_000

Step = Callable[[Any, "_Budget"], Iterable[Any]]
Path = tuple[Step, ...]

_FIELD = re.compile(r"(?:\\.|[^\\.\[\]{}()'\"\s,?@|!])+")
_COMPARISON = re.compile(r"==|!=|<=|>=|<|>")
_NUMBER = r"(-?[0-9]{1,18})?"
_SLICE = re.compile(rf"{_NUMBER}(?::{_NUMBER})?(?::{_NUMBER})?")
_QUOTED = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class BadPath(ValueError):
    """A text that is no path."""


class _Spent(Exception):
    """A search has visited too much."""


@dataclass(slots=True)
class _Budget:
    left: int = MOST_VISITED

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Spent


@lru_cache(maxsize=1024)
def parse(text: str) -> Path:
    """Raises: BadPath."""
    if len(text) > LONGEST:
        raise BadPath(f"must have at most {LONGEST} characters")
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    try:
        return tuple(_steps(text.removeprefix("$")))
    except RecursionError:
        raise BadPath("nests too deep") from None


def find(path: Path, document: Any) -> list[Any]:
    """Every value at the path; none where there is nothing, or where finding it takes too much."""
    try:
        return _found(path, document, _Budget())
    except (_Spent, RecursionError):
        return []


def _found(path: Path, value: Any, budget: _Budget) -> list[Any]:
    found = [value]
    for step in path:
        following = []
        for one in found:
            for at_step in step(one, budget):
                budget.spend()
                following.append(at_step)
        found = following
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
        return lambda value, budget: (found for step in steps for found in step(value, budget))
    match = _SLICE.fullmatch(inner)
    if match is None or not inner:
        raise BadPath(f"invalid array index {inner}")
    return _slice(match) if ":" in inner else _element(int(inner))


def _member(name: str) -> Step:
    def step(value: Any, _budget: _Budget) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _element(index: int) -> Step:
    def step(value: Any, _budget: _Budget) -> Iterable[Any]:
        return (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()

    return step


def _slice(match: re.Match[str]) -> Step:
    first, last, stride = (int(part) if part else None for part in match.groups())
    if stride == 0:
        raise BadPath("step must be > 0")
    return lambda value, _budget: value[first:last:stride] if isinstance(value, list) else ()


def _all(value: Any, _budget: _Budget) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _everything_below(value: Any, budget: _Budget) -> Iterator[Any]:
    yield value
    for one in _all(value, budget):
        yield from _everything_below(one, budget)


def _filter(text: str) -> Step:
    text = text.strip()
    match = _COMPARISON.search(text, 1)
    if match is None:
        there = _operand(text)
        return lambda value, budget: (one for one in _all(value, budget) if there(one, budget))
    left, right = _operand(text[: match.start()].rstrip()), _operand(text[match.end() :].lstrip())
    compare = _COMPARISONS[match[0]]

    def holds(one: Any, budget: _Budget) -> bool:
        for a, b in product(left(one, budget), right(one, budget)):
            budget.spend()
            with suppress(TypeError):
                if isinstance(a, str) == isinstance(b, str) and compare(a, b):
                    return True
        return False

    return lambda value, budget: (one for one in _all(value, budget) if holds(one, budget))


def _operand(text: str) -> Step:
    if text.startswith("@"):
        path = parse(text[1:])
        return lambda one, budget: _found(path, one, budget)
    if quoted := _QUOTED.fullmatch(text):
        fixed: Any = re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2])
    else:
        try:
            fixed = json.loads("" if text.startswith(("[", "{")) else text)  # no lists, no objects
        except ValueError as error:
            raise BadPath(f"unrecognized text in a filter: {text}") from error
    return lambda _one, _budget: (fixed,)
