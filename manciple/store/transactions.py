"""One transaction of the store: `writing()` opens it, or joins the one that is open in this thread.

The counter's lock is taken first, so every read in here is current and stays so until the commit, after which the
newest revision is announced. A dry run takes no lock and opens no transaction: it checks its writes against what is
committed at the moment, as good an answer as any that is true for a moment only, and forgets them.

`writing()` inside `writing()` joins the outer transaction and works as a savepoint: when it ends with an exception,
what was written since it began is forgotten (in memory: nothing had been sent), and the outer one may go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from django.db import transaction

from manciple.store import announce, object_cache, persistence, rows
from manciple.store.writer import WORLD, Sources, Wanted, Writer, references_to
from manciple.wire.identity import SYSTEM, Identity

NOTHING: Wanted = {}


class _Open(threading.local):
    """The writer of each thread's open transaction."""

    writer: Writer | None = None


_open = _Open()


def is_open() -> bool:
    """Whether this thread is inside of `writing()`."""
    return _open.writer is not None


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
        with _opened(Writer(rows.counter()[0], sources, identity=identity or SYSTEM, dry_run=True)) as writer:
            writer.preload(reads)
            yield writer
    else:
        with persistence.locked_counter(references_to(reads)) as locked:
            with _opened(Writer(locked.revision, sources, identity=identity or SYSTEM)) as writer:
                writer.adopt(reads, locked.found)
                yield writer
                flushed = writer.flush()
            if flushed:
                transaction.on_commit(partial(_finish, writer, committed), robust=True)


@contextmanager
def _opened(writer: Writer) -> Iterator[Writer]:
    _open.writer = writer
    try:
        yield writer
    finally:
        _open.writer = None


def _finish(writer: Writer, committed: Callable[[], None]) -> None:
    object_cache.add(writer.committed)
    committed()
    announce.announce(writer.revision, writer.resources)
