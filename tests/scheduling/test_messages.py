"""The sentences of the scheduler, and the rests between attempts."""

from __future__ import annotations

import pytest

from scheduling.backoff import backoff_seconds
from scheduling.messages import CANNOT_ALLOCATE, no_node_fits


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (6, 10.0), (1000, 10.0)]
)
def test_backoff_doubles_from_one_second_to_ten(attempts: int, seconds: float) -> None:
    assert backoff_seconds(attempts) == seconds


def test_reasons_are_counted_over_nodes_and_sorted_as_text() -> None:
    refused = [[CANNOT_ALLOCATE], ["node(s) were unschedulable"], [CANNOT_ALLOCATE]]
    assert no_node_fits(nodes=3, node_reasons=refused, post_filter="still not schedulable") == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. still not schedulable"
    )


def test_a_node_refused_for_two_reasons_counts_for_both() -> None:
    text = no_node_fits(nodes=1, node_reasons=[["Insufficient memory", "Insufficient cpu"]])
    assert text == "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."


def test_what_refuses_the_pod_itself_stands_alone() -> None:
    text = no_node_fits(nodes=2, node_reasons=[["x"], ["x"]], pod_reason="resourceclaim in use")
    assert text == "0/2 nodes are available: resourceclaim in use."


def test_a_cluster_without_nodes_has_its_own_words() -> None:
    assert no_node_fits(nodes=0) == "no nodes available to schedule pods"
