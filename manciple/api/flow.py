"""Who is served next: fair queues by identity, in levels of priority. PURE; each is of one event loop.

    ticket = queues.enter(level_of(identity), identity.name)    # raises Overflow
    await ticket.turn                                           # its turn has come
    queues.leave(ticket)

There are so many seats as there are threads. Whose turn it is: of the levels somebody waits in, the one that uses the
smallest part of its share; in it, the identity that was served longest ago. So whoever sends a hundred requests at once
waits behind nobody but themselves, and the next one who comes is served as soon as a seat is free. One identity never
has all seats, so that such a seat becomes free though the requests of one take long.

A request is refused where its identity has too many waiting, or sends more a second than it may, or where too many
wait altogether. Members of `system:masters` are refused only for the last: an administrator must get in to mend things.
Source: the ideas of apiserver/pkg/util/flowcontrol (priority levels, flows, queues), much simplified.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from manciple.wire.identity import MASTERS, NODES, SYSTEM_NAMESPACE, Identity, account_groups, account_of

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
        self._known[key] = (level_of(identity), flow_of(identity), self._clock() + self.LASTS)
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
        self._work: OrderedDict[tuple[Level, str], _Bucket] = OrderedDict()
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
        if level in LIMITED and self._work_left(level, flow) < WORK_BURST - ONE_SEAT_AFTER:
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
        now, key = self._clock(), (level, flow)
        bucket = self._work.setdefault(key, _Bucket(WORK_BURST, now))
        self._work.move_to_end(key)
        bucket.left = max(bucket.refill(WORK_RATE, WORK_BURST, now) - seconds, -WORK_BURST)
        # One that was left alone for so long has paid its debt and is full again.
        while next(iter(self._work.values())).at < now - 2 * WORK_BURST / WORK_RATE:
            self._work.popitem(last=False)

    def check_work(self, level: Level, flow: str) -> None:
        """Raises: Overflow where the identity has used up its work."""
        if (left := self._work_left(level, flow)) < 0:
            raise Overflow("work", after=-left / WORK_RATE)

    def _work_left(self, level: Level, flow: str) -> float:
        """Seconds of costly work that the identity may still use now."""
        bucket = self._work.get((level, flow))
        return WORK_BURST if bucket is None else bucket.left + (self._clock() - bucket.at) * WORK_RATE

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
