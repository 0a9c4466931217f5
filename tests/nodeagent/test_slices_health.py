"""A device whose driver calls it unhealthy is published with a taint, so that no new pod gets it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inventory.kinds.devices import Device, DeviceTaint
from nodeagent.client import Client
from nodeagent.drivers.protocol import DeviceHealth, Pool, UnhealthyEffect
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.publish import UNHEALTHY, Publisher, fenced_off, unhealthy
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.objects import NODE
from tests.nodeagent.test_slices_partial import OWNER

OWN = DeviceTaint(key="gpu.example.com/xid", value="79", effect="NoExecute")
TELLS = DeviceTaint(key="gpu.example.com/old", effect="None")


@pytest.mark.parametrize(
    ("taints", "health", "published"),
    [
        ((), "Healthy", ()),
        ((), "Unknown", ()),
        ((), "Unhealthy", (UNHEALTHY,)),
        ((OWN,), "Unhealthy", (OWN,)),
        ((TELLS,), "Unhealthy", (TELLS, UNHEALTHY)),
    ],
    ids=["healthy", "not known", "unhealthy", "tainted by its driver already", "a taint that only informs"],
)
def test_unhealthy_devices_are_fenced_off(
    taints: Sequence[DeviceTaint], health: str, published: Sequence[DeviceTaint]
) -> None:
    pool = Pool(name=NODE, devices=(Device(name="gpu-0", taints=tuple(taints)), Device(name="gpu-1")))
    (fenced,) = fenced_off([pool], [DeviceHealth(pool=NODE, device="gpu-0", health=health)])  # type: ignore[arg-type]
    assert [device.taints for device in fenced.devices] == [published, ()]


@pytest.mark.parametrize(
    ("own", "effect", "published"),
    [
        (None, "None", ["None"]),
        (None, "NoExecute", ["NoExecute"]),
        ("NoSchedule", "NoExecute", ["NoSchedule", "NoExecute"]),
        ("NoExecute", "NoExecute", ["NoExecute"]),
    ],
    ids=["it is told of", "its pods are evicted", "its driver only keeps new ones off", "its driver evicts already"],
)
def test_what_becomes_of_an_unhealthy_device_is_a_matter_of_policy(
    own: str | None, effect: UnhealthyEffect, published: list[str]
) -> None:
    taints = (DeviceTaint(key="gpu.example.com/xid", effect=own),) if own else ()
    pool = Pool(name=NODE, devices=(Device(name="gpu-0", taints=taints),))
    health = DeviceHealth(pool=NODE, device="gpu-0", health="Unhealthy")
    (fenced,) = fenced_off([pool], [health], unhealthy(effect))
    assert [taint.effect for taint in fenced.devices[0].taints] == published


def test_a_device_that_falls_ill_is_published_with_a_taint_and_without_it_when_it_is_well_again() -> None:
    api, driver = FakeApi(), SimulatedDriver(NODE, gpus=2)
    publisher = Publisher(Client("http://api", token="secret", transport=api), node=NODE, owner=lambda: OWNER)

    def taints() -> dict[str, list[str]]:
        publisher.publish(driver)
        return {
            device["name"]: [taint["key"] for taint in device.get("taints", ())]
            for document in api.all("resourceslices")
            for device in document["spec"]["devices"]
        }

    assert taints() == {"gpu-0": [], "gpu-1": []}
    driver.report_health("gpu-1", "Unhealthy", "the fan stands still")
    assert taints() == {"gpu-0": [], "gpu-1": ["manciple.dev/unhealthy"]}
    driver.report_health("gpu-1", "Healthy")
    assert taints() == {"gpu-0": [], "gpu-1": []}
