"""What a mirror remembers of the cluster that it copies; the tables of every other installation are empty.

Only `replicator` and its parts write here, everybody else reads through `standing`. No document tells any of it:
`reindex` leaves these rows alone.
"""

from __future__ import annotations

from django.db import models

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
