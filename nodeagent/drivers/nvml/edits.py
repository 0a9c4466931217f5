"""What a CUDA container gets: device nodes, the driver's files, and where to look for them.

Source: NVIDIA/nvidia-container-toolkit, pkg/nvcdi; for MIG, the chapter "Device Nodes and Capabilities" of NVIDIA's
Multi-Instance GPU User Guide.
"""

from __future__ import annotations

import platform
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeagent import cdi
from nodeagent.cdi import Mount
from nodeagent.drivers.nvml.gpus import Gpu, Mig

# Reads /etc/ld.so.cache: where the dynamic linker finds a library. A header (the magic, the number of entries, the
# length of the texts), then entries of 24 bytes (flags, where the library's name begins, where its path begins, version
# of the OS, hardware capabilities), then texts ended by a zero byte; places count from the magic. Before it may stand a
# cache of an older form. Source: glibc, sysdeps/generic/ dl-cache.h.

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")

#: The part of an entry's flags that tells the architecture, and its value for this machine's 64-bit libraries.
_ARCHITECTURE_MASK = 0xFF00
_ARCHITECTURES = {"x86_64": 0x0300, "aarch64": 0x0A00, "ppc64le": 0x0500}


def library_path(cache: Path, soname: str) -> str:
    """Where the 64-bit library `soname` is; empty where the cache does not exist, or does not have it."""
    wanted = _ARCHITECTURES.get(platform.machine())
    return next((path for name, flags, path in libraries(cache) if name == soname and flags == wanted), "")


def libraries(cache: Path) -> Iterator[tuple[str, int, str]]:
    """(name, architecture, path) of every entry, in the linker's order of preference."""
    try:
        content = cache.read_bytes()
    except OSError:
        return
    start = content.find(_MAGIC)
    if start < 0:
        return
    content = content[start:]
    _, count, _, _, _ = _HEADER.unpack_from(content)
    for index in range(count):
        flags, name, path, _, _ = _ENTRY.unpack_from(content, _HEADER.size + index * _ENTRY.size)
        yield _text(content, name), flags & _ARCHITECTURE_MASK, _text(content, path)


def _text(content: bytes, start: int) -> str:
    return content[start : content.index(b"\0", start)].decode(errors="replace")


# The files of NVIDIA's driver that a container needs: libraries and tools, mounted read-only. All libraries of the
# loaded driver's version that lie beside libcuda go into one directory of the container, each also under the names that
# programs load it by (libcuda.so.1): so nobody has to run ldconfig in there. The directory is the one that NVIDIA's
# images have in LD_LIBRARY_PATH. Source: NVIDIA/nvidia-container-toolkit, pkg/nvcdi/driver-nvml.go, for what is
# mounted; there, hooks make the links and the linker's cache.

OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")

TOOLS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_CUDA = "libcuda.so.1"
_TOOL_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin")
#: Looked through where the linker's cache knows nothing, as in the image of a driver container.
_LIBRARY_FOLDERS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib")
#: Links followed before giving up on a circle.
_LINKS_MAX = 8


def driver_mounts(root: Path, version: str, library_dir: str) -> tuple[Mount, ...]:
    """root: where the driver is installed, "/" or the root of a driver container. version: of the loaded driver.

    library_dir: where the libraries go in the container. Raises: ValueError where the driver's files are not there.
    """
    folder = _library_folder(root)
    files = [path for path in sorted(folder.glob(f"lib*.so.{version}")) if path.is_file()]
    if not any(path.name.startswith("libcuda.so.") for path in files):
        raise ValueError(
            f"{folder} has no libcuda.so.{version}, the version of the loaded driver: reboot if the driver has just "
            "been replaced by another version, or set driverRoot to where this one is installed"
        )
    names = {path.name: _names_of(path) for path in files}
    libraries = [_mount(path, f"{library_dir}/{name}") for path in files for name in names[path.name]]
    return (*libraries, *(_mount(path, f"/usr/bin/{path.name}") for path in _tools(root)))


def _library_folder(root: Path) -> Path:
    """Where libcuda is. Raises: ValueError."""
    cached = library_path(root / "etc/ld.so.cache", _CUDA)
    places = [root / cached.lstrip("/")] if cached else []
    places += [root / folder / _CUDA for folder in _LIBRARY_FOLDERS]
    for place in places:
        if place.is_symlink() or place.exists():
            return place.parent
    raise ValueError(
        f"{_CUDA} is neither in the linker's cache nor in the usual places below {root}: install NVIDIA's driver "
        "libraries there, or set driverRoot to where they are"
    )


def _names_of(library: Path) -> list[str]:
    """Its own name, and those of the links beside it that lead to it."""
    links = sorted(link.name for link in library.parent.glob(f"{library.name.partition('.so')[0]}.so*"))
    return [
        library.name,
        *(name for name in links if name != library.name and _target(library.parent, name) == library.name),
    ]


def _target(folder: Path, name: str) -> str:
    """The name of the file in `folder` that the link `name` leads to; links may be absolute in the driver's root."""
    for _ in range(_LINKS_MAX):
        if not (folder / name).is_symlink():
            return name
        name = (folder / name).readlink().name
    return ""


def _tools(root: Path) -> Iterator[Path]:
    for tool in TOOLS:
        found = next((root / folder / tool for folder in _TOOL_FOLDERS if (root / folder / tool).is_file()), None)
        if found is not None:
            yield found


def _mount(host: Path, container: str) -> Mount:
    return Mount(host_path=str(host), container_path=container, options=OPTIONS)


_CONTROL = ("nvidiactl", "nvidia-uvm")
_CONTROL_IF_THERE = ("nvidia-uvm-tools", "nvidia-modeset")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlRoots:
    """Where the machine's directories are. driver: the root under which NVIDIA's driver is installed."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    driver: Path = Path("/")


def shared_edits(roots: NvmlRoots, mounts: tuple[Mount, ...], library_path: str) -> cdi.ContainerEdits:
    """What a container needs for any GPU. library_path: for LD_LIBRARY_PATH; left alone where empty.

    NVIDIA_VISIBLE_DEVICES keeps NVIDIA's own runtime, where it is installed too, from adding what it sees fit.
    Raises: ValueError where a device node is missing.
    """
    env = ["NVIDIA_VISIBLE_DEVICES=void", *([f"LD_LIBRARY_PATH={library_path}"] if library_path else [])]
    there = [name for name in _CONTROL_IF_THERE if (roots.dev / name).exists()]
    return cdi.ContainerEdits(
        env=tuple(env), device_nodes=tuple(_node(roots, name) for name in (*_CONTROL, *there)), mounts=mounts
    )


def device_edits(roots: NvmlRoots, gpu: Gpu, mig: Mig | None) -> cdi.ContainerEdits:
    """The nodes of one GPU; of a MIG device, also those that let a program into its two instances.

    Raises: ValueError where one is missing.
    """
    names = [f"nvidia{gpu.minor}"]
    if mig is not None:
        instance = f"gpu{gpu.minor}/mig/gi{mig.gpu_instance}"
        names += [_capability(roots, instance), _capability(roots, f"{instance}/ci{mig.compute_instance}")]
    return cdi.ContainerEdits(device_nodes=tuple(_node(roots, name) for name in names))


def _capability(roots: NvmlRoots, instance: str) -> str:
    """The node that stands for the right to use an instance: "nvidia-caps/nvidia-cap12"."""
    file = roots.proc / "driver/nvidia/capabilities" / instance / "access"
    try:
        minor = re.search(r"^DeviceFileMinor:\s*(\d+)$", file.read_text(), re.MULTILINE)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): the MIG device is gone") from error
    if minor is None:
        raise ValueError(f"{file} does not name a DeviceFileMinor")
    return f"nvidia-caps/nvidia-cap{minor[1]}"


def _node(roots: NvmlRoots, name: str) -> cdi.DeviceNode:
    inside, outside = f"/dev/{name}", str(roots.dev / name)
    if not (roots.dev / name).exists():
        raise ValueError(f"{outside} does not exist: run `nvidia-modprobe -u -c 0`, or nvidia-smi once, on the node")
    return cdi.DeviceNode(path=inside, host_path="" if outside == inside else outside, permissions="rw")
