"""The world around an agent fails for long: a disk that is full or read-only, an API server away, a clock that is set.

Pods run on meanwhile, nothing is given up or forgotten, the trouble is told where people look, and afterwards
everything settles by itself.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from claims.kinds.pods import Pod
from manciple.wire import codec
from nodeagent.api.client import LONGEST_DELAY
from nodeagent.pods.worker import SteadyRuns, plan
from nodeagent.runtimes.protocol import ContainerRun
from nodeagent.storage import Disk
from tests.nodeagent.machine import Clock, Machine, release, run_pod
from tests.nodeagent.objects import container, pod

DAY = 86_400.0
ONCE = {"annotations": {"manciple.dev/run-seconds": "30"}}


class TroubledDisk(Disk):
    """Refuses to write below `folder` with `error`, while there is one."""

    error = 0
    folder = ""

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        self._refuse(path)
        super().fill(path, content, flushed=flushed, mode=mode)

    def overwrite(self, path: Path, content: bytes) -> None:
        """A full disk has room for what is there already; one that is read-only takes nothing."""
        if self.error != errno.ENOSPC:
            self._refuse(path)
        super().overwrite(path, content)

    def remove(self, path: Path) -> None:
        if self.error != errno.ENOSPC:
            self._refuse(path)
        super().remove(path)

    def _refuse(self, path: Path) -> None:
        if self.error and self.folder in path.parts:
            raise OSError(self.error, {errno.ENOSPC: "No space left on device", errno.EROFS: "Read-only"}[self.error])


def troubled(folder: Path) -> tuple[Machine, TroubledDisk]:
    disk = TroubledDisk()
    machine = Machine(folder, disk=disk)
    machine.start()
    return machine, disk


def disk_condition(machine: Machine) -> tuple[str, str]:
    node = machine.api.find("nodes", "alpha", "")
    assert node is not None
    return next((c["status"], c["message"]) for c in node["status"]["conditions"] if c["type"] == "DiskPressure")


# Disks.


@pytest.mark.parametrize("folder", ["claims", "cdi"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_cannot_be_written_to_is_told_and_everything_settles_afterwards(
    tmp_path: Path, folder: str, error: int
) -> None:
    machine, disk = troubled(tmp_path)
    run_pod(machine, "runs")
    run_pod(machine, "goes", "gpu-1")
    machine.settle()
    disk.folder, disk.error = folder, error

    run_pod(machine, "comes", "gpu-2")
    machine.api.delete("pods", "goes")
    for _ in range(3):
        machine.look()
        machine.agent.report()

    assert machine.condition("runs", "Ready") == "True"
    assert machine.pod("comes")["status"]["phase"] == "Pending"
    assert len(machine.events("FailedPrepareDynamicResources")) == 1 or folder == "cdi"
    assert disk_condition(machine)[0] == "True"
    (told,) = machine.events("StorageFailed")
    assert f"/{folder}" in told

    disk.error = 0
    machine.settle()
    machine.agent.report()
    release(machine, "goes", "gpu-1")

    assert machine.condition("comes", "Ready") == "True"
    assert machine.api.find("pods", "goes") is None
    assert disk_condition(machine) == ("False", "kubelet has no disk pressure")
    machine.check_invariants()


def test_a_pod_that_is_held_by_the_disk_says_so(tmp_path: Path) -> None:
    machine, disk = troubled(tmp_path)
    run_pod(machine)
    machine.settle()
    disk.folder, disk.error = "claims", errno.EROFS

    machine.api.delete("pods", "p")
    machine.look()

    (told,) = machine.events("FailedUnprepareDynamicResources")
    assert "the checkpoint of ResourceClaim default/of-p" in told
    assert machine.driver.held == {"claim-of-p"}, "nothing is undone that is not recorded"


def test_an_agent_starts_on_a_read_only_disk_and_its_pods_run_on(tmp_path: Path) -> None:
    machine, disk = troubled(tmp_path)
    run_pod(machine)
    machine.settle()
    disk.folder, disk.error = "state", errno.EROFS

    machine.restart()
    machine.look()

    assert machine.failures == []
    assert machine.condition("p", "Ready") == "True"
    assert disk_condition(machine)[0] == "True"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        # As root, in CI for one, it must work; anybody else may not mount.
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_real_disk_fills_up_and_has_room_again(small_disk: Path) -> None:
    machine = Machine(small_disk)
    machine.start()
    run_pod(machine, "runs")
    machine.settle()
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(b"x" * 300_000)

    run_pod(machine, "comes", "gpu-2")
    machine.look()
    machine.agent.report()
    assert machine.condition("runs", "Ready") == "True"
    assert machine.pod("comes")["status"]["phase"] == "Pending"
    assert "No space left on device" in machine.events("FailedPrepareDynamicResources")[0]
    assert disk_condition(machine)[0] == "True"

    machine.restart()
    assert machine.look(), "the pod that came still waits for room"
    ballast.unlink()
    machine.settle()

    assert machine.condition("comes", "Ready") == "True"
    machine.check_invariants()


# The API server.


def test_an_api_server_away_for_ten_minutes_costs_nothing(machine: Machine) -> None:
    """Pods run on, their ends are remembered and reported afterwards, nothing is given back in between."""
    run_pod(machine)
    machine.api.put("pods", pod("ends", metadata=ONCE, spec={"restartPolicy": "Never"}))
    machine.settle()

    def away(_request: httpx.Request) -> None:
        raise httpx.ConnectError("connection refused")

    machine.api.before = away
    for _ in range(10):
        machine.clock.now += 60
        machine.look()
    assert machine.agent.runtime.runs("uid-p")["main"].running
    assert not machine.agent.runtime.runs("uid-ends")["main"].running
    assert machine.driver.calls == [("prepare", ("of-p",))]
    machine.api.before = lambda _request: None
    machine.settle()

    assert machine.condition("p", "Ready") == "True"
    ended = machine.pod("ends")["status"]
    assert ended["phase"] == "Succeeded"
    terminated = ended["containerStatuses"][0]["state"]["terminated"]
    assert terminated["finishedAt"] == "2027-01-15T08:00:30Z", "when it ended, not when it could be told"
    machine.check_invariants()


def test_an_agent_that_starts_while_the_api_server_is_away_gives_nothing_back(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()

    def away(_request: httpx.Request) -> None:
        raise httpx.ConnectError("connection refused")

    machine.api.before = away
    with pytest.raises(Exception, match="connection refused"):
        machine.restart()
    assert machine.driver.held == {"claim-of-p"}
    machine.api.before = lambda _request: None
    machine.restart()
    machine.settle()

    assert machine.driver.count("unprepare") == 0
    machine.check_invariants()


def test_after_a_return_of_the_server_no_wait_is_longer_than_ten_seconds() -> None:
    """So that an agent, which waits at most this long twice in a row, is at work again within half a minute."""
    assert LONGEST_DELAY <= 10.0


# Clocks.


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_clock_that_jumps_changes_no_restart_delay(jump: float) -> None:
    clock = Clock()
    steady = SteadyRuns(clock=clock, monotonic=clock.steady)
    ended = ContainerRun(
        name="main",
        role="main",
        attempt=1,
        streak=1,
        container_id="runtime://1",
        image="busybox",
        cdi_devices=(),
        environment={},
        claims=(),
        started_at=clock() - 5,
        finished_at=clock(),
        exit_code=1,
    )
    restarting = codec.decode_text(Pod, json.dumps(pod("p")).encode())

    def due(seconds: float) -> bool:
        clock.now += seconds
        return bool(plan(restarting, steady.corrected("uid-p", {"main": ended}), now=clock()).starts)

    assert not due(0)
    clock.jump = jump
    assert not due(9), "the second restart waits ten seconds"
    assert due(1)


def test_no_condition_is_older_than_its_pod_though_the_clock_is_set_back(machine: Machine) -> None:
    machine.api.put("pods", pod("p", container("main"), metadata=ONCE, spec={"restartPolicy": "Never"}))
    machine.settle()
    start = machine.pod("p")["status"]["startTime"]

    machine.clock.jump = -DAY
    machine.clock.now += DAY  # it takes a day until the container's end has come by that clock too
    machine.clock.jump -= 3600
    machine.clock.now += 3700
    machine.settle()

    status = machine.pod("p")["status"]
    assert status["phase"] == "Succeeded"
    ours = [c for c in status["conditions"] if c["type"] != "PodScheduled"]
    assert all(c["lastTransitionTime"] >= start for c in ours)
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert ended["finishedAt"] >= ended["startedAt"]
