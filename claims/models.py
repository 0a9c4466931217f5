"""The claims' index tables: who asks, who holds which device, which pods there are.

Every row is a projection of API objects (see claims.projectors), written in the transaction that writes the object, and
can be rebuilt from the documents at any time by `manage.py reindex`. Nothing else writes them.

`AllocatedDevice` carries the promise that no device is ever given twice: the database itself refuses a second exclusive
allocation of a device, whoever tries to write it. Where pools share a name it does not know which pool a device is of;
there `AllocatedDeviceQuerySet.holders_of`, which the projector asks, is the stricter one. A driver's controller
(KEP-3063) may give one device to several of its claims: those rows are left to the projector alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import ClassVar, NamedTuple

from django.db import models

from claims.kinds.resource_claims import pools_allocated_from, pools_in_use
from inventory.kinds.pools import PoolKey
from inventory.models import PublishedSlice
from manciple.store import sql

#: Lengths as the API limits them: DNS subdomains, driver names, DNS labels, uids.
NAME, DRIVER, LABEL, UID = 253, 63, 63, 36

DeviceKey = tuple[str, str, str, str]  # (driver, pool, device, node of the allocation)


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


class DeviceHolder(NamedTuple):
    """The claim that holds a device. controller: as in `AllocatedDevice`."""

    namespace: str
    name: str
    controller: str


class AllocatedDeviceQuerySet(models.QuerySet["AllocatedDevice"]):
    def holders_of(self, devices: Iterable[DeviceKey]) -> dict[DeviceKey, DeviceHolder]:
        """Who holds those of `devices` that are held as a whole.

        devices: which are to be allocated. One query if none of them is held.
        """
        wanted = set(devices)
        held: dict[DeviceKey, tuple[str, str]] = {}
        for given, parameters in sql.given_tables(("driver", "pool", "device", "node"), wanted):
            for driver, pool, device, node, uid, controller in sql.fetch(f"{given} {_held_as_a_whole()}", parameters):
                held[driver, pool, device, node] = uid, controller
        if not held:
            return {}
        uids = [(uid,) for uid in sorted({uid for uid, _ in held.values()})]
        claims = {
            uid: (namespace, name)
            for uid, namespace, name in sql.select(Claim, ["uid", "namespace", "name"], ["uid"], uids)
        }
        in_use = pools_by_device(held, pools_in_use)
        by_place = {
            (*key[:3], pool): DeviceHolder(*claims[uid], controller)
            for key, (uid, controller) in held.items()
            for pool in in_use[key]
        }
        places = pools_by_device(wanted, pools_allocated_from)
        found = ((key, by_place.get((*key[:3], pool))) for key in wanted for pool in places[key])
        return {key: holder for key, holder in found if holder is not None}


@cache
def _held_as_a_whole() -> str:
    """Allocations that may be of the `given` devices: on their node or on none; on any, if the pool may be of none."""
    allocated, published = AllocatedDevice._meta.db_table, PublishedSlice._meta.db_table
    same = (
        "a.driver = given.driver AND a.pool = given.pool AND a.device = given.device "
        "AND NOT a.admin_access AND a.share_id = ''"
    )
    of_no_node = (
        f"SELECT 1 FROM {published} s "  # noqa: S608 - the names of our models
        "WHERE s.driver = given.driver AND s.pool = given.pool AND s.node_name = ''"
    )
    columns = "a.driver, a.pool, a.device, a.node, a.claim_id, a.controller"

    nodes = ("a.node = given.node", "a.node = ''", f"(given.node = '' OR EXISTS ({of_no_node}))")
    return " UNION ".join(sql.for_each_given(columns, f"{allocated} a", f"{same} AND {node}") for node in nodes)


def pools_by_device(
    devices: Iterable[DeviceKey], find: Callable[[str, str, str, Collection[str]], tuple[PoolKey, ...]]
) -> dict[DeviceKey, tuple[PoolKey, ...]]:
    """The pools that `find` (of `claims.kinds.resource_claims`) tells of each device. One query."""
    wanted = set(devices)
    columns = ["driver", "pool", "node_name"]
    published: dict[tuple[str, str], set[str]] = {}
    for driver, pool, node in sql.select(PublishedSlice, columns, columns[:2], {key[:2] for key in wanted}):
        published.setdefault((driver, pool), set()).add(node)
    return {key: find(key[0], key[1], key[3], published.get(key[:2], ())) for key in wanted}


class AllocatedDevice(models.Model):
    """One entry of status.allocation.devices.results."""

    claim = models.ForeignKey(
        Claim, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="devices"
    )
    request = models.CharField(max_length=2 * LABEL + 1)  # "request" or "request/subrequest"
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=LABEL)
    #: the single node that the allocation's node selector names; ""
    node = models.CharField(max_length=NAME, default="", db_default="")
    admin_access = models.BooleanField()
    share_id = models.CharField(max_length=UID)  # "" where the device is not shared
    consumed_capacity = models.JSONField()  # {"memory": "10Gi"}
    #: neither admin access, nor a share, nor of a controller: the device is this claim's alone
    exclusive = models.BooleanField()
    #: the driver whose controller allocated it, and decides which of its claims share it; "" where the scheduler did
    controller = models.CharField(max_length=NAME, default="", db_default="")
    #: what the request asked for; "" where the claim has no such request
    device_class = models.CharField(max_length=NAME, default="")

    objects: ClassVar[AllocatedDeviceQuerySet] = AllocatedDeviceQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["driver", "pool", "device", "node"],
                condition=models.Q(exclusive=True),
                name="device_given_once",
            ),
        ]
        indexes = [
            models.Index(fields=["claim"], name="allocated_device_claim"),
            models.Index(fields=["driver", "pool", "device", "node"], name="allocated_device_key"),
        ]


class PastAllocation(models.Model):
    """A device that a claim held and gave back: who had what, from when to when. Kept when the claim is gone.

    It cannot be rebuilt from documents; `reindex` leaves it alone, and pruning forgets it after a while.
    """

    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=LABEL)
    node = models.CharField(max_length=NAME, default="", db_default="")  # as in `AllocatedDevice`
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
    node = models.CharField(max_length=NAME, default="", db_default="")  # as in `AllocatedDevice`
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


class PodClaim(models.Model):
    """One of a pod's `claim_names`, to find the pods that use a claim."""

    #: No constraint: as in `Reservation`.
    pod = models.ForeignKey(Pod, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    namespace = models.CharField(max_length=LABEL)
    claim = models.CharField(max_length=NAME)

    class Meta:
        indexes = [
            models.Index(fields=["pod"], name="pod_claim_pod"),
            models.Index(fields=["namespace", "claim"], name="pod_claim_key"),
        ]
