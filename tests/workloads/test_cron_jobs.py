"""A CronJob starts one Job for each time of its schedule, as its policies say, and keeps a few that have ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.quotas import RESOURCE_QUOTA
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import timestamp
from manciple.wire.errors import Invalid
from manciple.wire.machinery import Event
from manciple.wire.resources import EVENTS, kind
from tests.builders import make_quota
from tests.workloads.cluster import NAMESPACE, Cluster, make_cron_job, make_job
from workloads import view
from workloads.controllers import cron_jobs
from workloads.controllers.cron_jobs import Turn, job_name, planned
from workloads.kinds.cron_jobs import CRON_JOB, SCHEDULED, CronJob, CronJobStatus
from workloads.kinds.jobs import JOB, Job, JobCondition, JobStatus
from workloads.kinds.templates import owner_reference

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


# The decision ---------------------------------------------------------------------------------------------------------


def a_cron_job(*, last: datetime | None = NOON, active: int = 0, **spec: Any) -> CronJob:
    """Created at noon; hourly."""
    made: CronJob = CRON_JOB.prepare_create(make_cron_job(**{"schedule": "@hourly", **spec}))
    meta = replace(made.metadata, uid="uid", creation_timestamp=timestamp(NOON))
    status = CronJobStatus(last_schedule_time=None if last is None else timestamp(last))
    jobs = [a_job(f"j{number}") for number in range(active)]
    for job in jobs:
        status = cron_jobs._started(status, job, last)
    cron_job: CronJob = replace(made, metadata=meta, status=status)
    return cron_job


def a_job(name: str, end: str = "", *, hour: int = 12) -> Job:
    at = timestamp(NOON.replace(hour=hour))
    conditions = (JobCondition(type=end, status="True", last_transition_time=at),) if end else ()
    status = JobStatus(conditions=conditions, start_time=at, completion_time=at if end == "Complete" else None)
    made = make_job(name)
    return replace(made, metadata=replace(made.metadata, uid=name), status=status)


def plan(cron_job: CronJob, *jobs: Job, at: timedelta) -> cron_jobs.Plan:
    return planned(Turn(cron_job, jobs), NOON + at)


def reasons(found: cron_jobs.Plan) -> list[str]:
    return [reason for reason, _, _ in found.told]


def test_nothing_is_due_before_the_time() -> None:
    found = plan(a_cron_job(), at=timedelta(minutes=59))
    assert (found.due, found.later, found.told) == (None, NOON + timedelta(hours=1), [])


def test_the_last_time_that_has_come_is_due() -> None:
    found = plan(a_cron_job(), at=timedelta(hours=3, minutes=5))
    assert (found.due, found.later) == (NOON + timedelta(hours=3), NOON + timedelta(hours=4))
    assert not plan(a_cron_job(suspend=True), at=timedelta(hours=3)).due


def test_too_late_is_not_started() -> None:
    late = plan(a_cron_job(starting_deadline_seconds=60), at=timedelta(hours=1, seconds=61))
    assert (late.due, reasons(late)) == (None, [])  # it is not even looked for
    assert plan(a_cron_job(starting_deadline_seconds=60), at=timedelta(hours=1, seconds=59)).due
    assert plan(a_cron_job(starting_deadline_seconds=2**62), at=timedelta(hours=1)).due


def test_very_many_missed_times_are_told() -> None:
    found = plan(a_cron_job(schedule="* * * * *"), at=timedelta(hours=2))
    assert (found.due, reasons(found)) == (NOON + timedelta(hours=2), ["TooManyMissedTimes"])


def test_what_happens_while_the_last_one_runs() -> None:
    at, running = timedelta(hours=1), a_job("j0")
    assert plan(a_cron_job(active=1), running, at=at).due
    forbidden = plan(a_cron_job(active=1, concurrency_policy="Forbid"), running, at=at)
    assert (forbidden.due, reasons(forbidden)) == (None, ["JobAlreadyActive"])
    replaced = plan(a_cron_job(active=1, concurrency_policy="Replace"), running, at=at)
    assert (bool(replaced.due), [job.metadata.name for job in replaced.going]) == (True, ["j0"])
    assert replaced.status.active == ()


def test_it_follows_what_becomes_of_its_jobs() -> None:
    found = plan(a_cron_job(active=2), a_job("j0", "Complete"), at=timedelta(minutes=1))
    assert (found.status.active, reasons(found)) == ((), ["SawCompletedJob", "MissingJob"])
    assert found.status.last_successful_time == timestamp(NOON)
    assert reasons(plan(a_cron_job(), a_job("somebodys"), at=timedelta(minutes=1))) == ["UnexpectedJob"]


def test_the_oldest_that_have_ended_go() -> None:
    jobs = [a_job(f"{end}-{hour}".lower(), end, hour=hour) for end in ("Complete", "Failed") for hour in (9, 7, 8)]
    found = plan(a_cron_job(successful_jobs_history_limit=1, failed_jobs_history_limit=2), *jobs, at=timedelta())
    assert [job.metadata.name for job in found.going] == ["complete-7", "complete-8", "failed-7"]
    found = plan(a_cron_job(successful_jobs_history_limit=0, failed_jobs_history_limit=0), *jobs, at=timedelta())
    assert len(found.going) == 6


def test_jobs_that_never_end_are_started_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron_jobs, "MOST_ACTIVE", 2)
    at, running = timedelta(hours=1), [a_job(f"j{number}") for number in range(2)]
    assert plan(a_cron_job(active=1), running[0], at=at).due
    found = plan(a_cron_job(active=2), *running, at=at)
    assert (found.due, reasons(found)) == (None, ["TooManyActiveJobs"])
    assert plan(a_cron_job(active=2, concurrency_policy="Replace"), *running, at=at).due


@pytest.mark.parametrize("limit", [2**31 - 1, None])
def test_jobs_that_have_ended_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch, limit: int | None) -> None:
    monkeypatch.setattr(cron_jobs, "MOST_KEPT", 2)
    jobs = [a_job(f"failed-{hour}", "Failed", hour=hour) for hour in (9, 7, 8)]
    cron_job = a_cron_job()
    cron_job = replace(cron_job, spec=replace(cron_job.spec, failed_jobs_history_limit=limit))
    assert [job.metadata.name for job in plan(cron_job, *jobs, at=timedelta()).going] == ["failed-7"]


def test_a_job_is_named_after_the_minute_and_tells_the_time_by_its_clock() -> None:
    made = cron_jobs.job_of(a_cron_job(time_zone="Europe/Berlin"), NOON)
    assert made.metadata.name == f"cron-{int(NOON.timestamp()) // 60}"
    assert made.metadata.annotations == {SCHEDULED: "2026-11-27T13:00:00+01:00"}
    assert cron_jobs.job_of(a_cron_job(), NOON).metadata.annotations == {SCHEDULED: "2026-11-27T12:00:00Z"}


# The controller -------------------------------------------------------------------------------------------------------


def events() -> list[str]:
    found = (decoded(one, Event) for one in objects.list(kind(EVENTS), namespace=NAMESPACE).items)
    return sorted(one.reason for one in found if one.involved_object.kind == "CronJob")


@pytest.fixture
def hourly(cluster: Cluster) -> Cluster:
    """With an hourly CronJob; a little before the first Job is due."""
    made = cluster.create(CRON_JOB, make_cron_job(schedule="@hourly"))
    created = datetime.fromisoformat(made.metadata.creation_timestamp)
    cluster.now = created.replace(minute=0, second=0) + timedelta(minutes=59, seconds=59)
    return cluster


def test_each_time_has_its_job(hourly: Cluster) -> None:
    hourly.run()
    assert not hourly.jobs()
    hourly.pass_time(2)
    hourly.run()
    (job,) = hourly.jobs()
    cron_job = hourly.cron_job()
    assert job.metadata.owner_references == (owner_reference(cron_job),)
    assert [one.uid for one in cron_job.status.active] == [job.metadata.uid]
    assert (job.metadata.labels, events()) == ({"from": "cron"}, ["SuccessfulCreate"])
    hourly.pass_time(1800)
    hourly.run()
    assert len(hourly.jobs()) == 1
    hourly.pass_time(1800)
    hourly.run()
    assert len(hourly.jobs()) == 2


def test_jobs_that_end_are_noted_and_the_oldest_deleted(hourly: Cluster) -> None:
    for _ in range(5):
        hourly.pass_time(3600)
        hourly.run()
        hourly.let_run()
        for pod in hourly.pods():
            hourly.end(pod, "Succeeded")
        hourly.run()
    assert (len(hourly.jobs()), hourly.cron_job().status.active) == (3, ())
    assert hourly.cron_job().status.last_successful_time == timestamp(hourly.now)
    assert {"SawCompletedJob", "SuccessfulDelete"} <= set(events())


def test_a_job_that_was_started_already_is_not_started_again(hourly: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process was quicker, and this one has not seen it yet."""
    hourly.run()
    turn = Turn(hourly.cron_job(), ())
    hourly.pass_time(2)
    hourly.run()
    assert len(hourly.jobs()) == 1
    monkeypatch.setattr(cron_jobs, "_look", lambda _view, _cron_job: turn)
    view.come_back(view.CRON_JOBS, {(NAMESPACE, "cron"): 0})
    cron_jobs.reconcile(hourly.now)
    assert (len(hourly.jobs()), len(hourly.cron_job().status.active)) == (1, 1)


def test_a_job_of_that_name_which_is_not_its_own_is_left_alone(hourly: Cluster) -> None:
    at = hourly.now + timedelta(seconds=1)
    hourly.create(JOB, make_job(job_name(hourly.cron_job(), at)))
    hourly.pass_time(2)
    hourly.run()
    assert (len(hourly.jobs()), hourly.cron_job().status.active) == (1, ())


def test_a_job_that_is_refused_is_told_and_tried_again(hourly: Cluster) -> None:
    quota = hourly.create(RESOURCE_QUOTA, make_quota({"count/jobs.batch": "0"}))
    hourly.pass_time(2)
    hourly.run()
    assert (hourly.jobs(), set(events())) == ([], {"FailedCreate"})
    hourly.delete(RESOURCE_QUOTA, quota.metadata.name)
    hourly.pass_time(6)
    hourly.run()
    assert len(hourly.jobs()) == 1


def test_a_schedule_that_cannot_be_followed_is_refused(cluster: Cluster) -> None:
    for wrong in ({"schedule": "@reboot"}, {"schedule": "TZ=UTC 0 0 * * *"}, {"time_zone": "Mars/Base"}):
        with pytest.raises(Invalid):
            cluster.create(CRON_JOB, make_cron_job(**wrong))
