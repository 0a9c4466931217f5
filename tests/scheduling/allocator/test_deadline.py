"""A search stops when time is up, and says that it was time."""

from __future__ import annotations

from collections.abc import Callable

from claims.causes.messages import message
from manciple.wire.limits import Deadline
from scheduling.allocator import Allocated, NodeView, Undecided, allocate, place
from scheduling.allocator.search import TRIALS_PER_LOOK
from tests.scheduling.allocator.cases import GPU, NODE, Json, device, make_claim, make_inventory, make_slice, request

LATE = 10.0


def _ticking() -> Callable[[], float]:
    """A clock on which every look takes a second."""
    now = iter(range(1_000_000))
    return lambda: float(next(now))


def _stopped() -> Deadline:
    return Deadline(at=0.0, clock=lambda: LATE)


def _pairs(count: int) -> list[Json]:
    """Two devices of each value, so that as many different ones can be had as there are values."""
    return [device(f"d-{number}", number=number // 2) for number in range(count)]


def test_a_search_within_its_time_is_not_disturbed() -> None:
    inventory = make_inventory(make_slice(*_pairs(8)))
    claim = make_claim(request(count=4), constraints=[{"distinctAttribute": f"{GPU}/number"}])
    deadline = Deadline.after(LATE, clock=lambda: 0.0)
    assert isinstance(allocate(inventory.snapshot(), [claim], NODE, deadline=deadline), Allocated)


def test_a_search_looks_at_the_clock_now_and_then_and_stops() -> None:
    """More devices are wanted than are tried between two looks."""
    count = 2 * TRIALS_PER_LOOK
    slices = [make_slice(*(f"d-{pool}-{at}" for at in range(32)), pool=f"p-{pool}") for pool in range(count // 32)]
    inventory = make_inventory(*slices)
    claims = [make_claim(request(count=32), name=f"c-{number}") for number in range(count // 32)]
    outcome = allocate(inventory.snapshot(), claims, NODE, deadline=Deadline.after(0.5, clock=_ticking()))
    assert outcome == Undecided(trials=TRIALS_PER_LOOK, timed_out=True)
    assert message(outcome.cause) == "timed out trying to allocate devices"
    assert isinstance(allocate(inventory.snapshot(), claims, NODE), Allocated)


def test_past_the_deadline_no_node_is_searched_and_nothing_is_remembered_of_it() -> None:
    inventory = make_inventory(make_slice(*_pairs(8)))
    claim = make_claim(request(count=4), constraints=[{"distinctAttribute": f"{GPU}/number"}])
    late = place(inventory.snapshot(), [claim], (NODE,), deadline=_stopped())
    assert late.node is None
    assert late.outcome == Undecided(trials=0, timed_out=True, claims="default/claim")
    assert late.refusals == {NODE.name: late.outcome}
    assert place(inventory.snapshot(), [claim], (NODE,)).node == NODE


def test_an_undecided_node_does_not_hide_one_that_fits() -> None:
    """On the small node, looked at first, the first request takes what only the second can use, and has to go on."""
    first, second = request("a"), request("b", where='device.attributes["gpu.example.com"].number == 0')
    claim = make_claim(first, second, constraints=[{"distinctAttribute": f"{GPU}/number"}])
    small = make_slice(*_pairs(6), pool="small", nodeName="small")
    large = make_slice(*(device(f"d-{at}", number=8 - at) for at in range(9)), pool="large", nodeName="large")
    inventory = make_inventory(small, large)
    nodes = (NodeView("large"), NodeView("small"))
    assert place(inventory.snapshot(), [claim], nodes, limit=2).node == NodeView("large")
    assert place(inventory.snapshot(), [claim], nodes).node == NodeView("small")
