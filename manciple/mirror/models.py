"""What a mirror remembers of the cluster that it copies; the tables of every other installation are empty.

Only `replicator` and its parts write here, everybody else reads through `standing`; what the guard remembers is its own
(`manciple.mirror.guard`). No document tells any of it: `reindex` leaves these rows alone.
"""

from __future__ import annotations

from django.db import models

from inventory.models import DRIVER, LABEL, NAME, UID
from manciple.mirror.sources import Reach


class RemoteVersion(models.Model):
    """The remote's resourceVersion of one object that is stored here. Comparable within its resource alone."""

    uid = models.CharField(max_length=36, primary_key=True)
    resource = models.CharField(max_length=253)
    version = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["resource"], name="remote_version_resource")]

    def __str__(self) -> str:
        return f"{self.resource} {self.uid} at {self.version}"


class KindStatus(models.Model):
    """How far one resource of the remote is known."""

    resource = models.CharField(max_length=253, primary_key=True)
    #: in which it is read; "" where it is not served
    version = models.CharField(max_length=16)
    reach = models.CharField(max_length=16, choices=[(one.value, one.value) for one in Reach])
    #: why it cannot be read, or is not current
    detail = models.TextField()
    listed_at = models.DateTimeField(null=True)
    #: the remote confirmed at this time that nothing is missing; null before the first listing
    heard_at = models.DateTimeField(null=True)
    #: objects that could not be understood, and are left out
    unread = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.resource}: {self.reach}"


class RemoteStatus(models.Model):
    """The one row (id 1) of a mirror: which cluster, and whether it answers."""

    id = models.SmallIntegerField(primary_key=True)
    #: the name in the kubeconfig
    context = models.TextField()
    server = models.TextField()
    #: where kinds are listed that may not be listed everywhere
    namespace = models.CharField(max_length=63)
    #: of its software: "v1.34.1"; "" before the first answer
    version = models.CharField(max_length=64)
    #: our feature gates, as it has them
    gates = models.JSONField()
    #: since when nothing has been heard; null while it answers
    away_since = models.DateTimeField(null=True)
    #: why it does not answer
    why = models.TextField()

    def __str__(self) -> str:
        return f"{self.context} at {self.server}"


class DevicePromise(models.Model):
    """A device, or a share of it, that the guard has let a claim have, and that the copy may not show yet."""

    claim_uid = models.CharField(max_length=UID)
    namespace = models.CharField(max_length=LABEL)
    claim = models.CharField(max_length=NAME)
    #: of all that the allocation holds: what one write gives a claim is promised together
    digest = models.CharField(max_length=32)
    #: the remote's version of the claim that the write was to replace
    before = models.TextField()
    #: in POSIX seconds
    promised_at = models.FloatField()
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=LABEL)
    node = models.CharField(max_length=NAME)  # the single node that the allocation names; ""
    share_id = models.CharField(max_length=UID)  # "" where the device is not shared
    consumed_capacity = models.JSONField()
    #: the device is promised to this claim alone; not so while the guard only watches
    exclusive = models.BooleanField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["driver", "pool", "device", "node"],
                condition=models.Q(exclusive=True),
                name="device_promised_once",
            ),
        ]
        indexes = [
            models.Index(fields=["driver", "pool"], name="device_promise_pool"),
            models.Index(fields=["claim_uid"], name="device_promise_claim"),
        ]

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device} to {self.namespace}/{self.claim}"


class GuardFinding(models.Model):
    """A write that gave something twice: refused, or let through by a guard that only watches."""

    at = models.DateTimeField()
    namespace = models.CharField(max_length=LABEL)
    claim = models.CharField(max_length=NAME)
    #: the identity that wrote
    author = models.TextField()
    refused = models.BooleanField()
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    node = models.CharField(max_length=NAME)  # of the pool; "" if it is not on a single node
    device = models.CharField(max_length=LABEL)
    #: why, with the names of the claims that hold it
    message = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["at"], name="guard_finding_at")]

    def __str__(self) -> str:
        return self.message


class SteeredPod(models.Model):
    """A pod that steering chooses the node of; the row stays as long as the pod (`manciple.mirror.steering`)."""

    class State(models.TextChoices):
        WAITING = "waiting"  #: no node takes it yet
        DECIDED = "decided"  #: `node` is to be nominated
        NOMINATED = "nominated"  #: its gate is to be removed
        RELEASED = "released"  #: its scheduler may place it
        FOLLOWED = "followed"  #: it was placed on `node`
        ELSEWHERE = "elsewhere"  #: on another one
        LET_GO = "let-go"  #: its gate was removed without a nomination
        REFUSED = "refused"  #: the cluster refused what was written

    pod_uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    #: the gang whose pods are nominated together; "" for a pod by itself
    group = models.CharField(max_length=NAME + LABEL + 1)
    state = models.CharField(max_length=16, choices=State.choices)
    #: that was chosen; ""
    node = models.CharField(max_length=NAME)
    #: the copy's revision of the pod, and of everything, that the choice was made on
    pod_revision = models.BigIntegerField()
    revision = models.BigIntegerField()
    #: when its time limit ends
    ends_at = models.DateTimeField()
    #: when the state was entered, or the choice confirmed
    at = models.DateTimeField()
    #: when the node was nominated
    nominated_at = models.DateTimeField(null=True)
    #: by its scheduler; "" so far
    placed_on = models.CharField(max_length=NAME)
    #: what the cluster said against it
    message = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["state"], name="steered_pod_state")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}: {self.state}"


def is_earlier(version: str, other: str) -> bool:
    """Whether a version of an object, or of its resource, comes before another. Kubernetes has promised since 1.35 that
    they are numbers; nothing is known of others.
    """
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)
