"""Tells at once when a container has ended, at no cost while none does.

Each container has a monitor process (conmon), which ends after podman has recorded how the container ended. The kernel
reports the end of a process to whoever holds a descriptor of it. Source: pidfd_open(2).
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

#: How often the thread looks whether it is still wanted.
IDLE_SECONDS = 60.0


class ExitWatcher:
    """Calls `ended(pod_uid, container)` from its own thread. Thread-safe; the thread starts with the first watch."""

    def __init__(self, ended: Callable[[str, str], None]) -> None:
        self._ended = ended
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[str, str]] = {}  # descriptor -> whom
        self._ids: dict[str, int] = {}  # container id -> descriptor
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, pod_uid: str, container: str, *, container_id: str, processes: tuple[int, ...]) -> bool:
        """Watch the first of `processes` that is alive and the container's; False when none is."""
        with self._lock:
            if container_id in self._ids:
                return True
            descriptor = next((d for p in processes if (d := _open(p, container_id)) is not None), None)
            if descriptor is None:
                return False
            self._watched[descriptor] = (pod_uid, container)
            self._ids[container_id] = descriptor
            self._epoll.register(descriptor, select.EPOLLIN)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="container-exits", daemon=True)
                self._thread.start()
            return True

    def close(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            self._closed = True
            for descriptor in self._watched:
                self._epoll.unregister(descriptor)
                os.close(descriptor)
            self._watched.clear()
            self._ids.clear()

    def _run(self) -> None:
        while not self._closed:
            for descriptor, _ in self._epoll.poll(IDLE_SECONDS):
                whom = self._forget(descriptor)
                try:
                    if whom is not None:
                        self._ended(*whom)
                except Exception:  # the end of one container must not hide that of others
                    log.exception("a container of pod %s has ended", whom)

    def _forget(self, descriptor: int) -> tuple[str, str] | None:
        with self._lock:
            if descriptor not in self._watched:
                return None
            self._epoll.unregister(descriptor)
            os.close(descriptor)
            self._ids = {name: known for name, known in self._ids.items() if known != descriptor}
            return self._watched.pop(descriptor)


def _open(process: int, container_id: str) -> int | None:
    """A descriptor of `process`; None when it is gone, or its number has gone to a stranger."""
    try:
        descriptor = os.pidfd_open(process) if process > 0 else None
    except OSError:
        return None
    if descriptor is not None and not _belongs(process, container_id):
        os.close(descriptor)
        return None
    return descriptor


def _belongs(process: int, container_id: str) -> bool:
    """A monitor has the container's id among its arguments; the container itself is in a control group named so."""
    folder = Path("/proc") / str(process)
    try:
        return container_id.encode() in (folder / "cmdline").read_bytes() + (folder / "cgroup").read_bytes()
    except OSError:
        return False
