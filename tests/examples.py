"""How many examples a property test draws: a few at every run, many where somebody asks for them (`make fuzz`)."""

from __future__ import annotations

import os

_TIMES = int(os.environ.get("MANCIPLE_EXAMPLES", "1"))


def some(examples: int) -> int:
    """As many as that, or the multiple that MANCIPLE_EXAMPLES asks for."""
    return examples * _TIMES
