"""Devices for selectors to be asked about."""

from __future__ import annotations

from typing import Any

import msgspec

from inventory.kinds.devices import Device
from scheduling.cel import DeviceView, EvaluationError, compile_selector

DRIVER = "gpu.example.com"


def view(document: dict[str, Any]) -> DeviceView:
    """The view of a device as the conformance vectors write it: a Device plus its driver's name."""
    device = msgspec.convert({name: value for name, value in document.items() if name != "driver"}, Device)
    return DeviceView.of(document.get("driver", ""), device)


def gpu() -> DeviceView:
    return view(
        {
            "driver": DRIVER,
            "attributes": {
                "model": {"string": "A100"},
                "memory": {"int": 80},
                "healthy": {"bool": True},
                "version": {"version": "1.30.2"},
                "ids": {"ints": [3, 1, 2]},
                "other.example.com/numa": {"int": 1},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
    )


def verdict(expression: str, device: DeviceView | None = None) -> bool | str:
    """What the selector says of the device: a verdict or the message of its failure, the same from both evaluators."""
    selector = compile_selector(expression)
    device = device or gpu()
    counted = selector.evaluate(device)
    expected: bool | str = counted.error.message if counted.error else counted.matches
    try:
        found: bool | str = selector.matches(device)
    except EvaluationError as error:
        found = error.message
    assert found == expected, f"{expression}: compiled {found!r}, counted {expected!r}"
    return expected
