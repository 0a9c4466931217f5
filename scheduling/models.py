"""The scheduler's own tables: the queue, and how far each follower of the event log has read.

Both are derived: dropping every row costs a re-seed from the pod index (`queue.reseed`) and a second look at objects
that were looked at before, never a wrong decision.
"""

from __future__ import annotations

from django.db import models


class QueuedPod(models.Model):
    """A pod without a node. The row goes when the pod is bound, finished or gone."""

    class State(models.TextChoices):
        ACTIVE = "active"  #: to be tried now
        BACKOFF = "backoff"  #: to be tried at `not_before`
        UNSCHEDULABLE = "unschedulable"  #: waits for an event that lifts one of `held_by`

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
    #: `scheduling.reasons.Reason` bits; 0 unless unschedulable
    held_by = models.IntegerField(default=0)
    #: keys of the objects awaited by name
    awaited = models.JSONField(default=list)
    message = models.TextField(default="")
    #: when the state was last decided
    parked_at = models.DateTimeField(null=True)
    #: the worker that is scheduling it, until when; an expired lease is free for all
    worker = models.CharField(max_length=64, default="")
    leased_until = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["state", "-priority", "created_at", "revision"], name="queue_order"),
            models.Index(fields=["namespace", "name"], name="queue_pod_name"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.state})"


class Cursor(models.Model):
    """How far `name` has read the event log, and who is reading on."""

    name = models.CharField(max_length=64, primary_key=True)
    revision = models.BigIntegerField(default=0)
    worker = models.CharField(max_length=64, default="")
    leased_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} at {self.revision}"
