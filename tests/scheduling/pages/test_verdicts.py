"""Verdicts: what each selector keeps, what fails, what does not compile."""

from __future__ import annotations

from inventory.kinds.slices import Device, DeviceAttribute, DeviceCapacity
from scheduling.cel import DeviceView
from scheduling.pages.verdicts import Candidate, judge

DRIVER = "gpu.example.com"


def candidate(index: int, *, memory: str = "80Gi", held: bool = False) -> Candidate:
    device = Device(
        name=f"gpu-{index}",
        attributes={"index": DeviceAttribute(int_value=index)},
        capacity={"memory": DeviceCapacity(value=memory)},
    )
    return Candidate(driver=DRIVER, pool="node-1", name=device.name, view=DeviceView.of(DRIVER, device), held=held)


SHELF = [candidate(0), candidate(1, held=True), candidate(2, memory="40Gi")]


def test_each_selector_judges_what_the_one_before_it_kept() -> None:
    verdicts = judge(
        [
            f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))',
            f'device.attributes["{DRIVER}"].index == 0',
        ],
        SHELF,
    )
    assert [(judged.reached, judged.kept) for judged in verdicts.selectors] == [(3, 2), (2, 1)]
    assert [found.name for found in verdicts.matching] == ["gpu-0"]
    assert (verdicts.total, verdicts.missed, verdicts.failed, verdicts.free) == (3, 2, 0, 1)


def test_without_selectors_every_device_matches() -> None:
    verdicts = judge([], SHELF)
    assert len(verdicts.matching) == 3
    assert verdicts.free == 2


def test_a_runtime_error_is_counted_apart_with_an_example() -> None:
    verdicts = judge([f'device.attributes["{DRIVER}"].nothing == 1'], SHELF)
    assert verdicts.failed == 3
    ((text, device, count),) = verdicts.failures
    assert "no such key: nothing" in text
    assert (device, count) == ("node-1 / gpu-0", 3)
    assert verdicts.matching == ()


def test_a_selector_that_does_not_compile_tells_its_place_and_is_left_out() -> None:
    verdicts = judge([f'device.driver == "{DRIVER}"', "device.driver ==\n  1 +"], SHELF)
    assert not verdicts.compiles
    good, bad = verdicts.selectors
    assert good.kept == 3
    assert bad.error is not None
    assert bad.error.line == 2
    assert bad.complaint
    assert "<input>" not in bad.complaint
    assert len(verdicts.matching) == 3
