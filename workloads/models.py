"""The index tables of workloads, Deployments, Jobs and the like, and of autoscalers, as lists show them; and what
autoscalers remember.

Every row of the first two is a projection of one object (`workloads.projectors`), written in the transaction that
writes the object, and can be rebuilt from the documents by `manage.py reindex`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.urls import reverse

from inventory.models import LABEL, NAME, UID
from manciple.people import OfNamespace, Person, RestrictedManager
from workloads.kinds.horizontal_pod_autoscalers import HORIZONTAL_POD_AUTOSCALER
from workloads.kinds.summaries import SUMMARIES


@dataclass(frozen=True)
class OfTheirNamespaces:
    """Rows of several resources: each is readable where the person sees the namespace and may list its resource."""

    def restrict(self, rows: Any, person: Person) -> Any:
        readable = Q(pk__in=())
        for resource in SUMMARIES:
            if person.namespaces is None and person.may("list", resource):
                readable |= Q(resource=resource)
                continue
            seen: Iterable[str] | None = person.namespaces
            if seen is None:
                seen = rows.order_by().values_list("namespace", flat=True).distinct()
            readable |= Q(resource=resource, namespace__in=[one for one in seen if person.may("list", resource, one)])
        return rows.filter(readable)


class Workload(models.Model):
    """One Deployment, ReplicaSet, DaemonSet, StatefulSet, Job or CronJob."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    #: `deployments.apps`
    resource = models.CharField(max_length=NAME)
    #: uid of the workload that controls it, such as a ReplicaSet's Deployment; ""
    controller_uid = models.CharField(max_length=UID)
    created_at = models.DateTimeField()
    #: pods, or completions, that there shall be, and how many of them are ready, or have succeeded
    wanted = models.BigIntegerField()
    ready = models.BigIntegerField()
    #: a value of `workloads.kinds.summaries.State`
    state = models.CharField(max_length=16)
    #: why it is stuck or has failed, as a sentence; ""
    reason = models.TextField()
    #: of a Job: when it began and ended
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    #: of a Job: spec.activeDeadlineSeconds
    time_limit = models.BigIntegerField(null=True)

    readable = OfTheirNamespaces()
    objects: ClassVar[RestrictedManager[Workload]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["resource", "namespace", "name"], name="workload_key")]
        indexes = [
            models.Index(fields=["controller_uid"], name="workload_controller"),
            models.Index(fields=["namespace"], name="workload_namespace"),
        ]

    def __str__(self) -> str:
        return f"{self.resource} {self.namespace}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("workload", args=(self.resource.partition(".")[0], self.namespace, self.name))


class Autoscaler(models.Model):
    """One HorizontalPodAutoscaler."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    created_at = models.DateTimeField()
    #: what it scales, as its spec names it: `Deployment`, `web`
    target_kind = models.TextField()
    target_name = models.TextField()
    #: the fewest and the most pods that its target gets, and how many it had and should have when that was looked at
    least = models.BigIntegerField()
    most = models.BigIntegerField()
    replicas = models.BigIntegerField()
    desired = models.BigIntegerField()
    #: what each metric is and shall be: "cpu 42% of 80%"
    metrics = models.TextField()
    last_scaled_at = models.DateTimeField(null=True)
    #: a value of `workloads.kinds.autoscaler_summaries.AutoscalerState`
    state = models.CharField(max_length=16)
    #: why it is not active, as a sentence; ""
    reason = models.TextField()

    readable = OfNamespace(resource=HORIZONTAL_POD_AUTOSCALER.resource)
    objects: ClassVar[RestrictedManager[Autoscaler]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="autoscaler_key")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("autoscaler", args=(self.namespace, self.name))


class AutoscalerHistory(models.Model):
    """What the controller of HorizontalPodAutoscalers knows of one, in whichever process it runs next."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    #: of the pods that it scales; ""
    selector = models.TextField()
    #: when its turn comes, in POSIX seconds
    due_at = models.FloatField()
    #: a `workloads.recommendations.History` as JSON
    history = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["namespace"], name="autoscaler_namespace")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.uid}"
