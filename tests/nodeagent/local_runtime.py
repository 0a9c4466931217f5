"""A runtime whose "containers" are this machine: commands are real processes, ports those of the loopback address."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from claims.kinds.pod_streams import StreamOptions
from nodeagent.failures import StreamFailed
from nodeagent.runtimes.conversations import Conversation, PortConversation, ProcessConversation
from nodeagent.runtimes.protocol import ContainerRun

#: What an attached container does: it repeats what it reads, and ends with it.
ECHO = ("sh", "-c", 'while read -r line; do echo "got $line"; done')


class LocalRuntime:
    """As much of a runtime as sessions need. ended: containers that do not run. begun: all conversations."""

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self.begun: list[Any] = []

    def runs(self, pod_uid: str) -> Mapping[str, ContainerRun]:
        return {name: _run(name, running=name not in self.ended) for name in ("main", "a", "b")}

    def execute(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:
        return self._begun(
            ProcessConversation(options.command, stdin=options.stdin, stderr=options.stderr, tty=options.tty, raw=False)
        )

    def attach(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:
        return self._begun(
            ProcessConversation(ECHO, stdin=options.stdin, stderr=options.stderr, tty=options.tty, reports_exit=False)
        )

    def connect(self, pod_uid: str, port: int) -> Conversation:
        try:
            return self._begun(PortConversation(socket.create_connection(("127.0.0.1", port), timeout=10)))
        except OSError as error:
            raise StreamFailed(f"failed to connect to localhost:{port} inside the pod: {error}") from error

    def _begun(self, conversation: Any) -> Conversation:
        self.begun.append(conversation)
        found: Conversation = conversation
        return found


def _run(name: str, *, running: bool) -> ContainerRun:
    return ContainerRun(
        name=name,
        role="main",
        attempt=0,
        container_id=f"local://{name}",
        image="i",
        cdi_devices=(),
        environment={},
        claims=(),
        started_at=1.0,
        finished_at=None if running else 2.0,
    )
