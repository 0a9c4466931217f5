"""What workers know of each other, so that no work is done twice: turns, wake-ups that coalesce, revisions that need
none, places in the log; and their signs of life.

A courtesy throughout, not a safeguard: what may be written is decided by each commit, and what is lost here costs a run
that finds nothing, or waits for the periodic one.

- `turn` and `alone` are locks among workers that share a PostgreSQL: advisory locks of the database's session, which
  end with the connection, so a worker that dies hands on what it held. A thread that loses its connection cannot
  reconnect before it has left the lock, so nobody writes as the holder of a lock that has passed on. Nobody waits
  without limit, and who does not get a lock loses nothing: the holder is asked again. `turn` is for scheduling: two
  workers that decide at once would choose the same devices. The process whose dispatcher leads keeps it meanwhile, in
  the session of the dispatcher. On SQLite all workers are threads of one process, which runs one scheduling worker, so
  everybody has it. `alone` is for singletons.
- Wake-ups: at most one message for each controller is on its way. Who sends notes the message first (`enter`); who
  takes a message up crosses it out (`leave`) before it begins, so what happens from then on is worth another message. A
  note ends by itself after a while, because messages may be lost: then a second one may be sent, and whichever of them
  is not the last noted does nothing. Where several processes share a Redis, all this stands there; else, and while
  Redis is away, in the memory of the process.
- `looked_after`: which revisions need no wake-up, because the controller of this process that writes them looks at them
  itself. It notes its writes before they are committed; the dispatcher of the same process
  (`manciple.controllers.tasks`) asks.
- `CursorFollower` reads the log on behalf of a controller, from where its last reader stopped. The cursor is a row that
  moves on when what lies before it has been looked at. The controller is a singleton (`manciple.controllers.tasks`), so
  one process reads at a time. Should two ever read the same events, that is harmless: handling is idempotent, and the
  cursor never moves back.
- `heart` is for the dashboard's health. A process notes in memory what its tasks did and writes one row at most every
  few seconds, after a task and outside of any transaction of its own: placing pods costs it one addition. Nothing is
  decided by these rows; a process whose row cannot be written goes on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from django.utils.module_loading import import_string

from manciple.controllers.models import Cursor, Heartbeat
from manciple.per_process import PerProcess
from manciple.store import event_log, sql
from manciple.store.event_log import Stretch, since
from manciple.store.objects import Writer
from manciple.store.records import EventRecord
from manciple.telemetry import processes

log = logging.getLogger(__name__)

# Turns ----------------------------------------------------------------------------------------------------------------


#: Any number that nobody else locks in this database.
KEY = 0x6D616E63
#: The name under which the dispatcher that leads is `alone`.
LEADERSHIP = "dispatcher"
#: The lock of who schedules.
TURN = "turn"
#: Seconds to wait for the scheduling turn; who does not get it in that time leaves it to the periodic run, which comes
#: every second.
PATIENCE = 1.0
#: Seconds without an answer to PostgreSQL after which a holder that others wait for loses its lock.
UNREACHABLE = 10.0

_local: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
#: set while this process has the turn as a whole: its threads then take it from each other
_has_turn = PerProcess(threading.Event)


class _Held(threading.local):
    """The locks of the database that this thread holds."""

    #: name -> the session that holds it: the driver's connection
    sessions: Mapping[str, object] = {}
    #: whether it has the turn among the threads of the process that has it
    turn = False


_held = _Held()


@receiver(connection_created)
def _refuse_another_session(connection: BaseDatabaseWrapper, **_signal: object) -> None:
    """A thread whose session is lost has lost its locks as well, so it may not reconnect and go on as their holder.

    So what a holder commits, it commits in the session that holds its lock.
    """
    if _held.sessions:
        connection.close()
        raise OperationalError(f"the connection that held these locks is gone: {', '.join(sorted(_held.sessions))}")


@contextmanager
def turn(*, patience: float = PATIENCE) -> Iterator[bool]:
    """Wait up to `patience` seconds until no other worker schedules. Yields whether that is so."""
    if not sql.on_postgresql():
        yield True
        return
    with _advisory(TURN, patience=patience) as ours:
        yield ours


@contextmanager
def keeping_turn() -> Iterator[bool]:
    """Keep the turn for the threads of this process, in the session of this one, unless another process has it now.
    Yields whether that is so.

    To take the lock and to give it back are two round trips for each run.
    """
    with turn() as ours:
        if ours and sql.on_postgresql():
            _has_turn.value.set()
        try:
            yield ours
        finally:
            _has_turn.value.clear()


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Yields whether nobody else is within `alone(name)` now; never waits."""
    if sql.on_postgresql():
        with _advisory(name) as ours:
            yield ours
        return
    lock = _local[name]
    ours = lock.acquire(blocking=False)
    try:
        yield ours
    finally:
        if ours:
            lock.release()


def keeps(name: str) -> bool:
    """Whether this thread, which is within `alone(name)`, still has the lock, as far as it knows: nothing is asked."""
    session = _held.sessions.get(name)
    backend: Any = connection  # of `manciple.postgresql`
    return session is None or (backend.connection is session and not backend.has_hung_up())


def hand_on_if_unreachable() -> None:
    """Where the network to this thread fails, PostgreSQL soon ends its session, and gives its locks to others."""
    if not sql.on_postgresql():
        return
    for setting, value in (
        ("tcp_user_timeout", f"{UNREACHABLE:.0f}s"),
        # While this thread asks nothing.
        ("tcp_keepalives_idle", f"{UNREACHABLE / 2:.0f}s"),
        ("tcp_keepalives_interval", "1s"),
    ):
        with suppress(DatabaseError):
            sql.execute(f"SET {setting} = '{value}'")


@contextmanager
def _turn_here(patience: float) -> Iterator[bool]:
    """The turn, in the process that has it."""
    if _held.turn:
        yield True
        return
    _held.turn = ours = _local[TURN].acquire(timeout=patience)
    try:
        yield ours
    finally:
        if ours:
            _held.turn = False
            _local[TURN].release()


def is_held(name: str) -> bool:
    """Whether anybody is within `alone(name)`; with SQLite, anybody in this process."""
    if not sql.on_postgresql():
        return _local[name].locked()
    first, second = _key(name)
    return bool(sql.fetch(_IS_HELD, [first, second % 2**32])[0][0])


def _key(name: str) -> list[int]:
    return [KEY, zlib.crc32(name.encode()) - 2**31]


@contextmanager
def _advisory(name: str, *, patience: float = 0.0) -> Iterator[bool]:
    if name == TURN and (_held.turn or _has_turn.value.is_set()) and TURN not in _held.sessions:
        with _turn_here(patience) as ours:
            yield ours
        return
    if name in _held.sessions:
        yield keeps(name)
        return
    key = _key(name)
    backend: Any = connection
    ours = sql.fetch("SELECT pg_try_advisory_lock(%s, %s)", key)[0][0] or (patience > 0 and _wait(key, patience))
    session, held = backend.connection, _held.sessions
    try:
        _held.sessions = {**held, name: session} if ours else held
        yield ours
    finally:
        _held.sessions = held
        if ours and backend.connection is session:
            # A session that is gone has handed it on already.
            with suppress(InterfaceError, OperationalError):
                sql.execute("SELECT pg_advisory_unlock(%s, %s)", key)


def _wait(key: list[int], patience: float) -> bool:
    """The lock outlives the transaction, which is there for the time limit."""
    try:
        with transaction.atomic():
            sql.execute("SELECT set_config('lock_timeout', %s, true)", [f"{patience * 1000:.0f}ms"])
            sql.execute("SELECT pg_advisory_lock(%s, %s)", key)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") == "55P03":  # lock_not_available: the time is over
            # PostgreSQL may grant the lock and still report the timeout, and a session's lock outlives the transaction.
            sql.fetch(_UNLOCK_IF_HELD, [*key, key[0], key[1] % 2**32])
            return False
        raise
    return True


_IS_HELD = (
    "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
    "WHERE d.datname = current_database() AND locktype = 'advisory' AND granted "
    "AND classid = CAST(CAST(%s AS bigint) AS oid) AND objid = CAST(CAST(%s AS bigint) AS oid))"
)
_UNLOCK_IF_HELD = (
    "SELECT pg_advisory_unlock(%s, %s) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() "
    "AND granted AND classid = CAST(CAST(%s AS bigint) AS oid) AND objid = CAST(CAST(%s AS bigint) AS oid)"
)


# Wake-ups -------------------------------------------------------------------------------------------------------------


class Wakeups(Protocol):
    """The messages on their way, by controller."""

    def enter(self, name: str, message: str, seconds: float) -> bool:
        """Note `message`, for so long; False where another one is on its way."""

    def leave(self, name: str, message: str) -> bool:
        """`message` is taken up; False where a newer one is on its way, which will do."""

    def waiting(self, names: Iterable[str]) -> Collection[str]:
        """Those of `names` for which a message is on its way, as far as that is known."""

    def ask_again(self, name: str) -> None:
        """Whoever is at work for `name` shall look again."""

    def asked_again(self, name: str, *, surely: bool = False) -> bool:
        """Whether somebody said so since the last call.

        surely: other processes are asked even if this one has seen no message that could have led them to say so.
        """


class LocalWakeups:
    """Of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        #: name -> (message, until when)
        self._pending: dict[str, tuple[str, float]] = {}
        self._again: set[str] = set()

    def enter(self, name: str, message: str, seconds: float) -> bool:
        with self._guard:
            if self._waiting(name):
                return False
            self._pending[name] = (message, self._clock() + seconds)
            return True

    def leave(self, name: str, message: str) -> bool:
        with self._guard:
            waiting = self._waiting(name)
            if waiting == message:
                del self._pending[name]
            return waiting in ("", message)

    def waiting(self, names: Iterable[str]) -> Collection[str]:
        with self._guard:
            return [name for name in names if self._waiting(name)]

    def ask_again(self, name: str) -> None:
        with self._guard:
            self._again.add(name)

    def asked_again(self, name: str, *, surely: bool = False) -> bool:  # noqa: ARG002 - there are no others
        with self._guard:
            asked = name in self._again
            self._again.discard(name)
            return asked

    def _waiting(self, name: str) -> str:
        message, until = self._pending.get(name, ("", 0.0))
        return message if until > self._clock() else ""


def _of_settings() -> Wakeups:
    """A process without Redis need not hold its library, which takes 6 MiB."""
    url: str = settings.REDIS_URL
    made: Wakeups = (
        import_string("manciple.controllers.coordination_redis.SharedWakeups")(url) if url else LocalWakeups()
    )
    return made


#: of this process
wakeups = PerProcess(_of_settings)


# Revisions that need no wake-up ---------------------------------------------------------------------------------------


#: Transactions remembered; a dispatcher asks within milliseconds.
TRANSACTIONS_REMEMBERED = 256

#: the names of controllers
Tasks = frozenset[str]
NOBODY: Tasks = frozenset()


class LookedAfter:
    """Stretches of the log, newest last, each with the controllers that need not be woken for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._stretches: deque[tuple[int, int, Tasks]] = deque(maxlen=TRANSACTIONS_REMEMBERED)

    def by(self, revision: int) -> Tasks:
        """The controllers that look at `revision` without being told."""
        with self._guard:
            for first, last, tasks in reversed(self._stretches):
                if first <= revision:
                    return tasks if revision <= last else NOBODY
        return NOBODY

    @contextmanager
    def noted(self, writer: Writer, tasks: Tasks) -> Iterator[None]:
        """What `writer` writes within is looked after by `tasks`, unless it ends with an exception."""
        before = writer.revision
        yield
        if writer.revision > before:
            with self._guard:
                self._stretches.append((before + 1, writer.revision, tasks))


#: of this process
looked_after = PerProcess(LookedAfter)


# Places in the log ----------------------------------------------------------------------------------------------------


#: Events looked at in one step.
BATCH = 500
# In SQL, as everything that each pod pays for: building these in Django costs more than asking them.
_PLACE = (
    "SELECT c.revision, r.current FROM store_revision r LEFT JOIN scheduling_cursor c ON c.name = %s WHERE r.id = 1"
)
_MOVE = "UPDATE scheduling_cursor SET revision = %s WHERE name = %s AND revision < %s"

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorFollower:
    """A controller's reader of the log."""

    name: str
    resources: frozenset[str]
    #: looks at what these events, read `lean`, point to; returns how many objects it changed
    handle: Callable[[Sequence[EventRecord]], int]
    #: looks at everything: at the first start, and when the log was pruned past the cursor
    sweep: Callable[[datetime], int]

    def follow(self, clock: Clock = utc_now, *, up_to: int | None = None) -> int:
        """Look at all that has happened since the last time, up to now. Returns how many objects were changed.

        What happens meanwhile, its own writes included, is left for the next time: where much happens, a batch then
        has much in it.
        up_to: a revision beyond which nothing is looked at yet.
        """
        changed, (reached, latest) = 0, self._place()
        if up_to is not None:
            latest = min(latest, up_to)
        while reached < latest:
            reached, count = self._step(reached, clock(), up_to)
            sql.execute(_MOVE, [reached, self.name, reached])
            changed += count
        return changed

    def _place(self) -> tuple[int, int]:
        """(how far the log is looked at, how far it goes)."""
        found = sql.fetch(_PLACE, [self.name])
        if found and found[0][0] is not None:
            return found[0][0], found[0][1]
        cursor, _ = Cursor.objects.get_or_create(name=self.name)
        return cursor.revision, event_log.latest_revision()

    def _step(self, position: int, now: datetime, up_to: int | None) -> tuple[int, int]:
        """(how far the log is looked at now, how many objects changed)."""
        read = partial(event_log.stretch_after, resources=self.resources, limit=BATCH, lean=True)
        stretch = since(position or None, read)
        if stretch is None:
            latest = event_log.latest_revision()
            return latest, self.sweep(now)
        if up_to is not None and stretch.revision > up_to:
            stretch = Stretch([one for one in stretch.changes if one.revision <= up_to], up_to)
        return stretch.revision, self.handle(stretch.changes) if stretch.changes else 0


# Signs of life --------------------------------------------------------------------------------------------------------


#: Seconds between two writes of one process.
EVERY = 5.0
#: What "lately" means, in seconds.
LATELY = 60.0
#: A process that was not seen for this long may be dead: tasks come every second.
SILENT_AFTER = timedelta(seconds=30)
#: One that was not seen for this long is forgotten.
FORGOTTEN_AFTER = timedelta(minutes=10)

#: Counted: tasks (that ran), failed (tasks that raised), attempts (pods tried), placed (pods that found a node).
TASKS, FAILED, ATTEMPTS, PLACED = "tasks", "failed", "attempts", "placed"

Monotonic = Callable[[], float]
Now = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What was done until a write."""

    until: float
    done: Counter[str]


class Heart:
    """Of one process. `beat` may be called from any thread."""

    def __init__(self, name: str, *, kind: str = "worker", clock: Monotonic = time.monotonic, now: Now = utc_now):
        self.name, self.kind = name, kind
        self._clock, self._now = clock, now
        self._guard = threading.Lock()
        self._started = now()
        self._written: float | None = None
        self._current: Counter[str] = Counter()
        self._past: deque[_Stretch] = deque()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around one task."""
        try:
            yield
        except BaseException:
            self.did(**{TASKS: 1, FAILED: 1})
            self.beat()
            raise
        self.did(**{TASKS: 1})
        self.beat()

    def did(self, **counts: int) -> None:
        with self._guard:
            for name, count in counts.items():
                self._current[name] += count

    def beat(self) -> bool:
        """Write the sign of life, if it is time. Returns whether it was."""
        with self._guard:
            at = self._clock()
            if self._written is not None and at - self._written < EVERY:
                return False
            first, self._written = self._written is None, at
            lately = self._lately(at)
        try:
            self._write(lately, first=first)
        except (DatabaseError, InterfaceError):
            log.warning("the heartbeat of %s could not be written", self.name, exc_info=True)
        return True

    def stop(self) -> None:
        """This process ends on purpose: nobody need miss it."""
        try:
            Heartbeat.objects.filter(name=self.name).delete()
        except (DatabaseError, InterfaceError):
            log.warning("the heartbeat of %s could not be removed", self.name, exc_info=True)

    def _lately(self, at: float) -> dict[str, int]:
        """What was done in the last minute, as a row tells it."""
        self._past.append(_Stretch(at, self._current))
        self._current = Counter()
        while self._past[0].until <= at - LATELY:
            self._past.popleft()
        total: Counter[str] = Counter()
        for stretch in self._past:
            total.update(stretch.done)
        return {name: total[name] for name in (TASKS, FAILED, ATTEMPTS, PLACED)}

    def _write(self, lately: dict[str, int], *, first: bool) -> None:
        values = {"kind": self.kind, "started_at": self._started, "seen_at": self._now(), "lately": lately}
        with transaction.atomic():
            if Heartbeat.objects.filter(name=self.name).update(**values):
                return
            Heartbeat.objects.bulk_create([Heartbeat(name=self.name, **values)], ignore_conflicts=True)
        if first:
            forget_dead_neighbours(self.name)


def name_of_process() -> str:
    """HOST-PID."""
    return f"{os.uname().nodename}-{os.getpid()}"[-128:]


def forget_dead_neighbours(own: str) -> int:
    """Forget the processes of this machine that are gone: the caller has just been started in their place."""
    host = f"{os.uname().nodename}-"
    rows = Heartbeat.objects.filter(name__startswith=host).exclude(name=own).values_list("name", flat=True)
    dead = [name for name in rows if name.removeprefix(host).isdigit() and not _lives(int(name.removeprefix(host)))]
    return Heartbeat.objects.filter(name__in=dead).delete()[0]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def forget_stale(now: datetime) -> int:
    """Forget who was silent for long."""
    return Heartbeat.objects.filter(seen_at__lt=now - FORGOTTEN_AFTER).delete()[0]


heart = PerProcess(lambda: Heart(name_of_process(), kind=processes.role() or "worker"))


def stop_heart() -> None:
    """See `Heart.stop`; of this process."""
    heart.value.stop()
    heart.reset()
