"""The scheduling queue, and samples of how devices were used.

The queue is derived: dropping every row costs a re-seed from the pod index (`queue.reseed`), never a wrong decision.
Of the samples, only the sizes of classes are read by the scheduler (`scheduling.state.fair_share`).
"""

from __future__ import annotations

from django.db import models
from django.db.models import Exists, OuterRef
from django.urls import reverse

from claims.models import Pod
from inventory.models import NAME
from manciple.people import OfNamespace, RestrictedQuerySet


class QueuedPods(RestrictedQuerySet["QueuedPod"]):
    """Rows of the queue."""

    def waiting(self) -> QueuedPods:
        """Without those whose pod is bound or gone. The index knows that with the write, the queue a moment later, and
        nothing makes a page ask again then.
        """
        return self.filter(Exists(Pod.objects.filter(uid=OuterRef("uid"), node_name="")))


class QueuedPod(models.Model):
    """A pod without a node. The row goes when the pod is bound, finished or gone."""

    class State(models.TextChoices):
        ACTIVE = "active"  #: to be tried now
        BACKOFF = "backoff"  #: to be tried at `not_before`
        UNSCHEDULABLE = "unschedulable"  #: waits for an event that lifts one of `held_by`, or for `not_before`

    # Columns of the first releases: wider than the API allows, which costs nothing.
    uid = models.CharField(max_length=64, primary_key=True)
    namespace = models.CharField(max_length=253)
    name = models.CharField(max_length=253)
    #: metadata.generation that the last attempt saw
    generation = models.BigIntegerField(default=0)
    priority = models.IntegerField(default=0)
    created_at = models.DateTimeField()
    #: the pod's resourceVersion when it came here: tells apart what was created in the same second
    revision = models.BigIntegerField(default=0)
    state = models.CharField(max_length=16, choices=State.choices, default=State.ACTIVE)
    attempts = models.IntegerField(default=0)
    not_before = models.DateTimeField(null=True)
    #: in backoff: an event may have helped, so it may be tried before `not_before`
    woken = models.BooleanField(default=False, db_default=False)
    #: `scheduling.queue.reasons.Reason` bits; 0 unless unschedulable
    held_by = models.IntegerField(default=0)
    #: keys of the objects awaited by name
    awaited = models.JSONField(default=list)
    #: `claims.causes.causes` as JSON; "" until it was tried
    cause = models.TextField(default="")
    #: when the state was last decided
    parked_at = models.DateTimeField(null=True)

    readable = OfNamespace()
    objects = QueuedPods.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["state", "-priority", "created_at", "revision"], name="queue_order"),
            models.Index(fields=["state", "parked_at"], name="queue_parked"),
            models.Index(fields=["not_before"], condition=models.Q(not_before__isnull=False), name="queue_due"),
            models.Index(fields=["namespace", "name"], name="queue_pod_name"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.state})"

    def get_absolute_url(self) -> str:
        return reverse("pod", args=(self.namespace, self.name))


class UsageSample(models.Model):
    """How many devices were in which state at a minute: of all devices ("" as the class), or of those of one class."""

    at = models.DateTimeField()  # truncated to the minute
    device_class = models.CharField(max_length=NAME)
    counts = models.JSONField()  # state (as in dashboard.inventory.devices.grid) -> devices
    waiting = models.IntegerField()  # pods without a node that ask for the class; for "", all that wait
    #: of a class, in devices: what is free, shares and partitions too, and how much of that is expected to stay unused
    free = models.FloatField(null=True)
    stranded = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["at", "device_class"], name="usage_sample_once")]
        indexes = [models.Index(fields=["device_class", "at"], name="usage_sample_class")]

    def __str__(self) -> str:
        return f"{self.device_class or 'all'} at {self.at:%Y-%m-%d %H:%M}"
