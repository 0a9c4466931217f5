"""Slices that are made of shared values say what they said before."""

from __future__ import annotations

import pytest

from inventory.kinds.devices import DeviceAttribute
from inventory.kinds.shared_values import shared
from manciple.wire import codec
from tests.builders import make_device, make_slice


@pytest.mark.parametrize(
    "names",
    [
        ("model", "uuid", "resource.kubernetes.io/pcieRoot"),
        ("model", "__class__", "__dict__", "__weakref__"),
        tuple(f"attribute{number}" for number in range(32)),
        (),
    ],
)
def test_attributes_stay_as_they_are_written(names: tuple[str, ...]) -> None:
    devices = [
        make_device(f"gpu-{index}", attributes={name: f"{name} of {index}" for name in names}) for index in range(40)
    ]
    published = make_slice(node="node", devices=devices)
    made = shared(published)
    assert made == published
    assert codec.encode(made) == codec.encode(published)


def test_a_device_has_attributes_of_its_own() -> None:
    first, second = shared(
        make_slice(node="node", devices=[make_device(f"gpu-{one}", attributes={"uuid": one}) for one in ("a", "b")])
    ).spec.devices
    assert first.attributes == {"uuid": DeviceAttribute(string_value="a")}
    assert second.attributes == {"uuid": DeviceAttribute(string_value="b")}
