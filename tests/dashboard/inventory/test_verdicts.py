"""Verdicts: what each selector keeps, which operand refuses, what fails, what does not compile."""

from __future__ import annotations

import pytest

from claims.devices.published import Published, read_slice
from dashboard.inventory.classes.queries import folded, judge, spelled
from insight.selector_matches import JudgedDevices, matches, places
from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from tests.builders import make_slice

DRIVER = "gpu.example.com"


def device(index: int, *, memory: str = "80Gi") -> Device:
    return Device(
        name=f"gpu-{index}",
        attributes={"index": DeviceAttribute(int_value=index)},
        capacity={"memory": DeviceCapacity(value=memory)},
    )


def published(*devices: Device) -> JudgedDevices:
    return JudgedDevices(Published([read_slice(make_slice(driver=DRIVER, devices=devices))]))


DEVICES = published(device(0), device(1), device(2, memory="40Gi"))
LARGE = f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))'


def test_each_selector_judges_what_the_one_before_it_kept() -> None:
    verdicts = judge([LARGE, f'device.attributes["{DRIVER}"].index == 0'], DEVICES)
    assert [(judged.reached, judged.kept) for judged in verdicts.selectors] == [(3, 2), (2, 1)]
    assert [found.name for found in verdicts.matching] == ["gpu-0"]
    assert (verdicts.total, verdicts.matched, verdicts.missed, verdicts.failed) == (3, 1, 2, 0)
    every = judge([], DEVICES)
    assert (len(every.matching), every.cost) == (3, 0)


def test_the_bits_of_a_mask_are_the_places_of_its_devices() -> None:
    masks = {0: [], 1: [0], 0b1011: [0, 1, 3], 1 << 4999: [4999]}
    assert {mask: list(places(mask)) for mask in masks} == masks


def test_a_refusal_names_the_operand_and_what_the_device_has_there() -> None:
    verdicts = judge([f'device.driver == "{DRIVER}" && {LARGE}', f'device.attributes["{DRIVER}"].index == 0'], DEVICES)
    told = [(group.selector + 1, group.text, group.value, group.where) for group in verdicts.refusals]
    assert told == [(1, "memory > 40Gi", "40Gi", "node-1 / gpu-2"), (2, "index == 0", "1", "node-1 / gpu-1")]


def test_many_different_values_are_told_by_their_span() -> None:
    devices = published(*(device(index) for index in range(9)))
    (group,) = judge([f'device.attributes["{DRIVER}"].index > 100'], devices).refusals
    assert (group.value, len(group.devices)) == ("0–8", 9)  # noqa: RUF001 - as a person reads it


def test_a_runtime_error_is_counted_apart_and_never_on_devices_that_were_refused_before() -> None:
    verdicts = judge([LARGE, f'device.attributes["{DRIVER}"].nothing == 1'], DEVICES)
    assert (verdicts.matched, verdicts.missed, verdicts.failed) == (0, 1, 2)
    (group,) = verdicts.failures
    assert "key: nothing" in group.text
    assert (group.selector + 1, group.where, len(group.devices)) == (2, "node-1", 2)


def test_a_selector_that_does_not_compile_tells_its_place_and_is_left_out() -> None:
    verdicts = judge([f'device.driver == "{DRIVER}"', "device.driver ==\n  1 +"], DEVICES)
    assert not verdicts.compiles
    good, bad = verdicts.selectors
    assert good.kept == 3
    assert bad.error is not None
    assert bad.error.line == 2
    assert bad.complaint
    assert "<input>" not in bad.complaint
    assert len(verdicts.matching) == 3
    assert matches(["device.driver =="], DEVICES) == 0


@pytest.mark.parametrize(
    ("names", "short", "in_a_sentence"),
    [
        (["gpu-a01"], "gpu-a01", "gpu-a01"),
        ([f"gpu-a{number:02}" for number in range(1, 15)], "gpu-a01…14", "gpu-a01 to gpu-a14"),
        (["node-9", "node-10", "node-11"], "node-9…11", "node-9 to node-11"),
        (["a1", "a2", "b7"], "a1…2, b7", "a1…2, b7"),
        (["gpu-c01", "gpu-c03", "gpu-c05", "gpu-c07"], "4 nodes, gpu-c…", "4 nodes"),
        (["alpha", "beta", "gamma"], "3 nodes", "3 nodes"),
        ([], "", ""),
    ],
)
def test_nodes_are_folded_into_ranges(names: list[str], short: str, in_a_sentence: str) -> None:
    assert (folded(names), spelled(names)) == (short, in_a_sentence)
