"""The states that a device can be in."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class DeviceState(StrEnum):
    """In the order of legends. The values are short: stylesheets, URLs and usage samples hold them."""

    #: no claim holds it
    FREE = "free"
    #: a claim holds it, and somebody uses that claim
    RESERVED = "reserved"
    #: a claim holds it, and nobody uses that claim
    ALLOCATED = "alloc"
    #: a claim holds it for a pod that is on its node and does not run yet
    PREPARING = "prep"
    #: some of it is held and some of it is left
    PARTLY_SHARED = "part"
    #: others hold the hardware that it needs: partitions overlap
    BLOCKED = "blocked"
    #: its driver or an administrator keeps claims without a toleration away
    TAINTED = "taint"
    #: its driver reports a fault, and keeps claims away
    UNHEALTHY = "bad"
    #: nobody publishes it now, or its pool is published in part
    UNPUBLISHED = "gone"


#: States in which a device is not given to claims; some are held nevertheless, by who had them before or tolerates it.
OUT_OF_USE = (DeviceState.TAINTED, DeviceState.UNHEALTHY, DeviceState.UNPUBLISHED)


def by_use(counts: Mapping[str, int], held_out_of_use: Mapping[str, int]) -> dict[str, int]:
    """Counts by state, in which what is held counts as held, whatever else is wrong with it."""
    found = dict(counts)
    for state, number in held_out_of_use.items():
        found[state] = found.get(state, 0) - number
        found[DeviceState.RESERVED] = found.get(DeviceState.RESERVED, 0) + number
    return {state: number for state, number in found.items() if number}
