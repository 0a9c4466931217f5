"""The audit trail, and how far the log is in it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

#: As long as the store's columns of the same name; what a client made up may be longer, and is cut.
NAMESPACE_LENGTH, NAME_LENGTH, RESOURCE_LENGTH, VERB_LENGTH, REASON_LENGTH = 63, 253, 253, 63, 63


class Entry(models.Model):
    """One write of one object; or a request that wrote nothing, and as many like it as came within a moment.

    `id` counts in the order in which entries become visible: who has read up to one misses none before it.
    """

    at = models.DateTimeField()
    #: that was written; null where nothing was
    revision = models.BigIntegerField(null=True)
    #: the Audit-Id header of the answer; "" for what no request asked for
    audit_id = models.CharField(max_length=64)
    #: in whose name; and who did it in that name, "" for whose name it is
    username = models.TextField()
    impersonator = models.TextField()
    verb = models.CharField(max_length=VERB_LENGTH)
    #: "resourceclaims.resource.k8s.io"; "" where the request named none
    resource = models.CharField(max_length=RESOURCE_LENGTH)
    subresource = models.CharField(max_length=NAME_LENGTH)
    namespace = models.CharField(max_length=NAMESPACE_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    uid = models.CharField(max_length=36)
    #: the answer: its HTTP status, and of a refusal reason and message
    code = models.SmallIntegerField()
    reason = models.CharField(max_length=REASON_LENGTH)
    message = models.TextField()
    dry_run = models.BooleanField()
    #: a part of the system did its work: kept for less long
    routine = models.BooleanField()
    #: requests that this entry stands for
    count = models.IntegerField()
    #: JSON: manciple.store.records.Note
    note = models.TextField()
    #: something was changed: a write, a sign-in, a token. Refusals, failures, dry runs and reads have a limit of their
    #: own, so they never take the place of what was done
    wrote = models.BooleanField(db_default=True)

    class Meta:
        indexes = [
            models.Index(fields=["at"], name="audit_at"),
            models.Index(fields=["uid"], condition=~Q(uid=""), name="audit_object"),
            models.Index(fields=["username", "id"], condition=Q(routine=False), name="audit_user"),
            models.Index(fields=["namespace", "id"], condition=Q(routine=False), name="audit_namespace"),
            models.Index(fields=["id"], condition=Q(code__gte=400), name="audit_refused"),
            models.Index(fields=["wrote", "username", "id"], name="audit_share"),
        ]

    def __str__(self) -> str:
        return f"{self.username} {self.verb} {self.resource} {self.namespace}/{self.name}: {self.code}"


class Shortfall(models.Model):
    """Entries of one sender that the limit removed before their time: see `manciple.audit.retention`."""

    sender = models.TextField()
    wrote = models.BooleanField()
    #: up to here, not all that was recorded is there
    until = models.DateTimeField()
    removed = models.BigIntegerField()
    #: when the limit removed the last of them
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sender", "wrote"], name="one_shortfall_a_sender")]

    def __str__(self) -> str:
        return f"{self.sender} up to {self.until}"


class Place(models.Model):
    """The one row (id 1) that whoever adds entries locks first."""

    id = models.SmallIntegerField(primary_key=True)
    #: writes up to here are in the trail
    revision = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.revision)
