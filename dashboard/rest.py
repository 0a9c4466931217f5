"""The REST API `/api/inventory/`: pools, devices, classes, claims, pods, quotas and nodes, and which claim holds what.

Read-only, from the index tables, restricted to what the caller may read. Programs that need every field of an object,
or want to write or watch, use the Kubernetes API; this one has joins that it lacks, in one request each. A device is
named by its path, `DRIVER/POOL/NAME` (a pool's name may contain slashes), a claim, pod or quota by `NAMESPACE/NAME`,
everything else by its name.

`/api/docs` is Swagger UI over the OpenAPI documents of this API and of the Kubernetes API. A signed-in browser shows no
token, so the documents of the Kubernetes API are served here to everybody who is signed in; requests that are sent
from the page carry the token that is entered there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import django_filters as filters
from django.core.exceptions import ValidationError
from django.core.validators import EMPTY_VALUES
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.http.response import HttpResponseBase
from django.urls import include, path, register_converter, reverse
from django.urls.converters import StringConverter
from django.views.decorators.http import require_safe
from django_filters.fields import IsoDateTimeField
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.generators import SchemaGenerator
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action
from rest_framework.exceptions import ParseError, PermissionDenied
from rest_framework.filters import OrderingFilter
from rest_framework.generics import get_object_or_404
from rest_framework.pagination import PageNumberPagination
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BrowsableAPIRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import APIRootView, DefaultRouter
from rest_framework.views import APIView, exception_handler
from rest_framework.viewsets import ReadOnlyModelViewSet

from claims import models as claims
from claims.causes.causes import decode
from claims.causes.messages import message
from claims.devices.cache import PoolState, read_devices
from claims.devices.holdings import Holder
from claims.devices.published import DeviceKey
from claims.devices.states import DeviceState
from claims.models import Pod as PodRow
from dashboard.kit.guards import limited_queries, signed_in
from dashboard.kit.lists import FILES, JSON, ListQuery, list_files
from dashboard.kit.rendering import ValueContext, render_page
from inventory import models as inventory
from inventory.kinds.pools import PoolKey
from manciple.access.authorization import AUTHORIZES, PUBLIC
from manciple.api import discovery, openapi
from manciple.api.door import ShownCredentials
from manciple.people import Person, person_of, person_of_identity
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError
from manciple.wire.identity import ANONYMOUS
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from scheduling.models import QueuedPod
from scheduling.rehearsal.explanations import claim_document, pod_document

#: Rows on a page of a list, unless `page_size` says otherwise, and the most that it may say.
PAGE_ROWS, MOST_ROWS = 100, 1000


# DRF's `request.user` is the authenticated user, `request.auth` the Person.


class SignedIn(BaseAuthentication):
    """A browser's session. Nothing here writes, so no request needs a CSRF token."""

    def authenticate(self, request: Request) -> tuple[Any, Person] | None:
        http = request._request
        return (http.user, person_of(http)) if http.user.is_authenticated else None


class Credentials(ShownCredentials):
    """A token or a certificate, as in the Kubernetes API: service accounts and people's own tokens."""

    def authenticate(self, request: Request) -> Any:
        identity, _ = super().authenticate(request)
        if identity == ANONYMOUS:
            return None
        person = person_of_identity(identity)
        request._request.manciple_person = person  # type: ignore[attr-defined]  # for `person_of` in templates
        return identity, person


class MayRead(BasePermission):
    """Callers who may list every resource in the view's `lists`; the rows are restricted as well."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        person = request.auth
        if not isinstance(person, Person):
            return False
        return all(person.may("list", resource) for resource in getattr(view, "lists", ()))


class Pages(PageNumberPagination):
    page_size = PAGE_ROWS
    page_size_query_param = "page_size"
    max_page_size = MOST_ROWS


class StableOrdering(OrderingFilter):
    """Breaks ties by the primary key, so that no page repeats or skips a row."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        ordered = super().filter_queryset(request, queryset, view)
        return ordered.order_by(*ordered.query.order_by, "pk")


class _MomentField(IsoDateTimeField):
    def to_python(self, value: Any) -> datetime | None:
        moment: datetime | None = super().to_python(value)
        try:
            return None if moment is None else moment.astimezone(UTC)
        except OverflowError as error:  # before year 1 or after 9999 in UTC
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error


class MomentFilter(filters.IsoDateTimeFilter):
    """A moment in ISO 8601, in any time zone."""

    field_class = _MomentField


class PartFilter(filters.CharFilter):
    """Filters by a column of a row's parts (`PartFilterSet`)."""


class PartNumberFilter(filters.NumberFilter):
    """The same for a number."""


class PartFilterSet(filters.FilterSet):
    """Filters by columns of a row and of its parts. All filters by parts must match the same part, in one subquery: a
    join for each would multiply a row by its parts.
    """

    #: those of the row of the outer query
    parts: QuerySet[Any]

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        parts = self.parts.all()
        filtered = False
        for name, value in self.form.cleaned_data.items():
            chosen = self.filters[name]
            if not isinstance(chosen, PartFilter | PartNumberFilter):
                queryset = chosen.filter(queryset, value)
            elif value not in EMPTY_VALUES:
                parts, filtered = chosen.filter(parts, value), True
        return queryset.filter(Exists(parts)) if filtered else queryset


class RestView(APIView):
    """A view of a REST resource. lists: the Kubernetes resources that a caller must be allowed to list."""

    rights = AUTHORIZES
    lists: tuple[str, ...] = ()
    authentication_classes = [Credentials, SignedIn]
    permission_classes = [MayRead]
    renderer_classes = [JSONRenderer, BrowsableAPIRenderer]
    http_method_names = ["get", "head", "options"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Limits the statements of requests with tokens; the middleware limits only those of sessions."""
        with nullcontext() if request.user.is_authenticated else limited_queries():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raises: ParseError for NUL: no name has one, and PostgreSQL takes none in a parameter."""
        super().initial(request, *args, **kwargs)
        if any("\0" in text for text in (*kwargs.values(), *request.query_params.values())):
            raise ParseError("Null characters are not allowed.")

    def get_exception_handler(self) -> Any:
        """The site's handler answers as the Kubernetes API does."""
        return _answer_error


def _answer_error(error: Exception, context: dict[str, Any]) -> Response | None:
    if isinstance(error, ApiError):
        return Response({"detail": error.message}, status=error.code)
    return exception_handler(error, context)


class RowViewSet(RestView, ReadOnlyModelViewSet[Any]):
    """The rows of an index table that the caller may read: filtered, ordered, in pages."""

    pagination_class = Pages
    filter_backends = [DjangoFilterBackend, StableOrdering]
    rows: QuerySet[Any]

    def get_queryset(self) -> QuerySet[Any]:
        return self.rows.all().restrict(self.person)  # type: ignore[attr-defined, no-any-return]

    @property
    def person(self) -> Person:
        return self.request.auth  # type: ignore[return-value]  # MayRead refuses all others


Row = serializers.ModelSerializer[Any]


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
    """Rows that are named by a path. Pools of several nodes may share a name: `?node=` chooses one."""

    lists = (SLICES,)
    lookup_field = "key"
    lookup_value_converter = "path"

    def first(self, **names: str) -> Any:
        """Raises: Http404."""
        if node := self.request.query_params.get("node"):
            names["node_name"] = node
        row = self.get_queryset().filter(**names).first()
        if row is None:
            raise Http404
        return row


class PoolViewSet(PublishedViewSet):
    """Pools of devices, each in the newest generation of its slices."""

    rows = inventory.Pool.objects.order_by("driver", "name", "node_name")
    serializer_class = PoolSerializer
    filterset_class = PoolFilters
    ordering_fields = ["driver", "name", "node_name", "device_count"]

    def get_object(self) -> Any:
        driver, _, name = self.kwargs["key"].partition("/")
        return self.first(driver=driver, name=name)


#: state of a device -> its name in this API
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
        """One of: free, reserved, allocated, preparing, partly_shared, blocked, closed, tainted, unhealthy,
        unpublished.
        """
        pool, key = self._place(row)
        if pool is None:
            return STATES[DeviceState.UNPUBLISHED]
        if pool not in self._states:
            self._states[pool] = {device.key: pool.state_of(device) for device in pool.candidates}
        return STATES[self._states[pool].get(key, DeviceState.UNPUBLISHED)]

    def get_holders(self, row: inventory.Device) -> list[dict[str, Any]]:
        """The claims that hold it, of the namespaces that you see."""
        return [dict(HolderSerializer(holder).data) for holder in self._holders(row, seen=True)]

    def get_hidden_holders(self, row: inventory.Device) -> int:
        """How many claims of other namespaces hold it."""
        return len(self._holders(row, seen=False))

    def _holders(self, row: inventory.Device, *, seen: bool) -> list[Holder]:
        """Those in namespaces that the person sees, or the rest."""
        pool, key = self._place(row)
        person: Person = self.context["request"].auth
        holders = pool.holders.get(key, ()) if pool else ()
        return [holder for holder in holders if person.sees(holder.namespace) is seen]

    def _place(self, row: inventory.Device) -> tuple[PoolState | None, DeviceKey]:
        """The device's pool, None if it has gone meanwhile, and the device's key."""
        pools = self._pools
        pool = PoolKey(row.driver, row.pool, row.node_name)
        if pool not in pools:  # a pool of several nodes, whose devices name theirs
            pool = PoolKey(row.driver, row.pool)
        return pools.get(pool), (row.driver, row.pool, row.name, pool.node)

    @cached_property
    def _pools(self) -> Mapping[PoolKey, PoolState]:
        """Read once for all rows of an answer."""
        return read_devices().pools

    @cached_property
    def _states(self) -> dict[PoolState, dict[DeviceKey, DeviceState]]:
        """A cache for the pools that are shown: looking up one device goes through its whole pool."""
        return {}


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

    rows = inventory.Device.objects.order_by("driver", "pool", "position", "id")
    serializer_class = DeviceSerializer
    filterset_class = DeviceFilters
    ordering_fields = ["driver", "pool", "name", "node_name"]

    def get_object(self) -> Any:
        driver, _, rest = self.kwargs["key"].partition("/")
        pool, _, name = rest.rpartition("/")
        return self.first(driver=driver, pool=pool, name=name)


class NamedViewSet(RowViewSet):
    """Rows that are named by their name alone."""

    ordering_fields = ["name"]
    lookup_field = "name"
    lookup_value_converter = "str"


class ClassSerializer(Row):
    class Meta:
        model = inventory.DeviceClass
        fields = ["name", "extended_resource_name", "selectors", "config"]


class ClassViewSet(NamedViewSet):
    """DeviceClasses."""

    lists = (CLASSES,)
    rows = inventory.DeviceClass.objects.order_by("name")
    serializer_class = ClassSerializer
    filterset_fields = ["name", "extended_resource_name"]


class NodeSerializer(Row):
    class Meta:
        model = inventory.Node
        fields = ["name", "ready", "unschedulable", "labels", "taints", "capacity", "allocatable"]


class NodeViewSet(NamedViewSet):
    """Nodes."""

    lists = (NODES,)
    rows = inventory.Node.objects.order_by("name")
    serializer_class = NodeSerializer
    filterset_fields = ["name", "ready", "unschedulable"]


class NamespacedViewSet(RowViewSet):
    """Rows that are named by `NAMESPACE/NAME`."""

    lookup_field = "key"
    lookup_value_converter = "object"

    def get_object(self) -> Any:
        namespace, _, name = self.kwargs["key"].partition("/")
        return get_object_or_404(self.get_queryset(), namespace=namespace, name=name)

    def explained(self, resource: str) -> Any:
        """The row, for a caller who may `get` its subresource explain. Raises: Http404, PermissionDenied."""
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
        """Why the pod has no node; "" for pods that have one, and before the first attempt."""
        if row.node_name:
            return ""
        cause = decode(self._causes.get(row.uid, ""))
        return message(cause) if cause is not None else ""

    @cached_property
    def _causes(self) -> dict[str, str]:
        """Read once for all rows of an answer."""
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
    """Pods, their claims, and why those without a node wait."""

    rows = PodRow.objects.order_by("namespace", "name")
    serializer_class = PodSerializer
    filterset_class = PodFilters
    ordering_fields = ["namespace", "name", "phase", "node_name"]

    @action(detail=True)
    def explain(self, request: Request, **_: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Why the pod has no node, node by node, and what would help."""
        row = self.explained(PODS)
        return Response(pod_document(row.namespace, row.name))


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


class InventoryRoot(RestView, APIRootView):
    """The list of resources. Read-only: writes and watches go to the Kubernetes API."""


class ObjectConverter(StringConverter):
    """`NAMESPACE/NAME`."""

    regex = "[^/]+/[^/]+"


register_converter(ObjectConverter, "object")


class NoResource(RestView):
    """Other addresses. Those that lack the final slash are redirected, as by Django's APPEND_SLASH, which is off."""

    rights = PUBLIC
    permission_classes = []

    def get(self, request: Request, **_: str) -> HttpResponseBase:
        if request.path.endswith("/"):
            raise Http404
        return HttpResponsePermanentRedirect(request._request.get_full_path(force_append_slash=True))


class InventoryRouter(DefaultRouter):
    APIRootView = InventoryRoot
    include_format_suffixes = False


router = InventoryRouter(use_regex_path=False)
router.register("pools", PoolViewSet, basename="inventory-pools")
router.register("devices", DeviceViewSet, basename="inventory-devices")
router.register("classes", ClassViewSet, basename="inventory-classes")
router.register("claims", ClaimViewSet, basename="inventory-claims")
router.register("pods", PodViewSet, basename="inventory-pods")
router.register("quotas", QuotaViewSet, basename="inventory-quotas")
router.register("nodes", NodeViewSet, basename="inventory-nodes")


#: The versions that most readers look for come first.
FIRST = ("apis/resource.k8s.io/v1", "api/v1")


@signed_in
@require_safe
def show_documentation(request: HttpRequest) -> HttpResponse:
    documents = [{"name": "Inventory (/api/inventory)", "url": reverse("inventory-schema")}]
    documents += [{"name": at, "url": reverse("api-docs-document", args=[at])} for at in _served()]
    context = ValueContext(place="api-docs", revision=latest_revision(), page=documents)
    return render_page(request, "rest/documentation.html", context)


def _served() -> list[str]:
    """The API versions, as `apis/resource.k8s.io/v1`."""
    found = [
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in discovery.group_versions().items()
        for version in versions
    ]
    return sorted(found, key=lambda at: (FIRST.index(at) if at in FIRST else len(FIRST), at))


@signed_in
@require_safe
def show_document(request: HttpRequest, at: str) -> HttpResponse:  # noqa: ARG001 - the signature is Django's
    """The OpenAPI document of one version. Raises: Http404."""
    kind, _, rest = at.partition("/")
    group, _, version = rest.rpartition("/") if kind == "apis" else ("", "", rest)
    document = openapi.document(group, version) if at in _served() else None
    if document is None:
        raise Http404(f"{at} is not served here.")
    return HttpResponse(document.content, content_type="application/json")


class InventorySchema(RestView):
    """The OpenAPI document of /api/inventory/."""

    renderer_classes = [JSONRenderer]

    def get(self, request: Request) -> Response:
        generator: Any = SchemaGenerator(patterns=[path("api/inventory/", include(router.urls))])  # type: ignore[no-untyped-call]
        schema = generator.get_schema(request=request, public=True)
        files = ((route, query, ending) for route, query in list_files().items() for ending in FILES)
        schema["paths"] |= {f"/{route}{ending}": _path_of(route, query, ending) for route, query, ending in files}
        return Response(schema)


def _path_of(route: str, query: type[ListQuery] | None, ending: str) -> dict[str, Any]:
    """A list of the dashboard as OpenAPI describes it."""
    text = {"type": "string"}
    rows = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object"}}}}
    answer = {"application/json": {"schema": rows}} if ending == JSON else {"text/csv": {"schema": text}}
    names = query.parameters() if query else {}
    parameters = [
        {"name": name, "in": "query", "schema": text | ({"enum": sorted(known)} if isinstance(known, Iterable) else {})}
        for name, known in names.items()
    ]
    return {
        "get": {
            "operationId": f"{route}{ending.replace('.', '_')}",
            "description": f"All rows of the page /{route} that the caller may see.",
            "tags": ["lists"],
            "parameters": parameters,
            "security": [{"tokenAuth": []}, {"cookieAuth": []}, {}],
            "responses": {"200": {"description": "", "content": answer}},
        }
    }


urlpatterns = [
    path("api/inventory", NoResource.as_view()),
    path("api/inventory/schema/", InventorySchema.as_view(), name="inventory-schema"),
    path("api/inventory/", include(router.urls)),
    path("api/inventory/<path:rest>", NoResource.as_view()),
    path("api/docs", show_documentation, name="api-docs"),
    path("api/docs/documents/<path:at>", show_document, name="api-docs-document"),
]
