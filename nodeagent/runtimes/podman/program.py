"""podman's command line: one process for each question, with a limit on how long it may take.

A command costs 50 to 100 ms of a CPU, so callers ask about many containers at once and keep the answers.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.inspection import Seen, decoder

#: How long podman may take for anything but fetching an image.
COMMAND_SECONDS = 60.0

#: What podman gives a container when it may: so many open files.
_OPEN_FILES = 1048576
_CAP_SYS_RESOURCE = 24


class PodmanFailed(ContainerFailed):
    """podman ended with an error. status: its exit status; output: all that it said on stderr."""

    def __init__(self, message: str, *, status: int, output: str) -> None:
        super().__init__(message)
        self.status = status
        self.output = output


class Podman:
    """Runs podman commands. Raises ContainerFailed from every method, with podman's own last word."""

    def __init__(self, program: str = "podman", *, options: Sequence[str] = ()) -> None:
        self._command = (program, *options)

    def __call__(self, *arguments: str, timeout: float = COMMAND_SECONDS) -> str:
        """The output of one command. Raises: PodmanFailed where it ends with an error."""
        done = self._complete(arguments, timeout)
        if done.returncode != 0:
            raise _failure(done)
        return done.stdout.decode(errors="replace")

    def inspect(self, names: Iterable[str]) -> dict[str, Seen]:
        """What podman knows about containers, by name; those that it does not know are left out."""
        names = tuple(names)
        if not names:
            return {}
        done = self._complete(("container", "inspect", *names), COMMAND_SECONDS)
        if done.returncode != 0 and b"no such" not in done.stderr:
            raise _failure(done)
        return {seen.name: seen for seen in decoder.decode(done.stdout)}

    def labelled(self, label: str) -> dict[str, Seen]:
        """The containers with `label` ("key=value"), by name."""
        return self.inspect(self("ps", "-a", "--no-trunc", "--format", "{{.ID}}", "--filter", f"label={label}").split())

    def _complete(self, arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                (*self._command, *arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
                env=_environment(),
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise ContainerFailed(f"podman {arguments[0]} did not answer within {timeout:.0f} s") from None
        except OSError as error:
            raise ContainerFailed(f"podman cannot be run: {error}") from error


def installed_podman() -> Podman:
    """Raises: ValueError saying what the machine lacks."""
    missing = [name for name in ("podman", "runc") if shutil.which(name) is None]
    if missing:
        raise ValueError(f"the podman runtime needs {' and '.join(missing)}: apt-get install podman runc")
    if os.geteuid() != 0:
        raise ValueError("the podman runtime needs root: it makes network namespaces and gives devices to containers")
    managed = Path("/run/systemd/system").exists()
    return Podman(options=("--runtime", "runc", *(() if managed else ("--cgroup-manager", "cgroupfs"))))


def limits() -> tuple[str, ...]:
    """Options of `podman run` for an agent that may not raise its own limits, and so cannot for containers."""
    if _may_raise_limits():
        return ()
    files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], _OPEN_FILES)
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    processes = most if hard == resource.RLIM_INFINITY else min(hard, most)
    return ("--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}")


def wait_for_orphans(mark: str, *, seconds: float = COMMAND_SECONDS) -> None:
    """Wait until no podman command whose arguments contain `mark` runs: a killed agent leaves one behind.

    Only then does podman's answer say what that command did. One that hangs is killed.
    """
    deadline = time.monotonic() + seconds
    while orphans := list(_commands_with(mark.encode())):
        if time.monotonic() > deadline:
            for process in orphans:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


def _commands_with(mark: bytes) -> Iterator[int]:
    """The processes of podman (not of its monitors) that have `mark` among their arguments."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].rpartition(b"/")[2] == b"podman" and any(mark in word for word in words[1:]):
            yield int(folder.name)


def _may_raise_limits() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)


def _environment() -> dict[str, str]:
    """The agent's own, without what would make podman talk to the agent's service manager."""
    return {name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "LISTEN_FDS")}


def _failure(done: subprocess.CompletedProcess[bytes]) -> PodmanFailed:
    output = done.stderr.decode(errors="replace")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    word = lines[-1].removeprefix("Error: ") if lines else f"podman ended with status {done.returncode}"
    return PodmanFailed(word, status=done.returncode, output=output)
