"""Keeps NVML open, looks at the GPUs now and then, and listens to NVML's events, in one thread.

NVML may not be there yet when the agent starts (a driver container loads it later), and may go away (the driver is
updated): what fails is told once in the log, and tried again at the next look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from nodeagent.drivers.nvml.binding import Nvml, NvmlError
from nodeagent.drivers.nvml.gpus import System, read_system
from nodeagent.drivers.nvml.health import Event, EventSet

log = logging.getLogger(__name__)

#: How long one wait for an event may keep the thread from noticing that it is to end.
WAIT_MILLISECONDS = 500
#: Seconds before looking again at GPUs whose events cannot be had.
_PAUSE_SECONDS = 1.0


class Monitor:
    """seen: called after each look, with what there is or why NVML does not answer. happened: called with each trouble.

    seconds: between looks. ignored: XIDs that leave a GPU healthy.
    """

    def __init__(
        self,
        nvml: Nvml,
        *,
        seconds: float,
        ignored: Collection[int],
        seen: Callable[[System | NvmlError], None],
        happened: Callable[[Event], None],
    ) -> None:
        self._nvml = nvml
        self._seconds = seconds
        self._ignored = ignored
        self._seen = seen
        self._happened = happened
        self._open = False
        self._events: EventSet | None = None
        self._listening_to: tuple[str, ...] = ()
        self._complaint = ""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def unmonitored(self) -> dict[str, str]:
        """GPU uuid -> why nothing is reported about it."""
        return {} if self._events is None else self._events.unmonitored

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and let go of NVML; returns when both are done."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._let_go()

    def look(self) -> System | NvmlError:
        """See what there is now, and tell `seen`."""
        try:
            answer: System | NvmlError = self._read()
        except NvmlError as error:
            self._let_go()
            answer = error
        self._complain(answer)
        self._seen(answer)
        return answer

    def listen(self, system: System, milliseconds: int) -> None:
        """Wait for the next event of the GPUs of `system`, and tell `happened`. Raises: NvmlError."""
        uuids = tuple(gpu.uuid for gpu in system.gpus)
        if uuids != self._listening_to:
            self._free_events()
            self._events, self._listening_to = EventSet(self._nvml, system.gpus, ignored=self._ignored), uuids
            self._seen(system)  # whose health is known may have changed
        if self._events is None or not self._events.monitors:
            self._closed.wait(milliseconds / 1000)
        elif (event := self._events.wait(milliseconds)) is not None:
            log.error("GPU %s: %s", event.uuid, event.trouble.message)
            self._happened(event)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._attend(self.look())
            except NvmlError as error:  # the next look tells which GPU it is
                log.warning("NVML's events: %s; looking at the GPUs", error)
                self._free_events()
                self._closed.wait(_PAUSE_SECONDS)
            except Exception:  # whatever a strange driver makes fail, the next look may work
                log.exception("the GPUs could not be looked at; trying again in %.0f s", self._seconds)
                self._closed.wait(self._seconds)

    def _attend(self, system: System | NvmlError) -> None:
        """Until the next look is due. Raises: NvmlError."""
        due = time.monotonic() + self._seconds
        if isinstance(system, NvmlError) or not system.gpus:
            self._closed.wait(self._seconds)
            return
        while not self._closed.is_set() and time.monotonic() < due:
            self.listen(system, WAIT_MILLISECONDS)

    def _read(self) -> System:
        if not self._open:
            self._nvml.do("nvmlInit")
            self._open = True
        return read_system(self._nvml)

    def _complain(self, answer: System | NvmlError) -> None:
        """Once for each thing that is wrong, and not again while it stays so."""
        if isinstance(answer, NvmlError):
            complaint = f"NVML does not answer, no GPU is offered: {answer}"
        else:
            lost = (f"GPU {index} is not offered: {reason}" for index, reason in answer.unreadable.items())
            complaint = "; ".join(lost) or ("" if answer.gpus else "NVML knows no GPU on this machine")
        if complaint and complaint != self._complaint:
            log.error("%s; looking again every %.0f s", complaint, self._seconds)
        self._complaint = complaint

    def _free_events(self) -> None:
        events, self._events, self._listening_to = self._events, None, ()
        if events is not None:
            try:
                events.free()
            except NvmlError as error:
                log.debug("the events of NVML were not let go of: %s", error)

    def _let_go(self) -> None:
        self._free_events()
        if self._open:
            self._open = False
            try:
                self._nvml.do("nvmlShutdown")
            except NvmlError as error:
                log.debug("NVML was not shut down: %s", error)
