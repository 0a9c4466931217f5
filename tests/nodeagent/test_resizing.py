"""Running containers get the cpu and memory that their pod asks for now; containers for debugging join them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import Runtime
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import container, pod
from tests.nodeagent.test_pod_lifecycle import statuses


class StubbornRuntime:
    """Simulated containers that cannot be resized while `refuses`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.refuses = False
        self.asked: list[tuple[str, int, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def resize(self, _uid: str, name: str, *, cpu_millis: int, cpu_request_millis: int, memory_bytes: int) -> None:
        if self.refuses:
            raise ContainerFailed("the kernel says no")
        self.asked.append((name, cpu_millis, cpu_request_millis, memory_bytes))


@pytest.fixture
def stubborn(tmp_path: Path) -> tuple[Machine, StubbornRuntime]:
    made: list[StubbornRuntime] = []

    def wrapped(runtime: Runtime) -> Any:
        made.append(StubbornRuntime(runtime))
        return made[-1]

    machine = Machine(tmp_path, wrapped=wrapped)
    machine.start()
    return machine, made[-1]


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

    assert runtime.asked == [("main", 1000, 300, 64 * 1024 * 1024)]
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
    assert machine.pod("p")["status"]["phase"] == "Running"
