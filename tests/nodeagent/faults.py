"""What can go wrong at one step of an agent: it is killed there, or the disk, the network, a driver fails it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import Runtime
from nodeagent.storage import Disk
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.machine import RecordingDriver

KILLED_AFTER = "killed after"
KILLED_HALFWAY = "killed halfway"
FAILING = "failing"
#: it was done, and the agent is told that it was not
FAILING_AFTER = "failing afterwards"

#: Kind of fault -> the steps that it can strike. Killed before a step is killed after the one before it; reading and
#: asking change nothing, so that being killed there is no case of its own; nor is it after a flush, which flushes
#: nothing here.
STEPS: dict[str, tuple[str, ...]] = {
    KILLED_AFTER: (
        *("disk write fill", "disk write over", "disk write rename", "disk write remove"),
        *("driver", "runtime", "POST", "PUT", "PATCH", "DELETE"),
    ),
    KILLED_HALFWAY: ("disk write fill", "driver"),
    FAILING: ("disk", "driver", "runtime", "GET", "POST", "PUT", "PATCH", "DELETE"),
    FAILING_AFTER: ("disk write rename", "driver", "POST", "PUT", "PATCH", "DELETE"),
}


class Killed(BaseException):
    """kill -9: no handler runs."""


#: (chapter, step in the chapter) -> kind of fault
Strikes = Mapping[tuple[int, int], str]


class Fault:
    """Strikes at chosen steps of the chapters of a story, and writes down every step, by chapter."""

    def __init__(self, strikes: Strikes | None = None) -> None:
        self.strikes = dict(strikes or {})
        self.steps: list[list[str]] = [[]]

    def begin_chapter(self) -> None:
        self.steps.append([])

    def step(self, at: tuple[int, int]) -> str:
        """What was done at a place of the story; "" if it did not come to that."""
        chapter, number = at
        return next(iter(self.steps[chapter][number : number + 1]), "") if chapter < len(self.steps) else ""

    def around(
        self, step: str, act: Callable[[], None], *, error: Exception, half: Callable[[], None] = lambda: None
    ) -> None:
        """Do one step, or what a fault makes of it."""
        chapter = self.steps[-1]
        kind = self.strikes.get((len(self.steps) - 1, len(chapter)), "")
        chapter.append(step)
        if kind == KILLED_HALFWAY:
            half()
            raise Killed
        if kind != FAILING:
            act()
        if kind == KILLED_AFTER:
            raise Killed
        if kind:
            raise error


class FaultyDisk(Disk):
    """A disk whose every primitive is a step. Nothing is really flushed: the machine keeps its power."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        def half() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content[: len(content) // 2])

        self._around("write fill", lambda: Disk.fill(self, path, content, flushed=flushed, mode=mode), half)

    def put_over(self, descriptor: int, content: bytes) -> None:
        self._around("write over", lambda: Disk.put_over(self, descriptor, content))

    def flush_file(self, descriptor: int) -> None:
        self._around("write flush file", lambda: None)

    def rename(self, source: Path, target: Path) -> None:
        self._around("write rename", lambda: Disk.rename(self, source, target))

    def flush_directory(self, path: Path) -> None:
        self._around("write flush directory", lambda: None)

    def remove(self, path: Path) -> None:
        self._around("write remove", lambda: Disk.remove(self, path))

    def read(self, path: Path) -> bytes:
        if path.parent.name == "containers":  # the simulated runtime's own, read while it is made
            return super().read(path)
        if not path.exists():
            raise FileNotFoundError(path)
        found: list[bytes] = []
        self._around("read", lambda: found.append(Disk.read(self, path)))
        return found[0]

    def _around(self, step: str, act: Callable[[], None], half: Callable[[], None] = lambda: None) -> None:
        self._fault.around(f"disk {step}", act, half=half, error=OSError(28, "No space left on device"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent's client looks at in an httpx.Response."""

    status_code: int
    content: bytes


class FaultyNetwork:
    """Stands where the agent's client has its httpx.Client, which would take half the time of thousands of agents."""

    def __init__(self, api: FakeApi, fault: Fault) -> None:
        self._api, self._fault = api, fault

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        answers: list[Answer] = []

        def act() -> None:
            code, body = self._api.answer(method, path, params or {}, content)
            assert isinstance(body, bytes), "an agent that is driven without threads watches nothing"
            answers.append(Answer(code, body))

        self._fault.around(f"{method} {path}", act, error=httpx.ReadError("connection reset by peer"))
        return answers[0]


class FaultyDriver(RecordingDriver):
    """Halfway, it has done its part for the first claim only."""

    def __init__(self, fault: Fault, **options: Any) -> None:
        super().__init__(**options)
        self._fault = fault

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
        self._fault.around(f"driver {step}", act, half=half, error=RuntimeError("device busy"))


class FaultyRuntime:
    """Containers whose every action is a step; what the agent only asks them is not."""

    def __init__(self, runtime: Runtime, fault: Fault) -> None:
        self._runtime, self._fault = runtime, fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runtime, name)
        return self._acting(name, found) if name in ("start", "stop", "remove") else found

    def _acting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            answers: list[Any] = []
            self._fault.around(
                f"runtime {name}",
                lambda: answers.append(method(*args, **kwargs)),
                error=ContainerFailed(f"cannot {name}"),
            )
            return answers[0]

        return act
