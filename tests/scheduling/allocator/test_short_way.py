"""`place` takes short ways over indexes that it keeps from call to call, and answers as asking every node afresh does.

Random clusters with every feature, and a life of them: pods come with one or two claims, go again, slices are published
anew. Each placement is held against the ordered search on every node by itself.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claims.causes.causes import AnyCause
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import ResourceSlice
from manciple.wire.codec import decode_value
from manciple.wire.limits import Deadline
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    Inventory,
    NodePlacement,
    NodeView,
    Outcome,
    Snapshot,
    Unallocatable,
    allocate,
    place,
)
from scheduling.allocator.__main__ import read_inventory
from scheduling.allocator.problem import in_use
from tests.examples import some
from tests.scheduling.allocator.checker import Json
from tests.scheduling.allocator.scenarios import a_claim, scenarios

NODES = tuple(NodeView(f"node-{number}", {"zone": "ab"[number % 2]}) for number in range(4))


def _passed_over(claim: ResourceClaim, outcome: Allocated, at: int) -> int:
    """How many alternatives come before those that were chosen."""
    places = {
        f"{request.name}/{one.name}": rank
        for request in claim.spec.devices.requests
        for rank, one in enumerate(request.first_available)
    }
    used = {one.request for one in outcome.results[at].devices.results}
    return sum(places.get(name, 0) for name in used)


def _free(snapshot: Snapshot, node: NodeView) -> int:
    devices = snapshot.on_node(node)
    return (devices.visible & ~in_use(devices, snapshot.usage, snapshot.features).taken).bit_count()


def _best(snapshot: Snapshot, wanted: list[ResourceClaim], nodes: tuple[NodeView, ...]) -> tuple[str, Outcome | None]:
    """(the best node, its outcome); an error that some node's search reaches comes first."""
    fitting: list[tuple[int, int, str, Outcome]] = []
    for node in nodes:
        outcome = allocate(snapshot, wanted, node)
        if isinstance(outcome, AllocationFailed):
            return "", outcome
        if isinstance(outcome, Allocated):
            passed = sum(_passed_over(claim, outcome, at) for at, claim in enumerate(wanted))
            fitting.append((passed, _free(snapshot, node), node.name, outcome))
    if not fitting:
        return "", None
    best = min(fitting, key=lambda one: one[:3])
    return best[2], best[3]


def _told(outcome: Outcome) -> AnyCause | None:
    if isinstance(outcome, Unallocatable):
        return outcome.reasons[0].cause if outcome.reasons else None
    return None if isinstance(outcome, Allocated) else outcome.cause


def _agrees(placement: NodePlacement, best: tuple[str, Outcome | None]) -> None:
    name, outcome = best
    assert (placement.node.name if placement.node else "") == name
    if isinstance(outcome, Allocated):
        assert isinstance(placement.outcome, Allocated)
        assert placement.outcome.results == outcome.results
    elif outcome is not None:
        assert _told(placement.outcome) == _told(outcome)
    else:
        assert not isinstance(placement.outcome, Allocated)


class _Life:
    """A cluster that changes by chance."""

    def __init__(self, scenario: Json, pods: list[list[ResourceClaim]], draw: random.Random) -> None:
        self.inventory: Inventory = read_inventory(scenario)
        self._slices: list[Json] = scenario["slices"]
        self._pods = pods
        self._draw = draw
        self._held: list[list[str]] = []
        self._born = 0

    def step(self) -> None:
        chance = self._draw.random()
        if self._held and chance < 0.45:
            self.inventory.forget(self._held.pop(self._draw.randrange(len(self._held))))
        elif chance > 0.9:
            self._publish(self._draw.choice(self._slices))
        nodes = NODES if chance < 0.8 else tuple(self._draw.sample(NODES, 3))
        self._place(self._draw.choice(self._pods), nodes)

    def _publish(self, one: Json) -> None:
        """A slice goes, or comes back with some of its devices."""
        devices = one["spec"].get("devices", ())
        if self._draw.random() < 0.3:
            self.inventory.remove_slice(one["metadata"]["name"])
            return
        left = [device for device in devices if self._draw.random() < 0.8]
        changed = {**one, "spec": {**one["spec"], "devices": left}}
        self.inventory.apply_slice(decode_value(ResourceSlice, changed))

    def _place(self, wanted: list[ResourceClaim], nodes: tuple[NodeView, ...]) -> None:
        snapshot = self.inventory.snapshot()
        for looks in (self._draw.randrange(12), self._draw.randrange(40)):
            # What is cut off anywhere leaves nothing behind that the next search could trip over.
            clock = map(float, range(1_000_000)).__next__
            place(snapshot, wanted, nodes, deadline=Deadline.after(looks, clock=clock))
        placement = place(snapshot, wanted, nodes)
        _agrees(placement, _best(snapshot, wanted, tuple(sorted(nodes, key=lambda one: one.name))))
        if isinstance(placement.outcome, Allocated):
            self._born += 1
            uids = [f"{self._born}-{at}" for at in range(len(wanted))]
            self.inventory.assume(zip(uids, placement.outcome.results, strict=True))
            self._held.append(uids)


@st.composite
def _lives(draw: st.DrawFn) -> _Life:
    scenario = draw(scenarios())
    pods = []
    for pod in range(4):
        wanted = [a_claim(draw, name=f"claim-{pod}-{at}", features=scenario["features"]) for at in range(pod % 2 + 1)]
        pods.append([decode_value(ResourceClaim, one) for one in wanted])
    return _Life(scenario, pods, random.Random(draw(st.integers(0, 10**6))))


@settings(
    max_examples=some(70),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(_lives())
def test_a_placement_is_the_one_that_asking_every_node_afresh_gives(life: _Life) -> None:
    for _ in range(20):
        life.step()
