"""The folder of one pod: what podman does not know of its containers.

    notes/CONTAINER.json          what was last asked for, and how the attempt before it ended
    logs/CONTAINER.ATTEMPT.log    what the container printed
    messages/CONTAINER.ATTEMPT    what it left at its terminationMessagePath
    volumes/NAME                  its emptyDir volumes
    subpaths/VOLUME/CONTAINER/N   mounts of the parts of volumes that containers see
    hosts                         its /etc/hosts

A note is written before podman is asked to start anything: after a crash it says which container to look for.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import msgspec

from manciple.wire.base import Value
from nodeagent.disk import Disk
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import subpaths
from nodeagent.runtimes.podman.mounts import unmount
from nodeagent.runtimes.protocol import ContainerRun
from nodeagent.runtimes.request import ContainerRequest

log = logging.getLogger(__name__)

#: A longer message is cut. Source: kubernetes pkg/kubelet/container/runtime.go.
MESSAGE_BYTES = 4096
LOG_MESSAGE_BYTES, LOG_MESSAGE_LINES = 2048, 80


class Note(Value):
    """One container of the pod.

    request: the latest attempt. outcome: how that ended, where podman cannot say: it never ran, or is lost. before: the
    attempt before it.
    """

    request: ContainerRequest
    outcome: ContainerRun | None = None
    before: ContainerRun | None = None


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_decoder = msgspec.json.Decoder(Note)
_encoder = msgspec.json.Encoder()


class PodFolder:
    """`path`: the pod's own. Raises ContainerFailed where the disk refuses."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def notes(self) -> dict[str, Note]:
        """By container. One that cannot be read is a container that podman alone knows."""
        folder, notes = self.path / "notes", {}
        self._disk.sweep(folder)
        for name in self._disk.names(folder, ".json"):
            try:
                notes[name.removesuffix(".json")] = _decoder.decode(self._disk.read(folder / name))
            except (msgspec.MsgspecError, OSError) as error:
                log.error("%s cannot be read: %s; podman is asked for its container", folder / name, error)  # noqa: TRY400 - a damaged file, not a bug
        return notes

    def keep(self, note: Note) -> None:
        path = self.path / "notes" / f"{note.request.name}.json"
        try:
            self._disk.write(path, _encoder.encode(note))
        except OSError as error:
            raise ContainerFailed(f"container {note.request.name} cannot be recorded: {error}") from error

    def log_file(self, container: str, attempt: int) -> Path:
        return self.path / "logs" / f"{container}.{attempt}.log"

    def message_file(self, container: str, attempt: int) -> Path:
        return self.path / "messages" / f"{container}.{attempt}"

    @property
    def hosts_file(self) -> Path:
        return self.path / "hosts"

    def volume(self, name: str) -> Path:
        return self.path / "volumes" / name

    def sub_path(self, volume: str, container: str, number: int) -> Path:
        """Where the sub path of the container's mount `number` is held."""
        return self.path / "subpaths" / volume / container / str(number)

    def make(self, request: ContainerRequest) -> None:
        """The files that a container needs to start; those of the attempts before the last one are removed."""
        try:
            for file in (
                self.log_file(request.name, request.attempt),
                self.message_file(request.name, request.attempt),
            ):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.parent.chmod(0o755)
            message = self.message_file(request.name, request.attempt)
            message.write_bytes(b"")
            message.chmod(0o666)
            self.hosts_file.write_text(_hosts(request))
            for attempt in range(max(0, request.attempt - 3), request.attempt - 1):
                self.log_file(request.name, attempt).unlink(missing_ok=True)
                self.message_file(request.name, attempt).unlink(missing_ok=True)
        except OSError as error:
            raise ContainerFailed(f"the files of container {request.name} cannot be made: {error}") from error

    def message(self, request: ContainerRequest, *, failed: bool) -> str:
        """What the container that was started for `request` left for its owner to read."""
        try:
            with self.message_file(request.name, request.attempt).open("rb") as stream:
                message = stream.read(MESSAGE_BYTES)
            if not message and failed and request.message_from_log:
                message = _end_of(self.log_file(request.name, request.attempt))
        except OSError:
            return ""
        return message.decode(errors="replace")

    def remove(self) -> None:
        """The folder with everything in it."""
        try:
            subpaths.release(self.path / "subpaths")  # first: behind them stand the node's files
            for volume in (self.path / "volumes").glob("*"):
                if os.path.ismount(volume):
                    unmount(volume)
            if self.path.exists():
                shutil.rmtree(self.path)
        except OSError as error:
            raise ContainerFailed(f"the pod's folder {self.path} cannot be removed: {error}") from error


def _hosts(request: ContainerRequest) -> str:
    """In the node's network the node's own file, with the pod's aliases."""
    lines = [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        f"{request.address}\t{request.hostname}",
    ]
    if request.host_network:
        lines = Path("/etc/hosts").read_text().splitlines()
    lines += [f"{address}\t{' '.join(names)}" for address, names in request.host_aliases]
    return "".join(f"{line}\n" for line in lines)


def _end_of(log_file: Path) -> bytes:
    """The last lines of a log, without times."""
    from_here = log_file.read_bytes()[-4 * LOG_MESSAGE_BYTES :].splitlines()[-LOG_MESSAGE_LINES:]
    texts = (line.split(b" ", 3)[-1] + b"\n" for line in from_here if line.count(b" ") >= 3)  # noqa: PLR2004
    return b"".join(texts)[-LOG_MESSAGE_BYTES:]
