"""What a support bundle tells: of each part chosen fields, never whole documents. Functions return text or builtins."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from django.conf import settings
from django.db.migrations.recorder import MigrationRecorder

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from manciple import layout
from manciple.controllers.declaration import controllers
from manciple.controllers.models import Cursor, Heartbeat
from manciple.processes.config_check import checked_configuration
from manciple.processes.doctor import diagnoses
from manciple.processes.doctor.checkups import CHECKUPS
from manciple.processes.management.commands.controllers import told as controllers_told
from manciple.store import history, sql
from manciple.telemetry import metrics
from manciple.wire.machinery import Event
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, EVENTS, NODES, PODS, SLICES
from scheduling.models import QueuedPod

#: Objects of one kind that are told of, those that were written last; their number is told in any case.
MOST: Final = 5000
#: Lines of the journal.
LINES: Final = 20_000
#: PostgreSQL's settings that may hold a password or a command with one.
_HIDDEN: Final = ("primary_conninfo", "%_command", "ssl_passphrase%")


def versions() -> Mapping[str, Any]:
    return {
        "manciple": layout.version(),
        "installed": layout.INSTALLED,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": {one.metadata["Name"]: one.version for one in metadata.distributions()},
    }


def configuration() -> Mapping[str, Any]:
    """Secrets are masked there already."""
    return asdict(checked_configuration(os.environ))


def doctor() -> str:
    return diagnoses.as_text(tuple(diagnoses.examined(CHECKUPS, datetime.now(UTC))))


def tables() -> Mapping[str, Any]:
    applied = MigrationRecorder.Migration.objects.order_by("id").values_list("app", "name", "applied")
    return {
        "migrations": [f"{app}.{name} {at:%Y-%m-%d %H:%M}" for app, name, at in applied],
        "revision": sql.counter()._asdict(),
        "objects": {kind.resource: sql.count(kind.resource, namespace="") for kind in registry},
    }


def controllers_list() -> str:
    return controllers_told(controllers.value)


def processes() -> Mapping[str, Any]:
    return {
        "heartbeats": list(Heartbeat.objects.values("name", "kind", "started_at", "seen_at", "lately")),
        "cursors": dict(Cursor.objects.values_list("name", "revision")),
    }


# Objects --------------------------------------------------------------------------------------------------------------


def _conditions(given: Sequence[Any]) -> list[str]:
    return [f"{one.type}={one.status} {one.reason}: {one.message}" for one in given]


def nodes() -> list[Any]:
    return [
        {
            "name": node.metadata.name,
            "unschedulable": node.spec.unschedulable,
            "taints": [f"{one.key}:{one.effect}" for one in node.spec.taints],
            "agent": node.status.node_info.kubelet_version,
            "conditions": _conditions(node.status.conditions),
        }
        for node in history.each(NODES, Node, most=MOST)
    ]


def slices() -> list[Any]:
    return [
        {
            "name": one.metadata.name,
            "driver": one.spec.driver,
            "pool": one.spec.pool.name,
            "generation": one.spec.pool.generation,
            "slices": one.spec.pool.resource_slice_count,
            "node": one.spec.node_name,
            "devices": [device.name for device in one.spec.devices],
            "tainted": [device.name for device in one.spec.devices if device.taints],
        }
        for one in history.each(SLICES, ResourceSlice, most=MOST)
    ]


def claims() -> list[Any]:
    """No configuration: drivers may be told secrets there."""
    return [
        {
            "name": f"{claim.metadata.namespace}/{claim.metadata.name}",
            "uid": claim.metadata.uid,
            "deleted": claim.metadata.deletion_timestamp,
            "finalizers": claim.metadata.finalizers,
            "devices": [
                f"{one.driver}/{one.pool}/{one.device}"
                for one in (claim.status.allocation.devices.results if claim.status.allocation else ())
            ],
            "reservedFor": [f"{one.resource}/{one.name} {one.uid}" for one in claim.status.reserved_for],
        }
        for claim in history.each(CLAIMS, ResourceClaim, most=MOST)
    ]


def pods() -> list[Any]:
    """No container's environment, arguments or files, and no annotations."""
    return [
        {
            "name": f"{pod.metadata.namespace}/{pod.metadata.name}",
            "uid": pod.metadata.uid,
            "deleted": pod.metadata.deletion_timestamp,
            "node": pod.spec.node_name,
            "phase": pod.status.phase,
            "reason": pod.status.reason,
            "claims": [one.name for one in pod.spec.resource_claims],
            "conditions": _conditions(pod.status.conditions),
        }
        for pod in history.each(PODS, Pod, most=MOST)
    ]


def queue() -> list[Any]:
    wanted = ("namespace", "name", "state", "attempts", "priority", "created_at", "not_before", "held_by", "cause")
    return list(QueuedPod.objects.order_by("created_at").values(*wanted)[:MOST])


def events() -> list[str]:
    found = history.each(EVENTS, Event, most=MOST)
    told = sorted(found, key=lambda one: one.last_timestamp or one.event_time or "")
    return [
        f"{one.last_timestamp or one.event_time} {one.type} {one.reason} {one.involved_object.kind} "
        f"{one.involved_object.namespace}/{one.involved_object.name} ({one.count}): {one.message}"
        for one in told
    ]


# What it stands on ----------------------------------------------------------------------------------------------------


def postgresql() -> Mapping[str, Any]:
    if not sql.on_postgresql():
        return {"database": "SQLite"}
    hidden = " AND ".join(["name NOT LIKE %s"] * len(_HIDDEN))
    queries = {
        "version": ("SELECT version()", []),
        "settings": (
            f"SELECT name, setting, source FROM pg_settings WHERE source <> 'default' AND {hidden}",  # noqa: S608
            list(_HIDDEN),
        ),
        "tables": (
            "SELECT relname, n_live_tup, n_dead_tup, last_autovacuum::text, pg_total_relation_size(relid) "
            "FROM pg_stat_user_tables ORDER BY pg_total_relation_size(relid) DESC",
            [],
        ),
        "replicas": ("SELECT application_name, state, sync_state, replay_lag::text FROM pg_stat_replication", []),
        "archive": ("SELECT archived_count, failed_count, last_archived_time::text FROM pg_stat_archiver", []),
    }
    return {name: sql.fetch(statement, parameters) for name, (statement, parameters) in queries.items()}


def redis() -> Mapping[str, Any]:
    if not settings.REDIS_URL:
        return {}
    import redis as library  # noqa: PLC0415 - a process without Redis need not hold it

    client = library.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    try:
        return {part: client.info(part) for part in ("server", "clients", "memory", "stats", "replication")}
    except library.RedisError as error:
        return {"error": str(error)}
    finally:
        client.close()


def cluster_metrics() -> str:
    return metrics.text(metrics.CLUSTER).decode()


def journal() -> str:
    """Of the last two hours, where this machine has one."""
    if shutil.which("journalctl") is None:
        return "journalctl is not here; give logs with --log FILE\n"
    command = ["journalctl", "--unit=manciple-*", "--since=-2h", f"--lines={LINES}", "--no-pager", "--output=short-iso"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    return done.stdout or done.stderr


#: Name in the bundle -> what it tells.
MEMBERS: Final[Mapping[str, Callable[[], Any]]] = {
    "versions.json": versions,
    "configuration.json": configuration,
    "doctor.txt": doctor,
    "tables.json": tables,
    "controllers.txt": controllers_list,
    "processes.json": processes,
    "nodes.json": nodes,
    "slices.json": slices,
    "claims.json": claims,
    "pods.json": pods,
    "queue.json": queue,
    "events.json": events,
    "postgresql.json": postgresql,
    "redis.json": redis,
    "metrics.txt": cluster_metrics,
    "journal.txt": journal,
}
