"""Writing Python: statements, blocks, fresh names, constants and functions, and at the end one callable.

The text consists of names that are made here and of nothing else: whatever comes from an expression (texts, numbers,
patterns) is a constant that the text refers to by name. Blocks that would nest deeper than Python allows (20 loops and
tries, 100 indents) go into functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: How deep statements of one function may nest.
MAX_NESTING = 14
#: Longer code is not worth making: operands that macros use twice are written twice, and so on inside them.
MAX_LINES = 3000


class TooLong(Exception):
    """The code of an expression would be out of proportion."""


class Writer:
    """The functions of one expression while they are being written. The function being written is the current one."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._constants: dict[int, str] = {}
        self._finished: list[str] = []
        self._lines: list[str] = []
        self._indent = 1
        self._names = 0
        self._written = 0

    def fresh(self, prefix: str = "t") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = self._constants.get(id(value))
        if name is None:
            name = self.fresh("k")
            self._constants[id(value)] = name
            self._namespace[name] = value  # kept here, so that the id stays its own
        return name

    def line(self, text: str) -> None:
        """Raises: TooLong."""
        self._written += 1
        if self._written > MAX_LINES:
            raise TooLong
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The statements inside `with` are the body of `head:`."""
        self.line(f"{head}:")
        self._indent += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._indent -= 1

    @property
    def is_deep(self) -> bool:
        """True when what comes next should go into a function of its own."""
        return self._indent >= MAX_NESTING

    def function(self, parameters: list[str], body: Callable[[], str]) -> str:
        """Writes a function; `body` writes its statements and gives the expression it returns. Gives its name."""
        name = self.fresh("f")
        outer_lines, outer_indent = self._lines, self._indent
        self._lines, self._indent = [f"def {name}({', '.join(parameters)}):"], 1
        self.line(f"return {body()}")
        self._finished.append("\n".join(self._lines))
        self._lines, self._indent = outer_lines, outer_indent
        return name

    def build(self, name: str) -> Callable[..., Any]:
        """Makes what was written into functions and gives the one with this name."""
        source = "\n\n".join(self._finished)
        exec(compile(source, "<selector>", "exec"), self._namespace)  # noqa: S102  # all names in it are ours
        function: Callable[..., Any] = self._namespace[name]
        return function
