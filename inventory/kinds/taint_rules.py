"""Which devices the taint rules taint. PURE.

A rule names a driver, a pool, a device, or leaves some of them open; without a selector it taints nothing.
`TaintRules` finds the rules of a device by what they name, so it does not matter to a device how many rules there are
for others. While gate DRADeviceTaintRules is off, rules have no effect.
Source: staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from inventory.kinds import gates
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceSlice

GATE = "DRADeviceTaintRules"

#: (driver, pool, device); None is any
Place = tuple[str | None, str | None, str | None]


class TaintedPools(NamedTuple):
    """Pools that a change of a rule concerns; None is any."""

    driver: str | None
    pool: str | None

    def concerns(self, driver: str, pool: str) -> bool:
        return self.driver in (None, driver) and self.pool in (None, pool)


@dataclass(slots=True, eq=False, repr=False)
class TaintRules:
    """The DeviceTaintRules, by name and by the devices that they select."""

    rules: InitVar[Iterable[DeviceTaintRule]] = ()
    _by_name: dict[str, DeviceTaintRule] = field(default_factory=dict)
    _by_place: dict[Place, dict[str, DeviceTaintRule]] = field(default_factory=dict)
    #: which of driver, pool and device any rule names -> how many rules do
    _patterns: dict[tuple[bool, bool, bool], int] = field(default_factory=dict)

    def __post_init__(self, rules: Iterable[DeviceTaintRule]) -> None:
        for rule in rules:
            self.put(rule)

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[DeviceTaintRule]:
        return iter(self._by_name.values())

    def get(self, name: str) -> DeviceTaintRule | None:
        return self._by_name.get(name)

    # Keeping them ----------------------------------------------------------------------------------------------------

    def put(self, rule: DeviceTaintRule) -> tuple[TaintedPools, ...]:
        """Add a rule, or replace the one of its name. Returns which pools see other taints than before."""
        known = self._by_name.get(rule.metadata.name)
        same = known is not None and known.spec == rule.spec
        touched = self.remove(rule.metadata.name)
        self._by_name[rule.metadata.name] = rule
        if (place := place_of(rule)) is None or not gates.enabled(GATE):
            return touched
        self._by_place.setdefault(place, {})[rule.metadata.name] = rule
        pattern = _pattern(place)
        self._patterns[pattern] = self._patterns.get(pattern, 0) + 1
        return () if same else tuple(dict.fromkeys((*touched, TaintedPools(*place[:2]))))

    def remove(self, name: str) -> tuple[TaintedPools, ...]:
        """Forget a rule; returns which pools see other taints than before."""
        gone = self._by_name.pop(name, None)
        place = None if gone is None else place_of(gone)
        if place is None or self._by_place.get(place, {}).pop(name, None) is None:
            return ()
        if not self._by_place[place]:
            del self._by_place[place]
        pattern = _pattern(place)
        self._patterns[pattern] -= 1
        if not self._patterns[pattern]:
            del self._patterns[pattern]
        return (TaintedPools(*place[:2]),)

    # Asking ----------------------------------------------------------------------------------------------------------

    def of(self, driver: str, pool: str, device: str) -> tuple[DeviceTaintRule, ...]:
        """Those that taint the device, by name."""
        found: dict[str, DeviceTaintRule] = {}
        for by_driver, by_pool, by_device in self._patterns:
            place = (driver if by_driver else None, pool if by_pool else None, device if by_device else None)
            if at_place := self._by_place.get(place):
                found.update(at_place)
        if len(found) < 2:  # noqa: PLR2004 - most devices have one or none
            return tuple(found.values())
        return tuple(found[name] for name in sorted(found))

    def taints_of(self, driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
        if not self._patterns:
            return ()
        return tuple(rule.spec.taint for rule in self.of(driver, pool, device))

    def added_to(self, published: ResourceSlice) -> ResourceSlice:
        """`published` with the taints of the rules behind the driver's own; the same value where there are none."""
        spec = published.spec
        added = [self.taints_of(spec.driver, spec.pool.name, device.name) for device in spec.devices]
        if not any(added):
            return published
        devices = tuple(
            replace(device, taints=(*device.taints, *taints)) if taints else device
            for device, taints in zip(spec.devices, added, strict=True)
        )
        return replace(published, spec=replace(spec, devices=devices))


def place_of(rule: DeviceTaintRule) -> Place | None:
    """What its selector names; None for a rule that selects nothing. (Upstream's scheduler takes such a rule for one
    that selects everything, against the field's description, and its eviction controller does not.)"""
    selector = rule.spec.device_selector
    return None if selector is None else (selector.driver, selector.pool, selector.device)


def _pattern(place: Place) -> tuple[bool, bool, bool]:
    driver, pool, device = place
    return driver is not None, pool is not None, device is not None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Upstream: resourceclaim.ToleratesTaint. An empty key with Equal matches any key, but needs the value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
