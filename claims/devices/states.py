"""The states of a device."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class DeviceState(StrEnum):
    """In the order of legends. The values are short: stylesheets, URLs and usage samples hold them."""

    #: no claim holds it, and a claim could be given it now
    FREE = "free"
    #: a claim with users holds it
    RESERVED = "reserved"
    #: a claim without users holds it
    ALLOCATED = "alloc"
    #: a claim holds it for a pod that is bound to the node and does not run yet
    PREPARING = "prep"
    #: claims hold some of it
    PARTLY_SHARED = "part"
    #: overlapping partitions that are held use its hardware
    BLOCKED = "blocked"
    #: no claim holds it, but no node that sees it accepts pods
    CLOSED = "closed"
    #: a taint of its driver or of an administrator keeps claims without a toleration away
    TAINTED = "taint"
    #: its driver reports a fault, and keeps claims away
    UNHEALTHY = "bad"
    #: it is not published any more, or its pool is incomplete
    UNPUBLISHED = "gone"
    #: in a mirror: no claim that is known holds it, but what could keep it from being free is not known entirely
    UNKNOWN = "unknown"
    #: nobody has heard of its node's agent in time (`inventory.reachability`): what was known of it may be wrong
    UNREACHABLE = "away"


#: States in which a device is not allocated; claims from before, or with a toleration, may still hold it.
OUT_OF_USE = (
    DeviceState.CLOSED,
    DeviceState.TAINTED,
    DeviceState.UNHEALTHY,
    DeviceState.UNPUBLISHED,
    DeviceState.UNREACHABLE,
)


def by_use(counts: Mapping[str, int], held_out_of_use: Mapping[str, int]) -> dict[str, int]:
    """Counts by state in which held devices that are out of use count as held."""
    by_state = dict(counts)
    for state, number in held_out_of_use.items():
        by_state[state] = by_state.get(state, 0) - number
        by_state[DeviceState.RESERVED] = by_state.get(DeviceState.RESERVED, 0) + number
    return {state: number for state, number in by_state.items() if number}
