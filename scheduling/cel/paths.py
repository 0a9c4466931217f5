"""Reading what lies at a place: fields of the device, entries of maps, elements of lists, through optionals.

Both evaluators use these. What is not there is an error of the language; behind an optional it is an absent value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduling.cel.device import DeviceView
from scheduling.cel.equality import has_key
from scheduling.cel.errors import EvaluationError
from scheduling.cel.functions.operators import index, list_position
from scheduling.cel.kinds import go_name
from scheduling.cel.values import NONE, CelMap, Optional, key_value, no_such_key, optional


def lookup(operand: Any, key: Any) -> Any:
    """`operand.key` or `operand[key]`. Raises: EvaluationError when nothing is there."""
    if type(operand) is Optional:
        return lookup_optional(operand, key)
    if type(operand) is DeviceView:
        return _device_field(operand, key)
    if isinstance(operand, CelMap | list):
        return index(operand, key)
    raise no_such_key(key)


def lookup_optional(operand: Any, key: Any) -> Optional:
    """`operand.?key` or `operand[?key]`."""
    if type(operand) is Optional:
        return lookup_optional(operand.value, key) if operand.present else NONE
    if type(operand) is DeviceView:
        return optional(_device_field(operand, key))
    if isinstance(operand, CelMap):
        try:
            return optional(index(operand, key))
        except EvaluationError:
            return NONE
    if type(operand) is list:
        position = list_position(key)
        return optional(operand[position]) if 0 <= position < len(operand) else NONE
    return NONE


def is_present(operand: Any, name: str) -> bool:
    """has(operand.name)."""
    if type(operand) is Optional:
        return operand.present and is_present(operand.value, name)
    if type(operand) is DeviceView:
        return True
    return isinstance(operand, CelMap) and has_key(operand, name)


def _device_field(device: DeviceView, name: str) -> Any:
    if name == "allowMultipleAllocations":
        return device.allow_multiple_allocations
    return getattr(device, name)


def rounds(container: Any, variables: int) -> Iterable[tuple[Any, ...]]:
    """What the 1 or 2 iteration variables stand for in each round. Raises: EvaluationError for what has no elements."""
    if type(container) is list:
        return ((item,) for item in container) if variables == 1 else enumerate(container)
    if isinstance(container, CelMap):
        if variables == 1:
            return ((key_value(key),) for key in container)
        return ((key_value(key), value) for key, value in container.items())
    raise EvaluationError(f"got '{go_name(container)}', expected iterable type")
