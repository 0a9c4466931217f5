"""The transactions of the store: `writing()` opens one or joins that of its thread; `write()` shares one with others.

The counter's lock is taken first, so every read in here is current and stays so until the commit, after which the
newest revision is announced. A dry run takes no lock and opens no transaction: it checks its writes against what is
committed at the moment, as good an answer as any that is true for a moment only, and forgets them.

`writing()` inside `writing()` joins the outer transaction and works as a savepoint: when it ends with an exception,
what was written since it began is forgotten (in memory: nothing had been sent), and the outer one may go on.

Group commit: `write(work)` runs `work(writer)` in a transaction and returns what it returned, once that is committed. A
thread of its own does it, with one database connection for all writes of the process: it takes every work that waits by
then, opens one transaction, reads what they announced in one query, runs them one after the other, each in a savepoint
of its own, stores all that they wrote in one go, commits, and tells each its own outcome. What comes meanwhile is the
next group. So a lone write starts at once and pays for nobody, and the busier the process, the larger the groups.

Whoever has many works of its own puts them in line together (`PendingWrite`, `settle`), and they share a commit. Those
of a request that works through a whole collection (`portions`) wait in a line of their own: each portion is a commit
that nobody else shares, and between two of them everybody else who waits has theirs.

An exception of one work undoes that work alone. Where the database refuses the group as a whole (an index row that
violates a constraint), its works are run again one by one, so that the refusal meets the one it concerns: a work may
run twice and must therefore change nothing but through the writer. When the database is away, everybody in the group
hears of it.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

from django.db import Error, InterfaceError, OperationalError, connection, transaction

from manciple.per_process import PerProcess
from manciple.store import announce, hooks, log_metrics, persistence, pruning, records, space, sql
from manciple.store.persistence import Current
from manciple.store.writer import NOTHING, WORLD, Key, Sources, Wanted, Writer, references_to
from manciple.wire.errors import ApiError
from manciple.wire.identity import SYSTEM, Identity
from manciple.wire.registry import Kind


class _Open(threading.local):
    """The writer of each thread's open transaction."""

    writer: Writer | None = None


_open = _Open()


def is_open() -> bool:
    """Whether this thread is inside of `writing()`."""
    return _open.writer is not None


def current() -> Writer | None:
    """The writer of this thread's open transaction."""
    return _open.writer


@contextmanager
def writing(
    *,
    identity: Identity | None = None,
    reads: Wanted = NOTHING,
    sources: Sources = WORLD,
    dry_run: bool = False,
    committed: Callable[[], None] = lambda: None,
) -> Iterator[Writer]:
    """One transaction of the store; see the module's docstring.

    identity: who writes, for the rules; of the outer `writing()` where there is one, else the installation itself.
    reads: what is going to be read, which is then read together with the counter.
    `dry_run` does everything but store. committed: called once something is committed, before that is announced.
    Inside another `writing()`, `sources` and `committed` are the outer one's.
    """
    if _open.writer is not None:
        with _open.writer.savepoint(identity=identity, forget=dry_run) as writer:
            writer.preload(reads)
            yield writer
    elif dry_run:
        with _opened(Writer(sql.counter(), sources, identity=identity or SYSTEM, dry_run=True)) as writer:
            writer.preload(reads)
            yield writer
    else:
        space.refresh()
        with _measured() as told, persistence.locked_counter(references_to(reads)) as locked:
            with _opened(Writer(locked.counter, sources, identity=identity or SYSTEM)) as writer:
                writer.adopt(reads, locked.found)
                yield writer
                flushed = writer.flush()
            if flushed:
                told.append(writer.revision - locked.counter.current)
                transaction.on_commit(partial(_finish, writer, committed), robust=True)
        pruning.keep_up(locked.counter._replace(end_offset=writer.end_offset))


@contextmanager
def _measured() -> Iterator[list[int]]:
    """Around a transaction, which says how many entries it wrote, if any."""
    written: list[int] = []
    began, result = time.perf_counter(), "failed"
    try:
        yield written
        result = "committed" if written else "nothing"
    finally:
        log_metrics.COMMITS[result].observe(time.perf_counter() - began)
        if result == "committed":
            log_metrics.EVENTS.observe(written[0])


@contextmanager
def _opened(writer: Writer) -> Iterator[Writer]:
    _open.writer = writer
    try:
        yield writer
    finally:
        _open.writer = None


def _finish(writer: Writer, committed: Callable[[], None]) -> None:
    records.cache().add(writer.committed)
    committed()
    announce.announce(writer.revision, writer.resources)


# Group commit ---------------------------------------------------------------------------------------------------------


#: Works in one transaction: everybody in it waits for all of them.
LARGEST_GROUP = 128
#: Objects, and bytes of their documents, in one transaction of what works through a whole collection: other writers
#: wait for it. On a full disk the log's copies of these have to fit into what is kept for deletions.
PORTION, PORTION_BYTES = 32, 2 << 20
#: Seconds without a write after which the thread and its connection go.
IDLE = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read:
    """An object that a work will read: announced, it is read together with those of the others.

    known: what the caller read of it before; not read again where it is current still.
    """

    kind: Kind
    namespace: str
    name: str
    known: Current | None = None

    @property
    def key(self) -> Key:
        return (self.kind.resource, self.namespace, self.name)


class PendingWrite(Generic[T]):
    """One work in line, and how it ended. `settle` puts it there."""

    def __init__(self, work: Callable[[Writer], T], identity: Identity, reads: Sequence[Read]) -> None:
        self.work = work
        self.identity = identity
        self.reads = reads
        #: of the request that it is for: rules have something to say to its client
        self.remarks = hooks.collector()
        self._ended = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self, writer: Writer) -> None:
        try:
            with hooks.using(self.remarks), writer.savepoint(identity=self.identity):
                self._result = self.work(writer)
            self._error = None
        except Error:
            raise  # the transaction is broken, for everybody
        except Exception as error:
            self._error = error

    def end(self, error: BaseException | None = None) -> None:
        self._error = error or self._error
        self._ended.set()

    def outcome(self) -> T:
        """Waits for it. Raises: what the work raised; django.db.Error."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class GroupCommit:
    """The line of one process, and the thread that serves it: begun by the first work, ended after `IDLE` seconds."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._news = threading.Condition(self._guard)
        self._line: deque[PendingWrite[object]] = deque()
        #: portions, each of which has a commit of its own
        self._portions: deque[Sequence[PendingWrite[object]]] = deque()
        self._had_portion = False
        self._thread: threading.Thread | None = None
        self._stopping = False

    def add(self, works: Sequence[PendingWrite[T]], *, portion: bool = False) -> None:
        with self._news:
            added = cast("Sequence[PendingWrite[object]]", works)
            if portion:
                self._portions.append(added)
            else:
                self._line.extend(added)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
                self._thread.start()
            self._news.notify()

    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line) + sum(map(len, self._portions))

    def stop(self) -> None:
        """End the thread once nobody waits; the next work begins another."""
        with self._news:
            self._stopping = True
            thread = self._thread
            self._news.notify()
        if thread is not None:
            thread.join()
        self._stopping = False

    def _run(self) -> None:
        try:
            while group := self._next_group():
                _commit(group)
        finally:
            connection.close()

    def _next_group(self) -> Sequence[PendingWrite[object]]:
        """Those who wait, by turns with a portion; nobody when the thread is to end."""
        with self._news:
            self._news.wait_for(lambda: self._line or self._portions or self._stopping, timeout=IDLE)
            self._had_portion = bool(self._portions) and not (self._line and self._had_portion)
            if self._had_portion:
                return self._portions.popleft()
            if not self._line:
                self._thread = None
            return [self._line.popleft() for _ in range(min(len(self._line), LARGEST_GROUP))]


def _commit(group: Sequence[PendingWrite[object]]) -> None:
    """Every work of `group` has ended when this returns."""
    error: BaseException | None = None
    try:
        # Where the server has closed the connection meanwhile, another one is opened.
        connection.close_if_unusable_or_obsolete()
        log_metrics.SHARED.observe(len(group))
        _commit_together(group)
    except (Error, ApiError) as fault:
        away = isinstance(fault, OperationalError | InterfaceError) and not sql.disk_is_full(fault)
        if away:
            connection.close()
        elif len(group) > 1:
            # On a full disk a few of many deletions go through, and the pruning after each makes room for the next.
            for waiting in group:
                _commit([waiting])
            return
        error = fault
    except BaseException as fault:
        error = fault
    _end(group, error)


def _end(group: Sequence[PendingWrite[object]], error: BaseException | None) -> None:
    for waiting in group:
        waiting.end(_copied(error))


def _copied(error: BaseException | None) -> BaseException | None:
    """Each thread raises one of its own: raising writes to it."""
    if error is None:
        return None
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _commit_together(group: Sequence[PendingWrite[object]]) -> None:
    # Everybody hears of the outcome before an announcement wakes other threads, which would compete with the answer.
    with writing(
        reads=_announced(read for waiting in group for read in waiting.reads), committed=partial(_end, group, None)
    ) as writer:
        for waiting in group:
            waiting.run(writer)


def _announced(reads: Iterable[Read]) -> Wanted:
    return {read.key: (read.kind, read.known) for read in reads}


commits = PerProcess(GroupCommit, stop=GroupCommit.stop)


def write(
    work: Callable[[Writer], T],
    *,
    identity: Identity = SYSTEM,
    reads: Sequence[Read] = (),
    dry_run: bool = False,
) -> T:
    """Run `work` in a transaction and return what it returns, once committed; see the module's docstring.

    identity: who writes. reads: what `work` is going to read.
    A dry run, and a work inside of a transaction of the
    caller's, is run where it stands.
    Raises: what `work` raises; django.db.Error when the database refuses or is away.
    """
    if dry_run or is_open() or connection.in_atomic_block:
        with writing(identity=identity, reads=_announced(reads), dry_run=dry_run) as writer:
            return work(writer)
    waiting = PendingWrite(work, identity, reads)
    commits().add([waiting])
    return waiting.outcome()


def portions(
    items: Iterable[T], size: Callable[[T], int], *, most: int | None = None, most_bytes: int | None = None
) -> Iterator[Sequence[T]]:
    """`items` in parts of at most `most` of them and `most_bytes`, or else small enough for one transaction.

    size: bytes of the document of one item, which may be a part by itself.
    """
    most, most_bytes = most or PORTION, most_bytes or PORTION_BYTES
    portion: list[T] = []
    total = 0
    for item in items:
        if portion and (len(portion) == most or total + size(item) > most_bytes):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size(item)
    if portion:
        yield portion


def settle(works: Sequence[PendingWrite[T]], *, dry_run: bool = False, portion: bool = False) -> None:
    """Put them in line together; or, as `write` does, run them where they stand. Each tells its outcome itself.

    portion: they are part of the work on a whole collection.
    Raises: django.db.Error of those that are run where they stand.
    """
    if dry_run or is_open() or connection.in_atomic_block:
        with writing(reads=_announced(read for one in works for read in one.reads), dry_run=dry_run) as writer:
            for one in works:
                one.run(writer)
        _end(cast("Sequence[PendingWrite[object]]", works), None)
    elif works:
        commits().add(works, portion=portion)
