"""Keeps the registrations in step with the sockets: registers what appears, again what was replaced, drops what went.

A socket is registered in a thread of its own, so that a plugin that does not answer holds up no other. What fails is
tried again, each time after a longer wait; a socket that somebody made anew is tried at once.
Source: kubernetes pkg/kubelet/pluginmanager/reconciler.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from nodeagent.plugins.channels import CallFailed
from nodeagent.plugins.sockets import Identity

log = logging.getLogger(__name__)

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 60.0

Admission = TypeVar("Admission")


@dataclass(slots=True)
class _Candidate(Generic[Admission]):
    """A socket that is there. admission: what its registration gave."""

    identity: Identity
    due: float
    admission: Admission | None = None
    failures: int = 0
    busy: bool = False
    gone: bool = False
    said: str = ""


class Registrar(Generic[Admission]):
    """One thread calls `look`. clock: monotonic seconds.

    register: registers the plugin at a socket, raises Refused or CallFailed; dismiss: undoes that.
    """

    def __init__(
        self,
        register: Callable[[Path], Admission],
        dismiss: Callable[[Admission], None],
        *,
        refusals: type[Exception],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._register = register
        self._dismiss = dismiss
        self._expected = (refusals, CallFailed)
        self._clock = clock
        self._lock = threading.Lock()
        self._candidates: dict[Path, _Candidate[Admission]] = {}

    def look(self, sockets: Mapping[Path, Identity]) -> None:
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
        except self._expected as error:
            self._fail(path, candidate, str(error))
        except Exception:  # a fault in one registration must not keep it from being tried again
            log.exception("plugin at %s", path)
            self._fail(path, candidate, "")
        else:
            with self._lock:
                candidate.busy = False
                candidate.admission = admission
                gone = candidate.gone
            if gone:
                self._dismiss(admission)

    def _fail(self, path: Path, candidate: _Candidate[Admission], reason: str) -> None:
        delay = min(FIRST_DELAY * 2**candidate.failures, LONGEST_DELAY)
        with self._lock:
            candidate.busy = False
            candidate.failures += 1
            candidate.due = self._clock() + delay
            repeated, candidate.said = candidate.said == reason, reason
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
