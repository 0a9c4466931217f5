"""Registers plugins: finds their sockets, asks each who is there, decides, and tells it the decision.

Sources: kubernetes pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go,
pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (which services a driver must list).
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from manciple.wire.validation import DRIVER_NAME_MAX, check_driver_name
from nodeagent.plugins.protocol import (
    CDI_PLUGIN,
    DRA_PLUGIN,
    GET_INFO,
    HEALTH_SERVICES,
    NOTIFY,
    RESOURCE_PLUGIN,
    CallFailed,
    Channel,
    HealthService,
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
)
from nodeagent.plugins.services import DRA_SERVICES, DraService


# Finds the registration sockets: every Unix socket below a folder that is not hidden, nor in a hidden folder. A link to
# a socket counts as one; a link to a folder is not followed. Source: kubernetes
# pkg/kubelet/pluginmanager/pluginwatcher.
class SocketIdentity(NamedTuple):
    """Tells a socket from another one that took its path later: inode numbers are used again."""

    inode: int
    made_ns: int


def find_sockets(folder: Path) -> Mapping[Path, SocketIdentity]:
    """By path. What vanishes while it looks, or may not be read, is not there."""
    return dict(_sockets(folder))


def _sockets(folder: Path) -> Iterator[tuple[Path, SocketIdentity]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            found = entry.stat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and not entry.is_symlink():
            yield from _sockets(folder / entry.name)
        elif stat.S_ISSOCK(found.st_mode):
            # The time of the last change of content: a chmod after bind() makes no other socket of it.
            yield folder / entry.name, SocketIdentity(found.st_ino, found.st_mtime_ns)


log = logging.getLogger(__name__)

#: How long a plugin may take to say who it is, and to hear what was decided.
INFO_SECONDS: Final = 5.0
NOTIFY_SECONDS: Final = 5.0

PLUGIN_TYPES: Final = (DRA_PLUGIN, RESOURCE_PLUGIN, CDI_PLUGIN)

Admission = TypeVar("Admission")


class RegistrationRefused(Exception):
    """A plugin cannot be registered as it is; the reason is told to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPlugin:
    """A plugin that can be worked with. name: of its driver. endpoint: the path of the socket of its services.
    service: its newest. handling: its newest whose claims carry handles, if any. health: the services to ask for the
    health of its devices, newest first."""

    name: str
    endpoint: str
    service: DraService
    handling: DraService | None
    health: tuple[HealthService, ...]


def register(socket: Path, admit: Callable[[RegisteredPlugin], Admission]) -> Admission:
    """Registers whoever listens at `socket`. admit: takes the plugin in, or raises Refused.

    Raises: Refused, after the plugin was told; CallFailed when it cannot be asked.
    """
    channel = Channel(str(socket))
    try:
        info = channel.call(GET_INFO, InfoRequest(), seconds=INFO_SECONDS)
        try:
            admission = admit(accept(info, socket))
        except RegistrationRefused as refusal:
            _notify(channel, RegistrationStatus(plugin_registered=False, error=str(refusal)))
            raise
        _notify(channel, RegistrationStatus(plugin_registered=True))
        return admission
    finally:
        channel.close()


def accept(info: PluginInfo, socket: Path) -> RegisteredPlugin:
    """Raises: Refused saying what the plugin has to change."""
    if info.type not in PLUGIN_TYPES:
        raise RegistrationRefused(f"plugins of type {info.type!r} are not handled here, only {', '.join(PLUGIN_TYPES)}")
    if problems := _name_problems(info.name):
        raise RegistrationRefused(f"driver name {info.name!r}: {'; '.join(problems)}")
    services = [service for service in DRA_SERVICES if not set(service.names).isdisjoint(info.supported_versions)]
    if not services:
        known = ", ".join(name for service in DRA_SERVICES for name in service.names)
        given = ", ".join(info.supported_versions) or "none"
        raise RegistrationRefused(
            f"driver {info.name}: none of its services is supported ({given}); supported are {known}"
        )
    listed = tuple(service for service in HEALTH_SERVICES if service.name in info.supported_versions)
    return RegisteredPlugin(
        name=info.name,
        endpoint=info.endpoint or str(socket),
        service=services[0],
        handling=next((service for service in services if service.has_handles), None),
        # Drivers of Kubernetes 1.34 and 1.35 serve it without listing it.
        health=listed or HEALTH_SERVICES,
    )


def _name_problems(name: str) -> Sequence[str]:
    if len(name.encode()) > DRIVER_NAME_MAX:
        return [f"must be no more than {DRIVER_NAME_MAX} bytes"]
    return list(check_driver_name(name))


def _notify(channel: Channel, status: RegistrationStatus) -> None:
    """What was decided stands also when the plugin does not hear of it."""
    try:
        channel.call(NOTIFY, status, seconds=NOTIFY_SECONDS)
    except CallFailed as failure:
        log.warning("plugin at %s could not be told the result of its registration: %s", channel.endpoint, failure)


# Keeps the registrations in step with the sockets: registers what appears, again what was replaced, drops what went. A
# socket is registered in a thread of its own, so that a plugin that does not answer holds up no other. What fails is
# tried again, each time after a longer wait; a socket that somebody made anew is tried at once. Source: kubernetes
# pkg/kubelet/pluginmanager/reconciler.

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 60.0


@dataclass(slots=True)
class _Candidate(Generic[Admission]):
    """A socket that is there. admission: what its registration gave."""

    identity: SocketIdentity
    due: float
    admission: Admission | None = None
    failures: int = 0
    busy: bool = False
    gone: bool = False
    said: str = ""


class Registrar(Generic[Admission]):
    """One thread calls `reconcile`. clock: monotonic seconds.

    register: registers the plugin at a socket, raises Refused or CallFailed; dismiss: undoes that.
    """

    def __init__(
        self,
        register: Callable[[Path], Admission],
        dismiss: Callable[[Admission], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._register = register
        self._dismiss = dismiss
        self._clock = clock
        self._lock = threading.Condition()
        self._candidates: dict[Path, _Candidate[Admission]] = {}

    def reconcile(self, sockets: Mapping[Path, SocketIdentity]) -> None:
        """Bring the registrations in step with the sockets that are there. Returns at once."""
        with self._lock:
            gone = [path for path, one in self._candidates.items() if sockets.get(path) != one.identity]
            dropped = [(path, self._candidates.pop(path)) for path in gone]
            for path, identity in sockets.items():
                self._candidates.setdefault(path, _Candidate(identity, self._clock()))
        for path, candidate in dropped:
            self._drop(path, candidate)
        for path, candidate in self._due():
            threading.Thread(target=self._try, args=(path, candidate), name=f"registers {path}", daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Until no registration is under way, `seconds` at most."""
        with self._lock:
            self._lock.wait_for(lambda: not any(one.busy for one in self._candidates.values()), seconds)

    def _due(self) -> list[tuple[Path, _Candidate[Admission]]]:
        now = self._clock()
        with self._lock:
            due = [
                (path, one)
                for path, one in self._candidates.items()
                if one.admission is None and not one.busy and one.due <= now
            ]
            for _, candidate in due:
                candidate.busy = True
        return due

    def _try(self, path: Path, candidate: _Candidate[Admission]) -> None:
        try:
            admission = self._register(path)
        except (RegistrationRefused, CallFailed) as error:
            self._fail(path, candidate, str(error))
        except Exception:  # a fault in one registration must not keep it from being tried again
            log.exception("plugin at %s", path)
            self._fail(path, candidate, "")
        else:
            with self._lock:
                candidate.busy = False
                candidate.admission = admission
                gone = candidate.gone
                self._lock.notify_all()
            if gone:
                self._dismiss(admission)

    def _fail(self, path: Path, candidate: _Candidate[Admission], reason: str) -> None:
        delay = min(FIRST_DELAY * 2**candidate.failures, LONGEST_DELAY)
        with self._lock:
            candidate.busy = False
            candidate.failures += 1
            candidate.due = self._clock() + delay
            repeated, candidate.said = candidate.said == reason, reason
            self._lock.notify_all()
        # A socket that a driver left behind may lie there for ever.
        level = logging.DEBUG if repeated else logging.WARNING
        log.log(level, "plugin at %s is not registered: %s; trying again in %.1f s", path, reason, delay)

    def _drop(self, path: Path, candidate: _Candidate[Admission]) -> None:
        with self._lock:
            candidate.gone = True
            admission = candidate.admission
        log.info("plugin at %s: its socket is gone or was replaced", path)
        if admission is not None:
            self._dismiss(admission)
