"""How many devices a search takes in hand: the proofs that spare it from trying are part of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from claims.causes.messages import message
from inventory.kinds.devices import ResourceSlice
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    NodeView,
    Unallocatable,
    Undecided,
    allocate,
    index,
    place,
    placement,
)
from scheduling.allocator.problem import AllocationProblem, pose
from tests.scheduling.allocator.cases import (
    GPU,
    NODE,
    Json,
    answer,
    device,
    make_claim,
    make_inventory,
    make_slice,
    names,
    request,
)

GROUP = "gpu.example.com/group"
NUMBER = 'device.attributes["gpu.example.com"].number == {}'


def _devices(count: int, *, group: int) -> list[Json]:
    return [device(f"d-{number}", group=number // group, number=number) for number in range(count)]


@pytest.mark.parametrize(
    ("group", "last"),
    [
        pytest.param(7, "", id="every value is on seven devices only"),
        pytest.param(9, NUMBER.format(63), id="the last request wants a device of a small group"),
        pytest.param(63, NUMBER.format(63), id="the last request wants the odd one out"),
    ],
)
def test_eight_requests_that_cannot_agree_are_refused_without_a_trial(group: int, last: str) -> None:
    requests = [request(f"r{number}") for number in range(7)] + [request("r7", where=last)]
    outcome = answer(make_inventory(make_slice(*_devices(64, group=group))), make_claim(*requests, match=GROUP))
    assert isinstance(outcome, Unallocatable)
    assert outcome.trials == 0


def _two_of(name: str, **attributes: int) -> list[Json]:
    return [device(f"{name}-{number}", **attributes) for number in range(2)]


def _listed(*requests: Json) -> Json:
    return {"name": "r", "firstAvailable": [{"name": one["name"], **one["exactly"]} for one in requests]}


def _drawing(name: str, slots: int) -> Json:
    consumed = [{"counterSet": "card", "counters": {"slots": {"value": str(slots)}}}]
    return {**device(name), "consumesCounters": consumed}


def _shared(name: str) -> Json:
    return {**device(name), "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}


_HALF: Json = {"capacity": {"requests": {"memory": "4Gi"}}}
_CARD: Json = {"sharedCounters": [{"name": "card", "counters": {"slots": {"value": "4"}}}]}

#: what is asked for -> (devices, requests, more of the claim, devices taken in hand, whether it is met)
TABLE: dict[str, tuple[list[Json], list[Json], Json, int, bool]] = {
    "one device of many": (_devices(32, group=4), [request()], {}, 1, True),
    "the last device of many, by a selector": (_devices(32, group=4), [request(where=NUMBER.format(31))], {}, 1, True),
    "no device, by a selector": (_devices(32, group=4), [request(where=NUMBER.format(99))], {}, 0, False),
    "two requests for the same devices": (_devices(4, group=4), [request("a"), request("b")], {}, 2, True),
    "more devices together than there are": (
        _devices(4, group=4),
        [request("a", count=3), request("b", count=2)],
        {},
        4,
        False,
    ),
    "all devices": (_devices(8, group=4), [request(allocationMode="All", count=0)], {}, 8, True),
    "the second alternative, of which alone there are enough": (
        _devices(8, group=4),
        [_listed(request("a", where=NUMBER.format(99)), request("b", count=3))],
        {},
        3,
        True,
    ),
    "a value that enough devices carry, after one that too few do": (
        [*_two_of("small", group=1), *_devices(4, group=4)],
        [request(count=3)],
        {"constraints": [{"matchAttribute": GROUP}]},
        3,
        True,
    ),
    "different values, of pairs that carry the same": (
        _devices(8, group=2),
        [request(count=4)],
        {"constraints": [{"distinctAttribute": GROUP}]},
        4,
        True,
    ),
    "more different values than there are": (
        _devices(8, group=2),
        [request(count=5)],
        {"constraints": [{"distinctAttribute": GROUP}]},
        0,
        False,
    ),
    "a device that only the second request may leave alone": (
        _devices(2, group=2),
        [request("a"), request("b", where=NUMBER.format(0))],
        {},
        3,
        True,
    ),
    "shares of one device": (
        [_shared("d-0"), _shared("d-1")],
        [request("a", **_HALF), request("b", **_HALF)],
        {},
        2,
        True,
    ),
    "shares of a device that is full": (
        [_shared("d-0"), _shared("d-1")],
        [request(name, **_HALF) for name in "abc"],
        {},
        4,
        True,
    ),
}


@pytest.mark.parametrize("asked", TABLE)
def test_a_search_takes_few_devices_in_hand(asked: str) -> None:
    devices, requests, more, trials, met = TABLE[asked]
    outcome = answer(make_inventory(make_slice(*devices)), make_claim(*requests, **more))
    assert isinstance(outcome, Allocated if met else Unallocatable), outcome
    assert outcome.trials == trials


def test_partitions_that_draw_on_spent_counters_are_taken_in_hand_once() -> None:
    inventory = make_inventory(*_card("p-1"))
    assert answer(inventory, make_claim(request(count=2))).trials == 4
    assert answer(inventory, make_claim(request())).trials == 1


def test_partitions_of_which_others_have_drained_the_counters_are_not_taken_in_hand() -> None:
    inventory = make_inventory(*(one for pool in ("p-1", "p-2") for one in _card(pool)))
    held = answer(inventory, make_claim(request(), name="held"))
    assert names(held) == [["whole"]]
    inventory.assume((("uid-held", one) for one in held.results) if isinstance(held, Allocated) else ())
    found = answer(inventory, make_claim(request(count=2)))
    assert names(found) == [["half-0", "half-1"]]
    assert found.trials == 4, "as if there were only the second pool"
    inventory.forget(["uid-held"])
    assert answer(inventory, make_claim(request(count=4))).trials > 4, "they are there again"


def _card(pool: str) -> list[ResourceSlice]:
    """One that is given as a whole or in halves."""
    parts = [_drawing("whole", 4), _drawing("half-0", 2), _drawing("half-1", 2)]
    return [
        make_slice(*parts, pool=pool, count=2, name=f"{pool}-a"),
        make_slice(pool=pool, count=2, name=f"{pool}-b", **_CARD),
    ]


@pytest.mark.parametrize("count", [1, 5, 32])
def test_a_search_that_never_stumbles_tries_each_device_once(count: int) -> None:
    outcome = answer(make_inventory(make_slice(*_devices(64, group=32))), make_claim(request(count=count), match=GROUP))
    assert isinstance(outcome, Allocated)
    assert outcome.trials == count


def test_requests_that_compete_for_too_few_devices_are_refused_by_matching() -> None:
    """Eight requests, each for one of the same seven devices or of a device that nobody has."""
    few = " || ".join(NUMBER.format(number) for number in range(7))
    requests = [request(f"r{number}", where=f"{few} || {NUMBER.format(100 + number)}") for number in range(8)]
    outcome = answer(make_inventory(make_slice(*_devices(64, group=64))), make_claim(*requests))
    assert isinstance(outcome, Unallocatable)
    assert outcome.trials <= 8


def test_identical_devices_are_not_tried_one_after_the_other() -> None:
    """The second claim needs two devices with the one value that the first can leave alone only as a whole."""
    slices = make_slice(*_devices(60, group=30), device("odd", group=9, number=99))
    claims = [make_claim(request(count=30), name="a", match=GROUP), make_claim(request(count=31), name="b")]
    outcome = answer(make_inventory(slices), *claims)
    assert isinstance(outcome, Allocated)
    assert outcome.trials < 200


def test_past_its_limit_a_search_says_that_it_does_not_know() -> None:
    inventory = make_inventory(make_slice(*_devices(8, group=8)))
    outcome = allocate(inventory.snapshot(), [make_claim(request(count=8))], NODE, limit=5)
    assert outcome == Undecided(trials=5)
    assert message(outcome.cause) == "allocation undecided: the search stopped after 5 device trials"


def test_a_pod_may_have_very_many_claims() -> None:
    """The search keeps its own stack."""
    inventory = make_inventory(*(make_slice(*_devices(128, group=128), pool=f"p-{number}") for number in range(16)))
    outcome = answer(inventory, *(make_claim(request(count=8), name=f"c-{number}") for number in range(256)))
    assert isinstance(outcome, Allocated)
    assert outcome.trials == 2048


# Refusals that are explained again ------------------------------------------------------------------------------------

NODES = [NodeView(f"node-{number}") for number in range(5)]


class Refusing:
    """Claims for models that no device has, on five nodes of which the index caches refusals for three shapes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(index, "MAX_REFUSALS", 3 * len(NODES))
        monkeypatch.setattr(placement, "pose", self._posed)
        slices = [make_slice(device("d", model="A"), pool=one.name, nodeName=one.name) for one in NODES]
        self.inventory = make_inventory(*slices)
        self._explained = 0
        self._claims = 0

    def _posed(self, *given: Any, **more: Any) -> AllocationProblem | AllocationFailed:
        self._explained += 1
        return pose(*given, **more)

    def explained(self, *models: str) -> int:
        """How many refusals of nodes were computed, rather than cached, for a new claim for each of these models."""
        before = self._explained
        for model in models:
            self._claims += 1
            wanted = request(where=f'device.attributes["{GPU}"].model == "{model}"')
            placed = place(self.inventory.snapshot(), [make_claim(wanted, name=f"c-{self._claims}")], NODES)
            reasons = [one.reasons[0] for one in placed.refusals.values() if isinstance(one, Unallocatable)]
            assert [one.claim for one in reasons] == [f"default/c-{self._claims}"] * len(NODES)
            assert all(f'"{model}"' in message(one.cause) for one in reasons)
        return self._explained - before


def test_more_shapes_in_turn_than_fit_into_the_cache_leave_it_useful(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing, shapes = Refusing(monkeypatch), "VWXYZ"
    assert refusing.explained(*shapes) == 5 * len(NODES)
    assert refusing.explained(*shapes) == 2 * len(NODES)
    assert refusing.explained(*shapes) == 2 * len(NODES)


def test_a_shape_that_nobody_asks_for_any_more_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(monkeypatch)
    refusing.explained(*"BCD")
    refusing.explained(*("XYZ" * 3 * index.IDLE_LOOKUPS))
    assert refusing.explained(*"XYZ") == 0
