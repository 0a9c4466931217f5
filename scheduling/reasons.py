"""Why a pod waits: the reasons that hold it in the queue, as one set of flags.

The scheduling cycle writes them when it could not place a pod; queueing hints (`scheduling.hints`) say which of them an
event can lift. PURE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from scheduling.causes import AnyCause


class Reason(IntFlag):
    """One bit each, so that the database can select the pods that an event could help."""

    GATED = 1  #: spec.schedulingGates is not empty
    CLAIM_MISSING = 2  #: a claim does not exist yet, or its name is not yet in the pod's status
    CLAIM_BUSY = 4  #: a claim is being deleted, belongs to another pod, or has all its reservations taken
    CLAIM_ELSEWHERE = 8  #: an allocated claim is not available on any node that would fit
    CLASS_MISSING = 16  #: a request names a DeviceClass that does not exist
    DEVICES = 32  #: no node has the devices
    NODE = 64  #: no node passes name, selector, affinity, taints, unschedulable
    RESOURCES = 128  #: no node has the cpu, memory, pods or extended resources
    ERROR = 256  #: a selector failed, or the search was undecided: the claim, its class or a slice has to change


#: Names in the order of the bits, for pages and logs.
NAMES = {reason: str(reason.name).lower().replace("_", "-") for reason in Reason}


def claim_key(namespace: str, name: str) -> str:
    """What a pod awaits when it waits for one claim."""
    return f"claim:{namespace}/{name}"


def class_key(name: str) -> str:
    """What a pod awaits when it waits for one DeviceClass."""
    return f"class:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What keeps a pod out of the active queue."""

    reasons: Reason
    #: keys of the objects that it waits for by name; reasons that name no object wait for any event of their kind
    awaited: frozenset[str] = frozenset()
    #: the same for people, with everything that there is to tell
    cause: AnyCause | None = None


def names_of(reasons: Reason) -> tuple[str, ...]:
    """`Reason.NODE | Reason.DEVICES` -> `("devices", "node")`, in the order of the bits."""
    return tuple(name for reason, name in NAMES.items() if reason in reasons)
