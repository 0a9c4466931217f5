"""What somebody talks to in a pod: a command, a container's own process, a port.

Each has file descriptors, which whoever talks polls (`nodeagent.http.sessions`): no thread is needed for one. A command
with a terminal has a pseudo-terminal of this machine; `raw` where another one follows in the container.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import tty as terminals
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from manciple.wire.channels import STDERR, STDOUT, exited, success

#: The last exit code of a process; a negative one is the signal that ended it.
_SIGNALLED = 128


class Conversation(Protocol):
    """stdin: where to write; None for nothing. outputs: channel -> where to read. ended: readable at the end, or None.

    The descriptors stay the conversation's; they do not block.
    """

    stdin: int | None
    outputs: Mapping[int, int]
    ended: int | None

    def close_stdin(self) -> None:
        """Nothing more is written. Twice is once."""

    def resize(self, columns: int, rows: int) -> None:
        """Of the terminal, if there is one."""

    def failed_to_start(self) -> bool:
        """Whether what is to be read is the runtime's complaint, which the status repeats."""

    def status(self) -> dict[str, Any]:
        """The v1.Status of its end, once its outputs have ended."""

    def close(self) -> None:
        """End it, wherever it is."""


class ProcessConversation:
    """A command of this machine that leads into a container.

    hang_up: called when it is closed before it has ended. reports_exit: whether its exit code is the answer.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: bool,
        stderr: bool,
        tty: bool,
        raw: bool = True,
        reports_exit: bool = True,
        hang_up: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        """Raises: OSError."""
        self._reports_exit, self._hang_up = reports_exit, hang_up
        self._terminal: int | None = None
        if tty:
            self._terminal, theirs = pty.openpty()
            if raw:
                terminals.setraw(theirs)
            streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        else:
            streams = {
                "stdin": subprocess.PIPE if stdin else subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE if stderr else subprocess.DEVNULL,
            }
        try:
            self._process = subprocess.Popen(command, start_new_session=True, **streams, **options)
        except BaseException:
            if self._terminal is not None:
                os.close(self._terminal)
            raise
        finally:
            if tty:
                os.close(theirs)
        process = self._process
        self.ended: int | None = os.pidfd_open(process.pid)
        if self._terminal is not None:
            self.stdin: int | None = self._terminal if stdin else None
            self.outputs: Mapping[int, int] = {STDOUT: self._terminal}
        else:
            self.stdin = process.stdin.fileno() if process.stdin is not None else None
            found = {STDOUT: process.stdout, STDERR: process.stderr}
            self.outputs = {channel: stream.fileno() for channel, stream in found.items() if stream is not None}
        for descriptor in {self.stdin, *self.outputs.values()} - {None}:
            os.set_blocking(descriptor or 0, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close_stdin(self) -> None:
        """A terminal has no end of its own: its user types one."""
        self.stdin = None
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def resize(self, columns: int, rows: int) -> None:
        if self._terminal is None:
            return
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        with suppress(ProcessLookupError):  # it is no terminal of the process's own, so the kernel does not tell it
            self._process.send_signal(signal.SIGWINCH)

    def failed_to_start(self) -> bool:
        return False

    def status(self) -> dict[str, Any]:
        code = self._process.wait()
        return exited(code if code >= 0 else _SIGNALLED - code) if self._reports_exit else success()

    def close(self) -> None:
        if self._process.poll() is None:
            self._hang_up()
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        for descriptor in (self._terminal, self.ended):
            if descriptor is not None:
                os.close(descriptor)
        self._terminal = self.ended = None


class PortConversation:
    """A connection to a port of a pod."""

    ended: int | None = None

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self.stdin: int | None = connection.fileno()
        self.outputs: Mapping[int, int] = {STDOUT: connection.fileno()}

    def close_stdin(self) -> None:
        if self.stdin is not None:
            self.stdin = None
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    def resize(self, columns: int, rows: int) -> None:
        """A port has no terminal."""

    def failed_to_start(self) -> bool:
        return False

    def status(self) -> dict[str, Any]:
        return success()

    def close(self) -> None:
        self._connection.close()


#: What reading a terminal or a connection says when the other side is gone.
GONE = frozenset({errno.EIO, errno.ECONNRESET, errno.EPIPE})
