"""What searches for victims may spend, and where they go on when their time was up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from claims.causes.causes import CannotAllocate, Ineligible, NotEligible, Unhelpful
from manciple.store.records import Written
from manciple.wire.resources import CLAIMS, PODS
from scheduling.claims.readiness import PodRequest
from scheduling.cycle import post_filter
from scheduling.cycle.post_filter import Remedies, SearchProgress, VictimSearch
from scheduling.cycle.scheduler import decide
from scheduling.queue.verdicts import Wait
from scheduling.state.nodes import PlannedEviction
from tests.builders import make_node, make_request, make_slice
from tests.scheduling.cycle.test_preemption_search import NOW, World, claim_of, pod_of, two_nodes, with_device


def test_a_search_that_is_stopped_goes_on_where_it_was() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    world = World([make_node(one) for one in nodes], [make_slice(node=one, pool=one) for one in nodes])
    state = world.state()
    pod = pod_of("urgent", 10)
    for one in nodes:
        state.put(PODS, pod_of(f"on-{one}", 1, node=one))
    ticks = iter(range(1000))
    claim = claim_of("urgent", make_request(count=3))
    run = VictimSearch(
        state=state,
        request=PodRequest(pod=pod, wanting=(claim,)),
        now=NOW,
        seconds=10,
        clock=lambda: next(ticks),
        below=10,
    )
    refusals = {one: (CannotAllocate(),) for one in nodes}
    undecided = NotEligible(Ineligible.UNDECIDED)
    assert run.run(refusals) == undecided
    assert 0 < run.skip < 20
    run.skip, run.seconds = 0, 0
    assert run.run(refusals) == undecided, "nothing is known of the nodes that it did not come to"
    run.seconds = 1000
    assert run.run(refusals) == Unhelpful(nodes=((CannotAllocate(), 20),))
    assert run.skip == 0


def burning(seconds: float, step: Callable[..., Any]) -> Callable[..., Any]:
    """`step`, which takes so much processor time more."""

    def longer(*args: Any, **more: Any) -> Any:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return step(*args, **more)

    return longer


def test_where_finding_out_who_is_a_candidate_takes_long_some_are_looked_at_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a cluster of thousands of nodes: nobody was ever evicted there."""
    world = two_nodes()
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        with_device(world, name, 1, node=node)
    monkeypatch.setattr(VictimSearch, "_candidate", burning(post_filter.SEARCH_SECONDS, VictimSearch._candidate))
    assert evicted(world, Remedies(now=NOW)) == ["d"]


def test_the_first_search_of_a_batch_has_its_turn_however_long_the_pods_before_it_took() -> None:
    world, batch = two_nodes(), Remedies(now=NOW)
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        with_device(world, name, 1, node=node)
    burning(2 * post_filter.BATCH_SECONDS, dict)()
    assert evicted(world, batch) == ["d"]


def evicted(world: World, batch: Remedies) -> list[str]:
    """For an urgent pod that wants one device."""
    pod, claim = pod_of("urgent", 10, claims={"gpu": "urgent"}), claim_of("urgent")
    state = world.state()
    state.put(CLAIMS, claim)
    with state.overlay.trying(pod):
        found = decide(state, pod, batch)
    assert isinstance(found, Wait), found
    assert found.eviction is not None, found.hold.cause
    return [one.name for one in found.eviction.victims]


def test_a_candidate_whose_time_was_up_half_way_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three nodes only the second can be emptied, and the clock strikes while that is found out."""
    names = ["n1", "n2", "n3"]
    world = World([make_node(one) for one in names], [make_slice(node=one, pool=one) for one in names])
    state, pod = world.state(), pod_of("urgent", 10)
    for one in names:
        state.put(PODS, pod_of(f"on-{one}", 1, node=one))
    found = PlannedEviction(node="n2", victims=())
    now, times = [0.0], iter([(), 100.0, found])

    def on(_search: VictimSearch, candidate: Any, _snapshot: Any) -> Any:
        looked_at.append(candidate.view.name)
        if isinstance(answer := next(times), float):
            now[0] += answer
            return (CannotAllocate(),)
        return answer or (CannotAllocate(),)

    looked_at = list[str]()
    monkeypatch.setattr(VictimSearch, "_on", on)
    run = VictimSearch(
        state=state, request=PodRequest(pod=pod), now=NOW, seconds=10, clock=lambda: now[0], below=10, by_number=True
    )
    refusals = {one: (CannotAllocate(),) for one in names}
    assert run.run(refusals) == NotEligible(Ineligible.UNDECIDED)
    assert run.run(refusals) == found
    assert looked_at == ["n1", "n2", "n2"]


def test_what_comes_free_behind_a_search_that_goes_on_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found to help nobody may help by now, so the pod is not left to wait for something to happen."""
    world = two_nodes()
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        with_device(world, name, 1, node=node)
    state, batch = world.state(), Remedies(now=NOW)
    pod, claim = pod_of("urgent", 10, claims={"gpu": "urgent"}), claim_of("urgent", make_request(count=3))
    state.put(CLAIMS, claim)
    batch.searches.interrupt("victims", "urgent", SearchProgress(skip=1, since=0))
    gone = structs.replace(world.claims["a"], status=type(claim.status)())
    state.absorb([Written(1, "MODIFIED", CLAIMS, gone)])

    def tried() -> bool:
        with state.overlay.trying(pod):
            found = decide(state, pod, batch)
        assert isinstance(found, Wait)
        return found.again

    assert tried()
    batch.hopeless.clear()
    assert not tried()
