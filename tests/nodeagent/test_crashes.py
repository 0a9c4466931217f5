"""The agent dies, or the world fails it, at each of its I/O steps in turn; no device is ever lost.

A run of the whole story (a pod with two claims comes, shares one with a second pod, both go) is counted once. Then it
is told again for each step: killed just after it (which is just before the next), killed in the middle of a file or of
a driver's work, or the step fails and the agent goes on. Afterwards the checkpoint, the CDI files, the driver and the
API must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.disk import Disk
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.machine import Machine, RecordingDriver
from tests.nodeagent.objects import claim, container, pod


class Killed(BaseException):
    """kill -9: no handler runs."""


class Fault:
    """Strikes once, at step `at`. `kind`: kill before, after or in the middle of the step, or let it fail."""

    def __init__(self, kind: str = "none", at: int = -1) -> None:
        self.kind, self.at = kind, at
        self.steps: list[str] = []

    def strikes(self, step: str) -> bool:
        self.steps.append(step)
        return len(self.steps) - 1 == self.at

    def around(self, step: str, act: Callable[[], None], *, half: Callable[[], None], error: Exception) -> None:
        """Do one step, or what the fault makes of it."""
        if not self.strikes(step):
            act()
        elif self.kind == "killed in the middle":
            half()
            raise Killed
        elif self.kind == "killed after":
            act()
            raise Killed
        else:
            raise error


class FaultyDisk(Disk):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def fill(self, path: Path, content: bytes) -> None:
        def half() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content[: len(content) // 2])

        self._around("fill", lambda: Disk.fill(self, path, content), half)

    def rename(self, source: Path, target: Path) -> None:
        self._around("rename", lambda: Disk.rename(self, source, target))

    def flush_directory(self, path: Path) -> None:
        self._around("flush", lambda: Disk.flush_directory(self, path))

    def remove(self, path: Path) -> None:
        self._around("remove", lambda: Disk.remove(self, path))

    def _around(self, step: str, act: Callable[[], None], half: Callable[[], None] = lambda: None) -> None:
        self._fault.around(f"disk {step}", act, half=half, error=OSError(28, "No space left on device"))


class FaultyNetwork(httpx.BaseTransport):
    def __init__(self, api: FakeApi, fault: Fault) -> None:
        self._api, self._fault = api, fault

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answers: list[httpx.Response] = []
        self._fault.around(
            f"{request.method} {request.url.path}",
            lambda: answers.append(self._api.handle_request(request)),
            half=lambda: None,
            error=httpx.ReadError("connection reset by peer"),
        )
        return answers[0]


class FaultyDriver(RecordingDriver):
    fault: Fault

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        answers: dict[str, Prepared | Failed] = {}
        act = super().prepare
        self._around("prepare", lambda: answers.update(act(claims)), lambda: answers.update(act(claims[:1])))
        return answers

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        answers: dict[str, Failed | None] = {}
        act = super().unprepare
        self._around("unprepare", lambda: answers.update(act(claims)), lambda: answers.update(act(claims[:1])))
        return answers

    def _around(self, step: str, act: Callable[[], None], half: Callable[[], None]) -> None:
        self.fault.around(f"driver {step}", act, half=half, error=RuntimeError("device busy"))


#: kind of fault -> the steps that it can strike
KINDS: dict[str, tuple[str, ...]] = {
    "killed after": ("disk", "driver", "GET", "POST", "PUT", "PATCH", "DELETE"),
    "killed in the middle": ("disk fill", "driver"),
    "failing": ("disk", "driver", "GET", "POST", "PUT", "PATCH", "DELETE"),
}


def tell(folder: Path, fault: Fault) -> Machine:
    """The whole story under one fault; the invariants are checked after each chapter."""
    api = FakeApi()
    driver = FaultyDriver()
    driver.fault = fault
    transport = FaultyNetwork(api, fault)
    machine = Machine(folder, drivers=[driver], api=api, disk=FaultyDisk(fault), transport=transport)
    machine.driver = driver
    chapters: list[Callable[[], None]] = [lambda: None, lambda: _come(api), lambda: _share(api), lambda: _go(api)]
    act = machine.start
    for chapter in chapters:
        chapter()
        try:
            _insist(act)
            machine.settle()
        except Killed:
            _insist(machine.restart)
            machine.settle()
        machine.check_invariants()
        act = lambda: None  # noqa: E731 - only the first chapter starts the agent
    assert api.all("pods") == []
    assert driver.held == set()
    return machine


def _insist(step: Callable[[], None]) -> None:
    """As `Agent.run` does with its first steps."""
    try:
        step()
    except Exception:
        step()


def _come(api: FakeApi) -> None:
    api.put("resourceclaims", claim("own", "gpu-0", "gpu-1", pods=("uid-first",)))
    api.put("resourceclaims", claim("shared", "gpu-2", pods=("uid-first",)))
    api.put("pods", pod("first", container("main", "a/gpu1", "b"), claims={"a": "own", "b": "shared"}))


def _share(api: FakeApi) -> None:
    api.put("resourceclaims", claim("shared", "gpu-2", pods=("uid-first", "uid-second")))
    api.put("pods", pod("second", claims={"b": "shared"}))


def _go(api: FakeApi) -> None:
    api.delete("pods", "first")
    api.delete("pods", "second")
    api.put("resourceclaims", claim("shared", "gpu-2"))
    api.put("resourceclaims", claim("own", "gpu-0", "gpu-1"))


def test_the_story_without_faults_takes_every_kind_of_step(tmp_path: Path) -> None:
    fault = Fault()

    tell(tmp_path, fault)

    taken = {step.split(" ")[0] for step in fault.steps}
    assert taken == {"disk", "driver", "GET", "POST", "PUT", "PATCH", "DELETE"}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_step_is_struck_nothing_is_lost(tmp_path: Path, kind: str) -> None:
    counted = Fault()
    tell(tmp_path / "counted", counted)

    for at, step in enumerate(counted.steps):
        if not step.startswith(KINDS[kind]):
            continue
        try:
            tell(tmp_path / f"{at}", Fault(kind, at))
        except (AssertionError, KeyError) as error:
            raise AssertionError(f"{kind} step {at}, {step}: {error}") from error


def test_a_fault_is_really_met(tmp_path: Path) -> None:
    driver = FaultyDriver()
    driver.fault = Fault("killed after", 0)

    with pytest.raises(Killed):
        driver.prepare([])
