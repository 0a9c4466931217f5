"""What a container runtime is to the agent.

Containers outlive the agent: after a restart the runtime still knows them. The agent asks for the state, compares it
with what the pod wants, and acts; it keeps no picture of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from manciple.wire.base import Value
from nodeagent.runtimes.logs import LogQuery

#: An init container runs to its end before the next starts; a sidecar runs beside the others and keeps no pod alive.
Role = Literal["init", "sidecar", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """One container to start. `attempt` counts from 0; `environment` is without what CDI adds."""

    pod_uid: str
    namespace: str
    pod: str
    name: str
    role: Role
    attempt: int
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    environment: Mapping[str, str]
    cdi_devices: tuple[str, ...]
    claims: tuple[str, ...]  # the uids of the claims that the devices belong to
    annotations: Mapping[str, str]  # of the pod


class EndedRun(Value):
    """The attempt before the latest one."""

    container_id: str
    started_at: float
    finished_at: float
    exit_code: int


class ContainerRun(Value):
    """The latest attempt at one container, running or ended. Times in POSIX seconds."""

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
    previous: EndedRun | None = None

    @property
    def running(self) -> bool:
        return self.finished_at is None


class Runtime(Protocol):
    """Starts and stops containers. Thread-safe; one thread at a time works on one pod."""

    @property
    def version(self) -> str:
        """As a node reports it: "<runtime>://<version>"."""

    def start(self, request: ContainerRequest) -> None:
        """Start a container; nothing happens if that attempt has been started already. Raises: ContainerFailed."""

    def runs(self, pod_uid: str) -> Mapping[str, ContainerRun]:
        """The containers of a pod by name, as they are now."""

    def next_change(self, pod_uid: str) -> float | None:
        """When (POSIX seconds) to look at the pod again although nothing else happened; None for never."""

    def stop(self, pod_uid: str, *, grace_seconds: int) -> None:
        """Stop what still runs of the pod; on return nothing does. Raises: ContainerFailed."""

    def remove(self, pod_uid: str) -> None:
        """Forget a stopped pod."""

    def pod_uids(self) -> frozenset[str]:
        """Every pod of which the runtime knows a container."""

    def logs(self, pod_uid: str, container: str, query: LogQuery, *, stop: threading.Event) -> Iterator[bytes]:
        """What a container has printed, in pieces of any size.

        With `query.follow` the pieces go on, as they come, until the container has ended or `stop` is set (looked at
        several times a second). Raises, before the first piece: LogsUnavailable when there is no such run.
        """
