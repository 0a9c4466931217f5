"""The routes of section `capacity`. A list is a file for spreadsheets, too: the same view behind `NAME.csv`."""

from django.urls import path

from dashboard.capacity import overview, quotas, timeline, usage, wallboard

urlpatterns = [
    path("overview", overview.show_overview, name="overview"),
    path("timeline", timeline.show_timeline, name="timeline"),
    path("timeline.csv", timeline.export_timeline, name="timeline-csv"),
    path("wallboard", wallboard.show_wallboard, name="wallboard"),
    path("usage", usage.show_usage, name="usage"),
    path("usage.csv", usage.export_usage, name="usage-csv"),
    path("quotas", quotas.list_quotas, name="quotas"),
    path("quotas.csv", quotas.list_quotas, name="quotas-csv"),
    path("quotas/<str:namespace>/<str:name>", quotas.show_quota, name="quota"),
    path("quotas/<str:namespace>/<str:name>/change", quotas.change_quota, name="quota-change"),
]
