"""What the allocator answers: a value for every case, an exception for none.

`Allocated` is a plan to commit. `Unallocatable` is "no", with the reasons in the order in which a reader should see
them; the pod waits for an event that could change one of them. `Failed` says that the claim, a class or a pool is
wrong: where `fatal_for_pod`, no other node is tried. `Undecided` says that the search was stopped: retry, never
cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from claims.kinds.allocations import AllocationResult
from scheduling.allocator.nodeview import NodeView

__all__ = [
    "Allocated",
    "Failed",
    "NodeView",
    "Outcome",
    "Reason",
    "Stage",
    "Unallocatable",
    "Undecided",
]

#: Upstream's words for "no" (plugin DynamicResources, filter).
CANNOT_ALLOCATE = "cannot allocate all claims"
#: Upstream's words when nothing fits and some pool could not be used.
INVALID_POOLS = "invalid resource pools were encountered"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the funnel: how many devices were left after it, and what it asked."""

    name: str  # "published", "in a complete pool", "visible from the node", "class selector #0", ...
    left: int
    clause: str = ""  # the selector's expression, the taint, the constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why one request of one claim gets no device on one node."""

    claim: str  # "namespace/name"
    request: str  # "request" or "request/subrequest"
    device_class: str
    wanted: int  # devices asked for; 0 stands for "all"
    text: str  # a whole clause in plain words, without a final stop
    funnel: tuple[Stage, ...] = ()  # none where each request could be met on its own

    @property
    def progress(self) -> float:
        """How many stages still had devices: the fewer, the further the request is from being met."""
        return sum(1 for stage in self.funnel if stage.left) if self.funnel else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """One result per claim, in the order of the claims. `trials` counts the devices that the search took in hand."""

    results: tuple[AllocationResult, ...]
    trials: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unallocatable:
    """No solution exists on this node. The dominant reason comes first."""

    reasons: tuple[Reason, ...] = ()
    trials: int = 0

    @property
    def message(self) -> str:
        """Kubernetes' words, then the dominant reason."""
        return f"{CANNOT_ALLOCATE}: {self.reasons[0].text}" if self.reasons else CANNOT_ALLOCATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Something is wrong with a claim, a class or (where not `fatal_for_pod`) a pool of this node alone."""

    error: str
    fatal_for_pod: bool = True
    trials: int = 0

    @property
    def message(self) -> str:
        return self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """The search gave up after `trials` devices without an answer."""

    trials: int

    @property
    def message(self) -> str:
        return f"allocation undecided: the search stopped after {self.trials} device trials"


Outcome = Allocated | Unallocatable | Failed | Undecided
