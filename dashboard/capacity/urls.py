"""The routes of section `capacity`. A list is a file, too: the same view behind `NAME.csv` and `NAME.json`."""

from django.urls import path

from dashboard.capacity import overview, quotas, timeline, usage, wallboard
from dashboard.kit.lists import list_paths

urlpatterns = [
    path("overview", overview.show_overview, name="overview"),
    path("timeline", timeline.show_timeline, name="timeline"),
    path("timeline.csv", timeline.export_timeline, name="timeline-csv"),
    path("wallboard", wallboard.show_wallboard, name="wallboard"),
    *list_paths("usage", usage.show_usage, file=usage.export_usage),
    *list_paths("quotas", quotas.list_quotas, quotas.QuotaQuery),
    path("quotas/<str:namespace>/<str:name>", quotas.show_quota, name="quota"),
    path("quotas/<str:namespace>/<str:name>/change", quotas.change_quota, name="quota-change"),
]
