"""Renders a chart as Helm does, as far as ours go: a machine that tests need not have Helm.

What a template uses beyond this is an error here. Where there is a Helm (PATH, MANCIPLE_HELM), the tests of charts use
it as well.
Sources: text/template of Go 1.24; Helm 3.19, pkg/engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)
_WORD = re.compile(r'"[^"]*"|[()|]|[^\s()|]+')


class Failed(Exception):
    """What a chart says by `fail`."""


@dataclass
class _Block:
    """action: "if", "range", "define"; "" for a whole file. parts: texts, expressions, blocks."""

    action: str = ""
    argument: str = ""
    parts: list[str | tuple[str] | _Block] = field(default_factory=list)


def _parsed(source: str) -> _Block:
    stack, at, trims = [_Block()], 0, False
    for found in _ACTION.finditer(source):
        text = source[at : found.start()]
        text = text.lstrip() if trims else text
        stack[-1].parts.append(text.rstrip() if found[1] else text)
        at, trims = found.end(), bool(found[3])
        word, _, rest = found[2].partition(" ")
        if word in ("if", "range", "define"):
            stack.append(_Block(word, rest))
            stack[-2].parts.append(stack[-1])
        elif word == "end":
            stack.pop()
        else:
            stack[-1].parts.append((found[2],))
    assert len(stack) == 1, "a block has no end"
    rest = source[at:]
    stack[0].parts.append(rest.lstrip() if trims else rest)
    return stack[0]


class Chart:
    def __init__(self, folder: Path) -> None:
        self._values: Mapping[str, Any] = yaml.safe_load((folder / "values.yaml").read_text())
        files = {path.name: _parsed(path.read_text()) for path in sorted((folder / "templates").iterdir())}
        self._files = {name: block for name, block in files.items() if name.endswith(".yaml")}
        blocks = (part for block in files.values() for part in block.parts if isinstance(part, _Block))
        self._defined = {json.loads(block.argument): block for block in blocks if block.action == "define"}

    def render(self, release: str, namespace: str, values: Mapping[str, Any]) -> str:
        """Raises: Failed."""
        top = {"Values": _merged(self._values, values), "Release": {"Name": release, "Namespace": namespace}}
        return "\n---\n".join("".join(self._rendered(block, top, {})) for block in self._files.values())

    def _rendered(self, block: _Block, dot: Any, names: Mapping[str, Any]) -> Iterator[str]:
        for part in block.parts:
            if isinstance(part, str):
                yield part
            elif isinstance(part, tuple):
                yield _text(self._value(part[0], dot, names))
            elif part.action == "if":
                if self._value(part.argument, dot, names):
                    yield from self._rendered(part, dot, names)
            elif part.action == "range":
                yield from self._each(part, dot, names)

    def _each(self, block: _Block, dot: Any, names: Mapping[str, Any]) -> Iterator[str]:
        declared, assigned, given = block.argument.rpartition(":=")
        values = self._value(given, dot, names)
        for key, value in sorted(values.items()) if isinstance(values, Mapping) else enumerate(values):
            own = (
                dict(zip((name.strip() for name in declared.split(",")), (key, value), strict=True)) if assigned else {}
            )
            yield from self._rendered(block, value, {**names, **own})

    def _value(self, expression: str, dot: Any, names: Mapping[str, Any]) -> Any:
        words = _WORD.findall(expression)
        value = self._pipeline(words, dot, names)
        assert not words, f"{expression} is not understood"
        return value

    def _pipeline(self, words: list[str], dot: Any, names: Mapping[str, Any]) -> Any:
        """Takes what it understands off `words`, up to a closing parenthesis."""
        before: tuple[Any, ...] = ()
        while True:
            command = list[Any]()
            while words and words[0] not in ("|", ")"):
                word = words.pop(0)
                if word == "(":
                    command.append(self._pipeline(words, dot, names))
                    assert words.pop(0) == ")"
                else:
                    command.append(self._operand(word, dot, names))
            result = self._called([*command, *before])
            if not words or words[0] == ")":
                return result
            words.pop(0)
            before = (result,)

    def _operand(self, word: str, dot: Any, names: Mapping[str, Any]) -> Any:
        if word.startswith('"'):
            return json.loads(word)
        if word.isdigit():
            return int(word)
        if word.startswith("$"):
            return names[word]
        if word.startswith("."):
            for name in filter(None, word.split(".")):
                dot = dot[name]
            return dot
        return {**_FUNCTIONS, "include": self._include}[word]

    def _called(self, command: Sequence[Any]) -> Any:
        first, *arguments = command
        return first(*arguments) if callable(first) else first

    def _include(self, name: str, dot: Any) -> str:
        return "".join(self._rendered(self._defined[name], dot, {}))


def _merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    def one(before: Any, after: Any) -> Any:
        return _merged(before, after) if isinstance(before, Mapping) and isinstance(after, Mapping) else after

    return {**values, **{name: one(values.get(name), value) for name, value in more.items()}}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _indented(spaces: int, text: str) -> str:
    return "\n" + "\n".join(" " * spaces + line for line in text.split("\n"))


def _fail(message: str) -> None:
    raise Failed(message)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "and": lambda *values: all(values),
    "fail": _fail,
    "gt": lambda one, other: one > other,
    "int": int,
    "nindent": _indented,
    "not": lambda value: not value,
    "quote": lambda value: json.dumps(_text(value)),
    "toYaml": lambda value: yaml.safe_dump(value).rstrip("\n"),
}
