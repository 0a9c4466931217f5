"""Index tables of claims and pods: reservations, allocated devices, their history.

Every row is a projection of API objects (`claims.projectors`), written in the transaction that writes the object, and
can be rebuilt from the documents at any time by `manage.py reindex`. Nothing else writes them.

`AllocatedDevice` guarantees that no device is given twice: the database refuses a second exclusive allocation of a
device, whoever writes it. Where pools share a name it does not know which pool a device is of;
`claims.projectors.holders_of` is the stricter check. A driver's controller (KEP-3063) may give one device to several of
its claims: only the projector checks those rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from django.db import models
from django.urls import reverse

from inventory.models import DRIVER, LABEL, NAME, UID, device_url
from manciple.people import OfNamespace, RestrictedManager, RestrictedQuerySet
from manciple.wire.resources import FINISHED_PHASES, QUOTAS

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
    #: metadata.deletionTimestamp
    deleted_at = models.DateTimeField(null=True)
    #: whether it has finalizers besides that of the claim controller
    held_back = models.BooleanField(default=False, db_default=False)
    #: why its devices stay allocated while nobody uses them: a value of `Kept`
    kept = models.CharField(max_length=16, default="", db_default="")
    #: the classes that it asks for, a space around each: " gpu nic "
    classes = models.TextField(default="", db_default="")

    class Kept(models.TextChoices):
        NOT = ""  #: the claim controller deallocates it
        ALWAYS = "always"  #: it is Immediate, or its driver's controller decides
        REQUESTED = "requested"  #: its driver's controller was asked to deallocate it

    readable = OfNamespace()
    objects: ClassVar[RestrictedManager[Claim]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="claim_key")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("claim", args=(self.namespace, self.name))


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

    readable = OfNamespace("claim__namespace")
    objects: ClassVar[RestrictedManager[Reservation]] = RestrictedManager()

    class Meta:
        indexes = [
            models.Index(fields=["claim"], name="reservation_claim"),
            models.Index(fields=["uid"], name="reservation_uid"),
        ]

    def __str__(self) -> str:
        return f"{self.resource} {self.name}"


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
    #: neither admin access, nor a share, nor of a controller, nor copied from a cluster that may give a device twice:
    #: the device is this claim's alone
    exclusive = models.BooleanField()
    #: the driver whose controller allocated it, and decides which of its claims share it; "" where the scheduler did
    controller = models.CharField(max_length=NAME, default="", db_default="")
    #: what the request asked for; "" where the claim has no such request
    device_class = models.CharField(max_length=NAME, default="")

    readable = OfNamespace("claim__namespace")
    objects: ClassVar[RestrictedManager[AllocatedDevice]] = RestrictedManager()

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
            models.Index(
                fields=["driver", "pool", "device"],
                condition=models.Q(exclusive=False, admin_access=False, share_id="", controller=""),
                name="allocated_device_copied",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"

    def get_absolute_url(self) -> str:
        return device_url(self.driver, self.pool, self.device, self.node)


class PastAllocation(models.Model):
    """A period in which a claim held a device. It outlives the claim.

    It cannot be rebuilt from documents: `reindex` leaves it alone, and old rows are pruned.
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

    readable = OfNamespace()
    objects: ClassVar[RestrictedManager[PastAllocation]] = RestrictedManager()

    class Meta:
        indexes = [
            models.Index(fields=["driver", "pool", "device", "ended_at"], name="past_allocation_device"),
            models.Index(fields=["ended_at"], name="past_allocation_ended"),
            models.Index(fields=["claim_uid"], name="past_allocation_claim"),
            models.Index(fields=["namespace", "ended_at"], name="past_allocation_namespace"),
        ]

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device} of {self.namespace}/{self.claim}"


class Ending(models.Model):
    """A pod or claim that was deleted: what it was, when it ended and why. See `claims.endings`.

    Like `PastAllocation` it cannot be rebuilt from documents.
    """

    class Reason(models.TextChoices):
        """Why it ended, as its last document or, for those below OWNER, the author of the deletion says."""

        SUCCEEDED = "succeeded", "Finished"
        FAILED = "failed", "Failed"
        PREEMPTED = "preempted", "Preempted"
        EVICTED = "evicted", "Evicted by request"
        MOVED = "moved", "Evicted to make room elsewhere"
        NODE_TAINT = "node-taint", "Evicted by a taint of its node"
        DEVICE_TAINT = "device-taint", "Evicted by a taint of its device"
        NODE_PRESSURE = "node-pressure", "Evicted by its node"
        NODE_LOST = "node-lost", "Node lost"
        OWNER = "owner", "Owner ended"
        NAMESPACE = "namespace", "Namespace deleted"
        CLEANED_UP = "cleaned-up", "Cleaned up by the system"
        DELETED = "deleted", "Deleted"

    resource = models.CharField(max_length=NAME)
    uid = models.CharField(max_length=UID)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    node = models.CharField(max_length=NAME)  # "" of what had none
    reason = models.CharField(max_length=16, choices=Reason.choices)
    #: what its last document says of it: the message of a condition, exit codes
    message = models.TextField()
    #: `Job train`: the object that it belonged to; ""
    owner = models.TextField()
    #: of a pod the names of its claims, of a claim those of its pods
    others = models.JSONField()
    created_at = models.DateTimeField()
    #: when its deletion was first asked for; None where it went at once
    asked_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField()
    #: of its last entry in the log
    revision = models.BigIntegerField()
    #: in whose name it was deleted; None until the audit trail was asked, "" where that does not know
    author = models.TextField(null=True)

    readable = OfNamespace()
    objects: ClassVar[RestrictedManager[Ending]] = RestrictedManager()

    class Meta:
        indexes = [
            models.Index(fields=["namespace", "name"], name="ending_name"),
            models.Index(fields=["ended_at"], name="ending_ended"),
            models.Index(fields=["uid"], name="ending_uid"),
            models.Index(fields=["id"], condition=models.Q(author__isnull=True), name="ending_without_author"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("ending", args=(self.uid,))


class UseSpellQuerySet(RestrictedQuerySet["UseSpell"]):
    def standing(self, claims: Iterable[str]) -> UseSpellQuerySet:
        """The spells of these claims (by uid) that have not ended."""
        return self.filter(claim_uid__in=claims, ended_at__isnull=True)


class UseSpell(models.Model):
    """A period in which a held device was used, or idle, as its driver reports it (`claims.uses`).

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

    readable = OfNamespace()
    objects: ClassVar[UseSpellQuerySet] = UseSpellQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        indexes = [
            models.Index(fields=["ended_at"], name="use_spell_ended"),
            models.Index(fields=["claim_uid"], name="use_spell_claim"),
        ]

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device} of {self.namespace}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.driver, self.pool, self.device, self.share_id)


class Pod(models.Model):
    """One Pod. `claim_names`: the claims that it uses, generated ones included."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    node_name = models.CharField(max_length=NAME)  # "" until bound
    phase = models.CharField(max_length=16)
    deleting = models.BooleanField()
    claim_names = models.JSONField()
    #: metadata.deletionTimestamp: when its grace period ends
    deleted_at = models.DateTimeField(null=True)
    #: uid of the workload that controls it; "" of a pod by itself
    controller_uid = models.CharField(max_length=UID, default="", db_default="")
    #: status.startTime
    started_at = models.DateTimeField(null=True)
    #: spec.activeDeadlineSeconds
    time_limit = models.BigIntegerField(null=True)
    #: why it does not run, or is not ready, though it has a node (`claims.pod_troubles`); ""
    trouble = models.CharField(max_length=200, default="", db_default="")

    readable = OfNamespace()
    objects: ClassVar[RestrictedManager[Pod]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="pod_key")]
        indexes = [
            models.Index(fields=["node_name"], name="pod_node"),
            models.Index(fields=["controller_uid"], name="pod_controller"),
            models.Index(fields=["controller_uid"], condition=~models.Q(trouble=""), name="pod_in_trouble"),
            models.Index(fields=["node_name"], condition=models.Q(deleting=True), name="pod_leaving"),
            models.Index(fields=["namespace"], condition=models.Q(phase__in=sorted(FINISHED_PHASES)), name="pod_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("pod", args=(self.namespace, self.name))


class PodClaim(models.Model):
    """One of a pod's `claim_names`, or a template that its entries name; finds the pods that use either."""

    #: No constraint: as in `Reservation`.
    pod = models.ForeignKey(Pod, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    namespace = models.CharField(max_length=LABEL)
    claim = models.CharField(max_length=NAME)  # "" in the row of a template
    #: the ResourceClaimTemplate that the pod's entry names; ""
    template = models.CharField(max_length=NAME, default="", db_default="")

    readable = OfNamespace()
    objects: ClassVar[RestrictedManager[PodClaim]] = RestrictedManager()

    class Meta:
        indexes = [
            models.Index(fields=["pod"], name="pod_claim_pod"),
            models.Index(fields=["namespace", "claim"], name="pod_claim_key"),
            # Not by namespace first: PostgreSQL, without statistics, would take it for the one above.
            models.Index(fields=["template", "namespace"], name="pod_claim_of_template"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.claim}"


class EphemeralVolume(models.Model):
    """An ephemeral volume of a pod that has not started: its PersistentVolumeClaim may have to be made."""

    #: No constraint: as in `Reservation`.
    pod = models.ForeignKey(Pod, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)  # the pod's
    claim = models.TextField()

    readable = OfNamespace()
    objects: ClassVar[RestrictedManager[EphemeralVolume]] = RestrictedManager()

    class Meta:
        indexes = [models.Index(fields=["pod"], name="ephemeral_volume_pod")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.claim}"


class Template(models.Model):
    """One ResourceClaimTemplate."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)
    created_at = models.DateTimeField()
    requests = models.TextField()  # `2 of gpu-hopper, all of nic`

    readable = OfNamespace()
    objects: ClassVar[RestrictedManager[Template]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="template_key")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("template", args=(self.namespace, self.name))


class Quota(models.Model):
    """One ResourceQuota; its `limits` are the keys of `status.hard`."""

    uid = models.CharField(max_length=UID, primary_key=True)
    namespace = models.CharField(max_length=LABEL)
    name = models.CharField(max_length=NAME)

    readable = OfNamespace(resource=QUOTAS)
    objects: ClassVar[RestrictedManager[Quota]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="quota_key")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def get_absolute_url(self) -> str:
        return reverse("quota", args=(self.namespace, self.name))


class QuotaLimit(models.Model):
    """One key of a quota, and what is used of it, as of its status."""

    #: No constraint: as in `Reservation`.
    quota = models.ForeignKey(
        Quota, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="limits"
    )
    resource = models.TextField()  # "pods", "gpu.deviceclass.resource.k8s.io/devices"
    hard = models.TextField()  # a Kubernetes quantity
    used = models.TextField()  # likewise; "" while it has not been counted
    #: used / hard: 1 when it is used up, or nothing is allowed; None while it has not been counted
    fraction = models.FloatField(null=True)

    readable = OfNamespace("quota__namespace", resource=QUOTAS)
    objects: ClassVar[RestrictedManager[QuotaLimit]] = RestrictedManager()

    class Meta:
        indexes = [models.Index(fields=["quota"], name="quota_limit_quota")]

    def __str__(self) -> str:
        return f"{self.resource}: {self.used or '?'} of {self.hard}"
