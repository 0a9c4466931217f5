"""What can go wrong, each as what begins it and what ends it."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import yaml

from tests.chaos.links import Link
from tests.chaos.strikes import Strike, Threat
from tests.e2e.processes import Process

Act = Callable[[], object]


class Victim(Protocol):
    """A process, or a server of several; `tests.e2e.processes.Process` and `tests.services.Server` are such."""

    @property
    def running(self) -> bool: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """end: also where `begin` did nothing, or broke off."""

    begin: Act
    end: Act
    threat: Threat


Faults = dict[str, Fault]


def of_kills(name: str, victim: Victim, *, away: float = 4.0) -> Faults:
    """Killed, and started again after a while. away: seconds at most."""

    def ended() -> None:
        if not victim.running:
            victim.start()

    return {f"kill {name}": Fault(victim.kill, ended, Threat(name, away, 2.0))}


def of_process(name: str, victim: Victim, *, frozen: float = 12.0) -> Faults:
    """Killed, or frozen. frozen: seconds at most."""
    return {
        **of_kills(name, victim),
        f"freeze {name}": Fault(victim.pause, victim.resume, Threat(name, frozen)),
    }


#: Seconds that a process has to end when it is asked to, on a busy machine.
ENDING = 40.0


def of_part(name: str, process: Process, *, frozen: float = 12.0) -> Faults:
    """What happens to any process, and that it is asked to end and started again, as in an upgrade."""

    def stop() -> None:
        process.signal(signal.SIGTERM)
        process.wait(ENDING)

    def start() -> None:
        if not process.running:
            process.start()

    found = of_process(name, process, frozen=frozen)
    return {**found, f"restart {name}": Fault(stop, start, Threat(name, 1.0))}


def of_link(name: str, *links: Link) -> Faults:
    """All of them at once."""

    def each(act: Callable[[Link], object]) -> Act:
        return lambda: [act(link) for link in links]

    mend = each(Link.mend)
    return {
        f"cut {name}": Fault(each(Link.cut), mend, Threat(name, 6.0)),
        f"stall {name}": Fault(each(Link.stall), mend, Threat(name, 12.0)),
        f"delay {name}": Fault(each(lambda link: link.delay(0.15)), mend, Threat(name, 10.0)),
    }


def of_files(name: str, process: Process) -> Faults:
    """It can write no file, as on a full disk: RLIMIT_FSIZE, which needs no disk of its own and no rights."""

    def limit(most: int) -> Act:
        def act() -> None:
            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

        return act

    return {f"fill the disk of {name}": Fault(limit(0), limit(resource.RLIM_INFINITY), Threat(name, 8.0))}


def of_disk(name: str, folder: Path, *, longest: float = 6.0) -> Faults:
    """A disk of its own, mounted at `folder`, is filled to the last byte."""
    ballast = folder / "ballast"

    def fill() -> None:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass

    return {f"fill the disk of {name}": Fault(fill, lambda: ballast.unlink(missing_ok=True), Threat(name, longest))}


#: Seconds that a clock is off.
SKEWS = (-300, -15, 15, 300)
#: Where Debian's package libfaketime has it.
_LIBRARY = "*/faketime/libfaketimeMT.so.1"


def faketime() -> str:
    """The library that makes a process's clock wrong; "" where it is not installed. FAKETIME_LIBRARY names another."""
    return os.environ.get("FAKETIME_LIBRARY") or next(map(str, Path("/usr/lib").glob(_LIBRARY)), "")


def of_clock(name: str, process: Process, library: str) -> Faults:
    """It is started again with a clock that is ahead or behind, and later with a right one."""
    own, forked = process.env, process.forked
    preloaded = {"LD_PRELOAD": library, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def started(env: Mapping[str, str], *, forked: bool) -> Act:
        def act() -> None:
            process.kill()
            process.env, process.forked = env, forked
            process.start()

        return act

    right = started(own, forked=forked)
    return {
        f"skew the clock of {name} by {seconds:+} s": Fault(
            started({**own, **preloaded, "FAKETIME": f"{seconds:+}s"}, forked=False), right, Threat(name, 20.0, 0.5)
        )
        for seconds in SKEWS
    }


#: What a driver does wrong, as its control file says it.
_DRIVER_FAULTS = {
    "fail to prepare": {"prepare": {"fail": "always"}},
    "fail to unprepare": {"unprepare": {"fail": "always"}},
    "be slow": {"prepare": {"hangSeconds": 3}, "unprepare": {"hangSeconds": 3}},
    "not answer": {"prepare": {"unanswered": ["*"]}, "unprepare": {"unanswered": ["*"]}},
    "lose a device": {"devices": {"gpu-0": {"gone": True}}},
    "have an unhealthy device": {"devices": {"gpu-1": {"health": "Unhealthy", "message": "the fan stands still"}}},
    "taint a device": {"devices": {"gpu-2": {"taints": [{"key": "example.com/hot", "effect": "NoExecute"}]}}},
}


def of_driver(node: str, control: Path) -> Faults:
    def say(what: object) -> Act:
        def act() -> None:
            draft = control.with_suffix(".draft")
            draft.write_text(yaml.safe_dump(msgspec.to_builtins(what)))
            draft.replace(control)

        return act

    victim = f"driver of {node}"
    return {
        f"let the {victim} {name}": Fault(say(what), say({}), Threat(victim, 8.0, 0.3))
        for name, what in _DRIVER_FAULTS.items()
    }


class Storm:
    """Faults as they are drawn; keeps whoever ends by itself alive, as systemd does (`Restart=always`)."""

    def __init__(self, faults: Faults, victims: Mapping[str, Victim], *, say: Callable[[str], None]) -> None:
        self._faults = faults
        self._victims = victims
        self._say = say
        self._busy = {fault.threat.victim: threading.RLock() for fault in faults.values()}
        self._busy |= {name: threading.RLock() for name in victims if name not in self._busy}
        self._over = threading.Event()
        #: faults that have begun, by name
        self.begun: list[str] = []
        #: victims that ended by themselves
        self.ended: list[str] = []
        #: faults that could not begin or end, in words
        self.broken: list[str] = []

    @property
    def threats(self) -> dict[str, Threat]:
        return {name: fault.threat for name, fault in self._faults.items()}

    def rage(self, planned: Iterable[Strike], seconds: float) -> None:
        """Each at its time, beside the others. Returns when all are over, and so many seconds have passed."""
        began, struck = time.monotonic(), list[threading.Thread]()
        for one in planned:
            if self._over.wait(max(0.0, began + one.at - time.monotonic())):
                break
            struck.append(threading.Thread(target=self.strike, args=(one.fault, one.lasts), daemon=True))
            struck[-1].start()
        self._over.wait(max(0.0, began + seconds - time.monotonic()))
        self._say("the last faults end")
        for thread in struck:
            thread.join()

    def strike(self, fault: str, lasts: float) -> None:
        """Returns when it is over."""
        one = self._faults[fault]
        with self._busy[one.threat.victim]:
            self.begun.append(fault)
            self._say(f"{fault}, for {lasts:.1f} s")
            self._try(fault, one.begin)
            self._over.wait(lasts)
            self._try(fault, one.end)

    def _try(self, fault: str, act: Act) -> None:
        try:
            act()
        except Exception as error:
            self.broken.append(f"{fault}: {str(error)[:2000]!r}")

    def supervise(self, excused: Callable[[str], bool]) -> None:
        """Until `end`. excused: whether this one may have ended by itself."""
        while not self._over.wait(0.2):
            for name, victim in self._victims.items():
                if not victim.running and self._busy[name].acquire(blocking=False):
                    try:
                        if not victim.running:
                            self._revive(name, victim, excused)
                    finally:
                        self._busy[name].release()

    def _revive(self, name: str, victim: Victim, excused: Callable[[str], bool]) -> None:
        if not excused(name):
            self.ended.append(name)
        self._say(f"{name} has ended by itself and is started again")
        with suppress(Exception):  # tried again a moment later
            victim.start()

    def end(self) -> None:
        """Faults end that have begun, each where it runs; then everybody runs."""
        self._over.set()
        for name, victim in self._victims.items():
            with self._busy[name]:
                if not victim.running:
                    self._try(f"start {name}", victim.start)
