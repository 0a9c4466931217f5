"""Consumable capacity: what a request takes of a device, and whether that still fits.

Every capacity of the device is consumed: by the amount asked for, rounded as the capacity's policy says, else by the
policy's default, else in full. Names match literally. A range's step counts in whole units. Source: upstream's
structured/internal/experimental/consumable_capacity.go (v1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from inventory.kinds.slices import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from manciple.wire.quantity import Quantity

#: capacity name -> amount
Consumption = Mapping[str, Quantity]
#: capacity name, quantity text; sorted
Asked = tuple[tuple[str, str], ...]

#: Different amounts asked for that are kept.
MAX_ASKED = 512


class Capacities:
    """The capacities of a device, one object for all devices with equal ones, and what was derived from them."""

    __slots__ = ("_consumed", "published", "readable", "totals")

    def __init__(self, published: Mapping[str, DeviceCapacity]) -> None:
        #: by name, as in `Device.capacity`
        self.published = dict(published)
        #: asked (name -> quantity text, sorted) -> what is consumed, and whether all of the device has so much
        self._consumed: dict[Asked, tuple[Consumption | None, bool]] = {}
        #: capacity name -> nanos
        self.totals: dict[str, int] = {}
        #: whether every amount is a quantity
        self.readable = True
        for name, capacity in published.items():
            try:
                self.totals[name] = Quantity.parse(capacity.value).nanos
            except ValueError:
                self.readable = False

    def consumption(self, asked: Asked) -> Consumption | None:
        """What a request for `asked` takes; None where a device with these capacities cannot serve it."""
        return self._known(asked)[0]

    def serves(self, asked: Asked) -> bool:
        """Whether a device of which nothing is consumed serves the request."""
        return self._known(asked)[1]

    def _known(self, asked: Asked) -> tuple[Consumption | None, bool]:
        known = self._consumed.get(asked)
        if known is None:
            if len(self._consumed) >= MAX_ASKED:
                self._consumed.clear()
            taken = _consumption(self.published, dict(asked))
            known = self._consumed[asked] = (taken, taken is not None and self.fits(taken))
        return known

    def fits(self, taken: Consumption, *consumed: Mapping[str, int]) -> bool:
        """Whether `taken` fits beside what is `consumed` already (capacity name -> nanos)."""
        for name, amount in taken.items():
            total = amount.nanos + sum(one.get(name, 0) for one in consumed)
            if total > self.totals[name]:
                return False
        return True


def _consumption(published: Mapping[str, DeviceCapacity], wanted: Mapping[str, str]) -> Consumption | None:
    if any(name not in published for name in wanted):
        return None
    taken: dict[str, Quantity] = {}
    for name, capacity in published.items():
        amount = _consumed(wanted.get(name), capacity)
        if amount is None:
            return None
        taken[name] = amount
    return taken


def _consumed(asked: str | None, capacity: DeviceCapacity) -> Quantity | None:
    """None where the policy does not allow the amount."""
    text, policy = _amount(asked, capacity)
    if policy is None:
        return text if isinstance(text, Quantity) else Quantity.parse(text)
    # Upstream compares the default as it is written, so 3072Mi is not the default 3Gi.
    if isinstance(text, str) and text == policy.default:
        return Quantity.parse(text)
    amount = text if isinstance(text, Quantity) else Quantity.parse(text)
    return None if _violates(amount, policy) else amount


def _amount(asked: str | None, capacity: DeviceCapacity) -> tuple[str | Quantity, CapacityRequestPolicy | None]:
    """The amount, as text where it is taken over as written."""
    policy = capacity.request_policy
    if asked is None:
        return (policy.default if policy is not None and policy.default is not None else capacity.value), policy
    if policy is None:
        return asked, None
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_to_range(asked, policy.valid_range), policy
    if policy.valid_values:
        wanted = Quantity.parse(asked)
        return next((one for one in policy.valid_values if Quantity.parse(one) >= wanted), asked), policy
    return asked, policy


@lru_cache(maxsize=4096)
def _round_to_range(asked: str, allowed: CapacityRequestPolicyRange) -> str | Quantity:
    minimum, wanted = Quantity.parse(allowed.min or "0"), Quantity.parse(asked)
    if wanted < minimum:
        return allowed.min or "0"
    if allowed.step is None:
        return asked
    step = Quantity.parse(allowed.step)
    start, unit = minimum.as_int64_ceil(), step.as_int64_ceil()
    steps = -(-(wanted.as_int64_ceil() - start) // unit) if unit else 0
    return Quantity.of(start + steps * unit, step.format)


def _violates(amount: Quantity, policy: CapacityRequestPolicy) -> bool:
    allowed = policy.valid_range
    if allowed is not None:
        if allowed.max is not None and amount > Quantity.parse(allowed.max):
            return True
        if allowed.step is None:
            return False
        unit = Quantity.parse(allowed.step).as_int64_ceil()
        start = Quantity.parse(allowed.min or "0").as_int64_ceil()
        return bool(unit) and (amount.as_int64_ceil() - start) % unit != 0
    if policy.valid_values:
        return all(amount != Quantity.parse(one) for one in policy.valid_values)
    return False
