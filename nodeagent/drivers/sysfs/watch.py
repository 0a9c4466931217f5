"""Wakes the driver when the machine's devices may have changed: at the kernel's event, or after some seconds.

The kernel sends a message to NETLINK_KOBJECT_UEVENT for every device that comes, goes or changes, to the first network
namespace only; in a container nothing may arrive, and the interval alone remains. Source: netlink(7).
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

#: The netlink family of the kernel's device events and its multicast group. Source: linux/netlink.h.
_KOBJECT_UEVENT, _KERNEL_GROUP = 15, 1
#: Seconds to let a burst of events pass: one disk makes a dozen, and a node that starts many pods never stops.
_BURST_SECONDS = 0.5


class Watch:
    """Calls `look` from a thread of its own until it is closed."""

    def __init__(self, look: Callable[[], object], *, seconds: float, events: socket.socket | None) -> None:
        self._look = look
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
                    self._look()
            except Exception:  # whatever a strange machine makes fail, the next look may work
                log.exception("the machine's devices could not be looked at; trying again")
                self._closed.wait(self._seconds)

    def _wait(self) -> None:
        sources = [end for end in (self._woken, self._events) if end is not None]
        ready, _, _ = select.select(sources, [], [], self._seconds)
        if self._events is not None and self._events in ready and not self._closed.wait(_BURST_SECONDS):
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
        log.info("the kernel's device events cannot be had (%s); looking at intervals only", error)
        return None
    events.setblocking(False)
    return events
