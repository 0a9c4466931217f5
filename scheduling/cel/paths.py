"""Reading what lies at a place: fields of the device, entries of maps, elements of lists, through optionals.

Both evaluators use these. What is not there is an error of the language; behind an optional it is an absent value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
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
        return optional(_device_field(operand, key)) if _is_device_field(key) else NONE
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
        return _is_device_field(name)
    return isinstance(operand, CelMap) and has_key(operand, name)


#: The fields of `device`, under the names that expressions use. Past dyn() any key may be asked for.
_DEVICE_FIELDS: dict[str, Callable[[DeviceView], Any]] = {
    "driver": attrgetter("driver"),
    "attributes": attrgetter("attributes"),
    "capacity": attrgetter("capacity"),
    "allowMultipleAllocations": attrgetter("allow_multiple_allocations"),
}


def _is_device_field(key: Any) -> bool:
    return isinstance(key, str) and key in _DEVICE_FIELDS


def _device_field(device: DeviceView, key: Any) -> Any:
    if not _is_device_field(key):
        raise no_such_key(key)
    return _DEVICE_FIELDS[key](device)


def rounds(container: Any, variables: int) -> Iterable[tuple[Any, ...]]:
    """What the 1 or 2 iteration variables stand for in each round. Raises: EvaluationError for what has no elements."""
    if type(container) is list:
        return ((item,) for item in container) if variables == 1 else enumerate(container)
    if isinstance(container, CelMap):
        if variables == 1:
            return ((key_value(key),) for key in container)
        return ((key_value(key), value) for key, value in container.items())
    raise EvaluationError(f"got '{go_name(container)}', expected iterable type")
