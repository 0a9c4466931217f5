"""A selector for chosen devices chooses these and no others, as the evaluator of selectors sees it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from claims.devices.published import CandidateDevice, Published, read_slice
from dashboard.inventory.devices.selectors import exact_selector, selector_of
from insight.selector_matches import judge
from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from tests.builders import make_slice

VALUES = st.one_of(
    st.integers(0, 2).map(lambda value: DeviceAttribute(int_value=value)),
    st.sampled_from(['a"b', "c"]).map(lambda value: DeviceAttribute(string_value=value)),
    st.booleans().map(lambda value: DeviceAttribute(bool_value=value)),
    st.sampled_from(["1.0.0", "2.0.0-rc1"]).map(lambda value: DeviceAttribute(version_value=value)),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["index", "example.com/model", "rack"]), VALUES, max_size=3)
CAPACITY = st.dictionaries(
    st.just("memory"), st.sampled_from(["1Gi", "2Gi"]).map(lambda value: DeviceCapacity(value=value)), max_size=1
)


@st.composite
def published_and_chosen(draw: st.DrawFn) -> tuple[Published, list[CandidateDevice]]:
    some = draw(st.lists(st.tuples(ATTRIBUTES, CAPACITY, st.sampled_from(["a", "b"])), min_size=1, max_size=8))
    slices = [
        read_slice(
            make_slice(
                f"slice-{driver}",
                driver=f"{driver}.example.com",
                devices=[
                    Device(name=f"d-{number}", attributes=attributes, capacity=capacity)
                    for number, (attributes, capacity, of) in enumerate(some)
                    if of == driver
                ],
            )
        )
        for driver in "ab"
    ]
    published = Published(slices)
    chosen = draw(st.lists(st.sampled_from(published.candidates), min_size=1, unique_by=lambda one: one.key))
    return published, chosen


def seen(one: CandidateDevice) -> object:
    return one.driver, one.device.attributes, one.device.capacity


@given(published_and_chosen())
def test_it_chooses_the_chosen_and_whoever_is_alike_and_fails_on_nobody(
    case: tuple[Published, list[CandidateDevice]],
) -> None:
    """Where values of one name have several types the name is not asked for: then nothing is promised of others."""
    published, chosen = case
    found = exact_selector(chosen, published.candidates)
    verdict = judge([found.expression], published)
    assert not verdict.complaint, found.expression
    assert not verdict.failed, found.expression
    assert verdict.matching == {*chosen, *found.also}, found.expression
    types: dict[tuple[str, str], set[str]] = {}
    for one in published.candidates:
        for name, attribute in one.device.attributes.items():
            types.setdefault((one.driver, name), set()).update(
                field for field in attribute.__struct_fields__ if getattr(attribute, field) not in (None, ())
            )
    if not any(len(kinds) > 1 for kinds in types.values()):
        assert all(any(seen(one) == seen(other) for one in chosen) for other in found.also)


def test_devices_without_a_common_attribute_are_told_apart_by_what_they_lack() -> None:
    published = few(
        [
            Device(name="gpu-0", attributes={"model": DeviceAttribute(int_value=0)}),
            Device(name="gpu-1", attributes={"rack": DeviceAttribute(int_value=0)}),
            Device(name="gpu-2", attributes={"model": DeviceAttribute(int_value=1)}),
        ]
    )
    found = exact_selector(published.candidates[:2], published.candidates)
    assert found.also == ()
    assert found.expression == (
        'device.driver == "gpu.example.com" &&\n'
        '(!("model" in device.attributes["gpu.example.com"]) || device.attributes["gpu.example.com"].model == 0)'
    )


def few(devices: Sequence[Device]) -> Published:
    return Published([read_slice(make_slice("one", devices=devices))])


def test_one_attribute_that_tells_them_apart_is_enough() -> None:
    published = few(
        [
            Device(
                name=f"gpu-{number}",
                attributes={
                    "model": DeviceAttribute(string_value="H100" if number < 2 else "A100"),
                    "uuid": DeviceAttribute(string_value=f"GPU-{number}"),
                },
            )
            for number in range(4)
        ]
    )
    assert exact_selector(published.candidates[:2], published.candidates).expression == (
        'device.driver == "gpu.example.com" &&\ndevice.attributes["gpu.example.com"].model == "H100"'
    )
    assert exact_selector([published.candidates[1]], published.candidates).expression.endswith('.uuid == "GPU-1"')


def test_a_selector_of_alike_devices_compares_each_attribute_by_its_type() -> None:
    attributes = {
        "model": DeviceAttribute(string_value="H100"),
        "numa": DeviceAttribute(int_value=1),
        "shared": DeviceAttribute(bool_value=False),
        "firmware": DeviceAttribute(version_value="1.2.3"),
    }
    device = Device(name="d-0", attributes=attributes)
    (candidate,) = Published([read_slice(make_slice("slice", driver="a.example.com", devices=[device]))]).candidates
    assert selector_of(candidate, {}).split(" &&\n") == [
        'device.driver == "a.example.com"',
        'device.attributes["a.example.com"].firmware.compareTo(semver("1.2.3")) >= 0',
        'device.attributes["a.example.com"].model == "H100"',
        'device.attributes["a.example.com"].numa == 1',
        '!device.attributes["a.example.com"].shared',
    ]
