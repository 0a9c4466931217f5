"""The interface of container runtimes: requests to start containers, and their state.

Containers outlive the agent, and the runtime keeps their state. The agent reads it, compares it with the pod, and acts;
it keeps no state of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

from manciple.wire.base import Value
from nodeagent.failures import LogsUnavailable
from nodeagent.runtimes.logs import LogQuery

# A request has everything that the start of one container needs. The runtime keeps it while the container exists, and
# stops and probes the container by it, also after a restart of the agent.

#: An init container runs to its end before the next starts; a sidecar runs beside the others and keeps no pod running.
Role = Literal["init", "sidecar", "main"]


class Action(Value):
    """The action of a probe or a hook.

    command: run inside the container, if there is one. port: else connect to it at `host`, from inside the pod's
    network, if it is not 0, and where `path` is not empty GET it, over TLS or not. seconds: else wait.
    """

    command: tuple[str, ...] = ()
    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    seconds: int = 0


class ProbeRequest(Value):
    """A check of a running container. Times in seconds, thresholds in consecutive results."""

    action: Action
    initial_delay: int = 0
    timeout: int = 1
    period: int = 10
    successes: int = 1
    failures: int = 3
    grace_seconds: int | None = None  # for a container killed by it; the pod's where None


class Probes(Value):
    """The probes of one container."""

    startup: ProbeRequest | None = None
    readiness: ProbeRequest | None = None
    liveness: ProbeRequest | None = None


class MountRequest(Value):
    """A volume in a container.

    kind: of the volume; "files": made by the agent (`Runtime.files_folder`). path: on the node, for hostPath.
    host_type: the type that hostPath must have. size: limit in bytes of an emptyDir in memory, 0 for none. sub_path:
    below the volume's root.
    """

    volume: str
    kind: Literal["hostPath", "emptyDir", "memory", "files"]
    target: str
    path: str = ""
    host_type: str = ""
    size: int = 0
    sub_path: str = ""
    read_only: bool = False
    propagation: str = ""


class ConfinementProfile(Value):
    """A seccomp or AppArmor profile. kind: RuntimeDefault, Unconfined, Localhost or "" for the default; name: of it."""

    kind: str = ""
    name: str = ""


class Security(Value):
    """User, groups and privileges of a container's process. None: the default of the image or the runtime.

    groups: supplementary, including fs_group. fs_group: the group of volumes. se_linux: parts of a label by name.
    """

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    fs_group: int | None = None
    non_root: bool = False
    privileged: bool = False
    read_only_root: bool = False
    no_new_privileges: bool = True
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    seccomp: ConfinementProfile = ConfinementProfile()
    app_armor: ConfinementProfile = ConfinementProfile()
    se_linux: tuple[tuple[str, str], ...] = ()


class ContainerRequest(Value):
    """One container to start. attempt: counts from 0. environment: without variables of CDI devices.

    command, args: in Kubernetes' sense, instead of the image's entrypoint and its arguments. cpu_millis, memory_bytes:
    limits, 0 for none. confidential: variables with a value from a Secret, which are neither shown to other users nor
    written to a disk. unserved: messages to the pod's owner about unsupported settings; a runtime whose containers
    really run must not start such a container.
    """

    pod_uid: str
    namespace: str
    pod: str
    name: str
    role: Role
    attempt: int
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    environment: dict[str, str]
    cdi_devices: tuple[str, ...]
    claims: tuple[str, ...]  # the uids of the devices' claims
    annotations: dict[str, str]  # of the pod
    pull_policy: str = "IfNotPresent"
    working_dir: str = ""
    hostname: str = ""
    address: str = ""  # of the pod
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    stdin: bool = False
    tty: bool = False
    cpu_millis: int = 0
    cpu_request_millis: int = 0
    memory_bytes: int = 0
    mounts: tuple[MountRequest, ...] = ()
    security: Security = Security()
    sysctls: tuple[tuple[str, str], ...] = ()
    probes: Probes = Probes()
    post_start: Action | None = None
    pre_stop: Action | None = None
    stop_signal: str = ""
    grace_seconds: int = 30  # of the pod, for a container that a failing probe stops
    message_path: str = ""
    message_from_log: bool = False  # where the container failed and wrote no message
    confidential: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()

    @property
    def recorded_environment(self) -> dict[str, str]:
        """The environment without confidential values."""
        return {name: "" if name in self.confidential else value for name, value in self.environment.items()}


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
        """Its end; None while it runs."""
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


class PodStorage(Value):
    """Disk use of a pod in bytes. containers: their logs and writable layers."""

    volumes: dict[str, int] = {}
    containers: dict[str, int] = {}


def logged_run(runs: Mapping[str, ContainerRun], pod_uid: str, container: str, query: LogQuery) -> ContainerRun:
    """The run of `container` for a query of its log, or of its predecessor's. Raises: LogsUnavailable."""
    run = runs.get(container)
    if run is None:
        raise LogsUnavailable(f"container {container} of pod {pod_uid} has not been started")
    if query.previous and run.previous is None:
        raise LogsUnavailable(f"previous terminated container {container} of pod {pod_uid} not found")
    return run


class Runtime(Protocol):
    """Starts and stops containers. Thread-safe; one thread at a time works on one pod."""

    @property
    def version(self) -> str:
        """As a node reports it: "<runtime>://<version>"."""

    def start(self, request: ContainerRequest) -> None:
        """Start a container, unless this attempt has been started already. Raises: ContainerFailed."""

    def resize(
        self, pod_uid: str, container: str, *, cpu_millis: int, cpu_request_millis: int, memory_bytes: int
    ) -> None:
        """Change the limits (0: none) of a running container. Raises: ContainerFailed; then they are unchanged."""

    def end(self, pod_uid: str, container: str, *, grace_seconds: int) -> None:
        """Stop one container, and return when it has ended. Raises: ContainerFailed."""

    def files_folder(self, pod_uid: str, volume: str) -> Path | None:
        """The directory for the files of a volume that the agent makes; None for a runtime without files.

        It is in memory, and empty when created: after a restart of the machine. Raises: OSError.
        """

    def runs(self, pod_uid: str) -> Mapping[str, ContainerRun]:
        """The pod's containers by name, in their current state. Raises: ContainerFailed."""

    def storage(self, pod_uid: str, volumes: Collection[str], *, layers: bool) -> PodStorage:
        """The disk use now, of `volumes` and containers; layers: with writable layers. Raises: ContainerFailed."""

    def next_change(self, pod_uid: str) -> float | None:
        """The time (POSIX seconds) of the next change without a notification; None for none."""

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with a pod's uid, from any thread, when a container of it has ended or become ready or not."""

    def stop(self, pod_uid: str, *, grace_seconds: int) -> float | None:
        """Stop the pod's containers; call again until none runs.

        Returns None once none runs, else the seconds until the next call. Containers still running `grace_seconds`
        after the first call are killed; a later call may shorten that. Raises: ContainerFailed.
        """

    def remove(self, pod_uid: str) -> None:
        """Forget a stopped pod."""

    def pod_uids(self) -> frozenset[str]:
        """Every pod with a container."""

    def logs(self, pod_uid: str, container: str, query: LogQuery, *, stop: threading.Event) -> Iterator[bytes]:
        """A container's log, in pieces of any size.

        With `query.follow` more pieces follow until the container has ended or `stop` is set (polled several times a
        second). Raises, before the first piece: LogsUnavailable if there is no such run.
        """
