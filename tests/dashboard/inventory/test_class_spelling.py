"""What a selector names and nobody publishes: the published name or value that is probably meant."""

from __future__ import annotations

from typing import Any

import pytest

from claims.devices.published import Published, read_slice
from dashboard.inventory.classes.workbench import misspellings
from insight.selector_matches import JudgedDevices, judged_devices
from tests.builders import Version, make_device, make_slice

DOMAIN = "gpu.example.com"
COMMON: dict[str, Any] = {"mig": False, "version": Version("575.57.8")}


@pytest.fixture
def devices() -> JudgedDevices:
    published = [
        make_device(
            f"gpu-{number}",
            attributes=COMMON | {"architecture": name, "index": number},
            capacity={"memory": "80Gi"},
        )
        for number, name in enumerate(("Hopper", "Ampere", "Hopper"))
    ]
    return judged_devices(Published([read_slice(make_slice(devices=published, driver=DOMAIN))]))


MENDED = {
    f'device.attributes["{DOMAIN}"].architcture == "Hopper"': f'device.attributes["{DOMAIN}"].architecture == "Hopper"',
    f'device.attributes["{DOMAIN}"].architecture == "Hoper"': f'device.attributes["{DOMAIN}"].architecture == "Hopper"',
    f'device.attributes["{DOMAIN}"].architecture != "ampere"': (
        f'device.attributes["{DOMAIN}"].architecture != "Ampere"'
    ),
    'device.attributes["gpu.exmple.com"].index == 0': f'device.attributes["{DOMAIN}"].index == 0',
    'device.driver == "gpu.example.org"': f'device.driver == "{DOMAIN}"',
    "device.driver == 'gpu.exampel.com'": f"device.driver == '{DOMAIN}'",
    f'"idex" in device.attributes["{DOMAIN}"] && device.attributes["{DOMAIN}"].idex == 1': (
        f'"index" in device.attributes["{DOMAIN}"] && device.attributes["{DOMAIN}"].index == 1'
    ),
    f'device.attributes["{DOMAIN}"].index == "1"': f'device.attributes["{DOMAIN}"].index == 1',
    f'device.attributes["{DOMAIN}"].mig == "true" && true': f'device.attributes["{DOMAIN}"].mig == true && true',
    f"device.attributes['{DOMAIN}'].version != '1.2.3'": (f"device.attributes['{DOMAIN}'].version != semver('1.2.3')"),
    f'device.capacity["{DOMAIN}"].memry.compareTo(quantity("40Gi")) > 0': (
        f'device.capacity["{DOMAIN}"].memory.compareTo(quantity("40Gi")) > 0'
    ),
}


@pytest.mark.parametrize("expression", MENDED)
def test_what_is_near_to_something_published_is_offered_in_its_place(devices: JudgedDevices, expression: str) -> None:
    found = misspellings(expression, devices)
    assert [one.fixed for one in found] == [MENDED[expression]]
    assert misspellings(found[0].fixed, devices) == []


MEANT = (
    f'device.attributes["{DOMAIN}"].architecture == "Blackwell"',
    f'device.attributes["{DOMAIN}"].architecture.startsWith("Hop")',
    f'device.attributes["{DOMAIN}"].serial == "x"',
    'device.driver == "fpga.example.org"',
    f'device.attributes["{DOMAIN}"].index == "one"',
    f'device.attributes["{DOMAIN}"].mig == true',
    f'device.attributes["{DOMAIN}"].architecture ==',
    f'"index" in device.attributes["{DOMAIN}"]',
)


@pytest.mark.parametrize("expression", MEANT)
def test_what_may_be_meant_as_it_is_written_is_left_alone(devices: JudgedDevices, expression: str) -> None:
    assert misspellings(expression, devices) == []


def test_where_nothing_is_published_nothing_is_misspelt() -> None:
    nothing = judged_devices(Published([]))
    assert misspellings(next(iter(MENDED)), nothing) == []
