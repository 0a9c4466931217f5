"""The pod page's section "Negotiation": a pod's conversation with the drivers of its claims (KEP-3063)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from dashboard.workloads.pods import negotiation
from dashboard.workloads.pods.queries import Conversation, NegotiationTurn, Step, read_claims, read_conversation
from inventory.kinds import gates
from manciple.live.topics import touched_by
from manciple.store import event_log
from manciple.wire.resources import CONTEXTS
from tests.builders import make_claim, make_pod
from tests.dashboard.browsing import signed_in, words
from tests.scheduling.earlier.classic.world import DRIVER, World

SECOND = "nic.example.com"


@pytest.fixture
def pair(world: World) -> World:
    """A pod with a claim of each of two drivers, the first of which cannot allocate on the first of three nodes."""
    world.now = datetime.now(UTC)
    world.with_nodes("worker-1", "worker-2", "worker-3")
    world.with_driver(unsuitable={"worker-1"})
    world.with_driver(resource_class=SECOND, name=SECOND)
    world.make_claim("gpu")
    world.make_claim("nic", SECOND)
    world.create(make_pod("pod", claims={"gpu": "gpu", "nic": "nic"}))
    return world


def _talks(world: World) -> Conversation:
    pod = world.pod("pod")
    found = read_conversation(pod, read_claims(pod))
    assert found is not None
    return found


def _said(world: World) -> list[tuple[str, str]]:
    return [(one.who, one.text) for one in _talks(world).steps]


def _page(tab: str = "") -> str:
    return words(signed_in(f"ann{tab}", "namespace:default"), f"/pods/default/pod?tab={tab}")


def test_who_offered_refused_selected_and_allocated_is_told_in_its_order_when_all_is_over(pair: World) -> None:
    pair.run()
    assert pair.context() is None
    said = _said(pair)
    assert said[0] == ("Scheduler", "Offers 3 nodes: worker-1, worker-2 and worker-3")
    assert set(said[1:3]) == {
        (DRIVER, "Refuses worker-1 for claim `gpu`"), (SECOND, "Refuses no node for claim `nic`"),
    }  # fmt: skip
    at = pair.bound()
    assert said[3] == ("Scheduler", f"Selects {at}")
    assert set(said[4:6]) == {
        (DRIVER, f"Allocates claim `gpu` for {at}"), (SECOND, f"Allocates claim `nic` for {at}"),
    }  # fmt: skip
    assert said[-1] == ("Scheduler", f"Binds the pod to {at}")
    talks = _talks(pair)
    assert talks.awaited == ()
    assert talks.lasted
    assert {one.name: one.refused_by for one in talks.nodes} == {
        at: (), "worker-1": ((DRIVER, "gpu"),), ({"worker-2", "worker-3"} - {at}).pop(): (),
    }  # fmt: skip


def test_an_answer_took_as_long_as_since_it_was_asked_for() -> None:
    began = datetime(2026, 11, 27, tzinfo=UTC)

    def turn(milliseconds: float, what: Step, entry: str = "") -> NegotiationTurn:
        return NegotiationTurn(
            at=began + timedelta(milliseconds=milliseconds), who=DRIVER, what=what, text="", entry=entry
        )

    turns = [turn(0, "offers"), turn(40, "answers", "gpu"), turn(1500, "answers", "nic"), turn(1500.2, "selects")]
    assert [one.took for one in negotiation.timed(make_pod(), turns, ["gpu", "nic"])] == ["", "40 ms", "1.5 s", ""]


def _awaited(world: World) -> list[tuple[str, datetime | None]]:
    return [(one.who, one.since) for one in _talks(world).awaited]


def test_a_driver_is_waited_for_since_it_was_asked_and_then_since_the_node_was_selected(pair: World) -> None:
    pair.drivers[1].deaf = True
    pair.run()
    asked = next(one.at for one in _talks(pair).steps if one.what == "offers")
    assert _awaited(pair) == [(SECOND, asked)]
    for tab in ("", "claims"):
        assert f"Waits for {SECOND} to say which nodes do not suit claim nic for" in _page(tab)
    assert "No device was considered" not in _page("why")

    def silence(_done: int) -> None:
        context = pair.context()
        pair.drivers[1].deaf = context is not None and bool(context.spec.selected_node)

    pair.drivers[1].deaf = False
    pair.run(silence)
    selected = next(one for one in _talks(pair).steps if one.what == "selects")
    assert _awaited(pair) == [(SECOND, selected.at)]


def test_a_container_is_shown_which_driver_gave_what_it_uses(pair: World) -> None:
    pair.run()
    shown = _page("claims")
    assert f"gpu: given by its driver, {DRIVER}" in shown
    assert "nothing yet" not in shown


def test_drivers_that_refuse_every_node_are_named(pair: World) -> None:
    pair.drivers[0].unsuitable = {"worker-1", "worker-2", "worker-3"}
    pair.run()
    assert [who for who, _ in _awaited(pair)] == [DRIVER]
    assert "3 offered, 3 refused" in _page()


def test_a_claim_that_is_asked_back_is_waited_for(world: World) -> None:
    world.now = datetime.now(UTC)
    world.with_nodes("worker-1")
    driver = world.with_driver()
    world.make_claim("gpu")
    world.create(make_pod("first", claims={"gpu": "gpu"}))
    world.create(make_pod("pod", claims={"gpu": "gpu"}))
    world.run()
    driver.deaf = True
    for name in ("first", "pod"):
        world.end(name)
    world.run()
    world.create(make_pod("pod", claims={"gpu": "gpu"}))
    world.run()
    assert [who for who, _ in _awaited(world)] == [DRIVER]
    assert "to deallocate claim gpu" in _page()


def test_many_nodes_and_many_steps_are_folded(pair: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.with_nodes(*(f"more-{number:02}" for number in range(60)))
    monkeypatch.setattr(negotiation, "STEPS", 4)
    pair.run()
    talks = _talks(pair)
    assert (len(talks.steps), talks.earlier) == (4, True)
    assert (len(talks.shown_nodes), len(talks.folded_nodes)) == (8, 55)
    page = _page("claims")
    assert "55 more nodes" in page
    assert "Earlier steps are left out." in page


def test_a_pod_without_such_claims_has_no_such_section(world: World) -> None:
    world.with_gpus("worker-1")
    world.create(make_claim("gpu"))
    world.create(make_pod("pod", claims={"gpu": "gpu"}))
    world.settle()
    pod = world.pod("pod")
    assert read_conversation(pod, read_claims(pod)) is None
    assert "Negotiation" not in _page()


def test_the_page_hears_of_the_negotiation(pair: World) -> None:
    pair.run()
    heard = [touched_by(one) for one in event_log.read_after(0, limit=10_000) if one.resource == CONTEXTS]
    assert heard
    assert all("pod:default/pod" in topics for topics in heard)


def test_a_context_that_another_pod_of_the_name_had_is_not_shown(pair: World) -> None:
    pair.drivers[0].deaf = True
    pair.run()
    stale = pair.context()
    assert stale is not None
    owner = structs.replace(stale.metadata.owner_references[0], uid="another")
    pair.update(structs.replace(stale, metadata=structs.replace(stale.metadata, owner_references=(owner,))))
    assert _said(pair) == []
    assert "no questions to drivers" in _page()
    pair.run()  # it goes, and the pod gets its own


def test_with_the_gate_off_what_was_said_is_told_and_nobody_is_waited_for(pair: World) -> None:
    pair.drivers[0].deaf = True
    pair.run()
    with gates.using(DRAControlPlaneController=False):
        talks = _talks(pair)
    assert [one.what for one in talks.steps] == ["offers", "answers"]
    assert talks.awaited == ()
