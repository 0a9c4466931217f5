"""What the event log still knows of one object's past: its revisions, by following each to the one it superseded.

The log is pruned (see manciple.store.pruning), so the past of an object may begin in the middle.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection

from manciple.store import bulk, rows

#: Revisions of one object that are read at most.
LONGEST = 200
#: How far from its end the log is searched for what happened a moment ago.
LATELY = 5000

_CHAIN = (
    "WITH RECURSIVE chain (revision, previous, depth) AS ("
    "SELECT e.revision, e.previous_revision, 1 FROM store_storedobject o "
    "JOIN store_event e ON e.revision = o.event_id WHERE o.uid = %s "
    "UNION ALL SELECT e.revision, e.previous_revision, depth + 1 FROM chain "
    "JOIN store_event e ON e.revision = chain.previous WHERE depth < %s) "
    "SELECT e.revision, e.type, e.created_at, e.document FROM chain "
    "JOIN store_event e ON e.revision = chain.revision ORDER BY e.revision"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """One write of an object."""

    revision: int
    type: str  # ADDED, MODIFIED
    at: datetime
    text: str


def of_object(uid: str, *, limit: int = LONGEST) -> list[Revised]:
    """The newest `limit` revisions of a live object that the log still has, oldest first. One query."""
    return [
        Revised(revision=revision, type=type_, at=_moment(at), text=text)
        for revision, type_, at, text in bulk.fetch(_CHAIN, [uid, limit])
    ]


def touched_lately(uids: Collection[str], *, within: timedelta) -> frozenset[str]:
    """Those of `uids` that an event of the last moments is about, their deletion included. One query."""
    if not uids:
        return frozenset()
    places = ", ".join(["%s"] * len(uids))
    statement = f"SELECT DISTINCT uid FROM store_event WHERE revision > %s AND created_at > %s AND uid IN ({places})"  # noqa: S608 - placeholders only
    since = connection.ops.adapt_datetimefield_value(datetime.now(UTC) - within)
    found = bulk.fetch(statement, [rows.counter()[0] - LATELY, since, *uids])
    return frozenset(uid for (uid,) in found)


def _moment(value: datetime | str) -> datetime:
    """SQLite gives text in UTC."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if found.tzinfo else found.replace(tzinfo=UTC)
