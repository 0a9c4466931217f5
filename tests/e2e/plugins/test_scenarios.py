"""An independent driver against a node agent, each a process of its own: Kubernetes' node scenarios for DRA.

A test whose upstream scenario has a name carries it, "Kubelet" being our agent. Sources: kubernetes
test/e2e_node/dra_test.go and test/e2e/dra/dra.go.
"""

from __future__ import annotations

import pytest

from tests.e2e.plugins.cluster import CALL_SECONDS, NODE
from tests.e2e.plugins.driver_process import PREPARE, UNPREPARE
from tests.e2e.plugins.scene import Scene
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.e2e


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


@pytest.mark.long
def test_must_register_after_plugin_restart(scene: Scene) -> None:
    driver = scene.driver().registered()
    driver.stop()
    driver.start().registered(2)


@pytest.mark.long
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


@pytest.mark.long
def test_must_process_pod_created_when_kubelet_is_not_running(scene: Scene) -> None:
    driver = scene.driver().registered()
    scene.published(driver)
    scene.agent.kill()
    scene.pod_using("pod", driver)
    scene.bound("pod")
    scene.agent.start()
    scene.runs("pod")


@pytest.mark.long
def test_must_keep_pod_in_pending_state_if_node_prepare_resources_times_out(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("prepare", "hang")
    scene.pod_using("pod", driver)
    wait_for("a second call after the first timed out", lambda: len(driver.begun(PREPARE)) > 1)
    scene.says("pod", f"{CALL_SECONDS:g} s")
    assert scene.phase("pod") == "Pending"
    assert driver.ended(PREPARE, well=True) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["error", "fail", "omit"])
def test_must_run_pod_if_node_prepare_resources_fails_and_then_succeeds(scene: Scene, mode: str) -> None:
    driver = scene.driver()
    driver.on("prepare", mode)
    scene.pod_using("pod", driver)
    scene.says("pod", driver.name)
    assert scene.phase("pod") == "Pending"
    driver.on("prepare", "")
    scene.runs("pod")


@pytest.mark.long
def test_must_retry_node_prepare_resources(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("prepare", "fail")
    scene.pod_using("pod", driver)
    wait_for("three attempts", lambda: len(driver.ended(PREPARE, well=False)) >= 3)
    driver.on("prepare", "")
    scene.runs("pod")
    assert len(driver.ended(PREPARE, well=True)) == 1


@pytest.mark.long
def test_must_retry_node_prepare_resources_after_kubelet_restart(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("prepare", "fail")
    scene.pod_using("pod", driver)
    wait_for("a failed call", lambda: driver.ended(PREPARE, well=False))
    scene.agent.kill()
    driver.on("prepare", "")
    scene.agent.start()
    scene.runs("pod")


@pytest.mark.long
def test_must_not_run_a_pod_if_a_claim_is_not_ready(scene: Scene) -> None:
    driver = scene.driver().registered()
    scene.claim("claim", driver)
    # Bound by hand, past the scheduler: nobody allocates the claim, nobody reserves it for the pod.
    scene.pod("pod", "claim", node=NODE)
    scene.says("pod", "claim")
    assert scene.phase("pod") == "Pending"
    assert driver.begun(PREPARE) == []


@pytest.mark.long
def test_must_call_node_prepare_resources_even_if_not_used_by_any_container(scene: Scene) -> None:
    driver = scene.driver()
    claim = scene.claim("claim", driver)
    scene.pod("pod", "claim", containers=[{"name": "main"}])
    scene.runs("pod")
    assert [entry["uids"] for entry in driver.ended(PREPARE, well=True)] == [[claim["metadata"]["uid"]]]


@pytest.mark.long
def test_runs_pod_after_driver_starts(scene: Scene) -> None:
    driver = scene.driver()
    scene.published(driver)
    driver.kill()
    scene.pod_using("pod", driver)
    scene.says("pod", driver.name)
    assert scene.phase("pod") == "Pending"
    driver.start()
    scene.runs("pod")


def test_must_map_configs_and_devices_to_the_right_containers(scene: Scene) -> None:
    a, b = scene.driver("a"), scene.driver("b")
    config = [
        {"requests": [driver.name[0]], "opaque": {"driver": driver.name, "parameters": {"mode": mode}}}
        for driver, mode in ((a, "fast"), (b, "slow"))
    ]
    uid = scene.claim("claim", a, b, config=config)["metadata"]["uid"]
    scene.pod(
        "pod",
        "claim",
        containers=[
            {"name": "first", "resources": {"claims": [{"name": "claim", "request": "a"}]}},
            {"name": "second", "resources": {"claims": [{"name": "claim", "request": "b"}]}},
            {"name": "both", "resources": {"claims": [{"name": "claim"}]}},
            {"name": "neither"},
        ],
    )
    started = scene.agent.containers(scene.runs("pod")["metadata"]["uid"])
    of_a, of_b = f"{a.name}/device={uid}-gpu-0", f"{b.name}/device={uid}-gpu-0"
    assert {name: sorted(one["cdiDevices"]) for name, one in started.items()} == {
        "first": [of_a],
        "second": [of_b],
        "both": [of_a, of_b],
        "neither": [],
    }
    fast = {"DEVICE_a": f"{NODE}/gpu-0", "a_mode": "fast"}
    slow = {"DEVICE_b": f"{NODE}/gpu-0", "b_mode": "slow"}
    wanted = {"first": fast, "second": slow, "both": fast | slow, "neither": {}}
    found = {
        name: {key: value for key, value in one["environment"].items() if key.startswith(("DEVICE_", "a_", "b_"))}
        for name, one in started.items()
    }
    assert found == wanted


# Unpreparing ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("mode", ["error", "fail", "omit"])
def test_must_run_pod_if_node_unprepare_resources_fails_and_then_succeeds(scene: Scene, mode: str) -> None:
    driver = scene.driver()
    driver.on("unprepare", mode)
    scene.pod_using("pod", driver, seconds=0)
    wait_for("two attempts", lambda: len(driver.begun(UNPREPARE)) > 1)
    assert scene.phase("pod") != "Succeeded"
    driver.on("unprepare", "")
    scene.reaches("pod", "Succeeded")
    assert scene.cdi_files() == []


@pytest.mark.long
def test_must_retry_node_unprepare_resources_after_kubelet_restart(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("unprepare", "fail")
    scene.pod_using("pod", driver, seconds=0)
    wait_for("a failed call", lambda: driver.ended(UNPREPARE, well=False))
    scene.agent.kill()
    driver.on("unprepare", "")
    scene.agent.start()
    scene.reaches("pod", "Succeeded")
    assert driver.ended(UNPREPARE, well=True)


def test_must_call_node_unprepare_resources_for_deleted_pod(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("unprepare", "fail")
    scene.pod_using("pod", driver)
    scene.runs("pod")
    scene.delete_pod("pod")
    wait_for("a failed call", lambda: driver.ended(UNPREPARE, well=False))
    assert scene.phase("pod") != "gone"
    driver.on("unprepare", "")
    scene.gone("pod")
    assert driver.ended(UNPREPARE, well=True)


@pytest.mark.long
def test_must_call_node_unprepare_resources_for_deleted_pod_after_kubelet_restart(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("unprepare", "fail")
    scene.pod_using("pod", driver)
    scene.runs("pod")
    scene.delete_pod("pod")
    wait_for("a failed call", lambda: driver.ended(UNPREPARE, well=False))
    scene.agent.kill()
    driver.on("unprepare", "")
    scene.agent.start()
    scene.gone("pod")
    assert driver.ended(UNPREPARE, well=True)


@pytest.mark.long
def test_must_not_call_node_prepare_resources_for_deleted_pod_after_kubelet_restart(scene: Scene) -> None:
    driver = scene.driver()
    driver.on("prepare", "fail")
    scene.pod_using("gone", driver)
    wait_for("a failed call", lambda: driver.ended(PREPARE, well=False))
    scene.agent.kill()
    scene.delete_pod("gone", grace=0)
    scene.delete_claim("gone")
    before = len(driver.begun(PREPARE))
    driver.on("prepare", "")
    scene.agent.start()
    scene.pod_using("next", driver)
    scene.runs("next")
    assert [entry["claims"] for entry in driver.begun(PREPARE)[before:]] == [["next"]]


def test_must_unprepare_resources_for_force_deleted_pod(scene: Scene) -> None:
    driver = scene.driver()
    scene.pod_using("pod", driver)
    scene.runs("pod")
    scene.delete_pod("pod", grace=0)
    wait_for("unprepare", lambda: driver.ended(UNPREPARE, well=True))
    wait_for("the record to be removed", lambda: not scene.agent.prepared())
    assert scene.cdi_files() == []


@pytest.mark.long
def test_blocks_new_pod_after_force_delete(scene: Scene) -> None:
    driver = scene.driver(pools={NODE: (("only",),)})
    driver.on("unprepare", "fail")
    scene.pod_using("first", driver)
    scene.runs("first")
    scene.delete_pod("first", grace=0)
    scene.delete_claim("first")
    scene.pod_using("second", driver)
    scene.bound("second")
    before = len(driver.begun(UNPREPARE))
    wait_for("more attempts to give the device back", lambda: len(driver.begun(UNPREPARE)) > before + 1)
    assert scene.phase("second") == "Pending"
    assert [entry["claims"] for entry in driver.begun(PREPARE)] == [["first"]]
    driver.on("unprepare", "")
    scene.runs("second")
