"""How many bytes of request bodies a process keeps: those being received, waiting for their turn, and being served.

A body takes memory from its first byte until its request is answered, and a client may send it as slowly as
`MANCIPLE_BODY_SECONDS` lets it. So its bytes are reserved before they are read: those that its head announces, or those
of each piece where it announces none. What does not fit is refused (429) and not read.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from manciple.api.flow import LIMITED, Level
from manciple.wire.errors import TooManyRequests

MIB = 1024 * 1024
#: Bytes after which the memory of bodies is given back to the system when all of them are gone.
_GIVE_BACK_AFTER = 16 * MIB


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """In bytes. process: of all bodies; tenants: of the long ones of tenants and strangers, so that the rest is there
    for short ones, the system and administrators; identity: of one; address: of strangers with one address. One body
    always fits into the last two.
    """

    process: int = 128 * MIB
    tenants: int = 96 * MIB
    identity: int = 16 * MIB
    address: int = MIB


class BodyBudget:
    """The bodies of one process. Used from one event loop."""

    def __init__(self, limits: BodyLimits | None = None) -> None:
        self._limits = limits or BodyLimits()
        self._by_owner: Counter[tuple[Level, str, bool]] = Counter()
        self._tenants = 0
        self._peak = 0
        #: bytes that are reserved
        self.held = 0

    @contextmanager
    def account(self, level: Level, flow: str, *, is_long: bool) -> Iterator[Callable[[int], None]]:
        """A function that reserves so many bytes more for one request of this sender, until the block ends. It raises
        TooManyRequests where they do not fit.

        is_long: long bodies are counted separately, so that those of one stranger keep nobody from signing in.
        """
        owner = level, flow, is_long
        mine = 0

        def reserve(size: int) -> None:
            nonlocal mine
            self._check(owner, mine, size)
            mine += size
            self._add(owner, size)

        try:
            yield reserve
        finally:
            self._add(owner, -mine)
            if not self._by_owner[owner]:
                del self._by_owner[owner]
            if not self.held and self._peak >= _GIVE_BACK_AFTER:
                self._peak = 0
                asyncio.get_running_loop().run_in_executor(None, give_memory_back)

    def _check(self, owner: tuple[Level, str, bool], mine: int, size: int) -> None:
        limits = self._limits
        others = self._by_owner[owner] - mine
        most = limits.address if owner[0] == "strangers" else limits.identity
        if others and others + mine + size > most:
            raise _refused("the bodies of your requests that are being received or worked on are too large together")
        if self.held + size > limits.process or (_is_of_tenants(owner) and self._tenants + size > limits.tenants):
            raise _refused("the bodies of all requests that are being received or worked on are too large together")

    def _add(self, owner: tuple[Level, str, bool], size: int) -> None:
        self._by_owner[owner] += size
        self.held += size
        self._peak = max(self._peak, self.held)
        if _is_of_tenants(owner):
            self._tenants += size


def _is_of_tenants(owner: tuple[Level, str, bool]) -> bool:
    level, _, is_long = owner
    return is_long and level in LIMITED


def _refused(why: str) -> TooManyRequests:
    return TooManyRequests(f"{why}, please try again later", details={"retryAfterSeconds": 1})


def give_memory_back() -> None:
    """To the system, what the allocator keeps of it after a burst; only glibc's can be asked to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
