"""The tables of the store: the event log, the live objects that point into it, owner links, and the one counter.

A document is written once, as the text the API serves, into `Event`; a `StoredObject` names the event that holds its
object's latest document. An event also names the event it superseded, so the state as of any revision above the pruned
floor can be told: live objects whose event is not newer, plus what newer events superseded. Only `manciple.store`
imports these models.

`labels`, `fields` and their `previous_` twins are compact JSON text (string to string): the database never looks
inside, so plain text is the fastest on both engines.
"""

from __future__ import annotations

from django.db import models

#: "ns" and "name" lengths: a DNS label and a DNS subdomain.
NAMESPACE_LENGTH = 63
NAME_LENGTH = 253
UID_LENGTH = 36
RESOURCE_LENGTH = 253


class Revision(models.Model):
    """The one row (id 1) that every writer locks first; a fresh store is at revision 1 with nothing pruned."""

    id = models.SmallIntegerField(primary_key=True)
    #: the newest revision that is committed
    current = models.BigIntegerField()
    #: every event above this revision is still in the log; reading from below it is Expired
    floor = models.BigIntegerField()
    #: the newest revision that changed what rules go by (`Kind.policy_of`)
    policy = models.BigIntegerField(default=0)
    #: bytes ever written to the log, and how many of them lie at or below the floor
    end_offset = models.BigIntegerField(db_default=0)
    floor_offset = models.BigIntegerField(db_default=0)


class Event(models.Model):
    """One write of one object. Never changed; pruned when nothing within the log's reach needs it."""

    revision = models.BigIntegerField(primary_key=True)
    type = models.CharField(max_length=8)  # ADDED, MODIFIED, DELETED
    resource = models.CharField(max_length=RESOURCE_LENGTH)  # "resourceclaims.resource.k8s.io"
    namespace = models.CharField(max_length=NAMESPACE_LENGTH)  # "" for cluster kinds
    name = models.CharField(max_length=NAME_LENGTH)
    uid = models.CharField(max_length=UID_LENGTH)
    #: metadata.deletionTimestamp is set
    deleting = models.BooleanField()
    #: the event of the same object that this one supersedes; null on ADDED
    previous_revision = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    labels = models.TextField()
    fields = models.TextField()
    previous_labels = models.TextField(null=True)  # null on ADDED: there was none
    previous_fields = models.TextField(null=True)
    #: who wrote it, as `manciple.store.records` notes it; "" in entries from before there were notes
    actor = models.TextField(db_default="")
    document = models.TextField()
    #: bytes ever written to the log, this entry included; 0 in entries from before there were offsets
    end_offset = models.BigIntegerField(db_default=0)

    class Meta:
        indexes = [
            # Asked all the time, and there are few: `sql.ANY_NAMESPACE_LEAVES`.
            models.Index(
                fields=["uid"], condition=models.Q(resource="namespaces", deleting=True), name="event_of_leaving"
            ),
        ]


class WriteBudget(models.Model):
    """The token bucket of one namespace, node or user (`manciple.store.space`); without a row it is full."""

    key = models.TextField(primary_key=True)
    #: bytes that may be written at `refilled_at`; below 0 after a write that is larger than a full bucket
    tokens = models.BigIntegerField()
    #: seconds since the epoch
    refilled_at = models.FloatField()


class StoredObject(models.Model):
    """One live object."""

    uid = models.CharField(max_length=UID_LENGTH, primary_key=True)
    resource = models.CharField(max_length=RESOURCE_LENGTH)
    namespace = models.CharField(max_length=NAMESPACE_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    #: its latest event. No constraint and no index: the writer keeps it true, and nobody looks objects up by event.
    event = models.ForeignKey(Event, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    #: "Foreground" or "Orphan" while the garbage collector has work before this deleting object may go; else ""
    propagation = models.CharField(max_length=10)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["resource", "namespace", "name"], name="stored_object_key"),
        ]
        indexes = [
            models.Index(fields=["propagation"], condition=~models.Q(propagation=""), name="stored_object_collecting"),
        ]


class OwnerLink(models.Model):
    """One metadata.ownerReferences entry of a live object, as the garbage collector needs it."""

    object = models.ForeignKey(StoredObject, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    owner_uid = models.TextField()  # as the client wrote it
    #: the reference tells where its owner must live; if not, it counts as alive for ever
    resolvable = models.BooleanField()
    #: no live object has this uid under the kind, name and namespace that the reference names
    gone = models.BooleanField()
    controller = models.BooleanField()
    #: blockOwnerDeletion, and the reference leads somewhere: a foreground deletion of the owner waits for this object
    blocking = models.BooleanField()

    class Meta:
        # Named here, because db_index would add a second index for LIKE on PostgreSQL.
        indexes = [
            models.Index(fields=["object"], name="owner_link_object"),
            models.Index(fields=["owner_uid"], name="owner_link_owner"),
            models.Index(fields=["gone"], condition=models.Q(gone=True), name="owner_link_gone"),
        ]
