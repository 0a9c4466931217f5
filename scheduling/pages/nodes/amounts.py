"""Amounts of a node's resources as people read them: `12.5 of 64` CPUs, `96 of 512 GiB`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from manciple.wire.quantity import Quantity

_NANOS = 10**9
#: Resources whose amounts are bytes.
_BYTES = ("memory", "ephemeral-storage")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIBI = 1024
#: Shown by the number of pods, not as an amount.
PODS = "pods"
#: Told first.
_FIRST = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Allocated:
    """What the pods of a node ask of one resource, of what it has for them."""

    resource: str
    used: str
    whole: str
    percent: int

    @property
    def title(self) -> str:
        return {"cpu": "CPU", "memory": "Memory"}.get(self.resource, self.resource)

    @property
    def full(self) -> bool:
        return self.percent >= 100  # noqa: PLR2004 - percent


def allocated(allocatable: Mapping[str, str], used: Mapping[str, int]) -> tuple[Allocated, ...]:
    """CPU and memory first, then the others by name. used: nanos."""
    names = sorted((name for name in allocatable if name != PODS), key=lambda name: (name not in _FIRST, name))
    return tuple(_amount(name, used.get(name, 0), nanos(allocatable[name])) for name in names)


def _amount(resource: str, used: int, whole: int) -> Allocated:
    percent = 100 * used // whole if whole else (100 if used else 0)
    if resource in _BYTES or resource.startswith("hugepages-"):
        unit = _unit(whole)
        own = _unit(used) if used else unit
        told = _bytes(used, own) + ("" if own == unit else f" {_UNITS[own]}")
        return Allocated(resource, told, f"{_bytes(whole, unit)} {_UNITS[unit]}", percent)
    return Allocated(resource, _decimal(used / _NANOS), _decimal(whole / _NANOS), percent)


def nanos(text: str) -> int:
    """A quantity as a number; nothing where it cannot be read."""
    try:
        return Quantity.parse(text).nanos
    except ValueError:
        return 0


def _unit(amount: int) -> int:
    """The largest unit of which there is at least one."""
    size, unit = amount / _NANOS, 0
    while size >= _KIBI and unit < len(_UNITS) - 1:
        size, unit = size / _KIBI, unit + 1
    return unit


def _bytes(amount: int, unit: int) -> str:
    return _decimal(amount / _NANOS / _KIBI**unit)


def _decimal(value: float) -> str:
    """At most one digit after the point, and none that says nothing."""
    return f"{value:.1f}".removesuffix(".0")
