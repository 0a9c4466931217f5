"""What is said to drivers, as it follows from what is stored."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.causes.causes import AwaitingDrivers
from claims.classic.kinds import (
    PodSchedulingContext,
    PodSchedulingContextSpec,
    PodSchedulingContextStatus,
    ResourceClaimSchedulingStatus,
)
from claims.classic.rules import NODES_MAX
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds import gates
from scheduling.claims.negotiation import StillNegotiating
from scheduling.earlier.classic import AwaitedClaim, ClassicNegotiation
from scheduling.queue.reasons import Hold
from scheduling.state.cluster import ClusterState
from tests.builders import make_meta, make_pod
from tests.scheduling.earlier.classic.world import classic_spec

NODES = [f"node-{number}" for number in range(6)]


def claim_of(name: str) -> ResourceClaim:
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=make_meta(name, "default", uid=name),
        spec=classic_spec(),
    )


def talks(
    claims: int, *, spec: PodSchedulingContextSpec | None = None, refused: Sequence[Sequence[str]] = ()
) -> ClassicNegotiation:
    """refused: for each claim whose driver has answered, the nodes that it excludes."""
    pending = tuple(
        AwaitedClaim(entry=f"claim-{at}", claim=claim_of(f"claim-{at}"), driver=f"driver-{at}") for at in range(claims)
    )
    answers = tuple(
        ResourceClaimSchedulingStatus(name=f"claim-{at}", unsuitable_nodes=tuple(nodes))
        for at, nodes in enumerate(refused)
    )
    context = (
        None
        if spec is None
        else PodSchedulingContext(
            api_version="resource.k8s.io/v1alpha3",
            kind="PodSchedulingContext",
            metadata=make_meta("pod", "default"),
            spec=spec,
            status=PodSchedulingContextStatus(resource_claims=answers),
        )
    )
    unsuitable = {one.name: frozenset(one.unsuitable_nodes) for one in answers}
    return ClassicNegotiation(pod=make_pod(), pending=pending, context=context, unsuitable=unsuitable)


def said(selected: str, *potential: str) -> PodSchedulingContextSpec:
    return PodSchedulingContextSpec(selected_node=selected, potential_nodes=potential)


#: what -> (the negotiation, the nodes that would take the pod with the scheduler's choice first, what is said)
STEPS = {
    "one claim: the node is selected at once": (talks(1), ("a", "b"), said("a", "a", "b")),
    "two claims: the drivers are asked first": (talks(2), ("a", "b"), said("", "a", "b")),
    "one of two has answered: nothing new": (
        talks(2, spec=said("", "a", "b"), refused=[["a"]]), ("b",), said("", "a", "b")
    ),
    "both have answered: the node is selected": (
        talks(2, spec=said("", "a", "b"), refused=[["a"], []]), ("b",), said("b", "a", "b")
    ),
    "the selected node was excluded: another is selected": (
        talks(1, spec=said("a", "a", "b"), refused=[["a"]]), ("b",), said("b", "a", "b")
    ),
    "a node has come: it is offered, and what was excluded is not listed again": (
        talks(2, spec=said("", "a", "b"), refused=[["a"]]), ("b", "c"), said("", "b", "c")
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", STEPS)
def test_the_spec_that_drivers_read_next(what: str) -> None:
    negotiation, fitting, wanted = STEPS[what]
    assert negotiation.next_spec(fitting[0], fitting) == wanted


@given(
    claims=st.integers(1, 3),
    offered=st.lists(st.sampled_from(NODES), unique=True),
    selected=st.sampled_from(["", *NODES]),
    refused=st.lists(st.lists(st.sampled_from(NODES), unique=True), max_size=3),
    nodes=st.lists(st.sampled_from(NODES), min_size=1, unique=True),
)
def test_whatever_was_said_before_no_excluded_node_is_selected_or_listed_anew(
    claims: int, offered: list[str], selected: str, refused: list[list[str]], nodes: list[str]
) -> None:
    negotiation = talks(claims, spec=said(selected, *offered), refused=refused[:claims])
    fitting = [node for node in nodes if negotiation.refusal(node, {}) is None]
    if not fitting:
        return
    spec = negotiation.next_spec(fitting[0], fitting)
    excluded = {node for one in refused[:claims] for node in one}
    assert not (set(spec.potential_nodes) - set(offered)) & excluded
    if spec.potential_nodes != tuple(offered):
        assert not set(spec.potential_nodes) & excluded
    if spec.selected_node != selected:
        assert spec.selected_node in fitting
        assert claims == 1 or len(refused) >= claims
    again = talks(claims, spec=spec, refused=refused[:claims])
    assert again.next_spec(fitting[0], fitting) == spec, "what is said is said once"


@given(offered=st.integers(0, NODES_MAX), fitting=st.integers(1, 400))
def test_no_more_than_128_nodes_are_offered_and_the_selected_one_is_among_them(offered: int, fitting: int) -> None:
    known = [f"node-{number:03}" for number in range(offered)]
    nodes = [f"node-{number:03}" for number in reversed(range(fitting))]
    spec = talks(1, spec=said("", *known)).next_spec(nodes[0], nodes)
    assert len(spec.potential_nodes) <= NODES_MAX
    assert len(set(spec.potential_nodes)) == len(spec.potential_nodes)
    if offered < NODES_MAX:
        assert nodes[0] in spec.potential_nodes


def test_the_simulation_says_that_the_driver_decides() -> None:
    found = talks(2).next("a", lambda _most: ["a", "b"])
    assert isinstance(found, StillNegotiating)
    cause = found.hold.cause
    assert cause == AwaitingDrivers("waiting for resource driver to provide information", ("driver-0", "driver-1"))


def test_with_the_gate_off_pods_with_such_claims_wait_and_are_told_why() -> None:
    hold = ClusterState().negotiations(make_pod(), [claim_of("gpu")])
    assert isinstance(hold, Hold)
    assert "feature gate DRAControlPlaneController is off" in str(hold.cause)


def test_a_class_that_does_not_exist_is_told() -> None:
    with gates.using(DRAControlPlaneController=True):
        hold = ClusterState().negotiations(make_pod(claims={"gpu": "gpu"}), [claim_of("gpu")])
    assert isinstance(hold, Hold)
    assert "resource class gpu.example.com does not exist" in str(hold.cause)
