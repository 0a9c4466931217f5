"""A device whose driver calls it unhealthy is published with a taint, so that no new pod gets it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inventory.kinds.devices import Device, DeviceTaint
from nodeagent.api.client import Client
from nodeagent.drivers.protocol import DeviceHealth, Health, Pool, UnhealthyEffect
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.node.slices import UNHEALTHY, HealthRules, Publisher, fenced_off, unhealthy
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.node.test_slices_partial import OWNER
from tests.nodeagent.objects import NODE

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


# Of drivers that publish their slices themselves ----------------------------------------------------------------------


def rules_of(api: FakeApi, effect: UnhealthyEffect = "NoSchedule") -> HealthRules:
    """As an agent has them that has just started."""
    client = Client("http://api", token="secret", transport=api)
    return HealthRules(client, owner=lambda: OWNER, taint=unhealthy(effect))


def reported(health: Health, device: str = "a") -> dict[str, list[DeviceHealth]]:
    return {"nic.example.com": [DeviceHealth(pool=NODE, device=device, health=health)]}


def ruled(api: FakeApi) -> list[tuple[str, str]]:
    specs = [one["spec"] for one in api.all("devicetaintrules")]
    return [(one["deviceSelector"]["device"], one["taint"]["effect"]) for one in specs]


def test_a_device_of_a_foreign_driver_has_a_rule_from_unhealthy_to_healthy() -> None:
    api = FakeApi()
    rules = rules_of(api)
    for health, expected in {
        "Healthy": [],
        "Unhealthy": [("a", "NoSchedule")],
        "Unknown": [("a", "NoSchedule")],
    }.items():
        rules.sync(reported(health))  # type: ignore[arg-type]
        assert ruled(api) == expected
    (rule,) = api.all("devicetaintrules")
    assert rule["spec"]["deviceSelector"] == {"driver": "nic.example.com", "pool": NODE, "device": "a"}
    assert rule["spec"]["taint"]["key"] == "manciple.dev/unhealthy"
    assert [owner["uid"] for owner in rule["metadata"]["ownerReferences"]] == [OWNER.uid]
    rules.sync({})  # the driver is away
    rules_of(api).sync({})  # and the agent was started again
    assert ruled(api) == [("a", "NoSchedule")]
    before = len(api.requests)
    rules.sync(reported("Unhealthy"))
    assert len(api.requests) == before
    rules_of(api).sync(reported("Healthy"))
    assert ruled(api) == []
    rules.sync(reported("Healthy"))  # it does not know that yet


def test_rules_of_others_stay_and_ours_follow_the_policy() -> None:
    api = FakeApi()
    api.put("devicetaintrules", {"metadata": {"name": "repair"}, "spec": {"taint": {"key": "k", "effect": "None"}}})
    rules_of(api).sync(reported("Unhealthy"))
    rules_of(api, "NoExecute").sync({})
    others = api.find("devicetaintrules", "repair")
    assert others is not None
    assert [one["spec"]["taint"]["effect"] for one in api.all("devicetaintrules")] == ["None", "NoExecute"]
    rules_of(api, "NoExecute").sync(reported("Healthy"))
    assert api.all("devicetaintrules") == [others]
