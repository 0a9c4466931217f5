"""Examines the database: is it there, are its tables those of this version, are the server's settings safe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor

from manciple.processes import database_file
from manciple.processes.database_file import DatabaseRefused
from manciple.processes.doctor.diagnoses import Diagnosis, number_of, problem, warning
from manciple.store import space, sql

#: Seconds that two clocks may differ before it is told, and before it is a problem.
SKEW, BAD_SKEW = 1.0, 10.0
#: PostgreSQL's server_version_num.
OLDEST: Final = 140000
#: Dead rows of a table that are told of: vacuum does not keep up.
MANY_DEAD: Final = 500_000
#: Bytes of log that a replica which does not come may keep the server from removing.
MUCH_KEPT: Final = 1 << 30
#: Connections that workers and people need beside the API processes.
OTHERS: Final = 20

#: Setting -> (the value that loses data or stops work, level, what happens with it)
_UNSAFE: Final[Mapping[str, tuple[str, str]]] = {
    "fsync": ("off", "a crash of the machine can destroy the database"),
    "full_page_writes": ("off", "a crash of the machine can destroy pages that were being written"),
    "autovacuum": ("off", "tables grow without end"),
    "synchronous_commit": ("off", "a crash of the server loses writes that clients were told are done"),
}


def examine_connection(_now: datetime) -> Iterator[Diagnosis]:
    try:
        sql.fetch("SELECT 1")
    except (DatabaseError, InterfaceError) as error:
        why, advice = f"it cannot be opened: {str(error).strip()}", "look at the folder that --home names"
        if sql.on_postgresql():
            advice = "start the server that MANCIPLE_DATABASE_URL names, or correct the address"
        else:
            try:
                database_file.check_configured()
            except DatabaseRefused as refusal:
                why, _, told = str(refusal).partition("\n")
                advice = " ".join(told.split()) or advice
        yield problem("database", why, advice)


def examine_schema(_now: datetime) -> Iterator[Diagnosis]:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        named = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:5])
        yield problem(
            "database",
            f"{number_of(len(missing), 'migration')} of this version not applied: {named}",
            "stop the workers, run `manciple migrate` and `manciple reindex`, and start everything again",
        )
    known = set(executor.loader.graph.nodes)
    later = sorted(".".join(one) for one in executor.loader.applied_migrations if one not in known)
    if later:
        yield problem(
            "database",
            f"it was migrated by a later version than this one: {', '.join(later[:5])} is not known here",
            "install that version on this machine, too; to go back, see the upgrade notes of CHANGELOG.md",
        )


def examine_clock(_now: datetime) -> Iterator[Diagnosis]:
    if not sql.on_postgresql():
        return
    before = datetime.now(UTC)
    (told,) = sql.fetch("SELECT clock_timestamp()")[0]
    yield from clock_skew(told, before, datetime.now(UTC), whose="PostgreSQL's server")


def clock_skew(told: datetime, before: datetime, after: datetime, *, whose: str) -> Iterator[Diagnosis]:
    """told: by the other clock, between `before` and `after` of ours."""
    ahead = (told - after).total_seconds() if told > after else min((told - before).total_seconds(), 0.0)
    if abs(ahead) < SKEW:
        return
    says = problem if abs(ahead) >= BAD_SKEW else warning
    direction = "ahead of" if ahead > 0 else "behind"
    yield says(
        "this machine's clock",
        f"{whose} is {abs(ahead):.1f} s {direction} it",
        "synchronise both with NTP: signs of life, tokens and deadlines are judged by the clock",
    )


def examine_settings(_now: datetime) -> Iterator[Diagnosis]:
    if not sql.on_postgresql():
        return
    names = [*_UNSAFE, "server_version_num", "server_encoding", "max_connections", "statement_timeout"]
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    told = dict(zip(names, sql.fetch(f"SELECT {asked}")[0], strict=True))
    if sql.fetch("SELECT pg_is_in_recovery()")[0][0]:
        yield problem(
            "PostgreSQL",
            "MANCIPLE_DATABASE_URL leads to a standby, which takes no writes",
            "name both servers and target_session_attrs=read-write in the URL (docs/how-to/high-availability.md)",
        )
    if int(told["server_version_num"]) < OLDEST:
        yield warning("PostgreSQL", f"version {told['server_version_num']} is not tested", "use 14 or later")
    for name, (unsafe, what) in _UNSAFE.items():
        if told[name] == unsafe:
            yield problem("PostgreSQL", f"{name} is {unsafe}: {what}", f"set {name} = on in postgresql.conf")
    if told["server_encoding"] != "UTF8":
        yield problem("PostgreSQL", f"the database is {told['server_encoding']}", "make it anew with ENCODING 'UTF8'")
    if told["statement_timeout"] not in ("0", "0ms"):
        yield warning(
            "PostgreSQL",
            f"statement_timeout is {told['statement_timeout']}: sweeps of a large cluster are cut off",
            "ALTER ROLE ... SET statement_timeout = 0 for Manciple's role",
        )
    yield from _connections(int(told["max_connections"]))


def _connections(most: int) -> Iterator[Diagnosis]:
    ours = settings.API_THREADS + settings.NODE_THREADS + settings.PAGE_THREADS + 6
    if most < ours + OTHERS:
        yield warning(
            "PostgreSQL",
            f"max_connections is {most}; an API process alone may hold {ours}",
            "raise max_connections, or lower MANCIPLE_API_THREADS",
        )
    used = int(sql.fetch("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")[0][0])
    if used > 0.8 * most:
        yield problem(
            "PostgreSQL",
            f"{used} of {most} connections are in use",
            "raise max_connections, or run fewer API processes",
        )


def examine_room(_now: datetime) -> Iterator[Diagnosis]:
    room = space.measure()
    if said := space.warning(room):
        yield (problem if room.full else warning)(
            "database",
            f"{said} ({room.used / (1 << 30):.2f} of {(room.limit or 0) / (1 << 30):.2f} GiB)",
            "delete objects that are not needed, give its disk more room, or raise MANCIPLE_DATABASE_BYTES",
        )
    elif room.capacity is None and settings.PRODUCTION:
        yield warning(
            "database",
            "nobody knows how much room it has: its disk is not seen from here, and no limit is configured",
            "set MANCIPLE_DATABASE_BYTES to what the disk of PostgreSQL may give it",
        )


def examine_upkeep(_now: datetime) -> Iterator[Diagnosis]:
    if not sql.on_postgresql():
        return
    statement = (
        "SELECT relname, n_dead_tup, n_live_tup FROM pg_stat_user_tables "
        "WHERE n_dead_tup > %s AND n_dead_tup > n_live_tup ORDER BY n_dead_tup DESC LIMIT 3"
    )
    for table, dead, living in sql.fetch(statement, [MANY_DEAD]):
        yield warning(
            f"table {table}",
            f"{dead} dead rows beside {living} living ones: vacuum does not keep up",
            f"VACUUM {table}; look for transactions that stay open in pg_stat_activity",
        )


def examine_replicas(_now: datetime) -> Iterator[Diagnosis]:
    if not sql.on_postgresql():
        return
    (wanted,) = sql.fetch("SELECT current_setting('synchronous_standby_names')")[0]
    replicas = sql.fetch("SELECT application_name, sync_state FROM pg_stat_replication WHERE state = 'streaming'")
    synchronous = [name for name, state in replicas if state in ("sync", "quorum")]
    if wanted and not synchronous:
        yield problem(
            "PostgreSQL",
            f"it waits for a synchronous standby ({wanted}), and none is connected: every commit hangs",
            "start the standby; or, knowing that a failover may then lose commits, set synchronous_standby_names = ''",
        )
    if replicas and not wanted:
        named = ", ".join(sorted(name for name, _ in replicas))
        yield warning(
            "PostgreSQL",
            f"its standby {named} is asynchronous: a failover loses the last commits, and devices may be given twice",
            "set synchronous_standby_names (docs/how-to/high-availability.md)",
        )
    slots = sql.fetch(
        "SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots "
        "WHERE NOT active AND restart_lsn IS NOT NULL AND NOT pg_is_in_recovery()"
    )
    for slot, kept in slots:
        if kept > MUCH_KEPT:
            yield problem(
                f"replication slot {slot}",
                f"nobody reads it, and {kept / (1 << 30):.1f} GiB of log are kept for it",
                f"start its standby, or SELECT pg_drop_replication_slot('{slot}')",
            )
