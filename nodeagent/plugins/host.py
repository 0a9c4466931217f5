"""Where drivers behind sockets live in the agent: it watches for them, and keeps the registry of drivers up to date.

The folders are the kubelet's: drivers put their registration sockets into `plugins_registry/`, and by custom their own
files into `plugins/<driver>/`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from manciple.wire.base import OwnerReference
from nodeagent.api.client import Client
from nodeagent.claims.prepare import DriverRegistry
from nodeagent.early import publish_named
from nodeagent.failures import StorageFailed
from nodeagent.plugins.driver import Called, Instance, PluginDriver, ignore_calls
from nodeagent.plugins.registration import RegisteredPlugin, Registrar, RegistrationRefused, find_sockets, register
from nodeagent.storage import Disk

# The names of the drivers that have registered on this node, kept on the disk. After a restart no driver behind a
# socket is there yet. When the record of a claim is lost then, these are the drivers that may have prepared it and must
# be asked to undo that. A name is written before its driver is asked for anything.

log = logging.getLogger(__name__)

_decoder = msgspec.json.Decoder(tuple[str, ...])


class KnownDrivers:
    """A JSON list in `path`. Thread-safe."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._names = self._read()

    def names(self) -> frozenset[str]:
        return self._names

    def add(self, name: str) -> None:
        """On return it is on the disk. Raises: StorageFailed, and then it is not known."""
        with self._lock:
            if name not in self._names:
                self._write(self._names | {name})

    def forget(self, name: str) -> None:
        """Raises: StorageFailed, and then it is still known."""
        with self._lock:
            if name in self._names:
                self._write(self._names - {name})

    def _write(self, names: frozenset[str]) -> None:
        try:
            self._disk.write(self._path, msgspec.json.encode(sorted(names)))
        except OSError as error:
            raise StorageFailed(f"the names of the node's drivers cannot be written: {error}") from error
        self._names = names

    def _read(self) -> frozenset[str]:
        self._disk.sweep(self._path.parent, self._path.name)
        try:
            return frozenset(_decoder.decode(self._disk.read(self._path)))
        except FileNotFoundError:
            return frozenset()
        except (OSError, msgspec.MsgspecError):
            log.exception("the names of the node's drivers in %s cannot be read; starting without", self._path)
            return frozenset()


#: Seconds between looks at the sockets.
POLL_SECONDS: Final = 0.5
REGISTRY_FOLDER: Final = "plugins_registry"
PLUGINS_FOLDER: Final = "plugins"
FOLDER_MODE: Final = 0o750


class _Admission(NamedTuple):
    driver: PluginDriver
    instance: Instance


class PluginHost:
    """The drivers behind sockets of one node. Thread-safe.

    folder: in which their folders are. registry: they join and leave it. known: where their names are kept; those of
    before are expected in the registry at once. call_seconds: how long a call to a driver may take. grace_seconds: how
    long a driver may be away before its ResourceSlices are to be removed. away: called with the name of a driver
    whenever it cannot be reached any more.
    clock: monotonic seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        registry: DriverRegistry,
        known: KnownDrivers,
        call_seconds: float,
        grace_seconds: float,
        away: Callable[[str], None],
        called: Called = ignore_calls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._called = called
        self._registry = registry
        self._known = known
        self._call_seconds = call_seconds
        self._grace_seconds = grace_seconds
        self._away = away
        self._clock = clock
        self._lock = threading.Lock()
        self._comings = threading.Lock()  # a driver joins or leaves the registry as its instances say
        self._drivers: dict[str, PluginDriver] = {}  # every one that has been here
        self._registrar = Registrar(partial(register, admit=self._admit), self._dismiss, clock=clock)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drivers behind sockets", daemon=True)
        registry.expect(known.names())

    def make_folders(self) -> None:
        """Before anything that may take long: a driver that does not find them ends with an error."""
        for name in (REGISTRY_FOLDER, PLUGINS_FOLDER):
            try:
                # Whoever can put a socket here is a driver of this node: its owner and its group alone.
                if not (self._folder / name).is_dir():
                    (self._folder / name).mkdir(parents=True, exist_ok=True)
                    (self._folder / name).chmod(FOLDER_MODE)
            except OSError:
                log.exception("drivers cannot register: %s cannot be made", self._folder / name)

    def start(self) -> None:
        """Look for drivers from now on, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of all drivers; calls in progress fail."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._registrar.reconcile({})

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.reconcile()
            except Exception:  # a fault with one driver must not end the search for the others
                log.exception("looking for drivers in %s", self._folder)
            self._stopped.wait(POLL_SECONDS)

    def reconcile(self) -> None:
        """Once: register what is new, drop what has gone, notice health that nobody vouches for any more."""
        self._registrar.reconcile(find_sockets(self._folder / REGISTRY_FOLDER))
        ran_out = [driver.name for driver in self._all() if driver.health_ran_out()]
        if ran_out:
            self._registry.announce()

    def publish(self, client: Client, owner: OwnerReference) -> None:
        """Write what drivers publish through the agent. owner: the Node. Raises: ApiFailure."""
        for driver in self._all():
            if driver.published is not None and driver.registered:
                publish_named(client, driver.published, driver=driver.name, owner=owner)

    def register_present(self, seconds: float) -> frozenset[str]:
        """Register the drivers whose sockets are there, in `seconds` at most. Returns the names of all registered."""
        self.reconcile()
        self._registrar.wait(seconds)
        return frozenset(driver.name for driver in self._all() if driver.registered)

    def expect(self, names: Iterable[str]) -> None:
        """These drivers have published on the node before; whoever is not here yet is away from now on."""
        for name in names:
            self._driver(name).expect()

    def seconds_left(self, name: str) -> float | None:
        """Until the ResourceSlices of driver `name` are to be removed, 0 when they are; None when they may stay."""
        driver = self._drivers.get(name)
        away = driver.seconds_away() if driver is not None else None
        return None if away is None else max(0.0, self._grace_seconds - away)

    def away(self) -> frozenset[str]:
        """The drivers that cannot be reached and whose ResourceSlices are still to be removed."""
        return frozenset(driver.name for driver in self._all() if driver.seconds_away() is not None)

    def slices_removed(self, name: str, *, in_use: bool) -> None:
        """The ResourceSlices of driver `name` have been removed. in_use: a claim is still prepared by it.

        Raises: StorageFailed.
        """
        driver = self._drivers[name]
        driver.settle()
        log.info("driver %s has been away for %g s: its ResourceSlices are removed", name, self._grace_seconds)
        if not driver.registered and not in_use:
            self._known.forget(name)

    def _all(self) -> tuple[PluginDriver, ...]:
        with self._lock:
            return tuple(self._drivers.values())

    def _admit(self, plugin: RegisteredPlugin) -> _Admission:
        """Raises: Refused."""
        present = self._registry.get(plugin.name)
        if present is not None and not isinstance(present, PluginDriver):
            raise RegistrationRefused(f"driver {plugin.name} runs inside the node agent; give this one another name")
        try:
            self._known.add(plugin.name)
        except StorageFailed as failure:
            raise RegistrationRefused(str(failure)) from failure
        driver = self._driver(plugin.name)
        with self._comings:
            instance = driver.add(plugin)
            self._registry.put(driver)
        log.info("driver %s: registered at %s with %s", plugin.name, plugin.endpoint, plugin.service.names[0])
        return _Admission(driver, instance)

    def _driver(self, name: str) -> PluginDriver:
        with self._lock:
            if name not in self._drivers:
                self._drivers[name] = PluginDriver(
                    name,
                    call_seconds=self._call_seconds,
                    changed=partial(self._changed, name),
                    called=self._called,
                    clock=self._clock,
                )
            return self._drivers[name]

    def _dismiss(self, admission: _Admission) -> None:
        driver, instance = admission
        with self._comings:
            driver.remove(instance)
            if not driver.registered:
                self._registry.remove(driver.name)
        log.info("driver %s: %s is gone", driver.name, instance.endpoint)
        self._changed(driver.name)

    def _changed(self, name: str) -> None:
        self._registry.announce()
        if self.seconds_left(name) is not None:
            self._away(name)
