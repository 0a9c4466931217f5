"""Runs the pods of Jobs until so many have succeeded, counts them, and says how a Job has ended.

What a Job needs next is `workloads.job_progress`; here it is written: a step of a Job is one transaction, of at most
`BURST` pods that are created, deleted or counted. It begins by making sure that the Job, and how many pods it has, are
as they were looked at, and each pod that it counts loses its finalizer in it. So no pod is created or counted twice,
whatever is killed in between.

A Job that has ended is deleted, with its pods, once its time to live is over. One with another manager (`managedBy`) is
left alone until then.

Source: pkg/controller/job/job_controller.go and pkg/controller/ttlafterfinished of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from claims.kinds.containers import Container, EnvVar, EnvVarSource, ObjectFieldSelector
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.controllers.declaration import DELETING, FINISHED, Controller
from manciple.store import objects, sql
from manciple.store.objects import Writer
from manciple.wire.errors import Conflict
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, MODIFIED, PODS, Key
from manciple.wire.validation import GENERATED_BASE_MAX
from workloads import pod_control
from workloads import view as following
from workloads.job_progress import Missing, Progress, due_after
from workloads.job_tracking import tracked, untrack_strays, untracked
from workloads.kinds.jobs import CONTROLLER_NAME, FAILURES, IGNORED_FAILURES, INDEX, JOB, Job
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.templates import pod_of
from workloads.pod_control import RETRY, Done, PodControl, Work, take_turns
from workloads.view import JOBS, WorkloadView

IDENTITY = controller("job-controller")
#: Who deletes what has outlived its time.
REAPER = controller("ttl-after-finished-controller")
COMPONENT = "job-controller"
#: The variable with a pod's index.
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


@dataclass(frozen=True, slots=True)
class Turn:
    """A Job and its pods. offered: see `WorkloadView.turn_of_pods`."""

    job: Job
    pods: Sequence[PodFacts]
    offered: Collection[Key] | None


def reconcile(now: datetime) -> int:
    with following.current() as view:
        strays = sorted(view.stray)[: pod_control.BURST] if view else []
    freed = sum(untrack_strays(portion, IDENTITY) for portion in sql.chunks(strays, objects.PORTION))
    return freed + take_turns(JOBS, now, _look, _sync)


def _look(view: WorkloadView, job: Job) -> Turn:
    return Turn(job, *view.turn_of_pods(job))


def _sync(turn: Turn, now: datetime) -> Done | Work:
    job = turn.job
    if job.status.is_finished:
        return _after_the_end(turn, now)
    if job.spec.managed_by not in (None, CONTROLLER_NAME):
        return 0, None
    control = PodControl(JOB, job, IDENTITY, COMPONENT)
    released, adopted = control.unselected(turn.pods), list(map(tracked, control.adoptable(turn.offered)))
    leaving = {pod.uid for pod in released}
    pods = [pod for pod in turn.pods if pod.uid not in leaving]
    pods += [PodFacts.of(pod, of_job=True) for pod in adopted]
    progress = Progress(job, pods, now, most=pod_control.BURST)
    progress.step()
    admitted, refusal = control.admitted(job_pod(job, one) for one in progress.missing)
    is_still = not (released or adopted or progress.going or progress.counted or admitted or refusal)
    status = progress.ended(0) if is_still else job.status
    if is_still and status == job.status:
        return 0, progress.later
    known = len(progress.events)

    def write(writer: Writer) -> Done:
        before = writer.revision
        control.check_unchanged(writer, len(turn.pods))
        control.adopt(writer, adopted)
        control.release(writer, released)
        dropped = {pod.uid for pod in progress.dropped}
        _untrack(writer, job, [*released, *progress.counted, *(pod for pod in progress.going if pod.uid in dropped)])
        made, refused = control.make(writer, admitted, refusal, now)
        control.delete(writer, progress.going, now)
        del progress.events[known:]  # of a first attempt
        ended = status if is_still else progress.ended(len(made))
        writer.update(JOB, replace(job, status=ended), subresource="status")
        for event in progress.events:
            control.tell(writer, event.reason, event.message, now, warning=event.warning)
        return writer.revision - before, RETRY if refused is not None else progress.later

    return Work(write, IDENTITY, pods=len(admitted) + len(progress.going))


def _untrack(writer: Writer, job: Job, pods: Iterable[PodFacts]) -> None:
    """Raises: Conflict where one is not the pod that was looked at."""
    namespace, tracking = job.metadata.namespace, [pod for pod in pods if pod.job is not None and pod.job.is_tracked]
    writer.load(POD, [(namespace, pod.name) for pod in tracking])
    for facts in tracking:
        pod = writer.get(POD, namespace, facts.name)
        if pod is None or pod.metadata.uid != facts.uid:
            raise Conflict.of(JOB.resource, job.metadata.name)
        writer.update(POD, untracked(pod))


def _after_the_end(turn: Turn, now: datetime) -> Done | Work:
    """Pods that came too late to be counted are let go; the Job itself goes when its time is over."""
    job, meta = turn.job, turn.job.metadata
    late = [pod for pod in turn.pods if pod.job is not None and pod.job.is_tracked][: pod_control.BURST]
    due = due_after(job.status, job.spec.ttl_seconds_after_finished)
    is_over = due is not None and due <= now.timestamp() and meta.deletion_timestamp is None
    later = None if is_over or meta.deletion_timestamp is not None else due
    if not late and not is_over:
        return 0, later

    def write(writer: Writer) -> Done:
        before = writer.revision
        _untrack(writer, job, late)
        if is_over:
            version = meta.resource_version
            with writer.savepoint(identity=REAPER):
                writer.delete(JOB, *job.key, uid=meta.uid, resource_version=version, propagation="Foreground")
        return writer.revision - before, later

    return Work(write, IDENTITY, pods=len(late))


# Pods -----------------------------------------------------------------------------------------------------------------


def job_pod(job: Job, missing: Missing) -> Pod:
    pod = tracked(pod_of(job.spec.template, job))
    if missing.index < 0:
        return pod
    index, meta = str(missing.index), pod.metadata
    annotations = {**meta.annotations, INDEX: index}
    if missing.failures is not None:
        annotations[FAILURES] = str(missing.failures)
        if missing.ignored:
            annotations[IGNORED_FAILURES] = str(missing.ignored)
    metadata = replace(
        meta,
        generate_name=_base_name(job.metadata.name, f"-{index}-"),
        labels={**meta.labels, INDEX: index},
        annotations=annotations,
    )
    spec = replace(
        pod.spec,
        hostname=f"{job.metadata.name}-{index}",
        containers=tuple(map(_with_index, pod.spec.containers)),
        init_containers=tuple(map(_with_index, pod.spec.init_containers)),
    )
    return replace(pod, metadata=metadata, spec=spec)


def _base_name(name: str, suffix: str) -> str:
    """Short enough that the suffix stays when a name is made of it."""
    return (
        name[: GENERATED_BASE_MAX - len(suffix)] + suffix if len(name + suffix) > GENERATED_BASE_MAX else name + suffix
    )


_FROM_LABEL = EnvVar(
    name=INDEX_VARIABLE,
    value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path=f"metadata.labels['{INDEX}']")),
)


def _with_index(container: Container) -> Container:
    if any(one.name == INDEX_VARIABLE for one in container.env):
        return container
    return replace(container, env=(*container.env, _FROM_LABEL))


CONTROLLER = Controller(
    name="run_jobs",
    does="runs the pods of Jobs, and counts those that have ended",
    reconcile=reconcile,
    every=2,
    wakes_on=frozenset(
        {
            (JOBS, ADDED),
            (JOBS, MODIFIED),
            (JOBS, DELETED),
            (PODS, MODIFIED),
            (PODS, FINISHED),
            (PODS, DELETING),
            (PODS, DELETED),
        }
    ),
    has_work=following.any_or_outlived(JOBS),
    is_work=frozenset({(JOBS, ADDED), (JOBS, MODIFIED)}),
    rests_without_work=True,
    rests_until=partial(pod_control.rests_until, JOBS),
    has_more=partial(pod_control.is_cut_short, JOBS),
    most_per_turn=pod_control.BURST,
    queue_name="job",
)
