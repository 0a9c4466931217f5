"""The routes of all sections, of the REST API and of the admin."""

from django.urls import include, path

from dashboard.admin import site
from dashboard.kit.components import show_kit
from dashboard.kit.undo import undo_act

urlpatterns = [
    path("", include("dashboard.rest")),
    path("admin/", site.urls),
    path("undo", undo_act, name="undo"),
    path("kit", show_kit, name="kit"),
    path("", include("dashboard.inventory.urls")),
    path("", include("dashboard.workloads.urls")),
    path("", include("dashboard.capacity.urls")),
    path("", include("dashboard.people.urls")),
    path("", include("dashboard.tools.urls")),
]
