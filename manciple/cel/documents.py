"""JSON documents as values of the language, and back. PURE."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from manciple.cel.errors import EvaluationError
from manciple.cel.operators import type_name
from manciple.cel.times import Duration, Timestamp
from manciple.cel.values import MAX_INT, MIN_INT, CelMap, Optional, StructValue, Uint
from manciple.wire.limits import check_time


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


def document_of(value: Any) -> Any:
    """The builtins that a value stands for. Raises: EvaluationError for what JSON cannot say."""
    check_time()
    if isinstance(value, CelMap | StructValue):
        members = value if isinstance(value, CelMap) else value.members
        if not all(isinstance(key, str) for key in members):
            raise EvaluationError("a map whose keys are no strings cannot be converted to JSON")
        return {key: document_of(item) for key, item in members.items()}
    if isinstance(value, list):
        return [document_of(item) for item in value]
    if isinstance(value, Optional):
        return document_of(value.value) if value.present else None
    convert = _SCALARS.get(type(value))
    if convert is None:
        raise EvaluationError(f"{type_name(value)} cannot be converted to JSON")
    return convert(value)


_SCALARS: Mapping[type, Callable[[Any], Any]] = {
    **dict.fromkeys((bool, str, float, type(None)), lambda value: value),
    **dict.fromkeys((int, Uint), int),
    **dict.fromkeys((Duration, Timestamp), lambda value: value.text()),
    bytes: lambda value: base64.b64encode(value).decode(),
}
