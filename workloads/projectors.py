"""Index rows of workloads and autoscalers: what lists show of each (`workloads.kinds.summaries`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from claims.projectors import sync_rows
from inventory.models import UID
from manciple.store import hooks, sql
from manciple.store.records import Change
from workloads.kinds import autoscaler_summaries
from workloads.kinds.horizontal_pod_autoscalers import HORIZONTAL_POD_AUTOSCALER, HorizontalPodAutoscaler
from workloads.kinds.registration import KINDS
from workloads.kinds.summaries import SUMMARIES, summary_of
from workloads.models import Autoscaler, Workload


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


class AutoscalerRow(NamedTuple):
    uid: str
    namespace: str
    name: str
    created_at: datetime
    target_kind: str
    target_name: str
    least: int
    most: int
    replicas: int
    desired: int
    metrics: str
    last_scaled_at: datetime | None
    state: str
    reason: str


#: The type of an object -> its resource.
_RESOURCES = {kind.type: kind.resource for kind in KINDS}


def register() -> None:
    for resource in SUMMARIES:
        hooks.register_projector(resource, project_workloads, clear=lambda: sql.clear(Workload))
    hooks.register_projector(
        HORIZONTAL_POD_AUTOSCALER.resource, project_autoscalers, clear=lambda: sql.clear(Autoscaler)
    )


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


def autoscaler_row(one: HorizontalPodAutoscaler) -> AutoscalerRow:
    meta, spec, status = one.metadata, one.spec, one.status
    found = autoscaler_summaries.summary_of(one)
    return AutoscalerRow(
        meta.uid,
        meta.namespace,
        meta.name,
        datetime.fromisoformat(meta.creation_timestamp or ""),
        spec.scale_target_ref.kind,
        spec.scale_target_ref.name,
        1 if spec.min_replicas is None else spec.min_replicas,
        spec.max_replicas,
        status.current_replicas,
        status.desired_replicas,
        ", ".join(map(str, autoscaler_summaries.metrics_of(one))),
        datetime.fromisoformat(status.last_scale_time) if status.last_scale_time else None,
        found.state.value,
        found.reason,
    )


def project_autoscalers(changes: Sequence[Change]) -> None:
    sync_rows(Autoscaler, AutoscalerRow._fields, *hooks.differences(changes, autoscaler_row))
