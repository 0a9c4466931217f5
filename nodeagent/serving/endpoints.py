"""Where the kubelet finds a driver: the names of its two sockets.

Source: kubernetes staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin/draplugin.go.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

#: The kubelet's own directories.
REGISTRAR_DIR = Path("/var/lib/kubelet/plugins_registry")
PLUGINS_DIR = Path("/var/lib/kubelet/plugins")
CDI_DIR = Path("/var/run/cdi")

#: Bytes of a Unix socket's path, the terminating zero not counted.
SOCKET_PATH_MAX = 107


@dataclass(frozen=True, slots=True)
class Endpoints:
    """registration: in the directory that the kubelet watches. service: where the driver's calls are served."""

    registration: Path
    service: Path


def endpoints(driver: str, *, registrar_dir: Path, plugin_dir: Path, uid: str = "") -> Endpoints:
    """uid: of the pod that the driver runs in, where two of them may run at once while one replaces the other.

    Raises: ValueError for a path that is too long for a socket.
    """
    found = Endpoints(
        registration=registrar_dir / _registration_name(driver, uid, registrar_dir),
        service=plugin_dir / (f"dra-{uid}.sock" if uid else "dra.sock"),
    )
    for path in (found.registration, found.service):
        if not _fits(path):
            raise ValueError(f"{path} is longer than the {SOCKET_PATH_MAX} bytes of a socket's path; use a shorter one")
    return found


def _registration_name(driver: str, uid: str, folder: Path) -> str:
    """With a uid the first that fits: the uid itself, a digest of it, a digest of the driver's name and it."""
    if not uid:
        return f"{driver}-reg.sock"
    both = "\0".join((driver, uid))
    names = (
        f"{driver}-{uid}-reg.sock",
        f"{driver}-{_digest(uid, 8)}-reg.sock",
        f"dra-{_digest(both, 16)}-reg.sock",
    )
    return next((name for name in names if _fits(folder / name)), names[-1])


def _digest(text: str, size: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:size]).decode().rstrip("=")


def _fits(path: Path) -> bool:
    return len(bytes(path)) <= SOCKET_PATH_MAX
