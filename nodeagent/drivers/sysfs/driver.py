"""The driver of the machine's own devices: what a container gets of them, and how it hears of changes."""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds.devices import CounterSet, Device
from nodeagent import cdi
from nodeagent.cdi import NetDevice
from nodeagent.drivers.preparing import DeviceGone, device_names, prepare_claim
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth, Failed, Pool, Prepared
from nodeagent.drivers.sysfs.found import FoundDevice, SysfsSettings, publish
from nodeagent.drivers.sysfs.scan import SysfsRoots, read_pci_ids, scan


def container_edits(found: FoundDevice, roots: SysfsRoots, *, move_interfaces: bool) -> cdi.ContainerEdits:
    """Its nodes, and its name in the environment. Raises: ValueError where a device node is missing."""
    moved = move_interfaces and found.kind in ("net", "virtual-net")
    return cdi.ContainerEdits(
        env=(f"{variable(found.device_name)}={found.value}",),
        device_nodes=tuple(_node(found, node, roots) for node in found.nodes),
        net_devices=(NetDevice(host_interface_name=found.name, name=found.name),) if moved else (),
    )


def variable(device: str) -> str:
    """ "SYSFS_DEVICE_LOOP4": of each device its own, so that a container may have several."""
    return f"SYSFS_DEVICE_{device.replace('-', '_').upper()}"


def _node(found: FoundDevice, node: str, roots: SysfsRoots) -> cdi.DeviceNode:
    """Type and number are left to the runtime, which looks at the node when the container starts."""
    inside, outside = f"/dev/{node}", str(roots.dev / node)
    if not (roots.dev / node).exists():
        raise ValueError(
            f"device {found.device_name}: its node {outside} does not exist; load the module that makes it"
        )
    return cdi.DeviceNode(
        path=inside, host_path="" if outside == inside else outside, permissions="r" if found.read_only else "rw"
    )


# Wakes the driver when the machine's devices may have changed: at the kernel's event, or after some seconds. The kernel
# sends a message to NETLINK_KOBJECT_UEVENT for every device that comes, goes or changes, to the first network namespace
# only; in a container nothing may arrive, and the interval alone remains. Source: netlink(7).

log = logging.getLogger(__name__)

#: The netlink family of the kernel's device events and its multicast group. Source: linux/netlink.h.
_KOBJECT_UEVENT, _KERNEL_GROUP = 15, 1
#: Seconds to let a burst of events pass: one disk makes a dozen, and a node that starts many pods never stops.
_BURST_SECONDS = 0.5


class Poller:
    """Calls `rescan` from a thread of its own until it is closed."""

    def __init__(self, rescan: Callable[[], object], *, seconds: float, events: socket.socket | None) -> None:
        self._rescan = rescan
        self._seconds = seconds
        self._events = events
        self._wake, self._woken = socket.socketpair()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sysfs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns when the thread has ended."""
        self._closed.set()
        self._wake.send(b"!")
        self._thread.join()
        for end in (self._wake, self._woken, self._events):
            if end is not None:
                end.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._wait()
                if not self._closed.is_set():
                    self._rescan()
            except Exception:  # whatever a strange machine makes fail, the next scan may work
                log.exception("the machine's devices could not be scanned; trying again")
                self._closed.wait(self._seconds)

    def _wait(self) -> None:
        sources = [end for end in (self._woken, self._events) if end is not None]
        poll = select.poll()  # select() knows no descriptor above 1,023
        for end in sources:
            poll.register(end, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._seconds * 1000)}
        if self._events is not None and self._events.fileno() in ready and not self._closed.wait(_BURST_SECONDS):
            _drain(self._events)


def _drain(events: socket.socket) -> None:
    """Read all that has come; a full buffer says what any event says, that something has changed."""
    try:
        while events.recv(65536):
            pass
    except BlockingIOError:
        return
    except OSError as error:
        log.debug("device events were lost: %s", error)


def kernel_events() -> socket.socket | None:
    """The kernel's device events; None where they cannot be had."""
    try:
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _KOBJECT_UEVENT)
        events.bind((0, _KERNEL_GROUP))
    except OSError as error:
        log.info("the kernel's device events are not available (%s); scanning at intervals only", error)
        return None
    events.setblocking(False)
    return events


@dataclass(frozen=True, slots=True)
class _View:
    """The machine at one moment. present: everything chosen by the settings, by device name, in use or not."""

    present: Mapping[str, FoundDevice]
    devices: tuple[Device, ...]
    counters: tuple[CounterSet, ...]


class SysfsDriver:
    """A `Driver` with one pool, named after the node. roots: where the machine's directories are."""

    def __init__(
        self, node_name: str, settings: SysfsSettings | None = None, *, roots: SysfsRoots | None = None
    ) -> None:
        self._pool = node_name
        self._settings = settings or SysfsSettings()
        self._roots = roots or SysfsRoots()
        self._pci_names = read_pci_ids(self._roots.pci_ids)
        self._lock = threading.Lock()
        self._given: dict[str, set[str]] = {}  # claim uid -> devices that it has been prepared on by this process
        self._known: set[str] = set()  # every device that was ever published by this process
        self._subscribers: list[Callable[[], None]] = []
        self._watch: Poller | None = None
        self._view = _View({}, (), ())
        self._view = self._scan()

    @property
    def name(self) -> str:
        return self._settings.name

    def pools(self) -> Sequence[Pool]:
        view = self._view
        return (Pool(name=self._pool, devices=view.devices, shared_counters=view.counters),)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        self.rescan()
        wanted = device_names(claims, self.name)
        answers = {claim.metadata.uid: self._prepare(claim) for claim in claims}
        with self._lock:
            self._given |= {uid: wanted[uid] for uid, answer in answers.items() if isinstance(answer, Prepared)}
        return answers

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        with self._lock:
            for claim in claims:
                self._given.pop(claim.uid, None)
        return {claim.uid: None for claim in claims}

    def health(self) -> Sequence[DeviceHealth]:
        """A device that was published once and is gone is unhealthy: a pod may still hold it."""
        view = self._view
        return tuple(self._health(name, present=name in view.present) for name in sorted(self._known))

    def subscribe(self, changed: Callable[[], None]) -> None:
        """From the first call on, the machine is watched."""
        self._subscribers.append(changed)
        if self._watch is None:
            self._watch = Poller(self.rescan, seconds=self._settings.rescan_seconds, events=kernel_events())
            self._watch.start()

    def rescan(self) -> bool:
        """Look at the machine; returns whether something has changed, after telling the subscribers."""
        with self._lock:
            before, self._view = self._view, self._scan()
            same = before == self._view
        if not same:
            for changed in self._subscribers:
                changed()
        return not same

    def close(self) -> None:
        """Stop watching; returns when the thread has ended."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _scan(self) -> _View:
        chosen = [found for found in scan(self._roots, self._pci_names) if self._settings.chooses(found)]
        given = {name for devices in self._given.values() for name in devices}
        chosen += self._moved(given - {found.device_name for found in chosen})
        published = [f for f in chosen if f.device_name in given or self._settings.may_be_given(f)]
        devices, counters = publish(published)
        self._known |= {device.name for device in devices}
        return _View({found.device_name: found for found in chosen}, devices, counters)

    def _moved(self, missing: set[str]) -> list[FoundDevice]:
        """The interfaces that are not seen here because they are in the container that they were given to."""
        if not self._settings.move_interfaces:
            return []
        last = [self._view.present[name] for name in sorted(missing) if name in self._view.present]
        return [found for found in last if found.kind in ("net", "virtual-net")]

    def _prepare(self, claim: ResourceClaim) -> Prepared | Failed:
        held = self._given.get(claim.metadata.uid, set())

        def edits_of(result: DeviceRequestAllocationResult) -> cdi.ContainerEdits:
            found = self._found(result)
            if found.in_use and found.device_name not in held and not self._settings.may_be_given(found):
                raise ValueError(f"device {result.device} is now used by the machine itself: it is {found.in_use}")
            return container_edits(found, self._roots, move_interfaces=self._settings.move_interfaces)

        return prepare_claim(claim, driver=self.name, edits_of=edits_of)

    def _found(self, result: DeviceRequestAllocationResult) -> FoundDevice:
        found = self._view.present.get(result.device) if result.pool == self._pool else None
        if found is None:
            raise DeviceGone(result.pool, result.device)
        return found

    def _health(self, device: str, *, present: bool) -> DeviceHealth:
        if present:
            return DeviceHealth(pool=self._pool, device=device, health="Healthy")
        return DeviceHealth(pool=self._pool, device=device, health="Unhealthy", message="it is gone from the machine")
