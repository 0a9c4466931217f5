"""The greatest sizes of what lies on a device, by the path from `device`: the API's limits on names, texts and counts.

A path's steps are field names, `@keys`, `@values` and `@items`. Source: the declarations in
dynamic-resource-allocation/cel/compile.go; limits from k8s.io/api/resource/v1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduling.cel.sizes import MAX, Range

_ENTRIES_MAX = 32
_DOMAIN_MAX = 63
_IDENTIFIER_MAX = 32
_DRIVER_MAX = 63
#: the longer of an attribute's text (64 bytes) and its list of values (48)
ATTRIBUTE_MAX = 64


@dataclass(frozen=True)
class _Declared:
    size: int
    keys: _Declared | None = None
    values: _Declared | None = None
    fields: dict[str, _Declared] = field(default_factory=dict)


_ATTRIBUTE = _Declared(ATTRIBUTE_MAX)
_IDENTIFIER = _Declared(_IDENTIFIER_MAX)
_DOMAIN = _Declared(_DOMAIN_MAX)
_ATTRIBUTES = _Declared(_ENTRIES_MAX, _IDENTIFIER, _ATTRIBUTE)
_CAPACITIES = _Declared(_ENTRIES_MAX, _IDENTIFIER, _Declared(MAX // 2))
_DEVICE = _Declared(
    size=MAX // 2,
    fields={
        "driver": _Declared(_DRIVER_MAX),
        "allowMultipleAllocations": _Declared(1),
        "attributes": _Declared(_ENTRIES_MAX, _DOMAIN, _ATTRIBUTES),
        "capacity": _Declared(_ENTRIES_MAX, _DOMAIN, _CAPACITIES),
    },
)


def size_at(path: tuple[str, ...]) -> Range | None:
    """The size of the value at a path, None where nothing is declared of it."""
    if not path or path[0] != "device":
        return None
    current: _Declared | None = _DEVICE
    for step in path[1:]:
        current = _next(current, step)
    return Range(0, current.size) if current is not None else None


def _next(current: _Declared | None, step: str) -> _Declared | None:
    if current is None:
        return None
    if step in ("@items", "@values"):
        return current.values
    if step == "@keys":
        return current.keys
    if step in current.fields:
        return current.fields[step]
    # Any attribute has the same limit, whatever its name.
    return _ATTRIBUTE if current is _ATTRIBUTES else None
