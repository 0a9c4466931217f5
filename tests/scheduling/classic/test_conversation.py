"""A pod's page tells what scheduler and drivers said to each other: about which nodes, who refused, after how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from claims.classic.kinds import (
    PodSchedulingContext,
    PodSchedulingContextSpec,
    PodSchedulingContextStatus,
    ResourceClaimSchedulingStatus,
)
from claims.kinds.resource_claims import AllocationResult, ResourceClaimStatus
from inventory.kinds import gates
from scheduling.pages.pods.conversation import Conversation, NegotiatedClaim, Said, conversation
from tests.builders import make_claim, make_meta, make_pod
from tests.scheduling.classic.world import World
from tests.scheduling.pages.browsing import signed_in, words

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
DRIVER = "gpu.example.com"


def context(selected: str = "", *potential: str, refused: dict[str, tuple[str, ...]] | None = None) -> Said:
    answers = tuple(
        ResourceClaimSchedulingStatus(name=entry, unsuitable_nodes=nodes) for entry, nodes in (refused or {}).items()
    )
    made = PodSchedulingContext(
        api_version="resource.k8s.io/v1alpha3",
        kind="PodSchedulingContext",
        metadata=make_meta("pod"),
        spec=PodSchedulingContextSpec(selected_node=selected, potential_nodes=potential),
        status=PodSchedulingContextStatus(resource_claims=answers),
    )
    return Said(revision=0, at=START, context=made)


def claim(*, allocated: bool = True, requested: bool = False) -> Said:
    allocation = AllocationResult(controller_name=DRIVER) if allocated else None
    return Said(
        revision=0,
        at=START,
        entry="gpu",
        claim=structs.replace(
            make_claim("gpu"), status=ResourceClaimStatus(allocation=allocation, deallocation_requested=requested)
        ),
    )


def heard(*said: Said, allocated: bool = False) -> Conversation:
    """Said ten seconds apart, about a claim that is allocated by now or not."""
    apart = [
        Said(revision=at, at=START + timedelta(seconds=10 * at), context=one.context, entry=one.entry, claim=one.claim)
        for at, one in enumerate(said)
    ]
    now = claim(allocated=allocated).claim
    assert now is not None
    return conversation(apart, [NegotiatedClaim(entry="gpu", driver=DRIVER, claim=now)])


def told(found: Conversation) -> list[str]:
    lines = [
        f"{one.speaker} {one.says}" + ("" if one.after is None else f" after {one.after:.0f} s") for one in found.turns
    ]
    return lines + [f"{one.speaker} {one.says} since {(one.since - START).seconds} s" for one in found.waits]


ASKED = context("", "a", "b")
REFUSED = context("", "a", "b", refused={"gpu": ("a",)})
SELECTED = context("b", "a", "b", refused={"gpu": ("a",)})
FIRST = ["Scheduler asks about nodes `a` and `b`", f"{DRIVER} refuses node `a` for claim `gpu` after 10 s"]

CONVERSATIONS: dict[str, tuple[Conversation, list[str]]] = {
    "nobody has answered yet": (
        heard(ASKED),
        [FIRST[0], f"{DRIVER} is to say which nodes do not suit claim `gpu` since 0 s"],
    ),
    "a node is selected and not allocated for": (
        heard(ASKED, REFUSED, SELECTED),
        [*FIRST, "Scheduler selects `b`", f"{DRIVER} is to allocate claim `gpu` for `b` since 20 s"],
    ),
    "it is allocated": (
        heard(ASKED, REFUSED, SELECTED, claim(), allocated=True),
        [*FIRST, "Scheduler selects `b`", f"{DRIVER} has allocated claim `gpu` after 10 s"],
    ),
    "it is given back": (
        heard(SELECTED, claim(), context("", "a", "b"), claim(requested=True), claim(allocated=False))
        , [
            "Scheduler asks about nodes `a` and `b`", "Scheduler selects `b`",
            f"{DRIVER} refuses node `a` for claim `gpu` after 0 s", f"{DRIVER} has allocated claim `gpu` after 10 s",
            "Scheduler selects no node any more", "Scheduler asks for claim `gpu` to be deallocated",
            f"{DRIVER} has deallocated claim `gpu`",
        ],
    ),
    "it was allocated for another pod before": (
        heard(claim(), context("b"), claim(), allocated=True), ["Scheduler selects `b`"]
    ),
    "no node is refused": (
        heard(ASKED, context("", "a", "b", refused={"gpu": ()})),
        [FIRST[0], f"{DRIVER} refuses no node for claim `gpu` after 10 s"],
    ),
    "a node suits after all": (
        heard(ASKED, REFUSED, context("", "a", "b", refused={"gpu": ()})),
        [*FIRST, f"{DRIVER} no longer refuses node `a` for claim `gpu` after 20 s"],
    ),
    "more nodes than are named": (
        heard(context("", *"abcdef"), context("", *"abcdef", refused={"gpu": ()})),
        [
            "Scheduler asks about nodes `a`, `b`, `c`, `d` and 2 more",
            f"{DRIVER} refuses no node for claim `gpu` after 10 s",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CONVERSATIONS)
def test_what_was_said_is_told_in_its_order_with_how_long_answers_took(what: str) -> None:
    found, wanted = CONVERSATIONS[what]
    assert told(found) == wanted


@pytest.fixture
def waiting(world: World) -> World:
    """A pod with claims of two drivers, of which the second does not answer."""
    world.with_nodes("worker-1", "worker-2")
    world.with_driver(unsuitable={"worker-1"})
    world.with_driver(resource_class="nic", name="nic.example.com", deaf=True)
    world.make_claim("gpu")
    world.make_claim("nic", "nic")
    world.create(make_pod(claims={"gpu": "gpu", "nic": "nic"}))
    world.run()
    return world


def test_the_page_of_a_waiting_pod_shows_the_negotiation(waiting: World) -> None:
    said = words(signed_in("ann", "namespace:default"), "/pods/default/pod")
    assert "Scheduler asks about nodes worker-1 and worker-2" in said
    assert "gpu.resource.example.com refuses node worker-1 for claim gpu" in said
    assert "nic.example.com is to say which nodes do not suit claim nic" in said
    assert "drivers gpu.resource.example.com and nic.example.com decide" in said


def test_a_context_that_another_pod_of_the_name_had_is_not_shown(waiting: World) -> None:
    stale = waiting.context()
    assert stale is not None
    owner = structs.replace(stale.metadata.owner_references[0], uid="another")
    waiting.update(structs.replace(stale, metadata=structs.replace(stale.metadata, owner_references=(owner,))))
    assert "asks about nodes" not in words(signed_in("ann", "namespace:default"), "/pods/default/pod")
    waiting.run()  # it goes, and the pod gets its own


def test_other_pods_pages_pay_nothing_for_it(waiting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(_pod: object) -> None:
        raise AssertionError("nothing is negotiated for this pod")

    waiting.create(make_claim("today"))
    waiting.create(make_pod("other", claims={"gpu": "today"}))
    monkeypatch.setattr("scheduling.pages.pods.page.read_conversation", unwanted)
    assert "today" in words(signed_in("ann", "namespace:default"), "/pods/default/other?tab=claims")


def test_with_the_gate_off_nothing_is_shown(waiting: World) -> None:
    with gates.using(DRAControlPlaneController=False):
        assert "asks about nodes" not in words(signed_in("ann", "namespace:default"), "/pods/default/pod?tab=claims")
