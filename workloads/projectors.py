"""Index rows of workloads: what lists show of each (`workloads.kinds.summaries`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from claims.projectors import sync_rows
from inventory.models import UID
from manciple.store import hooks, sql
from manciple.store.records import Change
from workloads.kinds.registration import KINDS
from workloads.kinds.summaries import SUMMARIES, summary_of
from workloads.models import Workload


class WorkloadRow(NamedTuple):
    uid: str
    namespace: str
    name: str
    resource: str
    controller_uid: str
    created_at: datetime
    wanted: int
    ready: int
    state: str
    reason: str
    started_at: datetime | None
    finished_at: datetime | None
    time_limit: int | None


#: The type of an object -> its resource.
_RESOURCES = {kind.type: kind.resource for kind in KINDS}


def register() -> None:
    for resource in SUMMARIES:
        hooks.register_projector(resource, project_workloads, clear=lambda: sql.clear(Workload))


def workload_row(obj: Any) -> WorkloadRow:
    meta, resource = obj.metadata, _RESOURCES[type(obj)]
    found = summary_of(resource, obj)
    return WorkloadRow(
        meta.uid,
        meta.namespace,
        meta.name,
        resource,
        next((one.uid[:UID] for one in meta.owner_references if one.controller), ""),
        datetime.fromisoformat(meta.creation_timestamp or ""),
        found.wanted,
        found.ready,
        found.state.value,
        found.reason,
        found.started_at,
        found.finished_at,
        found.time_limit,
    )


def project_workloads(changes: Sequence[Change]) -> None:
    sync_rows(Workload, WorkloadRow._fields, *hooks.differences(changes, workload_row))
