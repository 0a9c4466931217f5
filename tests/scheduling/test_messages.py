"""The sentences of the scheduler, and the rests between attempts."""

from __future__ import annotations

import pytest

from scheduling.causes import CannotAllocate, ClaimInUse, NodeRefusal, NoNodeFits, counted
from scheduling.messages import message
from scheduling.queue import backoff_seconds


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (6, 10.0), (1000, 10.0)]
)
def test_backoff_doubles_from_one_second_to_ten(attempts: int, seconds: float) -> None:
    assert backoff_seconds(attempts) == seconds


def test_reasons_are_counted_over_nodes_and_sorted_as_text() -> None:
    refused = counted([[CannotAllocate()], [NodeRefusal("NodeUnschedulable")], [CannotAllocate()]])
    assert message(NoNodeFits(nodes=3, refused=refused)) == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. still not schedulable"
    )


def test_a_node_refused_for_two_reasons_counts_for_both() -> None:
    refused = counted([[NodeRefusal("NodeResourcesFit", "memory"), NodeRefusal("NodeResourcesFit", "cpu")]])
    assert message(NoNodeFits(nodes=1, refused=refused)) == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. still not schedulable"
    )


def test_what_refuses_the_pod_itself_stands_alone() -> None:
    cause = NoNodeFits(nodes=2, because=ClaimInUse())
    assert message(cause) == "0/2 nodes are available: resourceclaim in use."


def test_a_cluster_without_nodes_has_its_own_words() -> None:
    assert message(NoNodeFits(nodes=0)) == "no nodes available to schedule pods"


def test_an_allocation_that_was_in_the_way_is_told() -> None:
    cause = NoNodeFits(nodes=1, refused=((NodeRefusal("DynamicResources"), 1),), deallocated=True)
    assert message(cause) == (
        "0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of ResourceClaim completed"
    )
