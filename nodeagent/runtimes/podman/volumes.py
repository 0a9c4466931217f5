"""The volumes of a pod on this machine: checked or made, and as options of `podman run`.

Source: core/v1 HostPathType; kubernetes pkg/volume/hostpath and pkg/volume/emptydir.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman import subpaths
from nodeagent.runtimes.podman.folder import PodFolder
from nodeagent.runtimes.podman.mounts import mount
from nodeagent.runtimes.request import ContainerRequest, MountRequest

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
            source = _below(_source(folder, wanted), wanted, held)
        except OSError as error:
            raise ContainerFailed(f"volume {wanted.volume}: {error}", reason="CreateContainerConfigError") from error
        if ":" in f"{source}{wanted.target}":
            raise ContainerFailed(f"volume {wanted.volume}: podman cannot mount a path with a colon: {source}")
        access = "ro" if wanted.read_only else "rw"
        yield from ("--volume", f"{source}:{wanted.target}:{access},{_PROPAGATION[wanted.propagation]},rbind")


def _source(folder: PodFolder, wanted: MountRequest) -> Path:
    if wanted.kind == "hostPath":
        return _host_path(wanted)
    path = folder.volume(wanted.volume)
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(0o777)
    if wanted.kind == "memory" and not os.path.ismount(path):
        size = f",size={wanted.size}" if wanted.size else ""
        mount("tmpfs", path, "tmpfs", f"mode=0777{size}")
    return path


def _host_path(wanted: MountRequest) -> Path:
    path = Path(wanted.path)
    if wanted.host_type == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif wanted.host_type == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    elif not wanted.host_type and not path.exists():
        path.mkdir(mode=0o755, parents=True)  # as container runtimes do for Kubernetes
    if wanted.host_type:
        kind, holds = _TYPES[wanted.host_type]
        if not holds(path.stat().st_mode):
            raise OSError(f"hostPath type check failed: {path} is not {kind}")
    return path


def _below(root: Path, wanted: MountRequest, target: Path) -> Path:
    """The part of the volume at `root` that the container sees: the sub path, held at `target`, or all of it."""
    if not wanted.sub_path:
        return root
    handle = subpaths.open_below(root, wanted.sub_path)
    try:
        subpaths.hold(handle, target)
    finally:
        os.close(handle)
    return target
