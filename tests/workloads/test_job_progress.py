"""What a Job's next step is, of its pods and its status alone: a table of each decision."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tests.workloads.cluster import make_job
from workloads.job_progress import Missing, Progress, backoff_after, enough_succeeded, judge
from workloads.kinds.indexes import IndexSet
from workloads.kinds.jobs import (
    COUNT,
    FAIL_INDEX,
    FAIL_JOB,
    IGNORE,
    IN,
    Job,
    JobCondition,
    JobSpec,
    JobStatus,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
    UncountedTerminatedPods,
    create_job,
)
from workloads.kinds.pod_facts import JobPodFacts, PodFacts

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
SECONDS = NOW.timestamp()
STARTED = "2026-11-27T11:00:00Z"
LONG_AGO = SECONDS - 3000


def a_pod(name: str, phase: str = "Running", *, index: int = -1, deleting: bool = False, **of_job: Any) -> PodFacts:
    known: dict[str, Any] = {
        "is_tracked": True,
        "index": index,
        "failures": 0,
        "ignored_failures": 0,
        "finished": 0.0 if phase in ("Running", "Pending") and not deleting else LONG_AGO,
        "restarts": 0,
        "exits": (),
        "conditions": (),
    }
    return PodFacts(
        name=name,
        uid=name,
        labels={},
        node="" if phase == "Pending" else "n1",
        target="n1",
        phase=phase,
        is_deleting=deleting,
        is_ready=phase == "Running",
        ready_since=STARTED if phase == "Running" else None,
        restarts=0,
        created=STARTED,
        deletion_cost=0,
        job=JobPodFacts(**{**known, **of_job}),
    )


def a_job(status: JobStatus | None = None, **spec: Any) -> Job:
    return replace(create_job(make_job(**spec)), status=status or JobStatus(start_time=STARTED))


def stepped(job: Job, pods: Sequence[PodFacts], *, most: int = 100) -> tuple[Progress, JobStatus]:
    """A step, in which everything that is missing is created."""
    progress = Progress(job, pods, NOW, most=most)
    progress.step()
    return progress, progress.ended(len(progress.missing))


def states(status: JobStatus) -> dict[str, str]:
    return {one.type: one.reason for one in status.conditions if one.status == "True"}


def names(pods: Sequence[PodFacts]) -> list[str]:
    return [pod.name for pod in pods]


# How many pods --------------------------------------------------------------------------------------------------------

#: what it is about -> (spec, succeeded so far, running, how many more are created, how many are deleted)
NUMBERS: dict[str, tuple[dict[str, Any], int, int, int, int]] = {
    "as many at a time as it wants": ({"parallelism": 3, "completions": 5}, 0, 0, 3, 0),
    "no more than are left to do": ({"parallelism": 3, "completions": 5}, 4, 0, 1, 0),
    "those that run count": ({"parallelism": 3, "completions": 5}, 3, 1, 1, 0),
    "fewer are wanted": ({"parallelism": 1, "completions": 5}, 0, 3, 0, 2),
    "none is wanted": ({"parallelism": 0, "completions": 5}, 0, 2, 0, 2),
    "a queue of work": ({"parallelism": 2}, 0, 0, 2, 0),
    "a queue of work that is about to end": ({"parallelism": 2}, 1, 1, 0, 0),
    "suspended": ({"parallelism": 2, "completions": 2, "suspend": True}, 0, 2, 0, 2),
    "nothing to do": ({"parallelism": 2, "completions": 0}, 0, 0, 0, 0),
}


@pytest.mark.parametrize(("spec", "succeeded", "running", "created", "deleted"), NUMBERS.values(), ids=NUMBERS)
def test_how_many_pods_there_should_be(
    spec: dict[str, Any], succeeded: int, running: int, created: int, deleted: int
) -> None:
    job = a_job(JobStatus(start_time=STARTED, succeeded=succeeded), **spec)
    progress, status = stepped(job, [a_pod(f"p{number}") for number in range(running)])
    assert (len(progress.missing), len(progress.going)) == (created, deleted)
    assert status.active == running + created - deleted
    assert not progress.counted  # what is deleted because it is too many is not counted


def test_at_most_so_many_are_created_deleted_or_counted_in_one_step() -> None:
    progress, status = stepped(a_job(parallelism=10_000, completions=10_000), [], most=100)
    assert (len(progress.missing), progress.is_more, status.active) == (100, True, 100)
    progress, _ = stepped(a_job(suspend=True), [a_pod(f"p{number}") for number in range(150)], most=100)
    assert (len(progress.going), progress.is_more, progress.later) == (100, True, SECONDS)
    done = [a_pod(f"p{number}", "Succeeded") for number in range(150)]
    progress, status = stepped(a_job(parallelism=1, completions=150), done, most=100)
    assert (len(progress.counted), status.succeeded, states(status)) == (
        100,
        100,
        {"SuccessCriteriaMet": "CompletionsReached"},
    )


def test_pods_that_have_done_least_are_deleted_first() -> None:
    pods = [a_pod("ready"), a_pod("waits", "Pending"), replace_facts(a_pod("unready"), is_ready=False)]
    progress, _ = stepped(a_job(parallelism=1, completions=5), pods)
    assert names(progress.going) == ["waits", "unready"]


def replace_facts(pod: PodFacts, **changes: Any) -> PodFacts:
    return PodFacts(**{**{name: getattr(pod, name) for name in pod.__slots__}, **changes})


# Indexes --------------------------------------------------------------------------------------------------------------


def test_each_index_gets_a_pod_and_no_second_one() -> None:
    job = a_job(completion_mode="Indexed", parallelism=3, completions=6)
    pods = [a_pod("zero", "Succeeded", index=0), a_pod("two", index=2)]
    progress, status = stepped(job, pods)
    assert [one.index for one in progress.missing] == [1, 3]
    assert (status.completed_indexes, status.succeeded, names(progress.counted)) == ("0", 1, ["zero"])


def test_an_index_that_two_have_or_none_should_have_is_given_up() -> None:
    job = a_job(completion_mode="Indexed", parallelism=3, completions=3)
    pods = [a_pod("a", index=1), a_pod("b", index=1), a_pod("beyond", index=7), a_pod("without")]
    progress, _ = stepped(job, pods)
    assert sorted(names(progress.going)) == ["a", "beyond", "without"]


def test_an_index_that_succeeds_twice_counts_once() -> None:
    job = a_job(
        JobStatus(start_time=STARTED, completed_indexes="0", succeeded=1), completion_mode="Indexed", completions=2
    )
    _, status = stepped(job, [a_pod("again", "Succeeded", index=0), a_pod("far", "Succeeded", index=9)])
    assert (status.completed_indexes, status.succeeded) == ("0", 1)


def test_an_indexed_job_that_shrinks_forgets_what_is_beyond_it() -> None:
    job = a_job(
        JobStatus(start_time=STARTED, completed_indexes="0,4-5", succeeded=3),
        completion_mode="Indexed",
        completions=3,
        parallelism=3,
    )
    _, status = stepped(job, [])
    assert (status.completed_indexes, status.succeeded) == ("0", 1)


def test_each_index_has_its_own_failures() -> None:
    job = a_job(completion_mode="Indexed", completions=3, parallelism=3, backoff_limit_per_index=1)
    once = a_pod("once", "Failed", index=0)
    twice = a_pod("twice", "Failed", index=1, failures=1)
    progress, status = stepped(job, [once, twice])
    assert progress.missing == [Missing(0, failures=1), Missing(2, failures=0)]
    assert (status.failed_indexes, status.failed) == ("1", 1)
    assert names(progress.counted) == ["twice"]  # the other stays until its successor knows of it
    progress, status = stepped(job, [once, a_pod("next", index=0, failures=1)])
    assert (names(progress.counted), status.failed) == (["once"], 1)


def test_an_index_waits_longer_after_each_failure() -> None:
    job = a_job(completion_mode="Indexed", completions=2, parallelism=2, backoff_limit_per_index=5)
    late = a_pod("late", "Failed", index=0, failures=1, ignored_failures=1, finished=SECONDS - 15)
    progress, _ = stepped(job, [late])
    assert ([one.index for one in progress.missing], progress.later) == ([1], SECONDS - 15 + 40)


def test_delayed_indexes_do_not_make_it_look_again_at_once() -> None:
    job = a_job(completion_mode="Indexed", completions=5, parallelism=5, backoff_limit_per_index=5)
    late = [a_pod(f"p{index}", "Failed", index=index, finished=SECONDS - 1) for index in range(5)]
    progress, _ = stepped(job, late, most=2)
    assert (progress.missing, progress.is_more, progress.later) == ([], False, SECONDS + 9)


def per_index(**more: Any) -> Job:
    return a_job(completion_mode="Indexed", completions=3, parallelism=3, backoff_limit_per_index=0, **more)


def test_too_many_failed_indexes_fail_the_job_at_once_and_any_at_its_end() -> None:
    pods = [a_pod("f0", "Failed", index=0), a_pod("s1", "Succeeded", index=1), a_pod("r2", index=2)]
    _, status = stepped(per_index(max_failed_indexes=0), pods)
    assert states(status) == {"FailureTarget": "MaxFailedIndexesExceeded"}
    _, status = stepped(per_index(), pods)
    assert (states(status), status.failed_indexes) == ({}, "0")
    _, status = stepped(per_index(), [*pods[:2], a_pod("s2", "Succeeded", index=2)])
    assert states(status) == {"FailureTarget": "FailedIndexes", "Failed": "FailedIndexes"}


# How it ends ----------------------------------------------------------------------------------------------------------


def test_a_job_completes_once_its_pods_are_counted_and_gone() -> None:
    job = a_job(completions=2, parallelism=2)
    progress, status = stepped(job, [a_pod("a", "Succeeded"), a_pod("b", "Succeeded")])
    assert states(status) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert (status.succeeded, status.completion_time is not None) == (2, True)
    assert [event.reason for event in progress.events] == ["Completed"]


def test_a_job_fails_only_when_its_pods_are_gone() -> None:
    job = a_job(completions=3, parallelism=2, backoff_limit=0)
    pods = [a_pod("failed", "Failed"), a_pod("runs")]
    progress, status = stepped(job, pods)
    assert (names(progress.going), sorted(names(progress.counted))) == (["runs"], ["failed", "runs"])
    assert (states(status), status.failed) == ({"FailureTarget": "BackoffLimitExceeded"}, 2)
    left = [a_pod("failed", "Failed", is_tracked=False), a_pod("runs", deleting=True, is_tracked=False)]
    progress, status = stepped(replace(job, status=status), left)
    assert (states(status), status.terminating, progress.events) == ({"FailureTarget": "BackoffLimitExceeded"}, 1, [])
    progress, status = stepped(replace(job, status=status), left[:1])
    assert (states(status)["Failed"], status.failed) == ("BackoffLimitExceeded", 2)
    assert [(event.reason, event.warning) for event in progress.events] == [("BackoffLimitExceeded", True)]


def test_a_deadline_counts_from_the_start_and_not_while_it_is_suspended() -> None:
    _, status = stepped(a_job(active_deadline_seconds=3600), [a_pod("runs")])
    assert states(status) == {"FailureTarget": "DeadlineExceeded"}
    progress, status = stepped(a_job(active_deadline_seconds=3601), [a_pod("runs")])
    assert (states(status), progress.later) == ({}, SECONDS + 1)
    _, status = stepped(a_job(active_deadline_seconds=1, suspend=True), [])
    assert (states(status), status.start_time) == ({"Suspended": "JobSuspended"}, None)


def test_restarts_within_pods_count_where_they_restart() -> None:
    template = make_job().spec.template
    restarting = replace(template, spec=replace(template.spec, restart_policy="OnFailure"))
    job = a_job(template=restarting, backoff_limit=3, parallelism=2, completions=2)
    _, status = stepped(job, [a_pod("a", restarts=1), a_pod("b", restarts=1)])
    assert states(status) == {}
    _, status = stepped(job, [a_pod("a", restarts=2), a_pod("b", restarts=1)])
    assert states(status) == {"FailureTarget": "BackoffLimitExceeded"}


def test_a_resumed_job_begins_anew() -> None:
    suspended = JobStatus(conditions=(JobCondition(type="Suspended", status="True", reason="JobSuspended"),))
    progress, status = stepped(a_job(suspended), [])
    (condition,) = status.conditions
    assert (condition.status, condition.reason, status.active) == ("False", "JobResumed", 1)
    assert status.start_time == "2026-11-27T12:00:00Z"
    assert [event.reason for event in progress.events] == ["Resumed"]


# What is counted ------------------------------------------------------------------------------------------------------


def test_a_pod_is_counted_once_whoever_noted_it() -> None:
    """Another control plane left uids in the status: of a pod that still has the finalizer, and of one that is gone."""
    known = UncountedTerminatedPods(succeeded=("here", "gone"), failed=("lost",))
    job = a_job(
        JobStatus(start_time=STARTED, succeeded=1, uncounted_terminated_pods=known), completions=9, parallelism=1
    )
    _, status = stepped(job, [a_pod("here", "Succeeded"), a_pod("new", "Succeeded"), a_pod("runs")])
    assert (status.succeeded, status.failed) == (4, 1)
    assert status.uncounted_terminated_pods == UncountedTerminatedPods()
    _, status = stepped(job, [a_pod("here", "Succeeded", is_tracked=False), a_pod("runs")])
    assert (status.succeeded, status.failed) == (3, 1)


#: replacement policy -> (failed, created) for a pod that is being deleted
REPLACED = {"TerminatingOrFailed": (1, 1), "Failed": (0, 0)}


@pytest.mark.parametrize(("policy", "expected"), REPLACED.items())
def test_a_pod_that_is_being_deleted(policy: str, expected: tuple[int, int]) -> None:
    job = a_job(completions=1, parallelism=1, pod_replacement_policy=policy)
    progress, status = stepped(job, [a_pod("going", deleting=True)])
    assert (status.failed, len(progress.missing)) == expected
    assert status.terminating == 1


def test_the_next_pod_waits_for_ten_seconds_and_twice_as_long_each_time() -> None:
    assert [backoff_after(failures) for failures in (0, 1, 2, 3, 6, 7, 50)] == [0, 10, 20, 40, 320, 600, 600]
    job = a_job(completions=1, parallelism=1)
    progress, _ = stepped(job, [a_pod("a", "Failed", finished=SECONDS - 4)])
    assert (progress.missing, progress.later) == ([], SECONDS + 6)
    progress, _ = stepped(
        job, [a_pod("a", "Failed", finished=SECONDS - 4), a_pod("b", "Failed", finished=SECONDS - 30)]
    )
    assert (progress.missing, progress.later) == ([], SECONDS + 16)
    # A success in between sets it back.
    several = a_job(completions=2, parallelism=1)
    before = [a_pod("a", "Failed", finished=SECONDS - 4), a_pod("b", "Succeeded", finished=SECONDS - 3)]
    progress, _ = stepped(several, before)
    assert len(progress.missing) == 1


# Policies -------------------------------------------------------------------------------------------------------------


def on_exit(action: str, operator: str, *values: int, container: str | None = None) -> PodFailurePolicyRule:
    codes = PodFailurePolicyOnExitCodesRequirement(container_name=container, operator=operator, values=values)
    return PodFailurePolicyRule(action=action, on_exit_codes=codes)


def on_condition(action: str, type_: str, status: str = "True") -> PodFailurePolicyRule:
    pattern = PodFailurePolicyOnPodConditionsPattern(type=type_, status=status)
    return PodFailurePolicyRule(action=action, on_pod_conditions=(pattern,))


DISRUPTED = {"conditions": (("DisruptionTarget", "True"),)}
#: what it is about -> (rules, facts of the pod, the action)
JUDGED: dict[str, tuple[tuple[PodFailurePolicyRule, ...], dict[str, Any], str]] = {
    "an exit code that is listed": ((on_exit(FAIL_JOB, "In", 1, 42),), {"exits": (("app", 42),)}, FAIL_JOB),
    "one that is not": ((on_exit(FAIL_JOB, "In", 1, 42),), {"exits": (("app", 2),)}, ""),
    "all but those listed": ((on_exit(IGNORE, "NotIn", 1),), {"exits": (("app", 2),)}, IGNORE),
    "not of those listed": ((on_exit(IGNORE, "NotIn", 2),), {"exits": (("app", 2),)}, ""),
    "another container": ((on_exit(FAIL_JOB, "In", 42, container="app"),), {"exits": (("sidecar", 42),)}, ""),
    "the second container": ((on_exit(FAIL_JOB, "In", 42),), {"exits": (("a", 1), ("b", 42))}, FAIL_JOB),
    "a condition": ((on_condition(IGNORE, "DisruptionTarget"),), DISRUPTED, IGNORE),
    "a condition with another status": ((on_condition(IGNORE, "DisruptionTarget", "False"),), DISRUPTED, ""),
    "the first that matches": (
        (on_condition(COUNT, "DisruptionTarget"), on_exit(FAIL_JOB, "NotIn", 0)),
        DISRUPTED,
        COUNT,
    ),
    "no rule": ((), {"exits": (("app", 1),)}, ""),
}


@pytest.mark.parametrize(("rules", "facts", "action"), JUDGED.values(), ids=JUDGED)
def test_what_a_failure_means(rules: tuple[PodFailurePolicyRule, ...], facts: dict[str, Any], action: str) -> None:
    assert judge(PodFailurePolicy(rules=rules), a_pod("p", "Failed", **facts), "ns")[0] == action


def test_a_failure_may_fail_the_job_count_or_not_count() -> None:
    pods = [a_pod("p", "Failed", exits=(("app", 42),))]
    policy: dict[str, Any] = {"completions": 1, "parallelism": 1, "backoff_limit": 0}
    _, status = stepped(
        a_job(pod_failure_policy=PodFailurePolicy(rules=(on_exit(FAIL_JOB, "In", 42),)), **policy), pods
    )
    assert (status.conditions[0].type, status.conditions[0].reason) == ("FailureTarget", "PodFailurePolicy")
    expected = "Container app for pod default/p failed with exit code 42 matching FailJob rule at index 0"
    assert status.conditions[0].message == expected
    progress, status = stepped(
        a_job(pod_failure_policy=PodFailurePolicy(rules=(on_exit(IGNORE, "In", 42),)), **policy), pods
    )
    assert (states(status), status.failed, names(progress.counted), len(progress.missing)) == ({}, 0, ["p"], 1)
    _, status = stepped(a_job(pod_failure_policy=PodFailurePolicy(rules=(on_exit(COUNT, "In", 42),)), **policy), pods)
    assert states(status)["Failed"] == "BackoffLimitExceeded"


def test_a_failure_may_end_its_index() -> None:
    policy = PodFailurePolicy(rules=(on_exit(FAIL_INDEX, "In", 42),))
    job = a_job(
        completion_mode="Indexed", completions=2, parallelism=2, backoff_limit_per_index=6, pod_failure_policy=policy
    )
    progress, status = stepped(job, [a_pod("p", "Failed", index=0, exits=(("app", 42),))])
    assert ([one.index for one in progress.missing], status.failed_indexes) == ([1], "0")


#: (indexes, count) of a rule, indexes that have succeeded -> whether that is enough
ENOUGH = {
    ("0", None, "0"): True,
    ("0", None, "1-3"): False,
    ("0-2", 2, "0,2"): True,
    ("0-2", 2, "0,3"): False,
    ("0-2", 2, "0-2"): True,
    (None, 2, "1,3"): True,
    (None, 3, "1,3"): False,
    (None, 0, ""): False,
}


@pytest.mark.parametrize(("rule", "is_enough"), ENOUGH.items())
def test_what_success_is_enough(rule: tuple[str | None, int | None, str], is_enough: bool) -> None:
    policy = SuccessPolicy(rules=(SuccessPolicyRule(succeeded_indexes=rule[0], succeeded_count=rule[1]),))
    spec = JobSpec(completions=4, completion_mode="Indexed", success_policy=policy)
    assert bool(enough_succeeded(spec, IndexSet.read(rule[2], 4))) is is_enough


def test_a_success_policy_stops_the_others_without_counting_them() -> None:
    policy = SuccessPolicy(rules=(SuccessPolicyRule(succeeded_indexes="0"),))
    job = a_job(completion_mode="Indexed", completions=2, parallelism=2, success_policy=policy)
    progress, status = stepped(job, [a_pod("a", "Succeeded", index=0), a_pod("b", index=1)])
    assert (names(progress.going), states(status)) == (["b"], {"SuccessCriteriaMet": "SuccessPolicy"})
    assert (status.failed, sorted(names(progress.counted))) == (0, ["a", "b"])
    _, status = stepped(replace(job, status=status), [a_pod("a", "Succeeded", index=0, is_tracked=False)])
    assert (states(status)["Complete"], status.completed_indexes) == ("SuccessPolicy", "0")


# Extreme numbers ------------------------------------------------------------------------------------------------------

HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"parallelism": HUGE}, id="a work queue"),
        pytest.param({"parallelism": HUGE, "completions": HUGE, "backoff_limit": HUGE}, id="completions"),
        pytest.param({"completion_mode": "Indexed", "parallelism": 100_000, "completions": HUGE}, id="indexes"),
        pytest.param(
            {
                "completion_mode": "Indexed",
                "parallelism": 100_000,
                "completions": 100_000,
                "backoff_limit_per_index": HUGE,
            },
            id="indexes with retries",
        ),
    ],
)
def test_a_step_costs_no_more_than_the_pods_that_it_makes(spec: dict[str, Any]) -> None:
    job = a_job(**spec)
    tracemalloc.start()
    try:
        found = Progress(job, [], NOW, most=100)
        found.step()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(found.missing), found.is_more) == (100, True)
    assert peak < 200_000


def test_a_pod_that_is_counted_is_not_judged_again() -> None:
    """What it said was heeded when it was counted; a Job may have thousands of them."""
    codes = PodFailurePolicyOnExitCodesRequirement(operator=IN, values=(42,))
    policy = PodFailurePolicy(rules=(PodFailurePolicyRule(action=FAIL_JOB, on_exit_codes=codes),))
    pod = a_pod("p", "Failed", is_tracked=False, exits=(("app", 42),))
    found = Progress(a_job(pod_failure_policy=policy), [pod], NOW, most=100)
    found.step()
    assert len(found.missing) == 1
