"""What a list says of a workload: how many pods it wants and has, its state, and why it is stuck. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from manciple.wire.base import condition_of
from workloads.kinds.cron_jobs import CRON_JOB, CronJob
from workloads.kinds.daemon_sets import DAEMON_SET, ON_DELETE, DaemonSet
from workloads.kinds.deployments import DEPLOYMENT, PROGRESSING, REPLICA_FAILURE, Deployment
from workloads.kinds.jobs import COMPLETE, FAILED, FAILURE_TARGET, JOB, Job
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet
from workloads.kinds.stateful_sets import STATEFUL_SET, StatefulSet


class State(StrEnum):
    """In the order of the tabs: what needs somebody comes first."""

    STUCK = "Stuck"  #: its pods cannot be made, or no progress is made
    FAILED = "Failed"
    UPDATING = "Updating"  #: pods of a former template are being replaced
    UNREADY = "Not ready"  #: fewer pods are ready than wanted
    STARTING = "Starting"  #: the first pods of a Deployment; a Job's
    RUNNING = "Running"  #: a Job's pods
    READY = "Ready"
    PAUSED = "Paused"  #: a Deployment that does not take over another template; a Job that may have no pod
    SUSPENDED = "Suspended"  #: a Job or CronJob that makes no pods
    SCHEDULED = "Scheduled"  #: a CronJob
    EMPTY = "No pods"  #: none are wanted
    COMPLETE = "Complete"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """wanted, ready: pods; of a Job completions, and those that have succeeded; of a CronJob its Jobs that run.
    reason: a sentence, "" where nothing is wrong. started_at, finished_at, time_limit (seconds): of a Job.
    """

    wanted: int
    ready: int
    state: State
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    time_limit: int | None = None


NO_PARALLELISM = "Its parallelism is 0, so no pod is made."
#: What it means that a Job's time limit is over. Its pods may have waited all the while (`insight.start_estimates`).
DEADLINE_EXCEEDED = "Its time limit ran out."
#: Reasons of conditions -> what they mean. `{}`: the condition's message.
MEANINGS: Mapping[str, str] = {
    "MinimumReplicasAvailable": "Enough pods are available.",
    "MinimumReplicasUnavailable": "Fewer pods are available than it allows to be missing.",
    "NewReplicaSetAvailable": "All pods are of the current template.",
    "NewReplicaSetCreated": "The update has begun.",
    "FoundNewReplicaSet": "The update goes back to a former template.",
    "ReplicaSetUpdated": "Pods are being replaced.",
    "ProgressDeadlineExceeded": "The update has made no progress within its deadline.",
    "DeploymentPaused": "The update is paused.",
    "DeploymentResumed": "The update goes on.",
    "ReplicaSetCreateError": "{}",
    "BackoffLimitExceeded": "Its pods have failed more often than it allows.",
    "DeadlineExceeded": DEADLINE_EXCEEDED,
    "PodFailurePolicy": "A pod failed in a way that ends it: {}",
    "FailedIndexes": "Some of its indexes have failed.",
    "MaxFailedIndexesExceeded": "More of its indexes have failed than it allows.",
    "CompletionsReached": "All its completions have succeeded.",
    "SuccessPolicy": "Enough of its indexes have succeeded.",
    "JobSuspended": "No pod runs as long as it is suspended.",
    "JobResumed": "It goes on.",
    "FailedCreate": "A pod cannot be created: {}",
    "FailedDelete": "A pod cannot be deleted: {}",
}


def meaning(condition: Any) -> str:
    """What a workload's condition says, as a sentence."""
    said = (condition.message or "").rstrip(".")
    known = MEANINGS.get(condition.reason or "")
    if known is None:
        return f"{said}." if said else ""
    return known.format(f"{said}.")


def _failure(conditions: Iterable[Any]) -> str:
    """Why it is stuck, the most specific reason first; "" where it is not."""
    conditions = tuple(conditions)
    for type_, status in ((REPLICA_FAILURE, "True"), (PROGRESSING, "False")):
        known = condition_of(conditions, type_)
        if known is not None and known.status == status:
            return meaning(known)
    return ""


def _of_deployment(one: Deployment) -> Summary:
    spec, status = one.spec, one.status
    wanted = spec.replicas or 0
    reason = _failure(status.conditions)
    is_observed = status.observed_generation >= one.metadata.generation
    if reason:
        state = State.STUCK
    elif spec.paused:
        state = State.PAUSED
    elif not wanted and not status.replicas:
        state = State.EMPTY
    elif is_observed and status.updated_replicas == status.replicas == status.available_replicas == wanted:
        state = State.READY
    elif status.replicas > status.updated_replicas:
        state = State.UPDATING
    else:
        progress = condition_of(status.conditions, PROGRESSING)
        had_all = progress is not None and progress.reason == "NewReplicaSetAvailable"
        state = State.UNREADY if had_all else State.STARTING
    return Summary(wanted=wanted, ready=status.ready_replicas, state=state, reason=reason)


def _of_replica_set(one: ReplicaSet) -> Summary:
    wanted, status = one.spec.replicas or 0, one.status
    reason = _failure(status.conditions)
    if reason:
        state = State.STUCK
    elif not wanted and not status.replicas:
        state = State.EMPTY
    else:
        state = State.READY if status.available_replicas >= wanted else State.UNREADY
    return Summary(wanted=wanted, ready=status.ready_replicas, state=state, reason=reason)


def _of_daemon_set(one: DaemonSet) -> Summary:
    status = one.status
    wanted = status.desired_number_scheduled
    rolls = one.spec.update_strategy.type != ON_DELETE
    if not wanted:
        is_observed = status.observed_generation >= one.metadata.generation
        state = State.EMPTY if is_observed else State.STARTING
    elif rolls and status.updated_number_scheduled < min(wanted, status.current_number_scheduled):
        state = State.UPDATING
    else:
        state = State.READY if status.number_available >= wanted else State.UNREADY
    return Summary(wanted=wanted, ready=status.number_ready, state=state)


def _of_stateful_set(one: StatefulSet) -> Summary:
    wanted, status = one.spec.replicas or 0, one.status
    if not wanted and not status.replicas:
        state = State.EMPTY
    elif status.update_revision != status.current_revision:
        state = State.UPDATING
    else:
        state = State.READY if status.available_replicas >= wanted else State.UNREADY
    return Summary(wanted=wanted, ready=status.ready_replicas, state=state)


def _of_job(one: Job) -> Summary:
    spec, status = one.spec, one.status
    conditions = {type_: condition_of(status.conditions, type_) for type_ in (COMPLETE, FAILED, FAILURE_TARGET)}
    ended = next((found for found in conditions.values() if found is not None and found.status == "True"), None)
    reason = ""
    if ended is not None and ended.type == COMPLETE:
        state = State.COMPLETE
    elif ended is not None:
        state, reason = State.FAILED, meaning(ended)
    elif spec.suspend:
        state = State.SUSPENDED
    elif spec.parallelism == 0 and not status.active:
        state, reason = State.PAUSED, NO_PARALLELISM
    else:
        state = State.RUNNING if status.ready else State.STARTING
    is_finished = ended is not None and ended.type != FAILURE_TARGET
    return Summary(
        wanted=1 if spec.completions is None else spec.completions,
        ready=status.succeeded,
        state=state,
        reason=reason,
        started_at=_moment(status.start_time),
        finished_at=_moment(ended.last_transition_time) if ended is not None and is_finished else None,
        time_limit=spec.active_deadline_seconds,
    )


def _of_cron_job(one: CronJob) -> Summary:
    active = len(one.status.active)
    return Summary(wanted=active, ready=active, state=State.SUSPENDED if one.spec.suspend else State.SCHEDULED)


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


#: resource -> its summary. A kind that is not here has no row in the lists.
SUMMARIES: Mapping[str, Callable[[Any], Summary]] = {
    DEPLOYMENT.resource: _of_deployment,
    REPLICA_SET.resource: _of_replica_set,
    DAEMON_SET.resource: _of_daemon_set,
    STATEFUL_SET.resource: _of_stateful_set,
    JOB.resource: _of_job,
    CRON_JOB.resource: _of_cron_job,
}


def summary_of(resource: str, obj: Any) -> Summary:
    found = SUMMARIES[resource](obj)
    if obj.metadata.deletion_timestamp is None:
        return found
    return Summary(wanted=found.wanted, ready=found.ready, state=State.DELETING)
