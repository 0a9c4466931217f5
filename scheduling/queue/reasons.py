"""The reasons that keep a pod out of the active queue: bits for the database, a cause for people. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from claims.causes.causes import AnyCause


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
    NEIGHBOURS = 512  #: other pods are in the way: affinity, anti-affinity, topology spread, host ports
    BINDING = 1024  #: its devices are given, and not attached yet
    VOLUME = 2048  #: a volume names a PersistentVolumeClaim
    QUOTA = 4096  #: a quota of its namespace leaves too little of what its claims would hold
    GROUP = 8192  #: its PodGroup does not exist, or has too few pods
    GANG = 16384  #: it is placed together with others of its group, or not at all
    NEGOTIATION = 32768  #: others decide about its claims (`scheduling.claims.negotiation`)
    NOT_PLACED = 65536  #: it fits, and is another scheduler's (`scheduling.cycle.observation`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a pod is not in the active queue, and what it waits for."""

    reasons: Reason
    #: keys of objects that it waits for; reasons that name no object wait for any event of their kind
    awaited: frozenset[str] = frozenset()
    cause: AnyCause | None = None  #: the same for people
