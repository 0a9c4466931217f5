"""What is asked of the kernel: mounts, network namespaces of pods, word of the end of a process and of its memory."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import re
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nodeagent.failures import ContainerFailed

_MS_BIND = 4096
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, options: str) -> None:
    """A file system of its own at `target`."""
    _check(_libc.mount(source.encode(), os.fsencode(target), kind.encode(), 0, options.encode()))


def bind(source: Path, target: Path) -> None:
    """What is at `source` also at `target`, without what is mounted below it."""
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND, None))


def unmount(target: Path) -> None:
    """The topmost mount at `target`; whoever uses it keeps it. EINVAL where nothing is mounted."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW))


def mounts_below(folder: Path) -> list[Path]:
    """Where anything is mounted below `folder`, in the order of mounting. Source: proc_pid_mountinfo(5)."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    points = (Path(os.fsdecode(_ESCAPED.sub(_unescaped, line.split(b" ")[4]))) for line in lines)
    return [point for point in points if point.is_relative_to(folder) and point != folder]


def _unescaped(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# Which containers the kernel has killed for their memory. The counters of a control group go with it, so its log is
# read, which names the group. Source: mm/oom_kill.c (dump_oom_victim), Documentation/ABI/testing/dev-kmsg.

KERNEL_LOG = Path("/dev/kmsg")
_RECORD_BYTES = 8192


def is_oom_killed(container_id: str, log: Path = KERNEL_LOG) -> bool:
    """Whether the kernel's log says that a process of the container had to go. False where it cannot be read."""
    group = container_id.encode()
    try:
        records = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        while True:
            try:
                record = os.read(records, _RECORD_BYTES)
            except BrokenPipeError:  # it was overwritten meanwhile: the next one is read
                continue
            if not record:
                return False
            if b"oom-kill:" in record and group in record:
                return True
    except OSError:  # BlockingIOError: that was the last one
        return False
    finally:
        os.close(records)


# What containers and the machine use. What the kernel may drop at once (pages of files that nobody used lately) is left
# out, as in cadvisor's working set. Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst,
# cgroup-v1/cpuacct.rst; proc_stat(5), proc_meminfo(5).

GROUPS = Path("/sys/fs/cgroup")


def group_usage(process: int, container_id: str, groups: Path = GROUPS) -> tuple[int, int] | None:
    """(nanoseconds of processor time, bytes of memory) of the process's control group; None where it is gone.

    The group must be the container's, since its process may have ended and another got the number.
    """
    try:
        text = Path(f"/proc/{process}/cgroup").read_text()
        paths = {name: line.split(":", 2)[2] for line in text.splitlines() for name in line.split(":", 2)[1].split(",")}
        if container_id not in text:
            return None
        if "memory" not in paths:
            return _unified_usage(groups / paths[""].lstrip("/"))
        cpu = groups / "cpuacct" / paths["cpuacct"].lstrip("/")
        memory = groups / "memory" / paths["memory"].lstrip("/")
        used = int((memory / "memory.usage_in_bytes").read_text())
        droppable = _fields(memory / "memory.stat").get("total_inactive_file", 0)
        return int((cpu / "cpuacct.usage").read_text()), max(0, used - droppable)
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _unified_usage(group: Path) -> tuple[int, int]:
    used = int((group / "memory.current").read_text())
    droppable = _fields(group / "memory.stat").get("inactive_file", 0)
    return _fields(group / "cpu.stat")["usage_usec"] * 1000, max(0, used - droppable)


def _fields(file: Path) -> dict[str, int]:
    return {name: int(number) for name, _, number in (line.partition(" ") for line in file.read_text().splitlines())}


def machine_usage(proc: Path = Path("/proc")) -> tuple[float, int, int]:
    """(POSIX seconds of its boot, nanoseconds of processor time since then, bytes of memory) of the machine."""
    lines = {line.partition(" ")[0]: line.split()[1:] for line in (proc / "stat").read_text().splitlines()}
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(ticks) for ticks in lines["cpu"][:8])
    cpu = (user + nice + system + irq + softirq + steal) * 10**9 // os.sysconf("SC_CLK_TCK")
    memory = {line.partition(":")[0]: line.split()[1] for line in (proc / "meminfo").read_text().splitlines()}
    kibibytes = int(memory["MemTotal"]) - int(memory["MemFree"]) - int(memory["Inactive(file)"])
    return float(lines["btime"][0]), cpu, kibibytes * 1024


# The network of a pod: a namespace that its containers share, with a loopback interface and the pod's address on it.
# The namespace is held by a file, not by a container or a process: it outlives the agent and every container, and needs
# no image. Nothing leads out of it but to the API (`api_access`); a pod that is to reach others runs in the node's own
# network (hostNetwork). A thread enters a namespace and ends there: what it opened stays in it, and no other thread is
# affected. Source: network_namespaces(7), netdevice(7).

T = TypeVar("T")

#: How long a port of a pod may take to answer.
CONNECT_SECONDS = 10.0
_BACKLOG = 64
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _IFF_UP = 0x8914, 0x8916, 0x891C, 0x1


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

    def connect_local(self, pod_uid: str, port: int) -> socket.socket:
        """A connection to the loopback address of the pod's network; pod_uid "": of the machine's. Raises: OSError."""
        try:
            return self._connected(pod_uid, ("127.0.0.1", port))
        except ConnectionRefusedError as refused:
            try:
                return self._connected(pod_uid, ("::1", port))
            except OSError:
                raise refused from None

    def _connected(self, pod_uid: str, address: tuple[str, int]) -> socket.socket:
        if pod_uid:
            return self.connect(pod_uid, address, timeout=CONNECT_SECONDS)
        return socket.create_connection(address, timeout=CONNECT_SECONDS)

    def listen(self, pod_uid: str, address: str, port: int) -> socket.socket:
        """A socket that listens inside the pod's network, which gets the address if it lacks it. Raises: OSError."""

        def listen() -> socket.socket:
            with self.path(pod_uid).open("rb") as namespace:
                _check(_libc.setns(namespace.fileno(), _CLONE_NEWNET))
            listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                _bind_here(listening, address, port)
                listening.listen(_BACKLOG)
            except OSError:
                listening.close()
                raise
            return listening

        return _in_thread(listen)

    def delete(self, pod_uid: str) -> None:
        """One that is not there is fine."""
        path = self.path(pod_uid)
        if _holds_namespace(path):
            unmount(path)
        path.unlink(missing_ok=True)

    def pod_uids(self) -> frozenset[str]:
        """The pods that have a network here."""
        return frozenset(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else frozenset()


def why_not_connected(error: OSError) -> str:
    """In words, without Python's numbers and places."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)


def _make_namespace(path: Path, address: str) -> None:
    """In a thread of its own."""
    _check(_libc.unshare(_CLONE_NEWNET))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    _add_address(address, b"lo:pod")
    bind(Path("/proc/thread-self/ns/net"), path)


def _bind_here(listening: socket.socket, address: str, port: int) -> None:
    """In a thread of its own, which is in the namespace."""
    try:
        listening.bind((address, port))
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        _add_address(address, b"lo:api")
        listening.bind((address, port))


def _add_address(address: str, label: bytes) -> None:
    """To the loopback interface; label: of an IPv4 address."""
    if ":" in address:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
            index, whole = socket.if_nametoindex("lo"), 128
            added = struct.pack("=16sIi", socket.inet_pton(socket.AF_INET6, address), whole, index)
            fcntl.ioctl(control, _SIOCSIFADDR, added)
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.255")):
            internet = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, struct.pack("16s16s", label, internet))


def _holds_namespace(path: Path) -> bool:
    """Whether a namespace is mounted at `path`; after a reboot there is only an empty file."""
    try:
        return path.stat().st_dev == Path("/proc/self/ns/net").stat().st_dev
    except FileNotFoundError:
        return False


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


# Tells at once when a container has ended, at no cost while none does. Each container has a monitor process (conmon),
# which ends after podman has recorded how the container ended. The kernel reports the end of a process to whoever holds
# a descriptor of it. Source: pidfd_open(2).

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
