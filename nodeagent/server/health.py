"""`/healthz`: is the agent doing its work. Asked without a token, so its answers tell no more than that.

The layout is that of Kubernetes (apiserver/pkg/server/healthz): "ok", or with `?verbose` and on failure a line for
every check.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodeagent.disk import Disk

#: Returns when all is well; raises Unhealthy otherwise.
Check = Callable[[], None]
#: Seconds for which the answer about the disk stands: anybody may ask, and each look writes.
DISK_SECONDS = 5.0


class Unhealthy(Exception):
    """Why a check fails, in words for anybody."""


class Health:
    """`checks` by name, in the order in which they are told."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = {"ping": _ping, **checks}

    def answer(self, *, verbose: bool) -> tuple[int, str]:
        """(HTTP status, text)"""
        failures = {name: reason for name, check in self._checks.items() if (reason := _failure(check))}
        code = 500 if failures else 200
        if not verbose and not failures:
            return code, "ok"
        lines = [f"[-]{n} failed: {failures[n]}" if n in failures else f"[+]{n} ok" for n in self._checks]
        return code, "\n".join([*lines, f"healthz check {'failed' if failures else 'passed'}", ""])


def _ping() -> None:
    """The agent answers: that is all."""


def _failure(check: Check) -> str:
    try:
        check()
    except Unhealthy as error:
        return str(error)
    return ""


def threads_run(threads: Callable[[], Sequence[threading.Thread]]) -> Check:
    """The watches and the workers are there. threads: those that were started, none before that."""

    def check() -> None:
        started = threads()
        if not started:
            raise Unhealthy("the node is not registered yet")
        if ended := sum(not thread.is_alive() for thread in started):
            raise Unhealthy(f"{ended} of {len(started)} watches and workers have ended; restart the agent")

    return check


def lease_renewed(renewed_at: Callable[[], float | None], *, within: float) -> Check:
    """The API server hears of the node. renewed_at: monotonic seconds, None for never."""

    def check() -> None:
        last = renewed_at()
        if last is None:
            raise Unhealthy("the node's lease was never renewed")
        if (ago := time.monotonic() - last) > within:
            raise Unhealthy(f"the node's lease was last renewed {ago:.0f} s ago; is the API server reachable?")

    return check


def writable(folder: Path, disk: Disk, *, clock: Callable[[], float] = time.monotonic) -> Check:
    """A record can be written to `folder`; looked at once in a few seconds."""
    path = folder / ".healthz"
    lock = threading.Lock()
    known: list[tuple[float, str]] = []

    def check() -> None:
        with lock:
            if not known or known[0][0] <= clock():
                known[:] = [(clock() + DISK_SECONDS, _trial(path, disk))]
            if reason := known[0][1]:
                raise Unhealthy(reason)

    return check


def _trial(path: Path, disk: Disk) -> str:
    try:
        disk.write(path, b"ok")
        disk.remove(path)
    except OSError as error:
        return f"the checkpoint cannot be written: {error.strerror or error}"
    return ""
