"""Priority and fairness: whose request is served next, and what one request may cost in processor time and memory.

    ticket = queues.enter(level_of(identity), identity.name)    # raises Overflow
    await ticket.turn                                           # its turn has come
    queues.leave(ticket)

**Queues.** A lane has as many seats as threads. The next seat goes to the priority level that uses the smallest part of
its share, and within it to the identity that was served longest ago. So a client that sends a hundred requests at once
only delays its own. No identity gets all seats, so one is free soon even if all requests of one identity are slow. A
request is refused if its identity has too many waiting, exceeds its rate, or if too many requests wait altogether.
Members of `system:masters` are refused only for the last reason: an administrator must get in to repair things.
Source: the ideas of apiserver/pkg/util/flowcontrol (priority levels, flows, queues), much simplified.

**Processor time.** Most requests take milliseconds. What makes one costly is what its sender wrote: expressions that
are compiled and evaluated, documents that are read and checked, patches of many operations, long ranges of the log.
Such work calls `check_time` often (`manciple.wire.limits`), and each lane serves a request within the limits of its
`RequestWork`. Beyond `WorkLimits.cheap` a request is costly: each identity may run one of these at a time, and the
tenants of a process `MOST_COSTLY`; others get 429 with Retry-After. Beyond its allowance it ends (504, or a page that
says so), as it does when its client disconnects. Heavy requests, which are likely to become costly, wait for each other
in the queues. Time is processor time of the request's thread, so a busy machine makes no request costly.

**Memory.** A body takes memory from its first byte until its request is answered, and a client may send it as slowly as
`MANCIPLE_BODY_SECONDS` allows. So its bytes are reserved before they are read: the announced length, or each piece
where none is announced. A body that does not fit is refused (429) and not read.

Each queue and budget belongs to one event loop; the accounts of costly requests are shared by threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import sys
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from manciple import memory
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import MASTERS, NODES, SYSTEM_NAMESPACE, Identity, account_groups, account_of
from manciple.wire.limits import work_time

# Priority levels and flows --------------------------------------------------------------------------------------------


Level = Literal["exempt", "system", "workload", "strangers"]

#: What part of the seats each level has a right to while others want them too. strangers: who was not recognised yet.
SHARES: Mapping[Level, int] = MappingProxyType({"exempt": 4, "system": 4, "workload": 4, "strangers": 1})

#: Bytes of an answer after which its flow has one seat, for so many seconds: putting such a list together takes several
#: times its size in memory.
LARGE_ANSWER, LARGE_LASTS = 16 * 1024 * 1024, 60.0
#: Levels whose costly requests are few in a process. Agents and controllers, which write large objects, and
#: administrators are not held up by them: each of these has one at a time.
LIMITED: tuple[Level, ...] = ("workload", "strangers")
#: Heavy requests that one lane serves at a time for the limited levels. Each identity has one: reading and checking a
#: megabyte takes seconds, in threads that share one interpreter with all others, and a password's hash a processor.
MOST_HEAVY = 2
#: Bytes of a flow's answers that its clients have not taken yet, beyond which it is refused.
MOST_UNSENT = 128 * 1024 * 1024

_COMPONENTS = ("system:kube-", f"system:serviceaccount:{SYSTEM_NAMESPACE}:")


def level_of(identity: Identity | None) -> Level:
    """identity: who showed the credential; None where that is not known yet."""
    if identity is None:
        return "strangers"
    if identity.remote:
        return "workload"
    if MASTERS in identity.groups:
        return "exempt"
    if NODES in identity.groups or identity.name.startswith(_COMPONENTS):
        return "system"
    return "workload"


def flow_of(identity: Identity) -> str:
    """The name that an identity's requests and watches are counted under.

    Service accounts of a namespace count as one: whoever may write the namespace can make any number of them.
    """
    account = account_of(identity.name)
    return account_groups(account[0])[-1] if account and account[0] != SYSTEM_NAMESPACE else identity.name


@lru_cache(maxsize=4096)
def payer(identity: Identity) -> tuple[Level, str]:
    """(level, flow) of an identity, whose queue and account its requests are in."""
    return level_of(identity), flow_of(identity)


class Senders:
    """Whose credential is whose, as far as their last requests told: to queue them rightly, and for nothing else.

    Not every kind of credential is recognised before a thread is taken. One that was good is taken for its identity's
    for `LASTS` seconds; by then its next request has told again.
    """

    LASTS, MOST = 60.0, 10_000

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Level, str, float]] = OrderedDict()

    def note(self, credential: str, identity: Identity) -> None:
        """`credential` was this identity's a moment ago."""
        key = digest(credential)
        self._known[key] = (*payer(identity), self._clock() + self.LASTS)
        self._known.move_to_end(key)
        while len(self._known) > self.MOST:
            self._known.popitem(last=False)

    def find(self, credential: str) -> tuple[Level, str] | None:
        """(level, flow)"""
        found = self._known.get(digest(credential))
        return found[:2] if found and self._clock() < found[2] else None


def digest(credential: str) -> bytes:
    return hashlib.blake2b(credential.encode(), digest_size=16).digest()


class Overflow(Exception):
    """The request is refused. after: seconds.

    why: for counters ("queue-full", "identity-queue-full", "rate", "answers-not-read", "work").
    """

    def __init__(self, why: str, *, after: float = 1.0) -> None:
        super().__init__(why)
        self.why = why
        self.after = after


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """seats: requests at a time. queue: that may wait, of all; flow_queue: of one identity. rate: requests a second of
    one identity, after `burst` at once; 0 for any number.
    """

    seats: int
    queue: int = 1000
    flow_queue: int = 500
    rate: float = 0.0
    burst: float = 0.0

    @property
    def flow_seats(self) -> int:
        """That one identity may have: a quarter is left to others."""
        return max(1, self.seats - self.seats // 4)


@dataclass(slots=True)
class FlowCounts:
    """Of one level since the process began; `waiting` and `executing` are of now. waited: seconds, of all together."""

    dispatched: int = 0
    waited: float = 0.0
    waiting: int = 0
    executing: int = 0
    refused: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Ticket:
    """One request. turn: done when it may begin."""

    level: Level
    flow: str
    turn: asyncio.Future[None]
    since: float
    heavy: bool = False
    seated: bool = False


#: Costly requests: seconds of processor time that one identity may use at once, and in each second after that. Debt
#: never grows beyond as much again.
WORK_BURST, WORK_RATE = 10.0, 0.25
#: Requests that are not costly, and take more processor time than this, count together: a flood of lists that search
#: thousands of objects takes as much from others as one costly request. An identity has one seat while it exceeds
#: `BUSY_BURST` seconds of them, of which `WORK_RATE` a second come back. Writes of ordinary objects take less each.
BUSY_FROM, BUSY_BURST = 0.01, 1.0
#: Seconds of its costly requests, not yet paid back, past which an identity has one seat: threads that compute share
#: one interpreter, so each takes as much of it as anybody else's request.
ONE_SEAT_AFTER = 1.0


class _Bucket:
    """How many requests (or seconds of work) somebody has left: so many a second come back, up to `burst`."""

    __slots__ = ("at", "left")

    def __init__(self, burst: float, now: float) -> None:
        self.left, self.at = burst, now

    def refill(self, rate: float, burst: float, now: float) -> float:
        """What is left now."""
        self.left = min(burst, self.left + (now - self.at) * rate)
        self.at = now
        return self.left

    def take(self, rate: float, burst: float, now: float) -> float:
        """Seconds until there is one; 0 where one was taken."""
        if self.refill(rate, burst, now) < 1:
            return (1 - self.left) / rate
        self.left -= 1
        return 0.0


class _Accounts:
    """Seconds of work by identity: `burst` at once, and `WORK_RATE` in each second after that."""

    def __init__(self, burst: float) -> None:
        self._burst = burst
        #: of those who worked lately
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def charge(self, owner: Hashable, seconds: float, now: float) -> None:
        """Debt never grows beyond as much as may be used at once."""
        bucket = self._buckets.setdefault(owner, _Bucket(self._burst, now))
        self._buckets.move_to_end(owner)
        bucket.left = max(bucket.refill(WORK_RATE, self._burst, now) - seconds, -self._burst)
        # One that was left alone for so long has paid its debt and is full again.
        while next(iter(self._buckets.values())).at < now - 2 * self._burst / WORK_RATE:
            self._buckets.popitem(last=False)

    def left(self, owner: Hashable, now: float) -> float:
        """Seconds that the identity may still use now."""
        bucket = self._buckets.get(owner)
        return self._burst if bucket is None else bucket.left + (now - bucket.at) * WORK_RATE


class RateLimits:
    """Requests a second by sender: a bucket of `burst` for each, which `rate` a second refill. rate 0: no limit."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, max(burst, 1.0), clock
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def take(self, sender: Hashable) -> float:
        """Seconds until `sender` may make another request; 0 where it may now, which counts as made."""
        if not self._rate:
            return 0.0
        now = self._clock()
        bucket = self._buckets.setdefault(sender, _Bucket(self._burst, now))
        self._buckets.move_to_end(sender)
        after = bucket.take(self._rate, self._burst, now)
        # One that was left alone for so long is full again: nothing is lost with it.
        while next(iter(self._buckets.values())).at < now - self._burst / self._rate:
            self._buckets.popitem(last=False)
        return after

    def give_back(self, sender: Hashable) -> None:
        """One that was taken does not count after all."""
        if (bucket := self._buckets.get(sender)) is not None:
            bucket.left = min(self._burst, bucket.left + 1)


@dataclass(slots=True)
class _Flow:
    """The requests of one identity in its level: the heavy ones, or the others."""

    #: the number of the turn that it had last; of a newcomer, as if it had been the one before the present
    turn: int
    line: deque[Ticket] = field(default_factory=deque)
    seats: int = 0


#: Of a `_Flow` in its level: the identity's flow, and whether the bodies are large.
_Key = tuple[str, bool]


class FairQueues:
    """The queues of one lane. Used from one event loop."""

    def __init__(self, limits: FlowLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        #: those of each level who wait or have seats
        self._flows: dict[Level, dict[_Key, _Flow]] = {level: {} for level in SHARES}
        #: turns that were given
        self._turns = 0
        self._rates = RateLimits(limits.rate, limits.burst, clock=clock)
        #: flows that had a large answer, and until when they have one seat
        self._large: OrderedDict[tuple[Level, str], float] = OrderedDict()
        #: bytes of answers that were not taken yet
        self._unsent: Counter[tuple[Level, str]] = Counter()
        #: seconds of costly work that those have left who did some lately
        self._work = _Accounts(WORK_BURST)
        #: the same of requests that are not costly (`BUSY_FROM`)
        self._busy = _Accounts(BUSY_BURST)
        self._seats = 0
        self._heavy = 0  # of these, those of heavy requests of a limited level
        self._waiting = 0
        self.counts: dict[Level, FlowCounts] = {level: FlowCounts() for level in SHARES}

    def check_room(self) -> None:
        """Raises: Overflow where too many wait altogether."""
        if self._seats + self._waiting >= self._limits.seats + self._limits.queue:
            raise Overflow("queue-full")

    def enter(self, level: Level, flow: str, *, heavy: bool = False) -> Ticket:
        """heavy: it waits until no other such request of its flow is served. Raises: Overflow."""
        try:
            self.check_room()
            if level != "exempt":
                self._check_queue(level, flow)
                self.check_work(level, flow)
                self._check_rate(level, flow)
        except Overflow as refused:
            told = self.counts[level].refused
            told[refused.why] = told.get(refused.why, 0) + 1
            raise
        ticket = Ticket(level, flow, asyncio.get_running_loop().create_future(), self._clock(), heavy)
        known = self._flows[level].setdefault((flow, heavy), _Flow(self._turns - 1))
        self.counts[level].waiting += 1
        if not self._waiting and self._seats < self._limits.seats and self._may_sit(level, (flow, heavy)):
            self._tell_seated(ticket, known)  # nobody else wants one
            return ticket
        known.line.append(ticket)
        self._waiting += 1
        self._seat()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """It has been served, or does not want to be any more. Twice is once."""
        flow = self._flows[ticket.level].get((ticket.flow, ticket.heavy))
        if flow is None:
            return
        counts = self.counts[ticket.level]
        if ticket.seated:
            ticket.seated = False
            flow.seats -= 1
            self._seats -= 1
            self._heavy -= _is_limited(ticket)
            counts.executing -= 1
        elif ticket in flow.line:
            flow.line.remove(ticket)
            self._waiting -= 1
            counts.waiting -= 1
        if not flow.line and not flow.seats:
            del self._flows[ticket.level][ticket.flow, ticket.heavy]
        self._seat()

    @contextmanager
    def sending(self, ticket: Ticket, size: int) -> Iterator[None]:
        """While an answer of so many bytes is sent."""
        key = ticket.level, ticket.flow
        if size > LARGE_ANSWER:
            self._large[key] = self._clock() + LARGE_LASTS
            self._large.move_to_end(key)
            while next(iter(self._large.values())) < self._clock():
                self._large.popitem(last=False)
        self._unsent[key] += size
        try:
            yield
        finally:
            self._unsent[key] -= size
            if not self._unsent[key]:
                del self._unsent[key]

    def _most_seats(self, level: Level, flow: str) -> int:
        if level != "exempt" and self._large and self._large.get((level, flow), 0.0) > self._clock():
            return 1
        if level in LIMITED:
            key, now = (level, flow), self._clock()
            if self._work.left(key, now) < WORK_BURST - ONE_SEAT_AFTER or self._busy.left(key, now) < 0:
                return 1
        return self._limits.flow_seats

    def _of_identity(self, level: Level, flow: str) -> list[_Flow]:
        flows = self._flows[level]
        return [flows[flow, large] for large in (False, True) if (flow, large) in flows]

    def _may_sit(self, level: Level, key: _Key) -> bool:
        """Whether the flow, which is known, may have another seat."""
        flow, heavy = key
        if sum(one.seats for one in self._of_identity(level, flow)) >= self._most_seats(level, flow):
            return False
        if not heavy:
            return True
        limited = level in LIMITED and self._heavy >= MOST_HEAVY
        return not limited and not self._flows[level][key].seats

    def charge(self, level: Level, flow: str, seconds: float) -> None:
        """A request of this identity was costly: it took so much processor time."""
        self._work.charge((level, flow), seconds, self._clock())

    def note_busy(self, level: Level, flow: str, seconds: float) -> None:
        """A request of this identity took so much processor time, and was not costly."""
        if seconds > BUSY_FROM:
            self._busy.charge((level, flow), seconds, self._clock())

    def check_work(self, level: Level, flow: str) -> None:
        """Raises: Overflow where the identity has used up its work."""
        if (left := self._work.left((level, flow), self._clock())) < 0:
            raise Overflow("work", after=-left / WORK_RATE)

    def _check_queue(self, level: Level, flow: str) -> None:
        if sum(len(one.line) for one in self._of_identity(level, flow)) >= self._limits.flow_queue:
            raise Overflow("identity-queue-full")
        if self._unsent[level, flow] > MOST_UNSENT:
            raise Overflow("answers-not-read")

    def _check_rate(self, level: Level, flow: str) -> None:
        if after := self._rates.take((level, flow)):
            raise Overflow("rate", after=after)

    def _seat(self) -> None:
        """Give free seats to those whose turn it is."""
        while self._waiting and self._seats < self._limits.seats and (found := self._next()):
            level, key = found
            flow = self._flows[level][key]
            self._waiting -= 1
            self._tell_seated(flow.line.popleft(), flow)

    def _tell_seated(self, ticket: Ticket, flow: _Flow) -> None:
        self._turns += 1
        flow.turn = self._turns
        flow.seats += 1
        self._seats += 1
        self._heavy += _is_limited(ticket)
        counts = self.counts[ticket.level]
        counts.waiting -= 1
        counts.executing += 1
        counts.dispatched += 1
        counts.waited += self._clock() - ticket.since
        ticket.seated = True
        if not ticket.turn.done():  # who waited may have gone: `leave` follows
            ticket.turn.set_result(None)

    def _next(self) -> tuple[Level, _Key] | None:
        """Whose turn it is; None where nobody waits who may have another seat."""
        waiting = (level for level in SHARES if self.counts[level].waiting)
        ready = ((level, key) for level in waiting if (key := self._next_of(level)))
        return min(ready, key=lambda one: self.counts[one[0]].executing / SHARES[one[0]], default=None)

    def _next_of(self, level: Level) -> _Key | None:
        flows = self._flows[level]
        ready = (key for key, flow in flows.items() if flow.line and self._may_sit(level, key))
        return min(ready, key=lambda key: flows[key].turn, default=None)


def _is_limited(ticket: Ticket) -> bool:
    """Whether it counts towards `MOST_HEAVY`."""
    return ticket.heavy and ticket.level in LIMITED


# Costly requests ------------------------------------------------------------------------------------------------------


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
MOST_COSTLY = 2
#: Seconds between two looks at the processor time.
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

    def __init__(self, most: int = MOST_COSTLY) -> None:
        self._most = most
        #: each, and whether it counts towards `most`
        self._owners: dict[Hashable, bool] = {}
        self._changing = threading.Lock()

    def enter(self, owner: Hashable, *, limited: bool = True) -> None:
        """limited: it may be refused because of other owners. Raises: TooManyRequests."""
        with self._changing:
            if owner in self._owners:
                raise _too_costly("another costly request of yours is still being worked on, please try again later")
            if limited and sum(self._owners.values()) >= self._most:
                raise _too_costly("too many costly requests are being worked on, please try again later")
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


def _too_costly(message: str) -> TooManyRequests:
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
        self._began = self._work_began = 0.0
        #: see `Limit`: the clock of a thread costs a system call
        self.next_look = 0.0
        self._over = False
        self._gives_way = False
        #: seconds of processor time that it took, once it has ended
        self.spent = 0.0
        #: what of that is charged to its sender: all, where it was costly
        self.charged = 0.0
        self.abandoned = False

    def begin(self) -> None:
        self._began, self._work_began = time.thread_time(), work_time()

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
        """The client has gone: the work ends at its next look."""
        self.abandoned = True

    @property
    def has_passed(self) -> bool:
        """Raises: TooManyRequests where it becomes costly while others are."""
        if self._over or self.abandoned:
            return True
        self.next_look = time.monotonic() + _LOOK_EVERY
        spent = time.thread_time() - self._began
        if spent > _GIVES_WAY_AFTER:
            if not self._gives_way:
                self._gives_way = True
                SHORT_TURNS.begin()
            time.sleep(_PAUSE)
        if spent >= self._cheap:
            self._enter()
        self._over = work_time() - self._work_began >= self._allowance
        if self._over:
            self.next_look = 0.0
        return self._over


# Bodies in memory -----------------------------------------------------------------------------------------------------


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
                asyncio.get_running_loop().run_in_executor(None, memory.give_back)

    def _check(self, owner: tuple[Level, str, bool], mine: int, size: int) -> None:
        limits = self._limits
        others = self._by_owner[owner] - mine
        most = limits.address if owner[0] == "strangers" else limits.identity
        if others and others + mine + size > most:
            raise _bodies_too_large(
                "the bodies of your requests that are being received or worked on are too large together"
            )
        if self.held + size > limits.process or (_is_of_tenants(owner) and self._tenants + size > limits.tenants):
            raise _bodies_too_large(
                "the bodies of all requests that are being received or worked on are too large together"
            )

    def _add(self, owner: tuple[Level, str, bool], size: int) -> None:
        self._by_owner[owner] += size
        self.held += size
        self._peak = max(self._peak, self.held)
        if _is_of_tenants(owner):
            self._tenants += size


def _is_of_tenants(owner: tuple[Level, str, bool]) -> bool:
    level, _, is_long = owner
    return is_long and level in LIMITED


def _bodies_too_large(why: str) -> TooManyRequests:
    return TooManyRequests(f"{why}, please try again later", details={"retryAfterSeconds": 1})
