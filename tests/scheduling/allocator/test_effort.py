"""How many devices a search takes in hand: the proofs that spare it from trying are part of the contract."""

from __future__ import annotations

import pytest

from scheduling.allocator import Allocated, Unallocatable, Undecided, allocate
from tests.scheduling.allocator.cases import NODE, Json, answer, device, make_claim, make_inventory, make_slice, request

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
    assert outcome.message == "allocation undecided: the search stopped after 5 device trials"


def test_a_pod_may_have_very_many_claims() -> None:
    """The search keeps its own stack."""
    inventory = make_inventory(*(make_slice(*_devices(128, group=128), pool=f"p-{number}") for number in range(16)))
    outcome = answer(inventory, *(make_claim(request(count=8), name=f"c-{number}") for number in range(256)))
    assert isinstance(outcome, Allocated)
    assert outcome.trials == 2048
