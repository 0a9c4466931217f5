"""The files of NVIDIA's driver that a container needs: libraries and tools, mounted read-only.

All libraries of the loaded driver's version that lie beside libcuda go into one directory of the container, each also
under the names that programs load it by (libcuda.so.1): so nobody has to run ldconfig in there. The directory is the
one that NVIDIA's images have in LD_LIBRARY_PATH. Source: NVIDIA/nvidia-container-toolkit, pkg/nvcdi/driver-nvml.go, for
what is mounted; there, hooks make the links and the linker's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nodeagent.cdi.spec import Mount
from nodeagent.drivers.nvml.ldcache import library_path

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
