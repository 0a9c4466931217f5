"""Selectors that take long to evaluate: who pays for them, how far, and what of it is kept."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import ResourceSlice
from manciple.wire.limits import Deadline
from scheduling.allocator import Allocated, Inventory, NodePlacement, NodeView, Undecided, place, requests
from scheduling.allocator.published import PublishedDevice
from scheduling.cel import Selector, compile_selector
from scheduling.placement.demands import MOST_DEMANDS, Demand, DemandMix
from scheduling.placement.fragmentation import policy
from scheduling.placement.fragmentation.mix import NAMESPACE_COST, REQUEST_COST, MixReading
from scheduling.placement.fragmentation.policy import Fragmentation
from tests.scheduling.allocator.cases import GPU, device, make_claim, make_inventory, make_slice, request

NODES = tuple(NodeView(f"n-{at}") for at in range(4))
#: About 900 units of cost each, more than one request of a mix may cost.
DEAR = "[1,2,3].all(a, [1,2,3,4,5,6].all(b, [1,2,3,4,5,6,7,8].all(c, a + b + c > %d)))"


def number_is(at: int) -> str:
    return f'device.attributes["{GPU}"].number != {at}'


def whole_map_has_no(at: int) -> str:
    """Its verdict is kept for each device by itself."""
    return f'device.attributes["{GPU}"].all(key, key != "{at}")'


def cluster(devices: int = 4) -> Inventory:
    slices = (
        make_slice(
            *(device(f"d-{at}", number=at + 100 * node) for at in range(devices)),
            pool=one.name,
            nodeName=one.name,
        )
        for node, one in enumerate(NODES)
    )
    return make_inventory(*slices)


def in_namespace(claim: ResourceClaim, namespace: str) -> ResourceClaim:
    return replace(claim, metadata=replace(claim.metadata, namespace=namespace))


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """expression -> how often it was evaluated."""
    found: Counter[str] = Counter()
    verdict = requests._verdict

    def noting(selector: Selector, one: PublishedDevice) -> bool | str:
        answer = verdict(selector, one)
        found[selector.expression] += 1
        return answer

    monkeypatch.setattr(requests, "_verdict", noting)
    return found


def ticking() -> Callable[[], float]:
    """Every look at the clock takes a second."""
    return map(float, range(1_000_000)).__next__


@pytest.mark.parametrize("selector", [number_is, whole_map_has_no], ids=["one attribute", "all attributes"])
def test_a_search_goes_on_where_it_was_cut_off_and_evaluates_nothing_twice(
    evaluated: Counter[str], selector: Callable[[int], str]
) -> None:
    inventory, claim = cluster(), make_claim(request(where=selector(1)), request("s", where=selector(2)))
    attempts = 0
    while True:
        attempts += 1
        found = place(inventory.snapshot(), [claim], NODES, deadline=Deadline.after(8, clock=ticking()))
        if isinstance(found.outcome, Allocated):
            break
        assert isinstance(found.outcome, Undecided)
        assert found.outcome.timed_out
        assert found.outcome.claims == "default/claim"
        assert attempts < 20
    assert attempts > 2
    assert evaluated == {selector(1): 16, selector(2): 16}
    assert found.node == place(cluster().snapshot(), [claim], NODES).node


def test_new_devices_are_judged_for_the_claims_that_are_placed_alone(evaluated: Counter[str]) -> None:
    inventory = cluster()
    mine, theirs = make_claim(request(where=number_is(1))), make_claim(request(where=number_is(999)))
    for claim in (mine, theirs):
        place(inventory.snapshot(), [claim], NODES)
    evaluated.clear()
    inventory.apply_slice(make_slice(device("new", number=999), pool="n-0", nodeName="n-0"))
    place(inventory.snapshot(), [mine], NODES)
    assert evaluated == {number_is(1): 1}
    only = place(inventory.snapshot(), [theirs], NODES[:1])
    assert evaluated == {number_is(1): 1, number_is(999): 1}
    assert only.node is None  # its one device has the wrong number


def test_a_request_of_the_mix_that_would_cost_much_is_judged_by_its_class(evaluated: Counter[str]) -> None:
    cheap, dear = make_claim(request(where=number_is(1))), make_claim(request(where=DEAR % 0))
    assert compile_selector(DEAR % 0).estimated_max_cost > REQUEST_COST
    mix = DemandMix.of([Demand(claims=(cheap,)), Demand(claims=(dear,))])
    place(cluster().snapshot(), [make_claim()], NODES, score=Fragmentation(mix=mix))
    assert evaluated.keys() == {number_is(1)}


def test_the_requests_of_one_namespace_may_cost_so_much_in_all() -> None:
    cost = compile_selector(number_is(1)).estimated_max_cost
    many = NAMESPACE_COST // cost + 10
    theirs = [in_namespace(make_claim(request(where=number_is(at))), "many") for at in range(min(many, MOST_DEMANDS))]
    ours = make_claim(request(where=number_is(-1)))
    selectors = "device.driver == 'a' || " * 60 + "device.driver == %r"
    large = [in_namespace(make_claim(request(where=selectors % str(at))), "many") for at in range(40)]
    mix = DemandMix.of([Demand(claims=(one,)) for one in [*theirs, *large, ours]])
    snapshot = cluster().snapshot()
    reading = MixReading(mix, snapshot, [snapshot.on_node(node) for node in NODES])
    judged = {ref.expression for plan in reading.accepted for ref in plan.selectors}
    assert number_is(-1) in judged
    costs = [compile_selector(one).estimated_max_cost for one in judged]
    assert sum(costs) <= NAMESPACE_COST + cost
    again = MixReading(mix, snapshot, [snapshot.on_node(node) for node in NODES])
    assert [one.signature for one in again.accepted] == [one.signature for one in reading.accepted]


def test_a_namespace_with_many_demands_leaves_room_for_those_of_others() -> None:
    theirs = [in_namespace(make_claim(request(where=number_is(at))), "many") for at in range(2 * MOST_DEMANDS)]
    ours = make_claim(request(where=number_is(-1)))
    mix = DemandMix.of([*(Demand(claims=(one,), weight=9.0) for one in theirs), Demand(claims=(ours,))])
    assert len(mix.demands) == MOST_DEMANDS
    assert [one.namespace for one in mix.demands].count("default") == 1


def test_large_demands_are_not_moderate() -> None:
    assert Demand(claims=(make_claim(request(where=number_is(1))),)).is_moderate
    assert not Demand(claims=(make_claim(*(request(f"r{at}") for at in range(32))),) * 3).is_moderate
    assert not Demand(claims=(make_claim(request(where="true || " * 3_000 + "true")),)).is_moderate


def test_while_the_mix_takes_too_long_the_most_packed_node_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pods do not wait for it; it goes on after a while."""
    inventory, wanted = cluster(), make_claim(name="other")
    mix = DemandMix.of([Demand(claims=(make_claim(request(where=number_is(1))),))])

    def stranded() -> float | None:
        found = place(inventory.snapshot(), [wanted], NODES, score=Fragmentation(mix=mix))
        assert isinstance(found.outcome, Allocated)
        assert found.choice is not None
        return found.choice.cost

    now = [0.0]

    class TestsDeadline(Deadline):
        """By the test's clock."""

        @classmethod
        def after(cls, seconds: float, **_clock: object) -> Deadline:
            return cls(now[0] + seconds, lambda: now[0])

    monkeypatch.setattr(policy, "Deadline", TestsDeadline)
    monkeypatch.setattr(policy, "MIX_SECONDS", -1.0)
    monkeypatch.setattr(policy, "MIX_EVERY", 1.0)
    assert stranded() is None
    monkeypatch.setattr(policy, "MIX_SECONDS", 0.1)
    now[0] = 0.9
    assert stranded() is None
    now[0] = 1.0
    assert stranded() is not None


def given(found: NodePlacement) -> tuple[NodeView | None, object]:
    return found.node, found.outcome.results if isinstance(found.outcome, Allocated) else type(found.outcome)


@pytest.mark.parametrize("seed", range(4))
def test_an_index_that_judges_late_answers_as_a_new_one(seed: int) -> None:
    """Slices change, some claims are placed for the first time in a while, and some searches are cut off before."""
    draw = random.Random(seed)
    claims = [make_claim(request(where=number_is(at), count=1 + at % 3), name=f"c-{at}") for at in range(6)]
    published: dict[str, ResourceSlice] = {}

    def publish(node: NodeView) -> ResourceSlice:
        numbers = draw.sample(range(6), draw.randrange(1, 5))
        devices = (device(f"d-{at}", number=number) for at, number in enumerate(numbers))
        published[node.name] = make_slice(*devices, pool=node.name, nodeName=node.name)
        return published[node.name]

    inventory = make_inventory(*map(publish, NODES))
    for _ in range(60):
        inventory.apply_slice(publish(draw.choice(NODES)))
        claim = draw.choice(claims)
        late = Deadline.after(draw.randrange(12), clock=ticking())
        place(inventory.snapshot(), [claim], NODES, deadline=late)
        found = place(inventory.snapshot(), [claim], NODES)
        fresh = place(make_inventory(*published.values()).snapshot(), [claim], NODES)
        assert given(found) == given(fresh)
