"""podman's command line, what it says of containers, and the labels that ours are known by.

A command costs 50 to 100 ms of a CPU, so callers ask about many containers at once and keep the answers.
"""

from __future__ import annotations

import hashlib
import os
import resource
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, cast

import msgspec

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import ContainerRequest, ContainerRun, Role

# The labels of a container of ours: enough to know it by, should its pod's folder be lost. Those that begin with
# io.kubernetes are the ones that a kubelet's containers have.

#: Which agent's it is: another agent on this machine does not see it.
AGENT = "manciple.dev/agent"
_ROLE, _ATTEMPT, _IMAGE = "manciple.dev/role", "manciple.dev/attempt", "manciple.dev/image"
_STREAK = "manciple.dev/streak"
_DEVICES, _CLAIMS, _NODE = "manciple.dev/cdi-devices", "manciple.dev/claims", "manciple.dev/node"
_CONTAINER, _POD = "io.kubernetes.container.name", "io.kubernetes.pod.name"
_NAMESPACE, _UID = "io.kubernetes.pod.namespace", "io.kubernetes.pod.uid"


def agent_mark(node: str, state_dir: Path) -> str:
    """The value of AGENT, in the names of all that is ours: short, and another one for each agent on a machine."""
    return hashlib.sha256(f"{node}\0{state_dir}".encode()).hexdigest()[:12]


def container_name(mark: str, pod_uid: str, container: str, attempt: int) -> str:
    """podman lets no two containers have one name: an attempt is not started twice."""
    return f"manciple-{mark}-{pod_uid}-{container}-{attempt}"


def identity_of(pod_uid: str, *, mark: str, node: str) -> dict[str, str]:
    """The labels of whatever an agent runs for a pod."""
    return {AGENT: mark, _NODE: node, _UID: pod_uid}


def labels_of(request: ContainerRequest, *, mark: str, node: str) -> dict[str, str]:
    return {
        **identity_of(request.pod_uid, mark=mark, node=node),
        _NAMESPACE: request.namespace,
        _POD: request.pod,
        _CONTAINER: request.name,
        _ROLE: request.role,
        _ATTEMPT: str(request.attempt),
        _STREAK: str(request.streak),
        _IMAGE: request.image,
        _DEVICES: ",".join(request.cdi_devices),
        _CLAIMS: ",".join(request.claims),
    }


def request_of(labels: Mapping[str, str]) -> ContainerRequest:
    """As much of what was asked for as the container's labels tell."""
    role, attempt, streak = (labels.get(label, "") for label in (_ROLE, _ATTEMPT, _STREAK))
    return ContainerRequest(
        pod_uid=labels.get(_UID, ""),
        namespace=labels.get(_NAMESPACE, ""),
        pod=labels.get(_POD, ""),
        name=labels.get(_CONTAINER, ""),
        role=cast("Role", role) if role in ("init", "sidecar") else "main",
        attempt=int(attempt) if attempt.isdigit() else 0,
        streak=int(streak) if streak.isdigit() else 0,
        image=labels.get(_IMAGE, ""),
        command=(),
        args=(),
        environment={},
        cdi_devices=tuple(filter(None, labels.get(_DEVICES, "").split(","))),
        claims=tuple(filter(None, labels.get(_CLAIMS, "").split(","))),
        annotations={},
    )


# What `podman container inspect` says, as far as it is read here, and the run that it tells of.

#: Exit code of a container of which nobody knows how it ended.
UNKNOWN_EXIT = 137


class ContainerLife(msgspec.Struct, frozen=True, rename="pascal"):
    """The life of a container so far. `pid` and `conmon_pid` are 0 once it has ended."""

    status: str
    started_at: str
    finished_at: str
    exit_code: int
    pid: int = 0
    conmon_pid: int = 0
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")


class Config(msgspec.Struct, frozen=True, rename="pascal"):
    """stop_signal: a number, from podman 5 on a name."""

    labels: dict[str, str] | None = None
    stop_signal: int | str = 15


class Seen(msgspec.Struct, frozen=True, rename="pascal"):
    """One container as podman knows it."""

    id: str
    name: str
    state: ContainerLife
    config: Config
    image: str = ""
    config_file: str = msgspec.field(default="", name="OCIConfigPath")

    @property
    def ran(self) -> bool:
        """Whether its process was ever started."""
        return self.state.started_at > "0002"

    @property
    def running(self) -> bool:
        return self.state.status in ("running", "paused", "stopping")

    @property
    def labels(self) -> dict[str, str]:
        return self.config.labels or {}


class _Process(msgspec.Struct, frozen=True):
    env: tuple[str, ...] = ()


class _Config(msgspec.Struct, frozen=True):
    process: _Process = _Process()


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
decoder = msgspec.json.Decoder(list[Seen])
_config_decoder = msgspec.json.Decoder(_Config)


def run_of(seen: Seen) -> ContainerRun:
    """The run of a container that was started."""
    asked = request_of(seen.labels)
    run = ContainerRun(
        name=asked.name,
        role=asked.role,
        attempt=asked.attempt,
        container_id=f"podman://{seen.id}",
        image=asked.image,
        image_id=f"sha256:{seen.image}" if seen.image else "",
        cdi_devices=asked.cdi_devices,
        environment=environment(seen),
        claims=asked.claims,
        streak=asked.streak,
        stop_signal=signal_name(seen.config.stop_signal),
        started_at=seconds(seen.state.started_at),
    )
    return run if seen.running else _ended(run, seen.state)


def signal_name(sent: int | str) -> str:
    """As Kubernetes writes it; those for real time by the nearer of the first and the last."""
    if isinstance(sent, str):
        return sent if sent.startswith("SIG") else f"SIG{sent}"
    first, last = signal.SIGRTMIN, signal.SIGRTMAX
    if not first < sent < last:
        return signal.Signals(sent).name if sent in _SIGNALS else ""
    return f"SIGRTMIN+{sent - first}" if sent - first <= last - sent else f"SIGRTMAX-{last - sent}"


_SIGNALS = frozenset(signal.Signals)


def _ended(run: ContainerRun, state: ContainerLife) -> ContainerRun:
    if state.status not in ("exited", "stopped", "removing") or state.exit_code < 0:
        # podman forgets how a container ended when the machine or the container's monitor went down under it.
        finished = seconds(state.finished_at) if state.finished_at > "0002" else run.started_at
        return lost(run, "it is unknown how the container ended", finished)
    reason = "OOMKilled" if state.oom_killed else ""
    return msgspec.structs.replace(
        run, finished_at=seconds(state.finished_at), exit_code=state.exit_code, reason=reason
    )


def lost(run: ContainerRun, message: str, at: float) -> ContainerRun:
    """`run`, ended at `at` in a way that nobody knows."""
    return msgspec.structs.replace(
        run, finished_at=at, exit_code=UNKNOWN_EXIT, reason="ContainerStatusUnknown", message=message
    )


def environment(seen: Seen) -> dict[str, str]:
    """The variables of the container's process, CDI's among them, from the file that its runtime was given."""
    try:
        lines = _config_decoder.decode(Path(seen.config_file).read_bytes()).process.env
    except (OSError, msgspec.MsgspecError):
        return {}
    return dict(line.partition("=")[::2] for line in lines)


def seconds(time: str) -> float:
    """RFC 3339 with up to nine digits of a second as POSIX seconds."""
    return datetime.fromisoformat(time).timestamp()


#: How long podman may take for anything but fetching an image.
COMMAND_SECONDS = 60.0
#: podman's monitors write down there that a container ran out of memory: in memory, and not wherever the agent began.
WORKING_FOLDER = "/run"
#: Bytes that podman may answer with: what it knows of thousands of containers.
OUTPUT_BYTES = 64 * 1024 * 1024

#: What podman gives a container when it may: so many open files.
_OPEN_FILES = 1048576
_CAP_SYS_RESOURCE = 24


class PodmanFailed(ContainerFailed):
    """podman ended with an error. status: its exit status; output: all that it said on stderr."""

    def __init__(self, message: str, *, status: int, output: str) -> None:
        super().__init__(message)
        self.status = status
        self.output = output


class PodmanTimedOut(ContainerFailed):
    """podman took too long."""


class Podman:
    """Runs podman commands. Raises ContainerFailed from every method, with podman's own last word."""

    def __init__(self, program: str = "podman", *, options: Sequence[str] = ()) -> None:
        self._command = (program, *options)

    def __call__(self, *arguments: str, timeout: float = COMMAND_SECONDS, keep: int = OUTPUT_BYTES) -> str:
        """The output of one command. keep: its bytes that are read. Raises: PodmanFailed for one that fails."""
        done = self._complete(arguments, timeout, keep)
        if done.returncode != 0:
            raise _failure(done)
        return done.stdout.decode(errors="replace")

    def command(self, *arguments: str) -> tuple[str, ...]:
        """The words of one command, for whoever runs it."""
        return (*self._command, *arguments)

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

    def _complete(
        self, arguments: Sequence[str], timeout: float, keep: int = OUTPUT_BYTES
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            return run_bounded((*self._command, *arguments), timeout=timeout, keep=keep)
        except subprocess.TimeoutExpired:
            raise PodmanTimedOut(f"podman {arguments[0]} did not answer within {timeout:.0f} s") from None
        except OSError as error:
            raise ContainerFailed(f"podman cannot be run: {error}") from error


def run_bounded(command: Sequence[str], *, timeout: float, keep: int) -> subprocess.CompletedProcess[bytes]:
    """Like subprocess.run, with no more than `keep` bytes of each stream in memory: the first of stdout, the last of
    stderr. A container may print for as long as its command runs. Raises: OSError, subprocess.TimeoutExpired."""
    deadline = time.monotonic() + timeout
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=podman_environment(),
        start_new_session=True,
        cwd=WORKING_FOLDER,
        umask=0o022,  # what podman and its hooks make is read by containers
    ) as process:
        try:
            output, errors = _read_both(process, deadline, keep)
            return subprocess.CompletedProcess(command, process.wait(deadline - time.monotonic()), output, errors)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def _read_both(process: subprocess.Popen[bytes], deadline: float, keep: int) -> tuple[bytes, bytes]:
    """(stdout, stderr) until both end. Raises: subprocess.TimeoutExpired."""
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((process.stdout, output), (process.stderr, errors)):
            selector.register(cast("IO[bytes]", stream), selectors.EVENT_READ, kept)
        while selector.get_map():
            if (left := deadline - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in selector.select(left):
                if not (piece := os.read(key.fd, 65536)):
                    selector.unregister(key.fileobj)
                key.data.extend(piece)
                del output[keep:], errors[:-keep]
    return bytes(output), bytes(errors)


def installed_podman() -> Podman:
    """Raises: ValueError saying what the machine lacks."""
    missing = [name for name in ("podman", "runc") if shutil.which(name) is None]
    if missing:
        raise ValueError(f"the podman runtime needs {' and '.join(missing)}: apt-get install podman runc")
    if os.geteuid() != 0:
        raise ValueError(
            "the podman runtime needs root: it creates network namespaces and passes devices to containers"
        )
    return Podman(options=("--runtime", "runc", *(() if systemd_manages() else ("--cgroup-manager", "cgroupfs"))))


def systemd_manages() -> bool:
    """Whether systemd makes the control groups of this machine."""
    return Path("/run/systemd/system").exists()


class _Line(msgspec.Struct):
    """Of runc's log."""

    level: str = ""
    msg: str = ""


_line_decoder = msgspec.json.Decoder(_Line)


def runc_complaint(log: Path) -> str:
    """Why runc could not start a command, from its log in JSON; "" if it says nothing."""
    with suppress(OSError):
        for line in log.read_bytes().splitlines():
            with suppress(msgspec.MsgspecError):
                if (found := _line_decoder.decode(line)).level == "error":
                    return found.msg
    return ""


def least_oom_score() -> int:
    """The least score that this process may give another."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    return min(own, -1000) if _may_raise_limits() else own


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


def podman_environment() -> dict[str, str]:
    """The agent's own, without what would make podman talk to the agent's service manager."""
    return {name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "LISTEN_FDS")}


def _failure(done: subprocess.CompletedProcess[bytes]) -> PodmanFailed:
    output = done.stderr.decode(errors="replace")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    word = lines[-1].removeprefix("Error: ") if lines else f"podman ended with status {done.returncode}"
    return PodmanFailed(word, status=done.returncode, output=output)
