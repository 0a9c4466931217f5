"""JSON documents as values of the language. PURE."""

from __future__ import annotations

from typing import Any

from manciple.cel.values import MAX_INT, MIN_INT, CelMap


def value_of(document: Any) -> Any:
    """What an expression sees of builtins: objects are maps, arrays lists; integers beyond 64 bits are doubles."""
    kind = type(document)
    if kind is dict:
        return CelMap((key, value_of(item)) for key, item in document.items())
    if kind is list or kind is tuple:
        return [value_of(item) for item in document]
    if kind is int and not MIN_INT <= document <= MAX_INT:
        return float(document)
    return document
