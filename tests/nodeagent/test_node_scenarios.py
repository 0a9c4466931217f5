"""Kubernetes' own scenarios of a node with DRA, under their names, as far as they need no plugin socket.

Source: kubernetes test/e2e_node/dra_test.go and test/e2e/dra/dra.go.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nodeagent.machine import Machine, RecordingDriver, release, run_pod
from tests.nodeagent.objects import NODE, claim, container, pod

NIC = "nic.example.com"


@pytest.fixture
def two_drivers(tmp_path: Path) -> Machine:
    second = RecordingDriver(NODE, name=NIC)
    node = Machine(tmp_path, drivers=[])
    node.drivers = [node.driver, second]
    node.restart()
    return node


def both(machine: Machine) -> tuple[RecordingDriver, RecordingDriver]:
    first, second = machine.drivers
    assert isinstance(first, RecordingDriver)
    assert isinstance(second, RecordingDriver)
    return first, second


def claim_of_both(*pods: str) -> dict[str, object]:
    document = claim("c", "gpu-0", "gpu-1", pods=pods)
    document["status"]["allocation"]["devices"]["results"][1]["driver"] = NIC
    return document


def test_must_process_pod_created_when_kubelet_is_not_running(machine: Machine) -> None:
    run_pod(machine)

    machine.restart()
    machine.settle()

    assert machine.condition("p", "Ready") == "True"
    machine.check_invariants()


def test_must_retry_node_prepare_resources(machine: Machine) -> None:
    machine.driver.fail("prepare", times=2, reason="device busy")
    run_pod(machine)

    machine.settle()

    assert machine.condition("p", "Ready") == "True"
    assert machine.driver.count("prepare") == 3
    expected = "Failed to prepare dynamic resources: ResourceClaim default/of-p: driver gpu.example.com: device busy"
    assert machine.events("FailedPrepareDynamicResources") == [expected]
    machine.check_invariants()


def test_must_keep_pod_pending_while_prepare_fails(machine: Machine) -> None:
    machine.driver.fail("prepare", times=1000)
    run_pod(machine)

    machine.look()
    machine.look()

    assert machine.pod("p")["status"]["phase"] == "Pending"
    assert machine.condition("p", "PodReadyToStartContainers") == "False"
    assert machine.cdi_files() == {}


def test_must_run_pod_if_unprepare_fails_then_succeeds(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    machine.driver.fail("unprepare", times=2, reason="still in use")

    machine.api.delete("pods", "p")
    assert any("still in use" in failure for failure in machine.look())
    assert machine.pod("p")["metadata"]["deletionTimestamp"], "the pod is held until its devices are given back"
    machine.settle()
    release(machine)

    assert machine.api.all("pods") == []
    machine.check_invariants()


def test_must_retry_prepare_after_kubelet_restart(machine: Machine) -> None:
    machine.driver.fail("prepare", times=1)
    run_pod(machine)
    machine.look()

    machine.restart()
    machine.settle()

    assert machine.condition("p", "Ready") == "True"
    machine.check_invariants()


def test_must_retry_unprepare_after_kubelet_restart(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    machine.driver.fail("unprepare", times=1)
    machine.api.delete("pods", "p")
    machine.look()

    machine.restart()
    machine.settle()
    release(machine)

    assert machine.api.all("pods") == []
    machine.check_invariants()


def test_must_call_unprepare_for_deleted_pod(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()

    machine.api.delete("pods", "p")
    machine.settle()
    release(machine)

    assert machine.driver.calls == [("prepare", ("of-p",)), ("unprepare", ("of-p",))]
    machine.check_invariants()


def test_must_call_unprepare_for_deleted_pod_after_kubelet_restart(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    machine.api.delete("pods", "p")

    machine.restart()
    machine.settle()
    release(machine)

    assert machine.driver.count("unprepare") == 1
    machine.check_invariants()


def test_must_not_call_prepare_for_deleted_pod_after_kubelet_restart(machine: Machine) -> None:
    machine.driver.fail("prepare", times=1)
    run_pod(machine)
    machine.look()
    prepares = machine.driver.count("prepare")
    machine.api.delete("pods", "p")

    machine.restart()
    machine.settle()

    assert machine.driver.count("prepare") == prepares
    assert machine.api.all("pods") == []


def test_must_unprepare_resources_for_force_deleted_pod(machine: Machine) -> None:
    """Also when it vanished while the agent was down."""
    run_pod(machine)
    machine.settle()

    machine.api.delete("pods", "p", grace=0)
    machine.restart()
    machine.settle()
    release(machine)

    assert machine.agent.runtime.pod_uids() == frozenset()
    machine.check_invariants()


def test_blocks_new_pod_after_force_delete(machine: Machine) -> None:
    """The device is free in the API, but the node still works on it for the pod before."""
    run_pod(machine)
    machine.settle()
    machine.driver.fail("unprepare", times=1, reason="slow")
    machine.api.delete("pods", "p", grace=0)
    machine.api.delete("resourceclaims", "of-p")
    run_pod(machine, "successor")
    woken: list[str] = []
    machine.agent.preparer.subscribe(woken.append)

    machine.look()
    assert machine.pod("successor")["status"]["phase"] == "Pending"
    assert woken == []
    expected = "device gpu.example.com/alpha/gpu-0 is still prepared for ResourceClaim default/of-p"
    assert expected in machine.events("FailedPrepareDynamicResources")[0]

    machine.settle()
    assert machine.condition("successor", "Ready") == "True"
    assert woken == ["uid-successor"], "it is looked at at once, not when its next attempt is due"
    machine.check_invariants()


def test_a_claim_replaced_by_one_of_the_same_name_waits_for_the_old_one(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    machine.driver.fail("unprepare", times=1)
    machine.api.delete("pods", "p", grace=0)
    machine.api.delete("resourceclaims", "of-p")
    machine.api.put("resourceclaims", claim("of-p", "gpu-5", pods=("uid-q",), uid="another"))
    machine.api.put("pods", pod("q", claims={"gpus": "of-p"}))

    machine.look()

    # In a kubelet's words, which upstream's own tests wait for.
    said = "old ResourceClaim with same name of-p and different UID claim-of-p still exists"
    assert said in machine.events("FailedPrepareDynamicResources")[0]
    machine.settle()
    machine.check_invariants()


def test_must_call_node_prepare_resources_even_if_not_used_by_any_container(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", container("main"), claims={"gpus": "c"}))

    machine.settle()

    assert machine.driver.calls == [("prepare", ("c",))]
    assert machine.devices("p") == ()
    machine.check_invariants()


def test_must_prepare_and_unprepare_two_plugins(two_drivers: Machine) -> None:
    two_drivers.api.put("resourceclaims", claim_of_both("uid-p"))
    two_drivers.api.put("pods", pod("p", claims={"gpus": "c"}))
    two_drivers.settle()

    assert sorted(two_drivers.cdi_files()) == [
        "k8s.gpu.example.com-claim_claim-c.json",
        "k8s.nic.example.com-claim_claim-c.json",
    ]
    assert len(two_drivers.devices("p")) == 2

    two_drivers.api.delete("pods", "p")
    two_drivers.settle()

    assert two_drivers.cdi_files() == {}
    assert [d.calls for d in both(two_drivers)] == [[("prepare", ("c",)), ("unprepare", ("c",))]] * 2


def test_must_run_pod_if_one_plugin_fails_prepare_then_succeeds(two_drivers: Machine) -> None:
    """What the other plugin did is undone in between: a claim is prepared as a whole or not at all."""
    first, second = both(two_drivers)
    second.fail("prepare", times=1)
    two_drivers.api.put("resourceclaims", claim_of_both("uid-p"))
    two_drivers.api.put("pods", pod("p", claims={"gpus": "c"}))

    two_drivers.look()
    assert two_drivers.cdi_files() == {}
    assert first.held == second.held == set()

    two_drivers.settle()
    assert two_drivers.condition("p", "Ready") == "True"
    assert first.held == second.held == {"claim-c"}


def test_must_run_pod_if_one_plugin_fails_unprepare_then_succeeds(two_drivers: Machine) -> None:
    first, second = both(two_drivers)
    two_drivers.api.put("resourceclaims", claim_of_both("uid-p"))
    two_drivers.api.put("pods", pod("p", claims={"gpus": "c"}))
    two_drivers.settle()
    second.fail("unprepare", times=1)

    two_drivers.api.delete("pods", "p")
    two_drivers.look()
    assert two_drivers.pod("p")
    two_drivers.settle()

    assert first.held == second.held == set()
    assert two_drivers.api.all("pods") == []
    assert two_drivers.cdi_files() == {}


def test_external_claim_referenced_by_multiple_pods(machine: Machine) -> None:
    """Prepared once, given back with the last pod, each pod sees the same device."""
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p", "uid-q")))
    machine.api.put("pods", pod("p", claims={"gpus": "c"}))
    machine.api.put("pods", pod("q", claims={"gpus": "c"}))
    machine.settle()
    assert machine.devices("p") == machine.devices("q")

    machine.api.delete("pods", "p")
    machine.settle()
    assert machine.driver.calls == [("prepare", ("c",))]
    assert machine.condition("q", "Ready") == "True"

    machine.api.delete("pods", "q")
    machine.settle()
    assert machine.driver.calls == [("prepare", ("c",)), ("unprepare", ("c",))]
    assert machine.cdi_files() == {}


def test_external_claim_referenced_by_multiple_containers(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", container("a", "g"), container("b", "g"), claims={"g": "c"}))

    machine.settle()

    assert machine.devices("p", "a") == machine.devices("p", "b") != ()
    assert machine.environment("p", "a") == machine.environment("p", "b")


def test_supports_init_containers_with_external_claims(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    document = pod("p", container("main"), claims={"g": "c"}, spec={"initContainers": [container("setup", "g")]})
    machine.api.put("pods", document)

    machine.settle()

    assert len(machine.devices("p", "setup")) == 1
    assert machine.devices("p", "main") == ()
    assert machine.condition("p", "Ready") == "True"


def test_removes_reservation_from_claim_when_pod_is_done(machine: Machine) -> None:
    """The node's part of it: the claim is given back before the pod is reported as done."""
    seen: list[int] = []
    machine.api.before = lambda request: (
        seen.append(len(machine.driver.held)) if request.url.path.endswith("/pods/p/status") else None
    )
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    done = {"annotations": {"manciple.dev/run-seconds": "5"}}
    machine.api.put("pods", pod("p", claims={"g": "c"}, metadata=done, spec={"restartPolicy": "Never"}))
    machine.settle()

    machine.clock.now += 5
    machine.settle()

    assert machine.pod("p")["status"]["phase"] == "Succeeded"
    assert seen == [1, 0]
    assert machine.cdi_files() == {}
    machine.check_invariants()
