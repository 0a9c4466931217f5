"""What a simulated driver does wrong, for tests and for trying out what the system makes of it.

Said in the driver's settings (`faults`), in code (`Injector.set`), or, while an agent runs, in a control file that the
settings name (`control`): whenever the file changes, what it says takes the place of what was said before; a file that
is gone means no faults at all.

    prepare:                    # or unprepare
      fail: 2                   # the next two calls fail for all their claims; or "always"
      reason: out of memory     # what the pod's owner is told
      hangSeconds: 5            # every call takes that long, or until something else is said
      unanswered: [my-claim]    # claims, by name or uid, that the driver says nothing of; "*" for all
    devices:
      gpu-0: {health: Unhealthy, message: the fan stands still}
      gpu-1: {gone: true}
      gpu-2: {taints: [{key: example.com/hot, effect: NoExecute}]}
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import yaml
from msgspec.structs import replace

from inventory.kinds.devices import DeviceTaint
from manciple.wire.base import Value

log = logging.getLogger(__name__)

Operation = Literal["prepare", "unprepare"]
HealthState = Literal["Healthy", "Unhealthy", "Unknown"]

#: Seconds between looks at a control file.
LOOK_SECONDS = 0.25

_Stamp = tuple[int, int, int]  # inode, mtime in ns, size


class OperationFaults(Value, forbid_unknown_fields=True):
    """What goes wrong with one operation. fail: how many calls still fail. hang_seconds: how long each takes."""

    fail: int | Literal["always"] = 0
    reason: str = "simulated failure"
    hang_seconds: float = 0.0
    unanswered: tuple[str, ...] = ()

    def leaves_out(self, uid: str, name: str) -> bool:
        return not {uid, name, "*"}.isdisjoint(self.unanswered)


class DeviceFaults(Value, forbid_unknown_fields=True):
    """What is wrong with one device. gone: it is not published any more, and cannot be prepared."""

    health: HealthState = "Healthy"
    message: str = ""
    gone: bool = False
    taints: tuple[DeviceTaint, ...] = ()


class Faults(Value, forbid_unknown_fields=True):
    """Everything that goes wrong. devices: by name."""

    prepare: OperationFaults = OperationFaults()
    unprepare: OperationFaults = OperationFaults()
    devices: dict[str, DeviceFaults] = {}

    def of(self, operation: Operation) -> OperationFaults:
        return self.prepare if operation == "prepare" else self.unprepare


class FaultSettings(Value, forbid_unknown_fields=True):
    """What every simulated driver's settings may say of faults. control: a path; see the module's docstring."""

    faults: Faults = Faults()
    control: str = ""

    @property
    def control_path(self) -> Path | None:
        return Path(self.control) if self.control else None


def read_faults(path: Path) -> Faults:
    """Raises: ValueError saying what to correct; OSError."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()) or {}, Faults)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error


class Injector:
    """The faults of one driver, as they are now. Thread-safe.

    changed: called when something else is said in the control file.
    """

    def __init__(self, faults: Faults, control: Path | None, changed: Callable[[], None]) -> None:
        self._faults = faults
        self._control = control
        self._changed = changed
        self._stamp: _Stamp | None = None
        self._news = threading.Condition(threading.RLock())
        if control is not None:
            self._take_over(control)
            threading.Thread(target=_watch, args=(weakref.ref(self),), name=str(control), daemon=True).start()

    @property
    def faults(self) -> Faults:
        with self._news:
            return self._faults

    def set(self, faults: Faults) -> None:
        """From now on this goes wrong; calls that hang go on if they need not any more."""
        with self._news:
            self._faults = faults
            self._news.notify_all()

    def fail(self, operation: Operation, *, times: int, reason: str) -> None:
        wrong = replace(self.faults.of(operation), fail=times, reason=reason)
        self.set(_with(self.faults, operation, wrong))

    def meet(self, operation: Operation) -> str:
        """One call of `operation`: hangs as long as it must; returns why the call fails, or an empty text."""
        started = time.monotonic()
        with self._news:
            while (left := started + self._faults.of(operation).hang_seconds - time.monotonic()) > 0:
                self._news.wait(left)
            wrong = self._faults.of(operation)
            if wrong.fail == "always":
                return wrong.reason
            if wrong.fail <= 0:
                return ""
            self._faults = _with(self._faults, operation, replace(wrong, fail=wrong.fail - 1))
            return wrong.reason

    def look(self) -> None:
        """Take over what the control file says, if it says something else."""
        if self._control is not None and self._take_over(self._control):
            self._changed()

    def _take_over(self, control: Path) -> bool:
        """Whether there was something else to take over."""
        with self._news:
            stamp = _stamp_of(control)
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            try:
                self.set(read_faults(control) if stamp is not None else Faults())
            except (ValueError, OSError) as error:
                log.error("%s; what it said before stays", error)  # noqa: TRY400 - a person's mistake, not a bug
                return False
            return True


def _with(faults: Faults, operation: Operation, wrong: OperationFaults) -> Faults:
    return replace(faults, prepare=wrong) if operation == "prepare" else replace(faults, unprepare=wrong)


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _watch(injector: weakref.ref[Injector]) -> None:
    """Look at the control file for as long as anybody has the injector."""
    while (found := injector()) is not None:
        found.look()
        del found
        time.sleep(LOOK_SECONDS)
