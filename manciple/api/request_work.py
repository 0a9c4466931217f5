"""What the work for one request may cost: processor time, and how many costly requests are worked on at once.

Most requests take milliseconds. What makes one costly is what its sender wrote: expressions that are compiled and
evaluated, documents that are read and checked, patches of many operations, long ranges of the log. Such work asks
`check_time` again and again (`manciple.wire.time_limit`), and each lane serves a request within the limits of its
`RequestWork`. Past some processor time (`WorkLimits.cheap`) a request is costly: each identity has one of these at a
time and a process `MOST` of tenants; others are refused with 429 and Retry-After. Past its allowance it ends (504, or a
page that says so). It ends as well once its client has disconnected. Heavy requests, which are likely to be costly,
wait for each other before that (`manciple.api.flow`).

Time is processor time of the request's thread, so that a busy machine makes no request costly.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from manciple.api.flow import LIMITED
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import Identity

#: Where the environ carries the work of its request.
WORK = "manciple.work"


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Of the requests of one lane, in seconds of processor time. cheap: past it a request is costly; allowance: past it
    its work ends.
    """

    cheap: float = math.inf
    allowance: float = math.inf


UNLIMITED = WorkLimits()
#: Costly requests that one process works on at once: threads that compute share one interpreter with all others.
MOST = 2
#: Seconds between two looks at the clock of the thread, which costs a system call.
_LOOK_EVERY = 0.001
#: Processor time, in seconds, past which a request gives way to others: it pauses at each look, and meanwhile every
#: thread keeps the interpreter for a shorter time while others want it. Ordinary requests take less: changing threads
#: in the middle of each would cost more than it gives.
_GIVES_WAY_AFTER = 0.01
#: Seconds of a pause. Without one, a thread that lets go of the interpreter has it back before another one is awake.
_PAUSE = 0.0001
#: Seconds for which a thread then keeps the interpreter; Python's default is 0.005. A list needs it a dozen times, and
#: the event loop for each 16 KiB of a body that it decrypts: with 0.0005, it waited 5 ms for every 256 KiB.
_SHORT_TURN = 0.0001


class CostlyRequests:
    """Those that are being worked on, each by its owner. Threads may share it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        #: each, and whether it counts towards `most`
        self._owners: dict[Hashable, bool] = {}
        self._changing = threading.Lock()

    def enter(self, owner: Hashable, *, limited: bool = True) -> None:
        """limited: it may be refused because of other owners. Raises: TooManyRequests."""
        with self._changing:
            if owner in self._owners:
                raise _refused("another costly request of yours is still being worked on, please try again later")
            if limited and sum(self._owners.values()) >= self._most:
                raise _refused("too many costly requests are being worked on, please try again later")
            self._owners[owner] = limited

    def leave(self, owner: Hashable) -> None:
        with self._changing:
            self._owners.pop(owner, None)


class ShortTurns:
    """Shortens the turns of this process's threads while any request that gives way is being worked on, or a long body
    is being received.
    """

    def __init__(self) -> None:
        self._requests = 0
        self._usual = 0.0
        self._changing = threading.Lock()

    def begin(self) -> None:
        with self._changing:
            if not self._requests:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _SHORT_TURN))
            self._requests += 1

    def end(self) -> None:
        with self._changing:
            self._requests -= 1
            if not self._requests:
                sys.setswitchinterval(self._usual)

    @contextmanager
    def during(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()


SHORT_TURNS = ShortTurns()


def _refused(message: str) -> TooManyRequests:
    return TooManyRequests(message, details={"retryAfterSeconds": 1})


#: Of all lanes of this process.
COSTLY = CostlyRequests()


class RequestWork:
    """The work for one request: a limit for `time_limit`, and the account of what it cost.

    `begin` and `end` are called in the thread that serves the request, `abandon` from anywhere.
    """

    def __init__(self, limits: WorkLimits, owner: Callable[[], Hashable], *, costly: CostlyRequests = COSTLY) -> None:
        """owner: whose request it is (level and flow); called where it becomes costly."""
        #: who is signed in, where a page asked for that
        self.sender: Identity | None = None
        self._cheap, self._allowance = limits.cheap, limits.allowance
        self._owner = owner
        self._costly = costly
        self._entered: Hashable | None = None
        self._began = self._next_look = 0.0
        self._over = False
        self._gives_way = False
        #: seconds of processor time that it took, once it has ended
        self.spent = 0.0
        #: what of that is charged to its sender: all, where it was costly
        self.charged = 0.0
        self.abandoned = False

    def begin(self) -> None:
        self._began = time.thread_time()

    def end(self) -> None:
        self.spent = time.thread_time() - self._began
        self.charged = self.spent if self.spent >= self._cheap else 0.0
        if self._entered is not None:
            self._costly.leave(self._entered)
        if self._gives_way:
            SHORT_TURNS.end()

    def become_costly(self, allowance: float) -> None:
        """For work that is known to be costly before it begins. allowance: its own. Raises: TooManyRequests."""
        self._allowance = max(self._allowance, allowance)
        self._enter()

    def _enter(self) -> None:
        if self._entered is None:
            owner = self._owner()
            self._costly.enter(owner, limited=not isinstance(owner, tuple) or owner[0] in LIMITED)
            self._entered = owner

    def abandon(self) -> None:
        """Nobody waits for the answer any more: the work ends at its next look."""
        self.abandoned = True

    @property
    def has_passed(self) -> bool:
        """Raises: TooManyRequests where it becomes costly while others are."""
        if self._over or self.abandoned:
            return True
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_EVERY
        spent = time.thread_time() - self._began
        if spent > _GIVES_WAY_AFTER:
            if not self._gives_way:
                self._gives_way = True
                SHORT_TURNS.begin()
            time.sleep(_PAUSE)
        if spent >= self._cheap:
            self._enter()
        self._over = spent >= self._allowance
        return self._over
