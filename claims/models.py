"""The claims' index tables: who asks, who holds which device, which pods there are.

Every row is a projection of API objects (see claims.projectors), written in the transaction that writes the object, and
can be rebuilt from the documents at any time by `manage.py reindex`. Nothing else writes them.

`AllocatedDevice` carries the promise that no device is ever given twice: the database itself refuses a second exclusive
allocation of a device, whoever tries to write it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from django.db import models

from manciple.store import sql

#: Lengths as the API limits them: DNS subdomains, driver names, DNS labels, uids.
NAME, DRIVER, LABEL, UID = 253, 63, 63, 36

DeviceKey = tuple[str, str, str]  # (driver, pool, device)


class Claim(models.Model):
    """One ResourceClaim."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    allocated = models.BooleanField()
    deleting = models.BooleanField()
    created_at = models.DateTimeField()
    #: status.allocation.allocationTimestamp, where the allocator wrote one
    allocated_at = models.DateTimeField(null=True)
    #: whether one of its requests asks for admin access
    admin_access = models.BooleanField(default=False)
    #: "resource_claim_template", "extended_resource", or "" for one that somebody made by hand
    source = models.CharField(max_length=32, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="claim_key")]


class Reservation(models.Model):
    """One entry of status.reservedFor: who may use the claim."""

    #: No constraint: claim and reservations are rewritten by the same projector, in any order.
    claim = models.ForeignKey(
        Claim, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="reservations"
    )
    # What clients write here is only checked for not being empty.
    resource = models.TextField()  # "pods"; of another API group "jobs.batch"
    name = models.TextField()
    uid = models.TextField()

    class Meta:
        indexes = [
            models.Index(fields=["claim"], name="reservation_claim"),
            models.Index(fields=["uid"], name="reservation_uid"),
        ]


class AllocatedDeviceQuerySet(models.QuerySet["AllocatedDevice"]):
    def holders_of(self, devices: Iterable[DeviceKey]) -> dict[DeviceKey, tuple[str, str, str]]:
        """Who holds those of `devices` that are held exclusively: (namespace, claim name, claim uid). Two queries."""
        columns = ["driver", "pool", "device", "claim_id", "exclusive"]
        found = sql.select(AllocatedDevice, columns, ["driver", "pool", "device"], devices)
        held = {(driver, pool, device): uid for driver, pool, device, uid, exclusive in found if exclusive}
        wanted = [(uid,) for uid in sorted(set(held.values()))]
        claims = {
            uid: (namespace, name, uid)
            for uid, namespace, name in sql.select(Claim, ["uid", "namespace", "name"], ["uid"], wanted)
        }
        return {key: claims[uid] for key, uid in held.items()}


class AllocatedDevice(models.Model):
    """One entry of status.allocation.devices.results."""

    claim = models.ForeignKey(
        Claim, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="devices"
    )
    request = models.CharField(max_length=2 * LABEL + 1)  # "request" or "request/subrequest"
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=LABEL)
    admin_access = models.BooleanField()
    share_id = models.CharField(max_length=UID)  # "" where the device is not shared
    consumed_capacity = models.JSONField()  # {"memory": "10Gi"}
    #: neither admin access nor a share: the device is this claim's alone
    exclusive = models.BooleanField()
    #: what the request asked for; "" where the claim has no such request
    device_class = models.CharField(max_length=NAME, default="")

    objects: ClassVar[AllocatedDeviceQuerySet] = AllocatedDeviceQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["driver", "pool", "device"], condition=models.Q(exclusive=True), name="device_given_once"
            ),
        ]
        indexes = [
            models.Index(fields=["claim"], name="allocated_device_claim"),
            models.Index(fields=["driver", "pool", "device"], name="allocated_device_key"),
        ]


class PastAllocation(models.Model):
    """A device that a claim held and gave back: who had what, from when to when. Kept when the claim is gone.

    It cannot be rebuilt from documents; `reindex` leaves it alone, and pruning forgets it after a while.
    """

    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=LABEL)
    device_class = models.CharField(max_length=NAME)
    claim_uid = models.CharField(max_length=UID)
    namespace = models.CharField(max_length=LABEL)
    claim = models.CharField(max_length=NAME)
    #: the names of the pods that had it to the last, or of the pod that the claim was made for
    pods = models.JSONField()
    admin_access = models.BooleanField()
    share_id = models.CharField(max_length=UID)  # "" where the device was not shared
    consumed_capacity = models.JSONField()
    #: when the pod asked for which the claim was made; None of a claim that somebody made by hand
    asked_at = models.DateTimeField(null=True)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["driver", "pool", "device", "ended_at"], name="past_allocation_device"),
            models.Index(fields=["ended_at"], name="past_allocation_ended"),
            models.Index(fields=["claim_uid"], name="past_allocation_claim"),
        ]


class UseSpellQuerySet(models.QuerySet["UseSpell"]):
    def standing(self, claims: Iterable[str]) -> UseSpellQuerySet:
        """What has not ended, of the claims with these uids."""
        return self.filter(claim_uid__in=claims, ended_at__isnull=True)


class UseSpell(models.Model):
    """A stretch of time in which a held device was used, or idle, as its driver tells it (`claims.uses`).

    Like `PastAllocation` it cannot be rebuilt from documents.
    """

    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=LABEL)
    share_id = models.CharField(max_length=UID)  # "" where the device is not shared
    device_class = models.CharField(max_length=NAME)
    claim_uid = models.CharField(max_length=UID)
    namespace = models.CharField(max_length=LABEL)
    idle = models.BooleanField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)  # None while it lasts

    objects: ClassVar[UseSpellQuerySet] = UseSpellQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        indexes = [
            models.Index(fields=["ended_at"], name="use_spell_ended"),
            models.Index(fields=["claim_uid"], name="use_spell_claim"),
        ]

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.driver, self.pool, self.device, self.share_id)


class Pod(models.Model):
    """One Pod. `claim_names`: the claims it uses by now, those made for it included."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    node_name = models.CharField(max_length=NAME)  # "" until bound
    phase = models.CharField(max_length=16)
    deleting = models.BooleanField()
    claim_names = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="pod_key")]
        indexes = [models.Index(fields=["node_name"], name="pod_node")]
