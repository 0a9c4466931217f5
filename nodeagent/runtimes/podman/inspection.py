"""What `podman container inspect` says, as far as it is read here, and the run that it tells of."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from nodeagent.runtimes.podman import labels
from nodeagent.runtimes.protocol import ContainerRun

#: Exit code of a container of which nobody knows how it ended.
UNKNOWN_EXIT = 137


class State(msgspec.Struct, frozen=True, rename="pascal"):
    """The life of a container so far. `pid` and `conmon_pid` are 0 once it has ended."""

    status: str
    started_at: str
    finished_at: str
    exit_code: int
    pid: int = 0
    conmon_pid: int = 0
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")


class Config(msgspec.Struct, frozen=True, rename="pascal"):
    """`stop_signal` by number."""

    labels: dict[str, str] | None = None
    stop_signal: int = 15


class Seen(msgspec.Struct, frozen=True, rename="pascal"):
    """One container as podman knows it."""

    id: str
    name: str
    state: State
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
    words = labels.read(seen.labels)
    run = ContainerRun(
        name=words.container,
        role=words.role,
        attempt=words.attempt,
        container_id=f"podman://{seen.id}",
        image=words.image,
        image_id=f"sha256:{seen.image}" if seen.image else "",
        cdi_devices=words.cdi_devices,
        environment=environment(seen),
        claims=words.claims,
        started_at=seconds(seen.state.started_at),
    )
    return run if seen.running else _ended(run, seen.state)


def _ended(run: ContainerRun, state: State) -> ContainerRun:
    if state.status not in ("exited", "stopped", "removing") or state.exit_code < 0:
        # podman forgets how a container ended when the machine or the container's monitor went down under it.
        finished = seconds(state.finished_at) if state.finished_at > "0002" else run.started_at
        return lost(run, "nobody saw how the container ended", finished)
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
