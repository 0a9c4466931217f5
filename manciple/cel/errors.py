"""The two ways in which an expression fails: it does not compile, or it has no value for a device.

Both carry cel-go's text, because users meet the same text in every Kubernetes cluster. A `Problem` is one finding of
the parser or the checker at one place; a `CompileError` is all findings of one expression, in the order of their
places, each with the line it is in and a caret below the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CompileFinding:
    """One finding: `offset` counts code points from the start of the expression."""

    offset: int
    message: str


class CelError(Exception):
    """What every failure of an expression has in common. `message` is the whole text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CompileError(CelError):
    """The expression cannot be used at all. `line` and `column` count from 1 and name the first problem.

    `snippet` shows that line with a caret below the column; it is empty where the fault is the expression as a whole.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0, snippet: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.snippet = snippet


class EvaluationError(CelError):
    """The expression has no value for this device. Operands of && and || may absorb it."""


class NoSuchKey(EvaluationError):
    """The device does not have what is read of it."""


class CostLimitExceeded(EvaluationError):  # named after the event, as upstream
    """The evaluation was stopped. Nothing absorbs it."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def compile_error(source: str, problems: Sequence[CompileFinding]) -> CompileError:
    """All problems of one expression as one error, in cel-go's format."""
    ordered = sorted(problems, key=lambda problem: problem.offset)
    places = [_place(source, problem.offset) for problem in ordered]
    shown = [
        f"ERROR: <input>:{place.line}:{place.column}: {problem.message}{place.snippet}"
        for problem, place in zip(ordered, places, strict=True)
    ]
    first = places[0]
    message = "compilation failed: " + "\n".join(shown)
    return CompileError(message, line=first.line, column=first.column, snippet=first.snippet.lstrip("\n"))


@dataclass(frozen=True)
class _Place:
    line: int
    column: int
    snippet: str


def _place(source: str, offset: int) -> _Place:
    before = source[:offset]
    line = before.count("\n") + 1
    start = before.rfind("\n") + 1
    end = source.find("\n", offset)
    text = source[start : len(source) if end < 0 else end].replace("\t", " ")
    return _Place(line, offset - start + 1, f"\n | {text}\n | {'.' * (offset - start)}^")
