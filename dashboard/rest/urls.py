"""The REST resources of the inventory, and the documentation of the APIs."""

from django.urls import include, path
from django.views.generic import RedirectView

from dashboard.kit.rights import public
from dashboard.rest.documentation import InventorySchema, show_document, show_documentation
from dashboard.rest.inventory import router

urlpatterns = [
    path("api/inventory", public(RedirectView.as_view(url="/api/inventory/"))),
    path("api/inventory/schema/", InventorySchema.as_view(), name="inventory-schema"),
    path("api/inventory/", include(router.urls)),
    path("api/docs", show_documentation, name="api-docs"),
    path("api/docs/documents/<path:at>", show_document, name="api-docs-document"),
]
