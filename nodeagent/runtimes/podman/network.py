"""The network of a pod: a namespace that its containers share, with a loopback interface and the pod's address on it.

The namespace is held by a file, not by a container or a process: it outlives the agent and every container, and needs
no image. Nothing leads out of it; a pod that is to reach others runs in the node's own network (hostNetwork).

A thread enters a namespace and ends there: what it opened stays in it, and no other thread is affected.
Source: network_namespaces(7), netdevice(7).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.mounts import bind, unmount

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _IFF_UP = 0x8914, 0x8916, 0x891C, 0x1

_libc = ctypes.CDLL(None, use_errno=True)


class PodNetworks:
    """The namespaces of one agent's pods. folder: on a file system that a reboot empties, as it empties namespaces."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, pod_uid: str) -> Path:
        return self._folder / pod_uid

    def create(self, pod_uid: str, address: str) -> Path:
        """The pod's namespace, made if it is not there. Raises: ContainerFailed."""
        path = self.path(pod_uid)
        if not _holds_namespace(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                _in_thread(lambda: _make_namespace(path, address))
            except OSError as error:
                raise ContainerFailed(f"the pod's network cannot be made: {error}") from error
        return path

    def connect(self, pod_uid: str, address: tuple[str, int], *, timeout: float) -> socket.socket:
        """A connection from inside the pod's network. Raises: OSError."""

        def connect() -> socket.socket:
            with self.path(pod_uid).open("rb") as namespace:
                _check(_libc.setns(namespace.fileno(), _CLONE_NEWNET))
            return socket.create_connection(address, timeout=timeout)

        return _in_thread(connect)

    def delete(self, pod_uid: str) -> None:
        """One that is not there is fine."""
        path = self.path(pod_uid)
        if _holds_namespace(path):
            unmount(path)
        path.unlink(missing_ok=True)

    def pod_uids(self) -> frozenset[str]:
        """The pods that have a network here."""
        return frozenset(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else frozenset()


def _make_namespace(path: Path, address: str) -> None:
    """In a thread of its own."""
    _check(_libc.unshare(_CLONE_NEWNET))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.255")):
            internet = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, struct.pack("16s16s", b"lo:pod", internet))
    bind(Path("/proc/thread-self/ns/net"), path)


def _holds_namespace(path: Path) -> bool:
    """Whether a namespace is mounted at `path`; after a reboot there is only an empty file."""
    try:
        return path.stat().st_dev == Path("/proc/self/ns/net").stat().st_dev
    except FileNotFoundError:
        return False


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _in_thread(step: Callable[[], T]) -> T:
    """What `step` returns or raises, run in a thread that ends with it."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(step())
        except BaseException as error:  # raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="pod-network", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
