"""Every placement policy gives what may be given, and finds it wherever it is; and the same again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from claims.kinds.resource_claims import CapacityRequirements, ResourceClaim
from inventory.kinds.devices import ResourceSlice
from manciple.copying import copy_of
from manciple.wire.codec import decode_value
from manciple.wire.resources import CLAIMS, PODS
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    Inventory,
    NodePlacement,
    NodeView,
    Score,
    best_fitting,
    first_named,
    most_packed,
    most_spread,
    place,
    published,
)
from scheduling.allocator.__main__ import read_inventory
from scheduling.allocator.index import NodeIndex
from scheduling.cycle import scheduler
from scheduling.placement.demands import Demand, DemandMix, NodeNeeds, RoomTable, UsualDemands
from scheduling.placement.fragmentation import policy
from scheduling.placement.fragmentation.policy import Fragmentation, NodeOutlooks
from scheduling.placement.fragmentation.units import SharedUnit
from scheduling.queue.verdicts import Placement
from scheduling.state.cluster import ClusterState
from tests.builders import (
    DRIVER,
    make_allocation,
    make_claim,
    make_class,
    make_constraint,
    make_device,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_result,
    make_slice,
)
from tests.examples import some
from tests.scheduling.allocator.brute import first_solution
from tests.scheduling.allocator.checker import Json, violations
from tests.scheduling.allocator.scenarios import CLASSES, DRIVERS, a_claim, scenarios
from tests.scheduling.cluster import kind_of

THOROUGH = settings(
    max_examples=some(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

QUICK = settings(THOROUGH, max_examples=some(20))

#: name -> the score, for a mix and a room
POLICIES: dict[str, Callable[[DemandMix, RoomTable], Score]] = {
    "first-fit": lambda _mix, _room: first_named,
    "pack": lambda _mix, _room: most_packed,
    "spread": lambda _mix, _room: most_spread,
    "best-fit": lambda _mix, _room: best_fitting,
    "fragmentation": lambda mix, room: Fragmentation(mix=mix, room=room, needs=NodeNeeds(2000, 1024)),
}


def decoded(listed: Sequence[Json]) -> tuple[ResourceClaim, ...]:
    return tuple(decode_value(ResourceClaim, one) for one in listed)


def nodes_of(scenario: Json) -> tuple[NodeView, ...]:
    return tuple(NodeView(one["metadata"]["name"], one["metadata"].get("labels") or {}) for one in scenario["nodes"])


def mix_of(scenario: Json, *others: Sequence[Json]) -> DemandMix:
    """As if what the scenario asks for, and the others, were what everybody asks for."""
    asked = [decoded(scenario["claims"]), *(decoded(one) for one in others)]
    return DemandMix.of(Demand(claims=one, needs=NodeNeeds(1000 * at, 512)) for at, one in enumerate(asked, 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_given_keeps_every_rule_and_is_found_wherever_it_is(policy: str) -> None:
    @THOROUGH
    @given(scenarios(), st.integers(0, 8))
    def judged(scenario: Json, cpu: int) -> None:
        nodes = nodes_of(scenario)
        room = RoomTable({node.name: NodeNeeds(1000 * cpu, 4096) for node in nodes})
        score = POLICIES[policy](mix_of(scenario), room)
        wanted = decoded(scenario["claims"])
        found = place(read_inventory(scenario).snapshot(), wanted, nodes, score=score)
        again = POLICIES[policy](mix_of(scenario), room)
        assert told(place(read_inventory(scenario).snapshot(), wanted, nodes[::-1], score=again)) == told(found)
        if isinstance(found.outcome, AllocationFailed):
            return
        node = found.node
        if node is not None:
            assert isinstance(found.outcome, Allocated)
            published = next(one for one in scenario["nodes"] if one["metadata"]["name"] == node.name)
            assert violations(scenario, published, [to_builtins(one) for one in found.outcome.results]) == []
        else:
            assert not any(first_solution(scenario, one) for one in scenario["nodes"])

    judged()


@QUICK
@given(
    st.lists(st.tuples(st.composite(a_claim)(name="c", features={}), st.integers(0, 2), st.integers(1, 3)), max_size=5),
    st.randoms(),
)
def test_a_mix_is_the_same_in_whatever_order_it_is_told(
    asked: list[tuple[Json, int, int]], draw: random.Random
) -> None:
    told = [Demand(claims=decoded([one]), needs=NodeNeeds(1000 * cpu), weight=weight) for one, cpu, weight in asked]
    mixed = list(told)
    draw.shuffle(mixed)
    assert DemandMix.of(told).demands == DemandMix.of(mixed).demands


def test_what_pods_usually_ask_for_is_the_same_value_until_they_ask_for_other_things() -> None:
    """What is worked out for a mix is kept for that value, and takes longer than to place a pod."""
    small, large = (Demand(claims=(), needs=NodeNeeds(cpu)) for cpu in (1000, 2000))
    usual, there = UsualDemands(), list[Demand]()

    def after(*come: Demand) -> DemandMix:
        there.extend(come)
        for _ in come:
            usual.note()
        return usual.mix(lambda: there)

    first = after(small)
    assert all(after(small) is first for _ in range(20))
    there.clear()
    assert after(*[small] * 40) is first
    mixed = after(*[large] * 40)
    assert [one.weight for one in mixed.demands] == [40, 40]


class _Life:
    """A cluster in which pods come and go, under `fragmentation`."""

    nodes = tuple(NodeView(f"node-{number}", {"zone": "ab"[number % 2]}) for number in range(4))

    def __init__(self, scenario: Json, pods: list[list[Json]], draw: random.Random) -> None:
        self._inventory = read_inventory(scenario)
        self._slices: list[Json] = scenario["slices"]
        self._pods = [decoded(one) for one in pods]
        self._mixes = [mix_of(scenario), mix_of(scenario, *pods)]
        self._room = RoomTable({node.name: NodeNeeds(16_000, 65_536) for node in self.nodes})
        self._held: list[tuple[str, NodeNeeds, list[str]]] = []
        self._draw = draw
        self._born = 0

    def step(self) -> None:
        chance = self._draw.random()
        if self._held and chance < 0.4:
            name, needs, uids = self._held.pop(self._draw.randrange(len(self._held)))
            self._inventory.forget(uids)
            self._room.take(name, needs, sign=-1)
        elif chance > 0.92:
            published = decode_value(ResourceSlice, self._draw.choice(self._slices))
            self._inventory.remove_slice(published.metadata.name)
            if chance < 0.97:
                self._inventory.apply_slice(published)
        self._place(self._draw.choice(self._pods), self._mixes[chance > 0.5])

    def _place(self, wanted: tuple[ResourceClaim, ...], mix: DemandMix) -> None:
        needs = NodeNeeds(self._draw.choice((500, 4000)), 2048)
        policy = Fragmentation(mix=mix, room=self._room, needs=needs)
        found = place(self._inventory.snapshot(), wanted, self.nodes, score=policy)
        afresh = place(copy_of(self._inventory).snapshot(), wanted, self.nodes, score=policy)
        assert told(found) == told(afresh)
        if found.node is not None and isinstance(found.outcome, Allocated):
            self._born += 1
            uids = [f"{self._born}-{at}" for at in range(len(wanted))]
            self._inventory.assume(zip(uids, found.outcome.results, strict=True))
            self._room.take(found.node.name, needs)
            self._held.append((found.node.name, needs, uids))


def told(found: NodePlacement) -> object:
    return found.node and found.node.name, found.outcome.results if isinstance(found.outcome, Allocated) else None


@st.composite
def _lives(draw: st.DrawFn) -> _Life:
    scenario = draw(scenarios())
    pods = [
        [a_claim(draw, name=f"claim-{pod}-{at}", features=scenario["features"]) for at in range(pod % 2 + 1)]
        for pod in range(4)
    ]
    return _Life(scenario, pods, random.Random(draw(st.integers(0, 10**6))))


@THOROUGH
@given(_lives())
def test_scores_that_are_kept_from_placement_to_placement_are_those_that_are_worked_out_afresh(life: _Life) -> None:
    for _ in range(20):
        life.step()


def test_nodes_are_put_back_for_rare_devices_as_long_as_these_are_rare() -> None:
    def published(number: int, driver: str) -> Json:
        pool = {"name": f"pool-{number}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": f"node-{number}", "pool": pool, "devices": [{"name": "device"}]}
        return {"metadata": {"name": f"slice-{number}"}, "spec": spec}

    wanted = {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}}
    claims = [
        {"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "spec": {"devices": {"requests": [wanted]}}}
    ]
    slices = [published(number, DRIVERS[number > 0]) for number in range(4)]
    inventory = read_inventory({"slices": slices, "classes": CLASSES})
    policy = Fragmentation(mix=mix_of({"claims": claims}))

    def chosen(among: Inventory) -> str | None:
        node = place(among.snapshot(), decoded(claims), _Life.nodes, score=policy).node
        return node.name if node is not None else None

    assert chosen(inventory) == "node-1"
    for number in range(1, 4):
        inventory.apply_slice(decode_value(ResourceSlice, published(number, DRIVERS[0])))
    assert chosen(inventory) == chosen(copy_of(inventory)) == "node-0"


@pytest.mark.parametrize("asked_for", [True, False])
def test_no_more_states_of_nodes_are_known_again_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, *, asked_for: bool
) -> None:
    """Of sixteen devices that are alike their number counts, if that, and there is no end of sets that may be held."""
    monkeypatch.setattr(policy, "MOST_ALIKE", 32)
    attribute = f"{DRIVER}/board"
    devices = make_devices(16, attributes={"board": "one"})
    state, pod = ClusterState(), make_pod("web", claims={"gpu": "web"}, meta={"uid": "web"})
    for obj in (make_class(), make_node("n"), make_slice(node="n", devices=devices)):
        state.put(kind_of(obj).resource, obj)
    state.put(CLAIMS, make_claim("web", requests=[make_request(count=2)], constraints=[make_constraint(attribute)]))
    if asked_for:
        state.put(PODS, pod)
    draw = random.Random(5)
    for _ in range(100):
        held = (make_result(f"gpu-{at}", pool="n") for at in draw.sample(range(16), 8))
        state.put(CLAIMS, make_claim("held", uid="held", allocation=make_allocation(*held)))
        assert isinstance(scheduler.decide(state, pod), Placement)
        state.overlay.undo()
    outlooks = state.snapshot().catalogue.lineage.memo[NodeIndex].memo[NodeOutlooks]
    assert isinstance(outlooks, NodeOutlooks)
    assert bool(outlooks.looks[0].units) is asked_for
    assert 1 <= len(outlooks._same) <= 32


def test_of_amounts_that_users_write_no_more_are_known_again_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod asks for another amount of a device that many share."""
    monkeypatch.setattr(published, "MAX_KEPT", 16)
    inventory, shared = Inventory(), make_device(capacity={"memory": "80Gi"}, allow_multiple_allocations=True)
    inventory.apply_class(make_class())
    inventory.apply_slice(make_slice(node="n", devices=[shared]))
    asked = [
        make_claim("web", requests=[make_request(capacity=CapacityRequirements(requests={"memory": f"{at}Mi"}))])
        for at in range(1, 60)
    ]
    policy = Fragmentation(mix=DemandMix.of([Demand(claims=(asked[0],))]))
    for claim in asked:
        assert place(inventory.snapshot(), [claim], [NodeView("n")], score=policy).node is not None
    outlooks = inventory.snapshot().catalogue.lineage.memo[NodeIndex].memo[NodeOutlooks]
    (unit,) = outlooks.looks[0].units
    assert isinstance(unit.kind.unit, SharedUnit)
    assert 1 <= len(unit.kind.unit._taken) <= 16
    assert 1 <= len(outlooks.distinct[0][0].moves) <= 16
