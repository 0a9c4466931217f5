"""The inventory's index tables: pools, devices, classes and nodes as the scheduler captures and the pages query them.

Every row is a projection of API objects (see inventory.projectors), written in the transaction that writes the object,
and can be rebuilt from the documents at any time by `manage.py reindex`. Nothing else writes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.db import models
from django.urls import reverse

from manciple.people import OfCluster, RestrictedManager
from manciple.wire.resources import CLASSES, NODES, SLICES

#: Lengths as the API limits them: DNS subdomains, driver names, DNS labels, uids.
NAME, DRIVER, LABEL, UID = 253, 63, 63, 36


class PosixTime(models.FloatField):  # type: ignore[type-arg]
    """A moment, stored as POSIX seconds: a column of the first releases, whose type an older version still reads."""

    def from_db_value(self, value: float | None, *_: Any) -> datetime | None:
        return None if value is None else datetime.fromtimestamp(value, UTC)

    def get_prep_value(self, value: Any) -> Any:
        return value.timestamp() if isinstance(value, datetime) else value


class PublishedSlice(models.Model):
    """One ResourceSlice: what decides which slices make up a pool now."""

    name = models.CharField(max_length=NAME, primary_key=True)
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    generation = models.BigIntegerField()
    #: spec.pool.resourceSliceCount
    slices_expected = models.BigIntegerField()
    node_name = models.CharField(max_length=NAME)  # "" where the slice is not one node's
    device_count = models.IntegerField()

    readable = OfCluster(SLICES)
    objects: ClassVar[RestrictedManager[PublishedSlice]] = RestrictedManager()

    class Meta:
        indexes = [models.Index(fields=["driver", "pool", "node_name"], name="slice_of_pool")]

    def __str__(self) -> str:
        return self.name


def device_url(driver: str, pool: str, device: str, node: str = "") -> str:
    """The page of a device. Pools of several nodes may have one name: then the address needs the node."""
    path = reverse("device", args=(driver, pool, device))
    return f"{path}?{urlencode({'node': node})}" if is_ambiguous(pool, node) else path


def is_ambiguous(pool: str, node: str) -> bool:
    """Whether the pool's name may not tell which node's pool it is."""
    return node not in ("", pool)


#: Pools that a query names one by one; of more of them all are read.
MOST_NAMED = 500


class Pool(models.Model):
    """The slices of one driver, pool name and node, of the highest generation (see `inventory.kinds.pools`)."""

    driver = models.CharField(max_length=DRIVER)
    name = models.CharField(max_length=NAME)
    generation = models.BigIntegerField()
    #: spec.pool.resourceSliceCount of the first slice by name
    slices_expected = models.BigIntegerField()
    slices_seen = models.BigIntegerField()
    #: exactly as many slices as expected; devices of other pools are not given to anybody
    complete = models.BooleanField()
    #: the node that its slices name; "" for a pool of no single node
    node_name = models.CharField(max_length=NAME)
    device_count = models.IntegerField()

    readable = OfCluster(SLICES)
    objects: ClassVar[RestrictedManager[Pool]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["driver", "name", "node_name"], name="pool_of_node")]

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"

    @classmethod
    def publishing_nodes(cls, names: Collection[str] | None = None) -> Mapping[tuple[str, str], set[str]]:
        """(driver, pool name) -> the nodes that publish a pool of that name, "" for a pool of no single node.

        names: of pools that are asked for; None for all.
        """
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        pools = cls.objects.all() if names is None or len(names) > MOST_NAMED else cls.objects.filter(name__in=names)
        for driver, pool, node in pools.values_list("driver", "name", "node_name"):
            found[driver, pool].add(node)
        return found


class Device(models.Model):
    """One device of the highest generation of its pool.

    Unique by slice: two slices of a pool may publish one name (for different nodes, or by a driver's mistake that makes
    the pool invalid), and the index shows what is published. Attributes, capacity and `shared` are there for reports in
    SQL (docs/how-to/operating.md); our own code reads them from the documents.
    """

    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    name = models.CharField(max_length=LABEL)
    position = models.IntegerField()  # in its slice, from 0
    slice_name = models.CharField(max_length=NAME)
    node_name = models.CharField(max_length=NAME)  # the slice's or the device's own; "" where it is not one node's
    attributes = models.JSONField()  # as published: {"model": {"string": "A100"}}
    capacity = models.JSONField()  # as published: {"memory": {"value": "80Gi"}}
    taints = models.JSONField()  # as published: [{"key": ..., "effect": ...}]
    shared = models.BooleanField()  # allowMultipleAllocations
    #: its driver put a NoExecute taint on it
    evicting = models.BooleanField(default=False)

    readable = OfCluster(SLICES)
    objects: ClassVar[RestrictedManager[Device]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["slice_name", "name"], name="device_key")]
        indexes = [
            models.Index(fields=["driver", "pool", "name"], name="device_pool"),
            models.Index(fields=["node_name"], name="device_node"),
            models.Index(fields=["evicting"], condition=models.Q(evicting=True), name="device_evicting"),
        ]

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"

    def get_absolute_url(self) -> str:
        return device_url(self.driver, self.pool, self.name, self.node_name)


class DeviceClass(models.Model):
    """One DeviceClass; selectors and config as in its document."""

    uid = models.CharField(max_length=UID, primary_key=True)
    name = models.CharField(max_length=NAME, unique=True)
    selectors = models.JSONField()
    config = models.JSONField()
    extended_resource_name = models.CharField(max_length=NAME + 1 + LABEL)  # "" where the class serves none

    readable = OfCluster(CLASSES)
    objects: ClassVar[RestrictedManager[DeviceClass]] = RestrictedManager()

    class Meta:
        verbose_name_plural = "device classes"

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("class-edit", args=(self.name,))


class Node(models.Model):
    """One Node. `ready`: its condition Ready is True; `condition`: that condition's status, "" where it has none."""

    uid = models.CharField(max_length=UID, primary_key=True)
    name = models.CharField(max_length=NAME, unique=True)
    ready = models.BooleanField()
    unschedulable = models.BooleanField()
    labels = models.JSONField()
    taints = models.JSONField()
    capacity = models.JSONField()
    allocatable = models.JSONField()
    condition = models.CharField(max_length=16, default="", db_default="")
    #: it has a taint that the node lifecycle controller does not manage
    tainted = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(null=True)
    #: orders nodes by name, node-2 before node-10 (`natural_text`)
    position = models.TextField(default="", db_default="")
    #: a line each, in lower case: name, version, addresses, labels
    searched = models.TextField(default="", db_default="")

    readable = OfCluster(NODES)
    objects: ClassVar[RestrictedManager[Node]] = RestrictedManager()

    class Meta:
        indexes = [models.Index(fields=["condition"], name="node_condition")]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("node", args=(self.name,))


class DepartedNode(models.Model):
    """When a Node was deleted, for a day. No document tells it, so `reindex` leaves these rows alone."""

    name = models.CharField(max_length=NAME, primary_key=True)
    at = PosixTime()

    def __str__(self) -> str:
        return f"{self.name} until {self.at:%Y-%m-%d %H:%M}"


class DeviceMeter(models.Model):
    """What the meters of a device read last (`inventory.meters`). No document has it, so `reindex` leaves it alone."""

    node = models.CharField(max_length=NAME)
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=LABEL)
    at = models.DateTimeField()
    utilization = models.SmallIntegerField(null=True)  # percent
    memory_used = models.BigIntegerField(null=True)  # bytes
    memory_total = models.BigIntegerField(null=True)
    temperature = models.SmallIntegerField(null=True)  # °C
    power = models.IntegerField(null=True)  # watts
    #: since when its utilization has been below `IDLE_PERCENT`; None while it is not, or unknown
    quiet_since = models.DateTimeField(null=True)

    readable = OfCluster(SLICES)
    objects: ClassVar[RestrictedManager[DeviceMeter]] = RestrictedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["driver", "pool", "device", "node"], name="device_meter_key")]
        indexes = [
            models.Index(fields=["node"], name="device_meter_node"),
            models.Index(fields=["at"], name="device_meter_at"),
        ]

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class MeterBlock(models.Model):
    """One hour of what was read, of all devices of a node or of what a namespace held: see `inventory.meters`."""

    class Owner(models.TextChoices):
        NODE = "node"
        NAMESPACE = "namespace"

    owner = models.CharField(max_length=9, choices=Owner.choices)
    name = models.CharField(max_length=NAME)
    begin = models.DateTimeField()
    data = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "name", "begin"], name="meter_block_key")]
        indexes = [models.Index(fields=["begin"], name="meter_block_begin")]

    def __str__(self) -> str:
        return f"{self.owner} {self.name} from {self.begin:%Y-%m-%d %H:%M}"


class Incident(models.Model):
    """Devices that were impaired together: by one cause, at one time. Kept when it is over, as `Impairment`s are.

    driver, pool, node: "" where it may concern several; node: the pool's, "" where it is not on a single node.
    """

    #: of what it began with: a restored log gives the same
    id = models.CharField(max_length=16, primary_key=True)
    unhealthy = models.BooleanField()
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    node = models.CharField(max_length=NAME, default="", db_default="")
    key = models.TextField()  # of the taint; "" of a report
    value = models.TextField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    #: when something of it last began, or the last of it ended: what comes soon after belongs to it
    touched_at = models.DateTimeField()
    acknowledged_by = models.TextField(default="")
    acknowledged_at = models.DateTimeField(null=True)
    note = models.TextField(default="")

    class Meta:
        indexes = [
            models.Index(fields=["began_at"], name="incident_began"),
            models.Index(fields=["driver", "pool", "touched_at"], name="incident_recent"),
            models.Index(fields=["ended_at"], name="incident_ended"),
        ]

    def __str__(self) -> str:
        return self.id

    def get_absolute_url(self) -> str:
        return reverse("incident", args=(self.id,))


class Impairment(models.Model):
    """What kept claims away from a device, or told that it is broken, from when to when. See `inventory.impairments`.

    It cannot be rebuilt from documents; `reindex` leaves it alone, and pruning forgets it after a while.
    """

    class Source(models.TextChoices):
        DRIVER = "driver"  #: a taint in the ResourceSlice
        RULE = "rule"  #: a DeviceTaintRule
        REPORT = "report"  #: a node's agent, with a pod that uses the device
        NODE = "node"  #: nothing is heard of the node: it concerns every device there
        POOL = "pool"  #: not all slices of the pool are published: it concerns every device of it
        CLAIM = "claim"  #: several claims of a copied cluster hold the device, each as a whole
        GUARD = "guard"  #: writes there would have given the device twice

    #: No constraint: written together, and pruned by age.
    incident = models.ForeignKey(
        Incident, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="impairments"
    )
    source = models.CharField(max_length=8, choices=Source.choices)
    reporter = models.CharField(max_length=NAME)  # the rule's or node's name; the pod's uid; "" for driver and pool
    # What leaves some of them open concerns every device that matches the others; they are "" then.
    driver = models.CharField(max_length=DRIVER)
    pool = models.CharField(max_length=NAME)
    device = models.CharField(max_length=NAME)
    node = models.CharField(max_length=NAME)  # "" where it is not one node's
    key = models.TextField()  # of the taint; "" of a report
    value = models.TextField()
    effect = models.TextField()
    message = models.TextField()  # of a report, a node, a pool, claims, the guard
    unhealthy = models.BooleanField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["driver", "pool"], condition=models.Q(ended_at__isnull=True), name="impairment_standing"
            ),
            models.Index(
                fields=["source", "reporter"], condition=models.Q(ended_at__isnull=True), name="impairment_reporter"
            ),
            models.Index(fields=["driver", "pool", "device", "began_at"], name="impairment_device"),
            models.Index(fields=["incident"], name="impairment_incident"),
            models.Index(fields=["ended_at"], name="impairment_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}: {self.key or self.message}"
