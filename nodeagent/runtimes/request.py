"""What a runtime is asked to start: one container of a pod, with nothing left to look up.

A runtime keeps the request of a container that it started: it is what the container is stopped and probed by, also
after the agent has been restarted.
"""

from __future__ import annotations

from typing import Literal

from manciple.wire.base import Value

#: An init container runs to its end before the next starts; a sidecar runs beside the others and keeps no pod alive.
Role = Literal["init", "sidecar", "main"]


class Action(Value):
    """What a probe or a hook does.

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
    """The checks of one container, each of them optional."""

    startup: ProbeRequest | None = None
    readiness: ProbeRequest | None = None
    liveness: ProbeRequest | None = None


class MountRequest(Value):
    """A volume in a container.

    kind: what the volume is. path: of the node, for hostPath. host_type: what hostPath is checked for. size: bytes that
    an emptyDir in memory may hold, 0 for no limit. sub_path: below the volume's root.
    """

    volume: str
    kind: Literal["hostPath", "emptyDir", "memory"]
    target: str
    path: str = ""
    host_type: str = ""
    size: int = 0
    sub_path: str = ""
    read_only: bool = False
    propagation: str = ""


class Security(Value):
    """As whom, and with which powers, a container's process runs. None: as the image or the runtime say."""

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    non_root: bool = False
    privileged: bool = False
    read_only_root: bool = False
    no_new_privileges: bool = False
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class ContainerRequest(Value):
    """One container to start. `attempt` counts from 0; `environment` is without what CDI adds.

    command, args: as Kubernetes means them, in place of the image's entrypoint and its arguments. cpu_millis,
    memory_bytes: limits, 0 for none. unserved: what the manifest asks for and this agent does not have, in words for
    its owner; a runtime whose containers really run must not start one that lacks something.
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
    claims: tuple[str, ...]  # the uids of the claims that the devices belong to
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
    unserved: tuple[str, ...] = ()
