"""How entries come into the trail: writes out of the log, everything else from whoever was told of it.

The log keeps a write's note for as long as its entry, which is an hour or so; before that it is copied here, within
the database (`catch_up`): now and then by a controller, before the log is pruned, and by whoever reads the trail, so
that nobody reads a trail that lacks what is committed. Renewals of Leases, and Events that parts of the system write,
are left out: both are signs of life, and would be nearly all there is. What changes another's is in it. Copies of
another cluster's objects are in it where a history is kept of them: nobody's, and routine. One that a listing found is
"list" where it came, for it was there before.

Whoever adds entries holds the lock of the one `Place`, so ids become visible in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from manciple.audit.models import Entry
from manciple.store import event_log, records, sql
from manciple.store.records import said
from manciple.wire.identity import NODE_PREFIX

#: Revisions that are taken over in one transaction.
STEP = 5000

COLUMNS = (
    "at", "revision", "audit_id", "username", "impersonator", "verb", "resource", "subresource", "namespace", "name",
    "uid", "code", "reason", "message", "dry_run", "routine", "count", "note", "wrote",
)  # fmt: skip

LEASES = "leases.coordination.k8s.io"
EVENTS = ("events", "events.events.k8s.io")


def catch_up() -> int:
    """Take over what was written since; returns the revision up to which the trail is complete."""
    target, reached = event_log.latest_revision(), _place()
    while reached < target:
        reached = _take_over(target)
    return reached


def add(rows: Sequence[tuple[Any, ...]]) -> None:
    """Entries, each with its values in the order of COLUMNS."""
    with adding():
        sql.insert(Entry, COLUMNS, rows)


@contextmanager
def adding() -> Iterator[int]:
    """A transaction in which entries come and go, one at a time; yields the revision up to which writes are in."""
    with sql.in_turn(), transaction.atomic():
        locking = " FOR UPDATE" if connection.features.has_select_for_update else ""
        statement = f"SELECT revision FROM audit_place WHERE id = 1{locking}"  # noqa: S608 - constants only
        found = sql.fetch(statement)
        if not found:
            begin = "INSERT INTO audit_place (id, revision) VALUES (1, %s) ON CONFLICT DO NOTHING"
            sql.execute(begin, [event_log.floor()])
            found = sql.fetch(statement)
        yield found[0][0]


def _place() -> int:
    found = sql.fetch("SELECT revision FROM audit_place WHERE id = 1")
    return int(found[0][0]) if found else -1


def _take_over(target: int) -> int:
    with adding() as revision:
        reached = max(revision, min(revision + STEP, target))
        select, parameters = records.written_between(_columns(), after=revision, upto=reached, unless=_left_out())
        sql.execute(f"INSERT INTO audit_entry ({', '.join(COLUMNS)}) {select}", parameters)
        sql.execute("UPDATE audit_place SET revision = %s WHERE id = 1", [reached])
    return reached


def _columns() -> str:
    """Of an entry of the log `e`, in the order of COLUMNS."""
    asking, acting = said("user", "username"), said("impersonatedUser", "username")
    deletes = f"e.type = 'DELETED' OR e.type = 'MODIFIED' AND {records.BEGINS_DELETION}"
    came = f"CASE WHEN {said('found')} IS NULL THEN 'create' ELSE 'list' END"
    done = f"CASE WHEN e.type = 'ADDED' THEN {came} WHEN {deletes} THEN 'delete' ELSE 'update' END"
    columns = {
        "at": "e.created_at",
        "revision": "e.revision",
        "audit_id": f"COALESCE({said('auditID')}, '')",
        "username": f"COALESCE({acting}, {asking}, '')",
        "impersonator": f"CASE WHEN {acting} IS NULL THEN '' ELSE {asking} END",
        "verb": f"COALESCE({said('verb')}, {done})",
        "resource": "e.resource",
        "subresource": f"COALESCE({said('subresource')}, '')",
        "namespace": "e.namespace",
        "name": "e.name",
        "uid": "e.uid",
        "code": "CASE e.type WHEN 'ADDED' THEN 201 ELSE 200 END",
        "reason": "''",
        "message": "''",
        "dry_run": "FALSE",
        "routine": f"({_by_system()} OR {_is_copy()})",
        "count": "1",
        "note": "e.actor",
        "wrote": "TRUE",
    }
    return ", ".join(columns[column] for column in COLUMNS)


def _by_system() -> str:
    asking = f"COALESCE({said('user', 'username')}, '')"
    tests = (f"substr({asking}, 1, {len(beginning)}) = '{beginning}'" for beginning in records.SYSTEM)
    return f"({' OR '.join(tests)})"


def _left_out() -> str:
    """Renewals of Leases and Events of parts of the system: as far as they touch nothing that another has written.
    Copies of which no history is kept.
    """
    events = ", ".join(f"'{resource}'" for resource in EVENTS)
    own = (
        f"(e.type = 'ADDED' OR e.type = 'MODIFIED' AND {records.goes_on()} OR e.type = 'DELETED' AND NOT {_by_node()})"
    )
    renewed = f"e.resource = '{LEASES}' AND e.type = 'MODIFIED' AND {records.goes_on()}"
    copied = f"{_is_copy()} AND {said('recorded')} IS NULL"
    return f"({renewed}) OR (e.resource IN ({events}) AND {_by_system()} AND {own}) OR ({copied})"


def _is_copy() -> str:
    return f"{said('manager')} IS NOT NULL"


def _by_node() -> str:
    asking = f"COALESCE({said('user', 'username')}, '')"
    return f"(substr({asking}, 1, {len(NODE_PREFIX)}) = '{NODE_PREFIX}')"
