"""A Job runs its pods, counts each once, ends as it should, and leaves nothing that holds a pod."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.quotas import RESOURCE_QUOTA
from claims.kinds.registration import POD
from manciple.api import verbs
from manciple.store import garbage, objects, sql
from manciple.wire.base import LabelSelector, condition_of
from manciple.wire.errors import Invalid
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import DeleteOptions
from tests.builders import make_pod, make_quota
from tests.workloads.cluster import NAMESPACE, Cluster, make_job, make_job_template
from tests.workloads.test_replica_sets import owners
from workloads import pod_control, view
from workloads.controllers import jobs
from workloads.kinds.jobs import INDEX, JOB, NAME_LABELS, TRACKED, UID_LABELS, Job

FINALIZED = (TRACKED,)


def tracked(pods: list[Pod]) -> list[bool]:
    return [TRACKED in pod.metadata.finalizers for pod in pods]


def running(cluster: Cluster) -> list[Pod]:
    return [pod for pod in cluster.pods() if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]


def succeed(cluster: Cluster, *, of_index: str = "") -> None:
    for pod in running(cluster):
        if not of_index or pod.metadata.annotations[INDEX] == of_index:
            cluster.end(pod, "Succeeded")


def suspend(cluster: Cluster, *, value: bool) -> None:
    cluster.edit(JOB, "job", lambda job: replace(job, spec=replace(job.spec, suspend=value)))


def states(job: Job) -> set[str]:
    return {one.type for one in job.status.conditions if one.status == "True"}


def remove(name: str = "job", propagation: str = "Background") -> None:
    options = DeleteOptions(propagation_policy=propagation or None)
    verbs.delete(JOB, namespace=NAMESPACE, name=name, identity=SYSTEM, options=options)
    while garbage.collect():
        pass


def let_terminate(cluster: Cluster) -> None:
    """What agents do with the pods that are being deleted."""
    for pod in cluster.pods():
        if pod.metadata.deletion_timestamp is not None:
            cluster.delete(POD, pod.metadata.name)


# The selector ---------------------------------------------------------------------------------------------------------


def test_the_selector_is_made_of_the_uid(cluster: Cluster) -> None:
    job = cluster.create(JOB, make_job())
    labels = {**dict.fromkeys(UID_LABELS, job.metadata.uid), **dict.fromkeys(NAME_LABELS, "job")}
    assert job.spec.selector == LabelSelector(match_labels={UID_LABELS[0]: job.metadata.uid})
    assert job.spec.template.metadata.labels == labels == job.metadata.labels
    cluster.run()
    (pod,) = cluster.pods()
    assert (owners(pod), pod.metadata.labels, pod.metadata.finalizers) == (["job"], labels, FINALIZED)


def test_each_generated_name_has_its_own_selector(cluster: Cluster) -> None:
    made = [cluster.create(JOB, make_job("", meta={"generate_name": "job-"})) for _ in range(2)]
    assert [one.metadata.labels["job-name"] for one in made] == [one.metadata.name for one in made]
    assert len({one.spec.selector.match_labels[UID_LABELS[0]] for one in made}) == 2


def test_a_selector_that_lies_about_the_uid_is_refused(cluster: Cluster) -> None:
    selector = LabelSelector(match_labels={UID_LABELS[0]: "someone-elses"})
    with pytest.raises(Invalid, match="auto-generated"):
        cluster.create(JOB, make_job(selector=selector))


def test_a_manual_selector_adopts_what_it_selects(cluster: Cluster) -> None:
    cluster.create(POD, make_pod("bare", meta={"labels": {"app": "x"}}))
    template = make_job_template()
    template = replace(template, metadata=replace(template.metadata, labels={"app": "x"}))
    selector = LabelSelector(match_labels={"app": "x"})
    cluster.create(JOB, make_job(manual_selector=True, selector=selector, template=template))
    cluster.run()
    (pod,) = cluster.pods()
    assert (pod.metadata.name, owners(pod), pod.metadata.finalizers) == ("bare", ["job"], FINALIZED)


# Its pods -------------------------------------------------------------------------------------------------------------


def test_it_ends_when_all_have_succeeded(cluster: Cluster) -> None:
    cluster.create(JOB, make_job(parallelism=2, completions=3))
    for _ in range(2):
        cluster.run()
        cluster.let_run()
        cluster.run()
        succeed(cluster)
    cluster.run()
    status = cluster.job().status
    assert (status.succeeded, status.active, status.ready, status.terminating) == (3, 0, 0, 0)
    assert states(cluster.job()) == {"SuccessCriteriaMet", "Complete"}
    assert tracked(cluster.pods()) == [False] * 3


def test_pods_of_an_indexed_job_know_their_index(cluster: Cluster) -> None:
    cluster.create(JOB, make_job("j", completion_mode="Indexed", completions=2, parallelism=2))
    cluster.run()
    pods = sorted(cluster.pods(), key=lambda pod: pod.metadata.name)
    assert (
        [pod.metadata.annotations[INDEX] for pod in pods] == ["0", "1"] == [pod.metadata.labels[INDEX] for pod in pods]
    )
    assert [pod.spec.hostname for pod in pods] == ["j-0", "j-1"]
    assert all(pod.metadata.name.startswith(f"j-{place}-") for place, pod in enumerate(pods))
    variables = [(one.name, one.value_from.field_ref.field_path) for one in pods[0].spec.containers[0].env]  # type: ignore[union-attr]
    assert variables == [("JOB_COMPLETION_INDEX", f"metadata.labels['{INDEX}']")]
    cluster.let_run()
    succeed(cluster, of_index="1")
    cluster.run()
    assert (cluster.job("j").status.completed_indexes, len(cluster.pods())) == ("1", 2)


def test_the_index_stays_in_a_long_name(cluster: Cluster) -> None:
    cluster.create(JOB, make_job("j" * 60, completion_mode="Indexed", completions=1))
    cluster.run()
    (pod,) = cluster.pods()
    assert pod.metadata.name[:-5].endswith("-0-")
    assert len(pod.metadata.name) == 63


def test_a_failed_pod_is_replaced_after_a_while_until_there_were_too_many(cluster: Cluster) -> None:
    cluster.create(JOB, make_job(backoff_limit=1))
    cluster.run()
    cluster.let_run()
    cluster.end(running(cluster)[0])
    cluster.run()
    assert (len(cluster.pods()), cluster.job().status.failed) == (1, 1)
    cluster.pass_time(11)
    cluster.run()
    assert len(cluster.pods()) == 2
    cluster.let_run()
    cluster.end(running(cluster)[0])
    cluster.run()
    assert (cluster.job().status.failed, states(cluster.job())) == (2, {"FailureTarget", "Failed"})
    assert tracked(cluster.pods()) == [False, False]


def test_it_can_be_suspended_and_resumed(cluster: Cluster) -> None:
    cluster.create(JOB, make_job(parallelism=2, completions=2))
    cluster.run()
    cluster.let_run()
    suspend(cluster, value=True)
    cluster.run()
    assert all(pod.metadata.deletion_timestamp for pod in cluster.pods())
    let_terminate(cluster)
    cluster.run()
    status = cluster.job().status
    assert (cluster.pods(), status.failed, status.start_time, states(cluster.job())) == ([], 0, None, {"Suspended"})
    suspend(cluster, value=False)
    cluster.run()
    assert (len(cluster.pods()), states(cluster.job())) == (2, set())


def test_only_what_says_where_pods_go_may_change_while_it_is_suspended(cluster: Cluster) -> None:
    cluster.create(JOB, make_job(suspend=True))

    def with_template(job: Job, **spec: Any) -> Job:
        template = job.spec.template
        return replace(job, spec=replace(job.spec, template=replace(template, spec=replace(template.spec, **spec))))

    cluster.edit(JOB, "job", lambda job: with_template(job, node_selector={"zone": "a"}))
    assert cluster.job().spec.template.spec.node_selector == {"zone": "a"}
    with pytest.raises(Invalid, match="immutable"):
        cluster.edit(JOB, "job", lambda job: with_template(job, service_account_name="other"))
    suspend(cluster, value=False)
    cluster.run()
    with pytest.raises(Invalid, match="immutable"):
        cluster.edit(JOB, "job", lambda job: with_template(job, node_selector={"zone": "b"}))


def test_a_deadline_ends_it_when_the_time_has_come(cluster: Cluster) -> None:
    cluster.create(JOB, make_job(active_deadline_seconds=30))
    cluster.run()
    cluster.let_run()
    cluster.run()
    cluster.pass_time(31)
    cluster.run()
    let_terminate(cluster)
    cluster.run()
    failed = condition_of(cluster.job().status.conditions, "Failed")
    assert failed is not None
    assert (failed.reason, cluster.job().status.failed, cluster.pods()) == ("DeadlineExceeded", 1, [])


def test_many_pods_take_several_transactions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_control, "BURST", 3)
    monkeypatch.setattr(pod_control, "SHARE", 0.0)
    cluster.create(JOB, make_job(parallelism=8, completions=8))
    made = []
    while jobs.reconcile(cluster.now):
        made.append(len(cluster.pods()))
    assert made[:3] == [3, 6, 8]
    cluster.let_run()
    succeed(cluster)
    counted = []
    while jobs.reconcile(cluster.now):
        counted.append(cluster.job().status.succeeded)
    assert counted == [3, 6, 8]


def test_what_is_refused_is_told_and_tried_again(cluster: Cluster) -> None:
    cluster.create(RESOURCE_QUOTA, make_quota({"pods": "1"}))
    cluster.create(JOB, make_job(parallelism=2, completions=2))
    cluster.run()
    assert (len(cluster.pods()), cluster.job().status.active) == (1, 1)
    cluster.let_run()
    succeed(cluster)
    cluster.pass_time(6)
    cluster.run()
    assert (len(running(cluster)), len(cluster.pods()), cluster.job().status.succeeded) == (0, 2, 1)


def test_another_manager_is_left_alone(cluster: Cluster) -> None:
    cluster.create(JOB, make_job(managed_by="example.com/queue"))
    cluster.run()
    assert (cluster.pods(), cluster.job().status.start_time) == ([], None)


# Two that do the same -------------------------------------------------------------------------------------------------


def test_a_step_that_was_taken_already_is_not_taken_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process has written since the Job was looked at is noticed in the transaction."""
    cluster.create(JOB, make_job(parallelism=2, completions=2))
    with view.current() as current:
        assert current is not None
        (job,) = current.take(view.JOBS, cluster.now, 1)
        assert isinstance(job, Job)
        turn = jobs._look(current, job)
    view.come_back(view.JOBS, {job.key: 0})
    cluster.run()
    assert len(cluster.pods()) == 2
    monkeypatch.setattr(jobs, "_look", lambda _view, _job: turn)
    view.come_back(view.JOBS, {job.key: 0})
    jobs.reconcile(cluster.now)
    assert (len(cluster.pods()), cluster.job().status.active) == (2, 2)


def test_a_pod_that_was_counted_already_is_not_counted_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create(JOB, make_job(parallelism=2, completions=5))
    cluster.run()
    cluster.let_run()
    succeed(cluster)
    with view.current() as current:
        assert current is not None
        turn = jobs._look(current, cluster.job())
    cluster.run()
    assert cluster.job().status.succeeded == 2
    monkeypatch.setattr(jobs, "_look", lambda _view, _job: turn)
    view.come_back(view.JOBS, {("default", "job"): 0})
    jobs.reconcile(cluster.now)
    assert cluster.job().status.succeeded == 2


# What is left ---------------------------------------------------------------------------------------------------------


def test_without_options_its_pods_stay_and_nothing_holds_them(cluster: Cluster) -> None:
    cluster.create(JOB, make_job())
    cluster.run()
    cluster.let_run()
    remove(propagation="")
    cluster.run()
    (pod,) = cluster.pods()
    assert (owners(pod), pod.metadata.finalizers, cluster.jobs()) == ([], (), [])
    cluster.delete(POD, pod.metadata.name)
    assert not cluster.pods()


def test_an_orphan_that_is_being_deleted_goes_with_its_finalizer(cluster: Cluster) -> None:
    cluster.create(JOB, make_job())
    cluster.run()
    (pod,) = cluster.pods()
    cluster.delete(POD, pod.metadata.name)
    assert len(cluster.pods()) == 1
    remove(propagation="Orphan")
    assert not cluster.pods()


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_its_pods_go_with_it(cluster: Cluster, propagation: str) -> None:
    cluster.create(JOB, make_job(parallelism=3, completions=3))
    cluster.run()
    cluster.let_run()
    for _ in range(4):
        if cluster.jobs():
            remove(propagation=propagation)
        cluster.run()
        let_terminate(cluster)
        cluster.run()
        while garbage.collect():
            pass
    assert (cluster.pods(), cluster.jobs()) == ([], [])
    assert not sql.fetch(*view.ANY)[0][0]


def test_pods_that_outlive_the_last_job_are_let_go_after_a_restart(cluster: Cluster) -> None:
    """No workload is left, and the process that knew of one is gone: the pods are found all the same."""
    cluster.create(JOB, make_job(parallelism=2, completions=2))
    cluster.run()
    cluster.let_run()
    remove()
    let_terminate(cluster)
    view._follower.reset()
    assert (len(cluster.pods()), cluster.jobs()) == (2, [])
    assert sql.fetch(*view.ANY)[0][0]
    cluster.run()
    assert not cluster.pods()


def test_it_goes_when_its_time_to_live_is_over(cluster: Cluster) -> None:
    cluster.create(JOB, make_job(ttl_seconds_after_finished=60))
    cluster.run()
    cluster.let_run()
    succeed(cluster)
    cluster.run()
    cluster.pass_time(59)
    cluster.run()
    assert len(cluster.jobs()) == 1
    cluster.pass_time(2)
    cluster.run()
    while garbage.collect():
        pass
    let_terminate(cluster)
    while garbage.collect():
        pass
    assert (cluster.jobs(), cluster.pods()) == ([], [])


def test_two_thousand_jobs_are_no_burden_to_a_pod_that_nobody_controls(cluster: Cluster) -> None:
    """Only Jobs with a selector of their own are asked whether they select it."""
    for number in range(3):
        cluster.create(JOB, make_job(f"job-{number}"))
    cluster.run()
    with view.current() as current:
        assert current is not None
        assert not current._adopting
        assert not current.fresh


def test_objects_of_the_store_are_as_they_were(cluster: Cluster) -> None:
    """A Job that is written directly has its selector, too."""
    with objects.writing(identity=SYSTEM) as writer:
        made: Any = writer.create(JOB, JOB.prepare_create(make_job("direct")))
    assert made.spec.selector.match_labels == {UID_LABELS[0]: made.metadata.uid}
