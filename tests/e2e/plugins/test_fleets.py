"""Several drivers on one node, several instances of one driver, and what they publish.

A test whose upstream scenario has a name carries it, "Kubelet" being our agent. Sources: kubernetes
test/e2e_node/dra_test.go and test/e2e/dra/dra.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.e2e.plugins.cluster import NODE, SLICES, System
from tests.e2e.plugins.driver_process import PREPARE, UNPREPARE, DriverProcess, Orders, Report
from tests.e2e.plugins.scene import POOLS, Scene
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.e2e


def two_drivers(scene: Scene) -> tuple[DriverProcess, DriverProcess]:
    return scene.driver("a"), scene.driver("b")


# Two plugins ---------------------------------------------------------------------------------------------------------


def test_must_prepare_and_unprepare_resources(scene: Scene) -> None:
    a, b = two_drivers(scene)
    scene.pod_using("pod", a, b, seconds=0)
    scene.reaches("pod", "Succeeded")
    for driver in (a, b):
        assert [len(driver.ended(call, well=True)) for call in (PREPARE, UNPREPARE)] == [1, 1]


@pytest.mark.long
def test_must_run_pod_if_node_prepare_resources_fails_for_one_plugin_and_then_succeeds(scene: Scene) -> None:
    a, b = two_drivers(scene)
    b.on("prepare", "fail")
    scene.pod_using("pod", a, b)
    wait_for("a failed call", lambda: b.ended(PREPARE, well=False))
    assert scene.phase("pod") == "Pending"
    b.on("prepare", "")
    scene.runs("pod")
    assert a.ended(PREPARE, well=True)
    assert b.ended(PREPARE, well=True)


@pytest.mark.long
def test_must_run_pod_if_node_unprepare_resources_fails_for_one_plugin_and_then_succeeds(scene: Scene) -> None:
    a, b = two_drivers(scene)
    b.on("unprepare", "fail")
    scene.pod_using("pod", a, b, seconds=0)
    wait_for("a failed call", lambda: b.ended(UNPREPARE, well=False))
    assert scene.phase("pod") != "Succeeded"
    b.on("unprepare", "")
    scene.reaches("pod", "Succeeded")
    assert a.ended(UNPREPARE, well=True)


@pytest.mark.long
def test_must_run_pod_if_node_prepare_resources_is_in_progress_for_one_plugin_when_kubelet_restarts(
    scene: Scene,
) -> None:
    a, b = two_drivers(scene)
    b.on("prepare", "hang")
    scene.pod_using("pod", a, b)
    wait_for("the call to begin", lambda: b.begun(PREPARE))
    scene.agent.kill()
    b.on("prepare", "")
    scene.agent.start()
    scene.runs("pod")
    assert a.ended(PREPARE, well=True)
    assert b.ended(PREPARE, well=True)


@pytest.mark.long
def test_must_call_node_unprepare_resources_again_if_its_in_progress_for_one_plugin_when_kubelet_restarts(
    scene: Scene,
) -> None:
    a, b = two_drivers(scene)
    b.on("unprepare", "hang")
    scene.pod_using("pod", a, b, seconds=0)
    wait_for("the call to begin", lambda: b.begun(UNPREPARE))
    scene.agent.kill()
    b.on("unprepare", "")
    before = len(b.begun(UNPREPARE))
    scene.agent.start()
    scene.reaches("pod", "Succeeded")
    assert len(b.begun(UNPREPARE)) > before
    assert b.ended(UNPREPARE, well=True)


@pytest.mark.long
def test_multiple_drivers_and_claims_are_asked_once_each_for_all_claims_of_a_pod(scene: Scene) -> None:
    a, b = two_drivers(scene)
    scene.claim("one", a, b)
    scene.claim("two", a)
    scene.pod("pod", "one", "two")
    scene.runs("pod")
    assert [sorted(entry["claims"]) for entry in a.ended(PREPARE, well=True)] == [["one", "two"]]
    assert [entry["claims"] for entry in b.ended(PREPARE, well=True)] == [["one"]]


@pytest.mark.long
def test_a_driver_that_answers_for_some_claims_only_is_asked_again(scene: Scene) -> None:
    driver = scene.driver()
    scene.claim("one", driver)
    scene.claim("two", driver)
    driver.on("prepare", "omit", "two")
    scene.pod("pod", "one", "two")
    wait_for("a call that leaves one out", lambda: driver.ended(PREPARE, well=True))
    assert scene.phase("pod") == "Pending"
    driver.on("prepare", "")
    scene.runs("pod")


@pytest.mark.parametrize("services", ["v1beta1.DRAPlugin", "v1.DRAPlugin"])
def test_a_driver_of_either_version_of_the_protocol_prepares(scene: Scene, services: str) -> None:
    driver = scene.driver(options=["--services", services])
    scene.pod_using("pod", driver)
    scene.runs("pod")
    assert {entry["service"] for entry in driver.begun(PREPARE)} == {services.partition(".")[0]}


@pytest.mark.long
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_driver_on_an_older_library_publishes_and_prepares(scene: Scene, version: str) -> None:
    driver = scene.driver(options=["--api", version, "--list-watch", "--services", "v1beta1.DRAPlugin"])
    driver.order(Orders(pools=POOLS, status=True))
    scene.pod_using("pod", driver)
    scene.runs("pod")
    used = {entry["path"].split("/")[3] for entry in driver.entries("HTTP") if entry["path"].startswith("/apis/")}
    assert used == {version}
    claim = scene.api.find(f"/apis/resource.k8s.io/v1/namespaces/{scene.namespace}/resourceclaims/pod") or {}
    assert [one["data"] for one in claim["status"]["devices"]] == [{"prepared": True}]


@pytest.mark.long
def test_a_container_gets_the_description_that_the_driver_wrote(scene: Scene) -> None:
    """KEP-5304: the library writes it, and names the CDI device that mounts it."""
    driver = scene.driver(options=["--describe"])
    uid = scene.claim("pod", driver)["metadata"]["uid"]
    scene.pod("pod", "pod")
    started = scene.agent.containers(scene.runs("pod")["metadata"]["uid"])
    assert started["main"]["cdiDevices"] == [f"{driver.name}/device={uid}-gpu-0", f"{driver.name}/metadata={uid}_a"]


# Instances -----------------------------------------------------------------------------------------------------------


def uids_of(slices: list[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["uid"] for one in slices]


def test_rolling_update(scene: Scene) -> None:
    old = scene.driver(uid="1").registered()
    before = uids_of(scene.published(old))
    new = scene.driver(uid="2").registered()
    old.stop()
    scene.pod_using("pod", new)
    scene.runs("pod")
    assert new.ended(PREPARE, well=True)
    assert uids_of(scene.slices(new)) == before


@pytest.mark.long
def test_failed_update(scene: Scene) -> None:
    old = scene.driver(uid="1").registered()
    before = uids_of(scene.published(old))
    new = scene.driver(uid="2").registered()
    new.kill()
    scene.pod_using("pod", old)
    scene.runs("pod")
    assert old.ended(PREPARE, well=True)
    assert uids_of(scene.slices(old)) == before


@pytest.mark.long
def test_sequential_update_with_pods_replacing_each_other(scene: Scene) -> None:
    old = scene.driver(uid="1").registered()
    before = uids_of(scene.published(old))
    scene.pod_using("first", old)
    scene.runs("first")
    old.stop()
    new = scene.driver(uid="2").registered()
    scene.delete_pod("first")
    scene.gone("first")
    scene.pod_using("second", new)
    scene.runs("second")
    assert new.ended(UNPREPARE, well=True)
    assert uids_of(scene.slices(new)) == before


# Health --------------------------------------------------------------------------------------------------------------


def health_of(scene: Scene, pod: str) -> list[tuple[str, str]]:
    """(health, message) of the resources of the pod's container."""
    found = scene.api.find(f"/api/v1/namespaces/{scene.namespace}/pods/{pod}") or {}
    [status] = found["status"]["containerStatuses"]
    reported = [one for group in status.get("allocatedResourcesStatus", ()) for one in group.get("resources", ())]
    return [(one["health"], one.get("message", "")) for one in reported]


@pytest.mark.long
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_reports_device_health_with_custom_messages(scene: Scene, version: str) -> None:
    driver = scene.driver(options=["--services", f"v1.DRAPlugin,{version}.DRAResourceHealth"])
    scene.pod_using("pod", driver)
    scene.runs("pod")
    for health, name, message in ((2, "Unhealthy", "ECC errors: 12"), (1, "Healthy", "")):
        driver.order(Orders(pools=POOLS, health=(Report(NODE, "gpu-0", health, message, 60),)))
        said = (name, message)
        wait_for(f"the health {name}", partial(lambda said: said in health_of(scene, "pod"), said))


# ResourceSlices ------------------------------------------------------------------------------------------------------


def test_must_manage_resource_slices(scene: Scene) -> None:
    driver = scene.driver().registered()
    [first] = scene.published(driver)
    assert first["metadata"]["ownerReferences"][0]["kind"] == "Node"

    driver.order(Orders(pools={NODE: (("gpu-0",), ("gpu-1", "gpu-2"))}))
    more = scene.published(driver, 2)
    assert [[device["name"] for device in one["spec"]["devices"]] for one in more] == [["gpu-0"], ["gpu-1", "gpu-2"]]
    assert more[0]["spec"]["pool"]["generation"] > first["spec"]["pool"]["generation"]

    # What somebody else deletes is published again, what somebody else changes is put right.
    scene.api.delete(f"{SLICES}/{more[0]['metadata']['name']}")
    wait_for("the slice to be back", lambda: len(scene.published(driver)) == 2 and scene.slices(driver) != more[1:])
    changed = scene.published(driver)[1]
    scene.api.put(f"{SLICES}/{changed['metadata']['name']}", {**changed, "spec": {**changed["spec"], "devices": []}})
    wait_for(
        "the devices to be back",
        lambda: [len(one["spec"].get("devices", ())) for one in scene.published(driver)] == [1, 2],
    )

    driver.order(Orders(pools={}))
    wait_for("no slices", lambda: not scene.slices(driver))


@pytest.fixture
def impatient(plugin_system: System) -> Iterator[System]:
    """An agent that removes the slices of a driver that is away at once."""
    plugin_system.agent.kill()
    plugin_system.agent.start(grace=0.5)
    yield plugin_system
    plugin_system.agent.kill()
    plugin_system.agent.start()


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_must_be_removed_after_plugin_unregistration(scene: Scene) -> None:
    driver = scene.driver().registered()
    scene.published(driver)
    driver.stop()
    wait_for("the slices to be removed", lambda: not scene.slices(driver))


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_must_be_removed_after_plugin_stops_responding(scene: Scene) -> None:
    driver = scene.driver().registered()
    scene.published(driver)
    driver.kill()
    wait_for("the slices to be removed", lambda: not scene.slices(driver))


@pytest.mark.long
def test_must_be_removed_on_kubelet_startup(scene: Scene) -> None:
    """Slices whose driver is gone for good; those of a driver that is there are published again by it."""
    driver = scene.driver().registered()
    scene.published(driver)
    scene.agent.kill()
    driver.kill()
    assert scene.slices(driver)
    scene.agent.start()
    wait_for("the slices to be removed", lambda: not scene.slices(driver))
