"""What is done with running containers: hooks and probes (a command, a connection, a GET, a pause), and stopping.

Source: kubernetes pkg/probe (a GET succeeds with a status from 200 to 399).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.kernel import PodNetworks
from nodeagent.runtimes.podman.program import Podman
from nodeagent.runtimes.protocol import Action, ContainerRequest

_OK = range(200, 400)
#: How much of an answer is shown.
_SHOWN = 200


class Actions:
    """Performs them for the containers of one agent."""

    def __init__(self, podman: Podman, networks: PodNetworks, name_of: Callable[[ContainerRequest], str]) -> None:
        self._podman = podman
        self._networks = networks
        self._name_of = name_of

    def perform(self, action: Action, request: ContainerRequest, *, timeout: float) -> str:
        """Blocks; "" when it went well, else what went wrong."""
        try:
            if action.command:
                self._podman("exec", self._name_of(request), *action.command, timeout=timeout)
            elif action.port and action.path:
                return self._get(action, request, timeout)
            elif action.port:
                self._connect(action, request, timeout).close()
            elif action.seconds:
                threading.Event().wait(min(action.seconds, timeout))
        except (ContainerFailed, OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__
        return ""

    def _connect(self, action: Action, request: ContainerRequest, timeout: float) -> socket.socket:
        address = (action.host, action.port)
        if request.host_network:
            return socket.create_connection(address, timeout=timeout)
        return self._networks.connect(request.pod_uid, address, timeout=timeout)

    def _get(self, action: Action, request: ContainerRequest, timeout: float) -> str:
        with self._connect(action, request, timeout) as plain:
            sock = _unverified().wrap_socket(plain) if action.tls else plain
            connection = http.client.HTTPConnection(action.host, action.port, timeout=timeout)
            connection.sock = sock
            connection.request("GET", action.path, headers={"User-Agent": "manciple-probe", **dict(action.headers)})
            answer = connection.getresponse()
            body = answer.read(_SHOWN).decode(errors="replace")
            sock.close()
        return "" if answer.status in _OK else f"HTTP probe failed with statuscode: {answer.status}: {body}"


def _unverified() -> ssl.SSLContext:
    """A probe asks whether the container answers, not who it is; a kubelet does the same."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# Stops the containers of a pod, a step at a time, so that nobody has to wait where others could be served. The main
# containers first, then the sidecars from the last to the first, as KEP-753 has it: each container's preStop hook, then
# its stop signal; what has not ended when the grace period is over is killed.


#: How often a step is taken while a hook runs or a killed container is on its way out.
SOON = 0.5
#: A container that has been killed and still runs after so long is given up, with an error.
KILL_SECONDS = 20.0


@dataclass(slots=True)
class Stopping:
    """How far stopping one pod, or one container, has come. `deadline`: monotonic seconds."""

    deadline: float
    hooks: dict[str, threading.Thread] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    killed: set[str] = field(default_factory=set)

    def look_in(self) -> float:
        """Seconds until the next step is due."""
        if self.killed or any(hook.is_alive() for hook in self.hooks.values()):
            return SOON
        return max(0.0, self.deadline - time.monotonic())


class Stopper:
    """`name_of`: the container's name in podman."""

    def __init__(self, podman: Podman, actions: Actions, name_of: Callable[[ContainerRequest], str]) -> None:
        self._podman = podman
        self._actions = actions
        self._name_of = name_of

    def advance(self, stopping: Stopping, running: Sequence[ContainerRequest]) -> None:
        """Take the next step with the containers that still run. Raises: ContainerFailed."""
        late = time.monotonic() - stopping.deadline
        if late > KILL_SECONDS:
            names = ", ".join(request.name for request in running)
            raise ContainerFailed(f"killed {late:.0f} s ago and still running: {names}")
        if late >= 0:
            self._kill(stopping, running)
        else:
            self._ask(stopping, _next_to_stop(running))

    def _kill(self, stopping: Stopping, running: Sequence[ContainerRequest]) -> None:
        due = [request for request in running if request.name not in stopping.killed]
        self._signal("KILL", due)
        stopping.killed |= {request.name for request in due}

    def _ask(self, stopping: Stopping, group: Sequence[ContainerRequest]) -> None:
        due = [r for r in group if r.name not in stopping.asked and self._hook_is_over(stopping, r)]
        for signal in sorted({request.stop_signal or "TERM" for request in due}):
            self._signal(signal, [request for request in due if (request.stop_signal or "TERM") == signal])
        stopping.asked |= {request.name for request in due}

    def _hook_is_over(self, stopping: Stopping, request: ContainerRequest) -> bool:
        """Starts the preStop hook at the first call. A hook that fails stops nothing."""
        action = request.pre_stop
        if action is None:
            return True
        hook = stopping.hooks.get(request.name)
        if hook is None:
            left = max(1.0, stopping.deadline - time.monotonic())
            hook = threading.Thread(
                target=lambda: self._actions.perform(action, request, timeout=left), name="pre-stop", daemon=True
            )
            stopping.hooks[request.name] = hook
            hook.start()
            hook.join(SOON)
        return not hook.is_alive()

    def _signal(self, signal: str, requests: Iterable[ContainerRequest]) -> None:
        """podman complains of those that have ended meanwhile; whether one has is asked afterwards anyway."""
        names = [self._name_of(request) for request in requests]
        if names:
            try:
                self._podman("kill", "--signal", signal.removeprefix("SIG"), *names)
            except ContainerFailed as error:
                if "did not answer" in str(error):
                    raise


def _next_to_stop(running: Sequence[ContainerRequest]) -> Sequence[ContainerRequest]:
    """The main and init containers, or when none is left the last sidecar."""
    first = [request for request in running if request.role != "sidecar"]
    return first or running[-1:]
