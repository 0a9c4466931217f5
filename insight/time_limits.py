"""Time limits (`activeDeadlineSeconds`): when pods end at the latest, and Jobs that never started within theirs.

A pod's own limit counts from its start. A Job's counts from the Job's start, so also while its pods wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from claims.models import Ending, Pod
from manciple.durations import duration
from manciple.wire.resources import PODS, Key
from workloads.kinds.jobs import JOB
from workloads.kinds.summaries import DEADLINE_EXCEEDED, State
from workloads.models import Workload

#: Seconds. A longer limit is none: the API takes numbers that no calendar has.
LONGEST = 100 * 365 * 86_400


class Limited(Protocol):
    """An index row of a pod, or of the workload that controls it. time_limit: seconds."""

    @property
    def started_at(self) -> datetime | None: ...
    @property
    def time_limit(self) -> int | None: ...


def end_of(started_at: datetime | None, time_limit: int | None) -> datetime | None:
    """None where no limit runs."""
    if started_at is None or time_limit is None or time_limit > LONGEST:
        return None
    return started_at + timedelta(seconds=time_limit)


def latest_end(pod: Limited, controller: Limited | None) -> datetime | None:
    """When a pod ends at the latest; None where nothing says so."""
    ends = [end_of(one.started_at, one.time_limit) for one in (pod, controller) if one is not None]
    return min((one for one in ends if one is not None), default=None)


def latest_ends(pods: Collection[Key]) -> Mapping[Key, datetime | None]:
    """Of each pod that is there, by (namespace, name): see `latest_end`. Two queries."""
    if not pods:
        return {}
    namespaces, names = map(set, zip(*pods, strict=True))
    rows = list(Pod.objects.filter(namespace__in=namespaces, name__in=names))
    controllers = Workload.objects.in_bulk({row.controller_uid for row in rows} - {""})
    return {(row.namespace, row.name): latest_end(row, controllers.get(row.controller_uid)) for row in rows}


def never_started(rows: Iterable[Workload]) -> Mapping[str, str]:
    """uid of each Job among them whose limit ran out before any of its pods had a node -> that, as a sentence.

    No query where no limit ran out, else two.
    """
    jobs = {
        (row.namespace, f"Job {row.name}"): row
        for row in rows
        if (row.resource, row.state, row.reason, row.ready) == (JOB.resource, State.FAILED, DEADLINE_EXCEEDED, 0)
        and row.started_at
        and row.finished_at
        and row.time_limit
    }
    if not jobs:
        return {}
    of_jobs = Pod.objects.filter(controller_uid__in=[row.uid for row in jobs.values()])
    began = set(of_jobs.exclude(node_name="").values_list("controller_uid", flat=True))
    namespaces, owners = map(set, zip(*jobs, strict=True))
    ended = Ending.objects.filter(resource=PODS, namespace__in=namespaces, owner__in=owners).exclude(node="")
    for namespace, owner, created_at in ended.values_list("namespace", "owner", "created_at"):
        job = jobs.get((namespace, owner))
        if job is not None and created_at >= job.created_at:
            began.add(job.uid)
    return {job.uid: _waited(job) for job in jobs.values() if job.uid not in began}


def _waited(job: Workload) -> str:
    assert job.started_at is not None and job.finished_at is not None  # noqa: PT018, S101 - for the type checker
    waited, limit = (job.finished_at - job.started_at).total_seconds(), job.time_limit or 0
    return f"It waited {duration(min(waited, limit))} of its time limit of {duration(limit)} and never started."
