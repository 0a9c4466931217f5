"""Running containers get the cpu and memory that their pod asks for now; containers for debugging join them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manciple.wire.quantity import Quantity
from nodeagent.failures import ContainerFailed
from nodeagent.pods.worker import RETRY_SECONDS
from nodeagent.runtimes.protocol import Limits, Runtime
from nodeagent.work import Key
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import container, pod
from tests.nodeagent.pods.test_pod_lifecycle import statuses


class StubbornRuntime:
    """Simulated containers that cannot be resized while `refuses`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.refuses = False
        self.asked: list[tuple[str, Limits]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def resize(self, _uid: str, name: str, limits: Limits) -> None:
        if self.refuses:
            raise ContainerFailed("the kernel says no")
        self.asked.append((name, limits))

    def resize_pod(self, uid: str, limits: Limits) -> None:
        self.resize(uid, "", limits)


@pytest.fixture
def stubborn(tmp_path: Path) -> tuple[Machine, StubbornRuntime]:
    made: list[StubbornRuntime] = []

    def wrapped(runtime: Runtime) -> Any:
        made.append(StubbornRuntime(runtime))
        return made[-1]

    machine = Machine(tmp_path, wrapped=wrapped)
    machine.start()
    return machine, made[-1]


def limits_of(resources: dict[str, Any]) -> Limits:
    amounts = {(which, name): Quantity.parse(text) for which in resources for name, text in resources[which].items()}
    none = Quantity(0)
    return Limits(
        cpu_millis=amounts.get(("limits", "cpu"), none).milli_value(),
        cpu_request_millis=amounts.get(("requests", "cpu"), none).milli_value(),
        memory_bytes=amounts.get(("limits", "memory"), none).as_int64_ceil(),
    )


def asking(cpu: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}


def resize_to(machine: Machine, cpu: str) -> None:
    document = machine.pod("p")
    document["spec"]["containers"][0]["resources"] = asking(cpu)
    machine.api.put("pods", document)
    machine.settle()


def test_a_resize_is_followed_and_told(stubborn: tuple[Machine, StubbornRuntime]) -> None:
    machine, runtime = stubborn
    machine.api.put("pods", pod("p", container("main", resources=asking("100m"))))
    machine.settle()
    assert statuses(machine)["main"]["resources"] == asking("100m")

    resize_to(machine, "300m")

    assert runtime.asked == [("main", limits_of(asking("300m")))]
    (main,) = statuses(machine).values()
    assert (main["resources"], main["allocatedResources"]) == (asking("300m"), asking("300m")["requests"])
    assert main["restartCount"] == 0


def test_a_container_that_cannot_be_resized_keeps_what_it_has_and_says_so(
    stubborn: tuple[Machine, StubbornRuntime],
) -> None:
    machine, runtime = stubborn
    machine.api.put("pods", pod("p", container("main", resources=asking("100m"))))
    machine.settle()
    runtime.refuses = True

    resize_to(machine, "300m")

    assert statuses(machine)["main"]["resources"] == asking("100m")
    assert machine.events("ResizeError") == ["container main keeps its resources: the kernel says no"]


def test_a_container_for_debugging_runs_once_beside_the_others(machine: Machine) -> None:
    machine.api.put("pods", pod("p"))
    machine.settle()
    document = machine.pod("p")
    document["spec"]["ephemeralContainers"] = [container("debug")]
    machine.api.put("pods", document)
    machine.settle()

    added = statuses(machine, of="ephemeralContainerStatuses")
    assert "running" in added["debug"]["state"]
    assert (added["debug"]["ready"], added["debug"].get("started")) == (False, None)  # as a kubelet says
    assert statuses(machine)["main"]["ready"]
    assert machine.pod("p")["status"]["phase"] == "Running"


def conditions(machine: Machine, name: str = "p") -> dict[str, tuple[str, str]]:
    """The conditions of a resize, with reason and message."""
    return {
        one["type"]: (one.get("reason", ""), one.get("message", ""))
        for one in machine.pod(name)["status"]["conditions"]
        if one["type"].startswith("PodResize")
    }


def requesting(cpu: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": "64Mi"}}


def ask_for(machine: Machine, cpu: str, name: str = "p") -> None:
    document = machine.pod(name)
    document["spec"]["containers"][0]["resources"] = requesting(cpu)
    machine.api.put("pods", document)
    machine.settle()


def test_a_resize_that_the_node_can_never_hold_is_infeasible(machine: Machine) -> None:
    machine.api.put("pods", pod("p", container("main", resources=requesting("1"))))
    machine.settle()

    ask_for(machine, "9")

    message = "Node didn't have enough capacity: cpu, requested: 9000, capacity: 8000"
    assert conditions(machine) == {"PodResizePending": ("Infeasible", message)}
    assert machine.events("ResizeInfeasible") == [message]
    (main,) = statuses(machine).values()
    assert (main["resources"], main["allocatedResources"]["cpu"]) == (requesting("1"), "1")

    ask_for(machine, "2")

    assert conditions(machine) == {}
    assert statuses(machine)["main"]["resources"] == requesting("2")


def test_a_resize_waits_for_the_room_that_another_pod_has(machine: Machine) -> None:
    for name, cpu in (("p", "1"), ("q", "5")):
        machine.api.put("pods", pod(name, container("main", resources=requesting(cpu))))
    machine.settle()

    ask_for(machine, "4")

    message = "Node didn't have enough resource: cpu, requested: 4000, used: 5000, capacity: 8000"
    assert conditions(machine) == {"PodResizePending": ("Deferred", message)}
    assert machine.events("ResizeDeferred") == [message]
    assert machine.agent.work(Key("pod", "uid-p")) == RETRY_SECONDS

    machine.api.delete("pods", "q")
    machine.settle()
    machine.settle()

    assert conditions(machine) == {}
    assert statuses(machine)["main"]["resources"] == requesting("4")


def test_two_deferred_resizes_do_not_keep_each_other_waiting(machine: Machine) -> None:
    for name in ("p", "q"):
        machine.api.put("pods", pod(name, container("main", resources=requesting("3"))))
    machine.settle()
    for name in ("p", "q"):
        ask_for(machine, "6", name)
    assert {conditions(machine, name)["PodResizePending"][0] for name in ("p", "q")} == {"Deferred"}

    ask_for(machine, "1", "q")
    machine.settle()

    assert (conditions(machine, "p"), conditions(machine, "q")) == ({}, {})


def test_a_container_starts_with_what_it_has_while_its_resize_is_pending(machine: Machine) -> None:
    document = pod("p", container("main", resources=requesting("1")))
    machine.api.put("pods", document)
    machine.settle()
    ask_for(machine, "9")

    machine.agent.runtime.end("uid-p", "main", grace_seconds=0)
    machine.settle()

    (main,) = statuses(machine).values()
    assert main["restartCount"] == 1
    assert main["resources"] == requesting("1")


@pytest.mark.parametrize(
    ("policy", "restarts"),
    {
        "cpu": ([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}], 1),
        "memory alone": ([{"resourceName": "memory", "restartPolicy": "RestartContainer"}], 0),
        "none": ([{"resourceName": "cpu", "restartPolicy": "NotRequired"}], 0),
    }.values(),
)
def test_a_container_restarts_where_its_policy_asks_for_that(
    machine: Machine, policy: list[dict[str, str]], restarts: int
) -> None:
    machine.api.put("pods", pod("p", container("main", resources=requesting("1"), resizePolicy=policy)))
    machine.settle()

    ask_for(machine, "2")

    (main,) = statuses(machine).values()
    assert (main["restartCount"], main["resources"]) == (restarts, requesting("2"))
    assert "running" in main["state"]


def test_a_whole_pod_is_told_what_it_has(machine: Machine) -> None:
    machine.api.put("pods", pod("p", spec={"resources": requesting("1")}))
    machine.settle()
    document = machine.pod("p")
    document["spec"]["resources"] = requesting("9")
    machine.api.put("pods", document)
    machine.settle()
    assert conditions(machine)["PodResizePending"][0] == "Infeasible"
    assert machine.pod("p")["status"]["resources"] == requesting("1")

    document = machine.pod("p")
    document["spec"]["resources"] = requesting("2")
    machine.api.put("pods", document)
    machine.settle()
    assert machine.pod("p")["status"]["resources"] == requesting("2")
    assert machine.pod("p")["status"]["allocatedResources"]["cpu"] == "2"


def level(cpu: str, memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": cpu, "memory": memory}}


def resize_pod_to(machine: Machine, wanted: dict[str, Any], **own: Any) -> None:
    document = machine.pod("p")
    document["spec"]["resources"] = wanted
    if own:
        document["spec"]["containers"][0]["resources"] = own
    machine.api.put("pods", document)
    machine.settle()


def test_a_pod_grows_before_its_containers_and_shrinks_after_them(stubborn: tuple[Machine, StubbornRuntime]) -> None:
    """The kernel lets no container have more than its pod. One without a limit has the pod's."""
    machine, runtime = stubborn
    small = {"limits": {"memory": "16Mi"}}
    spec = {"resources": level("1", "64Mi")}
    machine.api.put("pods", pod("p", container("own", resources=small), container("free"), spec=spec))
    machine.settle()

    resize_pod_to(machine, level("2", "32Mi"), limits={"memory": "24Mi"})

    of_own, of_free = {"cpu": "2", "memory": "24Mi"}, {"cpu": "2", "memory": "32Mi"}
    assert runtime.asked == [
        ("", limits_of(level("2", "64Mi"))),
        ("own", limits_of({"limits": of_own})),
        ("free", limits_of({"limits": of_free})),
        ("", limits_of(level("2", "32Mi"))),
    ]
    assert machine.pod("p")["status"]["resources"] == level("2", "32Mi")
    assert statuses(machine)["own"]["resources"] == {"limits": {"memory": "24Mi"}}
    assert conditions(machine) == {}


def test_a_pod_that_cannot_be_resized_keeps_what_it_has_and_says_so(
    stubborn: tuple[Machine, StubbornRuntime],
) -> None:
    machine, runtime = stubborn
    machine.api.put("pods", pod("p", container("main"), spec={"resources": level("1", "64Mi")}))
    machine.settle()
    runtime.refuses = True

    resize_pod_to(machine, level("2", "64Mi"))

    assert machine.pod("p")["status"]["resources"] == level("1", "64Mi")
    assert conditions(machine)["PodResizeInProgress"][0] == "Error"
    assert machine.events("ResizeError") == ["the pod keeps its resources: the kernel says no"]
