"""The allocator: a pure function from a snapshot, claims and nodes to a plan.

    inventory = Inventory(Features())        # kept warm by a scheduling worker: apply_slice, apply_class, apply_claim
    outcome = allocate(inventory.snapshot(), claims, NodeView("node-1", labels))
    match outcome:
        case Allocated(results=results): ...     # one AllocationResult per claim, to commit
        case Unallocatable(reasons=reasons): ... # "no" on this node, with the funnel of each request
                                                 # overall(refusals): the dominant cause of several nodes
        case Failed(cause=cause): ...            # a claim, class or pool is wrong
        case Undecided(): ...                    # stopped at the step limit: retry
    place(inventory.snapshot(), claims, nodes)   # the same over many nodes: Placement(node, outcome, refusals)

Where Kubernetes' reference allocator allocates, the same devices come out, in the same order.
"""

from manciple.wire.limits import Deadline
from scheduling.allocator.allocation import allocate, is_allocatable, read_claims
from scheduling.allocator.outcome import (
    Allocated,
    AllocationFailed,
    Outcome,
    RequestReason,
    Stage,
    Unallocatable,
    Undecided,
    overall,
)
from scheduling.allocator.placement import (
    Candidate,
    Fit,
    NodeChoice,
    NodePlacement,
    NodeQuery,
    NodeScore,
    Score,
    best_fitting,
    first_named,
    most_packed,
    most_spread,
    place,
)
from scheduling.allocator.problem import free_on
from scheduling.allocator.published import Features, NodeView
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.snapshot import Inventory, Snapshot

__all__ = [
    "Allocated",
    "AllocationFailed",
    "Candidate",
    "Deadline",
    "Features",
    "Fit",
    "Inventory",
    "NodeChoice",
    "NodePlacement",
    "NodeQuery",
    "NodeScore",
    "NodeView",
    "Outcome",
    "RequestPlan",
    "RequestReason",
    "Score",
    "Snapshot",
    "Stage",
    "Unallocatable",
    "Undecided",
    "allocate",
    "best_fitting",
    "first_named",
    "free_on",
    "is_allocatable",
    "most_packed",
    "most_spread",
    "overall",
    "place",
    "read_claims",
]
