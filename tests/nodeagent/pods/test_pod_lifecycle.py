"""Containers start, end, restart and stop as the pod says, and the pod's status tells it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from nodeagent.api.client import Client
from nodeagent.failures import ApiFailure
from nodeagent.pods.worker import Observed, pod_status
from nodeagent.runtimes.image_keys import PullKeys
from nodeagent.runtimes.protocol import PULLING, ContainerRequest, ContainerRun, Happening, Role
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import Document, claim, container, pod


def short(seconds: float = 5, code: int = 0) -> dict[str, Any]:
    return {"annotations": {"manciple.dev/run-seconds": str(seconds), "manciple.dev/exit-code": str(code)}}


def statuses(machine: Machine, name: str = "p", of: str = "containerStatuses") -> dict[str, Any]:
    return {status["name"]: status for status in machine.pod(name)["status"].get(of, [])}


def wait(machine: Machine, seconds: float) -> None:
    machine.clock.now += seconds
    machine.settle()


def test_a_pod_runs_until_it_is_deleted(machine: Machine) -> None:
    machine.api.put("pods", pod("p"))
    machine.settle()
    wait(machine, 10_000)

    status = machine.pod("p")["status"]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.")
    assert status["hostIP"] == "127.0.0.1"
    assert status["startTime"] == "2027-01-15T08:00:00Z"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
    (main,) = statuses(machine).values()
    assert (main["ready"], main["started"], main["restartCount"]) == (True, True, 0)

    machine.api.delete("pods", "p")
    machine.settle()
    assert machine.api.all("pods") == []
    assert machine.agent.runtime.pod_uids() == frozenset()


def test_a_quiet_node_writes_nothing(machine: Machine) -> None:
    machine.api.put("pods", pod("p"))
    machine.settle()
    before = machine.api.revision

    wait(machine, 3600)

    assert machine.api.revision == before


ENDINGS = {
    "Never, well": ("Never", 0, "Succeeded"),
    "Never, badly": ("Never", 3, "Failed"),
    "OnFailure, well": ("OnFailure", 0, "Succeeded"),
    "OnFailure, badly": ("OnFailure", 3, "Running"),
    "Always, well": ("Always", 0, "Running"),
    "Always, badly": ("Always", 3, "Running"),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_the_restart_policy_says_whether_a_container_starts_again(machine: Machine, case: str) -> None:
    policy, code, phase = ENDINGS[case]
    machine.api.put("pods", pod("p", metadata=short(5, code), spec={"restartPolicy": policy}))
    machine.settle()

    wait(machine, 5)

    (main,) = statuses(machine).values()
    assert machine.pod("p")["status"]["phase"] == phase
    if phase == "Running":
        assert main["restartCount"] == 1
        assert main["state"]["running"]
        assert main["lastState"]["terminated"]["exitCode"] == code
    else:
        assert main["restartCount"] == 0
        assert main["state"]["terminated"]["exitCode"] == code
        assert machine.condition("p", "Ready") == "False"


def test_restarts_wait_longer_each_time(machine: Machine) -> None:
    machine.api.put("pods", pod("p", metadata=short(1, 1)))
    machine.settle()
    wait(machine, 1)
    assert statuses(machine)["main"]["restartCount"] == 1

    wait(machine, 1)
    main = statuses(machine)["main"]
    assert main["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert main["lastState"]["terminated"]["exitCode"] == 1
    assert machine.condition("p", "Ready") == "False"
    wait(machine, 9)
    assert statuses(machine)["main"]["restartCount"] == 1
    wait(machine, 1)
    assert statuses(machine)["main"]["restartCount"] == 2
    wait(machine, 1 + 19)
    assert statuses(machine)["main"]["restartCount"] == 2
    wait(machine, 1)
    assert statuses(machine)["main"]["restartCount"] == 3


def test_a_restart_in_the_past_is_not_forgotten_by_a_new_agent(machine: Machine) -> None:
    machine.api.put("pods", pod("p", metadata=short(1, 1)))
    machine.settle()
    machine.clock.now += 100

    machine.restart()
    machine.settle()

    assert statuses(machine)["main"]["restartCount"] == 1


def test_init_containers_run_in_order_before_the_others(machine: Machine) -> None:
    inits = [container("first"), container("second")]
    machine.api.put("pods", pod("p", container("main"), spec={"initContainers": inits}))

    machine.settle()

    runs = machine.agent.runtime.runs("uid-p")
    assert list(runs) == ["first", "second", "main"]
    assert {name: s["state"].keys() for name, s in statuses(machine, of="initContainerStatuses").items()} == {
        "first": {"terminated"},
        "second": {"terminated"},
    }
    assert machine.condition("p", "Initialized") == "True"
    assert machine.condition("p", "Ready") == "True"


def test_a_sidecar_stays_up_and_keeps_no_pod_alive(machine: Machine) -> None:
    sidecar = container("proxy", restartPolicy="Always")
    document = pod("p", metadata=short(5), spec={"restartPolicy": "Never", "initContainers": [sidecar]})
    machine.api.put("pods", document)
    machine.settle()
    assert statuses(machine, of="initContainerStatuses")["proxy"]["state"]["running"]

    wait(machine, 5)

    assert machine.pod("p")["status"]["phase"] == "Succeeded"
    assert statuses(machine, of="initContainerStatuses")["proxy"]["state"]["terminated"]


def run(name: str, role: Role, code: int | None) -> ContainerRun:
    """code: of one that has ended."""
    return ContainerRun(
        name=name,
        role=role,
        attempt=0,
        container_id="",
        image="i",
        cdi_devices=(),
        environment={},
        claims=(),
        started_at=0.0,
        finished_at=None if code is None else 1.0,
        exit_code=code or 0,
    )


#: What ran before the pod ended -> (whether it was initialized, the state of `main`)
ENDED_EARLY: dict[str, tuple[list[ContainerRun], str, str]] = {
    "nothing": ([], "False", "PodInitializing"),
    "an init container that failed": ([run("first", "init", 3)], "False", "PodInitializing"),
    "the first of two": ([run("first", "init", 0)], "False", "PodInitializing"),
    "a last one that failed": ([run("first", "init", 0), run("last", "init", 1)], "False", "PodInitializing"),
    "all of them": ([run("first", "init", 0), run("last", "init", 0)], "True", "ContainerStatusUnknown"),
    "the other main container": ([run("other", "main", 1)], "True", "ContainerStatusUnknown"),
}


@pytest.mark.parametrize("case", ENDED_EARLY)
def test_a_container_that_was_not_due_when_its_pod_ended_has_not_failed(case: str) -> None:
    """A Job's podFailurePolicy would count an exit code of it."""
    runs, initialized, reason = ENDED_EARLY[case]
    spec = {"initContainers": [container("first"), container("last")]}
    document = msgspec.convert(pod("p", container("main"), container("other"), spec=spec), Pod)

    seen = Observed(runs={one.name: one for one in runs}, ending="Failed")
    status = pod_status(document, seen, host_ip="192.0.2.1", now=2.0)

    assert {c.type: c.status for c in status.conditions}["Initialized"] == initialized
    state = status.container_statuses[0].state
    assert reason == (state.waiting or state.terminated).reason  # type: ignore[union-attr]


def test_a_container_that_cannot_start_says_why(machine: Machine) -> None:
    machine.api.put("pods", pod("p", metadata={"annotations": {"manciple.dev/run-seconds": "soon"}}))

    machine.look()

    waiting = statuses(machine)["main"]["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerError"
    assert "manciple.dev/run-seconds" in waiting["message"]
    assert "manciple.dev/run-seconds" in machine.events("Failed")[0]


@pytest.mark.parametrize("policy", ["Always", "Never"])
def test_a_container_whose_image_is_changed_is_restarted_with_it(machine: Machine, policy: str) -> None:
    """As `kubectl set image pod/p` has it, whatever the policy says of ends; those that have done their work stay."""
    spec = {
        "restartPolicy": policy,
        "initContainers": [container("first"), container("side", restartPolicy="Always")],
        "terminationGracePeriodSeconds": 1,
    }
    machine.api.put("pods", pod("p", container("main"), container("other"), spec=spec))
    machine.settle()

    document = machine.pod("p")
    for one in (*document["spec"]["initContainers"], document["spec"]["containers"][0]):
        one["image"] = "new:2"
    machine.api.put("pods", document)
    machine.settle()

    found = {**statuses(machine), **statuses(machine, of="initContainerStatuses")}
    restarts = {name: (one["restartCount"], one["image"] == "new:2") for name, one in found.items()}
    assert restarts == {"first": (0, False), "side": (1, True), "main": (1, True), "other": (0, False)}
    assert "running" in found["main"]["state"]
    assert machine.pod("p")["status"]["phase"] == "Running"
    assert set(machine.events("Killing")) == {
        f"Container {name} definition changed, will be restarted" for name in ("main", "side")
    }


@pytest.mark.parametrize("reachable", [True, False])
def test_that_an_image_is_pulled_is_told_before_it_has_been(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, reachable: bool
) -> None:
    """An image of a laboratory takes minutes, and the pull waits for no API server."""
    runtime: Any = machine.agent.runtime
    start, meanwhile = runtime.start, list[Any]()

    def pull(request: ContainerRequest, keys: PullKeys) -> None:
        with monkeypatch.context() as patched:
            if not reachable:
                patched.setattr(Client, "update", fail)
            runtime._happened(request.pod_uid, Happening(request.name, PULLING, "Pulling image i"))
        meanwhile.append((machine.events(PULLING), machine.pod("p")["status"]))
        start(request, keys)

    def fail(*_: Any, **__: Any) -> None:
        raise ApiFailure("nobody there", code=503, reason="ServiceUnavailable")

    monkeypatch.setattr(runtime, "start", pull)
    machine.api.put("pods", pod("p"))
    machine.settle()

    ((events, status),) = meanwhile
    assert events == ["Pulling image i"]
    assert bool(status.get("startTime")) == reachable
    if reachable:
        (shown,) = status["containerStatuses"]
        assert (status["phase"], shown["state"]) == ("Pending", {"waiting": {"reason": "ContainerCreating"}})
    assert machine.condition("p", "Ready") == "True"


def test_a_finished_pod_is_kept_until_it_is_deleted(machine: Machine) -> None:
    machine.api.put("pods", pod("p", metadata=short(0), spec={"restartPolicy": "Never"}))
    machine.settle()
    machine.restart()
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Succeeded"
    assert machine.agent.runtime.pod_uids() == {"uid-p"}

    machine.api.delete("pods", "p")
    machine.settle()

    assert machine.api.all("pods") == []
    assert machine.agent.runtime.pod_uids() == frozenset()


def test_a_deleted_pod_that_somebody_holds_is_seen_as_ended(machine: Machine) -> None:
    machine.api.put("pods", pod("p", metadata={"finalizers": ["example.com/hold"]}))
    machine.settle()

    machine.api.delete("pods", "p")
    machine.settle()

    assert machine.pod("p")["status"]["phase"] == "Failed"  # it was stopped before it was done
    assert statuses(machine)["main"]["state"]["terminated"]["exitCode"] == 143


def test_a_new_pod_of_an_old_name_is_another_pod(machine: Machine) -> None:
    machine.api.put("pods", pod("p"))
    machine.settle()
    machine.api.delete("pods", "p", grace=0)
    machine.api.put("pods", pod("p", metadata={"uid": "uid-new"}))

    machine.settle()

    assert machine.agent.runtime.pod_uids() == {"uid-new"}
    assert machine.condition("p", "Ready") == "True"


def test_what_others_write_into_the_status_stays(machine: Machine) -> None:
    machine.api.put("pods", pod("p"))
    machine.settle()
    document = machine.pod("p")
    document["status"]["conditions"].append({"type": "example.com/checked", "status": "True"})
    document["status"]["resourceClaimStatuses"] = [{"name": "x", "resourceClaimName": "y"}]
    del document["status"]["conditions"][1]
    machine.api.put("pods", document)

    machine.settle()

    status = machine.pod("p")["status"]
    assert machine.condition("p", "example.com/checked") == "True"
    assert machine.condition("p", "PodScheduled") == "True"
    assert machine.condition("p", "PodReadyToStartContainers") == "True"
    assert status["resourceClaimStatuses"] == [{"name": "x", "resourceClaimName": "y"}]


def test_a_readiness_gate_keeps_the_pod_from_being_ready(machine: Machine) -> None:
    document = pod("p", spec={"readinessGates": [{"conditionType": "example.com/open"}]})
    machine.api.put("pods", document)
    machine.settle()
    assert machine.condition("p", "ContainersReady") == "True"
    assert machine.condition("p", "Ready") == "False"

    document = machine.pod("p")
    document["status"]["conditions"].append({"type": "example.com/open", "status": "True"})
    machine.api.put("pods", document)
    machine.settle()

    assert machine.condition("p", "Ready") == "True"


def test_reports_device_health_with_custom_messages(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0", "gpu-1", pods=("uid-p",)))
    machine.api.put("pods", pod("p", container("all", "g"), container("one", "g/gpu1"), claims={"g": "c"}))
    machine.settle()

    machine.driver.report_health("gpu-1", "Unhealthy", "ECC error on bank 3")
    machine.settle()

    prefix = "k8s.gpu.example.com/claim=claim-c-gpu"
    sick = {"resourceID": f"{prefix}-1", "health": "Unhealthy", "message": "ECC error on bank 3"}
    reported = {name: s["allocatedResourcesStatus"] for name, s in statuses(machine).items()}
    assert reported == {
        "all": [{"name": "claim:g", "resources": [{"resourceID": f"{prefix}-0", "health": "Healthy"}, sick]}],
        "one": [{"name": "claim:g/gpu1", "resources": [sick]}],
    }


def test_the_health_of_a_device_of_which_the_driver_says_nothing_is_unknown(machine: Machine) -> None:
    machine.driver.health = lambda: ()  # type: ignore[method-assign]
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", container("main", "g"), claims={"g": "c"}))
    machine.settle()

    unknown = {"resourceID": "k8s.gpu.example.com/claim=claim-c-gpu-0", "health": "Unknown"}
    assert statuses(machine)["main"]["allocatedResourcesStatus"] == [{"name": "claim:g", "resources": [unknown]}]


def test_containers_see_their_environment_and_their_pod(machine: Machine) -> None:
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    machine.api.put("pods", pod("p", container("main", env=env)))

    machine.settle()

    assert machine.environment("p") == {"PLAIN": "x", "POD": "p", "NODE": "alpha"}


def test_a_pod_that_runs_longer_than_it_may_is_stopped_and_gives_its_devices_back(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", claims={"gpu": "c"}, spec={"activeDeadlineSeconds": 60}))
    machine.settle()
    assert machine.driver.held == {"claim-c"}

    wait(machine, 59)
    assert machine.pod("p")["status"]["phase"] == "Running"

    wait(machine, 1)
    status = machine.pod("p")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert machine.driver.held == set()


def test_a_pod_for_another_system_is_not_run(machine: Machine) -> None:
    machine.api.put("pods", pod("p", spec={"os": {"name": "windows"}}))
    machine.settle()
    status = machine.pod("p")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "PodOSNotSupported")
    assert "containerStatuses" not in status  # kubectl would show these instead of the reason
    assert machine.agent.runtime.runs("uid-p") == {}
    assert machine.events("PodOSNotSupported") == ["Failed to admit pod as the OS field doesn't match node OS"]


def asking(name: str, *, scheduled: bool = True, **requests: str) -> Document:
    """scheduled: it got its node after its creation."""
    document = pod(name, container("main", resources={"requests": requests}))
    return document if scheduled else document | {"status": {"phase": "Pending"}}


@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize(
    ("requests", "reason", "message"),
    [
        ({"cpu": "9"}, "OutOfcpu", "cpu, requested: 9000, used: 1000, capacity: 8000"),
        ({"cpu": "7001m"}, "OutOfcpu", "cpu, requested: 7001, used: 1000, capacity: 8000"),
        ({"memory": "1Ei"}, "OutOfmemory", "memory, requested: 1152921504606846976, used: 0, capacity: 17179869184"),
    ],
)
def test_a_pod_that_was_bound_past_the_scheduler_is_refused_where_it_does_not_fit(
    machine: Machine, requests: dict[str, str], reason: str, message: str, scheduled: bool
) -> None:
    machine.api.put("pods", asking("first", cpu="1"))
    machine.settle()

    machine.api.put("pods", asking("p", scheduled=scheduled, **requests))
    machine.settle()

    status = machine.pod("p")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert "containerStatuses" not in status
    assert machine.agent.runtime.runs("uid-p") == {}
    assert machine.events(reason) == [f"Node didn't have enough resource: {message}"]
    assert machine.pod("first")["status"]["phase"] == "Running"


def test_of_pods_that_come_at_once_those_that_the_scheduler_placed_have_the_room(machine: Machine) -> None:
    machine.api.put("pods", asking("a", scheduled=False, cpu="3"))
    machine.api.put("pods", asking("b", cpu="6"))
    machine.api.put("pods", asking("c", scheduled=False, cpu="2"))
    machine.settle()
    phases = {name: machine.pod(name)["status"]["phase"] for name in ("a", "b", "c")}
    assert phases == {"a": "Failed", "b": "Running", "c": "Running"}


def test_no_more_pods_run_than_the_node_takes(machine: Machine) -> None:
    for number in range(112):
        machine.api.put("pods", asking(f"p{number}"))
    machine.settle()
    reasons = [machine.pod(f"p{number}")["status"].get("reason", "") for number in range(112)]
    assert (reasons.count(""), reasons.count("OutOfpods")) == (110, 2)


def test_a_pod_that_runs_stays_when_its_agent_starts_again_on_a_smaller_node(machine: Machine) -> None:
    machine.api.put("pods", asking("p", cpu="6"))
    machine.settle()
    machine.cpu = "4"
    machine.restart()
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Running"


def test_the_agent_looks_at_a_pod_when_its_deadline_comes(machine: Machine) -> None:
    machine.api.put("pods", pod("p", spec={"activeDeadlineSeconds": 60}))
    machine.settle()

    (again,) = {machine.agent.work(key) for key in machine.agent.everything() if key.kind == "pod"}

    assert again == 60
