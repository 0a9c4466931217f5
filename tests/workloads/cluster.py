"""Workloads in a database without nodes: their controllers take turns, and pods run because the test says so."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.pods import Pod, PodCondition, PodSpec
from claims.kinds.registration import POD
from manciple.api import verbs
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import LabelSelector, ObjectMeta, timestamp
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import Kind
from workloads.controllers import cron_jobs, daemon_sets, deployments, jobs, replica_sets, stateful_sets
from workloads.kinds.cron_jobs import CRON_JOB, CronJob, CronJobSpec, JobTemplateSpec
from workloads.kinds.daemon_sets import DAEMON_SET, DaemonSet, DaemonSetSpec
from workloads.kinds.deployments import DEPLOYMENT, Deployment, DeploymentSpec
from workloads.kinds.jobs import JOB, Job, JobSpec
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet, ReplicaSetSpec
from workloads.kinds.stateful_sets import STATEFUL_SET, StatefulSet, StatefulSetSpec
from workloads.kinds.templates import PodTemplateSpec

NAMESPACE = "default"
START = datetime(2026, 11, 27, 12, tzinfo=UTC)


def make_pod_template(image: str = "app:1", labels: dict[str, str] | None = None) -> PodTemplateSpec:
    return PodTemplateSpec(
        metadata=ObjectMeta(labels={"app": "x"} if labels is None else labels),
        spec=PodSpec(containers=(Container(name="app", image=image),)),
    )


def make_replica_set(name: str = "rs", *, replicas: int = 2, **spec: Any) -> ReplicaSet:
    filled = {"selector": LabelSelector(match_labels={"app": "x"}), "template": make_pod_template(), **spec}
    return ReplicaSet(
        api_version="apps/v1",
        kind="ReplicaSet",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=ReplicaSetSpec(replicas=replicas, **filled),
    )


def make_deployment(name: str = "web", *, replicas: int = 2, image: str = "app:1", **spec: Any) -> Deployment:
    filled = {"selector": LabelSelector(match_labels={"app": "x"}), "template": make_pod_template(image), **spec}
    return Deployment(
        api_version="apps/v1",
        kind="Deployment",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=DeploymentSpec(replicas=replicas, **filled),
    )


def make_daemon_set(name: str = "ds", *, image: str = "app:1", **spec: Any) -> DaemonSet:
    filled = {"selector": LabelSelector(match_labels={"app": "x"}), "template": make_pod_template(image), **spec}
    return DaemonSet(
        api_version="apps/v1",
        kind="DaemonSet",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=DaemonSetSpec(**filled),
    )


def make_job_template(image: str = "app:1", *, restart: str = "Never") -> PodTemplateSpec:
    return PodTemplateSpec(spec=PodSpec(containers=(Container(name="app", image=image),), restart_policy=restart))


def make_job(name: str = "job", *, meta: dict[str, Any] | None = None, **spec: Any) -> Job:
    return Job(
        api_version="batch/v1",
        kind="Job",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, **(meta or {})),
        spec=JobSpec(**{"template": make_job_template(), **spec}),
    )


def make_cron_job(name: str = "cron", *, schedule: str = "* * * * *", **spec: Any) -> CronJob:
    template = JobTemplateSpec(metadata=ObjectMeta(labels={"from": "cron"}), spec=JobSpec(template=make_job_template()))
    return CronJob(
        api_version="batch/v1",
        kind="CronJob",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=CronJobSpec(schedule=schedule, **{"job_template": template, **spec}),
    )


def make_stateful_set(name: str = "db", *, replicas: int = 3, image: str = "app:1", **spec: Any) -> StatefulSet:
    filled = {"selector": LabelSelector(match_labels={"app": "x"}), "template": make_pod_template(image), **spec}
    return StatefulSet(
        api_version="apps/v1",
        kind="StatefulSet",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=StatefulSetSpec(replicas=replicas, service_name=name, **filled),
    )


#: Each looks after its kind.
CONTROLLERS = (
    cron_jobs.reconcile,
    daemon_sets.reconcile,
    deployments.reconcile,
    jobs.reconcile,
    replica_sets.reconcile,
    stateful_sets.reconcile,
)


class Cluster:
    def __init__(self) -> None:
        self.now = START

    # What a client does -----------------------------------------------------------------------------------------------

    def create(self, kind: Kind, obj: Any) -> Any:
        return verbs.create(kind, obj, namespace=NAMESPACE, identity=SYSTEM)

    def edit(self, kind: Kind, name: str, change: Any) -> Any:
        """change: the object -> its successor."""
        return verbs.modify(kind, change, namespace=NAMESPACE, name=name, identity=SYSTEM).object

    def scale(self, name: str, replicas: int, kind: Kind = DEPLOYMENT) -> None:
        self.edit(kind, name, lambda one: replace(one, spec=replace(one.spec, replicas=replicas)))

    def set_image(self, name: str, image: str, kind: Kind = DEPLOYMENT) -> None:
        def change(one: Any) -> Any:
            template = one.spec.template
            (container,) = template.spec.containers
            spec = replace(template.spec, containers=(replace(container, image=image),))
            return replace(one, spec=replace(one.spec, template=replace(template, spec=spec)))

        self.edit(kind, name, change)

    def delete(self, kind: Kind, name: str) -> None:
        with objects.writing() as writer:
            writer.delete(kind, NAMESPACE, name, grace_seconds=0)

    # What is there ----------------------------------------------------------------------------------------------------

    def pods(self) -> list[Pod]:
        return [decoded(one, Pod) for one in objects.list(POD, namespace=NAMESPACE).items]

    def replica_sets(self) -> dict[str, ReplicaSet]:
        """By revision, where a Deployment controls them; else by name."""
        found = (decoded(one, ReplicaSet) for one in objects.list(REPLICA_SET, namespace=NAMESPACE).items)
        return {
            one.metadata.annotations.get("deployment.kubernetes.io/revision", one.metadata.name): one for one in found
        }

    def replica_set(self, name: str = "rs") -> ReplicaSet:
        return decoded(objects.get(REPLICA_SET, NAMESPACE, name), ReplicaSet)  # type: ignore[arg-type]  # it is there

    def daemon_set(self, name: str = "ds") -> DaemonSet:
        return decoded(objects.get(DAEMON_SET, NAMESPACE, name), DaemonSet)  # type: ignore[arg-type]  # it is there

    def job(self, name: str = "job") -> Job:
        return decoded(objects.get(JOB, NAMESPACE, name), Job)  # type: ignore[arg-type]  # it is there

    def jobs(self) -> list[Job]:
        return [decoded(one, Job) for one in objects.list(JOB, namespace=NAMESPACE).items]

    def cron_job(self, name: str = "cron") -> CronJob:
        return decoded(objects.get(CRON_JOB, NAMESPACE, name), CronJob)  # type: ignore[arg-type]  # it is there

    def stateful_set(self, name: str = "db") -> StatefulSet:
        return decoded(objects.get(STATEFUL_SET, NAMESPACE, name), StatefulSet)  # type: ignore[arg-type]  # it is there

    def deployment(self, name: str = "web") -> Deployment:
        return decoded(objects.get(DEPLOYMENT, NAMESPACE, name), Deployment)  # type: ignore[arg-type]  # it is there

    def sizes(self) -> dict[str, int]:
        """revision -> the size of its ReplicaSet"""
        return {revision: one.spec.replicas or 0 for revision, one in self.replica_sets().items()}

    # What happens -----------------------------------------------------------------------------------------------------

    def run(self, *, turns: int = 50) -> None:
        """All controllers, until none has anything to do."""
        for _ in range(turns):
            if not sum([reconcile(self.now) for reconcile in CONTROLLERS]):
                return
        raise AssertionError("the controllers find no rest")

    def let_run(self, pods: Iterable[Pod] | None = None, *, ready: bool = True) -> None:
        """Give these pods a node, where they are running; all that there are, unless some are named."""
        for pod in self.pods() if pods is None else pods:
            if pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp is not None:
                continue
            self._write(pod, "Running", ready=ready)

    def end(self, pod: Pod, phase: str = "Failed") -> None:
        self._write(pod, phase, ready=False)

    def reap(self) -> None:
        """What agents do with pods that are being deleted."""
        for pod in self.pods():
            if pod.metadata.deletion_timestamp is not None:
                self.delete(POD, pod.metadata.name)

    def settle(self) -> None:
        """Let everything happen that happens by itself: pods run, deleted ones go."""
        for _ in range(50):
            before = objects.list(POD, namespace=NAMESPACE).revision
            self.run()
            self.let_run()
            self.reap()
            self.run()
            if objects.list(POD, namespace=NAMESPACE).revision == before:
                return
        raise AssertionError("the cluster finds no rest")

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _write(self, pod: Pod, phase: str, *, ready: bool) -> None:
        condition = PodCondition(
            type="Ready", status="True" if ready else "False", last_transition_time=timestamp(self.now)
        )
        known = next((one for one in pod.status.conditions if one.type == "Ready"), None)
        if known is not None and known.status == condition.status and pod.status.phase == phase:
            return
        with objects.writing() as writer:
            status = replace(pod.status, phase=phase, conditions=(condition,))
            spec = replace(pod.spec, node_name=PodFacts.of(pod).target or "node-1")
            writer.update(POD, replace(pod, spec=spec, status=status))
