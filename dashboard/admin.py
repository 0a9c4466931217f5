"""/admin/: the index tables in Django's admin, to read, for administrators.

Nothing can be changed here: most rows are projections of API objects, which the next write of the object would restore,
and the rest belong to the scheduler or to the history. Objects are changed on their pages, to which rows lead.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.urls import URLPattern, URLResolver

from claims import models as claims
from dashboard.kit.guards import administrators_only
from inventory import models as inventory
from manciple.access.authorization import routes
from scheduling.models import QueuedPod


class ReadOnlySite(admin.AdminSite):
    """Signing in and out, and passwords, are the dashboard's."""

    site_header = site_title = "Manciple"
    index_title = "Index tables"
    site_url = "/overview"
    enable_nav_sidebar = True
    _elsewhere = ("login", "logout", "password_change", "password_change_done")

    def has_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - Django's signature
        return True  # `administrators_only` asked

    def get_urls(self) -> list[URLPattern | URLResolver]:
        patterns = [one for one in super().get_urls() if getattr(one, "name", "") not in self._elsewhere]
        for _, pattern in routes(patterns):
            pattern.callback = administrators_only(pattern.callback)
        return patterns


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]
    """Everybody who comes here may read, and nobody may write."""

    show_full_result_count = False
    list_per_page = 100

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's signature
        return True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's signature
        return False

    has_module_permission = has_view_permission
    has_change_permission = has_delete_permission = has_add_permission


def _register(model: type[models.Model], columns: str, *, search: str, filters: str = "") -> None:
    options = {"list_display": columns.split(), "search_fields": search.split(), "list_filter": filters.split()}
    site.register(model, type(f"{model.__name__}Admin", (ReadOnly,), options))


site = ReadOnlySite(name="admin")
_register(
    inventory.Pool,
    "driver name node_name generation slices_seen slices_expected complete device_count",
    search="name node_name",
    filters="driver complete",
)
_register(
    inventory.PublishedSlice,
    "name driver pool generation node_name device_count",
    search="name pool node_name",
    filters="driver",
)
_register(
    inventory.Device,
    "driver pool name node_name shared evicting",
    search="pool name node_name",
    filters="driver shared evicting",
)
_register(inventory.DeviceClass, "name extended_resource_name", search="name extended_resource_name")
_register(inventory.Node, "name ready unschedulable", search="name", filters="ready unschedulable")
_register(
    inventory.Incident,
    "id driver pool node unhealthy began_at ended_at acknowledged_by",
    search="driver pool node",
    filters="unhealthy",
)
_register(
    inventory.Impairment,
    "driver pool device source effect began_at ended_at",
    search="pool device",
    filters="source unhealthy",
)
_register(
    claims.Claim,
    "namespace name allocated deleting source created_at allocated_at",
    search="namespace name uid",
    filters="allocated deleting source",
)
_register(
    claims.AllocatedDevice,
    "driver pool device node device_class exclusive admin_access",
    search="pool device node",
    filters="driver exclusive admin_access",
)
_register(claims.Reservation, "resource name uid", search="name uid")
_register(
    claims.PastAllocation,
    "namespace claim driver pool device began_at ended_at",
    search="namespace claim pool device",
    filters="driver",
)
_register(
    claims.Pod, "namespace name node_name phase deleting", search="namespace name node_name", filters="phase deleting"
)
_register(claims.Template, "namespace name requests created_at", search="namespace name requests")
_register(claims.Quota, "namespace name", search="namespace name")
_register(claims.QuotaLimit, "quota_id resource used hard fraction", search="resource")
_register(
    QueuedPod,
    "namespace name state attempts priority created_at not_before",
    search="namespace name",
    filters="state",
)
