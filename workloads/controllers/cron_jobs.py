"""Starts the Jobs of CronJobs when they are due, and deletes those that have ended long ago.

A Job is named after the minute that it is due in, and what is written for one CronJob (a Job, the note of it in the
status) is one transaction, on condition that the CronJob is as it was looked at. So no Job is started twice.

Source: pkg/controller/cronjob/{cronjob_controllerv2,utils}.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from claims import event_recorder
from claims.event_recorder import EventNote
from manciple.api import verbs
from manciple.controllers.declaration import Controller
from manciple.store.objects import Writer
from manciple.wire.base import ObjectMeta, ObjectReference, timestamp
from manciple.wire.errors import AlreadyExists, ApiError, Conflict
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, MODIFIED
from workloads import pod_control
from workloads import view as following
from workloads.kinds.cron_jobs import CRON_JOB, FORBID, REPLACE, SCHEDULED, CronJob, CronJobStatus
from workloads.kinds.cron_schedules import BadSchedule, Due, due, next_due, parse, zone_of
from workloads.kinds.jobs import COMPLETE, FAILED, JOB, Job
from workloads.kinds.templates import owner_reference
from workloads.pod_control import RETRY, Done, Work, take_turns
from workloads.view import CRON_JOBS, JOBS, WorkloadView, controller_of

IDENTITY = controller("cronjob-controller")
COMPONENT = "cronjob-controller"
#: Seconds after the time of a schedule at which its Job is started, lest a clock be early.
LATER = 0.1
#: So many missed times are an anomaly.
MANY = 100
#: Jobs of one CronJob that may run, and that are kept once they have ended, whatever its limits say: Jobs that never
#: end would fill the status, and the store, minute by minute.
MOST_ACTIVE = MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Turn:
    """A CronJob and the Jobs that it controls."""

    cron_job: CronJob
    jobs: Sequence[Job]


@dataclass(slots=True)
class Plan:
    """What is to be done for one CronJob. due: the time that a Job is to be made for. later: when to look again by
    itself. told: (reason, message, whether it is a warning) of events.
    """

    status: CronJobStatus
    due: datetime | None = None
    going: list[Job] = field(default_factory=list)
    later: datetime | None = None
    told: list[tuple[str, str, bool]] = field(default_factory=list)

    def tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.told.append((reason, message, warning))


def reconcile(now: datetime) -> int:
    return take_turns(CRON_JOBS, now, _look, _sync)


def _look(view: WorkloadView, cron_job: CronJob) -> Turn:
    owned = view.children.get(cron_job.metadata.uid, {}).values()
    return Turn(cron_job, [one for one in owned if isinstance(one, Job)])


def _sync(turn: Turn, now: datetime) -> Done | Work:
    cron_job, plan = turn.cron_job, planned(turn, now)
    made, refusal = None, None
    if plan.due is not None:
        try:
            made = verbs.admitted_creation(JOB, job_of(cron_job, plan.due), identity=IDENTITY, dry_run=False)
        except ApiError as error:
            refusal = error
    later = None if plan.later is None else plan.later.timestamp() + LATER
    if made is None and refusal is None and not plan.going and not plan.told and plan.status == cron_job.status:
        return 0, later

    def write(writer: Writer) -> Done:
        before, refused = writer.revision, refusal
        stored = writer.get(CRON_JOB, *cron_job.key)
        if stored is None or stored.metadata.resource_version != cron_job.metadata.resource_version:
            raise Conflict.of(CRON_JOB.resource, cron_job.metadata.name)
        for reason, message, warning in plan.told:
            _tell(writer, cron_job, reason, message, now, warning=warning)
        for job in plan.going:
            writer.delete(JOB, job.metadata.namespace, job.metadata.name, uid=job.metadata.uid)
            _tell(writer, cron_job, "SuccessfulDelete", f"Deleted job {job.metadata.name}", now)
        status = plan.status
        if made is not None:
            try:
                with writer.savepoint():
                    started = writer.create(JOB, made[1], uid=made[2])
                _tell(writer, cron_job, "SuccessfulCreate", f"Created job {started.metadata.name}", now)
                status = _started(status, started, plan.due)
            except AlreadyExists:
                status = _found(writer, cron_job, status, made[1], plan.due)
            except ApiError as error:
                refused = error
        if refused is not None:
            _tell(writer, cron_job, "FailedCreate", f"Error creating job: {refused}", now, warning=True)
        writer.update(CRON_JOB, replace(cron_job, status=status), subresource="status")
        return writer.revision - before, RETRY if refused is not None else later

    return Work(write, IDENTITY)


def _started(status: CronJobStatus, job: Any, at: datetime | None) -> CronJobStatus:
    meta = job.metadata
    reference = ObjectReference(
        kind="Job",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version=JOB.api_version,
        resource_version=meta.resource_version,
    )
    last = None if at is None else timestamp(at)
    return replace(status, active=(*status.active, reference), last_schedule_time=last)


def _found(writer: Writer, cron_job: CronJob, status: CronJobStatus, job: Any, at: datetime | None) -> CronJobStatus:
    """There is a Job of this name already: it is the one, if the CronJob controls it."""
    known = writer.get(JOB, job.metadata.namespace, job.metadata.name)
    owner = None if known is None else controller_of(known.metadata)
    if known is None or owner is None or owner.uid != cron_job.metadata.uid:
        return status
    if any(one.uid == known.metadata.uid for one in status.active):
        return status
    return _started(status, known, at)


def _tell(
    writer: Writer, cron_job: CronJob, reason: str, message: str, now: datetime, *, warning: bool = False
) -> None:
    note = EventNote(
        regarding=cron_job,
        type="Warning" if warning else "Normal",
        reason=reason,
        message=message,
        component=COMPONENT,
    )
    event_recorder.record(writer, note, now=now)


# What is to be done ---------------------------------------------------------------------------------------------------


def planned(turn: Turn, now: datetime) -> Plan:
    cron_job, spec = turn.cron_job, turn.cron_job.spec
    plan = Plan(cron_job.status)
    _follow(plan, turn)
    if cron_job.metadata.deletion_timestamp is None:
        _schedule(plan, cron_job, turn.jobs, now)
    ended = [(job, state) for job in turn.jobs if (state := _end_of(job)) and job not in plan.going]
    for state, kept in ((COMPLETE, spec.successful_jobs_history_limit), (FAILED, spec.failed_jobs_history_limit)):
        ended_so = sorted((job for job, end in ended if end == state), key=_begun)
        surplus = max(0, len(ended_so) - min(MOST_KEPT if kept is None else kept, MOST_KEPT))
        plan.going += [job for job in ended_so[:surplus] if job.metadata.deletion_timestamp is None]
    plan.going = plan.going[: pod_control.BURST]
    return plan


def _end_of(job: Job) -> str:
    """How it has ended; "" while it has not."""
    return next((one for one in (COMPLETE, FAILED) if job.status.has(one)), "")


def _begun(job: Job) -> tuple[bool, str, str]:
    start = job.status.start_time
    return start is None, start or "", job.metadata.name


def _follow(plan: Plan, turn: Turn) -> None:
    """What has become of the Jobs."""
    active = {one.uid: one for one in plan.status.active}
    last = plan.status.last_successful_time
    for job in turn.jobs:
        uid, end = job.metadata.uid, _end_of(job)
        if uid not in active and not end:
            name = job.metadata.name
            plan.tell("UnexpectedJob", f"Saw a job that the controller did not create or forgot: {name}", warning=True)
        elif uid in active and end:
            del active[uid]
            plan.tell("SawCompletedJob", f"Saw completed job: {job.metadata.name}, status: {end}")
        completed = job.status.completion_time
        if end == COMPLETE and completed is not None and (last is None or _time(completed) > _time(last)):
            last = completed
    present = {job.metadata.uid for job in turn.jobs}
    for uid, reference in [*active.items()]:
        if uid not in present:
            del active[uid]
            plan.tell("MissingJob", f"Active job went missing: {reference.name}")
    plan.status = replace(plan.status, active=tuple(active.values()), last_successful_time=last)


def _schedule(plan: Plan, cron_job: CronJob, jobs: Sequence[Job], now: datetime) -> None:
    """Which Job is due, if it may be started."""
    spec, last = cron_job.spec, _last_due(plan, cron_job, now)
    if last is None or last.at is None:
        return
    if last.missed > MANY:
        message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        plan.tell("TooManyMissedTimes", message, warning=True)
    if spec.starting_deadline_seconds is not None and last.at + _seconds(spec.starting_deadline_seconds) < now:
        at = last.at.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        plan.tell("MissSchedule", f"Missed scheduled time to start a job: {at}", warning=True)
        return
    names = {one.name for one in plan.status.active}
    if job_name(cron_job, last.at) in names or plan.status.last_schedule_time == timestamp(last.at):
        return
    if spec.concurrency_policy == FORBID and plan.status.active:
        message = "Not starting job because prior execution is running and concurrency policy is Forbid"
        plan.tell("JobAlreadyActive", message)
        return
    if spec.concurrency_policy != REPLACE and len(plan.status.active) >= MOST_ACTIVE:
        message = f"Not starting job because {MOST_ACTIVE} are running already"
        plan.tell("TooManyActiveJobs", message, warning=True)
        return
    if spec.concurrency_policy == REPLACE:
        running = {one.uid for one in plan.status.active}
        plan.going = [job for job in jobs if job.metadata.uid in running]
        plan.status = replace(plan.status, active=())
    plan.due = last.at


def _last_due(plan: Plan, cron_job: CronJob, now: datetime) -> Due | None:
    """None where the CronJob is suspended, or its schedule cannot be followed, of which it tells."""
    spec, zone = cron_job.spec, cron_job.spec.time_zone or ""
    try:
        zone_of(zone)
    except BadSchedule as error:
        plan.tell("UnknownTimeZone", f'invalid timeZone: "{zone}": {error}', warning=True)
        return None
    if spec.suspend:
        return None
    try:
        schedule = parse(spec.schedule, zone)
    except BadSchedule as error:
        plan.tell("UnparseableSchedule", f'unparseable schedule: "{spec.schedule}" : {error}', warning=True)
        return None
    since = _time(plan.status.last_schedule_time or cron_job.metadata.creation_timestamp or timestamp(now))
    since = min(since, now + timedelta(days=366))  # whatever was written there
    plan.later = next_due(schedule, since, now)
    deadline = spec.starting_deadline_seconds
    try:
        return due(schedule, since if deadline is None else max(since, now - _seconds(deadline)), now)
    except BadSchedule as error:
        plan.tell("InvalidSchedule", f"invalid schedule: {spec.schedule} : {error}", warning=True)
        return None


def _seconds(number: int) -> timedelta:
    """Not more than a time can be moved by."""
    return timedelta(seconds=min(number, 10**9))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def job_name(cron_job: CronJob, at: datetime) -> str:
    return f"{cron_job.metadata.name}-{int(at.timestamp()) // 60}"


def job_of(cron_job: CronJob, at: datetime) -> Job:
    """The Job of that time. Raises: BadSchedule for a zone that is not known."""
    template = cron_job.spec.job_template
    local = at.astimezone(zone_of(cron_job.spec.time_zone or "")).isoformat(timespec="seconds")
    metadata = ObjectMeta(
        name=job_name(cron_job, at),
        namespace=cron_job.metadata.namespace,
        labels=template.metadata.labels,
        annotations={**template.metadata.annotations, SCHEDULED: local.replace("+00:00", "Z")},
        owner_references=(owner_reference(cron_job),),
    )
    return Job(api_version=JOB.api_version, kind="Job", metadata=metadata, spec=template.spec)


CONTROLLER = Controller(
    name="start_cron_jobs",
    does="starts the Jobs of CronJobs when they are due",
    reconcile=reconcile,
    every=2,
    wakes_on=frozenset({(CRON_JOBS, ADDED), (CRON_JOBS, MODIFIED), (JOBS, MODIFIED), (JOBS, DELETED)}),
    has_work=following.any_of(CRON_JOBS),
    is_work=frozenset({(CRON_JOBS, ADDED), (CRON_JOBS, MODIFIED)}),
    rests_without_work=True,
    rests_until=partial(pod_control.rests_until, CRON_JOBS),
    has_more=partial(pod_control.is_cut_short, CRON_JOBS),
    queue_name="cronjob",
)
