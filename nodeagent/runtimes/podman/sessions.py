"""Commands in running containers, and their own streams.

A command is started by runc itself, which hands it our pipes: what podman would put between them outlives its client,
one monitor for every command. A terminal is runc's, and ours carries it. Whoever hangs up leaves a command with SIGHUP,
as a terminal does, and so do those that it has begun: one that is to outlive its client says so (`nohup`).
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from claims.kinds.pod_streams import StreamOptions
from manciple.wire.channels import failure
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.conversations import ProcessConversation
from nodeagent.runtimes.podman.program import Podman, podman_environment, runc_complaint

_numbers = itertools.count()


class RuncCommand(ProcessConversation):
    """files: begins the names of two files of this command, its process's number and runc's log."""

    def __init__(self, container_id: str, options: StreamOptions, *, files: Path) -> None:
        self._pid, self._log = files.with_suffix(".pid"), files.with_suffix(".log")
        self._has_started = False
        words = ["runc", "--log", str(self._log), "--log-format", "json", "exec", "--pid-file", str(self._pid)]
        super().__init__(
            [*words, *(("--tty",) if options.tty else ()), container_id, *options.command],
            stdin=options.stdin,
            stderr=options.stderr,
            tty=options.tty,
            hang_up=self._hang_up_inside,
            env=podman_environment(),
        )

    def failed_to_start(self) -> bool:
        """runc prints what it has written into its log; a command that it has started may print before its number is
        written, but then there is no error in the log.
        """
        self._has_started = self._has_started or self._pid.exists()
        return not self._has_started and bool(runc_complaint(self._log))

    def status(self) -> dict[str, Any]:
        ended = super().status()
        if not self._pid.exists() and ended["status"] != "Success":
            why = runc_complaint(self._log) or "the container has ended"
            return failure(f"Internal error occurred: error executing command in container: {why}")
        return ended

    def _hang_up_inside(self) -> None:
        with suppress(OSError, ValueError):
            os.killpg(int(self._pid.read_text()), signal.SIGHUP)  # runc makes each command the leader of a session

    def close(self) -> None:
        super().close()
        self._pid.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)


def execute(container_id: str, options: StreamOptions, *, folder: Path) -> RuncCommand:
    """folder: in memory, for the files of commands. Raises: ContainerFailed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return RuncCommand(container_id, options, files=folder / str(next(_numbers)))
    except OSError as error:
        raise ContainerFailed(f"the command cannot be started: {error}") from error


def recover(folder: Path) -> None:
    """Hang up on the commands that an agent which was killed has left. Raises: OSError."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):  # it has ended
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].rpartition(b"/")[2] == b"runc" and any(word.startswith(bytes(folder) + b"/") for word in words):
                for children in process.glob("task/*/children"):  # any of its threads may have begun one
                    for child in children.read_text().split():
                        os.killpg(int(child), signal.SIGHUP)
                os.kill(int(process.name), signal.SIGKILL)
    for path in folder.glob("*"):
        path.unlink(missing_ok=True)


class Attachment(ProcessConversation):
    """podman's client of a container's own streams. ends_stdin: whether the container's ends with the client's; else
    only the session does.

    Source: containerd internal/cri/io/container_io.go (Attach).
    """

    def __init__(self, command: Sequence[str], options: StreamOptions, *, ends_stdin: bool) -> None:
        self._ends_stdin = ends_stdin
        super().__init__(
            command,
            stdin=options.stdin,
            stderr=options.stderr,
            tty=options.tty,
            reports_exit=False,
            env=podman_environment(),
        )

    def close_stdin(self) -> None:
        if self.stdin is not None and not self._ends_stdin:
            self._process.terminate()
        super().close_stdin()


def attach(podman: Podman, name: str, options: StreamOptions, *, ends_stdin: bool) -> Attachment:
    """Raises: ContainerFailed."""
    words = ("attach", "--detach-keys=", "--sig-proxy=false", *(() if options.stdin else ("--no-stdin",)), name)
    try:
        return Attachment(podman.command(*words), options, ends_stdin=ends_stdin)
    except OSError as error:
        raise ContainerFailed(f"podman cannot be run: {error}") from error
