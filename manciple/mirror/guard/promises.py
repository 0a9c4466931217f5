"""What the guard has let claims have, in the database that its replicas share.

A promise is all that one allocation holds: a row for each device. Whoever judges holds the lock of `locked` from before
it reads until its own promise is stored; a unique index backs that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from django.db import connection

from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    node_of,
)
from manciple.mirror.guard.reviews import ClaimWrite
from manciple.mirror.models import DevicePromise, RemoteVersion, is_earlier
from manciple.store import sql
from scheduling.allocator.allocation import only_on
from scheduling.allocator.published import NodeView

#: Of the lock that one judgement at a time has, among all replicas ("guar" as a number).
LOCK: Final = (0x67756172, 1)

_COLUMNS = (
    "claim_uid", "namespace", "claim", "digest", "before", "promised_at",
    "driver", "pool", "device", "node", "share_id", "consumed_capacity", "exclusive",
)  # fmt: skip

#: The commit then waits for no disk, which may take longer than everything else: promises outlive every process but
#: PostgreSQL, whose crash may cost those of its last second (three times wal_writer_delay). A device can then be given
#: twice if the write that lost its promise is stored, but not copied before another one is judged; the mirror reports
#: it. Without PostgreSQL nothing is judged, and on its return the copy catches up within as short a time.
_TAKE_LOCK: Final = "SELECT pg_advisory_xact_lock(%s, %s), set_config('synchronous_commit', 'off', true)"
_TABLE, _VERSIONS = DevicePromise._meta.db_table, RemoteVersion._meta.db_table
_COPIED = f"(SELECT v.version FROM {_VERSIONS} v WHERE v.uid = p.claim_uid) AS copied"  # noqa: S608 - our names
_FOUND = f"{', '.join(f'p.{column}' for column in ('id', *_COLUMNS))}, {_COPIED}"


@dataclass(slots=True)
class Promise:
    """before: the version of the claim that the write was to replace. promised_at: POSIX seconds. copied: the version
    of the claim in the copy; "" where it has none. rows: their ids, by which it is forgotten: made again it has others.
    """

    claim_uid: str
    namespace: str
    claim: str
    digest: str
    before: str
    promised_at: float
    copied: str
    rows: list[int] = field(default_factory=list)
    _results: list[DeviceRequestAllocationResult] = field(default_factory=list)
    _node: str = ""

    @property
    def allocation(self) -> AllocationResult:
        """What it holds, and where."""
        selector = only_on(NodeView(self._node)) if self._node else None
        return AllocationResult(devices=DeviceAllocationResult(results=tuple(self._results)), node_selector=selector)

    @property
    def is_settled(self) -> bool:
        """Whether the copy is past the version that it was about: it shows the write, or there was none."""
        return is_earlier(self.before, self.copied)

    def add(self, number: int, node: str, result: DeviceRequestAllocationResult) -> None:
        self.rows.append(number)
        self._results.append(result)
        self._node = node


@contextmanager
def locked(pools: Collection[tuple[str, str]] = ()) -> Iterator[Callable[[], list[Promise]]]:
    """Take the lock, which the transaction keeps, and ask for the promises of devices of these pools, (driver, name).

    What is asked of the database within, before they are read, goes with it in one round trip.
    """
    lock = [(_TAKE_LOCK, LOCK)] if sql.on_postgresql() else []
    found = sql.for_each_given(_FOUND, f"{_TABLE} p", "p.driver = given.driver AND p.pool = given.pool")
    reads = [(f"{given} {found}", parameters) for given, parameters in sql.given_tables(("driver", "pool"), pools)]
    # Each statement sees what is committed when it begins: the reads begin once the lock is had.
    with sql.pipelined(), ExitStack() as stack:
        cursors = [stack.enter_context(connection.cursor()) for _ in (*lock, *reads)]
        for cursor, (statement, parameters) in zip(cursors, (*lock, *reads), strict=True):
            cursor.execute(statement, parameters)
        yield lambda: _promises(row for cursor in cursors[len(lock) :] for row in cursor.fetchall())


def standing(*, before: float) -> tuple[int, list[int], list[Promise]]:
    """(how many the copy does not show, the rows of those that it shows, those of the others from before that time)."""
    arrived, left = list[int](), set[tuple[str, str]]()
    heads = f"SELECT p.id, p.claim_uid, p.digest, p.before, {_COPIED} FROM {_TABLE} p"  # noqa: S608 - our names
    for number, uid, digest, version, copied in sql.fetch(heads):
        if is_earlier(version, copied or ""):
            arrived.append(number)
        else:
            left.add((uid, digest))
    old = f"SELECT {_FOUND} FROM {_TABLE} p WHERE p.promised_at < %s"  # noqa: S608 - our names
    overdue = [one for one in _promises(sql.fetch(old, [before])) if not one.is_settled]
    return len(left), arrived, overdue


def store(write: ClaimWrite, beside: Iterable[Promise], *, at: float) -> None:
    """beside: the others of its pools. Its own earlier rows are replaced where they are of the same allocation, or can
    no longer arrive.
    """
    mine = [one for one in beside if one.claim_uid == write.uid]
    forget(number for one in mine if _is_over(one, write) for number in one.rows)
    taken = {
        (result.driver, result.pool, result.device, node_of(one.allocation))
        for one in beside
        if not (one.claim_uid == write.uid and _is_over(one, write))
        for result in one.allocation.devices.results
    }
    node, rows = node_of(write.allocation), list[tuple[Any, ...]]()
    for one in write.allocation.devices.results:
        if one.admin_access:
            continue
        key = (one.driver, one.pool, one.device, node)
        consumed, share = sql.as_json(one.consumed_capacity), one.share_id or ""
        exclusive = not share and key not in taken
        taken.add(key)
        head = (write.uid, write.namespace, write.name, write.digest, write.before, at)
        rows.append((*head, *key, share, consumed, exclusive))
    sql.insert(DevicePromise, _COLUMNS, rows)


def forget(rows: Iterable[int]) -> None:
    for chunk in sql.chunks(rows, sql.PARAMETERS):
        places = ", ".join(["%s"] * len(chunk))
        sql.execute(f"DELETE FROM {_TABLE} WHERE id IN ({places})", chunk)  # noqa: S608 - our names


def _is_over(one: Promise, write: ClaimWrite) -> bool:
    if one.digest == write.digest:
        return True
    # A write is stored only over the version that it was judged with.
    return write.supersedes and is_earlier(one.before, write.before)


def _promises(rows: Iterable[Sequence[Any]]) -> list[Promise]:
    found: dict[tuple[str, str], Promise] = {}
    for number, *head, driver, pool, device, node, share, consumed, _, copied in sorted(rows, key=itemgetter(0)):
        uid, namespace, claim, digest, before, at = head
        promise = found.get((uid, digest))
        if promise is None:
            promise = found[uid, digest] = Promise(uid, namespace, claim, digest, before, at, copied or "")
        amounts = json.loads(consumed) if isinstance(consumed, str) else consumed
        result = DeviceRequestAllocationResult(
            driver=driver, pool=pool, device=device, share_id=share or None, consumed_capacity=amounts
        )
        promise.add(number, node, result)
    return list(found.values())
