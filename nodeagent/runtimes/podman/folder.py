"""The folder of one pod: what podman does not know of its containers, and the volumes that they see.

    notes/CONTAINER.json          what was last asked for, and how the attempt before it ended
    logs/CONTAINER.ATTEMPT.log    what the container printed
    messages/CONTAINER.ATTEMPT    what it left at its terminationMessagePath
    volumes/NAME                  its emptyDir volumes, and those of files that the agent makes
    subpaths/VOLUME/CONTAINER/N   mounts of the parts of volumes that containers see
    hosts                         its /etc/hosts

A note is written before podman is asked to start anything: after a crash it says which container to look for.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec
from msgspec.structs import replace

from manciple.wire.base import Value
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.kernel import bind, mount, mounts_below, unmount
from nodeagent.runtimes.podman.program import Podman
from nodeagent.runtimes.protocol import ContainerRequest, ContainerRun, MountRequest, PodStorage, ResolverRequest
from nodeagent.storage import Disk, make_public, remove_tree

# The sub path of a volume: opened so that it cannot lead out of the volume, and held by a mount for podman to use.
# Containers write to their volumes while the agent, as root, works on the same paths. So a path is never checked first
# and used later: `open_below` walks it one directory at a time from an open one and follows no link, and what it has
# opened is bound to a place that no container can reach. Links that stay inside the volume were resolved before the
# walk; one that is put there during it is refused. Source: kubernetes pkg/volume/util/subpath/subpath_linux.go
# (SafeMakeDir, doSafeOpen, doBindSubPath).

#: A handle of a file or directory that reads nothing, blocks on nothing and follows no link at its end.
_HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_below(root: Path, sub_path: str) -> int:
    """A handle (O_PATH) of `sub_path` in the volume at `root`; directories that are missing are made, as open as it is.

    Raises: OSError, also where it leads outside the volume.
    """
    base = root.resolve(strict=True)
    handle = os.open(base, _HANDLE | os.O_DIRECTORY)
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    for name in _parts(base, sub_path):
        try:
            below = _open_or_make(name, handle, mode=mode)
        finally:
            os.close(handle)
        handle = below
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            os.close(handle)
            raise _leads_out(sub_path)
    return handle


def hold(handle: int, target: Path) -> None:
    """Mount what is open as `handle` at `target`, in place of what an earlier attempt at the container was given."""
    _unmount_all(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    is_directory = stat.S_ISDIR(os.fstat(handle).st_mode)
    if target.exists() and target.is_dir() != is_directory:
        _remove(target)
    if is_directory:
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    bind(Path(f"/proc/self/fd/{handle}"), target)


def release(folder: Path) -> None:
    """Unmount and remove all that was held below `folder`. Never removes what stands behind a mount.

    Raises: OSError.
    """
    if not folder.is_dir():
        return
    for volume in folder.iterdir():
        for container in volume.iterdir():
            for target in container.iterdir():
                _unmount_all(target)
                _remove(target)
            container.rmdir()
        volume.rmdir()
    folder.rmdir()


def _parts(base: Path, sub_path: str) -> tuple[str, ...]:
    """The names to walk from `base`, links resolved as they stand now."""
    given = PurePosixPath(sub_path)
    if given.is_absolute() or ".." in given.parts:
        raise _leads_out(sub_path)
    try:
        found = (base / given).resolve()
    except RuntimeError as error:  # links that lead to each other
        raise OSError(f"subPath {sub_path} has a loop of symbolic links") from error
    if not found.is_relative_to(base):
        raise _leads_out(sub_path)
    return found.relative_to(base).parts


def _open_or_make(name: str, parent: int, *, mode: int) -> int:
    try:
        return os.open(name, _HANDLE, dir_fd=parent)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise OSError(f"subPath: {name} is below something that is not a directory") from None
    with suppress(FileExistsError):  # a container was faster
        os.mkdir(name, mode, dir_fd=parent)
    made = os.open(name, _HANDLE, dir_fd=parent)
    if stat.S_ISDIR(os.fstat(made).st_mode):
        Path(f"/proc/self/fd/{made}").chmod(mode)  # mkdir(2) heeds the umask
    return made


def _leads_out(sub_path: str) -> OSError:
    return OSError(f"subPath {sub_path} leads outside the volume")


def _unmount_all(target: Path) -> None:
    """Until nothing is mounted at `target`."""
    while True:
        try:
            unmount(target)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return
            raise


def _remove(target: Path) -> None:
    """An empty directory or file: a mount point is busy, and what it covers is never looked into."""
    if target.is_dir():
        target.rmdir()
    else:
        target.unlink()


log = logging.getLogger(__name__)

#: A longer message is cut. Source: kubernetes pkg/kubelet/container/runtime.go.
MESSAGE_BYTES = 4096
LOG_MESSAGE_BYTES, LOG_MESSAGE_LINES = 2048, 80


class Backoff(Value):
    """An image that could not be pulled: not again before `until`, and then after `wait` seconds more."""

    until: float
    wait: float
    message: str


class ContainerNote(Value):
    """One container of the pod.

    request: the latest attempt, without what is confidential in its environment. outcome: how that ended, where podman
    cannot say: it never ran, or is lost. before: the attempt before it. backoff: while its image cannot be pulled.
    """

    request: ContainerRequest
    outcome: ContainerRun | None = None
    before: ContainerRun | None = None
    backoff: Backoff | None = None


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_decoder = msgspec.json.Decoder(ContainerNote)
_encoder = msgspec.json.Encoder()


class PodFolder:
    """`path`: the pod's own. Raises ContainerFailed where the disk refuses."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def notes(self) -> dict[str, ContainerNote]:
        """By container. One that cannot be read is a container that podman alone knows."""
        folder, notes = self.path / "notes", {}
        self._disk.sweep(folder)
        for name in self._disk.names(folder, ".json"):
            try:
                notes[name.removesuffix(".json")] = _decoder.decode(self._disk.read(folder / name))
            except (msgspec.MsgspecError, OSError) as error:
                log.error("%s cannot be read: %s; its container is looked up with podman", folder / name, error)  # noqa: TRY400 - a damaged file, not a bug
        return notes

    def keep(self, note: ContainerNote) -> None:
        path = self.path / "notes" / f"{note.request.name}.json"
        try:
            self._disk.write(path, _encoder.encode(_written(note)), mode=0o600)
        except OSError as error:
            raise ContainerFailed(f"container {note.request.name} cannot be recorded: {error}") from error

    def log_file(self, container: str, attempt: int) -> Path:
        return self.path / "logs" / f"{container}.{attempt}.log"

    def message_file(self, container: str, attempt: int) -> Path:
        return self.path / "messages" / f"{container}.{attempt}"

    @property
    def hosts_file(self) -> Path:
        return self.path / "hosts"

    @property
    def resolver_file(self) -> Path:
        return self.path / "resolv.conf"

    @property
    def pause_root(self) -> Path:
        """Of the container that holds the pod's process namespace."""
        return self.path / "pause"

    def volume(self, name: str) -> Path:
        return self.path / "volumes" / name

    def files(self, name: str) -> Path:
        """A volume whose files the agent makes: in memory, and behind a folder that others do not enter.

        Raises: OSError.
        """
        path = self.volume(name)
        path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        if not os.path.ismount(path):
            mount("tmpfs", path, "tmpfs", "mode=0755")
        return path

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
            self.hosts_file.chmod(0o644)  # containers read it as any user
            if request.resolver is not None:
                self.resolver_file.write_text(resolver_text(request.resolver))
                self.resolver_file.chmod(0o644)
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
            release(self.path / "subpaths")  # first: behind them stand the node's files
            # So they do behind whatever a privileged container mounted into a volume that it shares with the node.
            for mounted in sorted(mounts_below(self.path), reverse=True):
                unmount(mounted)
            if self.path.exists():
                remove_tree(self.path)
        except OSError as error:
            raise ContainerFailed(f"the pod's folder {self.path} cannot be removed: {error}") from error


def _written(note: ContainerNote) -> ContainerNote:
    """What is written down of a container: nothing that is confidential."""
    request = replace(note.request, environment=note.request.recorded_environment)
    if not request.confidential:
        return note
    outcome, before = (run and replace(run, environment=request.environment) for run in (note.outcome, note.before))
    return replace(note, request=request, outcome=outcome, before=before)


def _hosts(request: ContainerRequest) -> str:
    """In the node's network the node's own file, with the pod's aliases."""
    lines = [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "\t".join(dict.fromkeys(filter(None, (request.address, request.full_name, request.hostname)))),
    ]
    if request.host_network:
        lines = Path("/etc/hosts").read_text().splitlines()
    lines += [f"{address}\t{' '.join(names)}" for address, names in request.host_aliases]
    return "".join(f"{line}\n" for line in lines)


#: The node's.
RESOLVER = Path("/etc/resolv.conf")


def resolver_text(wanted: ResolverRequest, node: Path = RESOLVER) -> str:
    """A resolv.conf: the last value of an option counts, and of the node's lines `search` the last one, as for any
    resolver. Raises: OSError.
    """
    given = [line.split() for line in node.read_text().splitlines()] if wanted.from_node else []
    of_node = [words[1] for words in given if words[:1] == ["nameserver"] and len(words) > 1]
    searched = [words[1:] for words in given if words[:1] in (["search"], ["domain"])][-1:]
    chosen = [word.partition(":")[::2] for words in given if words[:1] == ["options"] for word in words[1:]]
    searches = dict.fromkeys([*(name for names in searched for name in names), *wanted.searches])
    options = [f"{name}:{value}" if value else name for name, value in dict([*chosen, *wanted.options]).items()]
    lines = [f"search {' '.join(searches)}"] if searches else []
    lines += [f"nameserver {server}" for server in dict.fromkeys((*of_node, *wanted.nameservers))]
    lines += [f"options {' '.join(options)}"] if options else []
    return "".join(f"{line}\n" for line in lines)


def _end_of(log_file: Path) -> bytes:
    """The last lines of a log, without times."""
    with log_file.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 4 * LOG_MESSAGE_BYTES))
        from_here = stream.read(4 * LOG_MESSAGE_BYTES).splitlines()[-LOG_MESSAGE_LINES:]
    texts = (line.split(b" ", 3)[-1] + b"\n" for line in from_here if line.count(b" ") >= 3)  # noqa: PLR2004
    return b"".join(texts)[-LOG_MESSAGE_BYTES:]


# The volumes of a pod on this machine: checked or made, and as options of `podman run`. Source: core/v1 HostPathType;
# kubernetes pkg/volume/hostpath and pkg/volume/emptydir.

_TYPES: dict[str, tuple[str, Callable[[int], bool]]] = {
    "Directory": ("a directory", stat.S_ISDIR),
    "DirectoryOrCreate": ("a directory", stat.S_ISDIR),
    "File": ("a file", stat.S_ISREG),
    "FileOrCreate": ("a file", stat.S_ISREG),
    "Socket": ("a socket", stat.S_ISSOCK),
    "CharDevice": ("a character device", stat.S_ISCHR),
    "BlockDevice": ("a block device", stat.S_ISBLK),
}
_PROPAGATION = {"": "rprivate", "None": "rprivate", "HostToContainer": "rslave", "Bidirectional": "rshared"}


def volume_options(folder: PodFolder, request: ContainerRequest) -> Iterator[str]:
    """Makes what is missing. Raises: ContainerFailed naming the volume."""
    for number, wanted in enumerate(request.mounts):
        try:
            held = folder.sub_path(wanted.volume, request.name, number)
            source = _below(_source(folder, wanted, request.security.fs_group), wanted, held)
        except OSError as error:
            raise ContainerFailed(f"volume {wanted.volume}: {error}", reason="CreateContainerConfigError") from error
        if ":" in f"{source}{wanted.target}":
            raise ContainerFailed(f"volume {wanted.volume}: podman cannot mount a path with a colon: {source}")
        access = "ro" if wanted.read_only else "rw"
        yield from ("--volume", f"{source}:{wanted.target}:{access},{_PROPAGATION[wanted.propagation]},rbind")


def _source(folder: PodFolder, wanted: MountRequest, fs_group: int | None) -> Path:
    """fs_group: whom an emptyDir is made for: what is written to it is theirs, too."""
    if wanted.kind == "hostPath":
        return _host_path(wanted)
    if wanted.kind == "files":
        return folder.files(wanted.volume)
    path, mode = folder.volume(wanted.volume), 0o777 if fs_group is None else 0o2777
    if not path.is_dir():
        path.mkdir(parents=True)
        _hand_over(path, fs_group, mode)
    if wanted.kind == "memory" and not os.path.ismount(path):
        mount("tmpfs", path, "tmpfs", f"mode={mode:o}" + (f",size={wanted.size}" if wanted.size else ""))
        _hand_over(path, fs_group, mode)
    return path


def _hand_over(path: Path, group: int | None, mode: int) -> None:
    if group is not None:
        os.chown(path, -1, group)
    path.chmod(mode)  # chown takes the bit away that hands the group on


def _host_path(wanted: MountRequest) -> Path:
    path = Path(wanted.path)
    if wanted.host_type == "FileOrCreate" and not path.exists():
        path.touch()
        path.chmod(0o644)
    elif wanted.host_type in ("", "DirectoryOrCreate") and not path.exists():
        make_public(path)  # without a type, as container runtimes do for Kubernetes
    if wanted.host_type:
        kind, holds = _TYPES[wanted.host_type]
        if not holds(path.stat().st_mode):
            raise OSError(f"hostPath type check failed: {path} is not {kind}")
    return path


def _below(root: Path, wanted: MountRequest, target: Path) -> Path:
    """The part of the volume at `root` that the container sees: the sub path, held at `target`, or all of it."""
    if not wanted.sub_path:
        return root
    handle = open_below(root, wanted.sub_path)
    try:
        hold(handle, target)
    finally:
        os.close(handle)
    return target


# Disk use -------------------------------------------------------------------------------------------------------------

# The disk use of a pod's containers: volumes, logs, and the layers with what containers wrote into their images. `du`
# measures: it handles trees of any depth, follows no link and stays on one file system, whatever containers do to the
# tree meanwhile, and can be stopped.


#: Seconds for one pod's files.
PATIENCE = 60.0
#: Layers that are remembered.
REMEMBERED = 4096


class DiskUsage:
    """Of one runtime's containers."""

    def __init__(self, podman: Podman) -> None:
        self._podman = podman
        self._layers: dict[str, str] = {}

    def measure(self, folder: PodFolder, volumes: Collection[str], containers: Mapping[str, str]) -> PodStorage:
        """containers: name -> that of the container in podman, "" where what it wrote into its image does not count.

        Raises: ContainerFailed.
        """
        logs, layers = folder.path / "logs", {name: self._layer(known) for name, known in containers.items()}
        paths = {f"volume {name}": folder.volume(name) for name in volumes}
        paths |= {f"layer {name}": Path(layer) for name, layer in layers.items() if layer}
        used = _counted(paths)
        return PodStorage(
            volumes={name: used.get(f"volume {name}", 0) for name in volumes},
            containers={name: used.get(f"layer {name}", 0) + _of_logs(logs, name) for name in containers},
        )

    def _layer(self, container: str) -> str:
        """Where podman keeps what the container writes into its image; "" where that is in memory."""
        if not container:
            return ""
        if container not in self._layers:
            if len(self._layers) >= REMEMBERED:
                self._layers.clear()
            form = '{{with .GraphDriver}}{{index .Data "UpperDir"}}{{end}}'
            found = self._podman("inspect", "--type", "container", "--format", form, "--", container).strip()
            self._layers[container] = found if found.startswith("/") else ""
        return self._layers[container]


def _counted(paths: Mapping[str, Path]) -> dict[str, int]:
    """Bytes on the disk below each path; 0 for one that is not there."""
    known = {str(path): name for name, path in paths.items() if path.is_dir()}
    if not known:
        return {}
    command = ["du", "--summarize", "--one-file-system", "--block-size=1", "--null", "--", *known]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("cannot tell how much of the disk is used below %s: %s", ", ".join(known), error)
        return {}
    lines = (line.partition("\t") for line in done.stdout.split("\0") if line)
    return {known[path]: int(size) for size, _, path in lines if path in known and size.isdecimal()}


def _of_logs(folder: Path, container: str) -> int:
    """Of the container's attempts: NAME.ATTEMPT.log."""
    found = folder.glob(f"{container}.*.log")
    return sum(file.stat().st_blocks * 512 for file in found if file.name.count(".") == container.count(".") + 2)
