"""Group commit: the writes that wait at the same moment share one transaction.

`write(work)` runs `work(writer)` in a transaction and returns what it returned, once that is committed. Works of
several threads stand in line. The first to come leads: it takes everybody who waits by then, opens one transaction,
reads what they announced in one query, runs the works one after the other, each in a savepoint of its own, stores all
that they wrote in one go, commits, and tells each its own outcome. Who came meanwhile is the next group, led by its
first. So a lone write starts at once and pays for nobody, and the busier the process, the larger the groups.

An exception of one work undoes that work alone. Where the database refuses the group as a whole (an index row that
violates a constraint), its works are run again one by one, so that the refusal meets the one it concerns: a work may
run twice and must therefore change nothing but through the writer. When the database is away, everybody in the group
hears of it.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from django.db import Error, InterfaceError, OperationalError

from manciple.store import transactions
from manciple.store.persistence import Current
from manciple.store.transactions import writing
from manciple.store.writer import Key, Writer
from manciple.wire.errors import ApiError
from manciple.wire.identity import SYSTEM, Identity
from manciple.wire.registry import Kind

#: Works in one transaction: everybody in it waits for all of them.
LARGEST_GROUP = 128

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


class _Waiting(Generic[T]):
    """One work in line, and how it ended."""

    def __init__(self, work: Callable[[Writer], T], identity: Identity, reads: Sequence[Read]) -> None:
        self.work = work
        self.identity = identity
        self.reads = reads
        #: set when the work has ended, or its thread is to lead the next group
        self.called = threading.Event()
        self.ended = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self, writer: Writer) -> None:
        try:
            with writer.savepoint(identity=self.identity):
                self.result = self.work(writer)
            self.error = None
        except Error:
            raise  # the transaction is broken, for everybody
        except Exception as error:
            self.error = error

    def end(self, error: BaseException | None = None) -> None:
        self.error = error or self.error
        self.ended = True
        self.called.set()

    def outcome(self) -> T:
        if self.error is not None:
            raise self.error
        return cast("T", self.result)


class GroupCommit:
    """The line of one process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._line: deque[_Waiting[object]] = deque()
        self._led = False

    def write(self, waiting: _Waiting[T]) -> T:
        if self._leads(cast("_Waiting[object]", waiting)):
            self._lead()
        return waiting.outcome()

    def _leads(self, waiting: _Waiting[object]) -> bool:
        """Stand in line; False when somebody else has seen to it, True when it is on this thread to lead."""
        with self._guard:
            self._line.append(waiting)
            if not self._led:
                self._led = True
                return True
        waiting.called.wait()
        return not waiting.ended

    def _lead(self) -> None:
        with self._guard:
            group = [self._line.popleft() for _ in range(min(len(self._line), LARGEST_GROUP))]
        try:
            _commit(group)
        finally:
            self._hand_on()
            for waiting in group:
                waiting.called.set()

    def _hand_on(self) -> None:
        with self._guard:
            if self._line:
                self._line[0].called.set()
            else:
                self._led = False


def _commit(group: Sequence[_Waiting[object]]) -> None:
    """Every work of `group` has ended when this returns, or raises what is no ordinary exception."""
    error: BaseException | None = None
    try:
        _commit_together(group)
    except (OperationalError, InterfaceError) as fault:
        error = fault
    except (Error, ApiError) as fault:
        if len(group) == 1:
            error = fault
        else:
            for waiting in group:
                _commit([waiting])
            return
    except BaseException as fault:
        _end(group, fault)
        raise
    _end(group, error)


def _end(group: Sequence[_Waiting[object]], error: BaseException | None) -> None:
    for waiting in group:
        waiting.end(_copied(error))


def _copied(error: BaseException | None) -> BaseException | None:
    """Each thread raises one of its own: raising writes to it."""
    if error is None:
        return None
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _commit_together(group: Sequence[_Waiting[object]]) -> None:
    with writing() as writer:
        writer.offer({read.key: (read.kind, read.known) for waiting in group for read in waiting.reads})
        for waiting in group:
            waiting.run(writer)


class _Process:
    """The line of this process; a forked child has its own."""

    def __init__(self) -> None:
        self.commits = GroupCommit()

    def forget(self) -> None:
        self.commits = GroupCommit()


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def write(
    work: Callable[[Writer], T], *, identity: Identity = SYSTEM, reads: Sequence[Read] = (), dry_run: bool = False
) -> T:
    """Run `work` in a transaction and return what it returns, once committed; see the module's docstring.

    identity: who writes. reads: what `work` is going to read. A dry run, and a work inside of `writing()`, is run where
    it stands.
    Raises: what `work` raises; django.db.Error when the database refuses or is away.
    """
    if dry_run or transactions.is_open():
        with writing(identity=identity, dry_run=dry_run) as writer:
            return work(writer)
    return _process.commits.write(_Waiting(work, identity, reads))
