"""What the tests tell the program, and what it tells them: a file of orders that is read at every step, and a journal.

Orders are JSON, replaced whole:

    {"prepare": {"mode": "fail", "only": ["claim-a"]}, "unprepare": {}, "get_info": {}, "notify": {},
     "health": [{"pool": "p", "device": "d", "health": 2, "message": "too hot", "seconds": 30}],
     "pools": {"worker": [["gpu-0", "gpu-1"], ["gpu-2"]]}, "status": true}

mode: "error" fails the whole call; "fail" fails each claim; "omit" leaves claims out of the answer; "hang" answers only
once the order is another, or the caller has given up; "crash-before" and "crash-after" end the program as kill -9 does,
before or after the work. only: the claims by name that it is about; all where absent.
pools: pool -> its slices -> their devices.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

POLL_SECONDS = 0.02


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one kind of call is to end."""

    mode: str = ""
    only: tuple[str, ...] | None = None

    def meets(self, claim: str) -> bool:
        return bool(self.mode) and (self.only is None or claim in self.only)


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The health of one device; `health` as the protocol numbers it: 1 is healthy, 2 is not."""

    pool: str
    device: str
    health: int
    message: str = ""
    seconds: int = 0


class Orders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    prepare: Order = Order()
    unprepare: Order = Order()
    get_info: Order = Order()
    notify: Order = Order()
    health: tuple[Report, ...] = ()
    pools: dict[str, tuple[tuple[str, ...], ...]] = {}
    status: bool = False


_decoder = msgspec.json.Decoder(Orders)


def read_orders(path: Path) -> Orders:
    """Raises: OSError, msgspec.ValidationError."""
    return _decoder.decode(path.read_bytes())


def write_orders(path: Path, orders: Orders) -> None:
    """Replace the file at once: a reader sees the old orders or the new ones."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(orders))
    draft.replace(path)


def wait_while(path: Path, holds: Callable[[Orders], bool], *, active: Callable[[], bool]) -> bool:
    """Until the orders are others (True), or nobody waits for it any more (False)."""
    while active():
        if not holds(read_orders(path)):
            return True
        time.sleep(POLL_SECONDS)
    return False


class Journal:
    """Appends one JSON object a line; each is in the file before the next step is taken."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()

    def write(self, **entry: Any) -> None:
        line = json.dumps({**entry, "pid": os.getpid()}).encode() + b"\n"
        with self._lock:
            os.write(self._file, line)
