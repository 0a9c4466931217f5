"""batch/v1 CronJob: a Job of one template at each time of a schedule. PURE.

Sources: k8s.io/api/batch/v1, pkg/apis/batch/{v1/defaults.go,validation/validation.go}, pkg/registry/batch/cronjob and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from manciple.wire.base import (
    ApiObject,
    Int32,
    Int64,
    ObjectMeta,
    ObjectReference,
    TimeText,
    Value,
    always,
    pb,
)
from manciple.wire.errors import FieldError, invalid, not_supported, required
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.selectors import label_selector_text
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE, age
from manciple.wire.validation import (
    METADATA,
    SPEC,
    Path,
    each,
    validate_annotations,
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)
from workloads.kinds.cron_schedules import BadSchedule, check_zone, parse, zone_of
from workloads.kinds.jobs import JobSpec, prepared_spec, validate_job_spec
from workloads.kinds.replica_sets import containers_cell, images_cell, not_negative

PACKAGE = "io.k8s.api.batch.v1"

Errors = list[FieldError]

ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"
POLICIES = (ALLOW, FORBID, REPLACE)
SUCCESSFUL_KEPT, FAILED_KEPT = 3, 1
#: The name of a Job is its CronJob's with a hyphen and ten digits.
MOST_NAME = 52
#: On a Job: the time of the schedule that it was made for.
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class JobTemplateSpec(Value):
    """What the Jobs look like.

    metadata: their labels and annotations. spec: as of a Job.
    """

    metadata: Annotated[ObjectMeta, pb(1)] = always(ObjectMeta())
    spec: Annotated[JobSpec, pb(2)] = always(JobSpec())


class CronJobSpec(Value):
    """schedule: in cron's five fields, or such as @hourly or @every 1h30m. time_zone: whose clock it goes by; UTC where
    none is named. starting_deadline_seconds: a Job that is later than that is not started. concurrency_policy: what
    happens while the last Job still runs: Allow (the next runs beside it), Forbid (there is no next) or Replace (it is
    deleted). suspend: no Job is started. job_template: what the Jobs look like. successful_jobs_history_limit,
    failed_jobs_history_limit: so many that have ended are kept.
    """

    schedule: Annotated[str, pb(1)] = always("")
    time_zone: Annotated[str | None, pb(8)] = None
    starting_deadline_seconds: Annotated[Int64 | None, pb(2)] = None
    concurrency_policy: Annotated[str, pb(3)] = ""
    suspend: Annotated[bool | None, pb(4)] = None
    job_template: Annotated[JobTemplateSpec, pb(5)] = always(JobTemplateSpec())
    successful_jobs_history_limit: Annotated[Int32 | None, pb(6)] = None
    failed_jobs_history_limit: Annotated[Int32 | None, pb(7)] = None


class CronJobStatus(Value):
    """active: its Jobs that have not ended. last_schedule_time: the time that the last one was made for.
    last_successful_time: when one completed last.
    """

    active: Annotated[tuple[ObjectReference, ...], pb(1)] = ()
    last_schedule_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    last_successful_time: Annotated[TimeText | None, pb(5, encoding="time")] = None


class CronJob(ApiObject):
    """A Job of one template at each time of a schedule. Namespaced."""

    spec: Annotated[CronJobSpec, pb(2)] = always(CronJobSpec())
    status: Annotated[CronJobStatus, pb(3)] = always(CronJobStatus())


# How they are stored --------------------------------------------------------------------------------------------------


def _with_defaults(spec: CronJobSpec, old: CronJobSpec | None = None) -> CronJobSpec:
    template = spec.job_template
    before = None if old is None else old.job_template.spec
    successful, failed = spec.successful_jobs_history_limit, spec.failed_jobs_history_limit
    return replace(
        spec,
        concurrency_policy=spec.concurrency_policy or ALLOW,
        suspend=bool(spec.suspend),
        job_template=replace(template, spec=prepared_spec(template.spec, before)),
        successful_jobs_history_limit=SUCCESSFUL_KEPT if successful is None else successful,
        failed_jobs_history_limit=FAILED_KEPT if failed is None else failed,
    )


def create_cron_job(new: CronJob) -> CronJob:
    return replace(new, spec=_with_defaults(new.spec), status=CronJobStatus())


def update_cron_job(new: CronJob, old: CronJob) -> CronJob:
    return replace(new, spec=_with_defaults(new.spec, old.spec), status=old.status)


def update_cron_job_status(new: CronJob, old: CronJob) -> CronJob:
    return replace(new, spec=old.spec)  # its metadata, too, may be written so


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_cron_job(new: CronJob) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True) + _validate_spec(new.spec, None)
    if len(new.metadata.name) > MOST_NAME:
        at = METADATA.child("name")
        found.append(invalid(at, new.metadata.name, f"must be no more than {MOST_NAME} characters"))
    return found


def validate_cron_job_update(new: CronJob, old: CronJob) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec, old.spec)


def _validate_spec(spec: CronJobSpec, old: CronJobSpec | None) -> Errors:
    at = SPEC.child("schedule")
    found = _validate_schedule(spec.schedule, at) if spec.schedule else [required(at)]
    found += not_negative({"startingDeadlineSeconds": spec.starting_deadline_seconds}, SPEC)
    if spec.time_zone is not None and (old is None or old.time_zone != spec.time_zone):
        found += each(check_zone(spec.time_zone), SPEC.child("timeZone"), spec.time_zone)
    if spec.concurrency_policy not in POLICIES:
        found.append(not_supported(SPEC.child("concurrencyPolicy"), spec.concurrency_policy, POLICIES))
    found += _validate_job_template(spec.job_template, SPEC.child("jobTemplate"))
    limits = {
        "successfulJobsHistoryLimit": spec.successful_jobs_history_limit,
        "failedJobsHistoryLimit": spec.failed_jobs_history_limit,
    }
    return found + not_negative(limits, SPEC)


def _validate_schedule(schedule: str, path: Path) -> Errors:
    """A zone in the schedule itself is read, and refused."""
    found: Errors = []
    zone, _, rest = schedule.partition(" ")
    if not zone.startswith(("TZ=", "CRON_TZ=")):
        zone, rest = "", schedule
    try:
        zone_of(zone.partition("=")[2])
    except BadSchedule as error:
        found.append(invalid(path, schedule, f"provided bad location {zone.partition('=')[2]}: {error}"))
    else:
        try:
            parse(rest.strip())
        except BadSchedule as error:
            found.append(invalid(path, schedule, str(error)))
    if "TZ" in schedule:
        message = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        found.append(invalid(path, schedule, message))
    return found


def _validate_job_template(template: JobTemplateSpec, path: Path) -> Errors:
    spec, at = template.spec, path.child("spec")
    found = validate_job_spec(spec, at)
    if spec.selector is not None:
        found.append(invalid(at.child("selector"), spec.selector, "`selector` will be auto-generated"))
    if spec.manual_selector:
        found.append(not_supported(at.child("manualSelector"), spec.manual_selector, ("nil", "false")))
    meta = template.metadata
    found += validate_labels(meta.labels, path.child("metadata", "labels"))
    return found + validate_annotations(meta.annotations, path.child("metadata", "annotations"))


def validate_cron_job_status(new: CronJob, old: CronJob) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata)


# Columns and kind -----------------------------------------------------------------------------------------------------


CRON_JOB = Kind(
    group="batch",
    version="v1",
    plural="cronjobs",
    short_names=("cj",),
    categories=("all",),
    type=CronJob,
    prepare_create=create_cron_job,
    prepare_update=update_cron_job,
    validate_create=validate_cron_job,
    validate_update=validate_cron_job_update,
    subresources={
        "status": Subresource(prepare_update=update_cron_job_status, validate_update=validate_cron_job_status)
    },
    generation_of=lambda one: one.spec,
    columns=(
        NAME_COLUMN,
        Column(name="Schedule", description="When Jobs are started", cell=lambda one, _now: one.spec.schedule),
        Column(
            name="Timezone",
            description="Whose clock the schedule goes by",
            cell=lambda one, _now: NONE if one.spec.time_zone is None else one.spec.time_zone,
        ),
        Column(name="Suspend", type="boolean", cell=lambda one, _now: str(bool(one.spec.suspend))),
        Column(name="Active", type="integer", cell=lambda one, _now: len(one.status.active)),
        Column(
            name="Last Schedule",
            description="How long ago a Job was due last",
            cell=lambda one, now: NONE if (at := one.status.last_schedule_time) is None else age(at, now),
        ),
        AGE_COLUMN,
        Column(
            name="Containers",
            description="Names of each container in the template.",
            priority=1,
            cell=lambda one, _now: containers_cell(one.spec.job_template.spec.template),
        ),
        Column(
            name="Images",
            description="Images referenced by each container in the template.",
            priority=1,
            cell=lambda one, _now: images_cell(one.spec.job_template.spec.template),
        ),
        Column(
            name="Selector",
            description="Which pods count",
            priority=1,
            cell=lambda one, _now: label_selector_text(one.spec.job_template.spec.selector),
        ),
    ),
    description="A Job of one template at each time of a schedule.",
)
