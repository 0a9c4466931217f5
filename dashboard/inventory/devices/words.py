"""What a person reads for the state of a device: made from the enum here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from claims.devices.states import DeviceState
from insight.how_many_fit import MOST

#: state -> what the legend calls it
STATES: Mapping[str, str] = {
    DeviceState.FREE: "Free",
    DeviceState.RESERVED: "Reserved",
    DeviceState.ALLOCATED: "Allocated",
    DeviceState.PREPARING: "Preparing",
    DeviceState.PARTLY_SHARED: "Partly shared",
    DeviceState.BLOCKED: "Blocked",
    DeviceState.TAINTED: "Tainted",
    DeviceState.UNHEALTHY: "Unhealthy",
    DeviceState.UNPUBLISHED: "Unpublished",
}

#: state -> one sentence for a person who meets the mark for the first time
MEANINGS: Mapping[str, str] = {
    DeviceState.FREE: "No claim holds it.",
    DeviceState.RESERVED: "A claim holds it, and somebody uses that claim.",
    DeviceState.ALLOCATED: "A claim holds it, and nobody uses that claim.",
    DeviceState.PREPARING: "A claim holds it for a pod that is on its node and does not run yet.",
    DeviceState.PARTLY_SHARED: "Some of it is held and some of it is left.",
    DeviceState.BLOCKED: "Others hold the hardware that it needs; it is free again when they are done.",
    DeviceState.TAINTED: "Its driver or an administrator tainted it; claims need a toleration.",
    DeviceState.UNHEALTHY: "Its driver reports a fault; claims need a toleration.",
    DeviceState.UNPUBLISHED: "Its driver does not publish it now, or publishes its pool in part.",
}

#: How a bar is drawn, from left to right: what is held, what is out of use, what is free.
IN_BARS = (
    DeviceState.RESERVED,
    DeviceState.ALLOCATED,
    DeviceState.PREPARING,
    DeviceState.PARTLY_SHARED,
    DeviceState.TAINTED,
    DeviceState.UNHEALTHY,
    DeviceState.UNPUBLISHED,
    DeviceState.BLOCKED,
    DeviceState.FREE,
)


def bar_of(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """(state, devices) as a bar shows them, without zeros."""
    return [(state, counts[state]) for state in IN_BARS if counts.get(state)]


def in_words(counts: Mapping[str, int]) -> str:
    """The bar for those who do not see it."""
    return ", ".join(f"{count:,} {STATES[state].lower()}" for state, count in bar_of(counts)) or "no device"


def how_many(fits: int) -> str:
    """How many more claims fit, as far as they are counted: "55", "10,000 or more"."""
    return f"{fits:,}" if fits < MOST else f"{fits:,} or more"
