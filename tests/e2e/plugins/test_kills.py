"""kill -9 of the driver, of the agent, and of both, at every step of a pod's way: nothing is lost, nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.e2e.plugins.driver_process import PREPARE, UNPREPARE, DriverProcess
from tests.e2e.plugins.scene import Scene
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.e2e

CALLS = {"prepare": PREPARE, "unprepare": UNPREPARE}


def kill_driver(scene: Scene) -> None:
    scene.drivers[0].kill()


def kill_agent(scene: Scene) -> None:
    scene.agent.kill()


VICTIMS: dict[str, Sequence[Callable[[Scene], None]]] = {
    "the driver": (kill_driver,),
    "the agent": (kill_agent,),
    "both": (kill_agent, kill_driver),
}


def back_again(scene: Scene, driver: DriverProcess) -> None:
    """Start again whatever does not run, with nothing wrong any more."""
    for kind in CALLS:
        driver.on(kind, "")
    if driver.died():
        driver.start()
    if not scene.agent.process.running:
        scene.agent.start()


def runs_and_goes(scene: Scene, pod: str) -> None:
    """It ends well: the pod runs with its device, is deleted, and the device is given back."""
    uid = scene.runs(pod)["metadata"]["uid"]
    [device] = scene.agent.containers(uid)["main"]["cdiDevices"]
    assert len(scene.cdi_files()) == 1
    assert device.endswith("-gpu-0")
    scene.delete_pod(pod)
    scene.gone(pod)
    wait_for("the record to be removed", lambda: not scene.agent.prepared())
    assert scene.cdi_files() == []


@pytest.mark.long
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_before_prepare(scene: Scene, victim: str) -> None:
    driver = scene.driver().registered()
    scene.published(driver)
    for kill in VICTIMS[victim]:
        kill(scene)
    scene.pod_using("pod", driver)
    scene.bound("pod")
    back_again(scene, driver)
    runs_and_goes(scene, "pod")


@pytest.mark.sample(1)
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_in_prepare(scene: Scene, victim: str) -> None:
    driver = scene.driver()
    driver.on("prepare", "hang")
    scene.pod_using("pod", driver)
    wait_for("the call to begin", lambda: driver.begun(PREPARE))
    for kill in VICTIMS[victim]:
        kill(scene)
    back_again(scene, driver)
    runs_and_goes(scene, "pod")


@pytest.mark.long
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_after_prepare(scene: Scene, victim: str) -> None:
    driver = scene.driver()
    scene.pod_using("pod", driver)
    uid = scene.runs("pod")["metadata"]["uid"]
    before = scene.agent.containers(uid)["main"]
    for kill in VICTIMS[victim]:
        kill(scene)
    back_again(scene, driver)
    driver.registered(2)
    scene.pod_using("next", driver)
    scene.runs("next")  # by now the agent has looked at everything
    assert scene.agent.containers(uid)["main"] == before, "the container was started again"
    scene.delete_pod("next")
    scene.gone("next")
    runs_and_goes(scene, "pod")


@pytest.mark.long
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_in_unprepare(scene: Scene, victim: str) -> None:
    driver = scene.driver()
    driver.on("unprepare", "hang")
    scene.pod_using("pod", driver)
    scene.runs("pod")
    scene.delete_pod("pod")
    wait_for("the call to begin", lambda: driver.begun(UNPREPARE))
    for kill in VICTIMS[victim]:
        kill(scene)
    back_again(scene, driver)
    scene.gone("pod")
    assert driver.ended(UNPREPARE, well=True)
    scene.pod_using("next", driver)
    runs_and_goes(scene, "next")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["crash-before", "crash-after"])
def test_a_driver_that_ends_in_prepare_is_asked_again(scene: Scene, mode: str) -> None:
    """Before it has done anything, and when all is done but the answer."""
    driver = scene.driver()
    driver.on("prepare", mode)
    scene.pod_using("pod", driver)
    wait_for("the driver to end", driver.died)
    back_again(scene, driver)
    runs_and_goes(scene, "pod")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["crash-before", "crash-after"])
def test_a_driver_that_ends_in_unprepare_is_asked_again(scene: Scene, mode: str) -> None:
    driver = scene.driver()
    driver.on("unprepare", mode)
    scene.pod_using("pod", driver, seconds=0)
    wait_for("the driver to end", driver.died)
    assert scene.phase("pod") != "Succeeded"
    back_again(scene, driver)
    scene.reaches("pod", "Succeeded")
    assert driver.ended(UNPREPARE, well=True)


@pytest.mark.long
def test_a_pod_force_deleted_while_both_are_down_leaves_nothing(scene: Scene) -> None:
    driver = scene.driver()
    scene.pod_using("pod", driver)
    scene.runs("pod")
    for kill in VICTIMS["both"]:
        kill(scene)
    scene.delete_pod("pod", grace=0)
    scene.delete_claim("pod")
    back_again(scene, driver)
    wait_for("unprepare", lambda: driver.ended(UNPREPARE, well=True))
    wait_for("the record to be removed", lambda: not scene.agent.prepared())
    assert scene.cdi_files() == []
