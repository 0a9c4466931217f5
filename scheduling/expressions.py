"""How validation learns whether a CEL expression compiles: the checker that `inventory.kinds.expressions` asks."""

from __future__ import annotations

from scheduling.cel import CompileError, compile_new_selector


def problem_of(expression: str) -> str:
    """What is wrong with a new or changed expression, in upstream's words; "" when nothing is."""
    try:
        compile_new_selector(expression)
    except CompileError as error:
        return error.message
    return ""
