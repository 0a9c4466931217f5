"""/api/inventory/: pools, devices, classes, claims, pods, quotas and nodes, and who holds what.

Read-only, from the index tables, as far as whoever asks may read them. Programs that need every field of an object, or
want to write or watch, use the Kubernetes API; here are joins that it does not have, in one request each.

A device is named by its path, `DRIVER/POOL/NAME` (a pool's name may contain slashes), a claim, pod or quota by
`NAMESPACE/NAME`, everything else by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import django_filters as filters
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import Http404
from django.urls import register_converter
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import APIRootView, DefaultRouter

from claims import models as claims
from claims.causes.causes import decode
from claims.causes.messages import message
from claims.devices.cache import read_devices
from claims.devices.holdings import Holder
from claims.devices.pools import PoolState
from claims.devices.published import DeviceKey
from claims.devices.states import DeviceState
from claims.models import Pod as PodRow
from dashboard.rest.serving import MomentFilter, PartFilter, PartFilterSet, PartNumberFilter, RestView, RowViewSet
from inventory import models as inventory
from inventory.kinds.pools import PoolKey
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from scheduling.models import QueuedPod
from scheduling.rehearsal.explanations import claim_document, pod_document

Row = serializers.ModelSerializer[Any]

# Pools and devices ----------------------------------------------------------------------------------------------------


class PoolSerializer(Row):
    class Meta:
        model = inventory.Pool
        fields = ["driver", "name", "node", "generation", "slices_expected", "slices_seen", "complete", "devices"]

    node = serializers.CharField(source="node_name")
    devices = serializers.IntegerField(source="device_count")


class PoolFilters(filters.FilterSet):
    node = filters.CharFilter(field_name="node_name")

    class Meta:
        model = inventory.Pool
        fields = ["driver", "name", "node", "complete"]


class PublishedViewSet(RowViewSet):
    """Rows that are named by a path. Pools of several nodes may have one name: `?node=` tells them apart."""

    lookup_field = "key"

    def first(self, rows: QuerySet[Any]) -> Any:
        """Raises: Http404."""
        node = self.request.query_params.get("node")
        row = (rows.filter(node_name=node) if node else rows).first()
        if row is None:
            raise Http404
        return row


class PoolViewSet(PublishedViewSet):
    """Pools of devices, each as the newest generation of its slices has it."""

    lists = (SLICES,)
    rows = inventory.Pool.objects.order_by("driver", "name", "node_name")
    serializer_class = PoolSerializer
    filterset_class = PoolFilters
    ordering_fields = ["driver", "name", "node_name", "device_count"]
    lookup_value_converter = "path"

    def get_object(self) -> Any:
        driver, _, name = self.kwargs["key"].partition("/")
        rows = self.get_queryset().filter(driver=driver, name=name)
        return self.first(rows)


#: state of a device -> what it is called here
STATES = {state: state.name.lower() for state in DeviceState}


class HolderSerializer(serializers.Serializer[Holder]):
    """A claim that holds a device, and its users."""

    namespace = serializers.CharField()
    claim = serializers.CharField()
    pods = serializers.ListField(child=serializers.CharField())
    others = serializers.ListField(child=serializers.CharField(), help_text="Users that are no pods.")
    shared = serializers.BooleanField(help_text="It holds a share of the device.")
    since = serializers.DateTimeField(allow_null=True)


class DeviceSerializer(Row):
    class Meta:
        model = inventory.Device
        fields = [
            *("driver", "pool", "name", "node", "state", "attributes", "capacity", "taints", "shared"),
            *("holders", "hidden_holders"),
        ]

    node = serializers.CharField(source="node_name")
    state = serializers.SerializerMethodField()
    holders = serializers.SerializerMethodField()
    hidden_holders = serializers.SerializerMethodField()

    def get_state(self, row: inventory.Device) -> str:
        """One of: free, reserved, allocated, preparing, partly_shared, blocked, tainted, unhealthy, unpublished."""
        pool, key = self._place(row)
        if pool is None:
            return STATES[DeviceState.UNPUBLISHED]
        if pool not in self._states:
            self._states[pool] = {device.key: pool.state_of(device) for device in pool.candidates}
        return STATES[self._states[pool].get(key, DeviceState.UNPUBLISHED)]

    def get_holders(self, row: inventory.Device) -> list[dict[str, Any]]:
        """The claims that hold it, of the namespaces that you see."""
        seen = [holder for holder in self._holders(row) if self._person.sees(holder.namespace)]
        return [dict(HolderSerializer(holder).data) for holder in seen]

    def get_hidden_holders(self, row: inventory.Device) -> int:
        """How many claims of other namespaces hold it."""
        return sum(not self._person.sees(holder.namespace) for holder in self._holders(row))

    def _holders(self, row: inventory.Device) -> Iterable[Holder]:
        pool, key = self._place(row)
        return () if pool is None else pool.holders.get(key, ())

    def _place(self, row: inventory.Device) -> tuple[PoolState | None, DeviceKey]:
        """The pool that the device is of, None where it has gone meanwhile, and the device's key."""
        pools = self._pools
        pool = PoolKey(row.driver, row.pool, row.node_name)
        if pool not in pools:  # of several nodes; the device itself names one
            pool = PoolKey(row.driver, row.pool)
        return pools.get(pool), (row.driver, row.pool, row.name, pool.node)

    @cached_property
    def _pools(self) -> Mapping[PoolKey, PoolState]:
        """The same for all rows of an answer."""
        return read_devices().pools

    @cached_property
    def _states(self) -> dict[PoolState, dict[DeviceKey, DeviceState]]:
        """Of the pools whose devices are shown: looking for one device goes through its whole pool."""
        return {}

    @property
    def _person(self) -> Any:
        return self.context["request"].auth


class DeviceFilters(filters.FilterSet):
    node = filters.CharFilter(field_name="node_name")
    held = filters.BooleanFilter(method="filter_held", label="Held by a claim as a whole or in part")
    device_class = filters.CharFilter(method="filter_class", label="Held by claims that asked for this class")

    class Meta:
        model = inventory.Device
        fields = ["driver", "pool", "name", "node", "held", "device_class"]

    def filter_held(self, rows: QuerySet[Any], _name: str, wanted: bool) -> QuerySet[Any]:
        held = Exists(_allocations())
        return rows.filter(held if wanted else ~held)

    def filter_class(self, rows: QuerySet[Any], _name: str, wanted: str) -> QuerySet[Any]:
        request: Any = self.request
        return rows.filter(Exists(_allocations().restrict(request.auth).filter(device_class=wanted)))


def _allocations() -> Any:
    """The allocations, without admin access, of the device of the outer query."""
    same = claims.AllocatedDevice.objects.filter(
        driver=OuterRef("driver"), pool=OuterRef("pool"), device=OuterRef("name"), admin_access=False
    )
    return same.filter(Q(node="") | Q(node=OuterRef("node_name")))


class DeviceViewSet(PublishedViewSet):
    """Devices as they are published, the state of each, and who holds it."""

    lists = (SLICES,)
    rows = inventory.Device.objects.order_by("driver", "pool", "position", "id")
    serializer_class = DeviceSerializer
    filterset_class = DeviceFilters
    ordering_fields = ["driver", "pool", "name", "node_name"]
    lookup_value_converter = "path"

    def get_object(self) -> Any:
        driver, _, rest = self.kwargs["key"].partition("/")
        pool, _, name = rest.rpartition("/")
        rows = self.get_queryset().filter(driver=driver, pool=pool, name=name)
        return self.first(rows)


# Classes and nodes ----------------------------------------------------------------------------------------------------


class ClassSerializer(Row):
    class Meta:
        model = inventory.DeviceClass
        fields = ["name", "extended_resource_name", "selectors", "config"]


class ClassViewSet(RowViewSet):
    """DeviceClasses."""

    lists = (CLASSES,)
    rows = inventory.DeviceClass.objects.order_by("name")
    serializer_class = ClassSerializer
    filterset_fields = ["name", "extended_resource_name"]
    ordering_fields = ["name"]
    lookup_field = "name"
    lookup_value_converter = "str"


class NodeSerializer(Row):
    class Meta:
        model = inventory.Node
        fields = ["name", "ready", "unschedulable", "labels", "taints", "capacity", "allocatable"]


class NodeViewSet(RowViewSet):
    """Nodes."""

    lists = (NODES,)
    rows = inventory.Node.objects.order_by("name")
    serializer_class = NodeSerializer
    filterset_fields = ["name", "ready", "unschedulable"]
    ordering_fields = ["name"]
    lookup_field = "name"
    lookup_value_converter = "str"


# Claims and pods ------------------------------------------------------------------------------------------------------


class NamespacedViewSet(RowViewSet):
    """Rows that are named `NAMESPACE/NAME`."""

    lookup_field = "key"
    lookup_value_converter = "object"

    def get_object(self) -> Any:
        namespace, _, name = self.kwargs["key"].partition("/")
        return get_object_or_404(self.get_queryset(), namespace=namespace, name=name)

    def explained(self, resource: str) -> Any:
        """The row, for a person who may `get` the explain subresource. Raises: Http404, PermissionDenied."""
        row = self.get_object()
        if not self.person.may("get", f"{resource}/explain", row.namespace, row.name):
            raise PermissionDenied
        return row


class AllocatedDeviceSerializer(Row):
    class Meta:
        model = claims.AllocatedDevice
        fields = [
            *("request", "driver", "pool", "device", "node", "device_class", "admin_access", "share_id"),
            "consumed_capacity",
        ]


class ReservationSerializer(Row):
    class Meta:
        model = claims.Reservation
        fields = ["resource", "name", "uid"]


class ClaimSerializer(Row):
    class Meta:
        model = claims.Claim
        fields = [
            *("uid", "namespace", "name", "allocated", "deleting", "created_at", "allocated_at", "admin_access"),
            *("source", "devices", "reserved_for"),
        ]

    devices = AllocatedDeviceSerializer(many=True)
    reserved_for = ReservationSerializer(many=True, source="reservations")


class ClaimFilters(PartFilterSet):
    parts = claims.AllocatedDevice.objects.filter(claim=OuterRef("pk"))

    device_class = PartFilter(label="It holds a device that was requested by this class")
    driver = PartFilter(label="The device is of this driver")
    node = PartFilter(label="The device is on this node")
    created_after = MomentFilter(field_name="created_at", lookup_expr="gte")
    created_before = MomentFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = claims.Claim
        fields = ["namespace", "name", "allocated", "deleting", "source", "admin_access"]


class ClaimViewSet(NamespacedViewSet):
    """ResourceClaims, the devices that they hold, and their users."""

    rows = claims.Claim.objects.order_by("namespace", "name").prefetch_related("devices", "reservations")
    serializer_class = ClaimSerializer
    filterset_class = ClaimFilters
    ordering_fields = ["namespace", "name", "created_at", "allocated_at"]

    @action(detail=True)
    def explain(self, request: Request, **_: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Why the claim is not allocated, node by node, and what would help."""
        row = self.explained(CLAIMS)
        return Response(claim_document(row.namespace, row.name))


class PodSerializer(Row):
    class Meta:
        model = PodRow
        fields = ["uid", "namespace", "name", "node", "phase", "deleting", "claims", "waits_for"]

    node = serializers.CharField(source="node_name")
    claims = serializers.ListField(child=serializers.CharField(), source="claim_names")
    waits_for = serializers.SerializerMethodField()

    def get_waits_for(self, row: PodRow) -> str:
        """What the scheduler says of a pod that has no node; "" for others, and until it was tried."""
        if row.node_name:
            return ""
        cause = decode(self._causes.get(row.uid, ""))
        return message(cause) if cause is not None else ""

    @cached_property
    def _causes(self) -> dict[str, str]:
        """Of all rows of an answer."""
        rows: Any = self.instance if self.parent is None else self.parent.instance
        shown = rows if isinstance(rows, Iterable) else [rows]
        waiting = QueuedPod.objects.filter(uid__in=[row.uid for row in shown if not row.node_name])
        return dict(waiting.values_list("uid", "cause"))


class PodFilters(filters.FilterSet):
    node = filters.CharFilter(field_name="node_name")
    waiting = filters.BooleanFilter(method="filter_waiting", label="Without a node")

    class Meta:
        model = PodRow
        fields = ["namespace", "name", "node", "phase", "deleting", "waiting"]

    def filter_waiting(self, rows: QuerySet[Any], _name: str, wanted: bool) -> QuerySet[Any]:
        return rows.filter(node_name="") if wanted else rows.exclude(node_name="")


class PodViewSet(NamespacedViewSet):
    """Pods, their claims, and what those without a node wait for."""

    rows = PodRow.objects.order_by("namespace", "name")
    serializer_class = PodSerializer
    filterset_class = PodFilters
    ordering_fields = ["namespace", "name", "phase", "node_name"]

    @action(detail=True)
    def explain(self, request: Request, **_: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Why the pod has no node, node by node, and what would help."""
        row = self.explained(PODS)
        return Response(pod_document(row.namespace, row.name))


# Quotas ---------------------------------------------------------------------------------------------------------------


class QuotaLimitSerializer(Row):
    class Meta:
        model = claims.QuotaLimit
        fields = ["resource", "hard", "used", "fraction"]


class QuotaSerializer(Row):
    class Meta:
        model = claims.Quota
        fields = ["uid", "namespace", "name", "limits"]

    limits = QuotaLimitSerializer(many=True)


class QuotaFilters(PartFilterSet):
    parts = claims.QuotaLimit.objects.filter(quota=OuterRef("pk"))

    resource = PartFilter(label="It limits this resource")
    used_at_least = PartNumberFilter(
        field_name="fraction", lookup_expr="gte", label="The limit is used by this part, 0 to 1"
    )

    class Meta:
        model = claims.Quota
        fields = ["namespace", "name", "resource", "used_at_least"]


class QuotaViewSet(NamespacedViewSet):
    """ResourceQuotas, and what is used of each limit."""

    rows = claims.Quota.objects.order_by("namespace", "name").prefetch_related("limits")
    serializer_class = QuotaSerializer
    filterset_class = QuotaFilters
    ordering_fields = ["namespace", "name"]


# Routes ---------------------------------------------------------------------------------------------------------------


class InventoryRoot(RestView, APIRootView):
    """What there is. Read-only; writes and watches go to the Kubernetes API."""


class ObjectConverter:
    """`NAMESPACE/NAME`."""

    regex = "[^/]+/[^/]+"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(ObjectConverter, "object")


class InventoryRouter(DefaultRouter):
    APIRootView = InventoryRoot
    include_format_suffixes = False


router = InventoryRouter(use_regex_path=False)
for name, viewset in {
    "pools": PoolViewSet,
    "devices": DeviceViewSet,
    "classes": ClassViewSet,
    "claims": ClaimViewSet,
    "pods": PodViewSet,
    "quotas": QuotaViewSet,
    "nodes": NodeViewSet,
}.items():
    router.register(name, viewset, basename=f"inventory-{name}")
