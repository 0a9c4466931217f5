"""What a container runtime is to the agent.

Containers outlive the agent: after a restart the runtime still knows them. The agent asks for the state, compares it
with what the pod wants, and acts; it keeps no picture of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from manciple.wire.base import Value
from nodeagent.runtimes.logs import LogQuery
from nodeagent.runtimes.request import ContainerRequest, Role


class EndedRun(Value):
    """An attempt that has ended. Times in POSIX seconds. reason: "" for Completed or Error, by the exit code."""

    container_id: str
    started_at: float
    finished_at: float
    exit_code: int
    reason: str = ""
    message: str = ""


class ContainerRun(Value):
    """The latest attempt at one container, running or ended. Times in POSIX seconds.

    reason, message: of one that has ended, as `EndedRun`. started, ready: what the probes of a running one say.
    """

    name: str
    role: Role
    attempt: int
    container_id: str  # "<runtime>://<id>"
    image: str
    cdi_devices: tuple[str, ...]
    environment: dict[str, str]  # as the container's process sees it, CDI's part included
    claims: tuple[str, ...]
    started_at: float
    finished_at: float | None = None
    exit_code: int = 0  # of one that has ended
    reason: str = ""
    message: str = ""
    image_id: str = ""  # `image` where the runtime knows no better
    started: bool = True
    ready: bool = True
    previous: EndedRun | None = None

    @property
    def running(self) -> bool:
        return self.finished_at is None

    def ended(self) -> EndedRun | None:
        """How it ended; None while it runs."""
        if self.finished_at is None:
            return None
        return EndedRun(
            container_id=self.container_id,
            started_at=self.started_at,
            finished_at=self.finished_at,
            exit_code=self.exit_code,
            reason=self.reason,
            message=self.message,
        )


class Runtime(Protocol):
    """Starts and stops containers. Thread-safe; one thread at a time works on one pod."""

    @property
    def version(self) -> str:
        """As a node reports it: "<runtime>://<version>"."""

    def start(self, request: ContainerRequest) -> None:
        """Start a container; nothing happens if that attempt has been started already. Raises: ContainerFailed."""

    def runs(self, pod_uid: str) -> Mapping[str, ContainerRun]:
        """The containers of a pod by name, as they are now. Raises: ContainerFailed when that cannot be found out."""

    def next_change(self, pod_uid: str) -> float | None:
        """When (POSIX seconds) to look at the pod again although nothing else happened; None for never."""

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with a pod's uid, from any thread, when a container of it has ended or become ready or not."""

    def stop(self, pod_uid: str, *, grace_seconds: int) -> float | None:
        """Stop what still runs of the pod; to be called again until nothing does.

        Returns None once nothing runs, else in how many seconds to call again. What has not ended by itself
        `grace_seconds` after the first call is killed; a later call may shorten that. Raises: ContainerFailed.
        """

    def remove(self, pod_uid: str) -> None:
        """Forget a stopped pod."""

    def pod_uids(self) -> frozenset[str]:
        """Every pod of which the runtime knows a container."""

    def logs(self, pod_uid: str, container: str, query: LogQuery, *, stop: threading.Event) -> Iterator[bytes]:
        """What a container has printed, in pieces of any size.

        With `query.follow` the pieces go on, as they come, until the container has ended or `stop` is set (looked at
        several times a second). Raises, before the first piece: LogsUnavailable when there is no such run.
        """
