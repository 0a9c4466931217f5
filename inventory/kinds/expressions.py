"""The door through which validation asks whether a CEL expression compiles.

Rules of kinds may not import the CEL environment, which stands above them. Whoever owns it registers a checker once,
when the process starts (`set_checker`); until then only the length and emptiness of expressions are checked.
"""

from __future__ import annotations

from collections.abc import Callable

from manciple.wire.errors import FieldError, invalid, required, too_long
from manciple.wire.validation import Path

#: In bytes (upstream: CELSelectorExpressionMaxLength).
EXPRESSION_MAX = 10 * 1024

#: expression -> what is wrong with it ("compilation failed: ERROR: ..."), "" when nothing is.
Checker = Callable[[str], str]


def accept_all(_expression: str) -> str:
    """The checker of a process without a CEL environment."""
    return ""


_checkers: list[Checker] = [accept_all]


def set_checker(checker: Checker) -> Checker:
    """From now on `checker` judges every new or changed expression of this process; returns the one before."""
    before = _checkers[0]
    _checkers[:] = [checker]
    return before


def validate_expression(expression: str, path: Path) -> list[FieldError]:
    """One error at most: empty, too long (then nothing else is looked at), or what the checker says."""
    if not expression:
        return [required(path)]
    if len(expression.encode()) > EXPRESSION_MAX:
        return [too_long(path, EXPRESSION_MAX)]
    problem = _checkers[0](expression)
    return [invalid(path, expression, problem)] if problem else []
