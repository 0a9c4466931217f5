"""What the agent tells of its containers' cpu and memory: differences of counts, of running containers, at a pace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from inventory.kinds.usage_metrics import Usage
from nodeagent.failures import ContainerFailed
from nodeagent.pods.usage import INTERVAL, UsageSampler
from nodeagent.runtimes.podman.kernel import group_usage, machine_usage
from nodeagent.runtimes.protocol import ContainerUsage
from tests.nodeagent.machine import Clock, Machine
from tests.nodeagent.objects import container, pod
from tests.nodeagent.pods.test_pod_lifecycle import wait

SECOND = 10**9


class CountingRuntime:
    """Containers by pod, as they are to be measured. measured: how often."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, ContainerUsage]] = {}
        self.machine: ContainerUsage | None = None
        self.measured = 0
        self.failing: set[str] = set()

    def pod_uids(self) -> frozenset[str]:
        return frozenset(self.pods)

    def usage(self, uid: str) -> Mapping[str, ContainerUsage]:
        self.measured += 1
        if uid in self.failing:
            raise ContainerFailed("podman does not answer")
        return self.pods[uid]

    def machine_usage(self) -> ContainerUsage | None:
        return self.machine


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.runtime = CountingRuntime()
        self.began = self.clock.now
        pods = [msgspec.convert(pod(name), Pod) for name in ("p", "q")]
        runtime: Any = self.runtime
        self.sampler = UsageSampler(runtime, lambda: pods, clock=self.clock, monotonic=self.clock.steady)

    def count(self, seconds: float, mebibytes: int, *, uid: str = "uid-p", started: float | None = None) -> None:
        """So much processor time has the container of the pod used until now."""
        at = self.clock()
        begin = self.began if started is None else started
        used = ContainerUsage(at=at, started_at=begin, cpu_nanos=int(seconds * SECOND), memory_bytes=mebibytes * 2**20)
        self.runtime.pods[uid] = {"main": used}

    def told(self, name: str = "p") -> Usage | None:
        pods = {one.name: one.containers for one in self.sampler.report().pods}
        return pods.get(name, {}).get("main")


@pytest.fixture
def world() -> World:
    return World()


def test_the_use_of_cpu_is_the_difference_of_two_samples(world: World) -> None:
    world.clock.now += 100
    world.count(40, 10)
    first = world.told()
    assert first is not None
    assert (first.cpu_nanos, first.window) == (0.4 * SECOND, 100)  # since its start

    world.clock.now += 20
    world.count(50, 12)
    second = world.told()
    assert second is not None
    assert (second.cpu_nanos, second.window, second.memory_bytes) == (0.5 * SECOND, 20, 12 * 2**20)
    assert second.at == world.clock()


def test_a_container_that_was_restarted_is_measured_from_its_new_start(world: World) -> None:
    world.clock.now += 100
    world.count(90, 10)
    world.told()
    world.clock.now += 30
    world.count(5, 10, started=world.clock() - 10)
    told = world.told()
    assert told is not None
    assert (told.cpu_nanos, told.window) == (0.5 * SECOND, 10)


def test_a_container_that_has_just_started_is_left_out(world: World) -> None:
    world.clock.now += 0.5
    world.count(0.4, 10)
    assert world.told() is None


def test_samples_keep_their_pace_however_often_one_asks(world: World) -> None:
    world.clock.now += 100
    world.count(1, 1)
    for _ in range(10):
        world.told()
        world.sampler.sync()
    assert world.runtime.measured == 1
    world.clock.now += INTERVAL
    world.told()
    assert world.runtime.measured == 2


def test_a_container_that_has_ended_is_told_of_no_more(world: World) -> None:
    world.clock.now += 100
    world.count(1, 1)
    assert world.told() is not None
    world.runtime.pods["uid-p"] = {}
    world.clock.now += INTERVAL
    assert world.told() is None


def test_figures_that_cannot_be_had_are_left_out(world: World) -> None:
    world.clock.now += 100
    world.count(1, 1)
    world.count(1, 1, uid="uid-q")
    world.count(1, 1, uid="uid-unknown")
    world.runtime.failing.add("uid-q")
    report = world.sampler.report()
    assert [one.name for one in report.pods] == ["p"]
    assert report.node is None


@pytest.mark.parametrize("jump", [-86400.0, -1.0])
def test_a_clock_that_is_set_back_makes_no_nonsense(world: World, jump: float) -> None:
    world.clock.now += 100
    world.count(40, 10)
    world.told()
    world.clock.jump, world.clock.now = jump, world.clock.now + INTERVAL
    world.count(50, 10)
    told = world.told()
    assert told is None or 0 <= told.cpu_nanos <= SECOND


# Control groups -------------------------------------------------------------------------------------------------------


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Gives the process 4711 control groups."""
    read = Path.read_text
    known: dict[str, str] = {}

    def read_text(path: Path, *args: Any, **kwargs: Any) -> str:
        return known[str(path)] if str(path) in known else read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", read_text)

    def given(text: str) -> None:
        known["/proc/4711/cgroup"] = text

    return given


def test_groups_of_one_hierarchy_are_read(process: Any, tmp_path: Path) -> None:
    process("0::/machine.slice/libpod-abc.scope/container\n")
    folder = tmp_path / "machine.slice/libpod-abc.scope/container"
    write(
        folder,
        memory__current="5000\n",
        memory__stat="anon 1\ninactive_file 1200\n",
        cpu__stat="usage_usec 7\nuser_usec 1\n",
    )
    assert group_usage(4711, "abc", tmp_path) == (7000, 3800)


def test_groups_of_one_hierarchy_for_each_controller_are_read(process: Any, tmp_path: Path) -> None:
    process("4:memory:/a/libpod-abc\n3:cpu,cpuacct:/b/libpod-abc\n1:name=systemd:/libpod-abc\n0::/\n")
    write(tmp_path / "memory/a/libpod-abc", memory__usage_in_bytes="5000", memory__stat="total_inactive_file 6000\n")
    write(tmp_path / "cpuacct/b/libpod-abc", cpuacct__usage="77\n")
    assert group_usage(4711, "abc", tmp_path) == (77, 0)


def test_the_groups_of_a_stranger_with_the_same_number_are_not(process: Any, tmp_path: Path) -> None:
    process("0::/machine.slice/libpod-xyz.scope\n")
    assert group_usage(4711, "abc", tmp_path) is None
    assert group_usage(2**22 + 1, "abc", tmp_path) is None


def test_this_machine_uses_something() -> None:
    booted, cpu, memory = machine_usage()
    assert booted > 0
    assert cpu > 0
    assert 0 < memory < 2**50


# A simulated node -----------------------------------------------------------------------------------------------------


def test_a_simulated_container_uses_what_it_requests(machine: Machine) -> None:
    requests = {"cpu": "250m", "memory": "64Mi"}
    machine.api.put("pods", pod("p", container("main", resources={"requests": requests}), container("idle")))
    machine.settle()
    wait(machine, 60)

    report = machine.agent._usage.report()

    (told,) = report.pods
    assert {name: (one.cpu_nanos, one.memory_bytes) for name, one in told.containers.items()} == {
        "main": (SECOND // 4, 64 * 2**20),
        "idle": (0, 0),
    }
    assert report.node is not None
    assert (report.node.cpu_nanos, report.node.memory_bytes) == (SECOND // 4, 64 * 2**20)


def test_a_simulated_node_at_rest_takes_no_samples(machine: Machine) -> None:
    assert machine.agent.runtime.counts_evenly
