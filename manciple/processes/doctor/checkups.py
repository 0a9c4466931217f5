"""Everything that the doctor examines, in the order in which it is told."""

from __future__ import annotations

from typing import Final

from manciple.processes.doctor import audit_trail, backups, cluster, database, machine, redis, versions
from manciple.processes.doctor.diagnoses import Checkup

_DATABASE, _TABLES = ("database",), ("tables",)

CHECKUPS: Final = (
    Checkup(name="configuration", examine=machine.examine_configuration),
    Checkup(name="disks", examine=machine.examine_disks),
    Checkup(name="open files", examine=machine.examine_files),
    Checkup(name="permissions", examine=machine.examine_permissions),
    Checkup(name="keys", examine=machine.examine_keys),
    Checkup(name="certificates", examine=machine.examine_certificates),
    Checkup(name="database", examine=database.examine_connection),
    Checkup(name="clock", examine=database.examine_clock, needs=_DATABASE),
    Checkup(name="tables", examine=database.examine_schema, needs=_DATABASE),
    Checkup(name="database settings", examine=database.examine_settings, needs=_DATABASE),
    Checkup(name="database upkeep", examine=database.examine_upkeep, needs=_DATABASE),
    Checkup(name="database room", examine=database.examine_room, needs=_TABLES),
    Checkup(name="replicas", examine=database.examine_replicas, needs=_DATABASE),
    Checkup(name="backups", examine=backups.examine_backups),
    Checkup(name="archived log", examine=backups.examine_archive, needs=_DATABASE),
    Checkup(name="redis", examine=redis.examine_redis),
    Checkup(name="versions", examine=versions.examine_versions),
    Checkup(name="processes", examine=cluster.examine_processes, needs=_TABLES),
    Checkup(name="audit trail", examine=audit_trail.examine_audit_trail, needs=_TABLES),
    Checkup(name="people", examine=cluster.examine_people, needs=_TABLES),
    Checkup(name="nodes", examine=cluster.examine_nodes, needs=_TABLES),
    Checkup(name="drivers", examine=cluster.examine_drivers, needs=_TABLES),
    Checkup(name="claims", examine=cluster.examine_claims, needs=_TABLES),
    Checkup(name="pods", examine=cluster.examine_pods, needs=_TABLES),
)
