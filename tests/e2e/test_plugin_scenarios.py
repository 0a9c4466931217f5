"""An independent driver against a node agent, each a process of its own: Kubernetes' node scenarios for DRA.

A test whose upstream scenario has a name carries it, "Kubelet" being our agent. Sources: kubernetes
test/e2e_node/dra_test.go and test/e2e/dra/dra.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.plugin_cluster import CALL_SECONDS, NODE, System, start_system
from tests.e2e.plugin_driver_process import PREPARE
from tests.e2e.plugin_scene import Scene
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    system = start_system(tmp_path_factory.mktemp("s"))
    yield system
    system.agent.stop()
    assert system.up.process.stop() == 0


@pytest.fixture(scope="module")
def drivers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: the compiled messages are kept in it."""
    return tmp_path_factory.mktemp("d")


@pytest.fixture
def scene(system: System, drivers_folder: Path) -> Iterator[Scene]:
    scene = Scene(system, drivers_folder)
    yield scene
    scene.end()


# Registration --------------------------------------------------------------------------------------------------------


def test_registers_plugin(scene: Scene) -> None:
    driver = scene.driver().registered()
    assert len(driver.entries("GetInfo")) == 1
    assert [one["spec"]["nodeName"] for one in scene.published(driver)] == [NODE]


def test_must_register_after_kubelet_restart(scene: Scene) -> None:
    driver = scene.driver().registered()
    scene.agent.kill()
    scene.agent.start()
    driver.registered(2)


def test_must_register_after_plugin_restart(scene: Scene) -> None:
    driver = scene.driver().registered()
    driver.stop()
    driver.start().registered(2)


@pytest.mark.parametrize("call", ["get_info", "notify"])
def test_a_registration_that_failed_is_tried_again(scene: Scene, call: str) -> None:
    driver = scene.driver()
    driver.on(call, "error")
    written = {"get_info": "GetInfo", "notify": "NotifyRegistrationStatus"}[call]
    wait_for("the refused call", lambda: driver.entries(written))
    driver.on(call, "")
    scene.pod_using("pod", driver)
    scene.runs("pod")


# Preparing -----------------------------------------------------------------------------------------------------------


def test_must_process_pod_created_when_kubelet_is_not_running(scene: Scene) -> None:
    driver = scene.driver().registered()
    scene.published(driver)
    scene.agent.stop()
    scene.pod_using("pod", driver)
    scene.bound("pod")
    scene.agent.start()
    scene.runs("pod")


def test_must_keep_pod_in_pending_state_if_node_prepare_resources_times_out(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("prepare", "hang")
    scene.pod_using("pod", driver)
    wait_for("a second call after the first timed out", lambda: len(driver.begun(PREPARE)) > 1, timeout=30)
    scene.says("pod", f"{CALL_SECONDS:g} s")
    assert scene.phase("pod") == "Pending"
    assert driver.ended(PREPARE, well=True) == []


@pytest.mark.parametrize("mode", ["error", "fail", "omit"])
def test_must_run_pod_if_node_prepare_resources_fails_and_then_succeeds(scene: Scene, mode: str) -> None:
    driver = scene.driver()
    driver.on("prepare", mode)
    scene.pod_using("pod", driver)
    scene.says("pod", driver.name)
    assert scene.phase("pod") == "Pending"
    driver.on("prepare", "")
    scene.runs("pod")


def test_must_retry_node_prepare_resources(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("prepare", "fail")
    scene.pod_using("pod", driver)
    wait_for("three attempts", lambda: len(driver.ended(PREPARE, well=False)) >= 3)
    driver.on("prepare", "")
    scene.runs("pod")
    assert len(driver.ended(PREPARE, well=True)) == 1


def test_must_retry_node_prepare_resources_after_kubelet_restart(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("prepare", "fail")
    scene.pod_using("pod", driver)
    wait_for("a failed call", lambda: driver.ended(PREPARE, well=False))
    scene.agent.stop()
    driver.on("prepare", "")
    scene.agent.start()
    scene.runs("pod")
