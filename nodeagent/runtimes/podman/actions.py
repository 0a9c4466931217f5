"""Does what a probe or a hook asks for: a command in a container, a connection, a GET request, a pause.

Source: kubernetes pkg/probe (a GET succeeds with a status from 200 to 399).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.network import PodNetworks
from nodeagent.runtimes.podman.program import Podman
from nodeagent.runtimes.request import Action, ContainerRequest

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
